"""Send requests to a server, and repeat them until one is answered; each is carried out once.

A request on a lost connection may have been carried out. So a command is sent with a key, a new task with its id, and a
step with the event that it follows. Any server of the same store answers the repeat like the first request.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote, urlsplit

from treadle.core.data import frozen
from treadle.core.http_bodies import ACCEPTED, bounding
from treadle.core.messages import Json
from treadle.errors import (
    ConfigurationError,
    MissingExtra,
    RequestRefused,
    ServerUnavailable,
    StoreUnavailable,
    TreadleError,
)
from treadle.llm.per_loop import PerLoop
from treadle.results.problem_documents import TYPE, error_from_wire
from treadle.results.wire import wire_bytes
from treadle.verbs.operation import Operation

FIRST_PAUSE: Final = 0.25
LONGEST_PAUSE: Final = 10.0
"""Maximum number of seconds between two attempts; they double from the first pause on, less a random part."""

FIRST_CONTACT: Final = 5.0
"""Seconds for which a server that never answered is tried, since its address may be wrong."""

SILENCE: Final = 45.0
"""Seconds without a byte after which a stream counts as lost; a server sends a heartbeat every 15 seconds."""

_CONNECTING: Final = 10.0
_ANSWERING: Final = 30.0
"""Seconds until a response begins, in addition to those for which the request waits."""

MAX_DOCUMENT: Final = 256_000_000
"""Maximum number of bytes of one document of a server, decoded, and of one event of a stream."""

_EVENT_STREAM: Final = "text/event-stream"
_NO_SUCH: Final = "NoSuchOperation"
_PASSING: Final = frozenset({502, 503, 504})


@frozen
class Reply:
    """The answer to a request."""

    status: int
    document: Json
    location: str


class Connection:
    """A server at a URL.

    Args:
        url: the URL of the server, with the path at which it is mounted.
        token: sent with each request.
        patience: seconds for which requests without an answer are repeated.
        tenant: the tenant in which each request acts; None for that of the token.
    """

    def __init__(self, url: str, token: str | None, patience: float, tenant: str | None = None) -> None:
        self.url = _checked(url)
        self.patience = patience
        self._token = token
        self._tenant = tenant
        self._reached = False
        self._is_closed = False
        self._clients = PerLoop[Any](self._client, lambda client: client.aclose())

    def _client(self) -> Any:
        httpx2 = _httpx2()
        from treadle.llm.connections import tls

        headers = {"Accept": "application/json", "Accept-Encoding": ACCEPTED, "User-Agent": "treadle"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        if self._tenant is not None:
            headers["Treadle-Tenant"] = self._tenant
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=20)
        hooks = {"response": [bounding(httpx2, _most, _refused_body)]}
        return httpx2.AsyncClient(
            verify=tls(), headers=headers, follow_redirects=False, limits=limits, event_hooks=hooks
        )

    def in_tenant(self, tenant: str) -> Connection:
        """Return a connection whose requests act in a tenant; a token with the scope `admin` may name any."""
        return Connection(self.url, self._token, self.patience, tenant)

    def open(self) -> None:
        """Make a closed connection usable again."""
        self._is_closed = False

    def _check_open(self) -> None:
        if self._is_closed:
            raise ServerUnavailable(
                f"the client of {self.url} is closed: make another one, or open it again by `async with client` "
                "(`with client.sync` without asyncio)"
            )

    async def close(self) -> None:
        """Close the connections of this event loop, and refuse requests from now on."""
        self._is_closed = True
        await (await self._clients.get()).aclose()
        self._clients = PerLoop[Any](self._client, lambda client: client.aclose())

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Sequence[tuple[str, str]] = (),
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        wait: float = 0.0,
        attempts: Attempts | None = None,
    ) -> Reply:
        """Return the reply to a request, which is repeated until a server answers it.

        Args:
            method: the HTTP method.
            path: the path below the URL of the server.
            query: names and values.
            body: sent as JSON.
            headers: headers in addition to those of every request.
            wait: seconds for which the server may wait for a result before it answers.
            attempts: counts failed attempts, for a caller that must know whether the request was repeated.

        Raises:
            ServerUnavailable: no server answered in time.
            TreadleError: the error in the server's response, of its class.
        """
        self._check_open()
        sent = dict(headers or {})
        content = None
        if body is not None:
            content, sent["Content-Type"] = wire_bytes(body), "application/json"
        if wait:
            sent["Prefer"] = f"wait={wait:g}"
        timeout = _httpx2().Timeout(_ANSWERING + wait, connect=_CONNECTING)
        attempts = attempts or Attempts(self)
        while True:
            try:
                client = await self._clients.get()
                response = await client.request(
                    method,
                    self.url + path,
                    params=list(query),
                    content=content,
                    headers=sent,
                    timeout=timeout,
                )
            except _httpx2().TransportError as error:
                await attempts.failed(error)
                continue
            self._reached = True
            if response.status_code < 400:
                return self._reply(response)
            await attempts.refused(_error_of(response), response)

    def _reply(self, response: Any) -> Reply:
        """Return the document of a successful response; raise `RequestRefused` if no Treadle server sent it."""
        location = response.headers.get("location", "")
        status = response.status_code
        if status >= HTTPStatus.MULTIPLE_CHOICES:  # no redirect is followed, since a token is for one address
            text = (
                f"{self.url} redirects to {location or 'another address'}: give that address, if you trust it"
            )
            raise RequestRefused(text, status=status)
        try:
            document = response.json() if response.content else None
        except ValueError:
            text = (
                f"{self.url} answered {status} with no JSON: it is no Treadle server, or behind another page"
            )
            raise RequestRefused(text, status=status) from None
        return Reply(status, document, location)

    @asynccontextmanager
    async def stream(
        self, path: str, query: Sequence[tuple[str, str]], last_event_id: int | None = None
    ) -> AsyncGenerator[Any]:
        """Open an event stream and yield its frames; raise the errors of `request` and of the HTTP library."""
        self._check_open()
        httpx2 = _httpx2()
        client = await self._clients.get()
        headers = {"Accept": _EVENT_STREAM}
        if last_event_id is not None:
            headers["Last-Event-ID"] = str(last_event_id)
        timeout = httpx2.Timeout(SILENCE, connect=_CONNECTING)
        async with client.stream(
            "GET", self.url + path, params=list(query), headers=headers, timeout=timeout
        ) as response:
            self._reached = True
            if response.status_code >= 400:
                await response.aread()
                raise Refusal(_error_of(response), response)
            yield httpx2.EventSource(response, max_event_size=MAX_DOCUMENT)

    @property
    def was_reached(self) -> bool:
        """Whether a server has answered."""
        return self._reached

    @property
    def patience_now(self) -> float:
        """Seconds for which attempts may fail now."""
        return self.patience if self._reached else min(self.patience, FIRST_CONTACT)


def _most(response: Any) -> int | None:
    """Return the maximum number of bytes of a body; None for a requested event stream, which has no end."""
    kind = response.headers.get("content-type", "").lower()
    is_requested = response.request.headers["accept"] == _EVENT_STREAM and response.status_code < 400
    return None if is_requested and kind.startswith(_EVENT_STREAM) else MAX_DOCUMENT


def _refused_body(response: Any, why: str) -> RequestRefused:
    address = response.request.url.copy_with(path="/", query=None)
    return RequestRefused(f"{address} sent no valid answer: {why}", status=response.status_code)


class Refusal(Exception):
    """A server's error instead of a stream, with the response."""

    def __init__(self, error: TreadleError, response: Any) -> None:
        super().__init__(str(error))
        self.error = error
        self.response = response

    @property
    def head(self) -> int | None:
        """The end of the journal, if the stream was to begin after it."""
        try:
            head = self.response.json().get("head")
        except (ValueError, AttributeError):
            return None
        return head if self.response.status_code == HTTPStatus.CONFLICT and isinstance(head, int) else None


class Attempts:
    """Counts attempts that failed in a row, and waits before the next one.

    Args:
        connection: has the number of seconds for which they may fail.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._pause = FIRST_PAUSE
        self._since = time.monotonic()
        self.failures = 0

    def progressed(self) -> None:
        """Reset the count, since data arrived."""
        self._pause = FIRST_PAUSE
        self._since = time.monotonic()

    async def failed(self, error: Exception, seconds: float | None = None) -> None:
        """Wait before the next attempt, at least `seconds`; raise `ServerUnavailable` once patience has ended."""
        self.failures += 1
        pause = max(self._pause * random.uniform(0.5, 1.0), seconds or 0.0)  # noqa: S311  no secret
        self._pause = min(2 * self._pause, LONGEST_PAUSE)
        if time.monotonic() + pause - self._since > self._connection.patience_now:
            waited = time.monotonic() - self._since
            text = f"no server at {self._connection.url} answered within {waited:.0f} seconds: {_said(error)}"
            if not self._connection.was_reached:
                text += "; check that it runs there, and whether it serves http or https"
            raise ServerUnavailable(text) from error
        await asyncio.sleep(pause)

    async def refused(self, error: TreadleError, response: Any) -> None:
        """Wait before the next attempt if the refusal may be temporary; else raise its error."""
        status = response.status_code
        is_passing = status == 429 or (status in _PASSING and _may_pass(error))
        if not is_passing:
            raise error
        try:
            await self.failed(error, _seconds(response.headers.get("retry-after")))
        except ServerUnavailable:
            if isinstance(error, StoreUnavailable):
                raise error from None
            raise


def _may_pass(error: TreadleError) -> bool:
    """Whether a repeat of the request may soon succeed, at another server of the store or once this one is back."""
    return not isinstance(error, RequestRefused) or error.problem != "TooManyTasks"


def _error_of(response: Any) -> TreadleError:
    """Return the error of a response: from its problem document, else from its status."""
    try:
        document = response.json()
        error = error_from_wire(document)
    except ValueError:
        text = (
            f"the server answered {response.status_code} {response.reason_phrase}, without a problem document"
        )
        return RequestRefused(text, status=response.status_code)
    if type(error) is not TreadleError:
        return error
    if response.status_code == HTTPStatus.UNAUTHORIZED:
        return RequestRefused(_unauthorized(response), status=response.status_code, problem="Unauthenticated")
    problem = str(document.get("type", "")).removeprefix(TYPE)
    advice = (
        "; give Client the url at which the server is mounted, without /v1" if problem == _NO_SUCH else ""
    )
    return RequestRefused(f"{error}{advice}", status=response.status_code, problem=problem)


def _unauthorized(response: Any) -> str:
    address = response.request.url.copy_with(path="/", query=None)
    if "authorization" in response.request.headers:
        wrong = f"the server at {address} does not accept the token that was sent"
    else:
        wrong = f"the server at {address} needs a token, and none was sent"
    return (
        f"{wrong}: give Client(url, token=...); on the command line TREADLE_TOKEN, or be in the folder whose "
        ".treadle/server-token the server uses"
    )


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _seconds(text: str | None) -> float | None:
    return min(float(text), 60.0) if text is not None and text.isdigit() else None


def path_of(row: Operation, arguments: Mapping[str, Any]) -> str:
    """Return the path of a request; raise `ConfigurationError` for an id that no path can have."""
    return row.path.format(**{name: _segment(name, str(arguments[name])) for name in row.in_path})


def _segment(name: str, value: str) -> str:
    if value in (".", ".."):  # RFC 3986 removes them, also as %2E, so the request would name another resource
        raise ConfigurationError(f"{name} must not be {value!r}: no URL can contain that")
    return quote(value, safe="")


def _checked(url: Any) -> str:
    """Return the URL of a server without a slash at its end; raise `ConfigurationError`."""
    try:
        parts = urlsplit(url) if isinstance(url, str) else None
    except ValueError:  # such as http://[::1
        parts = None
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
        advice = _instead_of(url) if isinstance(url, str) and not {"/", "@"} & {*url} else ""
        raise ConfigurationError(f"Client: url must be http://... or https://..., got {url!r:.200}{advice}")
    if parts.query or parts.fragment:
        raise ConfigurationError("Client: url takes no query and no fragment; give the token as token=")
    if parts.username is not None or parts.password is not None:
        raise ConfigurationError("Client: url takes no password; give the token as token=")
    return url.rstrip("/")


def _instead_of(url: str) -> str:
    """Return the advice for text that is no URL: it may be a host and port, or a store."""
    return f"; did you mean 'http://{url}'?" if ":" in url else f"; open a store with Runner({url!r:.80})"


def _httpx2() -> Any:
    try:
        import httpx2
    except ImportError:
        raise MissingExtra("client", "Client") from None
    return httpx2
