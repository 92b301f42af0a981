"""Tools that the caller of a task runs: a call rests until its result is brought, from any process."""

import asyncio
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.runner.acts import only, results_seen
from treadle import Agent, CallerTool, Happened, Runner, RunOptions, ScriptedModel, tool
from treadle.core.events import TaskStood
from treadle.engine.options import from_json, to_json
from treadle.errors import AlreadyDecided, CallNotFound, ConfigurationError, TicketNotFound
from treadle.llm.scripted import call, text, turn
from treadle.results.caller_tools import names_of

pytestmark = pytest.mark.anyio

PLACE = CallerTool(
    "place",
    "Tell where the user is.",
    {"type": "object", "properties": {"exact": {"type": "boolean"}}, "required": ["exact"]},
)
OPTIONS = RunOptions(caller_tools=[PLACE])


@tool(read_only=True)
def look() -> str:
    """Look."""
    return "found"


def agent_of(*script: Any, **more: Any) -> Agent[Any]:
    script = script or (call("place", exact=True), text("You are in Bonn."))
    return Agent(ScriptedModel(list(script)), name="guide", **more)


async def test_the_model_calls_a_tool_of_the_caller_and_reads_what_the_caller_brings(runner: Runner) -> None:
    model = ScriptedModel([call("place", exact=True), text("You are in Bonn.")])
    agent = Agent(model, name="guide")
    waiting = await runner.run(agent, "Where am I?", options=OPTIONS)
    assert waiting.state == "waiting"
    (item,) = waiting.pending
    assert (item.kind, item.tool, item.arguments, item.schema) == ("call", "place", {"exact": True}, None)
    (listed,) = (await runner.list_pending(waiting.task_id)).items
    assert replace(listed, head=0) == item
    assert [spec.name for spec in model.requests[0].tools][-1] == "place"
    await runner.complete(item.request_id, {"city": "Bonn"}, task=waiting.task_id, by="page")
    done = await runner.resume(waiting.task_id, agent=agent)
    assert (done.state, done.final_text) == ("completed", "You are in Bonn.")
    (ended,) = await only(runner, done.task_id, "tool_ended")
    assert (ended.outcome, ended.output) == ("ok", {"city": "Bonn"})
    assert "Bonn" in results_seen(model.requests[-1].messages)[0]
    (answered,) = await only(runner, done.task_id, "question_answered")
    assert answered.by == "page"


async def test_the_caller_may_be_another_process_and_names_the_call(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    async with Runner(path) as runner:
        task_id = (await runner.run(agent_of(), "Where am I?", options=OPTIONS)).task_id
    async with Runner(path) as caller:
        await caller.handle(task_id).complete("s1-0", "Bonn")
        await caller.complete("s1-0", "Bonn", task=task_id)  # the same again changes nothing
        with pytest.raises(AlreadyDecided):
            await caller.complete("s1-0", "Rome", task=task_id)
    async with Runner(path, agents=[agent_of()]) as runner:
        assert (await runner.resume(task_id)).final_text == "You are in Bonn."
        with pytest.raises(AlreadyDecided):
            await runner.fail("s1-0", "no signal", task=task_id)


async def test_a_call_that_the_caller_fails_is_an_error_that_the_model_reads(runner: Runner) -> None:
    model = ScriptedModel([call("place", exact=True), text("I do not know.")])
    agent = Agent(model, name="guide")
    task_id = (await runner.run(agent, "Where am I?", options=OPTIONS)).task_id
    await runner.fail("s1-0", "the user did not allow it", task=task_id)
    assert (await runner.resume(task_id, agent=agent)).state == "completed"
    assert "the user did not allow it" in results_seen(model.requests[-1].messages)[0]


async def test_calls_of_the_caller_and_of_the_agent_stand_beside_each_other(runner: Runner) -> None:
    script = [turn("", [call("place", exact=True), call("look"), call("place", exact=False)]), text("Done.")]
    model = ScriptedModel(script)
    agent = Agent(model, name="guide", tools=[look])
    waiting = await runner.run(agent, "Go.", options=OPTIONS)
    assert [item.kind for item in waiting.pending] == ["call", "call"]
    assert len(await only(runner, waiting.task_id, "tool_ended")) == 1, "the agent's own call has run"
    await runner.complete("s1-2", "far", task=waiting.task_id)
    still = await runner.resume(waiting.task_id, agent=agent)
    assert [item.state for item in [still]] == ["waiting"]
    await runner.complete("s1-0", "near", task=waiting.task_id)
    done = await runner.resume(waiting.task_id, agent=agent)
    assert done.state == "completed"
    seen = results_seen(model.requests[-1].messages)
    assert ["near" in seen[0], "found" in seen[1], "far" in seen[2]] == [True] * 3


async def test_a_driver_that_adopts_goes_on_once_the_result_is_there(tmp_path: Path) -> None:
    async with Runner(tmp_path / "journal.db", agents=[agent_of()], adopt=True) as runner:
        task = await runner.submit(agent_of(), "Where am I?", options=OPTIONS)
        handle = runner.handle(task)
        states: list[str] = []
        async with asyncio.timeout(10), aclosing(handle.events(follow=True, deltas=False)) as events:
            async for event in events:
                if isinstance(event, TaskStood):
                    states.append(event.state)
                    if event.state == "waiting":
                        await handle.complete("s1-0", "Bonn")
                    elif event.state == "completed":
                        break
        assert states[-2:] == ["running", "completed"]


async def test_wrong_arguments_never_reach_the_caller(runner: Runner) -> None:
    model = ScriptedModel([call("place", exact="very"), text("Never mind.")])
    done = await runner.run(Agent(model, name="guide"), "Where am I?", options=OPTIONS)
    assert done.state == "completed"
    (ended,) = await only(runner, done.task_id, "tool_ended")
    assert ended.outcome == "invalid"


async def test_a_headless_run_waits_for_its_caller_all_the_same(runner: Runner) -> None:
    options = RunOptions(caller_tools=[PLACE], interaction="headless")
    waiting = await runner.run(agent_of(), "Where am I?", options=options)
    assert waiting.state == "waiting"


async def test_tasks_below_have_no_tools_of_the_caller(runner: Runner) -> None:
    below = ScriptedModel([text("I am below.")])
    above = ScriptedModel([call("helper", input="Help."), text("Done.")])
    agent = Agent(above, name="boss", subagents=[Agent(below, name="helper")])
    assert (await runner.run(agent, "Go.", options=OPTIONS)).state == "completed"
    assert [spec.name for spec in below.requests[0].tools] == []
    assert "place" in [spec.name for spec in above.requests[0].tools]


async def test_what_was_asked_of_a_model_tells_of_the_tools_of_the_caller(runner: Runner) -> None:
    agent = agent_of()
    runner._agents.register(agent)  # pyright: ignore[reportPrivateUsage]
    task_id = (await runner.run(agent, "Where am I?", options=OPTIONS)).task_id
    request = await runner.get_request(task_id, "s1")
    assert [(offered.name, offered.description) for offered in request.tools][-1:] == [
        ("place", "Tell where the user is.")
    ]


async def test_only_calls_of_the_callers_tools_are_brought_results(runner: Runner) -> None:
    task_id = (await runner.run(agent_of(call("look"), text("Done."), tools=[look]), "Go.")).task_id
    for ref in ("s1-0", "s9-9", "s1-0?1"):
        with pytest.raises((CallNotFound, TicketNotFound)):
            await runner.complete(ref, 1, task=task_id)
    with pytest.raises(TicketNotFound):
        await runner.complete("s1-0", 1)
    waiting = await runner.run(agent_of(), "Where am I?", options=OPTIONS)
    (item,) = waiting.pending
    with pytest.raises(CallNotFound, match="`complete` or `fail` brings its result"):
        await runner.answer(waiting.task_id, item.request_id, value={"output": "Rome"})
    with pytest.raises((CallNotFound, AlreadyDecided)):
        await runner.settle(waiting.task_id, item.request_id, Happened("Rome"))
    assert (await runner.result(waiting.task_id)).state == "waiting"


async def test_a_name_that_the_agent_uses_is_refused_before_a_task_is_made(runner: Runner) -> None:
    options = RunOptions(caller_tools=[CallerTool("look")])
    for verb in (runner.run, runner.create_task, runner.submit):
        with pytest.raises(ConfigurationError, match=r"caller_tools: agent 'guide' has a tool 'look'"):
            await verb(agent_of(tools=[look]), "Go.", options=options)
    assert (await runner.list_tasks()).items == ()


async def test_a_name_that_an_agent_uses_to_which_the_conversation_may_move_is_refused_too(
    runner: Runner,
) -> None:
    expert = Agent(ScriptedModel(["Unused.", "Found."]), name="guide", tools=[look])
    desk = Agent(ScriptedModel([call("transfer_to_guide")]), name="desk", handoffs=[expert])
    options = RunOptions(caller_tools=[CallerTool("look")])
    with pytest.raises(ConfigurationError, match=r"caller_tools: agent 'guide' has a tool 'look'"):
        await runner.run(desk, "Go.", options=options)
    assert (await runner.list_tasks()).items == ()


async def test_a_name_that_the_agent_uses_is_refused_by_what_changes_options(runner: Runner) -> None:
    """The options of the refused resume were stored, and no later resume could begin."""
    agent = agent_of(tools=[look])
    task = await runner.create_task(agent, "Where am I?")
    options = RunOptions(caller_tools=[CallerTool("look")])
    for refused in (
        runner.resume(task, options=options),
        runner.resume(task, options=options, drive=False),
        runner.fork(task, options=options),
    ):
        with pytest.raises(ConfigurationError, match=r"caller_tools: agent 'guide' has a tool 'look'"):
            await refused
    assert (await runner.list_tasks(forked_from=task.task_id)).items == ()
    assert (await runner.get_task(task)).head == task.head
    other = Agent(ScriptedModel(["Hi."]), name="other", tools=[look])
    with_tools = await runner.create_task(Agent(ScriptedModel(["Hi."]), name="free"), "Hi", options=options)
    with pytest.raises(ConfigurationError, match=r"caller_tools: agent 'other' has a tool 'look'"):
        await runner.fork(with_tools, agent=other)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: CallerTool("a b"), "CallerTool.name"),
        (lambda: CallerTool("a", 7), "CallerTool.description"),  # type: ignore[arg-type]
        (lambda: CallerTool("a", "", {"type": "string"}), "CallerTool.parameters"),
        (lambda: CallerTool("a", "", {"type": "object", "x": float("nan")}), "cannot be stored"),
        (lambda: CallerTool("a", "", {"type": "object", "properties": 5}), "'a': properties must be"),
        (lambda: CallerTool("a", "", {"type": "object", "x": "y" * 70_000}), "more than 65,536 bytes"),
        (lambda: RunOptions(caller_tools=[CallerTool("a"), CallerTool("a")]), "two are named 'a'"),
        (lambda: RunOptions(caller_tools=["a"]), "must hold CallerTool"),  # type: ignore[list-item]
        (lambda: RunOptions(caller_tools=PLACE), "must be a list"),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_be_a_tool_of_the_caller_is_refused(make: Any, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        make()


def test_tools_of_the_caller_are_stored_with_the_task() -> None:
    options = RunOptions(caller_tools=[PLACE, CallerTool("stop")])
    assert from_json(to_json(options)) == RunOptions(caller_tools=(PLACE, CallerTool("stop")))
    assert names_of(to_json(options)) == {"place", "stop"}
    assert names_of(None) == frozenset()
