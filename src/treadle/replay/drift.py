"""Differences between a replayed task and its recording, in requests, calls and results."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import zip_longest
from typing import Any, Literal, cast

from treadle.agents.agent import Agent
from treadle.core.data import frozen
from treadle.core.events import StepCompleted
from treadle.core.messages import Json
from treadle.core.observation import as_text
from treadle.replay.trace import CallTrace, RequestTrace, StepTrace, TaskTrace

DriftKind = Literal["agent", "instructions", "tools", "request", "call", "order", "result", "step", "end"]


@frozen
class Drift:
    """One difference between a replay and its recording.

    Args:
        kind: `agent`, `instructions`, `tools`, `request`, `call`, `order`, `result`, `step` or `end`. `agent` is about
            the model, worker, output type or settings. `tools` is about names, descriptions or schemas. `call` is about
            its name or arguments. `order` is that of calls, and `result` the text for the model. `end` is that of the
            task.
        where: the first request, step or call that differs.
        what: the part that differs.
        recorded: the recorded value; None if there was none.
        now: the current value; None if there is none.
    """

    kind: DriftKind
    where: str
    what: str
    recorded: Json
    now: Json

    def __str__(self) -> str:
        return f"- {self.where}: {self.what}\n    recorded: {_shown(self.recorded)}\n    now:      {_shown(self.now)}"


def _shown(value: Json) -> str:
    if value is None:
        return "(nothing)"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)
    return text if len(text) <= 2_000 else f"{text[:2_000]}…"


def compared(
    then: TaskTrace,
    now: TaskTrace,
    declared_then: dict[str, Any] | None,
    declared_now: dict[str, Any],
    agent: Agent[Any],
) -> list[Drift]:
    """Return the differences, first in the parts of all requests, then by step up to the first that diverged."""
    all_drifts = list(_of_requests(then, now, declared_then, declared_now, agent))
    steps_then, steps_now = list(then.steps.values()), list(now.steps.values())
    for number, (step, other) in enumerate(zip_longest(steps_then, steps_now), 1):
        drifts = list(_of_step(step, other, number))
        all_drifts += drifts
        if any(drift.kind in ("call", "order", "request", "step") for drift in drifts):
            return all_drifts  # later differences follow from these
    if then.end is not None and then.end.state != "cancelled":  # a replay cannot repeat a cancel
        all_drifts += _of_end(then, now)
    return all_drifts


# -------------------------------------------------------------------------------------- parts of all requests


def _of_requests(
    then: TaskTrace,
    now: TaskTrace,
    declared_then: dict[str, Any] | None,
    declared: dict[str, Any],
    agent: Agent[Any],
) -> Iterator[Drift]:
    for name in dict.fromkeys([*then.instructions, *now.instructions]):
        before, after = then.instructions.get(name, ""), now.instructions.get(name, "")
        if before != after:
            whose = "the instructions" if name == agent.name else f"the instructions of {name}"
            yield Drift("instructions", "request 1", whose, before, after)
    if declared_then is None:
        # With the recorded instructions, an otherwise unchanged agent has the recorded fingerprint.
        is_same = then.fingerprint in ("", declared["fingerprint"])
        if (
            not is_same
            and agent.replace(instructions=then.instructions.get(agent.name, "")).fingerprint
            != then.fingerprint
        ):
            difference = (
                "more than its instructions changed before this recording, "
                "which does not contain the other changes"
            )
            yield Drift("agent", "request 1", difference, then.fingerprint, declared["fingerprint"])
        return
    for name in ("model", "worker", "output", "settings"):
        for path, old, new in _differences(declared_then[name], declared[name], name):
            yield Drift("agent", "request 1", path, old, new)
    for path, old, new in _differences(declared_then["tools"], declared["tools"], "tools"):
        yield Drift("tools", "request 1", path, old, new)


def _differences(old: Json, new: Json, path: str) -> Iterator[tuple[str, Json, Json]]:
    """Yield the innermost differences of two JSON values, with their paths."""
    if isinstance(old, dict) and isinstance(new, dict):
        before, after = cast("dict[str, Json]", old), cast("dict[str, Json]", new)
        for name in dict.fromkeys([*before, *after]):
            yield from _differences(before.get(name), after.get(name), f"{path}.{name}")
    elif old != new:
        yield path, old, new


# -------------------------------------------------------------------------------------------- step by step


def _of_step(then: StepTrace | None, now: StepTrace | None, number: int) -> Iterator[Drift]:
    where = f"step {number}"
    if then is None or now is None:
        step = cast("StepTrace", then or now)
        calls = "; ".join([call.text for call in step.calls.values()]) or "an answer"
        difference = "a step that was not recorded" if then is None else "a step that does not come any more"
        yield Drift(
            "step", where, difference, None if then is None else calls, None if now is None else calls
        )
        return
    yield from _of_requests_of_step(list(then.requests.values()), list(now.requests.values()), where)
    yield from _of_calls(list(then.calls.values()), list(now.calls.values()), where)
    if then.end is not None and (now.end is None or then.end.kind != now.end.kind):
        reason = getattr(getattr(now.end, "error", None), "message", None)
        kind = now.end.kind if now.end is not None else None
        yield Drift(
            "step", where, "how it ended", then.end.kind, kind if reason is None else f"{kind}: {reason}"
        )
    elif then.end is not None and now.end is not None:
        for name in ("output", "last", "next", "changes"):
            old, new = _plain(getattr(then.end, name, None)), _plain(getattr(now.end, name, None))
            if old != new:
                yield Drift("step", where, f"its {name}", old, new)
        agents = [
            end.next_agent.agent if end.next_agent is not None else None for end in _completed(then, now)
        ]
        if agents and agents[0] != agents[1]:
            yield Drift("step", where, "the agent that goes on", *agents)


def _completed(then: StepTrace, now: StepTrace) -> list[StepCompleted]:
    """Return the ends of two steps if both completed, else none."""
    ends = [end for end in (then.end, now.end) if isinstance(end, StepCompleted)]
    return ends if len(ends) == 2 else []


def _of_requests_of_step(then: list[RequestTrace], now: list[RequestTrace], where: str) -> Iterator[Drift]:
    for number, (old, new) in enumerate(zip_longest(then, now), 1):
        label = f"{where}, request {number}"
        if old is None or new is None:
            difference = (
                "a request that was not recorded" if old is None else "a request that is not made any more"
            )
            yield Drift("request", label, difference, _text_of_request(old), _text_of_request(new))
            return
        for name in ("final", "offered", "instructions", "tools", "messages"):
            before, after = _plain(getattr(old, name)), _plain(getattr(new, name))
            if before != after:
                yield Drift("request", label, f"its {_NAMES[name]}", before, after)


_NAMES = {
    "final": "being a last one without tools",
    "offered": "tools offered",
    "instructions": "instructions",
    "tools": "tools",
    "messages": "messages",
}


def _text_of_request(request: RequestTrace | None) -> Json:
    return None if request is None else request.messages or "the conversation so far"


def _of_calls(then: list[CallTrace], now: list[CallTrace], where: str) -> Iterator[Drift]:
    texts, texts_now = [call.text for call in then], [call.text for call in now]
    if texts != texts_now and sorted(texts) == sorted(texts_now):
        yield Drift("order", where, "the order of its calls", cast("Json", texts), cast("Json", texts_now))
        return
    for number, (old, new) in enumerate(zip_longest(then, now), 1):
        label = f"{where}, call {number}"
        if old is None or new is None or old.text != new.text:
            before, after = old.text if old is not None else None, new.text if new is not None else None
            yield Drift("call", label, _subject_of(old, new), before, after)
            return
        if old.end is not None and (old.seen, _ran(old)) != (new.seen, _ran(new)):
            yield Drift("result", label, f"the result of {old.text} for the model", old.seen, new.seen)
        elif old.end is not None and new.end is not None and old.end.changes != new.end.changes:
            before, after = _plain(old.end.changes), _plain(new.end.changes)
            yield Drift("result", label, f"the changes of {old.text} in the state", before, after)


def _subject_of(old: CallTrace | None, new: CallTrace | None) -> str:
    if old is None:
        return "a call that was not recorded"
    if new is None:
        return "a call that is not made any more"
    return "its arguments" if old.name == new.name else "which tool is called"


def _ran(call: CallTrace) -> str:
    """Return whether a call succeeded, failed, or was never begun."""
    outcome = call.end.outcome if call.end is not None else ""
    return outcome if outcome in ("ok", "invalid", "denied") else "failed"


def _of_end(then: TaskTrace, now: TaskTrace) -> Iterator[Drift]:
    assert then.end is not None
    if now.end is None:
        yield Drift("end", "the end", "the task did not end", then.end.state, None)
        return
    if then.end.state != now.end.state:
        reason = now.end.error.message if now.end.error is not None else ""
        yield Drift("end", "the end", "its state", then.end.state, f"{now.end.state} {reason}".strip())
    elif then.end.output != now.end.output:
        yield Drift("end", "the end", "the answer", as_text(then.end.output), as_text(now.end.output))


def _plain(value: Any) -> Json:
    from pydantic_core import to_jsonable_python

    return to_jsonable_python(value, fallback=repr)
