"""The auditor finds nothing in a valid journal, and each kind of violation in a forged one."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from treadle import Agent, Runner, ScriptedModel, tool
from treadle.core import events as e
from treadle.core import extra_state
from treadle.core.messages import Message, Text, ToolCall, ToolResult, user
from treadle.core.rules import schedule
from treadle.engine.journal_writer import encode_record
from treadle.llm.scripted import call, text
from treadle.ports import Commit, NewTask
from treadle.stores.memory import MemoryStore
from treadle.testing.audit import (
    Evidence,
    Invariant,
    JournalOf,
    LedgerEntry,
    Violation,
    audit,
    audit_store,
    journal_of,
    ledger_agrees,
    well_formed,
)

CALL = Message("assistant", (ToolCall("s1-0", "save", {}),))
RESULT = Message("tool", (ToolResult("s1-0", "save", (Text("ok"),)),))


def numbered(*events: e.Event) -> list[e.Event]:
    for seq, event in enumerate(events, 1):
        event.seq = event.time = seq
    return list(events)


def honest() -> list[e.Event]:
    return numbered(
        e.TaskCreated("math", (Text("go"),), "talk"),
        e.StepStarted("s1", 1),
        e.ModelStarted("s1", "scripted"),
        e.ModelReturned("s1", CALL, "tool_calls"),
        e.ToolStarted("s1", "s1-0", "write", 1),
        e.ToolEnded("s1", "s1-0", "ok", "saved"),
        e.StepCompleted("s1"),
        e.StepStarted("s2", 2),
        e.ModelStarted("s2", "scripted"),
        e.ModelReturned("s2", Message("assistant", (Text("done"),))),
        e.StepCompleted("s2", True, "done"),
        e.TaskEnded("completed", "done"),
    )


def violated(events: Sequence[e.Event]) -> set[Invariant]:
    journal = JournalOf("t", [(1, event) for event in events])
    return {violation.name for violation in audit(journal)}


def without(index: int) -> list[e.Event]:
    return numbered(*(event for event in honest() if event.seq != index))


def doubled(index: int) -> list[e.Event]:
    events = honest()
    return numbered(*events[:index], replace(events[index - 1]), *events[index:])


def test_an_honest_journal_has_no_violation() -> None:
    assert violated(honest()) == set()


def test_a_missing_event_is_a_gap() -> None:
    assert "gap_free" in violated(honest()[:4] + honest()[5:])


def test_a_second_end_of_a_call_is_seen() -> None:
    assert "one_end" in violated(doubled(6))


def test_a_call_that_ended_without_having_begun_is_seen() -> None:
    assert "one_end" in violated(without(5))


def test_a_step_that_completes_with_an_open_call_is_seen() -> None:
    assert "one_end" in violated(without(6))


def test_a_second_start_of_a_running_call_is_seen() -> None:
    assert "one_end" in violated(doubled(5))


def test_an_answer_without_a_request_is_seen() -> None:
    assert "one_end" in violated(without(3))


def test_an_event_after_the_end_is_seen() -> None:
    assert "one_task_end" in violated(doubled(12))


@pytest.mark.parametrize(
    ("offered", "wrong"), [(None, False), (("save",), False), (("look",), True), ((), True)]
)
def test_a_start_of_a_call_whose_tool_was_not_offered_is_seen(
    offered: tuple[str, ...] | None, wrong: bool
) -> None:
    events = honest()
    events[2] = e.ModelStarted("s1", "scripted", offered=offered)
    assert violated(numbered(*events)) == ({"one_end"} if wrong else set())


@pytest.mark.parametrize("tried_again", [False, True])
@pytest.mark.parametrize(("tools", "wrong"), [(None, False), (("save",), False), (("look",), True)])
def test_a_start_of_a_call_that_the_request_of_a_step_function_did_not_hold_is_seen(
    tools: tuple[str, ...] | None, wrong: bool, tried_again: bool
) -> None:
    message = Message("assistant", (ToolCall("s1-m1-0", "save", {}),))
    tries = ["s1-m1-0", *(["s1-m1-0r2"] if tried_again else ())]
    first, last = e.Failure("tool", "error", "no"), tries[-1]
    events = numbered(
        e.TaskCreated("math", (Text("go"),), "talk"),
        e.StepsPlanned((e.NextStep("start"),)),
        e.StepStarted("s1", 1),
        e.ModelRequested("s1", "s1-m1", "k", "d", (), None, tools),
        e.ModelStarted("s1", "scripted", call="s1-m1"),
        e.ModelReturned("s1", message, "tool_calls", call="s1-m1"),
        e.CallRequested("s1", "s1-m1-0", "k2", "d2", "save", {}),
        *([e.ToolEnded("s1", "s1-m1-0", "invalid", error=first)] if tried_again else ()),
        e.ToolStarted("s1", last, "write", 1),
        e.ToolEnded("s1", last, "ok", "saved"),
        e.StepCompleted("s1", True, "done"),
        e.TaskEnded("completed", "done"),
    )
    assert ("one_end" in violated(events)) == wrong


def test_an_unknown_outcome_without_a_lost_start_is_seen() -> None:
    events = honest()
    events[5] = e.ToolEnded("s1", "s1-0", "unknown")
    assert "unknown_iff_lost" in violated(numbered(*events))


def test_a_lost_start_whose_outcome_is_not_unknown_is_seen() -> None:
    events = honest()
    events.insert(5, e.ToolStopped("s1", "s1-0", "crash"))
    assert "unknown_iff_lost" in violated(numbered(*events))


@pytest.mark.parametrize(
    ("rests", "outcome", "wrong"),
    [
        (e.SleepStarted("s1", "s1-0", 0, 1), "cancelled", True),
        (e.SleepStarted("s1", "s1-0", 0, 1), "unknown", False),
        (e.QuestionAsked("s1", "s1-0", 1, "Go?", {}, "d", 1), "cancelled", False),
        (e.QuestionAsked("s1", "s1-0", 1, "Go?", {}, "d", 1), "unknown", True),
    ],
)
def test_what_a_call_did_before_it_rested_counts_though_its_next_start_did_not_reach_the_tool(
    rests: e.Event, outcome: e.Outcome, wrong: bool
) -> None:
    over = e.SleepEnded("s1", "s1-0", 1) if isinstance(rests, e.SleepStarted) else None
    events = honest()
    events[4:6] = [
        e.ToolStarted("s1", "s1-0", "idempotent", 1),
        rests,
        over or e.QuestionAnswered("s1", "s1-0", 1, "yes"),
        e.ToolStarted("s1", "s1-0", "idempotent", 2),
        e.ToolStopped("s1", "s1-0", "interrupted"),
        e.OutcomeSettled("s1", "s1-0", "not_happened", by="runner"),
        e.ToolEnded("s1", "s1-0", outcome),
    ]
    assert ("unknown_iff_lost" in violated(numbered(*events))) == wrong


def test_falling_epochs_are_seen() -> None:
    entries = [(2 if event.seq < 5 else 1, event) for event in honest()]
    assert {violation.name for violation in audit(JournalOf("t", entries))} == {"epochs_grow"}


@pytest.mark.parametrize(
    "messages",
    [
        (user("go"), CALL, user("and?")),
        (user("go"), CALL, RESULT, CALL, RESULT, user("again")),
        (user("go"), RESULT),
        (user("go"), CALL, Message("tool", (*RESULT.parts, *RESULT.parts))),
        (user("go"), CALL),
        (user("go"), CALL, RESULT, Message("assistant", (Text("done"),))),
    ],
)
def test_an_ill_formed_request_is_seen(messages: tuple[Message, ...]) -> None:
    assert {violation.name for violation in well_formed("t", messages, request=True)} == {"well_formed"}


def test_a_second_start_of_a_writing_call_is_seen_in_its_ledger() -> None:
    start = LedgerEntry("s1-0", "t/s1-0", "write")
    assert list(ledger_agrees("t", honest(), [start])) == []
    assert [v.name for v in ledger_agrees("t", honest(), [start, start])] == ["ledger"]
    assert [v.name for v in ledger_agrees("t", honest()[:4], [start])] == ["ledger"]


@tool
def save(note: str) -> str:
    """Save a note."""
    return f"saved {note}"


@pytest.mark.anyio
async def test_the_journals_of_a_store_with_an_undo_and_a_fork_are_honest() -> None:
    model = ScriptedModel([call("save", note="a") + call("save", note="b"), text("done")])
    agent = Agent(model, name="math", tools=[save])
    async with Runner("memory:") as runner:
        task = await runner.create_task(agent, "go")
        await runner.run_step(task)
        await runner.run_step(task)
        await runner.undo_step(task)
        fork = await runner.fork(task, input="go on")
        await runner.resume(fork.task_id)
        await runner.resume(task)
        requests = {
            key: [request.messages for request in model.requests if request.task_id == key]
            for key in (task.task_id, fork.task_id)
        }
        violations = await audit_store(runner.store, Evidence(requests=requests))
        assert violations == [], "\n".join(map(str, violations))


@pytest.mark.anyio
async def test_a_fork_with_another_past_is_seen() -> None:
    agent = Agent(ScriptedModel(["done"]), name="math")
    async with Runner("memory:") as runner:
        first = await runner.run(agent, "go")
        fork = await runner.fork(first.task_id, input="go on")
        parent = await journal_of(runner.store, await runner.store.row(first.task_id))
        child = await journal_of(runner.store, await runner.store.row(fork.task_id))
        assert audit(child, parent=parent) == []
        parent.entries[1] = (1, e.InstructionsSet("another", seq=2))
        violations: list[Violation] = audit(child, parent=parent)
        assert [v.name for v in violations] == ["fork_equals_parent"]


@tool(read_only=True)
def look() -> str:
    return "seen"


@pytest.mark.anyio
async def test_a_fork_in_mid_step_may_go_back_to_the_end_of_that_step():
    agent = Agent(ScriptedModel([call("look"), call("look"), text("so")]), tools=[look])
    async with Runner("memory:") as runner:
        task = await runner.create_task(agent, "go")
        await runner.run_step(task)
        fork = await runner.fork(task, at=4)
        await runner.run_step(fork)
        await runner.run_step(fork)
        assert (await runner.undo_step(fork)).to == 1
        assert await audit_store(runner.store) == []


def fan_of_steps() -> list[e.Event]:
    """Two steps beside each other, the first of which has the answer."""
    return [
        e.TaskCreated("math", (Text("go"),), "talk"),
        e.StepsPlanned((e.NextStep("start"),)),
        e.StepStarted("s1", 1),
        e.StepCompleted("s1", next=(e.NextStep("a"), e.NextStep("b"))),
        e.StepStarted("s2", 2),
        e.StepStarted("s3", 3),
        e.StepCompleted("s2", True, "done"),
        e.StepSkipped("s3", "join"),
        e.TaskEnded("completed", "done"),
    ]


def test_a_step_that_still_runs_as_its_task_completes_is_seen() -> None:
    events = fan_of_steps()
    assert violated(numbered(*events)) == set()
    assert violated(numbered(*events[:7], *events[8:])) == {"prefix_folds"}


def test_a_task_that_completes_while_messages_wait_to_be_read_is_seen() -> None:
    events = fan_of_steps()
    end = next(at for at, event in enumerate(events) if isinstance(event, e.TaskEnded))
    events.insert(end, e.InputReceived((Text("and?"),)))
    assert "well_formed" in violated(numbered(*events))


def test_messages_that_are_missing_in_the_conversation_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    events = fan_of_steps()
    events.insert(4, e.InputReceived((Text("and?"),)))
    events[7], events[8] = e.StepCompleted("s3", True, "done"), e.StepSkipped("s2", "join")
    assert violated(numbered(*events)) == set()
    monkeypatch.setattr(
        schedule, "messages_of", lambda node, _="": node.messages if node.status == "completed" else []
    )
    assert "well_formed" in violated(numbered(*events))


def test_messages_that_no_step_reads_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    events = fan_of_steps()
    monkeypatch.setattr(schedule, "_read", lambda state, node, step: state.unread.clear())
    assert violated(numbered(*events)) == {"well_formed"}


def test_a_step_that_ends_twice_is_seen() -> None:
    events = fan_of_steps()
    assert violated(numbered(*events[:7], e.StepCompleted("s3"), *events[7:])) == {"prefix_folds"}


@pytest.mark.anyio
@pytest.mark.parametrize("driver", ["gave it back", "died"])
async def test_a_task_released_before_its_recorded_cancel_was_carried_out_is_seen(driver: str) -> None:
    """A crashed driver has not released its task: the next driver ends the task."""
    store, answers = MemoryStore(), list[object]()
    await store.open()
    events = numbered(e.TaskCreated("math", (Text("go"),), "talk"), e.CancelRequested())
    row = NewTask("t", "math", "talk", 1)
    record = encode_record(events, 1, b"")
    store.commit(
        Commit("t", 1, record, row, "running", release=driver == "gave it back", due_at=0), answers.append
    )
    if driver == "died":
        await store.close()
        await store.open()
    assert (await store.row("t")).driver is None
    names_found = {violation.name for violation in await audit_store(store)}
    assert names_found == ({"stopped"} if driver == "gave it back" else set()), answers


# ------------------------------------------------------------------------------------------ the state


def written() -> list[e.Event]:
    """Two calls of one answer, beside each other; the second ends first, and its value stands."""
    both = Message("assistant", (ToolCall("s1-0", "put", {}), ToolCall("s1-1", "put", {})))
    return numbered(
        e.TaskCreated("math", (Text("go"),), "talk", extra_state={"n": 0, "kept": True}),
        e.StepStarted("s1", 1),
        e.ModelStarted("s1", "scripted"),
        e.ModelReturned("s1", both, "tool_calls"),
        e.ToolStarted("s1", "s1-0"),
        e.ToolStarted("s1", "s1-1"),
        e.ToolEnded("s1", "s1-1", changes=e.StateChange({"n": 2})),
        e.ToolEnded("s1", "s1-0", changes=e.StateChange({"n": 1}, ("kept",))),
        e.StateOverwritten("s1", "s1-1", "s1-0", ("n",)),
        e.StepCompleted("s1"),
        *[replace(event) for event in honest()[7:]],
    )


def test_a_state_that_is_what_was_written_has_no_violation() -> None:
    assert violated(written()) == set()


def test_a_loss_that_no_event_tells_of_is_seen() -> None:
    assert violated(numbered(*(event for event in written() if event.seq != 9))) == {"state_adds_up"}


@pytest.mark.parametrize("told", [("s1-0", "s1-1", "n"), ("s1-1", "s1-0", "kept")])
def test_a_loss_that_is_told_otherwise_is_seen(told: tuple[str, str, str]) -> None:
    events = written()
    events[8] = e.StateOverwritten("s1", told[0], told[1], (told[2],))
    assert violated(numbered(*events)) == {"state_adds_up"}


def test_a_loss_that_was_none_is_seen() -> None:
    events = written()
    assert "prefix_folds" in violated(numbered(*events[:8], events[8], replace(events[8]), *events[9:]))


def test_a_state_in_which_the_last_to_end_wins_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extra_state.Write, "yields_to", lambda self, other: False)
    assert "state_adds_up" in violated(written())


def test_an_undo_that_leaves_the_state_as_it_is_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    events = [*written()[:-1], e.UndoRequested(0, ("s1", "s2")), e.Rewound(0, 1)]
    assert violated(numbered(*events)) == set()
    monkeypatch.setattr(extra_state.ExtraState, "take_back", lambda self, steps: None)
    assert violated(numbered(*events)) == {"state_adds_up"}
