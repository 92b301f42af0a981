"""Routes from the table of operations: each admits a request, reads its arguments, and writes the response.

Small responses are written at once, large ones in a thread and in pieces, so that no request blocks others. The JSON
library holds the interpreter lock while it writes a value. So a long list is written item by item, and the event loop
runs in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final, cast
from weakref import WeakValueDictionary

import pydantic_core
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from treadle.core.messages import Json
from treadle.core.redaction import Secrets
from treadle.errors import InvalidField
from treadle.results.wire import plain_wire, to_wire, wire_bytes
from treadle.server.calls import Answer, Call, Service
from treadle.server.guard import MOST_PARSED, Rates, json_of, read_body, signs_in, values_in
from treadle.server.handlers import body_refusal, check_arguments, handler_of
from treadle.server.principals import Principal
from treadle.server.problems import Problem
from treadle.server.reading import (
    body_arguments,
    check_accepted,
    expected_head,
    idempotency_key,
    path_arguments,
    query_arguments,
    seconds_to_wait,
)
from treadle.verbs.operation import Operation
from treadle.verbs.table import OPERATIONS

LARGE: Final = 100
"""Number of items above which a list is written in a thread."""


async def content(value: Any, secrets: Secrets | None) -> bytes:
    """Return a value as JSON.

    Args:
        value: an object of a class that verbs return.
        secrets: the secrets to mask; None if there are none.
    """
    if _is_large(value):
        return await asyncio.to_thread(_json_bytes, value, secrets)
    return _hidden(value, secrets)


def _is_large(value: Any) -> bool:
    """Return whether a value is a long list, or has one as `messages` or as the items of a page."""
    if isinstance(value, tuple):
        return len(cast("tuple[Any, ...]", value)) > LARGE
    lists = [getattr(value, name, None) for name in ("messages", "items")]
    return any(isinstance(each, tuple) and len(cast("tuple[Any, ...]", each)) > LARGE for each in lists)


def _hidden(value: Any, secrets: Secrets | None) -> bytes:
    if secrets is None:
        return wire_bytes(value)
    return pydantic_core.to_json(secrets.hide_data(plain_wire(value)))


def _json_bytes(value: Any, secrets: Secrets | None) -> bytes:
    return b"".join(_pieces(to_wire(value), secrets))


def _pieces(document: Json, secrets: Secrets | None) -> list[bytes]:
    if isinstance(document, list):
        items = [_hidden(item, secrets) for item in cast("list[Json]", document)]
        return [b"[", b",".join(items), b"]"]
    if not isinstance(document, dict):
        return [_hidden(document, secrets)]
    pieces: list[bytes] = []
    for name, item in cast("dict[str, Json]", document).items():
        pieces += [b"," if pieces else b"{", _hidden(name, None), b":"]
        pieces += _pieces(item, secrets) if isinstance(item, list) else [_hidden(item, secrets)]
    return [*pieces, b"}"] if pieces else [b"{}"]


LARGE_BODY: Final = 1 << 14
"""Bytes above which a body is parsed in a thread, one at a time for each principal."""

VALUES_A_TOKEN: Final = 250
BYTES_A_TOKEN: Final = 1 << 17
"""Bytes of a body that count as one request."""

Endpoint = Callable[[Request], Awaitable[Response]]


def routes(service: Service) -> list[Route]:
    """Return the routes of all operations; of several that match a path, the one with fewer parameters comes first."""
    rates = Rates(service.limits.requests_per_second)
    bodies = Bodies(rates)
    paths: dict[str, dict[str, Endpoint]] = {}
    for operation in sorted(OPERATIONS.values(), key=lambda operation: len(operation.in_path)):
        if operation.protocol and operation.protocol not in service.protocols:
            continue
        endpoints = paths.setdefault(operation.path, {})
        endpoints[operation.method] = _endpoint(service, rates, bodies, operation)
        if operation.method == "GET" and not operation.streams:  # HEAD of a stream would be empty
            endpoints["HEAD"] = endpoints["GET"]
    return [_route(path, endpoints) for path, endpoints in paths.items()]


def _route(path: str, endpoints: Mapping[str, Endpoint]) -> Route:
    """Return the route of a path with all its methods, which its `Allow` header names."""

    async def endpoint(request: Request) -> Response:
        return await endpoints[request.method](request)

    route = Route(path, endpoint, methods=list(endpoints))
    route.methods = set(endpoints)  # Starlette adds HEAD to GET
    return route


def _endpoint(service: Service, rates: Rates, bodies: Bodies, operation: Operation) -> Endpoint:
    handle = handler_of(operation.name)

    async def endpoint(request: Request) -> Response:
        request.state.operation = operation.name
        principal = admitted(request, operation, rates)
        check_accepted(operation, request.headers)
        try:
            arguments = await bodies.arguments(service, operation, request, principal)
        except (Problem, InvalidField) as error:
            refusal = body_refusal(operation.name, error)
            if refusal is None:
                raise
            return refusal
        call = Call(service, operation, request, principal, arguments)
        call.wait = seconds_to_wait(operation, request.headers)
        call.expect = expected_head(operation, request.headers)
        call.key = idempotency_key(operation, request.headers)
        check_arguments(call)
        if service.draining and operation.method == "POST":
            raise Problem(503, "Draining", "the server is about to end", {"Retry-After": "5"})
        with caller_span(request.headers), _place_to_wait(call):
            answer = await handle(call)
        return answer.response or await _response(service, operation, call, answer)

    return endpoint


@contextmanager
def _place_to_wait(call: Call) -> Generator[None]:
    """Let a request wait in a block, within the limit of its principal.

    Above the limit a read is refused with a `Problem`. A command runs without a wait, since a stop must never be
    refused.
    """
    if not call.wait or call.principal is None:
        yield
        return
    with call.service.waiters.place(call.tenant, call.principal.name) as may_wait:
        if not may_wait:
            if call.operation.method == "GET":
                detail = f"{call.service.limits.waits_per_principal} requests of {call.principal.name} wait already"
                raise Problem(429, "TooManyWaits", detail, {"Retry-After": "1"})
            call.wait = 0.0
        yield


@contextmanager
def caller_span(headers: Headers) -> Generator[None]:
    """Trace the work of a block as a child of the span in the header `traceparent`."""
    if "traceparent" not in headers:
        yield
        return
    from opentelemetry import context, propagate

    # Only this header is used: baggage of the caller would reach models and tools.
    carrier = {name: headers[name] for name in ("traceparent", "tracestate") if name in headers}
    token = context.attach(propagate.extract(carrier))
    try:
        yield
    finally:
        context.detach(token)


def admitted(request: Request, operation: Operation, rates: Rates) -> Principal | None:
    """Return the principal of a request; raise a `Problem` if it lacks a scope or exceeds its rate."""
    principal: Principal | None = getattr(request.state, "principal", None)
    if operation.access == "open":
        return principal
    assert principal is not None, "the guard lets no request without a principal pass"
    rates.check(_bucket(principal))
    if operation.access == "operator":
        if not principal.is_operator:
            detail = f"{operation.name} concerns all tenants: it needs the scope `admin` without a tenant"
            raise Problem(403, "ScopeMissing", detail, scope="admin")
        return principal
    principal = _in_tenant(principal, request.headers.get("treadle-tenant"))
    if operation.access != "any" and operation.access not in principal.scopes:
        detail = f"{operation.name} needs the scope `{operation.access}`"
        raise Problem(403, "ScopeMissing", detail, scope=operation.access)
    return principal


def _in_tenant(principal: Principal, tenant: str | None) -> Principal:
    """Return the principal for a requested tenant; only an operator of the server may name one."""
    if tenant is None or tenant == principal.tenant:
        return principal
    if not principal.is_operator:
        detail = (
            "only a principal with the scope `admin` and without a tenant may name one in `Treadle-Tenant`"
        )
        raise Problem(403, "ScopeMissing", detail, scope="admin")
    return replace(principal, tenant=tenant)


def _bucket(principal: Principal) -> tuple[str, str]:
    """Return the key for counting a principal's work, with its own tenant."""
    return (principal.tenant, principal.name)


class Bodies:
    """Reads the arguments of requests, and counts the work of their bodies.

    Args:
        rates: counts the work of each principal.
    """

    def __init__(self, rates: Rates) -> None:
        self._rates = rates
        self._parsing: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()
        """a lock for each principal with a large body; it lives while a request uses it"""

    async def arguments(
        self, service: Service, operation: Operation, request: Request, principal: Principal | None
    ) -> dict[str, Any]:
        """Return the arguments in query, body and path; raise a `Problem` for too much work."""
        arguments = query_arguments(operation, request.query_params)
        if operation.method == "POST":
            limits = service.limits
            most = limits.file_bytes if operation.brings_files else limits.body_bytes
            body = await read_body(request, most, limits.body_seconds)
            bucket = _bucket(request.state.principal)
            if len(body) < LARGE_BODY:
                with self._counted(bucket, body) as count:
                    arguments |= _read(operation, body, count)
            else:
                async with self._parsing.setdefault(bucket, asyncio.Lock()):
                    self._rates.check_tokens(bucket)  # the previous body may have left a debt
                    with self._counted(bucket, body) as count:
                        arguments |= await asyncio.to_thread(_read, operation, body, count)
        return arguments | path_arguments(operation, request.path_params)

    @contextmanager
    def _counted(self, bucket: tuple[str, str], body: bytes) -> Generator[list[int]]:
        """Count the work of a body that is read in a block, even if it is refused.

        Yields a list for the number of its values. Until that is known, an upper bound counts.
        """
        count = [min(signs_in(body), MOST_PARSED)]
        try:
            yield count
        finally:
            if work := len(body) // BYTES_A_TOKEN + count[-1] // VALUES_A_TOKEN:
                self._rates.charge(bucket, work)


def _read(operation: Operation, body: bytes, count: list[int]) -> dict[str, Any]:
    """Return the arguments in a body, and append the number of its values to a list."""
    document = json_of(body)
    count.append(values_in(document))
    return body_arguments(operation, document)


async def _response(service: Service, operation: Operation, call: Call, answer: Answer) -> Response:
    status = answer.status or operation.status
    headers = dict(answer.headers)
    if operation.waits is not None and call.wait:
        headers["Preference-Applied"] = f"wait={call.wait:g}"
    if status == 204:
        return Response(status_code=204, headers=headers)
    body = await content(answer.value, service.secrets())
    return Response(body, status, headers, "application/json")
