"""The model of a runner, for agents that name none: whose model wins, and which one the journal names."""

import asyncio
from typing import Any

import pytest
from pydantic import BaseModel

from tests.client.served import client, served
from tests.runner.acts import journal
from treadle import Agent, Handoff, Runner, ScriptedModel
from treadle.core import events as e
from treadle.errors import ConfigurationError
from treadle.llm.scripted import call, text, turn

pytestmark = pytest.mark.anyio


class Named(ScriptedModel):
    """A scripted model with a name of its own."""

    def __init__(self, name: str, *turns: Any) -> None:
        super().__init__(list(turns) or ["Done."])
        self.name = name


async def models_in(runner: Runner, task_id: str) -> list[str]:
    return [event.model for event in await journal(runner, task_id) if isinstance(event, e.ModelStarted)]


async def test_an_agent_that_names_no_model_is_driven_with_that_of_the_runner() -> None:
    async with Runner("memory:", model=Named("house:model")) as runner:
        result = await runner.run(Agent(name="clerk"), "go")
        assert (result.state, result.final_text) == ("completed", "Done.")
        assert await models_in(runner, result.task_id) == ["house:model"]
        assert [agent.model for agent in await runner.get_agents()] == ["house:model"]


async def test_the_model_of_an_agent_comes_before_that_of_the_runner() -> None:
    async with Runner("memory:", model=Named("house:model")) as runner:
        result = await runner.run(Agent(Named("own:model", "Mine."), name="clerk"), "go")
        assert result.final_text == "Mine."
        assert await models_in(runner, result.task_id) == ["own:model"]


async def test_agents_below_and_agents_that_take_over_are_driven_with_it_too() -> None:
    def answer(request: Any) -> Any:
        if request.instructions == "You sort.":
            return call("transfer_to_billing") if request.turn else call("helper", input="go")
        return text("helped") if request.instructions == "You help." else text("billed")

    helper = Agent(name="helper", instructions="You help.")
    billing = Agent(name="billing", instructions="You bill.")
    boss = Agent(name="boss", instructions="You sort.", subagents=[helper], handoffs=[Handoff(billing)])
    async with Runner("memory:", model=ScriptedModel(answer)) as runner:
        result = await runner.run(boss, "go", task_id="t")
        assert (result.final_text, result.agent) == ("billed", "billing")
        assert [each.output for each in result.subagent_executions] == ["helped"]
        assert set(await models_in(runner, "t.s1-0")) == {"scripted"}


class Bill(BaseModel):
    total: int


async def test_a_server_drives_with_the_model_of_its_runner_and_a_client_reads_typed_answers() -> None:
    agent = Agent(name="clerk", output_type=Bill)
    model = Named("house:model", turn("", [call("final_answer", total=5)]))

    async def ask(url: str) -> Any:
        async with client(url) as runner:
            return await runner.run(agent, "go"), await runner.get_agents()

    with served(agent, model=model) as url:
        result, agents = await asyncio.to_thread(asyncio.run, ask(url))
    assert result.output == Bill(total=5)
    assert [each.model for each in agents] == ["house:model"]


async def test_a_task_goes_on_with_the_model_of_the_runner_that_drives_it(tmp_path: Any) -> None:
    agent, path = Agent(name="clerk"), tmp_path / "journal.db"
    async with Runner(path, model=Named("first:model")) as runner:
        task = await runner.create_task(agent, "go")
    async with Runner(path, agents=[agent], model=Named("second:model")) as runner:
        assert (await runner.resume(task.task_id)).state == "completed"
        assert await models_in(runner, task.task_id) == ["second:model"]


async def test_without_a_model_no_task_is_made_and_the_error_says_what_to_write() -> None:
    async with Runner("memory:") as runner:
        with pytest.raises(ConfigurationError, match=r"agent 'clerk' names no model.*Runner\(model="):
            await runner.run(Agent(name="clerk"), "go")
        assert (await runner.list_tasks()).items == ()


@pytest.mark.parametrize(
    ("model", "problem"),
    [
        ("", "Runner: model must be like 'openai:gpt-5.4-mini'"),
        (3, "Runner: model must be text like"),
        (ScriptedModel, "Runner: model must be .*make an object of the class"),
        ("nobody:model", "Runner: .*nobody"),
    ],
)
def test_a_wrong_model_is_refused_when_the_runner_is_made(model: Any, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        Runner("memory:", model=model)


def test_an_agent_without_a_model_says_so_and_may_be_given_one() -> None:
    agent = Agent(name="clerk")
    assert (agent.model, agent.model_name, repr(agent)) == ("", "", "Agent('', name='clerk', tools=[])")
    assert agent.replace(instructions="x").model == ""
    assert agent.replace(model="openai:none").replace(model=None).fingerprint == agent.fingerprint
