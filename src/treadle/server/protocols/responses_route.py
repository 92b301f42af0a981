"""The routes of the Responses API: create, read, stream, cancel and delete responses.

    POST /v1/responses
      outputs of calls, or decisions on approvals    the task goes on with them, as a response of its own
      else                                           a new task in the conversation

A client that waits gets the response once its task stops where the client can act. Watching affects no task: one whose
client left goes on, and `GET /v1/responses/{response_id}` has it. A stream goes on after any of its events, at any
server of the store, with `starting_after`.
"""

from __future__ import annotations

import asyncio
import hashlib
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from typing import Any, Final, cast

from treadle.core import events as e
from treadle.core.data import frozen
from treadle.drivers import arguments
from treadle.engine.options import RunOptions
from treadle.errors import InvalidField, ThreadNotFound, TreadleError
from treadle.results.pending import FOR_PEOPLE, Pending
from treadle.results.tasks import Task
from treadle.results.wire import wire_bytes
from treadle.runner.runner import TaskRunner
from treadle.runner.stored_events import events_of_records
from treadle.runner.views import driver_of
from treadle.server.audience import Waker
from treadle.server.calls import Answer, Call, agent_of, check_scope, find_task
from treadle.server.event_stream import Stream, Why, Write
from treadle.server.feed import Reader, rests
from treadle.server.limits import ServerLimits
from treadle.server.problems import Problem
from treadle.server.protocols.agui import call_of
from treadle.server.protocols.decisions import Decision, decision_by
from treadle.server.protocols.fold_stream import MOST_REQUESTS, FoldStream, read_stop
from treadle.server.protocols.responses import COMMAND, ResponseFold
from treadle.server.protocols.responses_input import Asked, mark_for, read_request
from treadle.server.protocols.responses_items import KINDS, input_items
from treadle.server.protocols.responses_object import (
    NOT_STORED,
    WITH_THREAD,
    Facts,
    Frame,
    part_in,
    response_id,
)
from treadle.server.protocols.stops import waits_for_client
from treadle.server.reading import check_content, check_options

_PAGE: Final = 200
"""Events that are read at once."""

_MOST_DEPTH: Final = 100
_DONE: Final = b"data: [DONE]\n\n"
"""The end of a stream."""

_ENDED: Final[dict[Why, str]] = {
    "deleted": "the response was deleted",
    "error": "the server failed; its log tells more",
    "time": "the stream was open for long: retrieve the response with `starting_after` to go on",
    "shutdown": "the server ends: retrieve the response with `starting_after` to go on",
}


@frozen
class _Part:
    """The part of a task that is a response.

    Args:
        task_id: the task.
        name: the name of the part; empty for the first.
        after: it begins after this event; None if its mark in the journal tells.
    """

    task_id: str
    name: str = ""
    after: int | None = None

    @property
    def response_id(self) -> str:
        """The id of the response."""
        return response_id(self.task_id, self.name)


# ------------------------------------------------------------------------------------------------- create


async def create_response(call: Call) -> Answer:
    """Begin a task, or answer one, and return its response: whole, as a stream, or at once for the background."""
    asked = read_request(call.arguments, allow_urls=call.service.allow_urls)
    check_scope(call, "read", "a response shows the events of its task")
    agent = agent_of(call.runner, asked.agent)
    await _check_format(call, asked)
    previous = await _previous(call, asked)
    part = await _continued(call, asked, previous)
    if part is None:
        part = await _begun(call, asked, agent, previous)
    forgets = not asked.is_stored or NOT_STORED in (await call.runner.get_task(part.task_id)).labels
    if asked.is_streamed:
        return Answer(response=await _stream(call, part, None, forgets=forgets))
    try:
        if not asked.in_background:
            await _wait_for_stop(call, part.task_id)
        return Answer(await _read(call, part))
    finally:
        if forgets:
            _forget_at_end(call, part.task_id)


def _command(mark: str, subject: str) -> str:
    """Return the id of a command, the same if the request is repeated."""
    return f"{COMMAND}{mark}-{hashlib.sha256(subject.encode()).hexdigest()[:24]}"


async def _check_format(call: Call, asked: Asked) -> None:
    """Raise `InvalidField` for a form of the answer that is not the agent's own: a request cannot replace it."""
    form: Any = asked.format
    if form is None:
        return
    agents = await call.runner.get_agents()
    own = next((each.output_schema for each in agents if each.name == asked.agent), None)
    if own is None:
        problem = f"is not supported: the answers of agent {asked.agent} are text"
        raise InvalidField(problem, field="text.format")
    if form["type"] == "json_schema" and _essence(form.get("schema")) != _essence(own):
        problem = "is not supported: it must be the output schema of the agent, which /v1/agents tells"
        raise InvalidField(problem, field="text.format.schema")


_WORDS_OF_SCHEMAS: Final = ("title", "description", "additionalProperties", "default", "$schema", "strict")


def _essence(schema: Any) -> Any:
    """Return a JSON schema without the words that clients and agents write differently for the same type."""
    if isinstance(schema, list):
        return [_essence(each) for each in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    kept: dict[str, Any] = {}
    for name, value in cast("dict[str, Any]", schema).items():
        if name == "properties" and isinstance(value, dict):
            named = cast("dict[str, Any]", value)
            kept[name] = {each: _essence(named[each]) for each in named}
        elif name == "required":
            kept[name] = sorted(map(str, value))
        elif name not in _WORDS_OF_SCHEMAS:
            kept[name] = _essence(value)
    return kept


async def _previous(call: Call, asked: Asked) -> Task[Any] | None:
    """Return the task of the previous response."""
    task_id = asked.previous[0]
    if not task_id:
        return None
    task = await find_task(call.runner, task_id)
    if task is None:
        raise Problem(
            400,
            "PreviousResponseNotFound",
            f"there is no response {response_id(*asked.previous)!r:.120}",
            field="previous_response_id",
        )
    return task


# ---------------------------------------------------------------------------------------------- a new task


async def _begun(call: Call, asked: Asked, agent: Any, previous: Task[Any] | None) -> _Part:
    """Begin a task for a response."""
    runner = call.runner
    if asked.results or asked.approvals:
        place = next(iter(asked.results), None) or asked.approvals[0].request_id
        raise InvalidField(f"no task waits for an answer to {place!r:.120}", field="input")
    if not asked.content:
        raise InvalidField("has no new message of the user", field="input")
    task_id = call.new_task_id() or uuid.uuid4().hex
    existing = await find_task(runner, task_id)
    options = asked.options()
    check_options(options)
    check_content("input", (*asked.history, *asked.content), allow_urls=call.service.allow_urls)
    if existing is None:
        await call.service.quota.check(runner, call.tenant)
        branches = previous is not None and await _branches(call, previous)
    else:
        branches = existing.forked_from is not None
    words = _system_words(asked, "")
    if previous is not None and branches:
        await _fork(call, asked, agent, previous, task_id)
    else:
        thread_id = asked.conversation or (previous.thread_id if previous is not None else None)
        if thread_id is not None:
            arguments.identifier("conversation", thread_id)
        if asked.history:
            thread_id = await _with_history(call, asked, thread_id, task_id, is_new=existing is None)
        make = runner.create_task if words else runner.submit
        await call.done(
            lambda: make(agent, asked.content, thread_id=thread_id, task_id=task_id, options=options)
        )
    await _send_system_words(call, task_id, words)
    if words or branches:
        key = _command("", "resume")
        await call.done(lambda: runner.resume(task_id, drive=False, command_id=key))
    return _Part(task_id)


async def _fork(call: Call, asked: Asked, agent: Any, previous: Task[Any], task_id: str) -> None:
    """Make the task of a response that continues an earlier one of its conversation, in a thread of its own."""
    runner, other = call.runner, agent if agent.name != previous.agent else None
    await call.done(
        lambda: runner.fork(
            previous.task_id,
            agent=other,
            input=list(asked.content),
            task_id=task_id,
            options=asked.options() or RunOptions(),
        )
    )


async def _branches(call: Call, previous: Task[Any]) -> bool:
    """Return whether a response is not the last of its conversation; raise an error if no message can follow it."""
    runner = call.runner
    pending = await runner.list_pending(previous.task_id, limit=MOST_REQUESTS)
    calls = [str(call_of(item)) for item in pending.items if item.kind == "call"]
    if calls:
        raise _no_tool_output(calls)
    waits = [f"{item.task_id}:{item.request_id}" for item in pending.items if item.kind in FOR_PEOPLE]
    if waits:
        detail = f"the previous response waits for answers to {', '.join(waits[:10])}"
        raise Problem(400, "RequestsOpen", detail, field="previous_response_id")
    page = await runner.list_tasks(thread_id=previous.thread_id, roots=True, limit=1)
    if page.items and page.items[0].task_id != previous.task_id:
        check_scope(call, "edit", "an earlier response of a conversation is continued by a fork")
        return True
    return False


def _no_tool_output(calls: Sequence[str]) -> Problem:
    detail = f"no tool output was found for function call {', '.join(calls)}"
    return Problem(400, "NoToolOutput", detail, field="input")


async def _with_history(
    call: Call, asked: Asked, thread_id: str | None, task_id: str, *, is_new: bool
) -> str:
    """Import the messages of a conversation from elsewhere into a thread, and return it."""
    runner, history = call.runner, asked.history
    check_scope(call, "edit", "the messages of other assistants are imported into a conversation")
    thread = thread_id or f"{task_id}-history"
    if is_new and thread_id is not None and await _has_messages(runner, thread):
        problem = "has messages of assistants, and the conversation has its own: send only new messages"
        raise InvalidField(problem, field="input")
    key = _command("", f"history {task_id}")
    await call.done(lambda: runner.import_thread(thread, history, command_id=key))
    return thread


async def _has_messages(runner: TaskRunner, thread_id: str) -> bool:
    try:
        return bool(await runner.get_thread(thread_id))
    except TreadleError as error:
        if isinstance(error, ThreadNotFound):
            return False
        raise


def _system_words(asked: Asked, mark: str) -> list[tuple[str, str]]:
    """Return the system messages of a request, each with the id of its command."""
    words = [("instructions", asked.instructions)] if asked.instructions else []
    words += [(f"system-{number}", text) for number, text in enumerate(asked.system)]
    return [(f"{COMMAND}{mark}-{name}", text) for name, text in words]


async def _send_system_words(call: Call, task_id: str, words: Sequence[tuple[str, str]]) -> None:
    for key, text in words:
        await call.done(_sending(call.runner, task_id, text, key))


def _sending(
    runner: TaskRunner, task_id: str, text: str, key: str
) -> Callable[[], Coroutine[Any, Any, None]]:
    return lambda: runner.send(task_id, text, role="system", command_id=key)


# ----------------------------------------------------------------------------------------------- answers


async def _continued(call: Call, asked: Asked, previous: Task[Any] | None) -> _Part | None:
    """Answer open requests of a task, and let it go on; None if no task waits for the answers."""
    if not asked.results and not asked.approvals:
        return None
    runner = call.runner
    root = await _root_of(runner, asked, previous)
    if root is None:
        return None
    mark = mark_for(root.task_id, call.key, asked.results, asked.approvals)
    page = await runner.list_pending(root.task_id, limit=MOST_REQUESTS)
    decisions = _decisions(asked, page.items)
    part = _Part(root.task_id, mark, root.head)
    if len(decisions) < len(asked.results) + len(asked.approvals):
        if not (await _folded(call, _Part(root.task_id, mark))).is_open:
            return None
        part = _Part(root.task_id, mark)  # a repeat: some of them were delivered before
    _check_complete(asked, page.items)
    _keep(call, root.task_id)
    if decisions:
        check_scope(call, "decide", "answers to open requests are decisions")
        await _send_system_words(call, root.task_id, _system_words(asked, mark))
        if asked.content:
            check_content("input", asked.content, allow_urls=call.service.allow_urls)
            key = _command(mark, "content")
            await call.done(lambda: runner.send(root.task_id, list(asked.content), command_id=key))
        for each in decisions:
            await _carry_out(call, mark, each)
    key = _command(mark, "resume")
    await call.done(lambda: runner.resume(root.task_id, drive=False, command_id=key))
    return part


async def _root_of(runner: TaskRunner, asked: Asked, previous: Task[Any] | None) -> Task[Any] | None:
    """Return the task that the answers are for, or the one above the tasks that asked."""
    if previous is not None:
        return previous
    ids = [each.rpartition("/")[0] for each in asked.results] + [each.task_id for each in asked.approvals]
    for task_id in filter(None, ids):
        task = await find_task(runner, task_id)
        for _ in range(_MOST_DEPTH):
            if task is None or task.parent is None:
                break
            task = await find_task(runner, task.parent)
        if task is not None:
            return task
    return None


def _decisions(asked: Asked, pending: Sequence[Pending]) -> list[Decision]:
    """Return the verbs that the answers ask for; an answer to no open request is left out."""
    approvals = {(item.task_id, item.request_id): item for item in pending if item.kind == "approval"}
    decisions: list[Decision] = []
    for each in asked.approvals:
        item = approvals.get((each.task_id, each.request_id))
        if item is not None:
            payload = {"approved": each.approve, "reason": each.reason}
            decisions.append(decision_by(item, payload, each.field))
    calls = {call_of(item): item for item in pending if item.kind == "call"}
    for known, value in asked.results.items():
        item = calls.get(known)
        if item is not None:
            decisions.append(Decision("complete", item.task_id, {"ticket": item.request_id, "value": value}))
    return decisions


def _check_complete(asked: Asked, pending: Sequence[Pending]) -> None:
    """Raise a `Problem` if an open call lacks its output: the task could not go on."""
    lacking = [str(call_of(item)) for item in pending if item.kind == "call"]
    lacking = [known for known in lacking if known not in asked.results]
    if lacking:
        raise _no_tool_output(lacking)


async def _carry_out(call: Call, mark: str, decision: Decision) -> None:
    given = decision.arguments
    subject = given.get("request_id") or given.get("ticket") or decision.verb
    key = _command(mark, f"{decision.task_id}:{subject}")
    verb: Callable[..., Any] = getattr(call.runner, decision.verb)
    await call.done(lambda: verb(task=decision.task_id, command_id=key, **given))


# ------------------------------------------------------------------------------------------------ reading


async def get_response(call: Call) -> Answer:
    """Return a response as it is now, or the stream of its events after a sequence number."""
    given = call.arguments
    part = await _part(call)
    if given.get("stream"):
        return Answer(response=await _stream(call, part, given.get("starting_after")))
    if given.get("starting_after") is not None:
        raise InvalidField("is for streams: send `stream=true` too", field="starting_after")
    return Answer(await _read(call, part))


async def _part(call: Call) -> _Part:
    """Return the part that the path of a request names; raise a `Problem` if there is none."""
    identifier: str = call.arguments["response_id"]
    task_id, name = part_in(identifier)
    if task_id and await find_task(call.runner, task_id) is not None:
        part = _Part(task_id, name)
        if not name or (await _folded(call, part)).is_open:
            return part
    raise _no_response(identifier)


def _no_response(identifier: str) -> Problem:
    return Problem(404, "ResponseNotFound", f"there is no response {identifier!r:.120}", field="response_id")


async def _facts(runner: TaskRunner, task_id: str) -> Facts:
    task = await runner.get_task(task_id)
    is_queued = not task.driven and not task.steps and task.state not in e.END_STATES
    return Facts(task.thread_id, task.labels, is_queued, task.forked_at or 0)


async def _events(runner: TaskRunner, task_id: str) -> AsyncIterator[e.Event]:
    """Yield all events of a task."""
    after, driver = 0, driver_of(runner)
    while events := await events_of_records(driver, task_id, after, _PAGE):
        for event in events:
            yield event
        after = events[-1].seq
        await asyncio.sleep(0)  # a long journal must not block other requests


async def _folded(call: Call, part: _Part) -> ResponseFold:
    """Return the fold of a response over all events of its task."""
    fold = ResponseFold(part.task_id, await _facts(call.runner, part.task_id), part.name, after=part.after)
    async for event in _events(call.runner, part.task_id):
        fold.feed(event)
    return fold


async def _read(call: Call, part: _Part) -> Frame:
    """Return a response as it is now."""
    runner, driver = call.runner, driver_of(call.runner)
    fold = await _folded(call, part)
    if fold.final is not None:
        return fold.final
    row = await driver.cache.row(part.task_id)
    is_at_rest = rests(row, driver.clock()) and not driver.owned.is_owned(part.task_id)
    if is_at_rest or row.state in e.END_STATES:
        stop = await read_stop(runner, part.task_id)
        now = await driver.cache.row(part.task_id)
        if now.head == row.head and waits_for_client(stop):
            fold.end(stop)
            assert fold.final is not None, "its task has stopped"
            return fold.final
    facts = await _facts(runner, part.task_id)
    return fold.response("queued" if facts.is_queued else "in_progress")


async def list_input_items(call: Call) -> Answer:
    """Return the input of a response, as a page of items."""
    given = call.arguments
    if (limit := given.get("limit")) is not None and limit < 1:
        raise InvalidField("must be at least 1", field="limit")
    part = await _part(call)
    stored = await call.runner.get_events(part.task_id, limit=_PAGE, kinds=KINDS)
    events = [event async for event in stored]
    forked_at = (await _facts(call.runner, part.task_id)).forked_at
    items = input_items(events, part.task_id, part.name, forked_at=forked_at)
    if given.get("order", "desc") == "desc":
        items.reverse()
    ids = [item["id"] for item in items]
    if (after := given.get("after")) is not None:
        if after not in ids:
            raise InvalidField("should be the id of an item of this input", field="after")
        items = items[ids.index(after) + 1 :]
    page = items[: limit or 20]
    value: Frame = {
        "object": "list",
        "data": page,
        "first_id": page[0]["id"] if page else None,
        "last_id": page[-1]["id"] if page else None,
        "has_more": len(page) < len(items),
    }
    return Answer(value)


# --------------------------------------------------------------------------------------- cancel and delete


async def cancel_response(call: Call) -> Answer:
    """Cancel the task of a response, and return the response; one that has ended stays as it is."""
    part, runner = await _part(call), call.runner
    task = await runner.get_task(part.task_id)
    if task.state not in e.END_STATES:
        await call.in_time(lambda: runner.cancel(part.task_id, command_id=_command("", "cancel")))
    return Answer(await _read(call, part))


async def delete_response(call: Call) -> Answer:
    """Delete the task of a response; its messages stay in its conversation."""
    part = await _part(call)
    await call.runner.delete_task(part.task_id)
    return Answer({"id": part.response_id, "object": "response", "deleted": True})


# ------------------------------------------------------------------------------------------------ waiting


async def _wait_for_stop(call: Call, task_id: str) -> None:
    """Wait until a task stops where its client can act, the client leaves, or the wait of the request is over."""

    async def stopped() -> bool:
        return waits_for_client(await read_stop(call.runner, task_id))

    waits: list[asyncio.Future[Any]] = [
        asyncio.ensure_future(_at_rest(call, task_id, call.wait, stopped)),
        asyncio.ensure_future(_left(call)),
    ]
    try:
        done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waits:
            each.cancel()
        await asyncio.gather(*waits, return_exceptions=True)
    for each in done:
        each.result()  # raises its error, such as that of a task that was deleted


async def _at_rest(call: Call, task_id: str, seconds: float, is_over: Callable[[], Awaitable[bool]]) -> bool:
    """Return whether a task came to rest in a state that is the end of a wait, within some seconds."""
    driver = driver_of(call.runner)
    try:
        async with call.service.waiting(seconds):
            with driver.owned.watching(task_id) as watch:
                while True:
                    watch.skip()
                    row = await driver.cache.row(task_id)
                    has_stopped = rests(row, driver.clock()) and not driver.owned.is_owned(task_id)
                    if has_stopped and await is_over():
                        return True
                    await watch.changed()
    except TimeoutError:
        return False


def _forget_at_end(call: Call, task_id: str) -> None:
    """Delete a task once it has ended, also if its client has left; a server that ends before leaves it."""
    work = asyncio.create_task(_forget(call, task_id), name=_name_of_forgetting(call, task_id))
    call.service.running.add(work)
    work.add_done_callback(call.service.ended)


def _keep(call: Call, task_id: str) -> None:
    """Do not delete a task at its end, since a later response of it is being read."""
    name = _name_of_forgetting(call, task_id)
    for work in list(call.service.running):
        if isinstance(work, asyncio.Task) and work.get_name() == name:
            work.cancel()


def _name_of_forgetting(call: Call, task_id: str) -> str:
    return f"forgetting {call.tenant} {task_id}"


async def _forget(call: Call, task_id: str) -> None:
    runner = call.runner

    async def ended() -> bool:
        return (await runner.get_task(task_id)).state in e.END_STATES

    if not await _at_rest(call, task_id, call.service.limits.stream_seconds, ended):
        return
    task = await runner.get_task(task_id)
    if task.labels.get(NOT_STORED) == WITH_THREAD:
        await runner.delete_thread(task.thread_id)
    else:
        await runner.delete_task(task_id)


async def _left(call: Call) -> None:
    """Return once the client of a request has left."""
    while (await call.request.receive())["type"] != "http.disconnect":
        pass


# ------------------------------------------------------------------------------------------------ streams


async def _stream(call: Call, part: _Part, since: int | None, *, forgets: bool = False) -> Stream:
    service, runner, principal = call.service, call.runner, call.principal
    assert principal is not None, "the operation needs a principal"
    if since is not None and since < 0:
        raise InvalidField("should be the sequence number of an event", field="starting_after")
    facts = await _facts(runner, part.task_id)
    fold = ResponseFold(part.task_id, facts, part.name, after=part.after, since=since)
    hold = await service.holds.holder(runner, part.task_id) if "control" in call.scopes else None

    def made(reader: Reader, waker: Waker, limits: ServerLimits, closed: Callable[[], None]) -> Stream:
        def ended() -> None:
            closed()
            if forgets:
                _forget_at_end(call, part.task_id)

        return _ResponseStream(fold, runner, reader, waker, limits, ended, hide=service.mask)

    return await service.streams.open(
        runner, part.task_id, made, principal=principal.name, after=0, deltas=True, cut=None, hold=hold
    )


class _ResponseStream(FoldStream):
    """The events of one response."""

    _last = 0
    """the number of the last event"""

    async def _run(self, write: Write) -> None:
        await super()._run(write)
        if self._has_ended:
            await write(_DONE)

    async def _send_frames(self, frames: Sequence[Frame], write: Write) -> None:
        await super()._send_frames(frames, write)
        fold = self._run_fold
        if isinstance(fold, ResponseFold) and fold.is_over:
            self._has_ended = True

    def _encoded(self, frame: Frame) -> bytes:
        self._last = frame["sequence_number"]
        return b"event: %b\ndata: %b\n\n" % (frame["type"].encode(), wire_bytes(self._masked(frame)))

    def _leaving_frame(self, reason: Why) -> bytes:
        error = {"code": f"stream_{reason}", "message": _ENDED[reason], "param": None}
        return self._encoded({"type": "error", **error, "sequence_number": self._last})
