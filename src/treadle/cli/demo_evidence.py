"""What the demonstration claims, worked out from journals, from the tools' own log and from the files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

from treadle import ToolCall
from treadle.cli import demo_agent
from treadle.cli.screen import some
from treadle.core import events as e
from treadle.core.ids import idempotency_key, is_undo, undo_id
from treadle.testing.audit import Evidence, JournalOf, audit
from treadle.testing.ledger import Ledger
from treadle.transfer.verifying import VerifyReport

Claim: TypeAlias = tuple[str, Sequence[str]]
"""A sentence with the figures it rests on, and what contradicts it."""


class DemoTask:
    """One task of a demonstration: its journal, its lines in the tools' log, and what the auditor finds wrong.

    Args:
        journal: the journal.
        folder: the scratch folder.
        parent: of a fork, the journal of its task.
    """

    def __init__(self, journal: JournalOf, folder: Path, parent: JournalOf | None = None) -> None:
        ledger = Ledger(folder / demo_agent.LOG)
        self.id, self.journal, self.folder, self.events = journal.task, journal, folder, journal.events
        self.own = self.events[journal.shared :]
        self.calls = calls_of(self.own)
        self.ended = {event.call: event for event in self.events if isinstance(event, e.ToolEnded)}
        self.ends = Counter(event.call for event in self.own if isinstance(event, e.ToolEnded))
        self.well = {call for call, event in self.ended.items() if event.outcome == "ok"}
        self.undone = [call for event in self.events if isinstance(event, e.Rewound) for call in event.calls]
        self.log = [line for line in ledger.entries() if line.task == self.id]
        self.starts = Counter(line.call for line in self.log if line.kind == "start")
        self.violations = audit(journal, Evidence(ledger=ledger.for_audit()).of(self.id), parent=parent)

    def pids(self, call_id: str) -> list[int]:
        """Return the processes that had to do with a call."""
        return list(dict.fromkeys(line.pid for line in self.log if line.call == call_id))


def calls_of(events: Sequence[e.Event]) -> dict[str, ToolCall]:
    """Return the calls that a model asked for in these events, by id."""
    answers = [event.message for event in events if isinstance(event, e.ModelReturned)]
    return {call.id: call for answer in answers for call in answer.tool_calls}


def nothing_twice(task: DemoTask) -> list[Claim]:
    """Claim that no step, no finished call and no writing call of a task's own events ran twice."""
    calls, ended = task.calls, task.ended
    completed = Counter(event.step for event in task.own if isinstance(event, e.StepCompleted))
    starts = [line for line in task.log if line.kind == "start" and not is_undo(line.call)]
    late = {line.call for line in starts if line.call in ended and line.time > ended[line.call].time}
    once = [f"{step} completed {count} times" for step, count in completed.items() if count > 1]
    agrees = [f"{call} started after its end" for call in sorted(late)]
    agrees += [f"{line.call} is not in the journal" for line in starts if line.call not in calls]
    agrees += [violation.text for violation in task.violations if violation.name == "ledger"]
    ends = [f"{call} has {some(task.ends[call], 'end')}" for call in calls if task.ends[call] != 1]
    ends += [f"{call} is not in the log" for call in calls if call in task.well and not task.starts[call]]
    counted = f"{some(len(calls), 'call')}, {some(len(starts), 'start')} in {demo_agent.LOG}"
    return [
        (f"{some(len(completed), 'step')} completed, each once", once),
        (f"{counted}: no finished call and no writing call ran twice", agrees),
        ("every call has exactly one end in the journal, and each that ended well is in the log", ends),
    ]


def the_chain(task: DemoTask, verified: VerifyReport) -> Claim:
    """Claim that nothing is wrong with a task's records, nor with what they say."""
    problems = [*(finding.text for finding in verified.findings), *map(str, task.violations)]
    return f"the journal's chain of {some(verified.events, 'event')} is unbroken", problems


def the_crash(task: DemoTask) -> Claim:
    """Claim that a process died inside a writing call, and that its effect took place once all the same."""
    killed = next((line for line in task.log if line.tool == demo_agent.KILLED), None)
    if killed is None:
        return "a process died inside a writing call", ["the model made fewer than two of them"]
    others = ", ".join(str(pid) for pid in task.pids(killed.call) if pid != killed.pid)
    events = [event for event in task.own if getattr(event, "call", None) == killed.call]
    crashed = any(isinstance(event, e.ToolStopped) and event.reason == "crash" for event in events)
    verdicts = [event.verdict for event in events if isinstance(event, e.OutcomeSettled)]
    holds = crashed and verdicts[-1:] == ["happened"] and killed.call in task.well and others
    text = f"{killed.call} {task.calls[killed.call].name}: process {killed.pid} died in it; "
    text += f"reconcile= in process {others or '(none)'} found: it happened"
    return text, () if holds else [f"the journal says {verdicts or 'nothing'}"]


def the_books(*tasks: DemoTask) -> Claim:
    """Claim that the books hold one line for each booking of these tasks that ended well, and no other of theirs."""
    expected = Counter[str]()
    for task in tasks:
        calls = [call for call in task.well & task.calls.keys() if task.calls[call].name == "book_entry"]
        undone = [call for call in task.undone if (call.tool, call.verdict) == ("book_entry", "compensated")]
        calls += [undo_id(call.call) for call in undone]
        expected.update(idempotency_key(task.id, "", call) for call in calls)
    prefixes = tuple(f"{task.id}/" for task in tasks)
    lines = Counter(key for key in demo_agent.booked(tasks[0].folder) if key.startswith(prefixes))
    counted = f"{some(expected.total(), 'booking')} in the journal, {some(lines.total(), 'line')}"
    differing = (lines - expected) + (expected - lines)
    return f"{counted} in {demo_agent.BOOKS}", [f"not the same: {key}" for key in differing]


def the_undo(task: DemoTask) -> list[Claim]:
    """Claim of each writing call that was taken back that its effect is gone."""
    calls, claims = calls_of(task.events), list[Claim]()
    for undone in task.undone:
        if undone.tool in demo_agent.TAKEN_BACK and undone.call in task.well:  # another changed nothing
            call = calls[undone.call]
            is_gone = demo_agent.is_undone(call, idempotency_key(task.id, "", undo_id(call.id)))
            path = call.arguments.get("path") or f"{call.arguments.get('folder')}/{demo_agent.BOOKS}"
            now = demo_agent.TAKEN_BACK[call.name] if is_gone else "still as the call left it"
            holds = is_gone and undone.verdict == "compensated"
            claims.append((f"{call.id} {call.name}: {path} is {now}", () if holds else [undone.verdict]))
    return claims or [("the steps taken back had changed nothing", ())]


def the_fork(task: DemoTask, fork: DemoTask) -> list[Claim]:
    """Claim that a fork is its task up to its point, ran nothing of what it shares, and came to another answer."""
    calls = calls_of(fork.events[: fork.journal.shared])
    again = [call for call in calls if fork.starts[call]]
    shared = f"{some(fork.journal.shared, 'event')} and {some(len(calls), 'call')} shared"
    ends = [[event for event in each.own if isinstance(event, e.TaskEnded)] for each in (task, fork)]
    answers = [events[-1].output if events else None for events in ends]
    same = [f"they are {answers}"] if None in answers or answers[0] == answers[1] else []
    return [
        (f"{shared}; the fork started {len(again)} of them again", [*again, *map(str, fork.violations)]),
        *nothing_twice(fork),
        ("the fork's answer is another one than the task's", same),
    ]
