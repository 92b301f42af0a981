"""The audit of labels finds each way in which untrusted content would be forgotten."""

import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from treadle import Agent, Label, Runner, ScriptedModel, tool
from treadle.core import events as e
from treadle.core import origins
from treadle.core.messages import Message, ToolCall
from treadle.llm.scripted import call
from treadle.testing.audit import all_rows, audit_store, journal_of
from treadle.testing.audit.labels import labels, untrusted_calls

pytestmark = pytest.mark.anyio

Journals = dict[str, Sequence[e.Event]]


@tool(read_only=True)
def read_mail() -> str:
    """Read the newest mail."""
    return "dear friend"


@tool(read_only=True, trusted=True)
def clock() -> str:
    """Tell the time."""
    return "noon"


def agent(*turns: Any, name: str = "desk", **options: Any) -> Agent[Any]:
    return Agent(ScriptedModel(list(turns)), name=name, tools=[read_mail, clock], **options)


async def family() -> tuple[str, Journals]:
    """Return the root and the journals of a task that read a mail, called a child, and called one that read a mail."""
    quiet, reader = agent("Nothing.", name="quiet"), agent(call("read_mail"), "A mail.", name="reader")
    turns = [call("reader", input="read"), call("quiet", input="think"), "Done."]
    async with Runner("memory:") as runner:
        result = await runner.run(agent(*turns, subagents=[quiet, reader]), "go")
        assert await audit_store(runner.store) == []
        rows = await all_rows(runner.store)
        return result.task_id, {row.task_id: (await journal_of(runner.store, row)).events for row in rows}


def trust_the_reader(root: str, journals: Journals) -> None:
    for event in journals[root]:
        if isinstance(event, e.ToolEnded) and event.call == "s1-0":
            event.label = Label("subagent:reader", "trusted")


def forget_what_the_parent_had_read(root: str, journals: Journals) -> None:
    created = journals[f"{root}.s2-0"][0]
    assert isinstance(created, e.TaskCreated)
    assert created.untrusted == ("subagent:reader",)
    created.untrusted = ()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (trust_the_reader, "s1-0 is trusted, and task .* had read something untrusted"),
        (
            forget_what_the_parent_had_read,
            "its caller had read s1-0 before s2-0, and it took over nothing untrusted",
        ),
    ],
)
async def test_a_label_that_is_lost_between_tasks_is_found(
    change: Callable[[str, Journals], None], says: str
):
    root, journals = await family()
    change(root, journals)
    texts = [violation.text for violation in labels(journals)]
    assert len(texts) == 1
    assert re.search(says, texts[0])


async def test_a_task_that_forgets_what_it_read_is_found(monkeypatch: pytest.MonkeyPatch):
    _, journals = await family()
    monkeypatch.setattr(origins, "of_task", lambda state: ())
    texts = [violation.text for violation in labels(journals)]
    assert any("and counts as trusted" in text for text in texts)


async def test_only_untrusted_results_of_the_present_branch_are_read():
    async with Runner("memory:") as runner:
        task = await runner.create_task(agent(call("clock"), call("read_mail"), call("clock"), "Done."), "go")
        seen: list[set[str]] = []
        for _ in range(3):
            await runner.run_step(task)
            seen.append(untrusted_calls([event async for event in runner.handle(task).events(deltas=False)]))  # type: ignore[misc]
        await runner.undo_step(task, to=1)
        seen.append(untrusted_calls([event async for event in runner.handle(task).events(deltas=False)]))  # type: ignore[misc]
    assert seen == [set(), {"s2-0"}, {"s2-0"}, set()]


STARTED, AGAIN = e.StepStarted("s1", 1), e.StepStarted("s1", 1, 2)
READ = e.ToolStarted("s1", "s1-0")
PLANNED = e.StepsPlanned(())


def ended(outcome: e.Outcome, kind: str = "") -> e.ToolEnded:
    error = e.Failure("tool", kind, "no", "s1-0") if kind else None
    return e.ToolEnded("s1", "s1-0", outcome, error=error)


def answered(*calls: str) -> e.ModelReturned:
    return e.ModelReturned(
        "s1", Message("assistant", tuple(ToolCall(each, "read_mail", {}) for each in calls))
    )


@pytest.mark.parametrize(
    ("events", "is_read"),
    [
        ([STARTED, READ, ended("error", "error")], True),
        ([STARTED, READ, ended("error", "error"), AGAIN], False),
        ([STARTED, READ, ended("ok"), AGAIN], True),
        ([STARTED, answered("s1-0"), READ, ended("error", "error"), AGAIN], False),
        ([STARTED, answered("s1-0"), READ, ended("error", "error"), answered(), AGAIN], True),
        ([PLANNED, STARTED, READ, ended("cancelled", "refused"), e.TaskReopened(2, "resume")], False),
        ([PLANNED, STARTED, READ, ended("error", "error"), e.TaskReopened(2, "resume")], True),
        ([STARTED, READ, ended("cancelled", "refused"), e.TaskReopened(2, "resume")], True),
        ([STARTED, ended("denied")], False),
    ],
)
def test_a_failure_counts_as_read_until_its_call_is_made_again(events: list[e.Event], is_read: bool):
    assert untrusted_calls(events) == ({"s1-0"} if is_read else set())


async def test_a_runner_that_remembers_what_its_thread_had_read_agrees_with_the_journal():
    async with Runner("memory:") as runner:
        await runner.run(agent(call("read_mail"), "A mail."), "go", thread_id="desk")
        second = await runner.run(agent("Nothing."), "and now?", thread_id="desk")
        state = (await runner._driver.cache.load(second.task_id)).state
        assert state.history_untrusted == ("tool:read_mail",)
        live = {second.task_id: state}.get
        assert await audit_store(runner.store, live=live) == []
