"""The connections to all providers: trusted certificates, no redirects, and bounded bodies."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from ssl import SSLContext
from typing import Any, Final
from urllib.parse import urljoin, urlsplit

import httpx2

from treadle.core.http_bodies import ACCEPTED, bounding
from treadle.errors import ModelError
from treadle.llm import loading
from treadle.llm.errors import about_page, shown_url
from treadle.llm.first_bytes import first_bytes


@cache
def tls() -> SSLContext:
    """Return the system's certificates. They are cached, since reading them takes longer than a request."""
    return httpx2.create_ssl_context()


def settings(home: str, **more: Any) -> dict[str, Any]:
    """Return the arguments of every HTTP client for a provider. It follows no redirect and bounds each body.

    Args:
        home: the module of the model class. Responses wait until it is loaded.
        more: further arguments of the client; its `event_hooks` are called before a redirect is refused.
    """
    return settings_of(httpx2, home, **more)


def settings_of(library: Any, home: str, **more: Any) -> dict[str, Any]:
    """Return settings as `settings` does, for a client of this library: `httpx2`, or `httpx`."""

    async def loaded(_response: httpx2.Response) -> None:
        await loading.until(loading.begin(home).answers)

    hooks = more.pop("event_hooks", {})
    bound = bounding(library, lambda _: MAX_RESPONSE, _refused_body, _keeping_first_bytes)
    hooks = {**hooks, "response": [bound, *hooks.get("response", ()), refuse_redirect, refuse_page, loaded]}
    headers = {"accept-encoding": ACCEPTED}
    return {"verify": tls(), "follow_redirects": False, "event_hooks": hooks, "headers": headers, **more}


def _keeping_first_bytes(response: Any) -> Callable[[bytes], None] | None:
    """Return the hook that keeps the first bytes of a response if its request wants them."""
    kept = first_bytes.get()
    if kept is None or response.status_code != 200:
        return None
    kept.begin(_host(str(response.request.url)))
    return kept.take


def _refused_body(response: Any, why: str) -> ModelError:
    return ModelError(
        f"{_host(str(response.request.url))} sent no valid answer: {why}",
        kind="unparsable",
        status=response.status_code,
    )


async def refuse_redirect(response: httpx2.Response) -> None:
    """Raise `ModelError` for a redirect: following it would send the key of the request to another server."""
    if 300 <= response.status_code < 400:
        location = response.headers.get("location", "")
        raise refused_redirect(str(response.request.url), location, response.status_code)


def refused_redirect(url: str, location: str, status: int) -> ModelError:
    """Return the error for a redirect; of the addresses, it names only the hosts.

    Args:
        url: the address of the request.
        location: where the server redirects to, relative to that address.
        status: the HTTP status.
    """
    host = _host(url, location) if location else ""
    return ModelError(
        f"{_host(url)} answered with HTTP status {status}, a redirect to {host or 'nowhere'}, which is not followed: "
        "the API key would go there. Set base_url to the address of the API itself",
        kind="not_found",
        status=status,
    )


def _host(url: str, location: str = "") -> str:
    try:
        return urlsplit(urljoin(url, location)).netloc.rpartition("@")[2][:_HOST_MAX]
    except ValueError:
        return ""


async def refuse_page(response: httpx2.Response) -> None:
    """Raise `ModelError` for a page of markup instead of an answer; proxies and wrong addresses send such pages."""
    if response.status_code >= 300 or not response.headers.get("content-type", "").startswith("text/html"):
        return
    page = b""
    async for chunk in response.aiter_bytes():
        page += chunk
        if len(page) >= _PAGE_MAX:
            break
    about = about_page(page[:_PAGE_MAX].decode("utf-8", "replace"), response.status_code)
    raise ModelError(
        f"{about}: is {shown_url(str(response.request.url))} the address of the API?", kind="unparsable"
    )


MAX_RESPONSE: Final = 64_000_000
"""The most bytes of one decoded response. A long answer has about 100 kB, one with pictures a few MB."""

_PAGE_MAX: Final = 4_000
"""The bytes at the start of a page that are searched for its title."""

_HOST_MAX: Final = 253
"""The length of the longest host name."""
