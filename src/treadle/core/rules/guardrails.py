"""How events change checks of guardrails. Rules of `fold`.

A content is settled when guardrails or a person pass or refuse it. Only then the task changes:

    input passed, rewritten     the message has the new text; a request that went out with the old one is void
    input refused               the message says so, for a model that reads it after its step was skipped
    answer passed               `ModelReturned` follows, with the rewrites of guardrails
    result passed, rewritten    the call has the new output, and the model reads it
    result refused              the model reads that it was withheld
"""

from __future__ import annotations

from dataclasses import replace

from treadle.core.checks import Check, answer_content, refusal, standing, with_input
from treadle.core.events import AnswerHeld, GuardrailJudged, IllegalEvent, InputReceived
from treadle.core.ids import answer_place, base_call_id, input_place, is_input, result_call
from treadle.core.messages import Content, Json, Message, Text, ToolResult
from treadle.core.observation import EMPTY_OUTPUT, as_text
from treadle.core.permits import Permit
from treadle.core.render import input_message
from treadle.core.rules import model_calls
from treadle.core.state import TaskState
from treadle.core.steps import CallState


def hold(state: TaskState, event: AnswerHeld) -> None:
    """Record an answer that guardrails have not passed. Drop it if its input was rewritten meanwhile."""
    step, call = model_calls.finish(state, event)
    if call.held is not None:
        place = answer_place(call.id or step.id, call.attempt)
        state.checks[place] = Check(place, step.id, "output", answer_content(event))


def judge(state: TaskState, event: GuardrailJudged) -> None:
    """Record the verdict of guardrails on a content that is not settled."""
    check = state.checks.get(event.place)
    if check is None:
        content = event.previous if event.verdict == "rewrite" else event.content
        check = Check(event.place, event.step, event.guards, content or {})
        state.checks[event.place] = check
    if standing(check) != "open":
        raise IllegalEvent(
            f"task {state.task_id}: {event.kind} of {event.place}, which is {standing(check)} already"
        )
    if event.verdict == "rewrite":
        check.arguments, check.permit, check.changed = event.content or {}, None, True
        check.replaced += 1
    elif event.verdict == "ask":
        check.arguments = event.content or check.arguments
    elif event.verdict == "deny":
        check.permit = Permit("denied", event.rule, event.reason, traceback=event.traceback)
        settle(state, check)
    else:
        if check.permit is not None:
            check.permit.status, check.changed = "approved", True
        else:
            check.permit = Permit("allowed", event.rule, event.reason)
        settle(state, check)


def settle(state: TaskState, check: Check) -> None:
    """Apply a passed or refused content to the task."""
    stands = standing(check)
    if stands not in ("refused", "passed") or (stands == "passed" and not check.changed):
        return
    if is_input(check.id):
        _replace_input(state, check)
    elif check.guards == "result":
        _replace_result(
            state, check, _refusal_text(check) if stands == "refused" else check.arguments["result"]
        )


def consume_refusals(state: TaskState, step: str) -> None:
    """Record that a step failed because of its refused contents. Its next attempt continues without them."""
    for check in state.checks.values():
        permit = check.permit
        if (
            check.step == step
            and check.guards != "input"
            and permit is not None
            and permit.status == "denied"
        ):
            permit.status = "used"


def as_judged(state: TaskState, received: InputReceived) -> InputReceived:
    """Return input after the decisions of guardrails."""
    check = state.checks.get(input_place(received.seq))
    stands = standing(check)
    if check is not None and stands == "refused":
        parts: tuple[Content, ...] = (Text(_refusal_text(check)),)
    elif check is not None and stands == "passed" and check.changed:
        parts = with_input(received.parts, check.arguments)
    else:
        return received
    return replace(received, parts=parts, seq=received.seq, time=received.time)


def _judge_unread(state: TaskState) -> None:
    """Apply the decisions of guardrails to unread input, results of background calls included."""
    for place, received in enumerate(state.unread):
        judged = as_judged(state, received)
        if judged is not received:
            state.unread = [*state.unread[:place], judged, *state.unread[place + 1 :]]
            for call in state.arrived:
                if call.ticket is not None and call.ticket.arrival is received:
                    call.ticket.arrival = judged


def _refusal_text(check: Check) -> str:
    """Return the text for the model instead of refused content."""
    return f"[{refusal(check).message}]"


def take_back(state: TaskState, gone: set[str]) -> None:
    """Drop the decisions on contents of undone steps. Input stays as guardrails left it."""
    _judge_unread(state)
    unread = {input_place(received.seq) for received in state.unread}
    for check in list(state.checks.values()):
        is_open = standing(check) not in ("passed", "refused")
        if check.step in gone if not is_input(check.id) else is_open and check.id not in unread:
            del state.checks[check.id]
            state.open_approvals.pop(check.id, None)


def forget(state: TaskState) -> None:
    """Reset, for a fork, the checks of unsettled contents and of unread input.

    The numbers of questions to people continue, so that an answer from before the fork fits no later question.
    """
    unread = {input_place(received.seq) for received in state.unread}
    for check in state.checks.values():
        if standing(check) not in ("passed", "refused") or check.id in unread:
            check.permit = None
            state.open_approvals.pop(check.id, None)


def drop_open(state: TaskState) -> None:
    """Drop the questions to people of a task that ends. They are asked again if it is reopened.

    A refused result of a background call has stopped the task. If that is reopened, the model reads the refusal.
    """
    for check in state.checks.values():
        permit = check.permit
        if permit is not None and permit.status == "denied" and check.guards == "result":
            permit.status = "used"
        if state.open_approvals.pop(check.id, None) is not None:
            check.permit = None


# ------------------------------------------------------------------------------------------- contents


def _replace_input(state: TaskState, check: Check) -> None:
    _judge_unread(state)
    if check.id == input_place(1) and standing(check) == "passed":
        state.passed_input = with_input(state.input, check.arguments)
    step = state.step
    if step is None:
        return
    old = next((received for received in step.read if input_place(received.seq) == check.id), None)
    if old is None:
        return
    new = as_judged(state, old)
    step.read = tuple([new if received is old else received for received in step.read])
    step.input = tuple([part for received in step.read for part in received.parts])
    message = input_message(old)
    messages = list(state.messages)
    place = next(i for i in range(step.first_message, len(messages)) if messages[i] == message)
    messages[place] = input_message(new, state.frame_key)
    state.messages = messages
    model_calls.void(step.model_call)


def _replace_result(state: TaskState, check: Check, output: Json) -> None:
    call = state.find_call(result_call(check.id))
    if call is None:
        return
    if not call.guarded:
        call.guarded, call.returned = True, call.output
    call.output, call.observation, call.display = output, None, None
    call.cut, call.whole = False, None
    state.cut.pop(base_call_id(call.id), None)  # only the passed text may be read
    if call.error is not None:
        call.error = replace(call.error, message=as_text(output))
    step = next(step for step in state.under_way() if step.id == call.step)
    node = state.node_of(step.id)
    if node is None:
        if not step.open:
            state.messages = with_result(state.messages, _tool_result(call))
    elif not node.owes_results:
        node.messages = with_result(node.messages, _tool_result(call))
        if node.alone:
            state.messages = with_result(state.messages, _tool_result(call))


def _tool_result(call: CallState) -> ToolResult:
    text = Text(as_text(call.output) or EMPTY_OUTPUT)
    return ToolResult(base_call_id(call.id), call.name, (text,), call.outcome != "ok", call.label, call.frame)


def with_result(messages: list[Message], new: ToolResult) -> list[Message]:
    """Return messages with the result of a call replaced."""
    messages = list(messages)
    for index in range(len(messages) - 1, -1, -1):
        parts = messages[index].parts
        if any(type(part) is ToolResult and part.call_id == new.call_id for part in parts):
            changed = tuple(new if type(p) is ToolResult and p.call_id == new.call_id else p for p in parts)
            messages[index] = Message("tool", changed)
            break
    return messages
