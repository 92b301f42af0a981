"""Operations of an OpenAPI document as tools of an agent. Requests go only to the host that the caller names."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from os import PathLike
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast
from urllib.parse import quote, urlsplit

from treadle.core.data import frozen
from treadle.core.messages import File, Image, Json
from treadle.core.redaction import Secrets
from treadle.core.unknown_names import explains_call
from treadle.errors import ConfigurationError, ToolError, ToolOutcomeUnknown
from treadle.ports import ToolContext, ToolOutput
from treadle.tools.foreign.openapi_document import MAX_DOCUMENT, References, Unsupported, read_document
from treadle.tools.foreign.openapi_operations import Listed, Operation, listed_operations, operation_of
from treadle.tools.foreign.openapi_request import Prepared, checked_header, prepared
from treadle.tools.foreign.tool import ForeignTool, Terms
from treadle.tools.observe import to_output

if TYPE_CHECKING:
    import httpx2

MAX_RESPONSE: Final = 1_000_000
"""Default limit of a response, in bytes."""

_MAX_TOOLS: Final = 1_000
_MAX_EXCERPT: Final = 2_000
_MAX_LOCATION: Final = 200
_MAX_SEARCHED: Final = 16_000
_READING: Final = ("GET", "HEAD")
_LOST_BEHIND_GATEWAY: Final = (502, 504)
_IMAGES: Final = ("image/gif", "image/jpeg", "image/png", "image/webp")
_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]|_(?!_)){0,31}")


@explains_call
def openapi_tools(
    document: Mapping[str, Any] | str | PathLike[str],
    *,
    name: str,
    base_url: str,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    auth: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
    effects: Mapping[str, Sequence[str]] | None = None,
    idempotency_header: str | None = None,
    timeout: float | None = 60.0,
    retries: int = 0,
    max_bytes: int = MAX_RESPONSE,
    networks: Sequence[str] = (),
    trusted: bool = False,
) -> list[ForeignTool]:
    """Return operations of an OpenAPI 3 document as tools of an agent, named `name__operation`.

    GET and HEAD are read-only. All other operations may write, and are never started twice, unless `effects` declares
    otherwise. Requests go only to `base_url`, through `http_client`. The servers in the document are ignored. A status
    from 300 up is the call's error. If the response to an operation that may write is lost, its outcome is unknown.

    Args:
        document: the document, its path, or its URL. YAML needs the extra `openapi`.
        name: the prefix of the tools' names: at most 32 letters, digits, `-` and single `_`.
        base_url: the URL before the paths of the document, such as `https://api.example.com/v1`.
        include: patterns of operations, by name or as `GET /pets/*`. Only these become tools; by default all do.
        exclude: patterns of operations that do not become tools.
        auth: the name of a secret in `Runner(secrets=)` for each security scheme of the document. The secret is a
            token, a key, or `user:password` for the scheme `basic`. It appears in no call and in no journal.
        headers: further headers of each request, without secrets. Parameters with these names are not offered.
        effects: declared effects by the same patterns, `{"POST /search": ["read_only"]}`. The first match counts, and
            replaces the default of the method.
        idempotency_header: a header in which the service accepts an idempotency key, such as `Idempotency-Key`. Each
            attempt of a call sends the same key.
        timeout: seconds that a call may take; None for no limit.
        retries: how often a failed call of a read-only or idempotent operation is tried again.
        max_bytes: the largest response, in bytes.
        networks: networks outside the internet that may be reached, such as `10.1.0.0/16`.
        trusted: whether the document is your own. Otherwise a request with its tools counts as one that has read
            untrusted content, from `web:HOST`.

    Raises:
        ConfigurationError: an argument is not valid, the document cannot be read, or an operation needs an unsupported
            feature. The text names the problem.
        MissingExtra: the extra `http` is not installed.
    """
    terms = Terms.of("openapi_tools", effects, timeout, retries)
    if not isinstance(name, str) or not _NAME.fullmatch(name):  # pyright: ignore[reportUnnecessaryIsInstance]
        _refuse(f"name must be at most 32 letters, digits, '-' and single '_', got {name!r}")
    if not isinstance(trusted, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
        _refuse(f"trusted must be True or False, got {trusted!r:.80}")
    service = _service(base_url, headers, networks, max_bytes)
    data = read_document(document, lambda url: _fetched(url, networks))
    schemes = _schemes(data, auth)
    chosen = [each for each in listed_operations(data) if _is_chosen(each.names, include, exclude)]
    if not chosen or len(chosen) > _MAX_TOOLS:
        how_many = "none" if not chosen else f"{len(chosen):,}, and {_MAX_TOOLS:,} may be used"
        _refuse(f"of the operations of the document, include= and exclude= choose {how_many}")
    foreign_tools = _foreign_tools(
        chosen,
        data,
        lambda operation: _OperationCall(
            operation, service, _chosen_schemes(operation, schemes), idempotency_header
        ).as_tool(name, terms, trusted=trusted),
    )
    terms.check_used([name for entry in chosen for name in entry.names])
    return foreign_tools


def _foreign_tools(
    chosen: Sequence[Listed], document: Mapping[str, Any], as_tool: Callable[[Operation], ForeignTool]
) -> list[ForeignTool]:
    """Return the tools of operations. Raises `ConfigurationError` with the names of unsupported operations."""
    foreign_tools: list[ForeignTool] = []
    problems: dict[str, list[str]] = {}
    for entry in chosen:
        try:
            foreign_tools.append(as_tool(operation_of(entry, document)))
        except Unsupported as problem:
            problems.setdefault(str(problem), []).append(entry.name)
    if problems:
        listing = "; ".join(f"{problem} ({_several(names)})" for problem, names in problems.items())
        _refuse(f"operations cannot be called, and may be left out by exclude=: {listing[:4_000]}")
    return foreign_tools


def _several(names: Sequence[str]) -> str:
    """Return the first few names, and how many more there are."""
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return f"{', '.join(names[:5])}{more}"


def _is_chosen(names: Sequence[str], include: Sequence[str], exclude: Sequence[str]) -> bool:
    def matches(patterns: Sequence[str]) -> bool:
        return any(fnmatchcase(each, pattern) for pattern in patterns for each in names)

    return (not include or matches(include)) and not matches(exclude)


def _refuse(reason: str) -> NoReturn:
    raise ConfigurationError(f"openapi_tools: {reason}")


# -------------------------------------------------------------------------------------------- service


@frozen
class Service:
    """The destination of requests.

    Args:
        base_url: without a slash at its end.
        host: the only reachable host.
        headers: headers of each request.
        networks: networks outside the internet that may be reached.
        max_bytes: of a response.
    """

    base_url: str
    host: str
    headers: Mapping[str, str]
    networks: tuple[str, ...]
    max_bytes: int

    def client(self) -> httpx2.AsyncClient:
        """Return a client for one call: callers may use different event loops."""
        from treadle.tools.web import http_client

        # Redirects are not followed. To follow one could repeat a write, or lose the response to one that took effect.
        return http_client(
            self.host, networks=self.networks, max_bytes=self.max_bytes, follow_redirects=False
        )


def _service(base_url: Any, headers: Any, networks: Sequence[str], max_bytes: Any) -> Service:
    parts = urlsplit(base_url) if isinstance(base_url, str) else None
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
        _refuse(f"base_url must be like 'https://api.example.com/v1', got {base_url!r}")
    if parts.query or parts.fragment or parts.username is not None:
        _refuse("base_url must have no user, query or fragment; secrets go into auth=")
    if isinstance(max_bytes, bool) or not isinstance(max_bytes, int) or max_bytes < 1:
        _refuse(f"max_bytes must be a whole number from 1 up, got {max_bytes!r}")
    fixed: dict[str, str] = {}
    for key, value in dict[Any, Any](headers or {}).items():
        fixed[str(key)] = _fixed_header(str(value), f"headers[{key!r}]")
    service = Service(base_url.rstrip("/"), parts.hostname, fixed, tuple(networks), max_bytes)
    service.client()  # validates host and networks, and raises MissingExtra
    return service


def _fixed_header(text: str, label: str) -> str:
    try:
        return checked_header(text, label)
    except ToolError as error:
        _refuse(str(error))


def _fetched(url: str, networks: Sequence[str]) -> bytes:
    """Return a document from the network; the caller named its URL."""
    import httpx2

    from treadle.tools.web import http_client_sync

    try:
        with http_client_sync(
            urlsplit(url).hostname or "", networks=networks, max_bytes=MAX_DOCUMENT
        ) as client:
            response = client.get(url)
            response.raise_for_status()
    except (httpx2.HTTPError, ToolError) as error:
        _refuse(f"{url} cannot be read: {error}")
    return response.content


# --------------------------------------------------------------------------------------- authentication


@frozen
class Scheme:
    """How a secret is sent.

    Args:
        name: the scheme's name in the document.
        secret: the secret's name.
        place: `header`, `query` or `cookie`.
        key: the name of the header, parameter or cookie.
        form: `plain`, `bearer` or `basic`.
    """

    name: str
    secret: str
    place: str
    key: str
    form: str

    def value(self, secret: str) -> str:
        """Return a secret in the form in which it is sent."""
        if self.form == "basic":
            return f"Basic {base64.b64encode(secret.encode()).decode()}"
        return f"Bearer {secret}" if self.form == "bearer" else secret


def _schemes(document: Mapping[str, Any], auth: Any) -> dict[str, Scheme]:
    """Return the security schemes for which the caller has secrets."""
    if auth is not None and not isinstance(auth, Mapping):
        _refuse(f"auth must map security schemes to names of secrets, got a {type(auth).__name__}")
    components: Any = document.get("components", {})
    components = cast("Mapping[str, Any]", components) if isinstance(components, Mapping) else {}
    raw_schemes: Any = components.get("securitySchemes", {})
    documented = cast("dict[str, Any]", raw_schemes) if isinstance(raw_schemes, Mapping) else {}
    schemes: dict[str, Scheme] = {}
    for name, secret in cast("Mapping[Any, Any]", auth or {}).items():
        if name not in documented:
            _refuse(
                f"auth names the scheme {name!r}; those of the document are {', '.join(documented) or 'none'}"
            )
        if not isinstance(secret, str) or not secret.isidentifier():
            _refuse(
                f"auth[{name!r}] must be the name of a secret in Runner(secrets=), of letters, digits and '_'"
            )
        try:
            schemes[name] = _scheme(name, secret, References(document).followed(documented[name]))
        except Unsupported as problem:
            _refuse(f"auth: the scheme {name!r}: {problem}")
    return schemes


def _scheme(name: str, secret: str, facts: Mapping[str, Any]) -> Scheme:
    kind, form = facts.get("type"), str(facts.get("scheme", "")).lower()
    if kind == "apiKey" and facts.get("in") in ("header", "query", "cookie"):
        return Scheme(name, secret, facts["in"], str(facts.get("name")), "plain")
    if kind in ("oauth2", "openIdConnect") or (kind == "http" and form == "bearer"):
        return Scheme(name, secret, "header", "authorization", "bearer")
    if kind == "http" and form == "basic":
        return Scheme(name, secret, "header", "authorization", "basic")
    raise Unsupported(f"it is of the type {kind} {form}")


def _chosen_schemes(operation: Operation, schemes: Mapping[str, Scheme]) -> tuple[Scheme, ...]:
    """Return the schemes of an operation: its first alternative for which the caller named secrets."""
    for alternative in sorted(operation.security, key=lambda names: not names):
        if all(name in schemes for name in alternative):
            return tuple(schemes[name] for name in alternative)
    if operation.security:
        alternatives = " or ".join(" with ".join(names) for names in operation.security)
        raise Unsupported(f"it needs {alternatives}: name the secret in auth=")
    return ()


# ----------------------------------------------------------------------------------------------- calls


class _OperationCall:
    """The calls of one operation.

    Args:
        operation: the operation of the document.
        service: the destination of requests.
        schemes: the schemes of the secrets to send.
        idempotency_header: the header for the call's key, if any.
    """

    def __init__(
        self,
        operation: Operation,
        service: Service,
        schemes: tuple[Scheme, ...],
        idempotency_header: str | None,
    ) -> None:
        self._service, self._schemes, self._idempotency_header = service, schemes, idempotency_header
        hidden = {(each.place, each.key.lower()) for each in schemes}
        own_headers = [*service.headers, *([] if idempotency_header is None else [idempotency_header])]
        hidden |= {("header", each.lower()) for each in own_headers}
        self._operation = operation.without(hidden)

    def as_tool(self, prefix: str, terms: Terms, *, trusted: bool) -> ForeignTool:
        operation = self._operation
        spec = terms.spec(
            f"{prefix}__{operation.name}",
            operation.description,
            operation.parameters_schema,
            names=(operation.name, operation.label),
            by_default=frozenset({"read_only", "open_world"}) if operation.method in _READING else None,
            secrets=tuple(dict.fromkeys(each.secret for each in self._schemes)),
            origin=f"web:{self._service.host}",
            defined_by="" if trusted else f"web:{self._service.host}",
        )
        target = f"{operation.method} {self._service.base_url}{operation.path}"
        return ForeignTool(
            spec,
            lambda arguments: prepared(operation, arguments),
            self._call,
            code=hashlib.sha256(target.encode()).hexdigest(),
        )

    async def _call(self, request: Prepared, ctx: ToolContext[Any]) -> ToolOutput:
        import httpx2

        from treadle.tools.web import ConnectionRefused, RedirectRefused, ResponseRefused

        url, headers, secrets = await self._url_and_headers(request, ctx)
        label = self._operation.label
        never_sent = (
            httpx2.ConnectError,
            httpx2.ConnectTimeout,
            httpx2.PoolTimeout,
            httpx2.LocalProtocolError,
        )
        async with self._service.client() as client:
            built = client.build_request(
                self._operation.method, url, headers=headers, content=request.content
            )
            try:
                response = await client.send(built)
            except RedirectRefused as error:
                raise ToolError(
                    f"{label} was answered with a redirect{self._redirect_note()}: {error}"
                ) from None
            except ResponseRefused as error:
                raise ToolOutcomeUnknown(f"{label}: {error}") from None
            except (ConnectionRefused, *never_sent) as error:
                raise ToolError(f"{label} was not sent: {error}") from None
            except httpx2.HTTPError as error:
                reason = f"{type(error).__name__} {error}".strip()
                raise ToolOutcomeUnknown(f"{label}: the answer was lost: {reason}") from None
        return self._output(response, secrets)

    async def _url_and_headers(
        self, request: Prepared, ctx: ToolContext[Any]
    ) -> tuple[str, dict[str, str], Secrets]:
        """Return the URL and headers of a request with its secrets, and a filter that masks these secrets."""
        import asyncio

        headers = {"accept": "application/json, */*;q=0.5", **self._service.headers, **request.headers}
        query, cookies, sent = list(request.query), list[str](), list[str]()
        if self._idempotency_header is not None:
            headers[self._idempotency_header] = ctx.idempotency_key
        for scheme in self._schemes:
            secret = await asyncio.to_thread(ctx.secret, scheme.secret)
            value = scheme.value(secret)
            sent += [secret, value]
            if scheme.place == "query":
                query.append(f"{quote(scheme.key, safe='')}={quote(value, safe='')}")
                continue
            if not (value.isascii() and value.isprintable()):
                raise ToolError(f"the secret {scheme.secret!r} holds a character that no header may have")
            if scheme.place == "cookie":
                cookies.append(f"{scheme.key}={value}")
            else:
                headers[scheme.key] = value
        if cookies:
            headers["cookie"] = "; ".join(cookies)
        url = f"{self._service.base_url}{request.path}"
        return f"{url}?{'&'.join(query)}" if query else url, headers, Secrets(declared=sent)

    def _output(self, response: httpx2.Response, secrets: Secrets) -> ToolOutput:
        status = f"{response.status_code} {response.reason_phrase}".strip()
        if not 200 <= response.status_code < 300:
            raise self._failure(response, status, secrets)
        media_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if self._operation.method == "HEAD":
            return ToolOutput({"status": response.status_code, "headers": dict(response.headers)})
        if not response.content:
            return ToolOutput(None, status)
        if media_type in _IMAGES:
            image = Image(data=response.content, media_type=media_type)
            return ToolOutput({"media_type": media_type, "bytes": len(response.content)}, [image])
        if media_type == "application/json" or media_type.endswith("+json"):
            try:
                return ToolOutput(to_output(json.loads(response.content)).output)
            except (ValueError, RecursionError, ToolError):
                pass  # declared as JSON, but invalid: kept as text
        elif (
            media_type
            and not media_type.startswith("text/")
            and not media_type.endswith(("xml", "yaml", "script"))
        ):
            summary: Json = {"media_type": media_type, "bytes": len(response.content)}
            file = File(data=response.content, media_type=media_type, name=_file_name(response))
            return ToolOutput(summary, artifacts=[file])
        return ToolOutput(_text(response))

    def _redirect_note(self) -> str:
        may_be_done = "" if self._operation.method in _READING else ", and it may have been carried out"
        return f", which is not followed{may_be_done}"

    def _failure(self, response: httpx2.Response, status: str, secrets: Secrets) -> ToolError:
        text = f"{self._operation.label} was answered {status}"
        if 300 <= response.status_code < 400:
            location = _excerpt(response.headers.get("location", ""), secrets, _MAX_LOCATION)
            text += f" to {location or 'no place'}{self._redirect_note()}"
        body = response.content[: 4 * _MAX_SEARCHED + 4].decode("utf-8", "replace").strip()
        excerpt = _excerpt(body, secrets, _MAX_EXCERPT)
        text = f"{text}: {excerpt}" if excerpt else text
        if response.status_code in _LOST_BEHIND_GATEWAY:
            return ToolOutcomeUnknown(text)
        return ToolError(text)


def _excerpt(text: str, secrets: Secrets, most: int) -> str:
    """Return the beginning of a text with secrets masked. They are masked before the cut, which could split one."""
    searched = text[:_MAX_SEARCHED]
    if len(searched) < len(text):
        searched = searched[: secrets.open_end(searched)]
    hidden = secrets.hide(searched, deep=True)
    return hidden if len(hidden) <= most and len(searched) == len(text) else f"{hidden[:most]} [cut]"


def _text(response: httpx2.Response) -> str:
    try:
        return response.content.decode(response.charset_encoding or "utf-8", "replace")
    except LookupError:  # an unknown encoding
        return response.content.decode("utf-8", "replace")


def _file_name(response: httpx2.Response) -> str:
    """Return a name for a file in a response: the last part of its URL's path."""
    return (
        re.sub(r"[^A-Za-z0-9._-]", "_", response.url.path.rstrip("/").rpartition("/")[2])[:100] or "response"
    )
