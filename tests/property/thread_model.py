"""What threads and their tasks are to say: a model of lists, written without a look at how it is done."""

from __future__ import annotations

from dataclasses import dataclass, field

Said = tuple[str, str]
"""A message: its role and its text."""


class Refused(Exception):
    """What was asked for cannot be done, and changes nothing."""


@dataclass
class ThreadTurn:
    """A task: its messages at the beginning, those shared with its parent, its own messages, and its state."""

    thread: str
    before: list[Said]
    pending: list[str]
    shared: list[Said] = field(default_factory=list)
    own: list[Said] = field(default_factory=list)
    steps: list[tuple[int, bool]] = field(default_factory=list)
    """for each step, the number of messages at its end, and whether it answered"""

    answered: bool = False
    ended: bool = False
    began: bool = False
    root: str = ""
    """the thread of the task at the root of what it shares; its own unless it is a fork"""

    made: tuple[list[Said], list[str], bool] = field(default_factory=lambda: ([], [], False))
    """how it was made: what it began with then, what it was to read, whether it had answered"""

    @property
    def conversation(self) -> list[Said]:
        return [*self.before, *self.shared, *self.own]


class ThreadModel:
    """Tasks by name, and for each thread the tasks that were finalized in it, with the messages of each until then."""

    def __init__(self) -> None:
        self.turns: dict[str, ThreadTurn] = {}
        self.threads: dict[str, list[tuple[str, ThreadTurn, list[Said]]]] = {}

    def words(self, thread: str) -> list[Said]:
        messages: list[Said] = []
        for number, (_, turn, own) in enumerate(self.threads.get(thread, [])):
            if number == 0:
                messages += (turn.before if turn.root not in ("", thread) else []) + turn.shared
            messages += own
        return messages

    def create(self, name: str, thread: str, text: str) -> None:
        before = self.words(thread)
        self.turns[name] = ThreadTurn(thread, before, [text], made=(before, [text], False))

    def step(self, name: str) -> None:
        turn = self.turns[name]
        if turn.answered:
            raise Refused
        if not turn.began and not turn.root:
            turn.before = self.words(turn.thread)
        turn.began = True
        turn.own += [("user", text) for text in turn.pending]
        turn.pending = []
        turn.answered = turn.conversation[-1][0] == "tool"
        turn.own += [reply(turn.conversation)] if turn.answered else [("assistant", "look"), ("tool", "seen")]
        turn.steps.append((len(turn.own), turn.answered))

    def resume(self, name: str) -> None:
        while not self.turns[name].answered:
            self.step(name)
        self.finalize(name)

    def finalize(self, name: str) -> None:
        turn = self.turns[name]
        if not turn.answered:
            raise Refused
        if not turn.ended:
            turn.ended = True
            self.threads.setdefault(turn.thread, []).append((name, turn, list(turn.own)))

    def undo(self, name: str) -> None:
        turn = self.turns[name]
        if not turn.steps or (turn.ended and self.threads[turn.thread][-1][0] != name):
            raise Refused
        if turn.ended:
            self.threads[turn.thread].pop()
        turn.steps.pop()
        length, answered = turn.steps[-1] if turn.steps else (0, turn.made[2])
        turn.own, turn.answered, turn.ended = turn.own[:length], answered, False
        turn.pending = [] if turn.steps else list(turn.made[1])

    def fork(self, name: str, fork: str, thread: str, text: str | None, kept: int) -> None:
        """Fork a task after so many of its own steps; where it has none, as it was made."""
        parent = self.turns[name]
        before, pending, answered = parent.made
        shared = parent.shared
        if kept:
            length, answered = parent.steps[kept - 1]
            before, pending = parent.before, []
            shared = [*parent.shared, *parent.own[:length]]
        pending, answered = [*pending, *([text] if text else [])], answered and not text
        root = parent.root or parent.thread
        self.turns[fork] = ThreadTurn(thread, before, list(pending), shared, answered=answered, root=root)
        self.turns[fork].made = (before, pending, answered)

    def delete(self, name: str) -> None:
        del self.turns[name]

    def delete_thread(self, thread: str) -> None:
        self.turns = {name: turn for name, turn in self.turns.items() if turn.thread != thread}
        self.threads.pop(thread, None)

    def old_threads(self) -> list[str]:
        """The threads whose tasks have all ended."""
        alive = {turn.thread for turn in self.turns.values() if not turn.ended}
        return sorted({turn.thread for turn in self.turns.values()} - alive)

    def old_tasks(self) -> set[str]:
        return {name for name, turn in self.turns.items() if turn.thread in self.old_threads()}

    def prune(self) -> None:
        for thread in self.old_threads():
            self.delete_thread(thread)


def reply(conversation: list[Said]) -> Said:
    """What is answered: it tells what was seen of the conversation."""
    return (
        "assistant",
        f"{len(conversation)} messages since {conversation[0][1]!r}, the last of {hash_of(conversation)}",
    )


def hash_of(conversation: list[Said]) -> int:
    """A number that another conversation is unlikely to have."""
    number = 7
    for role, text in conversation:
        for byte in f"{role}:{text}".encode():
            number = (number * 31 + byte) % 1_000_003
    return number
