"""Build and parse the ids of steps, calls and child tasks, and the idempotency keys of calls.

    s3            the third step
    s2.1.1        a step that was planned beside others: its path in the plan
    s3b1          a step of branch 1, the first after an undo
    s3-0          the first call that an answer in step s3 asks for
    s3-0r2        the same call in the second attempt of its step
    s3-0-undo     the compensation of that call
    s3-0-stop     the effect that ends the task of an agent's call
    s3-0-judge    the effect that judges whether that call may start
    s3-0-ask1     the first request to approve that call
    g-5f1d20aa... the approval for later calls that was given with a request
    s3-0-q1       the first question that the tool of that call asks a person
    s3-q2         the second request of a step function, a question to a person
    s3-0-value    the result of that call, as guardrails judge it
    s3-said1      the answer to the first attempt of the request of step s3, as guardrails judge it
    s3-final-1a2b the task's answer by step s3, if no model wrote it, as guardrails judge it
    s3-release    the effect that releases that answer
    in7           the input in event 7, as guardrails judge it
    s3-0-sleep1   the first sleep of that call
    s3-m1         the first request of a step function, one to the model
    s3-c2         its second request, a call of a tool
    s3-m1-0       the first call that the answer to s3-m1 asks for
    order.s3-0    the child of task `order` that performs its call s3-0
    order.s3-0t2  the second child for that call, after the first one failed
    t4-s3-0       call s3-0 of the fourth member of a thread, as later members see it
    order/s3-0    the idempotency key of call s3-0 of task `order`
    pause-17      the inbox item by which a task that was paused at event 17 pauses its children
    command-1-abc the inbox item of the command that its sender named `abc`, sent for the first time
    survived-3    the inbox item by which a driver that lost epoch 3 of a task reports that it is alive

An id is a place in the task, so it stays the same after a crash. All attempts of one call share its idempotency key.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final, Literal

from treadle.core.lazy_pattern import lazy_pattern

_RETRY: Final = "r"
_TRY: Final = "t"
_UNDO: Final = "-undo"
_ASK: Final = "-ask"
_SLEEP: Final = "-sleep"
_QUESTION: Final = "-q"
_VALUE: Final = "-value"
_SAID: Final = "-said"
_FINAL: Final = "-final-"
_COMMAND: Final = "command-"


def step_id(branch: int, index: int | str) -> str:
    """Return the id of a step of a task without a graph."""
    return f"s{index}b{branch}" if branch else f"s{index}"


_BRANCH: Final = lazy_pattern(r"(s[0-9.]+)b[0-9]+")


def without_branch(name: str) -> str:
    """Return the id that a step or its part would have on branch 0."""
    return _BRANCH.sub(r"\1", name, count=1) if _BRANCH.match(name) else name


def planned_step_id(branch: int, path: Sequence[int]) -> str:
    """Return the id of a step of a graph."""
    return step_id(branch, ".".join(map(str, path)))


def call_id(asked_by: str, number: int) -> str:
    """Return the id of a call in an answer to a plain step or to a step function's request."""
    return f"{asked_by}-{number}"


def asking_id(call: str) -> str:
    """Return the id of the step or request whose answer asked for a call."""
    return call.rpartition("-")[0]


def request_id(step: str, kind: Literal["model", "tool"], number: int) -> str:
    """Return the id of a step function's request, the `number`th of its step."""
    return f"{step}-{'m' if kind == 'model' else 'c'}{number}"


def base_call_id(call: str) -> str:
    """Return the id of a call in the first attempt of its step."""
    return call.partition(_RETRY)[0]


def attempt_of(call: str) -> int:
    """Return the number of the step's attempt that made a call, from 1."""
    return int(undone_call(call).partition(_RETRY)[2] or 1)


def call_id_in_attempt(base: str, attempt: int) -> str:
    """Return the id that a call has in an attempt of its step."""
    return base if attempt == 1 else f"{base}{_RETRY}{attempt}"


def repeated_call_id(call: str) -> str:
    """Return the id of the call that replaces a failed one in the next attempt of its step."""
    return call_id_in_attempt(base_call_id(call), attempt_of(call) + 1)


def undo_id(call: str) -> str:
    """Return the id of the compensation of a call."""
    return f"{call}{_UNDO}"


def is_undo(call: str) -> bool:
    """Return whether an id is that of a compensation."""
    return call.endswith(_UNDO)


def undone_call(call: str) -> str:
    """Return the id of the call that a compensation takes back. The id of a call itself is returned unchanged."""
    return call.removesuffix(_UNDO)


def stop_id(call: str) -> str:
    """Return the id of the effect that ends the task of an agent's call."""
    return f"{call}-stop"


def route_id(step: str) -> str:
    """Return the id of the effect that asks a router for the next step."""
    return f"{step}-route"


def judgement_id(call: str) -> str:
    """Return the id of the effect that judges a call, or a request to a model."""
    return f"{call}-judge"


def approval_id(call: str, number: int) -> str:
    """Return the id of a request to approve a call: the `number`th of this call, from 1."""
    return f"{call}{_ASK}{number}"


def sleep_id(sleeper: str, place: int) -> str:
    """Return the id of a sleep of a call or of a step function, at a `place` of its code, from 1."""
    return f"{sleeper}{_SLEEP}{place}"


def approved_call(request: str) -> tuple[str, int] | None:
    """Return the call and the number of a request to approve, or None for any other id."""
    call, _, number = request.rpartition(_ASK)
    return (call, int(number)) if call and number.isascii() and number.isdigit() else None


def grant_id(task: str, request: str) -> str:
    """Return the id of the approval for later calls that was given with a request of a task."""
    return f"g-{hashlib.sha256(f'{task}/{request}'.encode()).hexdigest()[:16]}"


def question_id(asker: str, number: int) -> str:
    """Return the id of a question to a person. `asker` is a call, or the step of a step function."""
    return f"{asker}{_QUESTION}{number}"


def is_question(request: str) -> bool:
    """Return whether an id is that of a question."""
    asker, _, number = request.rpartition(_QUESTION)
    return bool(asker) and number.isascii() and number.isdigit()


def release_id(request: str) -> str:
    """Return the id of the effect that releases the answer to a step's or a function's request."""
    return f"{request}-release"


def input_place(seq: int) -> str:
    """Return the id of input as guardrails judge it. `seq` is its event."""
    return f"in{seq}"


def is_input(place: str) -> bool:
    """Return whether an id is that of input, as guardrails judge it."""
    return place.startswith("in") and place[2:].isdigit()


def answer_place(request: str, attempt: int) -> str:
    """Return the id of a model's answer as guardrails judge it, by its step or request and its attempt."""
    return f"{request}{_SAID}{attempt}"


def result_place(call: str) -> str:
    """Return the id of a call's result, as guardrails judge it."""
    return f"{call}{_VALUE}"


def result_call(place: str) -> str:
    """Return the id of the call whose result has this id."""
    return place.removesuffix(_VALUE)


def final_place(step: str, digest: str) -> str:
    """Return the id of a step's answer for the task, as guardrails judge it. `digest` is the answer's."""
    return f"{step}{_FINAL}{digest[:12]}"


def content_name(place: str) -> str | None:
    """Return the name of judged content, for people, or None for any other id."""
    if is_input(place):
        return "the input"
    if is_answer(place):
        return "the answer"
    return "the result" if place.endswith(_VALUE) else None


def is_answer(place: str) -> bool:
    """Return whether an id is that of an answer, as guardrails judge it."""
    return _SAID in place or _FINAL in place


def is_final(place: str) -> bool:
    """Return whether an id is that of an answer that no model wrote, as guardrails judge it."""
    return _FINAL in place


TENANT_SEPARATOR: Final = "\x1f"
"""The separator between a tenant and its names in a store of several tenants. Names must not contain it."""


def in_tenant(tenant: str, name: str) -> str:
    """Return a name with its tenant as a prefix, so that other tenants cannot have it. The tenant "" has no prefix."""
    return f"{tenant}{TENANT_SEPARATOR}{name}" if tenant else name


def is_name(*names: str | None) -> bool:
    """Return whether ids of tasks and threads are valid names for tenants. None is ignored."""
    return not any(name is not None and TENANT_SEPARATOR in name for name in names)


def child_id(parent: str, call: str, number: int = 1) -> str:
    """Return the id of the task that performs an agent's call: the `number`th, if earlier ones failed."""
    return f"{parent}.{call}" if number == 1 else f"{parent}.{call}{_TRY}{number}"


def id_in_thread(version: int, call: str) -> str:
    """Return the id of a call for later tasks of its thread, unique in the thread."""
    return f"t{version}-{call}"


def idempotency_key(task: str, incarnation: str, call: str) -> str:
    """Return the idempotency key that all attempts of a call share. It is unique to the call."""
    return f"{task}/{incarnation}/{call}" if incarnation else f"{task}/{call}"


def child_pause_id(seq: int) -> str:
    """Return the id of the inbox item by which a task pauses a child, after its own event `seq`."""
    return f"pause-{seq}"


def survival_id(epoch: int) -> str:
    """Return the id of the inbox item by which a driver that lost an epoch reports that it is alive."""
    return f"survived-{epoch}"


def command_item_id(command_id: str, number: int = 1) -> str:
    """Return the id of the inbox item of a command that its sender named, sent for the `number`th time."""
    return f"{_COMMAND}{number}-{command_id}"


def is_of_command(item_id: str, command_id: str) -> bool:
    """Return whether an inbox item is a command of this name, sent for any time."""
    return item_id.startswith(_COMMAND) and item_id[len(_COMMAND) :].partition("-")[2] == command_id


def summary_task_id(digest: str, number: int) -> str:
    """Return the id of the task of the `number`th attempt to summarise content with this digest."""
    return f"summary-{digest}-{number}"


def imported_task_id(thread_id: str, command_id: str) -> str:
    """Return the id of the task for the messages that a named command imports into a thread."""
    named = f"{thread_id}\0{command_id}".encode()
    return f"import-{hashlib.sha256(named).hexdigest()[:32]}"
