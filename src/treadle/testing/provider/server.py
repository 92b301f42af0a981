"""The server: a Starlette app in a thread, which records, checks and answers requests."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from types import TracebackType
from typing import Any

from treadle.core.data import frozen
from treadle.core.refused_uses import can_be_called
from treadle.errors import ConfigurationError, MissingExtra
from treadle.testing.provider.anthropic import AnthropicMessages
from treadle.testing.provider.delivery import Reply, Running
from treadle.testing.provider.google import GoogleGemini
from treadle.testing.provider.openai_chat import OpenAIChat
from treadle.testing.provider.openai_responses import OpenAIResponses
from treadle.testing.provider.script import (
    Failure,
    HangUp,
    Item,
    OutOfScript,
    Raw,
    Script,
    Scripted,
    as_item,
)
from treadle.testing.provider.wire import Refused, Wire, encode, mapping, messages_of

try:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse, Response
    from starlette.routing import Route
except ImportError as error:
    raise MissingExtra("testing", "The scripted provider") from error


@frozen(kw_only=True)
class ProviderRequest:
    """A request that the server received.

    Args:
        wire: `openai` (Chat Completions), `openai-responses`, `anthropic`, `google`, or the name of another format.
        path: the path of the URL, without the query.
        headers: all headers, with names in lower case.
        body: the JSON object in the body; empty for another body.
        time: its arrival, in seconds since 1970.
        turn: the number of its answers of the model.
        attempt: the number of earlier well-formed requests of the same conversation and turn.
        problem: the reason of a refusal, if any.
    """

    wire: str
    path: str
    headers: Mapping[str, str]
    body: dict[str, Any]
    time: float
    turn: int = 0
    attempt: int = 0
    problem: str | None = None

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The conversation in the provider's own form; empty if no field is called messages, input or contents."""
        return messages_of(self.body)


class ProviderServer:
    """A model provider on loopback that follows a script, in both formats of OpenAI, and those of Anthropic and Google.

    Like a real provider, it refuses a missing key with 401, and an ill-formed request or history with 400. A request
    beyond the end of the script gets 400 too. An exception raised by a script function, or by a format of `formats`, is
    raised again when the `with` block ends.

    Args:
        script: a list, see `Script`, or a function that is called with each `ProviderRequest`.
        api_key: the only accepted key; by default any key that is not empty.
        models: the names that `GET /v1/models` lists.
        port: the port on 127.0.0.1; 0 picks a free one.
        formats: further wire formats; a format with the path of a built-in one replaces it.
        conversation: returns the key of a request's conversation, so that each one gets its own failures. By default
            the key is its messages, so identical concurrent requests share them.
        on_request: called with each request as it is recorded, on the server's thread.
    """

    def __init__(
        self,
        script: Sequence[Scripted] | Callable[[ProviderRequest], Scripted],
        *,
        api_key: str | None = None,
        models: Sequence[str] = ("scripted",),
        port: int = 0,
        formats: Sequence[Wire] = (),
        conversation: Callable[[ProviderRequest], Hashable] | None = None,
        on_request: Callable[[ProviderRequest], None] | None = None,
    ) -> None:
        self._script = script if can_be_called(script) else Script(script)
        self._api_key = api_key
        self._models = tuple(models)
        self._port = port
        self._formats = (*map(_checked, formats), OpenAIChat(), OpenAIResponses(), AnthropicMessages())
        self._conversation = conversation or _same_messages
        self._on_request = on_request
        self._lock = threading.Lock()
        self._requests: list[ProviderRequest] = []
        self._attempts: Counter[Hashable] = Counter()
        self._script_error: Exception | None = None
        self._running: Running | None = None

    @property
    def url(self) -> str:
        """The address of the server, such as `http://127.0.0.1:41234`."""
        if self._port == 0:
            raise RuntimeError("the provider server has no address before it is started")
        return f"http://127.0.0.1:{self._port}"

    @property
    def openai_base_url(self) -> str:
        """The `base_url` for an OpenAI client."""
        return self.url + "/v1"

    @property
    def anthropic_base_url(self) -> str:
        """The `base_url` for an Anthropic client."""
        return self.url

    @property
    def google_base_url(self) -> str:
        """The `base_url` for a client of Google's Gemini API."""
        return self.url

    @property
    def requests(self) -> list[ProviderRequest]:
        """All requests so far, including refused ones, in order of arrival."""
        with self._lock:
            return list(self._requests)

    @property
    def problems(self) -> list[str]:
        """The reasons of refused requests, in order; empty if all were well-formed and had a key."""
        return [request.problem for request in self.requests if request.problem is not None]

    def start(self) -> None:
        """Listen; the first request may be sent when this returns."""
        listener = socket.create_server(("127.0.0.1", self._port))
        self._port = listener.getsockname()[1]
        self._running = Running(_app(self, self._formats), listener)

    def stop(self) -> None:
        """Drop all connections and end the thread; do nothing if the server is not running."""
        if self._running is not None:
            self._running.stop()
            self._running = None

    def __enter__(self) -> ProviderServer:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        if kind is None and self._script_error is not None:
            raise self._script_error

    def answer(self, wire: Wire, path: str, headers: Mapping[str, str], sent: bytes) -> Reply:
        """Record a request, check it, and return the response. Not for users."""
        arrived = time.time()
        body: dict[str, Any] = {}
        turn = 0
        problem: Refused | None = None
        try:
            self._check_key(wire, headers)
            body = _parse(sent)
            wire.check(headers, body)
            turn = wire.turns(body)
        except Refused as refused:
            problem = refused
        except Exception as error:  # noqa: BLE001 - raised again when the block ends
            self._script_error = self._script_error or error
            problem = Refused(f"the format {wire.name} raised {type(error).__name__}: {error}")
        request = self._record(wire, path, headers, body, arrived, turn, problem)
        if problem is not None:
            return _refusal(wire, problem)
        try:
            return _reply(wire, self._pick(request), body)
        except OutOfScript as error:
            return _refusal(wire, Refused(str(error)))
        except Refused as refused:
            return _refusal(wire, refused)
        except Exception as error:  # noqa: BLE001 - raised again when the block ends
            self._script_error = self._script_error or error
            return _refusal(wire, Refused(f"the script raised {type(error).__name__}: {error}"))

    def model_list(self, headers: Mapping[str, str]) -> JSONResponse:
        """Return the answer to `GET /v1/models`. Not for users."""
        wire = OpenAIChat()
        try:
            self._check_key(wire, headers)
        except Refused as refused:
            return JSONResponse(wire.error(refused.status, refused.message), refused.status)
        models = [
            {"id": name, "object": "model", "created": 0, "owned_by": "scripted"} for name in self._models
        ]
        return JSONResponse({"object": "list", "data": models})

    def _check_key(self, wire: Wire, headers: Mapping[str, str]) -> None:
        key = wire.key(headers)
        if not key:
            raise Refused("You didn't provide an API key.", status=401)
        if self._api_key is not None and key != self._api_key:
            raise Refused("Incorrect API key provided.", status=401)

    def _record(
        self,
        wire: Wire,
        path: str,
        headers: Mapping[str, str],
        body: dict[str, Any],
        arrived: float,
        turn: int,
        problem: Refused | None,
    ) -> ProviderRequest:
        problem_text = None if problem is None else problem.message
        request = ProviderRequest(
            wire=wire.name,
            path=path,
            headers=headers,
            body=body,
            time=arrived,
            turn=turn,
            problem=problem_text,
        )
        key = (self._conversation(request), turn) if problem is None else None
        with self._lock:
            if key is not None:
                request = replace(request, attempt=self._attempts[key])
                self._attempts[key] += 1
            self._requests.append(request)
            if self._on_request is not None:
                self._on_request(request)
        return request

    def _pick(self, request: ProviderRequest) -> Item:
        if isinstance(self._script, Script):
            return self._script.pick(request.turn, request.attempt)
        return as_item(self._script(request))


def _checked(wire: Any) -> Wire:
    """Return a wire format; raise `ConfigurationError` if it lacks a part of `Wire`."""
    missing = [name for name in _PARTS if not hasattr(wire, name)]
    if missing or isinstance(wire, type):
        problem = f"it lacks {', '.join(missing)}" if missing else "give an object of the class"
        raise ConfigurationError(f"ProviderServer: {wire!r} is not a wire format: {problem}")
    if not isinstance(wire.path, str) or not wire.path.startswith("/"):
        raise ConfigurationError(
            f"ProviderServer: the path of the format {wire.name} must begin with /, got {wire.path!r}"
        )
    return wire


_PARTS = ("name", "path", *(name for name in vars(Wire) if not name.startswith("_")))


def _app(server: ProviderServer, formats: Sequence[Wire]) -> Starlette:
    def asking(wire: Wire) -> Callable[[Request], Any]:
        async def endpoint(request: Request) -> Reply:
            headers = {name.lower(): value for name, value in request.headers.items()}
            return server.answer(wire, request.url.path, headers, await request.body())

        return endpoint

    async def gemini(request: Request) -> Response:
        model, _, method = request.path_params["call"].rpartition(":")
        if method not in ("generateContent", "streamGenerateContent"):
            return await lost(request)
        streamed = method == "streamGenerateContent"
        wire = GoogleGemini(model, streamed=streamed, events=request.query_params.get("alt") == "sse")
        headers = {name.lower(): value for name, value in request.headers.items()}
        if key := request.query_params.get("key"):
            headers.setdefault("x-goog-api-key", key)
        return server.answer(wire, request.url.path, headers, await request.body())

    async def models(request: Request) -> Response:
        return server.model_list(request.headers)

    async def lost(request: Request) -> Response:
        message = f"Unknown request URL: {request.method} {request.url.path}."
        return JSONResponse(OpenAIChat().error(404, message, "unknown_url"), 404)

    methods = ["GET", "POST", "PUT", "PATCH", "DELETE"]
    return Starlette(
        routes=[
            *(Route(wire.path, asking(wire), methods=["POST"]) for wire in formats),
            Route(GoogleGemini.path, gemini, methods=["POST"]),
            Route("/v1/models", models, methods=["GET"]),
            Route("/{path:path}", lost, methods=methods),
        ]
    )


def _parse(sent: bytes) -> dict[str, Any]:
    try:
        body = json.loads(sent)
    except ValueError as error:
        raise Refused(f"We could not parse the JSON body of your request: {error}") from error
    return mapping(body, "body")


def _same_messages(request: ProviderRequest) -> Hashable:
    instructions = [request.body.get(name) for name in ("system", "instructions", "systemInstruction")]
    identity = [request.wire, instructions, request.messages or request.body]
    return sha256(json.dumps(identity, sort_keys=True).encode()).digest()


def _refusal(wire: Wire, refused: Refused) -> Reply:
    document = wire.error(refused.status, refused.message, refused.code, refused.param)
    return Reply([encode(document)], status=refused.status, headers=_JSON | wire.request_id())


def _reply(wire: Wire, item: Item, body: dict[str, Any]) -> Reply:
    match item:
        case HangUp():
            return Reply([], hang_up=item)
        case Raw():
            return Reply([item.body], status=item.status, headers=item.headers, delivery=item.how)
        case Failure():
            document = wire.error(item.status, item.message, item.code)
            headers = {**_JSON, **wire.request_id(), **item.headers}
            return Reply([encode(document)], status=item.status, headers=headers, delivery=item.how)
        case _ if wire.streams(body):
            broken = wire.error_event("The script breaks this stream off.")
            headers = _EVENTS | wire.request_id()
            return Reply(
                wire.events(item, body), headers=headers, delivery=item.how, events=True, broken=broken
            )
        case _:
            return Reply(
                [encode(wire.document(item, body))], headers=_JSON | wire.request_id(), delivery=item.how
            )


_JSON = {"content-type": "application/json"}
_EVENTS = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}
