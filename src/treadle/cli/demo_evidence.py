"""The claims of the demonstration, computed from journals, from the tools' own log and from the files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

from treadle import ToolCall
from treadle.cli.demo_agent import BOOKS, FOLDERS, KILLED, LOG, WRITING, booked, file_of, took_effect
from treadle.cli.screen import some
from treadle.core import events as e
from treadle.core.ids import idempotency_key, is_undo, undo_id
from treadle.testing.audit import Evidence, JournalOf, audit
from treadle.testing.ledger import Ledger

Claim: TypeAlias = tuple[str, Sequence[str]]
"""A sentence with its figures, and the facts that contradict it."""


class DemoTask:
    """The evidence about a task: its journal, its lines in the tools' log, and the violations that the auditor finds.

    Args:
        journal: the journal.
        folder: the scratch folder.
        parent: of a fork, the journal of its task.
    """

    def __init__(self, journal: JournalOf, folder: Path, parent: JournalOf | None = None) -> None:
        ledger = Ledger(folder / LOG)
        self.id, self.journal, self.folder, self.events = journal.task, journal, folder, journal.events
        self.own = self.events[journal.shared :]
        self.calls = calls_of(self.own)
        ended = [event for event in self.own if isinstance(event, e.ToolEnded)]
        self.ends = {call: [end for end in ended if end.call == call] for call in self.calls}
        self.well = {call for call, ends in self.ends.items() if ends and ends[-1].outcome == "ok"}
        self.undone = [call for event in self.events if isinstance(event, e.Rewound) for call in event.calls]
        self.log = [line for line in ledger.entries() if line.task == self.id]
        self.starts = Counter(line.call for line in self.log if line.kind == "start")
        self.violations = audit(journal, Evidence(ledger=ledger.for_audit()).of(self.id), parent=parent)

    def pids(self, call_id: str) -> list[int]:
        """Return the processes that logged a call."""
        return list(dict.fromkeys(line.pid for line in self.log if line.call == call_id))


def calls_of(events: Sequence[e.Event]) -> dict[str, ToolCall]:
    """Return the calls that a model asked for in these events, by id."""
    answers = [event.message for event in events if isinstance(event, e.ModelReturned)]
    return {call.id: call for answer in answers for call in answer.tool_calls}


def nothing_twice(task: DemoTask) -> list[Claim]:
    """Claim that no step, no finished call and no writing call of a task's own events ran twice."""
    steps = Counter(event.step for event in task.own if isinstance(event, e.StepCompleted))
    starts = [line for line in task.log if line.kind == "start" and not is_undo(line.call)]
    late = {line.call for line in starts for end in task.ends.get(line.call, ()) if line.time > end.time}
    wrong = [f"{call} started after its end" for call in sorted(late)]
    wrong += [f"{line.call} is not in the journal" for line in starts if line.call not in task.calls]
    wrong += [violation.text for violation in task.violations if violation.name == "ledger"]
    ends = [f"{call} has {some(len(each), 'end')}" for call, each in task.ends.items() if len(each) != 1]
    ends += [f"{call} is not in the log" for call in sorted(task.well) if not task.starts[call]]
    counted = f"{some(len(task.calls), 'call')}, {some(len(starts), 'start')} in {LOG}"
    return [
        (f"{some(len(steps), 'step')} completed, each once", [step for step in steps if steps[step] > 1]),
        (f"{counted}: no finished call and no writing call ran twice", wrong),
        ("every call has exactly one end in the journal, and each that ended well is in the log", ends),
    ]


def the_chain(task: DemoTask) -> Claim:
    """Claim that a task's records, whose chain was checked as they were read, say nothing wrong."""
    return f"the journal's chain of {some(len(task.events), 'event')} is unbroken", [
        *map(str, task.violations)
    ]


def the_crash(task: DemoTask) -> Claim:
    """Claim that a process died inside a writing call, and that another one found its effect."""
    killed = next((line for line in task.log if line.tool == KILLED), None)
    if killed is None:
        return "a process died inside a writing call", ["the model made fewer than two of them"]
    settled = [
        event for event in task.own if isinstance(event, e.OutcomeSettled) and event.call == killed.call
    ]
    verdicts = [event.verdict for event in settled]
    others = ", ".join(str(pid) for pid in task.pids(killed.call) if pid != killed.pid)
    text = f"{killed.call} {task.calls[killed.call].name}: process {killed.pid} died in it; "
    text += f"reconcile= in process {others or '(none)'} found: it happened"
    return text, () if others and verdicts[-1:] == ["happened"] else [
        f"the journal says {verdicts or 'nothing'}"
    ]


def the_books(*tasks: DemoTask) -> Claim:
    """Claim that the books hold one line for each booking of these tasks that ended well, and for each reversal."""
    expected = Counter[str]()
    for task in tasks:
        calls = [call for call in task.well if task.calls[call].name == "book_entry"]
        calls += [undo_id(undone.call) for undone in task.undone if undone.call in calls]
        expected.update(idempotency_key(task.id, "", call) for call in calls)
    prefixes = tuple(f"{task.id}/" for task in tasks)
    lines = Counter(key for key in booked(tasks[0].folder) if key.startswith(prefixes))
    counted = f"{some(expected.total(), 'booking')} in the journal, {some(lines.total(), 'line')} in {BOOKS}"
    return counted, [f"not the same: {key}" for key in (lines - expected) + (expected - lines)]


def the_undo(task: DemoTask) -> list[Claim]:
    """Claim that the effect of each writing call that was taken back is gone."""
    calls, claims = calls_of(task.events), list[Claim]()
    for undone in task.undone:
        if undone.tool in WRITING and undone.call in task.well:  # another changed nothing
            call, key = calls[undone.call], idempotency_key(task.id, "", undo_id(undone.call))
            is_gone = took_effect(call, key, undo=True)
            now = WRITING[call.name][1] if is_gone else "still as the call left it"
            text = f"{call.id} {call.name}: {file_of(call).relative_to(FOLDERS)} is {now}"
            claims.append((text, () if is_gone and undone.verdict == "compensated" else [undone.verdict]))
    return claims or [("the steps taken back had changed nothing", ())]


def the_fork(task: DemoTask, fork: DemoTask) -> list[Claim]:
    """Claim that a fork is its task up to its point, ran nothing of what it shares, and came to another answer."""
    calls = calls_of(fork.events[: fork.journal.shared])
    again = [call for call in calls if fork.starts[call]]
    shared = f"{some(fork.journal.shared, 'event')} and {some(len(calls), 'call')} shared"
    answers = [
        [event.output for event in each.own if isinstance(event, e.TaskEnded)] for each in (task, fork)
    ]
    same = [] if all(answers) and answers[0][-1] != answers[1][-1] else [f"they are {answers}"]
    return [
        (f"{shared}; the fork started {len(again)} of them again", [*again, *map(str, fork.violations)]),
        *nothing_twice(fork),
        ("the fork's answer is another one than the task's", same),
    ]
