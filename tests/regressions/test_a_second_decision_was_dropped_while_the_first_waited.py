"""A result or decision other than one that waited to be read was acknowledged, and dropped when both were read."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.cast import pay
from treadle import Agent, Runner, ScriptedModel, ToolContext, tool
from treadle.errors import AlreadyDecided
from treadle.llm.scripted import call
from treadle.runner import approvals, background

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def waiting(store: Any, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[tuple[Runner, str]]:
    """Yield a runner, and the ticket of a task whose driver reads nothing."""
    tickets: list[str] = []

    @tool(background=True)
    async def order(ctx: ToolContext[Any]) -> Any:
        """Order."""
        tickets.append(ctx.ticket)
        return ctx.background("it is on its way")

    agent: Agent[Any] = Agent(ScriptedModel([call("order"), "Ordered."]), name="desk", tools=[order])
    async with Runner(store, agents=[agent]) as runner:
        assert (await runner.run(agent, "Go.", task_id="t")).state == "waiting"
        await runner.store.claim("t")
        monkeypatch.setattr(background, "READ_SOON", 0.02)
        yield runner, tickets[0]


async def test_of_two_results_that_wait_the_second_is_refused_if_it_is_another(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with waiting(store, monkeypatch) as (runner, ticket):
        await runner.complete(ticket, {"parcel": 1})
        await runner.complete(ticket, {"parcel": 1}, by="ann")
        with pytest.raises(AlreadyDecided, match="was completed by its ticket already, and differently"):
            await runner.complete(ticket, {"parcel": 2})
        with pytest.raises(AlreadyDecided, match="was completed by its ticket already, and differently"):
            await runner.fail(ticket, "lost")
        await runner.progress(ticket, "at the door")


async def test_a_failure_that_waits_is_not_replaced_by_a_result(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with waiting(store, monkeypatch) as (runner, ticket):
        await runner.fail(ticket, "lost")
        with pytest.raises(AlreadyDecided, match="was failed by its ticket already"):
            await runner.complete(ticket, "found")


async def test_a_request_that_was_approved_cannot_be_denied_before_the_approval_is_read(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent: Agent[Any] = Agent(ScriptedModel([call("pay", amount=3), "Paid."]), name="desk", tools=[pay])
    async with Runner(store, agents=[agent]) as runner:
        (request,) = (await runner.run(agent, "Go.", task_id="t")).pending
        await runner.store.claim("t")
        monkeypatch.setattr(approvals, "READ_SOON", 0.02)
        await runner.approve("t", request.request_id)
        await runner.approve("t", request.request_id, by="ann")
        with pytest.raises(AlreadyDecided, match="another decision on the request"):
            await runner.deny("t", request.request_id)
        with pytest.raises(AlreadyDecided, match="another decision on the request"):
            await runner.approve("t", request.request_id, arguments={"amount": 4})
