"""What the demonstration claims, worked out anew from journals, from the tools' own log and from the files.

`treadle.testing.audit` judges each journal beside the log; the claims here put its verdict into figures.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from treadle import ToolCall
from treadle.cli import demo_agent
from treadle.cli.screen import some
from treadle.core import events as e
from treadle.core.data import frozen
from treadle.core.ids import idempotency_key, is_undo, undo_id
from treadle.testing.audit import Evidence, JournalOf, audit
from treadle.testing.ledger import Ledger
from treadle.transfer.verifying import VerifyReport


@frozen
class DemoClaim:
    """A sentence with the figures it rests on, and what contradicts it."""

    text: str
    problems: Sequence[str] = ()

    def __str__(self) -> str:
        return "; ".join([self.text, *self.problems])


class DemoTask:
    """One task of a demonstration: its journal, what the tools' log says of it, and what the auditor finds wrong.

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
        self.undone = [call for event in self.events if isinstance(event, e.Rewound) for call in event.calls]
        self.log = [line for line in ledger.entries() if line.task == self.id]
        self.starts = Counter(line.call for line in self.log if line.kind == "start")
        self.violations = audit(journal, Evidence(ledger=ledger.for_audit()).of(self.id), parent=parent)

    def pids(self, call_id: str) -> list[int]:
        """Return the processes that had to do with a call."""
        return list(dict.fromkeys(line.pid for line in self.log if line.call == call_id))

    def ended_well(self, call_id: str) -> bool:
        """Tell whether a call has a result."""
        return call_id in self.ended and self.ended[call_id].outcome == "ok"


def calls_of(events: Sequence[e.Event]) -> dict[str, ToolCall]:
    """Return the calls that a model asked for in these events, by id."""
    answers = [event.message for event in events if isinstance(event, e.ModelReturned)]
    return {call.id: call for answer in answers for call in answer.tool_calls}


def nothing_twice(task: DemoTask) -> list[DemoClaim]:
    """Claim that no step, no finished call and no writing call of a task's own events ran twice."""
    calls, ended = task.calls, task.ended
    completed = Counter(event.step for event in task.own if isinstance(event, e.StepCompleted))
    starts = [line for line in task.log if line.kind == "start" and not is_undo(line.call)]
    late = {line.call for line in starts if line.call in ended and line.time > ended[line.call].time}
    repeated = [violation.text for violation in task.violations if violation.name == "ledger"]
    return [
        DemoClaim(
            f"{some(len(completed), 'step')} completed, each once",
            [f"{step} completed {count} times" for step, count in completed.items() if count > 1],
        ),
        DemoClaim(
            f"{some(len(calls), 'call')}, {some(len(starts), 'start')} in {demo_agent.LOG}: "
            "no finished call and no writing call ran twice",
            [
                *[f"{call} started after its end" for call in sorted(late)],
                *[f"{line.call} is not in the journal" for line in starts if line.call not in calls],
                *repeated,
            ],
        ),
        DemoClaim(
            "every call has exactly one end in the journal, and each that ended well is in the log",
            [
                *[f"{call} has {some(task.ends[call], 'end')}" for call in calls if task.ends[call] != 1],
                *[
                    f"{call} is not in the log"
                    for call in calls
                    if task.ended_well(call) and not task.starts[call]
                ],
            ],
        ),
    ]


def the_chain(task: DemoTask, verified: VerifyReport) -> DemoClaim:
    """Claim that nothing is wrong with a task's records, nor with what they say."""
    problems = [finding.text for finding in verified.findings]
    text = f"the journal's chain of {some(verified.events, 'event')} is unbroken"
    return DemoClaim(text, [*problems, *map(str, task.violations)])


def the_crash(task: DemoTask) -> DemoClaim:
    """Claim that a process died inside a writing call, and that its effect took place once all the same."""
    killed = next((line for line in task.log if line.tool == demo_agent.KILLED), None)
    if killed is None:
        missing = "the model made fewer than two of them"
        return DemoClaim("a process died inside a writing call", [missing])
    others = [str(pid) for pid in task.pids(killed.call) if pid != killed.pid]
    events = [event for event in task.own if getattr(event, "call", None) == killed.call]
    crashed = any(isinstance(event, e.ToolStopped) and event.reason == "crash" for event in events)
    verdicts = [event.verdict for event in events if isinstance(event, e.OutcomeSettled)]
    holds = crashed and verdicts[-1:] == ["happened"] and task.ended_well(killed.call) and others
    text = f"{killed.call} {task.calls[killed.call].name}: process {killed.pid} died in it; "
    text += f"reconcile= in process {', '.join(others) or '(none)'} found: it happened"
    return DemoClaim(text, () if holds else [f"the journal says {verdicts or 'nothing'}"])


def the_books(*tasks: DemoTask) -> DemoClaim:
    """Claim that the books hold one line for each booking of these tasks that ended well, and no other of theirs."""
    expected = Counter[str]()
    for task in tasks:
        booked = [call for call, asked in task.calls.items() if asked.name == "book_entry"]
        reversed_ = [
            call.call for call in task.undone if (call.tool, call.verdict) == ("book_entry", "compensated")
        ]
        expected.update(idempotency_key(task.id, "", call) for call in booked if task.ended_well(call))
        expected.update(idempotency_key(task.id, "", undo_id(call)) for call in reversed_)
    prefixes = tuple(f"{task.id}/" for task in tasks)
    lines = Counter(key for key in demo_agent.booked(tasks[0].folder) if key.startswith(prefixes))
    booking, line = some(expected.total(), "booking"), some(lines.total(), "line")
    differing = (lines - expected) + (expected - lines)
    text = f"{booking} in the journal, {line} in {demo_agent.BOOKS}"
    return DemoClaim(text, [f"not the same: {key}" for key in differing])


_TAKEN_BACK = {
    "write_report": "gone",
    "archive_file": "back in its place",
    "book_entry": "balanced by a reversal",
}


def the_undo(task: DemoTask) -> list[DemoClaim]:
    """Claim of each writing call that was taken back that its effect is gone."""
    calls, claims = calls_of(task.events), list[DemoClaim]()
    for undone in task.undone:
        if undone.tool not in _TAKEN_BACK or not task.ended_well(undone.call):
            continue  # it changed nothing, and the journal says so
        call = calls[undone.call]
        is_gone = demo_agent.is_undone(call, idempotency_key(task.id, "", undo_id(call.id)))
        path = call.arguments.get("path") or f"{call.arguments.get('folder')}/{demo_agent.BOOKS}"
        now = _TAKEN_BACK[call.name] if is_gone else "still as the call left it"
        holds = is_gone and undone.verdict == "compensated"
        claims.append(DemoClaim(f"{call.id} {call.name}: {path} is {now}", () if holds else [undone.verdict]))
    return claims or [DemoClaim("the steps taken back had changed nothing")]


def the_fork(task: DemoTask, fork: DemoTask) -> list[DemoClaim]:
    """Claim that a fork is its task up to its point, ran nothing of what it shares, and came to another answer."""
    shared = fork.journal.shared
    calls = calls_of(fork.events[:shared])
    again = [call for call in calls if fork.starts[call]]
    text = f"{some(shared, 'event')} and {some(len(calls), 'call')} shared; the fork started {len(again)} of them again"
    ends = [[event for event in each.own if isinstance(event, e.TaskEnded)] for each in (task, fork)]
    answers = [events[-1].output if events else None for events in ends]
    is_another = None not in answers and answers[0] != answers[1]
    return [
        DemoClaim(text, [*again, *map(str, fork.violations)]),
        *nothing_twice(fork),
        DemoClaim(
            "the fork's answer is another one than the task's", () if is_another else [f"they are {answers}"]
        ),
    ]
