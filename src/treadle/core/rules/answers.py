"""How events change questions to people. Rules of `fold`.

A call that asked stops until the last of its open questions is answered or has expired. Then it is proposed again. A
step function that asked continues, or is entered again. Its memo identifies its questions by their keys.
"""

from __future__ import annotations

from treadle.core import events as e
from treadle.core.events import IllegalEvent
from treadle.core.graph import MemoEntry, StepNode
from treadle.core.questions import Question
from treadle.core.state import TaskState, open_call_of, running_node
from treadle.core.steps import CallState


def ask(state: TaskState, event: e.QuestionAsked) -> None:
    """Record a question of a call, which ends its attempt, or of a step function."""
    question = Question(event)
    if event.call:
        _ask_by_call(state, event, question)
    else:
        node = running_node(state, event)
        node.requests += 1
        node.questions[question.request_id] = question
        node.memo[event.key] = MemoEntry(event.digest, question)
    state.questions[question.request_id] = question


def _ask_by_call(state: TaskState, event: e.QuestionAsked, question: Question) -> None:
    call = open_call_of(state, event)
    may_ask = call.status in ("begun", "asking") and call.effect != "write" and call.child is None
    earlier = call.questions[event.place - 1] if 1 <= event.place <= len(call.questions) else None
    in_order = event.number == call.asked_questions + 1 and 1 <= event.place <= len(call.questions) + 1
    if not may_ask or not in_order or (earlier is not None and earlier.status == "open"):
        raise IllegalEvent(f"task {state.task_id}: {event.kind} of call {call.id}, which is {call.status}")
    if call.status == "begun":
        # Code before the first question changes nothing, unless `once` stored a value for it.
        if call.effect != "read" and (call.values or event.place > 1):
            call.is_halfway = True
        call.attempts_that_asked += 1
    call.status, call.asked_questions = "asking", event.number
    call.questions = (*call.questions[: event.place - 1], question, *call.questions[event.place :])


def answer(state: TaskState, event: e.QuestionAnswered) -> None:
    """Record the answer of a person."""
    question = _open_question(state, event)
    question.status, question.value, question.by = "answered", event.value, event.by
    _settle(state, event, question)


def expire(state: TaskState, event: e.QuestionExpired) -> None:
    """Record the expiry. Its time must have come."""
    question = _open_question(state, event)
    if question.event.expires is None or event.time < question.event.expires:
        raise IllegalEvent(f"task {state.task_id}: the question {event.request_id} has not expired")
    question.status, question.value = "expired", question.event.default
    _settle(state, event, question)


def keep(state: TaskState, event: e.ValueKept) -> None:
    """Record a value that a call stores for its later attempts."""
    call = state.open_call(event.call)
    values = call.values or {} if call is not None else {}
    if call is None or call.status != "begun" or event.key in values:
        status = call.status if call is not None else "not open"
        raise IllegalEvent(f"task {state.task_id}: {event.kind} of call {event.call}, which is {status}")
    call.values = {**values, event.key: event.value}


def close_call(state: TaskState, call: CallState) -> None:
    """Drop the open questions of a call that has ended."""
    for question in call.questions:
        state.questions.pop(question.request_id, None)


def close_step(state: TaskState, node: StepNode) -> None:
    """Drop the open questions of a stopped step function, which asks them again if it is resumed."""
    for key, entry in list(node.memo.items()):
        question = entry.done
        if isinstance(question, Question) and not question.is_answered:
            state.questions.pop(question.request_id, None)
            del node.memo[key]
    node.questions.clear()


def forget(state: TaskState) -> None:
    """Drop the questions and values of open calls, and unanswered questions. A fork asks again, under its own keys."""
    for node in state.running_nodes():
        close_step(state, node)
    for step in state.under_way():
        for call in step.open.values():
            if call.status == "asking":
                call.status = "proposed"
            call.questions, call.values, call.is_halfway = (), None, False
    state.questions.clear()


def _open_question(state: TaskState, event: e.QuestionAnswered | e.QuestionExpired) -> Question:
    """Remove and return the open question of an event."""
    question = state.questions.pop(event.request_id, None)
    if question is None:
        raise IllegalEvent(f"task {state.task_id}: {event.kind} of {event.request_id}, which is not open")
    return question


def _settle(state: TaskState, event: e.QuestionAnswered | e.QuestionExpired, question: Question) -> None:
    """Propose a call again after its last open question."""
    question_event = question.event
    if not question_event.call:
        assert state.graph is not None, "a step function asked"
        del state.graph.running[question_event.step].questions[question.request_id]
        return
    call = state.open_call(question_event.call)
    assert call is not None, "the questions of a call are dropped at its end"
    event.tool_name = call.name
    if all(other.status != "open" for other in call.questions):
        call.status = "proposed"
