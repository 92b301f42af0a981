"""One trial: run the golden task until it is killed, bring it to its end by the command line alone, audit both."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.crash import golden
from tests.crash.forks import ForkServer
from treadle import Runner
from treadle.core import events as e
from treadle.errors import TaskNotFound
from treadle.testing.crash import name_of
from treadle.testing.ledger import Entry, Ledger

KILLED = -9
COMPLETED, WAITING = 0, 4
PATIENCE = 12
"""How many commands a recovery may take; the longest needs seven."""

READS, IDEMPOTENT, WRITES = {"look"}, {"book"}, {"pay", "undo pay", "undo book"}


@dataclass
class Trial:
    """A folder with all that a trial leaves behind, and what was seen of it."""

    place: Path
    variant: str
    server: ForkServer
    commands: list[str] = field(default_factory=list)
    pending: set[str] = field(default_factory=set)
    undo_left: list[set[str]] = field(default_factory=list)

    @property
    def store(self) -> str:
        return str(self.place / "journal.db")

    @property
    def ledger(self) -> Ledger:
        return Ledger(self.place / "ledger")

    @property
    def places(self) -> list[str]:
        return (self.place / "places").read_text().splitlines()

    @property
    def output(self) -> str:
        return (self.place / "output").read_text()

    @property
    def acknowledged(self) -> list[list[Any]]:
        path = self.place / "acks"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def job(self, name: str, *args: str, at: str | None = None) -> int:
        files = {"GOLDEN_LEDGER": "ledger", "GOLDEN_ACKS": "acks", "GOLDEN_PLACES": "places"}
        env = {key: str(self.place / file) for key, file in files.items()}
        return self.server.run(name, *args, output=self.place / "output", env=env, at=at)

    def script(self, at: str | None) -> int:
        return self.job("script", self.store, self.variant, at=at)

    # -------------------------------------------------------------------------------------- recovery

    def command(self, *argv: str) -> int:
        """Call the command line with the task and its store."""
        self.commands.append(argv[0])
        verb, *rest = argv
        return self.job("cli", verb, golden.TASK, *rest, "--store", self.store, "--json")

    def with_agent(self, verb: str) -> int:
        return self.command(verb, "--agent", f"tests.crash.golden:{self.variant}")

    def recover(self) -> dict[str, Any]:
        """Bring the task to its end as a person would: resume; finish an undo it names; settle what it asks."""
        for _ in range(PATIENCE):
            status = self.with_agent("resume")
            said = json.loads(self.stdout())
            if status == COMPLETED:
                return said
            if status == WAITING:
                self.settle(said["pending"])
            elif said["error"]["type"] == "UndoUnfinished":
                self.finish_undo()
            else:
                raise AssertionError(f"resume ended with {status}: {self.output}")
        raise AssertionError(f"not at its end after {self.commands}: {self.output}")

    def stdout(self) -> str:
        return self.output

    def finish_undo(self) -> None:
        status = self.with_agent("undo")
        if status != COMPLETED:
            assert status == WAITING, self.output
            report = json.loads(self.stdout())
            self.undo_left.append({call["call"] for call in report["calls"] if call["verdict"] == "unknown"})
            self.command("show")
            self.settle(json.loads(self.stdout())["pending"])

    def settle(self, pending: Sequence[dict[str, Any]]) -> None:
        """Say of each call what the ledger knows."""
        assert pending, self.output
        for request in pending:
            asked = request["request_id"]
            self.pending.add(asked)
            happened = self.ledger.happened(f"{golden.TASK}/{asked}")
            output = json.dumps(golden.OUTPUTS[request["tool"]])
            verdict = ["--happened", output] if happened else ["--not-happened"]
            assert self.command("settle", asked, *verdict) == COMPLETED, self.output


# ------------------------------------------------------------------------------------------------ audit


@dataclass
class Journal:
    """A task's journal as the public API shows it; no events: there is no such task."""

    events: list[e.Event]
    epochs: list[int]
    thread: tuple[Any, ...] = ()

    @classmethod
    def read(cls, store: str) -> Journal:
        return asyncio.run(cls._read(store))

    @classmethod
    async def _read(cls, store: str) -> Journal:
        async with Runner(store) as runner:
            try:
                await runner.verify(golden.TASK)
            except TaskNotFound:
                return cls([], [])
            handle = runner.handle(golden.TASK)
            events = [event async for event in handle.events(deltas=False)]
            records = await runner.store.read(golden.TASK)
            thread = await runner.get_thread(golden.THREAD)
        assert all(isinstance(event, e.Event) for event in events)
        return cls(events, [record.epoch for record in records], thread)  # type: ignore[arg-type]

    def open_calls(self) -> dict[str, e.ToolStarted]:
        """Return the calls, compensations too, that have begun and not ended."""
        opened: dict[str, e.ToolStarted] = {}
        for event in self.events:
            if isinstance(event, e.ToolStarted):
                opened[event.call] = event
            elif isinstance(event, (e.ToolEnded, e.ToolStopped)):
                opened.pop(event.call, None)
        return opened

    def ended(self) -> set[str]:
        return {event.call for event in self.events if isinstance(event, e.ToolEnded)}

    def of(self, kind: type[e.Event]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


def audit(trial: Trial, killed: list[Journal], entries: list[int], end: Journal) -> list[str]:
    """Return every broken promise, by its name.

    Args:
        trial: the trial, at its end.
        killed: the journal as each killed process left it.
        entries: how many entries the ledger had then.
        end: the journal at the task's end.
    """
    ledger = trial.ledger.entries()
    broken = [*_lost(trial, killed[0], end), *_numbering(end), *_ends(end), *_effects(ledger, end)]
    for journal, count in zip(killed, entries, strict=True):
        broken += _repeated(journal, ledger[count:], end)
        broken += _prefix(journal, end)
    broken += _unknown(trial, killed, end)
    broken += [f"history: {note.text} ({note.call})" for note in ledger if note.tool == "ill-formed"]
    return broken


def _lost(trial: Trial, killed: Journal, end: Journal) -> list[str]:
    """No acknowledged event is lost, and what a verb returned is there."""
    there = {event.seq: name_of(event) for event in killed.events}
    broken = []
    returned: Counter[str] = Counter()
    for what, name in trial.acknowledged:
        if what == "returned":
            returned[name] += 1
        elif there.get(what) != name:
            broken.append(f"lost: event {what} {name} was acknowledged, the journal has {there.get(what)}")
    kinds = Counter(event.kind for event in killed.events)
    for verb, kind in (("create_task", "task_created"), ("undo_step", "rewound"), ("resume", "task_ended")):
        if kinds[kind] < returned[verb]:
            broken.append(f"lost: {verb} returned and there is no {kind}")
    if kinds["step_completed"] < returned["run_step"]:
        broken.append("lost: a step was acknowledged as completed")
    if returned["send"] and len(end.of(e.InputReceived)) != 1:
        broken.append("lost: the message was acknowledged and did not arrive once")
    return broken


def _prefix(killed: Journal, end: Journal) -> list[str]:
    same = end.events[: len(killed.events)] == killed.events
    return [] if same else ["history: what was written before the crash was changed"]


def _numbering(end: Journal) -> list[str]:
    broken = []
    if [event.seq for event in end.events] != list(range(1, len(end.events) + 1)):
        broken.append("numbering: the events have gaps")
    if end.epochs != sorted(end.epochs):
        broken.append("numbering: an older owner wrote after a newer one")
    return broken


def _ends(end: Journal) -> list[str]:
    """Each call has one end, the task has one end, its thread has it once."""
    ends = Counter(event.call for event in end.of(e.ToolEnded))
    asked = {call.id for event in end.of(e.ModelReturned) for call in event.message.tool_calls}
    broken = [f"ends: {call} has {count} ends" for call, count in ends.items() if count != 1]
    broken += [f"ends: {call} has none" for call in asked - set(ends)]
    if [event.state for event in end.of(e.TaskEnded)] != ["completed"]:
        broken.append(f"ends: the task ended as {[event.state for event in end.of(e.TaskEnded)]}")
    if [message.text for message in end.thread].count("go") != 1:
        broken.append("ends: the thread does not hold the task once")
    return broken


def _effects(ledger: list[Entry], end: Journal) -> list[str]:
    """A writing tool starts once, plus once for each verdict that it had not happened; its effect happens once."""
    starts = Counter((entry.tool, entry.call) for entry in ledger if entry.kind == "start")
    done = Counter((entry.tool, entry.call) for entry in ledger if entry.kind == "done")
    keys: dict[str, set[str]] = {}
    for entry in ledger:
        if entry.kind == "start":
            keys.setdefault(entry.call, set()).add(entry.key)
    again = Counter(
        event.call for event in end.of(e.OutcomeSettled) if event.verdict == "not_happened"
    )
    broken = []
    for (name, call), count in starts.items():
        if name in WRITES and count > 1 + again[call]:
            broken.append(f"effects: {name} {call} was started {count} times")
        if name in WRITES and done[name, call] > 1:
            broken.append(f"effects: {name} {call} happened {done[name, call]} times")
        if len(keys[call]) != 1 or keys[call] != {f"{golden.TASK}/{call}"}:
            broken.append(f"effects: {call} was given the keys {keys[call]}")
    begun = {event.call for event in end.of(e.ToolStarted)}
    broken += [f"effects: {call} ran without a begin" for _, call in starts if call not in begun]
    compensated = {event.call for event in end.of(e.ToolEnded) if event.outcome == "ok"}
    broken += [
        f"effects: {call} is journalled as done and did not happen"
        for call in compensated & begun
        if not any(done[name, call] for name in (*OUTPUT_TOOLS, "undo pay", "undo book"))
    ]
    return broken


OUTPUT_TOOLS = tuple(golden.OUTPUTS)


def _repeated(killed: Journal, later: list[Entry], end: Journal) -> list[str]:
    """Nothing that had ended when the process died is started again; no answer is asked for again."""
    ended = killed.ended()
    answered = {event.step for event in killed.of(e.ModelReturned)}
    broken = [
        f"repeated: {entry.tool} {entry.call} had ended before the crash"
        for entry in later
        if entry.kind == "start" and entry.tool != "reconcile" and entry.call in ended
    ]
    broken += [
        f"repeated: the model had answered {entry.call} before the crash"
        for entry in later
        if entry.tool == "asked" and entry.call in answered
    ]
    steps = Counter(event.step for event in end.of(e.StepCompleted))
    return broken + [f"repeated: {step} completed {n} times" for step, n in steps.items() if n != 1]


def _unknown(trial: Trial, killed: list[Journal], end: Journal) -> list[str]:
    """An outcome is reported unknown exactly where a writing call has a begin and no end."""
    left: Counter[str] = Counter()
    for journal in killed:
        left.update(call for call, begin in journal.open_calls().items() if begin.effect == "write")
    settled = Counter(event.call for event in end.of(e.OutcomeSettled))
    stopped = Counter(
        event.call
        for event in end.of(e.ToolStopped)
        if event.call in left or event.call.endswith("-undo") or event.call[-1] == "2"
    )
    broken = []
    if settled != left:
        broken.append(f"unknown: {dict(left)} were left open, {dict(settled)} were settled")
    if stopped != left:
        broken.append(f"unknown: {dict(left)} were left open, {dict(stopped)} were marked")
    by_person = {event.call for event in end.of(e.OutcomeSettled) if event.by != "reconcile"}
    if by_person != trial.pending:
        broken.append(f"unknown: {by_person} were settled by hand, {trial.pending} were asked for")
    expected = set() if trial.variant.endswith("reconcile") else set(left)
    if trial.pending != expected | {call for call in left if call.endswith("-undo")}:
        broken.append(f"unknown: {dict(left)} were left open, a person was asked about {trial.pending}")
    return broken


def expected_answer(end: Journal) -> str:
    """What the task answers whatever happened to it: the tools' results and the message, if it ever arrived."""
    told = [golden.FEEDBACK] if end.of(e.InputReceived) else []
    return "; ".join([*golden.OUTPUTS.values(), *told])
