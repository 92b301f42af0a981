"""What the demonstration claims, worked out anew from journals, from the tools' own log and from the files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, TypeGuard

from treadle.cli import demo_agent
from treadle.cli.screen import some
from treadle.core import events as e
from treadle.core.data import frozen, mutable
from treadle.core.events import Event

UNDO = "-undo"


@frozen
class Claim:
    """A sentence with the figures it rests on, and whether it is true."""

    holds: bool
    text: str


@mutable
class Call:
    """One call: what a journal says of it, and the lines of the tools' log under its key."""

    id: str
    tool: str
    arguments: dict[str, Any]
    writes: bool = False
    begun: int = 0
    ends: list[e.ToolEnded] = field(default_factory=list[e.ToolEnded])
    not_happened: int = 0
    crashed: bool = False
    settled: str | None = None
    lines: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    @property
    def starts(self) -> list[dict[str, Any]]:
        """The starts of the tool that the log holds."""
        return [line for line in self.lines if line["event"] == "start"]

    @property
    def repeated(self) -> bool:
        """Whether the tool ran when it must not have."""
        ended = self.ends[0].time if self.ends else None
        after_its_end = ended is not None and any(line["time"] > ended for line in self.starts)
        return after_its_end or (self.writes and len(self.starts) > 1 + self.not_happened)

    @property
    def pids(self) -> list[int]:
        """The processes that had to do with it."""
        return list(dict.fromkeys(line["pid"] for line in self.lines if line["event"] != "undone"))


def calls_of(task_id: str, events: Iterable[Event], log: Sequence[dict[str, Any]]) -> dict[str, Call]:
    """Return the calls that began in these events, by id, with what the log says of each."""
    asked: dict[str, Call] = {}
    for event in events:
        match event:
            case e.ModelReturned():
                asked |= {
                    call.id: Call(call.id, call.name, call.arguments) for call in event.message.tool_calls
                }
            case e.ToolStarted() if event.call in asked:
                asked[event.call].begun += 1
                asked[event.call].writes = event.effect != "read"
            case e.ToolStopped() if event.call in asked:
                asked[event.call].crashed |= event.reason == "crash"
            case e.OutcomeSettled() if event.call in asked:
                asked[event.call].settled = event.verdict
                asked[event.call].not_happened += event.verdict == "not_happened"
            case e.ToolEnded() if event.call in asked:
                asked[event.call].ends.append(event)
            case _:
                continue
    for line in log:
        task, _, call = line["key"].rpartition("/")
        if task == task_id and call in asked:
            asked[call].lines.append(line)
    return asked


def nothing_twice(task_id: str, events: Sequence[Event], log: Sequence[dict[str, Any]]) -> list[Claim]:
    """Claim that no step, no finished call and no writing call of these events ran twice."""
    calls = calls_of(task_id, events, log)
    completed = [event.step for event in events if isinstance(event, e.StepCompleted)]
    again = sorted(
        set(_steps_taken_up_again(events)) | {step for step in completed if completed.count(step) > 1}
    )
    repeated = [call.id for call in calls.values() if call.repeated]
    unseen = [call.id for call in calls.values() if _outcome(call) == "ok" and not call.starts]
    unclear = [call.id for call in calls.values() if len(call.ends) != 1]
    strangers = [
        line["key"] for line in log if line["key"].rpartition("/")[0] == task_id and _call(line) not in calls
    ]
    starts = sum(len(call.starts) for call in calls.values())
    return [
        Claim(
            not again,
            f"{some(len(completed), 'step')} completed, each once" + _named("taken up again", again),
        ),
        Claim(
            not repeated and not strangers,
            f"{some(len(calls), 'call')}, {some(starts, 'start')} in {demo_agent.LOG}: "
            "no finished call and no writing call ran twice"
            + _named("ran twice", repeated)
            + _named("not in the journal", strangers),
        ),
        Claim(
            not unseen and not unclear,
            "every call has exactly one end in the journal, and each that ended well is in the log"
            + _named("not in the log", unseen)
            + _named("not one end", unclear),
        ),
    ]


def _call(line: dict[str, Any]) -> str:
    return str(line["key"]).rpartition("/")[2].removesuffix(UNDO)


def _outcome(call: Call) -> str | None:
    return call.ends[0].outcome if call.ends else None


def _steps_taken_up_again(events: Iterable[Event]) -> Iterable[str]:
    completed: set[str] = set()
    for event in events:
        if isinstance(event, e.StepCompleted):
            completed.add(event.step)
        elif _is_work(event) and event.step in completed:
            yield event.step


def _is_work(event: Event) -> TypeGuard[e.StepStarted | e.ModelStarted | e.ToolStarted]:
    if isinstance(event, e.ToolStarted):
        return event.undoes is None
    return isinstance(event, (e.StepStarted, e.ModelStarted))


def _named(what: str, found: Sequence[object]) -> str:
    return f"; {what}: {', '.join(map(str, found))}" if found else ""


def the_crash(task_id: str, events: Sequence[Event], log: Sequence[dict[str, Any]]) -> list[Claim]:
    """Claim that a process died inside a writing call, and that its effect took place once all the same."""
    killed = [line for line in log if line["event"] == "kill" and line["key"].startswith(f"{task_id}/")]
    calls = calls_of(task_id, events, log)
    call = calls.get(_call(killed[0])) if killed else None
    if call is None:
        return [Claim(False, "no process died inside a writing call: the model made fewer than two of them")]
    by = killed[0]["pid"]
    settled = call.crashed and call.settled == "happened" and _outcome(call) == "ok"
    others = [pid for pid in call.pids if pid != by]
    text = f"{call.id} {call.tool}: process {by} died in it; reconcile= in process {_pids(others)} found: it happened"
    return [Claim(settled and bool(others), text)]


def _pids(pids: Sequence[int]) -> str:
    return ", ".join(map(str, pids)) or "(none)"


def the_ledger(tasks: Sequence[tuple[str, Sequence[Event]]], folder: Path) -> list[Claim]:
    """Claim that the ledger holds one entry for each booking of these tasks that ended well, and no other of theirs."""
    ledger = folder / demo_agent.LEDGER
    expected: list[str] = []
    for task_id, events in tasks:
        calls = calls_of(task_id, events, ())
        own = [call for call in calls.values() if call.tool == "book_entry"]
        expected += [f"{task_id}/{call.id}" for call in own if _outcome(call) == "ok"]
        rewound = [undone for event in events if isinstance(event, e.Rewound) for undone in event.calls]
        expected += [f"{task_id}/{undone.call}{UNDO}" for undone in rewound if _reversed(undone)]
    keys = [line.rpartition(",")[2] for line in (ledger.read_text().splitlines() if ledger.exists() else ())]
    found = [key for key in keys if key.rpartition("/")[0] in [task_id for task_id, _ in tasks]]
    text = f"{some(len(expected), 'booking')} in the journal, {some(len(found), 'line')} in {ledger.name}"
    return [Claim(sorted(found) == sorted(expected), text)]


def _reversed(undone: e.UndoneCall) -> bool:
    return undone.tool == "book_entry" and undone.verdict == "compensated"


_TAKEN_BACK = {
    "write_report": "gone",
    "archive_file": "back in its place",
    "book_entry": "balanced by a reversal",
}


def the_undo(task_id: str, events: Sequence[Event]) -> list[Claim]:
    """Claim of each writing call that was taken back that its effect is gone."""
    rewound = [event for event in events if isinstance(event, e.Rewound)]
    calls = calls_of(task_id, events, ())
    claims: list[Claim] = []
    for undone in (undone for event in rewound for undone in event.calls):
        call = calls[undone.call]
        if not call.writes or _outcome(call) != "ok":
            continue  # it changed nothing, and the journal says so
        gone = demo_agent.taken_back(call.tool, call.arguments, f"{task_id}/{call.id}{UNDO}")
        what = call.arguments.get("path") or f"{call.arguments.get('folder')}/{demo_agent.LEDGER}"
        now = _TAKEN_BACK[call.tool] if gone else "still as the call left it"
        claims.append(
            Claim(undone.verdict == "compensated" and gone, f"{call.id} {call.tool}: {what} is {now}")
        )
    return claims or [Claim(bool(rewound), "the steps taken back had changed nothing")]


def the_fork(
    fork_id: str, shared: int, events: Sequence[Event], log: Sequence[dict[str, Any]]
) -> list[Claim]:
    """Claim that the fork ran nothing of what it shares with the task it was forked from."""
    before = calls_of(fork_id, [event for event in events if event.seq <= shared], log)
    again = [call.id for call in before.values() if call.lines]
    kept = f"{some(shared, 'event')} and {some(len(before), 'call')} shared"
    text = f"{kept}; the fork started {len(again)} of them again"
    return [Claim(not again, text), *nothing_twice(fork_id, [ev for ev in events if ev.seq > shared], log)]
