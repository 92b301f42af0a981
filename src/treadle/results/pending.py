"""The open requests of tasks: approvals, questions, settlements, timers, subagents, undos and background calls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any, Final, Literal

from treadle.core.checks import Check
from treadle.core.data import frozen
from treadle.core.display import Displayed, Table, View, Word
from treadle.core.ids import approval_id, undo_id
from treadle.core.messages import Json
from treadle.core.questions import Question
from treadle.core.rules.handoffs import agent_of
from treadle.core.state import TaskState, Timer
from treadle.core.steps import CallState, Sleep
from treadle.core.unknown_names import explains_names
from treadle.results.caller_tools import names_of
from treadle.results.displays import moment
from treadle.results.states import NO_TASKS, state_at_rest, stopped_subagents, unsettled_calls
from treadle.results.steps import all_steps

FOR_PEOPLE: Final = ("approval", "question", "settlement")
"""The kinds of `Pending` that a person decides with a verb, on the task or on any task above it."""

OUTSIDE: Final = (*FOR_PEOPLE, "undo", "call", "background")
"""The kinds of `Pending` in `list_pending`.

They include stopped undos, results from the caller of a task, and results from holders of tickets.
"""


@explains_names("Pending")
@frozen
class Pending(Displayed):
    """An open request of a task: an approval, an answer, a settlement, a result or a time that it waits for.

    For an `approval`, `arguments` are exactly those that would be executed and `digest` is their digest. `rule` is the
    id of the rule that asks, `reason` its reason, and `preview` the tool's description of the effect. `expires` is when
    the request is denied unanswered, in microseconds since 1970, UTC. `argument` names one that the approver must fill
    in. With `every_call` an approval covers this call alone. With `same` an approval for the task covers only calls in
    which these arguments are the same. `untrusted` are the origins of the untrusted content that the model had read
    when it was asked, such as `tool:read_mail`.

    For a `question`, `text` is the question and `schema` the JSON schema of an answer. If `has_default`, `default` is
    the answer at `expires`. `tool` and `arguments` are empty if a step function asks.

    For an `undo` that has stopped, `tool` and `arguments` are those of the call whose compensation failed, and `text`
    has the error. `undo_step` tries it again.

    For a `settlement`, `idempotency_key` is the key of the call: look it up in the service that the tool calls.

    For a `timer`, `due` is when the task may go on, in microseconds since 1970, UTC.

    For a stopped `subagent`, `request_id` is the id of its task; decide its requests there.

    For a `request` to a model that a policy asks about, `request_id` is the id of its step or of the function's
    request. `resume` sends it; `cancel` does not.

    For a call in the `background`, `request_id` is its id and `expires` when its ticket expires. `details` are the
    tool's details of the work, and `progress` is the last report.

    For a `call` of a tool that the caller of the task runs (`RunOptions.caller_tools`), `complete` and `fail` bring the
    result. They take `request_id`, or the id of the call.

    `asked` is when the request was made, in microseconds since 1970, UTC; None for timers, subagents and tickets. Only
    `approvers` may decide, if there are any, and none of the `excluded`. `agent` is the agent of the task.

    Three fields are set in lists only. `labels` are those of the task, and `head` is the number of its last event, for
    `expect`. `may_decide` is whether the caller of a runner with a name, such as the client of a server, may decide.
    It is None without a name.

    `path` are the agents on the way to the one that asks, its own name last. It begins with the agent of the task whose
    `pending` this is, or that was passed to `list_pending`. In a list of all tasks it begins with the agent of the
    root. For a `subagent` it ends with the stopped agent, or with the agent below it that makes all of these requests.
    """

    request_id: str
    kind: Literal[
        "settlement", "approval", "question", "timer", "subagent", "request", "background", "call", "undo"
    ]
    tool: str
    arguments: dict[str, Json]
    text: str
    due: int | None = None
    idempotency_key: str | None = None
    task_id: str = ""
    rule: str | None = None
    reason: str = ""
    preview: Json = None
    expires: int | None = None
    digest: str = ""
    schema: Json = None
    default: Json = None
    has_default: bool = False
    argument: str | None = None
    details: Json = None
    progress: Json = None
    every_call: bool = False
    untrusted: tuple[str, ...] = ()
    same: tuple[str, ...] = ()
    path: tuple[str, ...] = ()
    asked: int | None = None
    approvers: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()
    agent: str = ""
    head: int = 0
    labels: dict[str, str] = field(default_factory=dict[str, str])
    may_decide: bool | None = None

    def _view(self) -> View:
        facts = (
            ("tool", self.tool),
            ("path", " > ".join(self.path) if len(self.path) > 1 else None),
            ("due", moment(self.due) if self.due is not None else None),
            ("rule", self.rule),
            ("untrusted", ", ".join(self.untrusted) or None),
            ("same", ", ".join(self.same) or None),
            ("asked", moment(self.asked) if self.asked is not None else None),
            ("expires", moment(self.expires) if self.expires is not None else None),
            ("approvers", ", ".join(self.approvers) or None),
            ("excluded", ", ".join(self.excluded) or None),
        )
        values = (
            ("arguments", self.arguments),
            ("preview", self.preview),
            ("schema", self.schema),
            ("details", self.details),
            ("progress", self.progress),
        )
        return View(
            title="Pending", name=self.request_id, state=self.kind, facts=facts, text=self.text, values=values
        )


def pending_table(pending: tuple[Pending, ...]) -> Table:
    """Return open requests as a table."""
    return Table("pending", ("waits for", "kind", "tool", "arguments", "because"), pending, _pending_row)


def _pending_row(item: Pending) -> tuple[Any, ...]:
    return item.request_id, Word(item.kind), item.tool, item.arguments, item.text


def stop_text(name: str, child: TaskState, below: Mapping[str, TaskState] = NO_TASKS) -> str:
    """Return for people why the task of an agent's call stopped, or that it can go on."""
    state, task = state_at_rest(child), f"{name} (task {child.task_id})"
    reason = "; ".join(item.text for item in pending_of(child, below)) or child.stop_reason
    if reason or state in ("paused", "interrupted", "waiting"):
        return f"{task} is {state}{f': {reason}' if reason else ''}"
    return f"{task} {'has ended' if child.ended is not None else 'no longer waits'}: `resume` goes on"


def pending_of(state: TaskState, below: Mapping[str, TaskState] = NO_TASKS) -> tuple[Pending, ...]:
    """Return the open requests of a task: approvals, questions, settlements, timers, subagents, background calls.

    Args:
        state: of the task.
        below: the known tasks below it, by id, whose present requests are used; for others, the recorded ones.
    """
    if state.ended == "completed" and not state.deferred:
        return ()  # all its calls have ended
    pending: list[Pending] = []
    if state.open_approvals and state.undo is None:
        calls = (call for step in state.under_way() for call in step.open.values())
        pending += [_approval(state, call) for call in calls if call.id in state.open_approvals]
        pending += [
            _check(state, check) for check in state.checks.values() if check.id in state.open_approvals
        ]
    if state.questions and state.undo is None and state.ended is None:
        pending += [_question(state, question) for question in state.questions.values()]
    for call in unsettled_calls(state):
        reason = (
            call.stopped.message if call.stopped is not None else "it was cut off before its end was recorded"
        )
        text = f"{call.name} began and its outcome is not known: {reason}"
        pending.append(_settlement(state, call, call.id, text))
    for call in (
        stopped_subagents(state) if state.undo is None else ()
    ):  # else the undo ends it, or blocks `resume`
        assert call.stopped is not None, "it rests"
        task_id = str(call.child)
        why = call.stopped.message
        if task_id in below and call.stopped.kind != "error":  # else this error itself blocks the task
            why = stop_text(call.name, below[task_id], below)
        path = _path_to_child(state, call, below)
        pending.append(
            Pending(task_id, "subagent", call.name, call.arguments, why, path=path, **_task(state))
        )
    if state.undo is not None:
        for call in state.undo.queue:
            if call.undo_status == "lost":
                text = f"the compensation of {call.name} began and its outcome is not known"
                pending.append(_settlement(state, call, undo_id(call.id), text))
            elif call.undo_status == "failed":
                pending.append(_stopped_undo(state, call))
    if state.pausing and state.ended is None:
        model_requests = [(step, call) for step, call in state.open_model_calls() if call.permit == "ask"]
        text = state.stop_reason or "a request to a model waits for a person"
        pending += [
            Pending(call.id or step.id, "request", "", {}, text, path=_path(state, step.id), **_task(state))
            for step, call in model_requests
        ]
    if state.ended is None:
        timers = state.timers()
        pending += [_timer(state, timer) for timer in timers if isinstance(timer, (Timer, Sleep))]
    pending += [_in_background(state, call) for call in state.deferred.values()]
    return tuple(pending)


def pending_outside(state: TaskState, above: tuple[str, ...] = ()) -> list[Pending]:
    """Return a task's own requests to people, its caller and the holders of tickets.

    Args:
        state: of the task.
        above: the agents above that of the task, the uppermost first.
    """
    items = [item for item in pending_of(state) if item.kind in OUTSIDE]
    return [replace(item, path=(*above, *item.path)) for item in items] if above else items


def caller_of(state: TaskState, call_id: str) -> str:
    """Return the agent whose call of this id a task made."""
    call = state.find_call(call_id)
    return _agent_at(state, call.step) if call is not None else state.created_for


def _agent_at(state: TaskState, step_id: str) -> str:
    if state.team is None:
        return state.created_for
    step = next((step for step in all_steps(state) if step.id == step_id), None)
    return agent_of(state, step) if step is not None else state.agent


def _task(state: TaskState) -> dict[str, Any]:
    """Return the fields of a request that describe its task."""
    return {"task_id": state.task_id, "agent": state.agent}


def _path(state: TaskState, step_id: str) -> tuple[str, ...]:
    return (_agent_at(state, step_id),)


def _path_to_child(state: TaskState, call: CallState, below: Mapping[str, TaskState]) -> tuple[str, ...]:
    """Return the agents down to a call's stopped agent, or to the agent below it that makes all the requests."""
    task_id = str(call.child)
    child = below.get(task_id)
    paths = [item.path for item in pending_of(child, below)] if child is not None else []
    if paths:
        shared = paths[0]
        for path in paths:
            shared = tuple([name for name, other in zip(shared, path, strict=False) if name == other])
    elif child is not None:
        shared = (child.agent,)
    else:
        spent = state.children.get(task_id)
        shared = (spent[0].agent if spent else call.name,)
    return (_agent_at(state, call.step), *shared)


def _in_background(state: TaskState, call: CallState) -> Pending:
    ticket = call.ticket
    assert ticket is not None, "it has one"
    return Pending(
        call.id,
        "background",
        call.name,
        call.arguments,
        f"{call.name} goes on in the background until {moment(ticket.expires)}",
        **_task(state),
        expires=ticket.expires,
        details=ticket.details,
        progress=ticket.progress,
        path=_path(state, call.step),
    )


def _approval(state: TaskState, call: CallState | Check) -> Pending:
    assert call.permit is not None, "it was asked for"
    request = call.permit.request
    assert request is not None, "it was asked for"
    reason = f": {request.reason}" if request.reason else ""
    return Pending(
        approval_id(call.id, request.number),
        "approval",
        call.name,
        call.arguments,
        f"{call.name} waits for an approval{reason}",
        **_task(state),
        rule=request.rule,
        reason=request.reason,
        preview=request.preview,
        expires=request.expires,
        digest=request.digest,
        argument=request.argument,
        every_call=request.every_call,
        untrusted=request.untrusted,
        same=request.same,
        asked=request.time,
        approvers=request.approvers,
        excluded=request.excluded,
        path=_path(state, call.step),
    )


def _question(state: TaskState, question: Question) -> Pending:
    event = question.event
    call = state.open_call(event.call) if event.call else None
    is_callers = call is not None and call.name in names_of(state.options)
    return Pending(
        question.request_id,
        "call" if is_callers else "question",
        call.name if call is not None else "",
        call.arguments if call is not None else {},
        event.question,
        **_task(state),
        reason=event.problem or "",
        expires=event.expires,
        digest=event.digest,
        schema=None if is_callers else event.schema,
        default=event.default,
        has_default=event.has_default,
        asked=event.time,
        path=_path(state, event.step),
    )


def _check(state: TaskState, check: Check) -> Pending:
    """Return the question about content that guardrails check; its arguments are that content."""
    item = _approval(state, check)
    reason = f": {item.reason}" if item.reason else ""
    return replace(item, text=f"the guardrail {item.rule} asks about {check.name}{reason}")


def _settlement(state: TaskState, call: CallState, request_id: str, text: str) -> Pending:
    key = state.key_of(request_id)
    return Pending(
        request_id,
        "settlement",
        call.name,
        call.arguments,
        text,
        idempotency_key=key,
        asked=call.doubted or None,
        **_task(state),
        path=_path(state, call.step),
    )


def _stopped_undo(state: TaskState, call: CallState) -> Pending:
    why = f": {call.undo_error}" if call.undo_error else ""
    text = f"the undo has stopped: the compensation of {call.name} failed{why}"
    path = _path(state, call.step)
    return Pending(undo_id(call.id), "undo", call.name, call.arguments, text, path=path, **_task(state))


def _timer(state: TaskState, timer: Timer | Sleep) -> Pending:
    path = _path(state, timer.step)
    if isinstance(timer, Sleep):
        call = state.open_call(timer.call)
        name, arguments = (call.name, call.arguments) if call is not None else ("", {})
        text = f"{name or f'step {timer.step}'} sleeps until {moment(timer.due)}"
        return Pending(
            timer.call or timer.step,
            "timer",
            name,
            arguments,
            text,
            timer.due,
            **_task(state),
            path=path,
        )
    text = f"the model is asked again at {moment(timer.due)}: {timer.tries.why}"
    return Pending(timer.call or timer.step, "timer", "", {}, text, timer.due, path=path, **_task(state))
