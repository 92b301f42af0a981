"""The spending of tasks and of each agent that took part."""

from decimal import Decimal
from functools import partial
from typing import Any

import pytest

from tests.cast import Gate, pay
from tests.property.mortal import MortalStore, next_life
from tests.runner.acts import happened
from treadle import Agent, Image, Limits, Runner, RunOptions, ScriptedModel, Text, ToolContext, tool
from treadle.core.state import start
from treadle.errors import StoreUnavailable
from treadle.llm.scripted import call, fail, turn
from treadle.results.usage import TaskUsage, content_text, figures_of, folded, spending_facts
from treadle.stores.memory import MemoryStore
from treadle.wiring import open_store

pytestmark = pytest.mark.anyio


def test_the_usage_of_a_task_is_the_sum_of_those_of_its_agents() -> None:
    leaf = Agent(ScriptedModel(["a rose"]), name="leaf")
    root = Agent(ScriptedModel([call("leaf", input="go"), "a poem"]), name="root", subagents=[leaf])
    usage = Runner("memory:").sync.run(root, "Go.").usage
    assert {name: each.model_calls for name, each in usage.per_agent.items()} == {"root": 2, "leaf": 1}
    assert usage.total_tokens == sum(each.total_tokens for each in usage.per_agent.values())
    assert (usage.model_calls, usage.tool_calls) == (3, 1)


def test_a_cost_is_shown_if_a_model_was_called() -> None:
    assert spending_facts(TaskUsage()) == (("tokens", 0), ("cost", ""))
    [tokens, (name, cost)] = spending_facts(TaskUsage(3, 4, model_calls=1, cost=Decimal("0.5")))
    assert (tokens, name) == (("tokens", 7), "cost")
    assert "0.5" in cost


# -------------------------------------------------------------------------------- what lists show of a task


async def test_a_stopped_task_is_listed_with_what_it_did_spent_and_answered(store):
    leaf = Agent(ScriptedModel(["a rose"]), name="leaf")
    root = Agent(ScriptedModel([call("leaf", input="go"), "A POEM"]), name="root", subagents=[leaf])
    async with Runner(store) as runner:
        result = await runner.run(
            root, "Write\n a poem.", task_id="job", options=RunOptions(labels={"kind": "art"})
        )
        await runner.run(
            Agent(ScriptedModel([fail(400, message="no such thing")]), name="failing"), "Try.", task_id="bad"
        )
        items = {item.task_id: item for item in (await runner.list_tasks()).items}
        job = items["job"]
        assert (job.steps, job.input, job.outcome) == (2, "Write a poem.", "A POEM")
        assert (job.input_tokens, job.output_tokens) == (
            result.usage.input_tokens,
            result.usage.output_tokens,
        )
        assert job.updated is not None
        assert job.updated >= job.created
        assert (items["bad"].steps, "no such thing" in items["bad"].outcome) == (0, True)
        totals = await runner.count_tasks()
        assert (totals.tasks, totals.states) == (3, {"completed": 2, "failed": 1})
        assert totals.tokens == result.usage.total_tokens, "what a child spent counts once"
        assert (await runner.count_tasks(labels={"kind": "art"})).tasks == 2, (
            "a child carries its parent's labels"
        )
        assert [item.task_id for item in (await runner.list_tasks(search="POEM")).items] == ["job"]
        assert [item.task_id for item in (await runner.list_tasks(search="such thing")).items] == ["bad"]
        assert [item.task_id for item in (await runner.list_tasks(state=["failed", "paused"])).items] == [
            "bad"
        ]


async def test_a_waiting_task_is_listed_with_how_many_of_its_requests_wait_for_a_person(store):
    @tool(read_only=True)
    async def choose(ctx: ToolContext[Any]) -> str:
        """Ask which."""
        return await ctx.ask("Which?")

    calls = turn("", [call("pay", amount=1), call("pay", amount=2), call("choose")])
    payer = Agent(ScriptedModel([calls, "Paid."]), name="payer", tools=[pay, choose])
    boss = Agent(ScriptedModel([call("payer", input="go"), "Done."]), name="boss", subagents=[payer])
    async with Runner(store) as runner:

        async def listed() -> dict[str, tuple[str, int | None]]:
            items = (await runner.list_tasks()).items
            return {item.agent: (item.state, item.pending) for item in items}

        result = await runner.run(boss, "Go.")
        assert await listed() == {"boss": ("waiting", 0), "payer": ("waiting", 3)}
        first, *_ = pending = (await runner.list_pending(result.task_id)).items
        assert (await runner.list_pending()).items == pending
        for item in pending[:2]:
            await runner.approve(result.task_id, item.request_id)
        await runner.resume(result.task_id)
        assert await listed() == {"boss": ("waiting", 0), "payer": ("waiting", 1)}
        assert len((await runner.list_pending()).items) == 1
        await runner.answer(result.task_id, value="this")
        await runner.resume(result.task_id)
        assert await listed() == {"boss": ("completed", 0), "payer": ("completed", 0)}
        assert first not in (await runner.list_pending()).items


async def test_only_tasks_that_may_wait_for_a_person_are_read_to_list_what_waits(store):
    agent = Agent(ScriptedModel([call("nothing"), "done"]), limits=Limits(steps=1))

    async with Runner(store) as runner:
        for _ in range(3):
            await runner.run(agent, "Go.", options=RunOptions(on_limit="pause"))
        await runner.run(Agent(ScriptedModel([call("pay", amount=1)]), name="payer", tools=[pay]), "Pay.")
    async with Runner(store) as other:
        read = list[str]()
        reads = other.store.read

        async def counted(task_id: str, **more: Any) -> Any:
            read.append(task_id)
            return await reads(task_id, **more)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(other.store, "read", counted)
            (item,) = await other.list_pending()
        assert read == [item.task_id]


async def test_what_waits_is_listed_also_of_a_task_whose_driver_crashed_and_whose_next_claim_failed(store):
    gate = Gate(read_only=True)
    calls = turn("", [call("work"), call("pay", amount=1)])
    payer = Agent(ScriptedModel([calls, "Paid."]), name="payer", tools=[gate.tool, pay])
    again = (
        None
        if isinstance(store, MemoryStore)
        else partial(open_store, store if "://" in str(store) else f"sqlite:///{store}")
    )
    life = MortalStore(store if again is None else again())
    driver = Runner(life)
    running = await driver.start(payer, "Go.", task_id="job")
    await gate.entered.wait()
    await happened(running, "approval_requested")
    [item] = (await driver.list_tasks()).items
    assert (item.driven, item.pending) == (True, None)
    assert [each.request_id for each in await driver.list_pending()] == ["s1-1-ask1"]
    life.die()
    gate.let_go.set()
    with pytest.raises(StoreUnavailable):
        await running.result()
    async with Runner(await next_life(life, again)) as other:
        assert [each.request_id for each in await other.list_pending()] == ["s1-1-ask1"]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(other.store, "read", unreadable)
            with pytest.raises(StoreUnavailable):
                await other.resume("job", agent=payer)
        assert (await other.store.row("job")).driver is None
        assert [each.request_id for each in await other.list_pending()] == ["s1-1-ask1"]
        await other.approve("job")
        assert (await other.resume("job", agent=payer)).final_text == "Paid."
        [item] = (await other.list_tasks()).items
        assert item.pending == 0


async def unreadable(*_: Any, **__: Any) -> Any:
    raise StoreUnavailable("not now")


async def test_a_paused_task_is_listed_with_the_steps_it_has_made(store):
    agent = Agent(ScriptedModel([call("nothing"), "done"]), limits=Limits(steps=1))
    async with Runner(store) as runner:
        await runner.run(agent, "Go.", task_id="job", options=RunOptions(on_limit="pause"))
        [item] = (await runner.list_tasks(state="paused")).items
        assert (item.steps, item.outcome) == (1, "")
        fork = await runner.fork("job")
        [listed] = (await runner.list_tasks(forked_from="job")).items
        assert (listed.task_id, listed.steps) == (fork.task_id, 1)


def test_text_that_no_column_holds_is_replaced_and_long_text_is_cut():
    state = start("t")
    state.input = (Text("a\0b\ud800 " + "x" * 5_000), Image(url="https://e.org/a.png"))
    figures = figures_of(state)
    assert figures.input.startswith("a\ufffdb? x")
    assert len(figures.input) == 120
    assert 500 <= len(figures.text) <= 1_001
    assert content_text(state.input[1:]) == "[image]"
    assert folded(" Straße\n  12 ") == "strasse 12"
