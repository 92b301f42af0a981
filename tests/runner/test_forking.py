"""Forks under an id of their own, and what their first record holds. `test_undo_fork.py` has what a fork is."""

import asyncio
from typing import Any

import pytest

from tests.cast import calculator, look, sayer
from tests.runner.acts import only
from treadle import Agent, Limits, Runner, RunOptions, ScriptedModel, ToolContext, tool
from treadle.core import codec
from treadle.core import events as e
from treadle.core.events import AgentOverride, ForkChange
from treadle.errors import ConfigurationError, ModelUnknown, TaskConflict
from treadle.llm.scripted import call
from treadle.testing.provider import ProviderServer

pytestmark = pytest.mark.anyio


async def stepped(runner: Runner) -> str:
    """Return a task with one step done, and two to go."""
    task = await runner.create_task(calculator(), "What is (121 * 3) + 42?")
    await runner.run_step(task)
    return task.task_id


async def test_a_fork_under_an_id_of_its_own_is_made_once(runner: Runner) -> None:
    task_id = await stepped(runner)
    first = await runner.fork(task_id, input="And?", task_id="f", by="ada")
    await runner.run_step(task_id)  # its parent goes on: by now the default point is another
    again = await runner.fork(task_id, input="And?", task_id="f", by="ada")
    assert (again.task_id, again.forked_at) == ("f", first.forked_at)
    assert len((await runner.list_tasks(forked_from=task_id)).items) == 1
    both = await asyncio.gather(*[runner.fork(task_id, task_id="g") for _ in range(5)])
    assert {fork.task_id for fork in both} == {"g"}


async def test_an_id_of_another_task_is_none_for_a_fork(runner: Runner) -> None:
    task_id, other = await stepped(runner), await stepped(runner)
    await runner.fork(task_id, input="And?", task_id="f")
    for taken, more, field in (
        ("f", {"input": "Or?"}, "input"),
        ("f", {"input": "And?", "at": 1}, "at"),
        ("f", {"input": "And?", "thread_id": "talk"}, "thread"),
        ("f", {"input": "And?", "agent": sayer()}, "agent"),
        (other, {}, "task_id"),
    ):
        fork: Any = runner.fork
        with pytest.raises(TaskConflict) as conflict:
            await fork(task_id, task_id=taken, **more)
        assert conflict.value.field == field
    await runner.fork(other, task_id="h")
    await runner.delete_task("h")
    assert (await runner.fork(other, task_id="h")).task_id == "h"


async def test_a_fork_that_is_asked_for_again_with_other_options_or_from_elsewhere_is_another_fork(
    runner: Runner,
) -> None:
    done = await runner.run(calculator(), "What is (121 * 3) + 42?")
    asked = RunOptions(limits=Limits(steps=9), labels={"for": "ann"})
    first, second = [output.step.step_id for output in (await runner.get_completed_steps(done.task_id))[:2]]
    fork: Any = runner.fork
    await fork(done.task_id, at=first, options=asked, instructions="Be polite.", task_id="f")
    same = {"at": first, "options": asked, "instructions": "Be polite."}
    for more, field in (
        ({"options": RunOptions(limits=Limits(steps=8), labels={"for": "ann"})}, "options"),
        ({"options": RunOptions(labels={"for": "ann"})}, "options"),
        ({"options": RunOptions(limits=Limits(steps=9), labels={"for": "bob"})}, "labels"),
        ({"options": None}, "labels"),
        ({"at": second}, "at"),
        ({"instructions": None}, "instructions"),
    ):
        with pytest.raises(TaskConflict) as conflict:
            await fork(done.task_id, task_id="f", **{**same, **more})
        assert conflict.value.field == field
    assert (await fork(done.task_id, task_id="f", **same)).task_id == "f"


async def test_a_fork_that_is_asked_for_again_is_the_same_though_its_task_has_other_options_now(
    runner: Runner,
) -> None:
    task_id = await stepped(runner)
    asked = RunOptions(max_parallel_tools=2)
    await runner.fork(task_id, options=asked, task_id="f")
    await runner.fork("f", task_id="g")
    await runner.resume(task_id, options=RunOptions(limits=Limits(steps=50), tell_steps_left=True))
    await runner.resume("f", options=RunOptions(tell_steps_left=True))
    assert (await runner.fork(task_id, options=asked, task_id="f")).task_id == "f"
    assert (await runner.fork("f", task_id="g")).task_id == "g"
    with pytest.raises(TaskConflict):
        await runner.fork("f", options=RunOptions(max_parallel_tools=3), task_id="g")


async def test_a_fork_with_another_result_is_another_fork(runner: Runner) -> None:
    task_id = await stepped(runner)
    await runner.fork(task_id, replace={"s1-0": 5}, task_id="f")
    assert (await runner.fork(task_id, replace={"s1-0": 5}, task_id="f")).task_id == "f"
    with pytest.raises(TaskConflict) as conflict:
        await runner.fork(task_id, replace={"s1-0": 6}, task_id="f")
    assert conflict.value.field == "replace"


async def test_the_input_of_a_fork_hides_the_secrets_that_the_process_knows(store: Any) -> None:
    """The first record of a fork was written without a look at them."""
    token = "crm-Zk3Vb9QpLm7Tx2RwYc5NdHs8Jf4Gq6"

    @tool(read_only=True, secrets=("crm",))
    async def ask_crm(ctx: ToolContext[None]) -> str:
        """Ask the CRM."""
        return f"asked with {len(ctx.secret('crm'))} characters"

    agent = Agent(ScriptedModel([call("ask_crm"), "Done."]), name="desk", tools=[ask_crm])
    async with Runner(store, secrets={"crm": lambda: token}) as runner:
        done = await runner.run(agent, "Ask")
        fork = await runner.fork(done.task_id, input=f"the key is {token}")
        (received,) = (await only(runner, fork, "input_received"))[-1:]
        assert received.parts[0].text.startswith("the key is ")
        assert token not in received.parts[0].text


async def test_a_driver_that_does_not_know_what_a_fork_says_leaves_it_alone(runner: Runner) -> None:
    task_id = await stepped(runner)
    fork = await runner.fork(task_id, by="ada")
    assert (await runner.store.row(fork.task_id)).format == 5


# ------------------------------------------------------------------- instructions and models of a fork's own


def helper(*script: Any, instructions: Any = "Be short.", tools: Any = ()) -> Agent[Any]:
    """Return an agent of one name, in a version that depends on its instructions and tools."""
    model = ScriptedModel(list(script) or ["Yes."])
    return Agent(model, name="helper", instructions=instructions, tools=list(tools))


def asked_under(agent: Agent[Any]) -> list[str]:
    """Return the instructions of each request that a scripted agent got."""
    return [request.instructions for request in agent.model.requests]  # type: ignore[union-attr]


async def test_a_fork_goes_on_under_instructions_of_its_own_and_its_parent_does_not(runner: Runner) -> None:
    agent = helper("Yes.", "Indeed.")
    done = await runner.run(agent, "Is it?")
    fork = await runner.fork(done.task_id, instructions="Be polite.", input="And now?")
    assert (await runner.resume(fork, agent=agent)).final_text == "Indeed."
    assert asked_under(agent) == ["Be short.", "Be polite."]
    (forked,) = await only(runner, fork, "task_forked")
    assert forked.override == AgentOverride("", "Be polite.", None)
    assert await only(runner, fork, "version_changed") == []
    other = await runner.fork(done.task_id, input="And now?")
    await runner.resume(other, agent=agent)
    assert asked_under(agent)[2:] == ["Be short."]


async def test_instructions_of_a_fork_need_no_code_and_outlive_the_runner_that_made_it(store: Any) -> None:
    async with Runner(store) as runner:
        task_id = (await runner.run(helper(), "Is it?")).task_id
    async with Runner(store) as without_agents:
        fork = await without_agents.fork(task_id, instructions="Be polite.", input="And now?", task_id="f")
        assert fork.state == "created"
    agent = helper("Yes.", "Indeed.")
    async with Runner(store, agents=[agent]) as runner:
        assert (await runner.resume("f")).state == "completed"
    assert asked_under(agent) == ["Be polite."]


async def test_instructions_of_a_fork_stay_when_the_code_of_its_agent_changes(store: Any) -> None:
    async with Runner(store) as runner:
        done = await runner.run(helper(), "Is it?")
        await runner.fork(done.task_id, instructions="Be polite.", input="And now?", task_id="f")
    newer = helper("Yes.", call("look"), "Seen.", instructions="Be newer.", tools=[look])
    async with Runner(store, agents=[newer]) as runner:
        result = await runner.resume("f")
        assert (result.final_text, [each.name for each in result.tool_executions]) == ("Seen.", ["look"])
        assert len(await only(runner, "f", "version_changed")) == 1
    assert asked_under(newer) == ["Be polite.", "Be polite."]


async def test_a_fork_that_refuses_other_versions_is_no_other_version_for_its_own_instructions(
    runner: Runner,
) -> None:
    agent = helper("Yes.", "Indeed.")
    done = await runner.run(agent, "Is it?", options=RunOptions(on_version_change="refuse"))
    fork = await runner.fork(done.task_id, instructions="Be polite.", input="And now?")
    assert (await runner.resume(fork, agent=agent)).state == "completed"


async def test_text_stands_in_place_of_instructions_that_are_a_function(runner: Runner) -> None:
    calls: list[str] = []

    def written(ctx: Any) -> str:
        calls.append(ctx.task_id)
        return "Made."

    agent = helper("Yes.", "Indeed.", instructions=written)
    done = await runner.run(agent, "Is it?")
    fork = await runner.fork(done.task_id, instructions="Be polite.", input="And now?")
    await runner.resume(fork, agent=agent)
    assert (calls, asked_under(agent)) == ([done.task_id], ["Made.", "Be polite."])


async def test_a_fork_of_a_fork_keeps_what_it_has_unless_another_agent_is_given(runner: Runner) -> None:
    agent = helper("Yes.", "Indeed.", "So it is.", "Truly.")
    done = await runner.run(agent, "Is it?")
    first = await runner.fork(done.task_id, instructions="Be polite.", input="And now?")
    await runner.resume(first, agent=agent)
    second = await runner.fork(first, input="And then?")
    await runner.resume(second, agent=agent)
    third = await runner.fork(first, agent=agent, input="And then?")
    await runner.resume(third)
    assert asked_under(agent)[1:] == ["Be polite.", "Be polite.", "Be short."]
    overrides = [(await only(runner, fork, "task_forked"))[-1].override for fork in (second, third)]
    assert overrides == [AgentOverride("helper", "Be polite.", None), None]
    assert await only(runner, second, "instructions_set") == await only(runner, first, "instructions_set")


async def test_another_agent_is_given_with_instructions_for_the_fork(runner: Runner) -> None:
    other = Agent(ScriptedModel(["Yes.", "Naturally."]), name="butler", instructions="Serve.")
    done = await runner.run(helper(), "Is it?")
    fork = await runner.fork(done.task_id, agent=other, instructions="Serve tea.", input="And now?")
    result = await runner.resume(fork)
    assert (result.final_text, asked_under(other)) == ("Naturally.", ["Serve tea."])


async def test_a_fork_goes_on_with_a_model_of_its_own(
    runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = helper()
    done = await runner.run(agent, "Is it?")
    fork = await runner.fork(done.task_id, model="openai:scripted", input="And now?")
    with ProviderServer(["Yes.", "From the server."]) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.openai_base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "key")
        result = await runner.resume(fork, agent=agent)
    assert server.problems == []
    assert result.final_text == "From the server."
    assert (len(server.requests), len(agent.model.requests)) == (1, 1)  # type: ignore[union-attr]
    (started,) = [each for each in await only(runner, fork, "model_started") if each.seq > fork.head]
    assert started.model in ("openai:scripted", "openai-chat:scripted")
    again = await runner.fork(fork, instructions="Be polite.")
    assert (await only(runner, again, "task_forked"))[-1].override == AgentOverride(
        "helper", "Be polite.", "openai:scripted"
    )


async def test_what_cannot_be_a_model_or_instructions_makes_no_fork(runner: Runner) -> None:
    done = await runner.run(helper(), "Is it?")
    fork: Any = runner.fork
    for more, error, says in (
        ({"model": "nonsense"}, ModelUnknown, "provider:model"),
        ({"model": "nobody:at-all"}, ModelUnknown, "nobody"),
        ({"model": ScriptedModel(["x"])}, ConfigurationError, "fork: model must be text"),
        ({"instructions": print}, ConfigurationError, "fork: instructions must be text"),
        ({"instructions": "half \ud800"}, ConfigurationError, "half a character"),
    ):
        with pytest.raises(error, match=says):
            await fork(done.task_id, **more)
    assert (await runner.list_tasks(forked_from=done.task_id)).items == ()


async def test_the_same_id_with_other_instructions_is_another_fork(runner: Runner) -> None:
    done = await runner.run(helper(), "Is it?")
    await runner.fork(done.task_id, instructions="Be polite.", task_id="f")
    assert (await runner.fork(done.task_id, instructions="Be polite.", task_id="f")).task_id == "f"
    polite = {"instructions": "Be polite."}
    for more, field in (
        ({"instructions": "Be rude."}, "instructions"),
        ({**polite, "model": "openai:other"}, "model"),
        ({}, "instructions"),
    ):
        fork: Any = runner.fork
        with pytest.raises(TaskConflict) as conflict:
            await fork(done.task_id, task_id="f", **more)
        assert conflict.value.field == field


async def test_after_a_handoff_the_override_is_about_the_agent_that_the_fork_begins_with(
    runner: Runner,
) -> None:
    script = ["Yes.", "I am the expert.", "Still me."]
    expert = Agent(ScriptedModel(script), name="expert", instructions="Know all.")
    front = Agent(
        ScriptedModel([call("transfer_to_expert"), "Back."]),
        name="front",
        instructions="Greet.",
        handoffs=[expert],
    )
    done = await runner.run(front, "Hi")
    assert done.agent == "expert"
    fork = await runner.fork(done.task_id, instructions="Know little.", input="And now?")
    result = await runner.resume(fork, agent=front)
    assert (result.state, result.agent) == ("completed", "expert")
    assert asked_under(expert)[-1] == "Know little."
    assert asked_under(front) == ["Greet."]


def test_an_override_is_written_only_where_there_is_one() -> None:
    event = e.TaskForked("p", "a", "t", seq=1, time=1)
    assert (b"override" in codec.encode([event])[0], event.format) == (False, 1)
    event.override = AgentOverride("", "Be polite.", "openai:other")
    assert event.format == 5
    assert codec.decode(codec.encode([event])[0], {}, 1) == [event]


async def test_a_fork_names_its_differences_in_lists_before_and_after_it_is_driven(runner: Runner) -> None:
    agent = calculator()
    done = await runner.run(agent, "?")
    await runner.fork(done.task_id, at="s1", task_id="same")
    await runner.fork(done.task_id, at="s1", input="And\nagain?", instructions="Be brief.", task_id="both")
    await runner.fork("both", task_id="again", replace={"s1-0": {"sum": 4}})
    await runner.fork(done.task_id, agent=sayer(), task_id="other")
    expected = {
        "same": (),
        "both": (ForkChange("instructions", "Be brief."), ForkChange("input", "And again?")),
        "again": (
            ForkChange("instructions", "Be brief."),
            ForkChange("result", '{"sum":4}', "multiply", "s1-0"),
        ),
        "other": (ForkChange("agent", sayer().name),),
    }
    for is_driven in (False, True):
        rows = {row.task_id: row for row in (await runner.list_tasks()).items}
        for name, changes in expected.items():
            assert rows[name].fork_changes == (await runner.get_task(name)).fork_changes == changes
        assert rows[done.task_id].fork_changes == ()
        forks = (await runner.get_lineage(done.task_id)).forks.items
        assert {row.fork_changes for row in forks} == {expected[name] for name in ("same", "both", "other")}
        assert (rows["same"].steps, rows["same"].input, rows["same"].outcome) == (1, "?", "")
        assert [rows[name].shared_steps for name in ("same", "both", "other", done.task_id)] == [1, 1, 3, 0]
        assert rows[done.task_id].model == rows["same"].model != ""
        if not is_driven:
            await runner.resume("both", agent=agent)
