"""The route of AG-UI: begin a run, or continue one, and stream its events.

    POST /agui/{agent}
      the run's id is that of a task        the run again: send it from its beginning, and run nothing
      `resume`, or results of caller tools  the task goes on with the answers: send it from there
      else                                  a new task in the thread, with the run's id

A request that cannot be carried out is refused with a problem. From the first event on, a failure is `RUN_ERROR`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, cast

from ag_ui.core import RunAgentInput

from treadle.core.data import frozen
from treadle.core.messages import Json
from treadle.drivers import arguments
from treadle.engine.options import RunOptions
from treadle.errors import InvalidField, TaskConflict
from treadle.results.pending import FOR_PEOPLE, Pending
from treadle.results.tasks import Task
from treadle.results.wire import from_wire, wire_bytes
from treadle.runner.runner import TaskRunner
from treadle.server.audience import Waker
from treadle.server.calls import Answer, Call, agent_of, check_scope, find_task
from treadle.server.event_stream import Stream, Why
from treadle.server.feed import Reader
from treadle.server.limits import ServerLimits
from treadle.server.problems import Problem, log
from treadle.server.protocols.agui import (
    OWN,
    RESUME,
    AguiRun,
    Frame,
    call_of,
    error_frame,
    request_of,
)
from treadle.server.protocols.agui_input import (
    News,
    caller_tools,
    command_id,
    decision_of,
    forwarded,
    news_of,
    read_input,
    result_of,
    task_ids_in,
    without_task,
)
from treadle.server.protocols.decisions import Decision
from treadle.server.protocols.fold_stream import FoldStream
from treadle.server.reading import check_content, check_options

_MOST_LOOKED_UP: Final = 8
"""The most tasks that are looked up to learn which messages of a request are known."""

_MOST_REQUESTS: Final = 1_000
_MOST_DEPTH: Final = 100

_ENDED: Final[dict[Why, str]] = {
    "deleted": "the task was deleted",
    "error": "the server failed; its log tells more",
    "time": "the stream was open for long: send the run again, with its id, to go on",
    "shutdown": "the server ends: send the run again, with its id, to go on",
}


@frozen
class _Part:
    """The part of a task that a run sends.

    Args:
        task_id: the task.
        after: the sequence number of its last event that belongs to an earlier run.
        again: whether the run was sent before.
    """

    task_id: str
    after: int = 0
    again: bool = False


async def run_agui(call: Call) -> Answer:
    """Begin or continue a run, and return the stream of its events."""
    asked = read_input(call.arguments)
    arguments.identifier("threadId", asked.thread_id)
    arguments.identifier("runId", asked.run_id)
    agent = agent_of(call.runner, call.arguments["agent"])
    check_scope(call, "read", "a run streams the events of its task")
    thread = await call.runner.get_thread(asked.thread_id)
    own = await _own_tasks(call.runner, asked)
    news = news_of(
        asked,
        thread,
        lambda message_id: any(message_id.startswith(f"{task_id}/") for task_id in own),
        allow_urls=call.service.allow_urls,
    )
    part = await _existing(call, asked)
    if part is None and (asked.resume or news.results):
        part = await _continued(call, asked, news)
    if part is None:
        part = await _begun(call, asked, agent, news)
    return Answer(response=await _stream(call, asked, part))


async def _own_tasks(runner: TaskRunner, asked: RunAgentInput) -> list[str]:
    """Return the tasks of the thread whose messages the request has."""
    found: list[str] = []
    for task_id in task_ids_in([each.id for each in asked.messages])[:_MOST_LOOKED_UP]:
        task = await find_task(runner, task_id)
        if task is not None and task.thread_id == asked.thread_id:
            found.append(task_id)
    return found


# ------------------------------------------------------------------------------------------- three kinds of runs


async def _existing(call: Call, asked: RunAgentInput) -> _Part | None:
    """Return the part of a task that has the id of the run; None if there is no such task."""
    task = await find_task(call.runner, asked.run_id)
    if task is None:
        return None
    if task.thread_id != asked.thread_id:
        detail = f"there is a task {task.task_id} in another thread: a new run needs a new `runId`"
        raise TaskConflict(detail, task_id=task.task_id, field="thread_id")
    return _Part(task.task_id, again=True)


async def _begun(call: Call, asked: RunAgentInput, agent: Any, news: News) -> _Part:
    """Begin a task for a run, unless the thread waits for answers."""
    if not news.content:
        raise InvalidField("has no message of the user that is new in this thread", field="messages")
    runner, thread_id = call.runner, asked.thread_id
    await _check_nothing_is_open(runner, thread_id)
    options = _options(asked)
    check_content("messages", (*news.history, *news.content), allow_urls=call.service.allow_urls)
    await call.service.quota.check(runner, call.tenant)
    if news.history:
        check_scope(call, "edit", "the messages of other assistants are imported into the thread")
        key = command_id(thread_id, "history")
        await call.done(lambda: runner.import_thread(thread_id, news.history, command_id=key))
    given: Any = asked.state
    state = cast("dict[str, Json]", given) if given and isinstance(given, dict) else None
    await call.done(
        lambda: runner.submit(
            agent,
            news.content,
            thread_id=thread_id,
            task_id=asked.run_id,
            extra_state=state,
            options=options,
        )
    )
    return _Part(asked.run_id)


def _options(asked: RunAgentInput) -> RunOptions | None:
    own = forwarded(asked)
    options: RunOptions | None = None
    if own.get("options") is not None:
        try:
            options = from_wire(RunOptions, own["options"], strict=True)
        except InvalidField as problem:
            raise problem.inside(f"forwardedProps.{OWN}.options") from None
    tools = caller_tools(asked.tools or ())
    if tools:
        options = replace(options or RunOptions(), caller_tools=tools)
    check_options(options)
    return options


async def _check_nothing_is_open(runner: TaskRunner, thread_id: str) -> None:
    """Raise a `Problem` for a new message in a thread that waits for answers: it would leave them unanswered."""
    page = await runner.list_pending(thread_id=thread_id, limit=_MOST_REQUESTS)
    kinds = (*FOR_PEOPLE, "call")
    waiting = [f"{item.task_id}:{item.request_id}" for item in page.items if item.kind in kinds]
    if waiting:
        detail = (
            f"the thread waits for answers to {', '.join(waiting[:10])}: send them in `resume`, "
            "and the results of tools as messages"
        )
        raise Problem(409, "RequestsOpen", detail, interrupts=list(waiting))


async def _continued(call: Call, asked: RunAgentInput, news: News) -> _Part | None:
    """Answer open requests of a task, and let it go on; None if none of the answers belongs to a task of the thread."""
    runner = call.runner
    root = await _root_of(runner, asked, news)
    if root is None:
        return None
    page = await runner.list_pending(root.task_id, limit=_MOST_REQUESTS)
    decisions = _decisions(asked, news, root, page.items)
    if not decisions:
        return _Part(root.task_id, again=True)
    check_scope(call, "decide", "answers to open requests are decisions")
    if any(each.verb == "cancel" for each in decisions):
        check_scope(call, "control", "an abandoned question cancels its task")
    for number, each in enumerate(decisions):
        check_content(f"resume[{number}]", each.arguments.get("value"), allow_urls=call.service.allow_urls)
    for each in decisions:
        await _carry_out(call, asked.run_id, each)
    if any(each.verb == "cancel" for each in decisions):
        return _Part(root.task_id, root.head)
    words = news.content if news.is_reply else ()
    if words:
        check_content("messages", words, allow_urls=call.service.allow_urls)
        key = command_id(asked.run_id, "messages")
        await call.done(lambda: runner.send(root.task_id, list(words), command_id=key))
    await call.done(lambda: runner.resume(root.task_id, drive=False))
    return _Part(root.task_id, root.head)


async def _root_of(runner: TaskRunner, asked: RunAgentInput, news: News) -> Task[Any] | None:
    """Return the task of the thread that the answers are for, or the one above the tasks that asked."""
    ids = [request_of(entry.interrupt_id)[0] for entry in asked.resume or ()]
    ids += task_ids_in([message.tool_call_id for message in news.results])[:_MOST_LOOKED_UP]
    for task_id in filter(None, ids):
        task = await find_task(runner, task_id)
        for _ in range(_MOST_DEPTH):
            if task is None or task.parent is None:
                break
            task = await find_task(runner, task.parent)
        if task is not None and task.thread_id == asked.thread_id:
            return task
    return None


def _decisions(
    asked: RunAgentInput, news: News, root: Task[Any], pending: Sequence[Pending]
) -> list[Decision]:
    """Return the verbs that the answers ask for; an answer to no open request is left out."""
    by_id = {(item.task_id, item.request_id): item for item in pending if item.kind in FOR_PEOPLE}
    decisions: list[Decision] = []
    for number, entry in enumerate(asked.resume or ()):
        place = request_of(entry.interrupt_id)
        item = by_id.get(place)
        if item is not None:
            decisions.append(decision_of(item, entry, f"resume[{number}]", root.task_id))
        elif place == (root.task_id, RESUME) and root.state in ("paused", "interrupted", "running"):
            verb = "cancel" if entry.status == "cancelled" else "resume"
            decisions.append(Decision(verb, root.task_id, {}))
        else:
            log.info("a run answers %r, which is not open; the answer is left out", entry.interrupt_id)
    calls = {call_of(item): item for item in pending if item.kind == "call"}
    for message in news.results:
        item = calls.pop(message.tool_call_id, None)
        if item is None:
            continue
        if message.error is not None:
            outcome: dict[str, Any] = {"error": message.error}
        else:
            outcome = {"value": result_of(message)}
        verb = "fail" if message.error is not None else "complete"
        decisions.append(Decision(verb, item.task_id, {"ticket": item.request_id, **outcome}))
    return decisions


async def _carry_out(call: Call, run_id: str, decision: Decision) -> None:
    if decision.verb == "resume":
        return  # the run resumes its task anyway
    given = decision.arguments
    subject = given.get("request_id") or given.get("ticket") or decision.verb
    key = command_id(run_id, f"{decision.task_id}:{subject}")
    verb: Callable[..., Any] = getattr(call.runner, decision.verb)
    await call.done(lambda: verb(task=decision.task_id, command_id=key, **given))


# ------------------------------------------------------------------------------------------------ the stream


async def _stream(call: Call, asked: RunAgentInput, part: _Part) -> Stream:
    service, runner, principal = call.service, call.runner, call.principal
    assert principal is not None, "the operation needs a principal"
    sent: Sequence[Mapping[str, Json]] = call.arguments["messages"]
    known = [dict(each) for each in sent] if part.after else without_task(sent, part.task_id)
    run = AguiRun(part.task_id, asked.thread_id, asked.run_id, known, after=part.after, again=part.again)
    hold = await service.holds.holder(runner, part.task_id) if "control" in call.scopes else None

    def made(reader: Reader, waker: Waker, limits: ServerLimits, closed: Callable[[], None]) -> Stream:
        return _RunStream(run, runner, reader, waker, limits, closed, hide=service.mask)

    return await service.streams.open(
        runner, part.task_id, made, principal=principal.name, after=0, deltas=True, cut=None, hold=hold
    )


class _RunStream(FoldStream):
    """The events of one run."""

    def _encoded(self, frame: Frame) -> bytes:
        return b"data: %b\n\n" % wire_bytes(self._masked(frame))

    def _leaving_frame(self, reason: Why) -> bytes:
        return self._encoded(error_frame(_ENDED[reason], f"stream_{reason}"))
