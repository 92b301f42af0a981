"""What the connections to all providers share: whom they trust, and where they go."""

from __future__ import annotations

from functools import cache
from ssl import SSLContext
from typing import Any, Final

import httpx2

from treadle.errors import ModelError
from treadle.llm import loading


@cache
def tls() -> SSLContext:
    """Return whom to trust: the system's certificates, which take longer to read than a request to make."""
    return httpx2.create_ssl_context()


def settings(home: str, **more: Any) -> dict[str, Any]:
    """Return what every HTTP client of a provider is made with: no redirect is followed.

    Args:
        home: the module of the model class; no answer is read before all of it is loaded.
        more: other arguments of the client; `event_hooks` are called before a redirect is refused.
    """

    async def loaded(_response: httpx2.Response) -> None:
        await loading.until(loading.begin(home).answers)

    hooks = more.pop("event_hooks", {})
    hooks = {**hooks, "response": [*hooks.get("response", ()), refuse_redirect, loaded]}
    return {"verify": tls(), "follow_redirects": False, "event_hooks": hooks, **more}


async def refuse_redirect(response: httpx2.Response) -> None:
    """Raise `ModelError` for a response that leads elsewhere: the key of a request would go there with it."""
    if not 300 <= response.status_code < 400:
        return
    here, there = response.request.url, response.headers.get("location", "")
    try:
        host = here.join(there).netloc.decode("ascii", "replace").rpartition("@")[2][:_HOST_MAX]
    except (httpx2.InvalidURL, ValueError):
        host = ""
    raise ModelError(
        f"{here.host} answered with HTTP status {response.status_code}, a redirect to {host or 'nowhere'}, which is "
        "not followed: the API key would go there. Set base_url to the address of the API itself",
        kind="not_found",
        status=response.status_code,
    )


_HOST_MAX: Final = 253
"""Characters of the longest host name."""
