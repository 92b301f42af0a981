"""Invalid commands were refused too late, or broke something else."""

import json
from pathlib import Path
from typing import Any

import pytest

from treadle import Agent, Breakpoint, Runner, RunOptions, ScriptedModel, tool
from treadle.core.events import EVENTS
from treadle.engine.options import from_json, to_json
from treadle.errors import ConfigurationError
from treadle.llm.scripted import call, text
from treadle.ports import InboxItem

pytestmark = pytest.mark.anyio


@tool(idempotent=True)  # a close may cut it off: it is run again, and no person is asked what came of it
def book(city: str, nights: int) -> str:
    """Book a room."""
    return f"{nights} nights in {city}"


AGENT = Agent(
    ScriptedModel([call("book", city="Ulm", nights=2), text("Booked.")]), name="booker", tools=[book]
)


async def test_arguments_that_do_not_fit_the_tool_are_refused_when_a_call_is_edited(tmp_path: Path) -> None:
    options = RunOptions(break_on=[Breakpoint(before_tool="book")])
    async with Runner(tmp_path / "journal.db", agents=[AGENT]) as runner:
        assert (await runner.run(AGENT, "go", task_id="task", options=options)).state == "paused"
        for wrong in ({"city": "Ulm", "nights": "many"}, {"town": "Ulm"}, {}):
            with pytest.raises(ConfigurationError, match="edit_call: arguments do not fit the tool book"):
                await runner.edit_call("task", "s1-0", wrong)
    async with Runner(tmp_path / "journal.db") as runner:  # this one does not know the tool
        await runner.edit_call("task", "s1-0", {"city": "Ulm", "nights": "many"})
    async with Runner(tmp_path / "journal.db", agents=[AGENT]) as runner:
        result = await runner.resume("task")
    assert (result.state, result.tool_executions[0].outcome) == ("completed", "invalid")


async def test_a_runner_closed_in_the_loop_over_its_own_stream_ends_the_stream(store: Any) -> None:
    runner = Runner(store, agents=[AGENT])
    async with runner.run_stream(AGENT, "go") as stream:
        async for _ in stream:
            await runner.aclose()
    async with Runner(store, agents=[AGENT]) as second_runner:
        assert (await second_runner.resume(stream.task_id)).state == "completed"


async def test_a_breakpoint_that_can_never_pause_is_refused_and_was_kept_in_older_tasks() -> None:
    never = {"task_created", "task_forked", "messages_imported", "summary_requested", "result_replaced"}
    never |= {"thread_awaited", "thread_entered", "instructions_set", "version_changed", "options_changed"}
    never |= {"input_edited", "call_edited", "task_reopened", "task_ended"}
    for kind in EVENTS:
        if kind in never:
            with pytest.raises(ConfigurationError, match=r"Breakpoint\.event must be one of"):
                Breakpoint(event=kind)
        else:
            assert Breakpoint(event=kind).event == kind
    kept = to_json(RunOptions(break_on=[Breakpoint(event="tool_ended")]))
    kept["break_on"].append({"before_tool": None, "after_step": None, "event": "task_created"})
    assert from_json(json.loads(json.dumps(kept))).break_on == (Breakpoint(event="tool_ended"),)


async def test_a_command_of_wrong_types_in_the_inbox_is_rejected_and_the_task_stays_readable(
    tmp_path: Path,
) -> None:
    async with Runner(tmp_path / "journal.db", agents=[AGENT]) as runner:
        await runner.create_task(AGENT, "go", task_id="task")
        await runner.store.post("task", InboxItem("1", "pause", {"by": {"a": 1}}, 1))
        await runner.store.post("task", InboxItem("2", "send", {"parts": ["more"], "role": ["user"]}, 1))
        assert (await runner.resume("task")).state == "completed"
    async with Runner(tmp_path / "journal.db", agents=[AGENT]) as runner:
        assert (await runner.result("task")).state == "completed"
        kinds = [event.kind async for event in runner.handle("task").events(deltas=False)]
    assert kinds.count("command_rejected") == 2
