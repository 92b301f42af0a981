"""What must hold after a kill: the journal, the ledger of effects and what was acknowledged have to agree.

`treadle.testing.audit` checks a journal alone; the checks here need more than one witness.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tests.crash import golden
from treadle import Runner
from treadle.core import events as e
from treadle.core.tools import EffectClass
from treadle.errors import TaskNotFound
from treadle.testing.audit import Evidence, LedgerEntry, audit_store
from treadle.testing.crash import name_of
from treadle.testing.ledger import LedgerLine

EFFECTS: dict[str, EffectClass] = {"look": "read", "book": "idempotent"}
"""What the tools are declared as; all others, compensations too, may write."""


@dataclass
class Journal:
    """A task's journal as the public API shows it; without events there is no such task."""

    events: Sequence[e.Event] = ()
    thread: tuple[Any, ...] = ()
    violations: tuple[str, ...] = ()

    @classmethod
    def read(cls, store: str, ledger: Sequence[LedgerLine]) -> Journal:
        return asyncio.run(cls._read(store, ledger))

    @classmethod
    async def _read(cls, store: str, ledger: Sequence[LedgerLine]) -> Journal:
        async with Runner(store) as runner:
            try:
                (await runner.verify(golden.TASK)).raise_for_findings()
            except TaskNotFound:
                return cls()
            handle = runner.handle(golden.TASK)
            events = [event async for event in handle.events(deltas=False) if isinstance(event, e.Event)]
            violations = await audit_store(runner.store, Evidence(ledger=list(_for_the_audit(ledger))))
            return cls(events, await runner.get_thread(golden.THREAD), tuple(map(str, violations)))

    def open_calls(self) -> dict[str, e.ToolStarted]:
        """Return the calls, compensations too, that have begun and not ended."""
        opened: dict[str, e.ToolStarted] = {}
        for event in self.events:
            if isinstance(event, e.ToolStarted):
                opened[event.call] = event
            elif isinstance(event, (e.ToolEnded, e.ToolStopped)):
                opened.pop(event.call, None)
        return opened

    def of(self, kind: type[e.Event]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


@dataclass
class KilledProcess:
    """The state that a killed process left: the journal, its acknowledgements, and the length of the ledger."""

    journal: Journal
    acknowledged: list[list[Any]]
    entries: int


def _for_the_audit(ledger: Sequence[LedgerLine]) -> Iterator[LedgerEntry]:
    for entry in ledger:
        if entry.kind != "note":
            effect = EFFECTS.get(entry.tool, "write")
            yield LedgerEntry(entry.call, entry.key, effect, entry.kind, golden.TASK)


def audit(
    kills: Sequence[KilledProcess], end: Journal, ledger: Sequence[LedgerLine], variant: str
) -> list[str]:
    """Return every broken promise, by its name.

    Args:
        kills: what each killed process left.
        end: the journal at the task's end.
        ledger: the whole ledger; it also notes which calls were settled by hand.
        variant: which golden agent it was.
    """
    broken = [*end.violations, *_ends(end), *_effects(ledger, end)]
    for killed in kills:
        broken += [*killed.journal.violations, *lost(killed, end), *_repeated(killed, ledger, end)]
    settled = {note.call for note in ledger if note.tool == "settled by hand"}
    broken += _unknown(kills, end, settled, reconciles=variant.endswith("reconcile"))
    return broken + [f"ill-formed: {note.text} ({note.call})" for note in ledger if note.tool == "ill-formed"]


def lost(killed: KilledProcess, end: Journal) -> Iterator[str]:
    """No acknowledged event is lost, what a verb returned is there, and nothing written is changed later."""
    events = {event.seq: name_of(event) for event in killed.journal.events}
    returned: Counter[str] = Counter()
    for what, name in killed.acknowledged:
        if what == "returned":
            returned[name] += 1
        elif events.get(what) != name:
            yield f"lost: event {what} {name} was acknowledged, the journal has {events.get(what)}"
    kinds = Counter(event.kind for event in killed.journal.events)
    made_calls = {
        "create_task": "task_created",
        "undo_step": "rewound",
        "run_step": "step_completed",
        "resume": "task_ended",
    }
    for verb, kind in made_calls.items():
        if kinds[kind] < returned[verb]:
            yield f"lost: {verb} returned {returned[verb]} times, the journal has {kind} {kinds[kind]} times"
    if returned["send"] and len(end.of(e.InputReceived)) != 1:
        yield "lost: the message was acknowledged and did not arrive once"
    if list(end.events[: len(killed.journal.events)]) != list(killed.journal.events):
        yield "changed: what was written before the crash is not what is there now"


def _ends(end: Journal) -> Iterator[str]:
    """Each call that was asked for has its end, the task ended well and once, its thread has it once."""
    ended = {event.call for event in end.of(e.ToolEnded)}
    for event in end.of(e.ModelReturned):
        for call in event.message.tool_calls:
            if call.id not in ended:
                yield f"ends: {call.id} was asked for and has no end"
    if [event.state for event in end.of(e.TaskEnded)] != ["completed"]:
        yield f"ends: the task ended as {[event.state for event in end.of(e.TaskEnded)]}"
    if [message.text for message in end.thread].count("go") != 1:
        yield "ends: the thread does not hold the task once"


def _effects(ledger: Sequence[LedgerLine], end: Journal) -> Iterator[str]:
    """No effect of a writing tool happens twice; what is journalled as done has happened."""
    done = Counter(entry.call for entry in ledger if entry.kind == "done")
    tools = {entry.call: entry.tool for entry in ledger if entry.kind == "start"}
    for call, tool in tools.items():
        if tool not in EFFECTS and done[call] > 1:
            yield f"effects: {tool} {call} happened {done[call]} times"
    for event in end.of(e.ToolEnded):
        if event.outcome == "ok" and not done[event.call]:
            yield f"effects: {event.call} is journalled as done and did not happen"
    incarnation = next(event.incarnation for event in end.of(e.TaskCreated))
    for entry in ledger:
        if entry.kind == "start" and entry.key != f"{golden.TASK}/{incarnation}/{entry.call}":
            yield f"effects: {entry.call} was given the key {entry.key}"


def _repeated(killed: KilledProcess, ledger: Sequence[LedgerLine], end: Journal) -> Iterator[str]:
    """No call that had ended when the process crashed is started again; no answer is requested again."""
    ended = {event.call for event in killed.journal.of(e.ToolEnded)}
    answered = {event.step for event in killed.journal.of(e.ModelReturned)}
    for entry in ledger[killed.entries :]:
        if entry.kind == "start" and entry.call in ended:
            yield f"repeated: {entry.tool} {entry.call} had ended before the crash"
        elif entry.tool == "asked" and entry.call in answered:
            yield f"repeated: the model had answered {entry.call} before the crash"
    for step, count in Counter(event.step for event in end.of(e.StepCompleted)).items():
        if count != 1:
            yield f"repeated: {step} completed {count} times"


def _unknown(
    kills: Sequence[KilledProcess], end: Journal, asked: set[str], *, reconciles: bool
) -> Iterator[str]:
    """An outcome is reported unknown exactly where a writing call has a begin and no end."""
    begins = {
        (call, begin.seq)
        for killed in kills
        for call, begin in killed.journal.open_calls().items()
        if begin.effect == "write"
    }
    unended = Counter(call for call, _ in begins)
    settled = Counter(event.call for event in end.of(e.OutcomeSettled))
    if settled != unended:
        yield f"unknown: {dict(unended)} were left open, {dict(settled)} were settled"
    writes = {event.call for event in end.of(e.ToolStarted) if event.effect == "write"}
    stopped = Counter(event.call for event in end.of(e.ToolStopped) if event.call in writes)
    if stopped != unended:
        yield f"unknown: {dict(unended)} were left open, {dict(stopped)} were marked"
    by_hand = {call for call in unended if not reconciles or call.endswith("-undo")}
    if asked != by_hand:
        yield f"unknown: {by_hand} were for a person to settle, {asked} were asked about"


def expected_answer(end: Journal) -> str:
    """Return the task's expected answer: the tools' results and the message, if it was ever sent."""
    feedback = [golden.FEEDBACK] if end.of(e.InputReceived) else []
    return "; ".join([*golden.OUTPUTS.values(), *feedback])
