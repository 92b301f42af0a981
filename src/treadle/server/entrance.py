"""One-time codes, which open the inspector without a token in the address.

A command opens a browser with an address as its argument. Other users of the machine can read the arguments of
processes, and a browser keeps addresses in its history. So that address has a code, which the page exchanges for the
token. A code is valid for a minute and for one exchange. A holder of the token makes codes without the server.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from typing import Final

SECONDS: Final = 60
"""Seconds for which a code is valid."""


def code_of(token: str) -> str:
    """Return a new code for a token: its last second, a random part, and a signature with the token."""
    signed = f"{int(time.time()) + SECONDS}.{secrets.token_urlsafe(16)}"
    return f"{signed}.{_signature(signed, token).decode()}"


class Entrance:
    """Exchanges codes for the token of a server.

    Args:
        token: the token.
    """

    def __init__(self, token: str) -> None:
        self._token = token
        self._used: dict[str, int] = {}

    def exchange(self, code: str) -> str | None:
        """Return the token for a valid code, which is invalid from then on; None for any other code."""
        signed, _, signature = code.rpartition(".")
        if not hmac.compare_digest(_signature(signed, self._token), signature.encode("utf-8", "replace")):
            return None
        last, now = int(signed.partition(".")[0]), time.time()
        if last < now or code in self._used:
            return None
        self._used = {each: end for each, end in self._used.items() if end >= now}
        self._used[code] = last
        return self._token


def _signature(signed: str, token: str) -> bytes:
    digest = hmac.new(token.encode(), b"inspector " + signed.encode("utf-8", "replace"), hashlib.sha256)
    return digest.hexdigest().encode()
