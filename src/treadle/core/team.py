"""Which agent a task is with after a handoff, and what it keeps of the others. Plain data; `handoffs` has the rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from treadle.core.children import SpentBy
from treadle.core.data import frozen
from treadle.core.events import AgentChanged, Event, NextAgent, Rewound, StepStarted, TaskCreated, TaskForked


@frozen
class Team:
    """Where the conversation of a task is, on its present branch; a task without handoffs has none.

    It is replaced and never changed: the checkpoint of a step holds the one that an undo returns to.
    """

    agent: str
    """the agent that has the conversation"""

    handoffs: int = 0
    """how often the conversation moved so far"""

    previous: str = ""
    """the agent that it moved away from last"""

    tool: str = ""
    """the tool of that agent by which it moved"""

    since: int = 0
    """index in the conversation of the first message after that"""

    turns: Mapping[str, int] = field(default_factory=dict[str, int])
    """how many answers the models of the other agents have given"""

    next: NextAgent | None = None
    """the agent that it is to move to, since the last step said so"""


@frozen
class AgentVersion:
    """What a task keeps of an agent that the conversation moved away from.

    Args:
        fingerprint: its version.
        instructions: as they were worked out.
        spent: what it spent, calls of tools aside.
    """

    fingerprint: str
    instructions: str | None
    spent: SpentBy


class AgentTrack:
    """Tells which agent a task is with, event by event, where there is no state of it."""

    def __init__(self) -> None:
        self.agent = ""
        """the agent, after the event noted last"""

        self._indices: dict[str, int] = {}
        """the indices of steps, by their ids"""

        self._moves: list[tuple[int, str]] = []
        """the agent that the task began with, and those it moved to, each with the index of the step that ended so"""

    def note(self, event: Event) -> str:
        """Return the agent of the task's next event; events come in order, from the first on."""
        if isinstance(event, StepStarted):
            self._indices[event.step] = event.index
        elif isinstance(event, TaskCreated) or (isinstance(event, TaskForked) and event.fingerprint):
            self._moves = [(-1, event.agent)]
        elif isinstance(event, AgentChanged):
            self._moves.append((self._indices.get(event.step, 0), event.agent))
        elif isinstance(event, Rewound):
            while len(self._moves) > 1 and self._moves[-1][0] > event.to:
                self._moves.pop()
        else:
            return self.agent
        self.agent = self._moves[-1][1] if self._moves else ""
        return self.agent
