"""The routes of A2A: the card of an agent, and its methods over JSON-RPC.

    POST /a2a/{agent}
      SendMessage            a new task, or with `taskId` an answer to it; waits for the task unless the client does not
      SendStreamingMessage   the same, and its updates as a stream
      GetTask, ListTasks, CancelTask, SubscribeToTask

The id of a new task follows from the ids of its message and conversation, so a repeated message is the same task. A
message that an existing task has received is not delivered again.

A request that a method refuses is answered with an error of JSON-RPC. A request that never reaches a method, because of
its credentials, scopes or rate, is refused with a problem, as everywhere on the server.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final, TypeAlias
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from treadle.core.data import frozen
from treadle.core.messages import Json
from treadle.drivers import arguments
from treadle.engine.options import RunOptions
from treadle.errors import (
    AgentUnknown,
    ApproverRefused,
    ConfigurationError,
    InvalidField,
    NotFound,
    TaskFinished,
    TaskNotFound,
    TaskStateError,
    TreadleError,
    WrongArguments,
)
from treadle.results.agent_info import AgentInfo
from treadle.results.wire import from_wire, wire_bytes
from treadle.runner.runner import TaskRunner
from treadle.runner.views import driver_of
from treadle.server.audience import Waker
from treadle.server.calls import Answer, Call, agent_of, check_scope, find_task, no_agent
from treadle.server.event_stream import Stream, Why
from treadle.server.feed import Reader, rests
from treadle.server.limits import ServerLimits
from treadle.server.problems import Problem
from treadle.server.protocols.a2a import (
    INPUT_REQUIRED,
    INTERNAL,
    INVALID_PARAMS,
    INVALID_REQUEST,
    NO_METHOD,
    NOT_CANCELABLE,
    OWN,
    PARSE_ERROR,
    TASK_NOT_FOUND,
    TERMINAL,
    UNSUPPORTED,
    A2aError,
    A2aTask,
    Frame,
    Link,
    Standing,
    agent_card,
    moment,
    open_requests,
    response,
    state_in_list,
    submitted,
)
from treadle.server.protocols.a2a_input import (
    Received,
    RpcCall,
    check_version,
    decisions_of,
    digest,
    history_length,
    no_push,
    read_call,
    read_listing,
    read_message,
    read_task_id,
    request_id_of,
)
from treadle.server.protocols.fold_stream import FoldStream, stop_of
from treadle.server.protocols.stops import Stop, waits_for_client
from treadle.server.reading import check_content, check_options, is_known
from treadle.verbs.operation import Scope
from treadle.verbs.table import SOON

CARD_SECONDS: Final = 60
"""Seconds for which a client may keep the card of an agent."""

_EVENTS: Final = 500
"""Events per page when a journal is searched for a message."""


# ------------------------------------------------------------------------------------------------ cards


async def get_a2a_card(call: Call) -> Answer:
    """Return the card of an agent."""
    name = call.arguments["agent"]
    for info in await call.runner.get_agents():
        if info.name == name:
            return _card(call, info)
    raise no_agent(name)


async def get_a2a_server_card(call: Call) -> Answer:
    """Return the card of the server's only agent; raise a `Problem` if it has several."""
    agents = await call.runner.get_agents()
    if len(agents) != 1:
        paths = ", ".join([f"/a2a/{info.name}/.well-known/agent-card.json" for info in agents])
        raise Problem(404, "SeveralAgents", f"the server has no single agent; its cards: {paths or 'none'}")
    return _card(call, agents[0])


def _card(call: Call, info: AgentInfo) -> Answer:
    base = _base_url(call)
    if base is None:
        raise Problem(404, "UrlUnknown", "the server does not know its address: set `public_url`")
    body = wire_bytes(agent_card(info, f"{base}/a2a/{info.name}"))
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    headers = {"ETag": tag, "Cache-Control": f"private, max-age={CARD_SECONDS}"}
    if is_known(tag, call.request.headers):
        return Answer(response=Response(status_code=304, headers=headers))
    return Answer(response=Response(body, 200, headers, "application/json"))


def _base_url(call: Call) -> str | None:
    """Return the URL of the server: the public one, else that of the socket of the request, never that of `Host`.

    None if the socket has no port and there is no public URL.
    """
    if call.service.public_url is not None:
        return call.service.public_url.rstrip("/")
    scope = call.request.scope
    host, port = scope.get("server") or ("", None)
    if port is None:
        return None
    host = f"[{host}]" if ":" in host else host
    return f"{scope.get('scheme', 'http')}://{host}:{port}{scope.get('root_path', '')}"


# ------------------------------------------------------------------------------------------------ calls


async def run_a2a(call: Call) -> Answer:
    """Carry out a method, and return its response or the stream of its responses."""
    agent = agent_of(call.runner, call.arguments["agent"])
    try:
        rpc = read_call(call.arguments)
        check_version(call.request.headers.get("a2a-version") or call.arguments.get("A2A-Version"))
        if rpc.method in _NOT_HERE:
            refused = _NOT_HERE[rpc.method]
            raise refused()
        if rpc.method not in METHODS:
            raise A2aError(
                NO_METHOD, f"there is no method {rpc.method!r:.80}; there are: {', '.join(METHODS)}"
            )
        method, scopes = METHODS[rpc.method]
        for scope in scopes:
            check_scope(call, scope, f"a call of {rpc.method}")
        result = await method(call, agent, rpc)
        return result if isinstance(result, Answer) else _responded(call, rpc.request_id, result=result)
    except (A2aError, TreadleError) as error:
        refusal = error if isinstance(error, A2aError) else refusal_of(error, call.service.hide)
        if refusal is None:
            raise
        return _responded(call, request_id_of(call.arguments), error=refusal)


def _responded(call: Call, request_id: Json, *, result: Json = None, error: A2aError | None = None) -> Answer:
    document = response(request_id, result=result, error=error)
    hide = call.service.mask()
    body = wire_bytes(document if hide is None else hide(document))
    return Answer(response=Response(body, 200, {}, "application/json"))


def body_refusal(error: Exception) -> Response | None:
    """Return the response to a body that holds no call; None for errors that are none of the body's."""
    if isinstance(error, InvalidField):
        refusal = A2aError(INVALID_REQUEST, f"the body should be one request of JSON-RPC: {error}")
    elif isinstance(error, Problem) and error.name == "NotJson":
        refusal = A2aError(PARSE_ERROR, error.detail)
    else:
        return None
    return Response(wire_bytes(response(None, error=refusal)), 200, {}, "application/json")


def refusal_of(error: TreadleError, hide: Callable[[str], str]) -> A2aError | None:
    """Return the error of JSON-RPC for a refusal of the library; None for one that concerns no method.

    Args:
        error: the refusal.
        hide: returns a message without text that callers must not read.
    """
    text = hide(str(error))
    if isinstance(error, InvalidField):
        return A2aError(INVALID_PARAMS, text, field=error.field)
    if isinstance(error, (AgentUnknown, ApproverRefused)):
        return None
    if isinstance(error, NotFound):
        return A2aError(TASK_NOT_FOUND, text)
    if isinstance(error, TaskFinished):
        return A2aError(UNSUPPORTED, text)
    if isinstance(error, (TaskStateError, ConfigurationError, WrongArguments)):
        return A2aError(INVALID_PARAMS, text)
    return None


# ------------------------------------------------------------------------------------------------ tasks


async def _standing(call: Call, agent: Any, task_id: str) -> Standing:
    """Return a task of the agent; raise `TaskNotFound` for that of another."""
    task = await call.runner.get_task(task_id)
    if task.agent != agent.name:
        raise TaskNotFound(f"there is no task {task_id!r:.80} of the agent {agent.name}")
    result = await call.runner.result(task_id)
    stop = await stop_of(call.runner, result)
    return Standing(task, result, stop, rests=await _rests(call.runner, task_id))


async def _rests(runner: TaskRunner, task_id: str) -> bool:
    driver = driver_of(runner)
    row = await driver.cache.row(task_id)
    return rests(row, driver.clock()) and not driver.owned.is_owned(task_id)


def _link(call: Call, task_id: str) -> Link | None:
    """Return the addresses of the files of a task; None if that of the server is not known."""
    base, task = _base_url(call), quote(task_id, safe="")
    if base is None:
        return None
    return lambda artifact_id: f"{base}/v1/tasks/{task}/artifacts/{quote(artifact_id, safe='')}"


def _document(call: Call, standing: Standing, history: int | None = None) -> Frame:
    link = _link(call, standing.task.task_id) if standing.result.artifacts else None
    return standing.document(link, history=history)


async def _send_message(call: Call, agent: Any, rpc: RpcCall) -> Json:
    received = read_message(rpc.params, allow_urls=call.service.allow_urls)
    delivered = await _received(call, agent, received)
    if received.waits:
        await _wait(call, delivered.task_id)
    return {"task": _document(call, await _standing(call, agent, delivered.task_id), received.history)}


async def _stream_message(call: Call, agent: Any, rpc: RpcCall) -> Answer:
    received = read_message(rpc.params, allow_urls=call.service.allow_urls)
    delivered = await _received(call, agent, received)
    standing = await _standing(call, agent, delivered.task_id)
    if delivered.is_new:
        return await _stream(call, rpc, standing, submitted(standing.task), 0)
    first = _document(call, standing, received.history)
    after = standing.task.head if standing.state in TERMINAL or delivered.after is None else delivered.after
    return await _stream(call, rpc, standing, first, after)


async def _get_task(call: Call, agent: Any, rpc: RpcCall) -> Json:
    standing = await _standing(call, agent, read_task_id(rpc.params))
    return _document(call, standing, history_length(rpc.params))


async def _cancel_task(call: Call, agent: Any, rpc: RpcCall) -> Json:
    task_id = read_task_id(rpc.params)
    standing = await _standing(call, agent, task_id)
    if standing.state in TERMINAL:
        text = f"the task {task_id} has ended: it is {standing.state}"
        raise A2aError(NOT_CANCELABLE, text, taskId=task_id)
    call.wait = SOON
    await call.in_time(lambda: call.runner.cancel(task_id))
    return _document(call, await _standing(call, agent, task_id))


async def _subscribe(call: Call, agent: Any, rpc: RpcCall) -> Answer:
    standing = await _standing(call, agent, read_task_id(rpc.params))
    if standing.state in TERMINAL:
        text = f"the task has ended: it is {standing.state}, and GetTask returns it"
        raise A2aError(UNSUPPORTED, text, taskId=standing.task.task_id)
    return await _stream(call, rpc, standing, _document(call, standing), standing.task.head, follows=True)


async def _list_tasks(call: Call, agent: Any, rpc: RpcCall) -> Json:
    listing = read_listing(rpc.params)
    if listing.arguments.get("state") == ():  # no task is ever in it
        return {"tasks": [], "nextPageToken": "", "pageSize": listing.limit, "totalSize": 0}
    filters: dict[str, Any] = {**listing.arguments, "agent": agent.name, "roots": True}
    page = await call.runner.list_tasks(**filters, limit=listing.limit, cursor=listing.cursor)
    rows = [row for row in page.items if not listing.states or state_in_list(row) in listing.states]
    rows.sort(key=lambda row: row.updated or row.created, reverse=True)
    tasks: list[Json] = []
    for row in rows:
        if listing.artifacts or listing.history:
            standing = await _standing(call, agent, row.task_id)
            document = _document(call, standing, listing.history or 0)
            if not listing.artifacts:
                document.pop("artifacts", None)
            tasks.append(document)
        else:
            status = {"state": state_in_list(row), "timestamp": moment(row.updated or row.created)}
            tasks.append({"id": row.task_id, "contextId": row.thread_id or row.task_id, "status": status})
    total = (await call.runner.count_tasks(**filters)).tasks
    head = {"nextPageToken": page.cursor or "", "pageSize": listing.limit, "totalSize": total}
    return {"tasks": tasks, **head}


# --------------------------------------------------------------------------------------------- messages


@frozen
class _Delivered:
    """A task with a message.

    Args:
        task_id: the task.
        is_new: whether the message began it.
        after: the number of its last event before the message; None if it had the message before.
    """

    task_id: str
    is_new: bool = False
    after: int | None = None


async def _received(call: Call, agent: Any, received: Received) -> _Delivered:
    """Deliver a message to a new or known task."""
    arguments.identifier("message.messageId", received.message_id)
    check_content("message.parts", received.content, allow_urls=call.service.allow_urls)
    if received.task_id is not None:
        return await _continued(call, agent, received, received.task_id)
    return await _begun(call, agent, received)


async def _begun(call: Call, agent: Any, received: Received) -> _Delivered:
    assert call.principal is not None, "the operation needs a principal"
    if received.context_id is not None:
        arguments.identifier("message.contextId", received.context_id)
    parts = (agent.name, call.principal.name, received.context_id or "", received.message_id)
    task_id = f"m{digest(*parts)}"
    runner = call.runner
    is_new = await find_task(runner, task_id) is None
    if is_new:
        await call.service.quota.check(runner, call.tenant)
    options = _options(received)
    # The id of a conversation that the client does not name is that of its first task.
    await call.done(
        lambda: runner.submit(
            agent,
            list(received.content),
            thread_id=received.context_id or task_id,
            task_id=task_id,
            options=options,
        )
    )
    return _Delivered(task_id, is_new)


def _options(received: Received) -> RunOptions | None:
    if received.metadata.get("options") is None:
        return None
    try:
        options = from_wire(RunOptions, received.metadata["options"], strict=True)
    except InvalidField as problem:
        raise problem.inside(f"metadata.{OWN}.options") from None
    check_options(options)
    return options


async def _continued(call: Call, agent: Any, received: Received, task_id: str) -> _Delivered:
    """Deliver a message to a task: as the answer to its open request, or as a message to its model."""
    assert call.principal is not None, "the operation needs a principal"
    runner = call.runner
    standing = await _standing(call, agent, task_id)
    if received.context_id not in (None, standing.context_id):
        problem = f"should be left out or that of the task, {standing.context_id}"
        raise InvalidField(problem, field="message.contextId")
    key = f"a2a-{digest(task_id, call.principal.name, received.message_id)}"
    if standing.rests and await _has_message(runner, task_id, standing, key):
        return _Delivered(task_id)
    if standing.state in TERMINAL:
        text = f"the task has ended: it is {standing.state}. Send a message without `taskId`, with its `contextId`"
        raise A2aError(UNSUPPORTED, text, taskId=task_id)
    items = open_requests(standing.stop.pending)
    if standing.state != INPUT_REQUIRED or not items:
        await call.done(lambda: runner.send(task_id, list(received.content), command_id=key))
        if standing.rests:
            await call.done(lambda: runner.resume(task_id, drive=False))
        return _Delivered(task_id, after=standing.task.head)
    decisions = decisions_of(received, items)
    check_scope(call, "decide", "an answer to an open request is a decision")
    for number, each in enumerate(decisions):
        check_content(
            f"message.parts[{number}]", each.arguments.get("value"), allow_urls=call.service.allow_urls
        )
    for each in decisions:
        given = each.arguments
        subject = str(given.get("request_id") or given.get("ticket"))
        command_id = f"{key}-{digest(each.task_id, subject)[:12]}"
        verb: Callable[..., Any] = getattr(runner, each.verb)
        await call.done(lambda v=verb, e=each, c=command_id: v(task=e.task_id, command_id=c, **e.arguments))
    await call.done(lambda: runner.resume(task_id, drive=False))
    return _Delivered(task_id, after=standing.task.head)


async def _has_message(runner: TaskRunner, task_id: str, standing: Standing, key: str) -> bool:
    """Return whether a task, or one below it, has received the message with a key."""
    tasks = [task_id, *[item.task_id for item in standing.stop.pending if item.task_id != task_id]]
    for each in dict.fromkeys(tasks):
        after = 0
        while True:
            page = await runner.get_events(each, after=after, limit=_EVENTS)
            if any(key in (getattr(event, "inbox", None) or "") for event in page.items):
                return True
            if not page.items or page.items[-1].seq >= page.head:
                break
            after = page.items[-1].seq
    return False


async def _wait(call: Call, task_id: str) -> None:
    """Wait until a task has ended or asks for input, the client leaves, or the server ends."""
    assert call.principal is not None, "the operation needs a principal"
    service, driver = call.service, driver_of(call.runner)
    leaving = asyncio.ensure_future(_left(call.request))
    try:
        with service.waiters.place(call.tenant, call.principal.name) as may_wait, suppress(TimeoutError):
            if not may_wait:
                return
            async with service.waiting(service.limits.stream_seconds):
                with driver.owned.watching(task_id) as watch:
                    while not leaving.done():
                        watch.skip()
                        if await _rests(call.runner, task_id):
                            result = await call.runner.result(task_id)
                            if waits_for_client(await stop_of(call.runner, result)):
                                return
                        changed = asyncio.ensure_future(watch.changed())
                        try:
                            await asyncio.wait((changed, leaving), return_when=asyncio.FIRST_COMPLETED)
                        finally:
                            changed.cancel()
    finally:
        leaving.cancel()


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


# ------------------------------------------------------------------------------------------------ streams

_ENDED: Final[dict[Why, str]] = {
    "error": "the server failed; its log tells more",
    "time": "the stream was open for long: subscribe to the task to go on",
    "shutdown": "the server ends: subscribe to the task to go on",
}


async def _stream(
    call: Call, rpc: RpcCall, standing: Standing, first: Frame, after: int, *, follows: bool = False
) -> Answer:
    """Return the stream of a task: the task as it is first, and the updates after an event of its journal."""
    service, runner, principal = call.service, call.runner, call.principal
    assert principal is not None, "the operation needs a principal"
    task_id = standing.task.task_id
    fold = A2aTask(first, _link(call, task_id), standing.task.updated)

    def made(reader: Reader, waker: Waker, limits: ServerLimits, closed: Callable[[], None]) -> Stream:
        stream = _UpdateStream(fold, runner, reader, waker, limits, closed, hide=service.mask)
        stream.request_id, stream.follows = rpc.request_id, follows
        return stream

    hold = await service.holds.holder(runner, task_id) if "control" in call.scopes else None
    opened = await service.streams.open(
        runner, task_id, made, principal=principal.name, after=after, deltas=True, cut=None, hold=hold
    )
    return Answer(response=opened)


class _UpdateStream(FoldStream):
    """The updates of one task, each the result of the same call of JSON-RPC."""

    request_id: Json = None
    follows = False
    """whether it goes on while the task waits for input"""

    def _ends_at(self, stop: Stop) -> bool:
        return waits_for_client(stop) and not (self.follows and stop.state not in _END_STATES)

    def _frames_at(self, stop: Stop) -> list[Frame]:
        return self._run_fold.end(stop) if waits_for_client(stop) else []

    def _encoded(self, frame: Frame) -> bytes:
        return b"data: %b\n\n" % wire_bytes(response(self.request_id, result=self._masked(frame)))

    def _leaving_frame(self, reason: Why) -> bytes:
        if reason == "deleted":
            error = A2aError(TASK_NOT_FOUND, "the task was deleted", taskId=self._run_fold.task_id)
        else:
            error = A2aError(INTERNAL, _ENDED[reason])
        return b"data: %b\n\n" % wire_bytes(response(self.request_id, error=error))


_END_STATES: Final = ("completed", "degraded", "failed", "cancelled")

Method: TypeAlias = Callable[[Call, Any, RpcCall], Awaitable[Json]]

METHODS: Final[dict[str, tuple[Method, tuple[Scope, ...]]]] = {
    "SendMessage": (_send_message, ("run", "read")),
    "SendStreamingMessage": (_stream_message, ("run", "read")),
    "GetTask": (_get_task, ("read",)),
    "ListTasks": (_list_tasks, ("read",)),
    "CancelTask": (_cancel_task, ("control",)),
    "SubscribeToTask": (_subscribe, ("read",)),
}
"""The methods with the scopes that they need."""


def _no_extended_card() -> A2aError:
    return A2aError(UNSUPPORTED, "this agent has no extended card")


_NOT_HERE: Final[dict[str, Callable[[], A2aError]]] = {
    **dict.fromkeys(
        [f"{verb}TaskPushNotificationConfig" for verb in ("Create", "Get", "Delete")]
        + ["ListTaskPushNotificationConfigs"],
        no_push,
    ),
    "GetExtendedAgentCard": _no_extended_card,
}
"""The methods of features that the card does not declare."""
