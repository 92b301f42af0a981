"""The agent of a task after handoffs, and its records of former agents. Plain data; `handoffs` has the rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from treadle.core.children import SpentBy
from treadle.core.data import frozen
from treadle.core.events import AgentChanged, Event, NextAgent, Rewound, StepStarted, TaskCreated, TaskForked


@frozen
class Team:
    """The handoffs of a task on its present branch. A task without handoffs has none.

    It is replaced, never changed, because the checkpoint of a step keeps the one that an undo restores.
    """

    agent: str
    """the present agent of the conversation"""

    handoffs: int = 0
    """the number of handoffs so far"""

    previous: str = ""
    """the agent before the last handoff"""

    tool: str = ""
    """that agent's tool for the handoff"""

    since: int = 0
    """index in the conversation of the first message after it"""

    turns: Mapping[str, int] = field(default_factory=dict[str, int])
    """the number of answers from the models of the other agents"""

    next: NextAgent | None = None
    """the agent of the handoff that the last step requested"""


@frozen
class AgentVersion:
    """A task's record of an agent that handed its conversation over.

    Args:
        fingerprint: its version.
        instructions: its computed instructions.
        spent: its spending, without tool calls.
    """

    fingerprint: str
    instructions: str | None
    spent: SpentBy


class AgentTrack:
    """Tracks the agent of a task event by event, for readers without its state."""

    def __init__(self) -> None:
        self.agent = ""
        """the agent, after the event noted last"""

        self._indices: dict[str, int] = {}
        """the indices of steps, by their ids"""

        self._moves: list[tuple[int, str]] = []
        """the first agent and those after each handoff, each with the index of the step that handed over"""

    def note(self, event: Event) -> str:
        """Return the agent of the task's next event. Pass all events in order, from the first on."""
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
