"""Sleeps of tools and step functions, and how events change them. Rules of `fold`.

A sleeping call stops, and is proposed again when its time has come. Its tool then starts from its top, and skips the
finished sleeps. A sleeping step function continues, or is entered again, with the same effect.
"""

from __future__ import annotations

from treadle.core import events as e
from treadle.core.events import IllegalEvent
from treadle.core.graph import StepNode
from treadle.core.state import TaskState, open_call_of, running_node
from treadle.core.steps import CallState, Sleep


def begin(state: TaskState, event: e.SleepStarted) -> None:
    """Record that a tool or a step function sleeps."""
    sleep = Sleep(event.step, event.call, event.until, event.place)
    if event.call:
        call = open_call_of(state, event)
        may_sleep = call.status == "begun" and call.effect != "write" and call.child is None
        if not may_sleep or event.place <= call.slept:
            raise _illegal(state, event, call.status)
        # The tool may have had effects before it slept, without those that follow.
        call.status, call.is_halfway = "sleeping", call.is_halfway or call.effect != "read"
        call.attempts_that_asked += 1
    else:
        node = running_node(state, event)
        if event.place in node.slept or event.place in node.sleeps:
            raise _illegal(state, event, "over, or not over yet")
        node.sleeps[event.place] = sleep
    state.sleeps[sleep.id] = sleep


def end(state: TaskState, event: e.SleepEnded) -> None:
    """Record that a sleep is over. Its time must have come."""
    sleep = state.sleeps.pop(Sleep(event.step, event.call, 0, event.place).id, None)
    if sleep is None:
        raise _illegal(state, event, "not asleep")
    if event.time < sleep.due:
        raise IllegalEvent(f"task {state.task_id}: the sleep of {event.call or event.step} is not over")
    if event.call:
        call = state.open_call(event.call)
        assert call is not None, "the sleep of a call is dropped at its end"
        event.tool_name = call.name
        call.status, call.slept = "proposed", event.place
    else:
        node = running_node(state, event)
        del node.sleeps[event.place]
        node.slept.add(event.place)


def close_call(state: TaskState, call: CallState) -> None:
    """Drop the sleep of a call that has ended."""
    for sleep in [sleep for sleep in state.sleeps.values() if sleep.call == call.id]:
        del state.sleeps[sleep.id]


def close_step(state: TaskState, node: StepNode) -> None:
    """Drop the sleeps of a stopped step function, which sleeps again if it is resumed."""
    for sleep in node.sleeps.values():
        state.sleeps.pop(sleep.id, None)
    node.sleeps.clear()


def forget(state: TaskState) -> None:
    """End all sleeps. A fork sleeps again, since its tools start under its own keys."""
    for step in state.under_way():
        for call in step.open.values():
            if call.status == "sleeping":
                call.status = "proposed"
            call.slept = 0
    for node in state.running_nodes():
        node.sleeps.clear()
    state.sleeps.clear()


def _illegal(state: TaskState, event: e.SleepStarted | e.SleepEnded, status: str) -> IllegalEvent:
    return IllegalEvent(
        f"task {state.task_id}: {event.kind} of {event.call or event.step}, which is {status}"
    )
