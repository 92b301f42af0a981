"""Invariants of handoffs: each move of a conversation to another agent follows from the end of a step.

A pure function that returns violations, like those of `treadle.testing.audit.events`. It does not use the engine's
fold.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from treadle.core import events as e
from treadle.testing.audit.events import Violation


def handed_over(task: str, events: Iterable[e.Event]) -> Iterator[Violation]:
    """Check that a conversation moves by a successful call of its last step, before the next step begins."""
    moves = _Moves()
    for event in events:
        for text in moves.faults(event):
            yield Violation("handed_over", task, event.seq, text)
        moves.note(event)


class _Moves:
    """The agent of a conversation, from the events so far."""

    def __init__(self) -> None:
        self._agents: list[tuple[int, str]] = []
        """the first agent, and each later one with the index of the step that handed over to it"""

        self._indices: dict[str, int] = {}
        self._pending: dict[int, e.NextAgent] = {}
        """moves at the ends of steps that have not happened yet, by step index"""

        self._happened: set[str] = set()
        """the calls that succeeded"""

    def faults(self, event: e.Event) -> Iterator[str]:
        """Yield the problems of an event in view of the earlier ones."""
        match event:
            case e.StepStarted() if self._pending:
                (handoff,) = list(self._pending.values())[-1:]
                yield f"{event.step} begins before the conversation moved to {handoff.agent}"
            case e.StepCompleted(next_agent=e.NextAgent() as handoff):
                if event.last:
                    yield f"{event.step} answers and hands over to {handoff.agent}"
                if handoff.call not in self._happened:
                    yield f"{event.step} hands over by {handoff.call}, which did not end well"
            case e.AgentChanged():
                handoff = self._pending.get(self._indices.get(event.step, -1))
                if handoff is None or (handoff.agent, handoff.call) != (event.agent, event.call):
                    yield f"the conversation moves to {event.agent}, and {event.step} did not end so"
                if self._agents and event.previous != self._agents[-1][1]:
                    yield f"it moves away from {event.previous}, and was with {self._agents[-1][1]}"
            case _:
                return

    def note(self, event: e.Event) -> None:
        """Record an event."""
        match event:
            case e.TaskCreated():
                self._agents = [(0, event.agent)]
            case e.TaskForked() if event.fingerprint:
                self._agents, self._pending = [(0, event.agent)], {}
            case e.StepStarted():
                self._indices[event.step] = event.index
            case e.ToolEnded() if event.outcome == "ok":
                self._happened.add(event.call)
            case e.StepCompleted(next_agent=e.NextAgent() as handoff):
                self._pending[self._indices.get(event.step, 0)] = handoff
            case e.AgentChanged():
                index = self._indices.get(event.step, 0)
                self._pending.pop(index, None)
                self._agents.append((index, event.agent))
            case e.Rewound():
                self._pending = {
                    index: handoff for index, handoff in self._pending.items() if index <= event.to
                }
                self._agents = [self._agents[0], *[item for item in self._agents[1:] if item[0] <= event.to]]
            case _:
                return
