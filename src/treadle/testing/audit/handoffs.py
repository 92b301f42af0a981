"""What must hold where a conversation moves from agent to agent: each move follows from the end of a step.

A pure function that returns violations, like those of `treadle.testing.audit.events`. It does not use the engine's
fold.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from treadle.core import events as e
from treadle.testing.audit.events import Violation


def handed_over(task: str, events: Iterable[e.Event]) -> Iterator[Violation]:
    """A conversation moves as the last step says, by a call of it that ended well, and before the next step begins."""
    moves = _Moves()
    for event in events:
        for text in moves.faults(event):
            yield Violation("handed_over", task, event.seq, text)
        moves.note(event)


class _Moves:
    """Where a conversation is, by the events so far."""

    def __init__(self) -> None:
        self._agents: list[tuple[int, str]] = []
        """the first agent, and each that it moved to, with the index of the step that ended so"""

        self._indices: dict[str, int] = {}
        self._asked: dict[int, e.NextAgent] = {}
        """what steps ended with that has not happened yet, by their indices"""

        self._happened: set[str] = set()
        """the calls that ended well"""

    def faults(self, event: e.Event) -> Iterator[str]:
        """Yield what is wrong with an event after those before it."""
        match event:
            case e.StepStarted() if self._asked:
                (asked,) = list(self._asked.values())[-1:]
                yield f"{event.step} begins before the conversation moved to {asked.agent}"
            case e.StepCompleted(next_agent=e.NextAgent() as asked):
                if event.last:
                    yield f"{event.step} answers and hands over to {asked.agent}"
                if asked.call not in self._happened:
                    yield f"{event.step} hands over by {asked.call}, which did not end well"
            case e.AgentChanged():
                asked = self._asked.get(self._indices.get(event.step, -1))
                if asked is None or (asked.agent, asked.call) != (event.agent, event.call):
                    yield f"the conversation moves to {event.agent}, and {event.step} did not end so"
                if self._agents and event.previous != self._agents[-1][1]:
                    yield f"it moves away from {event.previous}, and was with {self._agents[-1][1]}"
            case _:
                return

    def note(self, event: e.Event) -> None:
        """Take an event in."""
        match event:
            case e.TaskCreated():
                self._agents = [(0, event.agent)]
            case e.TaskForked() if event.fingerprint:
                self._agents, self._asked = [(0, event.agent)], {}
            case e.StepStarted():
                self._indices[event.step] = event.index
            case e.ToolEnded() if event.outcome == "ok":
                self._happened.add(event.call)
            case e.StepCompleted(next_agent=e.NextAgent() as asked):
                self._asked[self._indices.get(event.step, 0)] = asked
            case e.AgentChanged():
                index = self._indices.get(event.step, 0)
                self._asked.pop(index, None)
                self._agents.append((index, event.agent))
            case e.Rewound():
                self._asked = {index: asked for index, asked in self._asked.items() if index <= event.to}
                self._agents = [self._agents[0], *[item for item in self._agents[1:] if item[0] <= event.to]]
            case _:
                return
