"""Each numbered invariant is broken by a planted violation, and the auditor names it with task and event."""

import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.testing.audit.test_audit import honest, numbered
from treadle import Agent, Runner, ScriptedModel, tool
from treadle.core import events as e
from treadle.core.messages import Message, ToolCall, user
from treadle.llm.scripted import call, text
from treadle.testing.audit import (
    Acknowledged,
    Evidence,
    JournalOf,
    LedgerEntry,
    Stream,
    Violation,
    audit,
    audit_store,
    kept,
)
from treadle.testing.audit.external_evidence import found_secrets
from treadle.testing.audit.invariants import NOT_YET, RULES
from treadle.testing.ledger import Ledger, LedgerLine

STARTED = LedgerEntry("s1-0", "t/s1-0", "write", "start", "t", 1, "100", 50)
ASKED = Message("assistant", (ToolCall("s1-0", "save", {}),))
TRACE = "Traceback (most recent call last):\n  File 'shop.py', line 3, in price\nKeyError: 'tea'"
Case = tuple[Sequence[tuple[int, e.Event]], Evidence]


def under(*epochs: int) -> list[tuple[int, e.Event]]:
    """The honest journal, its events under these epochs and the last one from there on."""
    return list(zip((*epochs, *epochs[-1:] * 12), honest(), strict=False))


def with_events(change: Callable[[list[e.Event]], None], **evidence: object) -> Case:
    events = honest()
    change(events)
    return [(1, event) for event in numbered(*events)], Evidence(**evidence)  # type: ignore[arg-type]


def with_a_time(seq: int, time: int) -> list[tuple[int, e.Event]]:
    """The honest journal, one event of which has another time."""
    events = honest()
    events[seq - 1].time = time
    return [(1, event) for event in events]


def seen(**evidence: object) -> Case:
    return with_events(lambda events: None, **evidence)


def gap(events: list[e.Event]) -> None:
    del events[4]


def cancelled_and_goes_on(events: list[e.Event]) -> None:
    events.insert(7, e.CancelRequested())


def paused_and_goes_on(events: list[e.Event]) -> None:
    events.insert(2, e.PauseRequested())


def two_calls_of_one(events: list[e.Event]) -> None:
    assert isinstance(events[0], e.TaskCreated)
    events[0] = replace(events[0], options={"limits": {"model_calls": 1}})


def no_end(events: list[e.Event]) -> None:
    del events[-1]


WATCHED = [(event.seq, event.kind) for event in honest()]


def offered_otherwise(events: list[e.Event]) -> None:
    events[2:3] = [
        e.ModelStarted("s1", "scripted", offered=("save", "look")),
        e.ModelStopped("s1", "crash"),
        e.ModelStarted("s1", "scripted", 2, offered=("save",)),
    ]


def asked() -> e.ApprovalRequested:
    return e.ApprovalRequested("s1", "s1-0", 1, "definition", "digest", 1_000)


def asked_and_starts(events: list[e.Event]) -> None:
    events.insert(4, asked())


def approved_and_rewritten(events: list[e.Event]) -> None:
    asked_and_starts(events)
    at = next(at for at, event in enumerate(events) if isinstance(event, e.ToolStarted))
    events.insert(at, e.ApprovalGiven("s1", "s1-0", 1))
    events.insert(at + 2, e.ArgumentsRewritten("s1", "s1-0", 1, {"n": 9}, ("m",)))


def rewritten_before_it_begins(events: list[e.Event]) -> None:
    at = next(at for at, event in enumerate(events) if isinstance(event, e.ToolStarted))
    events.insert(at, e.ArgumentsRewritten("s1", "s1-0", 1, {"n": 9}, ("m",)))


def judged_and_starts(events: list[e.Event]) -> None:
    events.insert(4, e.CallJudged("s1", "s1-0", "deny"))


def allowed_by_no_grant(events: list[e.Event]) -> None:
    events.insert(4, e.CallJudged("s1", "s1-0", "allow", "cap", grant="s0-0-ask1"))


def request_judged(verdict: e.RequestVerdict) -> Callable[[list[e.Event]], None]:
    def insert(events: list[e.Event]) -> None:
        events.insert(2, e.RequestJudged("s1", verdict, "scripted"))

    return insert


def content_judged(*events: e.Event) -> Callable[[list[e.Event]], None]:
    def insert(journal: list[e.Event]) -> None:
        journal[3:3] = list(events)

    return insert


HELD = e.AnswerHeld("s1", ASKED, "tool_calls")
REFUSED = e.GuardrailJudged("s1", "s1-said1", "output", "deny", "rule")


def decided_twice(events: list[e.Event]) -> None:
    events[4:4] = [asked(), e.ApprovalGiven("s1", "s1-0", 1), e.ApprovalGiven("s1", "s1-0", 1)]


def question() -> e.QuestionAsked:
    return e.QuestionAsked("s1", "s1-0", 1, "Go?", {"type": "string"}, "d", expires=1_000)


def asking(*then: e.Event) -> Callable[[list[e.Event]], None]:
    """Return what has the honest call, which reads, ask before its start, and then these events follow."""

    def change(events: list[e.Event]) -> None:
        started = events[4]
        assert isinstance(started, e.ToolStarted)
        events[4:5] = [
            replace(started, effect="read"),
            question(),
            *then,
            replace(started, effect="read", attempt=2),
        ]

    return change


asks_and_starts = asking()
answered_twice = asking(e.QuestionAnswered("s1", "s1-0", 1, "yes"), e.QuestionAnswered("s1", "s1-0", 1, "no"))
answered_wrongly = asking(e.QuestionAnswered("s1", "s1-0", 1, 7))
expired_early = asking(e.QuestionExpired("s1", "s1-0", 1))


def kept_twice(events: list[e.Event]) -> None:
    events[5:5] = [e.ValueKept("s1", "v", 1, "s1-0"), e.ValueKept("s1", "v", 2, "s1-0")]


def writes_and_asks(events: list[e.Event]) -> None:
    events[5:5] = [question(), e.QuestionAnswered("s1", "s1-0", 1, "yes"), replace(events[4], attempt=2)]  # type: ignore[arg-type]


PLANTED: dict[str, tuple[str, str, int, Case]] = {
    "a number is missing": (
        "I1",
        "gap_free",
        6,
        ([(1, event) for event in honest() if event.seq != 5], Evidence()),
    ),
    "an event is earlier than the one before it": ("I1", "times_go_on", 5, (with_a_time(4, 9), Evidence())),
    "a call ends twice": (
        "I2",
        "one_end",
        7,
        with_events(lambda events: events.insert(6, replace(events[5]))),
    ),
    "a writing tool starts twice": ("I3", "ledger", 0, seen(ledger=[STARTED, STARTED])),
    "its key changes": (
        "I3",
        "ledger",
        0,
        seen(
            ledger=[replace(STARTED, effect="idempotent"), replace(STARTED, effect="idempotent", key="other")]
        ),
    ),
    "an acknowledged event is another": (
        "I4",
        "acknowledged",
        6,
        seen(acknowledged=[Acknowledged("t", "tool_started", 6)]),
    ),
    "an undo was acknowledged and is not there": (
        "I4",
        "acknowledged",
        0,
        seen(acknowledged=[Acknowledged("t", "rewound")]),
    ),
    "a request leaves a call without result": (
        "I5",
        "well_formed",
        0,
        seen(requests={"t": [[user("go"), ASKED, user("and?")]]}),
    ),
    "a model is sent a traceback": (
        "I5",
        "tracebacks",
        6,
        with_events(
            lambda events: events.__setitem__(
                5,
                e.ToolEnded(
                    "s1", "s1-0", "error", error=e.Failure("tool", "error", "lost", "s1-0", traceback=TRACE)
                ),
            ),
            requests={"t": [[user(f"it said {TRACE}")]]},
        ),
    ),
    "an epoch falls": ("I6", "epochs_grow", 3, (under(2, 2, 1), Evidence())),
    "two processes write under one epoch": (
        "I6",
        "one_writer",
        5,
        seen(ledger=[STARTED, replace(STARTED, driver="200")]),
    ),
    "a step starts after a cancel": ("I7", "stopped", 9, with_events(cancelled_and_goes_on)),
    "a model is asked after a pause": ("I7", "stopped", 4, with_events(paused_and_goes_on)),
    "a tool starts after a cancel was acknowledged": (
        "I7",
        "stopped",
        0,
        seen(ledger=[STARTED], acknowledged=[Acknowledged("t", "cancel_requested", time=20)]),
    ),
    "a call starts before its approval": ("I8", "approved_starts", 6, with_events(asked_and_starts)),
    "approved arguments are rewritten": ("I8", "approved_starts", 8, with_events(approved_and_rewritten)),
    "arguments are rewritten before the call begins": (
        "I2",
        "one_end",
        5,
        with_events(rewritten_before_it_begins),
    ),
    "a denied call starts": ("I8", "approved_starts", 6, with_events(judged_and_starts)),
    "a call starts before the answer": ("I8", "answered_questions", 7, with_events(asks_and_starts)),
    "a question is answered twice": ("I8", "answered_questions", 8, with_events(answered_twice)),
    "an answer does not fit": ("I8", "answered_questions", 7, with_events(answered_wrongly)),
    "a question expires too early": ("I8", "answered_questions", 7, with_events(expired_early)),
    "a value is kept twice": ("I8", "answered_questions", 7, with_events(kept_twice)),
    "a call that may write asks": ("I2", "one_end", 6, with_events(writes_and_asks)),
    "a call is allowed by no approval": ("I8", "approved_starts", 5, with_events(allowed_by_no_grant)),
    "a request is decided twice": ("I8", "approved_starts", 7, with_events(decided_twice)),
    "a request goes out that waits for a person": (
        "I8",
        "judged_requests",
        4,
        with_events(request_judged("ask")),
    ),
    "a denied request is answered": ("I8", "judged_requests", 5, with_events(request_judged("deny"))),
    "a refused answer goes on": ("I8", "guarded", 6, with_events(content_judged(HELD, REFUSED))),
    "an answer goes on that a person is asked about": (
        "I8",
        "guarded",
        6,
        with_events(content_judged(HELD, replace(REFUSED, verdict="ask"))),
    ),
    "a content is judged twice": (
        "I8",
        "guarded",
        6,
        with_events(
            content_judged(HELD, replace(REFUSED, verdict="allow"), replace(REFUSED, verdict="allow"))
        ),
    ),
    "a refused input is answered": (
        "I8",
        "guarded",
        5,
        with_events(content_judged(e.GuardrailJudged("s1", "in1", "input", "deny", "rule"))),
    ),
    "an event follows the end": (
        "I9",
        "one_task_end",
        13,
        with_events(lambda events: events.append(e.InstructionsSet("more"))),
    ),
    "a task has no end": ("I9", "ended", 11, with_events(no_end, ended=True)),
    "a watcher sees an event twice": (
        "I10",
        "stream",
        4,
        seen(streams=[Stream("t", [*WATCHED[:3], WATCHED[2], *WATCHED[3:]])]),
    ),
    "a watcher misses an event": ("I10", "stream", 3, seen(streams=[Stream("t", WATCHED[3:], after=2)])),
    "a request goes out beyond the limit": ("I11", "limits", 9, with_events(two_calls_of_one)),
    "a request that is made again offers other tools": (
        "I4",
        "offers_stay",
        5,
        with_events(offered_otherwise),
    ),
    "a lost write is not called unknown": (
        "I13",
        "unknown_iff_lost",
        6,
        (under(1, 1, 1, 1, 1, 2), Evidence()),
    ),
    "an ended write is called unknown": (
        "I13",
        "unknown_iff_lost",
        6,
        with_events(lambda events: events.__setitem__(5, e.ToolEnded("s1", "s1-0", "unknown"))),
    ),
}


@pytest.mark.parametrize("planted", PLANTED)
def test_a_planted_violation_is_named_with_its_task_and_place(planted: str) -> None:
    number, name, seq, (entries, evidence) = PLANTED[planted]
    violations = audit(JournalOf("t", list(entries)), evidence)
    assert (name, "t", seq) in {
        (violation.name, violation.task, violation.seq) for violation in violations
    }, violations
    assert any(
        str(violation).startswith(f"{number} {name}: task t, event {seq}: ") for violation in violations
    )


def test_each_invariant_has_a_planted_violation_or_a_reason_why_not() -> None:
    in_stores = {"I12", "I14", "I15"}  # below, and in `test_labels`
    planted = {number for number, *_ in PLANTED.values()} | in_stores
    for rule in RULES:
        assert rule.number in planted or rule.number in NOT_YET
        assert (rule.number in planted) == bool(rule.checks)
    assert [rule.number for rule in RULES] == [f"I{number}" for number in range(1, 16)]


def test_an_honest_journal_with_all_evidence_has_no_violation() -> None:
    acknowledged = [Acknowledged("t", event.kind, event.seq) for event in honest()]
    case = Evidence(
        ledger=[STARTED],
        requests={"t": [[user("go")]]},
        acknowledged=[*acknowledged, Acknowledged("t", "task_ended")],
        streams=[Stream("t", WATCHED), Stream("t", WATCHED[4:], after=4)],
        ended=True,
    )
    assert audit(JournalOf("t", [(1, event) for event in honest()]), case) == []


def test_a_call_lost_with_its_owner_and_marked_is_no_violation() -> None:
    events = honest()
    events[5:6] = [e.ToolStopped("s1", "s1-0", "crash"), e.ToolEnded("s1", "s1-0", "unknown")]
    entries = [(1 if event.seq < 6 else 2, event) for event in numbered(*events)]
    assert audit(JournalOf("t", entries)) == []


# -------------------------------------------------------------------------------------------- whole stores


@tool
def save(note: str) -> str:
    return f"saved {note}"


def keeper(secret: str = "nothing") -> Agent[None]:
    return Agent(ScriptedModel([call("save", note=secret), text("done")]), name="keeper", tools=[save])


@pytest.mark.anyio
async def test_a_secret_in_a_record_is_found_in_any_form() -> None:
    async with Runner("memory:") as runner:
        await runner.run(keeper('tr"0ub4dor'), "go", task_id="t")
        violations = await audit_store(runner.store, Evidence(secrets=['tr"0ub4dor', "not there"]))
    assert {(violation.name, violation.task) for violation in violations} == {("secrets", "t")}
    for data in (b"key=tr%220ub4dor", b'"tr\\"0ub4dor"', b"eHh0ciIwdWI0ZG9yeHg="):
        assert found_secrets(data, ['tr"0ub4dor']), data


def test_a_secret_in_a_file_is_found_also_where_it_is_split_escaped_or_coded() -> None:
    key = "sk-live-7Gh2Kd9Lm4Pq"
    split = [f"sk-live-7G{between}h2Kd9Lm4Pq" for between in ("\r\n", "<b>", "\\n", "\u200b")]
    escaped = ["".join(template.format(ord(char)) for char in key) for template in ("\\u{:04x}", "%{:02X}")]
    for written in (*split, *escaped, key.encode().hex().upper(), "c2stbGl2ZS03R2gy\nS2Q5TG00UHE="):
        assert found_secrets(written.encode(), [key]) == [key], written
    assert found_secrets(b"sk-live-1 and 7Gh2 and Kd9Lm4Pq", [key]) == []


@pytest.mark.anyio
async def test_an_untouched_task_that_changed_is_found() -> None:
    async with Runner("memory:", agents=[keeper()]) as runner:
        for name in ("one", "two"):
            await runner.create_task(keeper(), "go", task_id=name)
        before = await kept(runner.store)
        await runner.run_step("one")
        assert await audit_store(runner.store, Evidence(before=before, touched=["one"])) == []
        violations = await audit_store(runner.store, Evidence(before=before, touched=["two"]))
        assert [(violation.name, violation.task) for violation in violations] == [("untouched", "one")]
        await runner.delete_task("two")
        violations = await audit_store(runner.store, Evidence(before=before, touched=["one"]))
        assert [(violation.name, violation.task) for violation in violations] == [("untouched", "two")]


@pytest.mark.anyio
async def test_a_record_that_is_another_than_before_is_found() -> None:
    async with Runner("memory:", agents=[keeper()]) as runner:
        await runner.run(keeper(), "go", task_id="t")
        row, records = (await kept(runner.store))["t"]
        forged = {"t": (row, [*records[:-1], (records[-1][0], b"other")])}
        violations: list[Violation] = await audit_store(runner.store, Evidence(before=forged))
        longer = {"t": (row, [*records, (99, b"gone")])}
        violations += await audit_store(runner.store, Evidence(before=longer))
    assert [violation.name for violation in violations] == ["unchanged", "unchanged"]


def test_the_auditor_is_a_program_of_its_own(tmp_path: Path) -> None:
    store, ledger = tmp_path / "journal.db", Ledger(tmp_path / "ledger")
    runner = Runner(store)
    runner.run_sync(keeper("hunter2"), "go", task_id="t")
    runner.sync.close()
    honest_run = [sys.executable, "-m", "treadle.testing.auditor", str(store), "--ended"]
    assert subprocess.run(honest_run, check=False).returncode == 0
    for _ in range(2):
        ledger._write(LedgerLine("start", "save", "s1-0", "t/s1-0", 1, 1, task="t"))
    (tmp_path / "log").write_text("password hunter2")
    lies = ["--ledger", str(ledger.path), "--secret", "hunter2", "--file", str(tmp_path / "log")]
    judged = subprocess.run([*honest_run, *lies], capture_output=True, text=True, check=False)
    assert judged.returncode == 1
    assert {line.split(":")[0] for line in judged.stdout.splitlines()} == {"I3 ledger", "I12 secrets"}
