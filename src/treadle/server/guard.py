"""Checks before every request: host, origin, media type, size, time, rate, principal.

A browser sends requests to a local server for any open page. An attacker's host name may resolve to this machine. So
the `Host` must be a name of the server. An `Origin` must be the server's own or listed. A body must be declared as
JSON, which forms of pages cannot do. There are no cookies, so a page's request has no credentials by default.
"""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Collection
from math import ceil
from typing import Any, Final, cast
from urllib.parse import urlsplit

import pydantic_core
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, HTTPConnection, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from treadle.core.host_names import is_host
from treadle.core.tracebacks import hidden_piece, pieces_of, traceback_text, user_error
from treadle.errors import ConfigurationError
from treadle.server.principals import Authenticate, authenticated
from treadle.server.problems import Problem, log, problem_of, server_fault, unauthenticated

LOOPBACK: Final = ("localhost", "127.0.0.1", "[::1]")
"""Host names that a server always accepts, since no page of another site has such an address."""

OPEN: Final = ("/health", "/ready")
"""Paths without authentication."""

ALLOWED: Final = (
    "authorization, content-type, idempotency-key, if-match, if-none-match, last-event-id, "
    "mcp-method, mcp-name, mcp-protocol-version, prefer"
)
"""Headers that pages of other origins may send."""

EXPOSED: Final = "etag, link, location, retry-after, preference-applied"
AT_ONCE: Final = 2
"""Size of a burst, in seconds' worth of requests."""

HEAD_BYTES: Final = 32 << 10
"""Maximum size of the head of a request, in bytes."""

AUTH_SECONDS: Final = 10.0
"""Maximum number of seconds for `auth`; without a limit, unauthenticated requests could hold all connections."""

MOST_OBJECTS: Final = 50_000
"""Maximum number of objects and lists in a body, counted by brackets, also in texts; many take a second to parse."""

MOST_VALUES: Final = 100_000
"""Maximum number of values in a body, counted by commas, also in texts; numbers and names are as slow as objects."""

MOST_PARSED: Final = 20_000
"""Maximum number of values in a parsed body; the event loops of the server visit each of them."""

LONG_NUMBER: Final = b"0" * 500
"""Digits of a number that is slow to parse, since the time grows with their square."""

MOST_LONG_NUMBERS: Final = 1_000
"""Maximum number of such runs of digits in a body, also in texts."""

_DIGITS_AS_ZEROS: Final = bytes([48 if 48 <= byte <= 57 else 32 for byte in range(256)])
"""For `bytes.translate`: equal digits and blanks, so that runs of digits are quick to find."""

_HOST: Final = re.compile(r"(?i)([a-z0-9._-]+|\[[0-9a-f:.]+\])(?::(\d{1,5}))?")

audit = logging.getLogger("treadle.audit")


class Doors:
    """The host names of a server, and the origins of pages that may call it.

    Args:
        hosts: names, with a port or for all ports, in addition to loopback.
        origins: origins of other sites, such as `https://app.example`.
        public_url: the public URL of the server.

    Raises:
        ConfigurationError: an argument is not valid; the error names it.
    """

    def __init__(
        self, hosts: Collection[str] = (), origins: Collection[str] = (), public_url: str | None = None
    ) -> None:
        self._hosts = {*LOOPBACK, *[_checked_host(host) for host in hosts]}
        self.origins = frozenset([_checked_origin(origin) for origin in origins])
        self._own_origins: set[str] = set()
        if public_url is not None:
            self._own_origins.add(origin_of(public_url))
            self._hosts.add(urlsplit(public_url).netloc.lower())

    def check_host(self, headers: Headers) -> None:
        """Raise a `Problem` unless a request's `Host` is a name of the server."""
        values = headers.getlist("host")
        host = values[0].lower() if len(values) == 1 else ""
        fits = _HOST.fullmatch(host)
        if fits is None or not {host, fits[1]} & self._hosts:
            detail = "the server is not known by the name in `Host`: see `hosts=` of `app`, or `--allow-host`"
            raise Problem(421, "HostRefused", detail)

    def check_origin(self, scheme: str, headers: Headers, *, is_page: bool = False) -> None:
        """Raise a `Problem` if a page of another origin sends the request.

        Args:
            scheme: the scheme of the request.
            headers: its headers.
            is_page: whether it is for the inspector, which a link of another site may open.
        """
        origins = headers.getlist("origin")
        if not origins:
            opens_page = is_page and headers.get("sec-fetch-mode") == "navigate"
            if headers.get("sec-fetch-site") == "cross-site" and not opens_page:
                raise Problem(403, "OriginRefused", "a page of another site must not call this server")
            return
        own_origins = {f"{scheme}://{headers['host'].lower()}", *self._own_origins}
        if len(origins) > 1 or origins[0].lower() not in own_origins | self.origins:
            detail = "pages of the origin in `Origin` must not call this server: see `origins=`"
            raise Problem(403, "OriginRefused", detail)


class AuthFaults:
    """Logs the errors of `auth=`: the first one of each line of code in full, later ones by their count.

    The count is logged at powers of ten. Any caller can cause errors with every request, and a log of each would fill
    the disk.

    Args:
        hide: returns a text without secrets and the store's location.
    """

    def __init__(self, hide: Callable[[str], str]) -> None:
        self._hide = hide
        self._counts = dict[tuple[Any, ...], int]()

    def note(self, error: BaseException, instance: str) -> None:
        """Log an error, or count it."""
        raised = user_error(error)
        trace = (raised.error if raised is not None else error).__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        line = None if trace is None else (trace.tb_frame.f_code.co_filename, trace.tb_lineno)
        key = (type(error).__name__, line)
        self._counts[key] = count = self._counts.get(key, 0) + 1
        if count == 1:
            text = traceback_text([hidden_piece(piece, self._hide) for piece in pieces_of(error)])
            log.error("request %s failed, since auth= raised an error:\n%s", instance, text)
        elif count in _POWERS_OF_TEN:
            log.error(
                "auth= raised %s %s times; the first is logged in full", type(error).__name__, f"{count:,}"
            )


_POWERS_OF_TEN: Final = frozenset(10**power for power in range(1, 19))


class Guard:
    """Wraps the application: refuses forbidden requests, and answers every failure with a problem document.

    Args:
        app: the application.
        auth: returns the principal of a request, stored in `request.state.principal`.
        doors: the allowed hosts and origins.
        hide: returns an error's message without text that callers must not read.
        count: called for each response with its operation, its status, and the seconds until it began.
        refusals: limits the logged unauthenticated requests of an address.
        unanswered: the timeouts of requests without a response. When the server ends, they expire and the requests are
            refused.
        is_public: returns whether a method and a path are those of a file that needs no principal.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        auth: Authenticate,
        doors: Doors,
        hide: Callable[[str], str],
        count: Callable[[str, int, float], None],
        refusals: Rates,
        unanswered: set[asyncio.Timeout],
        is_public: Callable[[str, str], bool] = lambda method, path: False,
    ) -> None:
        self._app = app
        self._is_public = is_public
        self._auth = auth
        self._auth_faults = AuthFaults(hide)
        self._doors = doors
        self._hide = hide
        self._count = count
        self._refusals = refusals
        self._unanswered = unanswered

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        instance = secrets.token_hex(8)
        scope.setdefault("state", {})["instance"] = instance
        headers = Headers(scope=scope)
        origin = headers.get("origin")
        began, started = False, time.perf_counter()

        async def send_counted(message: Message) -> None:
            nonlocal began
            if message["type"] == "http.response.start":
                began = True
                self._unanswered.discard(in_time)
                self._add_headers(message, instance, origin)
                operation = scope["state"].get("operation", "none")
                self._count(operation, message["status"], time.perf_counter() - started)
            await send(message)

        in_time = asyncio.timeout(None)
        try:
            async with in_time:
                self._unanswered.add(in_time)
                await self._admit(scope, receive, send_counted, headers)
        except ClientDisconnect:
            return  # during its body, so nothing was done, and no client reads an answer
        except Exception as error:
            if isinstance(error, TimeoutError) and in_time.expired():
                error = Problem(503, "Draining", "the server ends", {"Retry-After": "5"})
            path = scope["path"].removeprefix(scope.get("root_path", ""))
            response = problem_of(error, instance, self._hide, path)
            if began:
                raise  # a response that has begun cannot be replaced
            await response(scope, receive, send_counted)
        finally:
            self._unanswered.discard(in_time)

    async def _admit(self, scope: Scope, receive: Receive, send: Send, headers: Headers) -> None:
        """Serve a request that passes all checks; raise a `Problem` for another one."""
        _check_head(scope, headers)
        self._doors.check_host(headers)
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        is_public = self._is_public(scope["method"], path)
        self._doors.check_origin(scope.get("scheme", "http"), headers, is_page=is_public)
        if scope["method"] == "OPTIONS" and "origin" in headers:
            await _preflight(scope, receive, send)
            return
        _check_media(scope, headers)
        if not is_public and path not in OPEN:
            await self._identify(scope)
        scope["path"] = _with_quoted_slashes(scope)
        await self._app(scope, receive, send)

    async def _identify(self, scope: Scope) -> None:
        """Store the principal of a request in its state; raise a `Problem` if there is none."""
        connection = HTTPConnection(scope)
        try:
            async with asyncio.timeout(AUTH_SECONDS):
                principal = await authenticated(self._auth, connection)
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException as error:  # noqa: BLE001  it is a fault of the server, whose details the client must not see
            self._auth_faults.note(error, scope["state"]["instance"])
            raise server_fault() from None
        if principal is None:
            client = connection.client.host if connection.client is not None else "-"
            self._refusals.check(client)  # after authentication: principals may share the address
            facts = {"client": client, "method": scope["method"], "instance": scope["state"]["instance"]}
            audit.warning("a request from %s was refused: it names no principal", client, extra=facts)
            raise unauthenticated()
        scope["state"]["principal"] = principal

    def _add_headers(self, message: Message, instance: str, origin: str | None) -> None:
        headers = MutableHeaders(scope=message)
        headers["X-Content-Type-Options"] = "nosniff"
        headers["Referrer-Policy"] = "no-referrer"
        headers["Treadle-Request"] = instance
        headers.setdefault("Cache-Control", "no-store")
        if origin is not None and origin.lower() in self._doors.origins:
            headers["Access-Control-Allow-Origin"] = origin
            headers["Access-Control-Expose-Headers"] = EXPOSED
        if self._doors.origins:
            headers.add_vary_header("Origin")


async def _preflight(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a browser's preflight request."""
    headers = {
        "Access-Control-Allow-Methods": "GET, POST, DELETE",
        "Access-Control-Allow-Headers": ALLOWED,
        "Access-Control-Max-Age": "600",
    }
    await Response(status_code=204, headers=headers)(scope, receive, send)


def _check_head(scope: Scope, headers: Headers) -> None:
    """Raise a `Problem` that closes the connection if a head is too large or has two lengths.

    h11 limits a head only while it is incomplete, and uses one of the two lengths (RFC 9112, 6.1).
    """
    size = len(scope.get("raw_path") or b"") + len(scope.get("query_string", b""))
    size += sum([len(name) + len(value) for name, value in headers.raw])
    if size > HEAD_BYTES:
        detail = f"the head of the request has more than {HEAD_BYTES:,} bytes"
        raise Problem(431, "HeadTooLarge", detail, {"Connection": "close"})
    if "transfer-encoding" in headers and "content-length" in headers:
        detail = "a request must not have both `Content-Length` and `Transfer-Encoding`"
        raise Problem(400, "HeaderRefused", detail, {"Connection": "close"})


def _check_media(scope: Scope, headers: Headers) -> None:
    """Raise a `Problem` for a body that is not declared as JSON, since a form of any page can send it."""
    has_body = headers.get("content-length", "0") != "0" or "transfer-encoding" in headers
    if not has_body and "content-type" not in headers:
        return
    media, _, parameters = headers.get("content-type", "").partition(";")
    charset = parameters.replace(" ", "").lower()
    if media.strip().lower() != "application/json" or charset not in ("", "charset=utf-8"):
        if scope["method"] in ("GET", "HEAD") and not has_body:
            return
        raise Problem(415, "MediaTypeRefused", "a body must be JSON: `Content-Type: application/json`")


def _with_quoted_slashes(scope: Scope) -> str:
    """Return the path of a request with `/` and `%` inside its segments still quoted, since ids may contain them."""
    raw = scope.get("raw_path")
    if not raw or b"%" not in raw:
        return scope["path"]
    from urllib.parse import unquote

    segments = raw.partition(b"?")[0].decode("latin-1").split("/")
    try:
        decoded = [unquote(segment, errors="strict") for segment in segments]
    except UnicodeDecodeError:
        raise Problem(400, "PathNotText", "the path is not UTF-8") from None
    return "/".join([segment.replace("%", "%25").replace("/", "%2F") for segment in decoded])


def _checked_host(host: Any) -> str:
    parts = _HOST.fullmatch(host) if isinstance(host, str) else None
    if parts is None or not is_host(parts[1].strip("[]")):
        raise ConfigurationError(f"hosts: a host is a name such as 'agents.example', got {host!r:.80}")
    return host.lower()


def _checked_origin(origin: Any) -> str:
    if not isinstance(origin, str) or origin in ("*", "null") or origin_of(origin) != origin.lower():
        raise ConfigurationError(f"origins: an origin is such as 'https://app.example', got {origin!r:.80}")
    return origin.lower()


def origin_of(url: str) -> str:
    """Return the origin of a URL; raise `ConfigurationError` for a URL without a scheme and a host."""
    try:
        parts = urlsplit(url)
        fits = parts.scheme in ("http", "https") and bool(parts.hostname) and "@" not in parts.netloc
    except ValueError:
        fits = False
        parts = urlsplit("")
    if not fits:
        raise ConfigurationError(f"a URL is such as 'https://agents.example', got {url!r:.80}")
    return f"{parts.scheme}://{parts.netloc}".lower()


# ------------------------------------------------------------------------------------------------ bodies


async def read_body(request: Request, most: int, seconds: float) -> bytes:
    """Return the body of a request.

    Args:
        request: the request.
        most: the largest size, in bytes.
        seconds: the time in which it must arrive.

    Raises:
        Problem: it is too large or too slow.
    """
    too_large = Problem(413, "BodyTooLarge", f"the body has more than {most:,} bytes")
    declared = request.headers.get("content-length", "0")
    if declared.isascii() and declared.isdigit() and int(declared) > most:
        raise too_large
    chunks: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(seconds):
            async for chunk in request.stream():
                size += len(chunk)
                if size > most:
                    raise too_large
                chunks.append(chunk)
    except TimeoutError:
        raise Problem(408, "BodyTooSlow", f"the body did not arrive within {seconds:g} seconds") from None
    return b"".join(chunks)


def json_of(body: bytes) -> Any:
    """Return the JSON of a body; None if it is empty.

    Raises:
        Problem: it is not JSON, is nested too deep, has NaN, a lone surrogate, or too many values or digits.
    """
    if not body:
        return None
    if body.count(b"{") + body.count(b"[") > MOST_OBJECTS:
        raise Problem(413, "BodyTooLarge", f"the body has more than {MOST_OBJECTS:,} objects and lists")
    if body.count(b",") > MOST_VALUES:
        detail = f"the body has more than {MOST_VALUES:,} values, commas in texts included: send long data as a file"
        raise Problem(413, "BodyTooLarge", detail)
    if body.translate(_DIGITS_AS_ZEROS).count(LONG_NUMBER) > MOST_LONG_NUMBERS:
        detail = f"the body has {len(LONG_NUMBER)} digits in a row more than {MOST_LONG_NUMBERS:,} times: send a file"
        raise Problem(413, "BodyTooLarge", detail)
    try:
        document = pydantic_core.from_json(body, allow_inf_nan=False)
    except (ValueError, RecursionError) as error:
        raise Problem(400, "NotJson", f"the body is not JSON: {error}"[:500]) from None
    if values_in(document) > MOST_PARSED:
        detail = f"the body has more than {MOST_PARSED:,} values: send long data as text or as a file"
        raise Problem(413, "BodyTooLarge", detail)
    return document


def signs_in(body: bytes) -> int:
    """Return an upper bound of the values in a body, from its commas and brackets."""
    return body.count(b",") + body.count(b"{") + body.count(b"[")


def values_in(document: Any) -> int:
    """Return the number of values in a document; counting stops above `MOST_PARSED`."""
    count, unseen = 1, [document]
    while unseen and count <= MOST_PARSED:
        value = unseen.pop()
        if isinstance(value, dict):
            value = list(cast("dict[str, Any]", value).values())
        if isinstance(value, list):
            items = cast("list[Any]", value)
            count += len(items)
            unseen += [item for item in items if isinstance(item, (dict, list))]
    return count


# ------------------------------------------------------------------------------------------------- rates


class Rates:
    """Limits the work of each principal with a token bucket.

    A request takes one token. Its body takes more once its size is known. The bucket may then be in debt, and further
    requests are refused until the debt is paid.

    Args:
        a_second: requests per second of a principal.
    """

    def __init__(self, a_second: int) -> None:
        self._a_second = a_second
        self._buckets: OrderedDict[Any, tuple[float, float]] = OrderedDict()

    def check(self, key: Any) -> None:
        """Take a token; raise a `Problem` if there is none."""
        self.check_tokens(key, 1)
        self.charge(key, 1)

    def check_tokens(self, key: Any, least: int = 0) -> None:
        """Raise a `Problem` if fewer than `least` tokens are left; by default, if the bucket is in debt."""
        tokens = self._tokens_left(key)
        if tokens < least:
            wait = str(ceil((1 - tokens) / self._a_second))
            detail = f"more than {self._a_second} requests a second, or as much work as these"
            raise Problem(429, "TooManyRequests", detail, {"Retry-After": wait})

    def charge(self, key: Any, tokens: float) -> None:
        """Take tokens, if necessary into debt."""
        self._buckets[key] = (self._tokens_left(key) - tokens, time.monotonic())
        self._buckets.move_to_end(key)
        if len(self._buckets) > 10_000:
            self._buckets.popitem(last=False)

    def _tokens_left(self, key: Any) -> float:
        """Return the tokens in a bucket, or its debt as a negative number."""
        now, most = time.monotonic(), float(self._a_second * AT_ONCE)
        tokens, since = self._buckets.get(key, (most, now))
        return min(most, tokens + (now - since) * self._a_second)
