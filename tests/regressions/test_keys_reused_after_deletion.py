"""A task with the id of a deleted one had the same idempotency keys, so a service took its calls for old ones."""

import pytest

from tests.runner.acts import until
from treadle import Agent, Runner, ScriptedModel, ToolContext, tool
from treadle.core import events as e
from treadle.core.messages import Text
from treadle.core.rules.fold import fold
from treadle.core.state import start
from treadle.llm.scripted import call
from treadle.testing.audit import Evidence, LedgerEntry, audit_store

pytestmark = pytest.mark.anyio


class Shop:
    """A service that takes a call whose key it knows for one that it has done."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.attempts: list[tuple[str, str]] = []
        self.hangs = False

        @tool(idempotent=True)
        async def order(ctx: ToolContext) -> str:
            self.attempts.append((ctx.task_id, ctx.idempotency_key))
            if self.hangs:
                self.hangs = False
                await until(lambda: False)
            if ctx.idempotency_key in self.keys:
                return "was ordered before"
            self.keys.append(ctx.idempotency_key)
            return "ordered"

        below = Agent(ScriptedModel([call("order"), "Done."]), name="below", tools=[order])
        model = ScriptedModel([call("order") + call("below", input="go"), "Done."])
        self.agent = Agent(model, name="buyer", tools=[order], subagents=[below])


async def test_a_task_with_the_id_of_a_deleted_task_and_its_children_have_other_keys(
    runner: Runner,
) -> None:
    shop = Shop()
    for _ in range(3):
        result = await runner.run(shop.agent, "Buy", task_id="order-7")
        outputs = [execution.output for execution in result.tool_executions]
        assert outputs == ["ordered", "Done.", "ordered"], "the last is the child's"
        await runner.delete_thread(result.thread_id)
    assert len(shop.keys) == 6, "two calls, one of them a child's, of each of three tasks"


async def test_the_keys_of_a_task_are_the_same_on_every_attempt(runner: Runner) -> None:
    shop = Shop()
    shop.hangs = True
    handle = await runner.start(shop.agent, "Buy", task_id="order-7")
    await until(lambda: bool(shop.attempts))
    await handle.interrupt()
    async with Runner(runner.store, agents=[shop.agent]) as other:
        await other.resume("order-7")
    own_keys = [key for task, key in shop.attempts if task == "order-7"]
    assert len(own_keys) == 2
    assert len(set(own_keys)) == 1


async def test_a_fork_keeps_its_shared_results_and_has_separate_keys(runner: Runner) -> None:
    shop = Shop()
    await runner.run(shop.agent, "Buy", task_id="order-7")
    fork = await runner.fork("order-7", at=1)
    await runner.resume(fork, agent=shop.agent)
    assert len(shop.keys) == len(set(shop.keys)) == 4


def test_a_journal_from_before_keeps_its_keys() -> None:
    created = e.TaskCreated("buyer", (Text("Buy"),), "thread")
    created.seq = 1
    state = fold(start("order-7"), [created])
    assert (state.key_of("s1-0"), created.format) == ("order-7/s1-0", 1)


async def test_the_auditor_sees_a_key_that_a_deleted_task_of_the_same_id_used(runner: Runner) -> None:
    shop = Shop()
    await runner.run(shop.agent, "Buy", task_id="order-7")
    old = LedgerEntry("s1-0", shop.keys[0], "idempotent", "start", "order-7", time=1)
    new = LedgerEntry("s1-0", shop.keys[0], "idempotent", "start", "order-7", time=2**60)
    violations = [one.text for one in await audit_store(runner.store, Evidence(ledger=[old, new]))]
    assert violations == [f"s1-0 has the key {shop.keys[0]}, which was used before the task was created"]
    assert await audit_store(runner.store, Evidence(ledger=[new])) == []
