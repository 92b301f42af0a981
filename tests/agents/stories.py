"""Tasks as short lists of events, and the decisions that follow."""

from typing import Any

from treadle.agents.decide import function_calling, lifecycle
from treadle.agents.decide.rules import Rules
from treadle.core import events as e
from treadle.core.effects import Decision
from treadle.core.messages import Message, Text, ToolCall
from treadle.core.model import Finish, Usage
from treadle.core.model_answer import with_places
from treadle.core.rules.fold import apply, fold
from treadle.core.state import TaskState, start
from treadle.core.tools import ToolSpec
from treadle.policy.limits import Limits

DOWN = e.Failure("model", "server", "down")


SPECS = {
    spec.name: spec
    for spec in (
        ToolSpec(name="look", read_only=True),
        ToolSpec(name="put", idempotent=True),
        ToolSpec(name="save"),
        ToolSpec(name="book", undoable=True),
        ToolSpec(name="pay", reconcilable=True),
        ToolSpec(name="reply", read_only=True, return_direct=True),
    )
}
CREATED = e.TaskCreated("math", (Text("go"),), "talk")


def rules(limits: Limits | None = None, **fields: Any) -> Rules:
    return Rules("m", SPECS, limits or Limits(), **fields)


def numbered(*events: Any) -> list[e.Event]:
    """Events in a row; a list among them is spread."""
    flat: list[e.Event] = []
    for event in events:
        flat += event if isinstance(event, list) else [event]
    for seq, event in enumerate(flat, 1):
        event.seq = event.time = seq
    return flat


def state_after(*events: Any) -> TaskState:
    return fold(start("t"), numbered(e.TaskCreated("math", (Text("go"),), "talk"), *events))


def decided(state: TaskState, by: Rules | None = None, *, finalize: bool = True) -> Decision:
    return lifecycle.decide(state, by or rules(), function_calling.decide, finalize=finalize)


def recorded(state: TaskState, by: Rules | None = None) -> Any:
    """Return the event that is decided."""
    decision = decided(state, by)
    assert isinstance(decision, e.Event), decision
    return decision


def follow(
    state: TaskState, by: Rules | None = None, *, finalize: bool = True
) -> tuple[list[e.Event], Decision]:
    """Record the decided events until the decision is no event; return the events and that decision."""
    written: list[e.Event] = []
    while True:
        decision = decided(state, by, finalize=finalize)
        if not isinstance(decision, e.Event):
            return written, decision
        decision.seq, decision.time = state.seq + 1, state.time + 1
        apply(state, decision)
        written.append(decision)
        assert len(written) < 50, written


def kinds(events: list[e.Event]) -> list[str]:
    return [event.kind for event in events]


def step(index: int = 1, attempt: int = 1) -> list[e.Event]:
    """Return the events of a step that has asked its model."""
    name = f"s{index}"
    return [e.StepStarted(name, index, attempt), e.ModelStarted(name, "m")]


def answered(
    *calls: str, text: str = "", index: int = 1, finish: Finish | None = None, **more: Any
) -> e.Event:
    """Return an answer of the model: text, or calls by the names of their tools."""
    parts = [Text(text)] if text or not calls else []
    message = Message("assistant", (*parts, *(ToolCall("", name, {"n": 1}) for name in calls)))
    how: Finish = finish or ("tool_calls" if calls else "stop")
    return e.ModelReturned(f"s{index}", with_places(message, f"s{index}", how), how, Usage(5, 5), **more)


def began(place: int, index: int = 1, attempt: int = 1, name: str = "save") -> e.Event:
    spec = SPECS[name]
    return e.ToolStarted(f"s{index}", f"s{index}-{place}", spec.effect, attempt, spec.undoable)


def ended(place: int, outcome: e.Outcome = "ok", index: int = 1, output: Any = "done") -> e.Event:
    call = f"s{index}-{place}"
    if outcome == "ok":
        return e.ToolEnded(f"s{index}", call, "ok", output)
    return e.ToolEnded(f"s{index}", call, outcome, error=e.Failure("tool", outcome, f"it is {outcome}", call))


def ran(*names: str, index: int = 1, outcome: e.Outcome = "ok") -> list[e.Event]:
    """Return the events of a step whose model called these tools, and whose calls have ended."""
    written = [*step(index), answered(*names, index=index)]
    for place, name in enumerate(names):
        written += [began(place, index, name=name), ended(place, outcome, index)]
    return written


def lost(place: int = 0, name: str = "save", reason: e.StopReason = "crash") -> list[e.Event]:
    """Return the events of a call that began and was cut off."""
    return [began(place, name=name), e.ToolStopped("s1", f"s1-{place}", reason)]


def wanted(decision: Any) -> list[str]:
    assert isinstance(decision, tuple), decision
    return [f"{type(effect).__name__} {effect.id}" for effect in decision]


def undo(*calls: str, to: int = 0, forced: bool = False) -> e.Event:
    return e.UndoRequested(to, ("s1",), calls, forced)


BOOKED = [step(), answered("book", "book"), began(0, name="book"), ended(0), began(1, name="book"), ended(1)]
