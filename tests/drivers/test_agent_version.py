"""Which version of its agent, and which instructions, a task records."""

import asyncio

import pytest

from tests.cast import sayer
from tests.runner.acts import journal
from treadle import Agent, RunContext, Runner, RunOptions, ScriptedModel
from treadle.drivers.agent_version import record_agent
from treadle.engine.vault import NO_VAULT
from treadle.errors import VersionRefused

pytestmark = pytest.mark.anyio


async def kinds_after(agent: Agent, *, options: RunOptions, began_with: Agent) -> list[str]:  # type: ignore[type-arg]
    async with Runner("memory:") as runner:
        task_id = (await runner.create_task(began_with, "go")).task_id
        async with runner._driver.ownership.acquire(task_id) as owned:
            await record_agent(owned, agent, None, options, NO_VAULT)
            await record_agent(owned, agent, None, options, NO_VAULT)
        return [event.kind for event in await journal(runner, task_id)][1:]


async def test_the_same_agent_is_recorded_with_its_instructions_once() -> None:
    agent = sayer(instructions="Be brief.")
    assert await kinds_after(agent, options=RunOptions(), began_with=agent) == ["instructions_set"]


async def test_another_version_is_recorded_or_refused_as_the_options_say() -> None:
    old, new = sayer(instructions="Be brief."), sayer(instructions="Be long.")
    recorded = await kinds_after(new, options=RunOptions(), began_with=old)
    assert recorded == ["version_changed", "instructions_set"]
    with pytest.raises(VersionRefused, match="on_version_change='refuse'"):
        await kinds_after(new, options=RunOptions(on_version_change="refuse"), began_with=old)


async def test_instructions_that_are_no_text_or_cannot_be_stored_fail_the_task() -> None:
    agent = Agent(ScriptedModel(["x"]), name="a", instructions=lambda ctx: "half \ud800")
    wrong = Agent(ScriptedModel(["x"]), name="a", instructions=lambda ctx: 7)  # type: ignore[arg-type,return-value]
    async with Runner("memory:") as runner:
        failed = await runner.run(agent, "go")
        assert failed.state == "failed"
        assert "returned a value that cannot be stored" in str(failed.error)
        failed = await runner.run(wrong, "go")
        assert failed.error is not None
        assert failed.error.message == "the instructions function of a must return text, and returned 'int'"


async def test_instructions_may_be_an_async_function_and_are_asked_for_once() -> None:
    asked = []

    async def instructions(ctx: RunContext[str]) -> str:
        await asyncio.sleep(0)
        asked.append(ctx.context)
        return f"Help {ctx.context}."

    model = ScriptedModel(["x", "y"])
    async with Runner("memory:") as runner:
        await runner.run(Agent(model, name="a", instructions=instructions), "go", context="Ada")
    assert (asked, model.requests[0].instructions) == (["Ada"], "Help Ada.")


async def test_an_async_function_that_returns_no_text_is_refused_by_what_it_returned() -> None:
    async def wrong(ctx: RunContext[None]) -> int:
        return 7

    agent = Agent(ScriptedModel(["x"]), name="a", instructions=wrong)  # type: ignore[arg-type]
    async with Runner("memory:") as runner:
        failed = await runner.run(agent, "go")
    assert failed.error is not None
    assert (failed.error.source, failed.error.kind) == ("agent", "instructions")
    assert failed.error.message.endswith("must return text, and returned 'int'")
