"""What the connections to all providers share, made once for a process."""

from __future__ import annotations

from functools import cache
from ssl import SSLContext

import httpx2


@cache
def tls() -> SSLContext:
    """Return whom to trust: the system's certificates, which take longer to read than a request to make."""
    return httpx2.create_ssl_context()
