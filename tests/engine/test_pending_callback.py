"""A user's own front end is told of requests for approval, and may decide while the task is being driven."""

import asyncio
from typing import Any

import pytest

from treadle import Agent, Runner, RunOptions, ScriptedModel, tool
from treadle.core.events import ApprovalRequested
from treadle.engine.pending_callback import PendingCallback
from treadle.errors import ConfigurationError
from treadle.llm.scripted import call
from treadle.testing import clock

pytestmark = pytest.mark.anyio

PAID: list[int] = []


@tool(needs_approval=True)
def pay(amount: int) -> str:
    """Pay."""
    PAID.append(amount)
    return "paid"


@pytest.fixture(autouse=True)
def nothing_paid() -> None:
    PAID.clear()


def payer(**more: Any) -> Agent[Any]:
    calls = [call("pay", amount=1), call("pay", amount=2)]
    return Agent(ScriptedModel([calls, "Done."]), name="payer", tools=[pay], **more)


async def approve_small(pending: Any, handle: Any) -> None:
    assert handle.task_id == pending.task_id
    if pending.arguments["amount"] == 1:
        await handle.approve(pending.request_id, by="bot")
    else:
        await handle.deny(pending.request_id, reason="too much")


async def test_a_function_that_decides_at_once_lets_the_run_go_on_to_its_end() -> None:
    async with Runner("memory:", on_pending=approve_small) as runner:
        result = await runner.run(payer(), "Go.")
    assert [each.outcome for each in result.tool_executions] == ["ok", "denied"]
    assert (result.state, PAID) == ("completed", [1])


async def test_a_function_that_leaves_it_to_others_lets_the_task_rest_and_is_told_once() -> None:
    told: list[str] = []

    async def note(pending: Any, handle: Any) -> None:
        told.append(pending.request_id)

    async with Runner("memory:", on_pending=note) as runner:
        result = await runner.run(payer(), "Go.")
        assert (result.state, sorted(told)) == ("waiting", ["s1-0-ask1", "s1-1-ask1"])
        await runner.approve(result.task_id, "s1-0-ask1")
        assert (await runner.resume(result.task_id)).state == "waiting"
    assert (PAID, len(told)) == ([1], 2)


async def test_a_function_is_told_in_the_order_of_the_calls_also_if_an_earlier_one_is_judged_for_longer() -> (
    None
):
    """Judgements read the store beside each other, and so end in any order."""
    told, is_judged = list[str](), asyncio.Event()

    async def decide(amount: int) -> bool:
        if amount == 2:
            await is_judged.wait()
        return True

    @tool(needs_approval=decide)
    def lend(amount: int) -> str:
        """Lend."""
        return "lent"

    async def note(pending: Any, handle: Any) -> None:
        told.append(pending.request_id)

    calls = [call("lend", amount=amount) for amount in (1, 2, 3)]
    lender: Agent[Any] = Agent(ScriptedModel([calls, "Done."]), name="lender", tools=[lend])
    async with Runner("memory:", on_pending=note) as runner:
        handle = await runner.start(lender, "Go.")
        async with asyncio.timeout(10):
            async for event in handle.events():
                if isinstance(event, ApprovalRequested) and event.call == "s1-2":
                    is_judged.set()
            assert (await handle.result()).state == "waiting"
    assert told == ["s1-0-ask1", "s1-1-ask1", "s1-2-ask1"]


async def test_a_request_whose_record_was_durable_sooner_overtook_the_one_before_it() -> None:
    told, is_durable = list[str](), asyncio.Event()
    waits = iter((is_durable.wait, asyncio.Event().set))

    async def note(item: Any) -> None:
        told.append(item.request_id)

    async def durable() -> None:
        waited = next(waits)()
        if waited is not None:
            await waited

    async with Runner("memory:") as runner:
        made = await runner.run(payer(), "Go.")
        state = (await runner._driver.cache.load(made.task_id)).state
        callbacks = PendingCallback(note).of(state, durable, lambda: None)
        callbacks.begin(())
        await asyncio.sleep(0.02)
        is_durable.set()
        await asyncio.wait(callbacks.running)
    assert told == ["s1-0-ask1", "s1-1-ask1"]


async def test_a_function_is_told_of_what_a_child_waits_for() -> None:
    above = Agent(ScriptedModel([call("payer", input="pay"), "End."]), name="above", subagents=[payer()])
    async with Runner("memory:", on_pending=approve_small) as runner:
        assert (await runner.run(above, "Go.")).final_text == "End."
    assert PAID == [1]


async def test_a_function_that_raises_leaves_the_request_open(caplog: pytest.LogCaptureFixture) -> None:
    async def fail(pending: Any, handle: Any) -> None:
        raise RuntimeError("no network")

    async with Runner("memory:", on_pending=fail) as runner:
        assert (await runner.run(payer(), "Go.")).state == "waiting"
    assert "on_pending failed for the request s1-0-ask1" in caplog.text


async def test_a_task_whose_function_waits_is_cancelled_at_once() -> None:
    entered = asyncio.Event()

    async def wait(pending: Any, handle: Any) -> None:
        entered.set()
        await asyncio.sleep(60)

    async with Runner("memory:", on_pending=wait) as runner:
        handle = await runner.start(payer(), "Go.")
        await entered.wait()
        async with asyncio.timeout(10):
            assert (await handle.cancel()).state == "cancelled"
    assert PAID == []


def test_a_request_expires_while_its_function_waits() -> None:
    async def wait(pending: Any, handle: Any) -> None:
        await asyncio.sleep(7_200)

    async def work() -> Any:
        async with clock.runner(on_pending=wait) as runner:
            return await runner.run(payer(), "Go.", options=RunOptions(approval_expires=3_600))

    result = clock.run(work())
    assert [each.outcome for each in result.tool_executions] == ["denied", "denied"]


def test_a_function_that_is_not_async_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="on_pending must be an async function"):
        Runner("memory:", on_pending=print)  # type: ignore[arg-type]
