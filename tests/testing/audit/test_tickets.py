"""The auditor counts how often a conversation holds the result of a call in the background."""

from collections.abc import Sequence
from typing import Any

import pytest

from tests.agents.stories import CREATED, answered, began, numbered, step
from treadle import Agent, Runner, ScriptedModel, ToolContext, tool
from treadle.core import events as e
from treadle.core.rules.fold import fold
from treadle.core.state import TaskState, start
from treadle.llm.scripted import call, text
from treadle.testing.audit import audit_store
from treadle.testing.audit.tickets import delivered_once

pytestmark = pytest.mark.anyio


async def test_the_same_result_in_an_earlier_task_of_the_thread_was_counted_as_a_second_delivery() -> None:
    tickets: list[str] = []

    @tool(background=True, idempotent=True)
    async def render(ctx: ToolContext[Any]) -> Any:
        """Render a film."""
        tickets.append(ctx.ticket)
        return ctx.background({"job": 1}, expires=60)

    model = ScriptedModel([call("render"), text("started"), text("it is there")] * 2)
    agent = Agent(model, name="films", tools=[render])
    async with Runner("memory:", agents=[agent]) as runner:
        for name in ("first", "second"):
            await runner.run(agent, "a film", thread_id="films", task_id=name)
            await runner.complete(tickets[-1], "the film")
            assert (await runner.resume(name)).final_text == "it is there"
        await runner.fork("second")
        assert await audit_store(runner.store) == []


def after_two_results(outputs: Sequence[str]) -> TaskState:
    """Return a task whose second step read the results of two calls in the background, which guardrails rewrote."""
    events: list[e.Event] = numbered(CREATED, step(), answered("put", "put"))
    for place in range(2):
        call = f"s1-{place}"
        events += [e.TicketIssued("s1", call, call), began(place, name="put"), e.CallDeferred("s1", call, 99)]
    events.append(e.StepCompleted("s1"))
    for place, output in enumerate(outputs):
        call = f"s1-{place}"
        events += [e.TicketCompleted("s1", call, "film"), e.ToolEnded("s1", call, "ok", "film")]
        came = f"in{len(events)}"
        rewritten = e.GuardrailJudged("", came, "result", "rewrite", "rule", "why", {"text": output})
        events += [rewritten, e.GuardrailJudged("", came, "result", "allow")]
    return fold(start("t"), numbered(*events, e.StepStarted("s2", 2)))


@pytest.mark.parametrize("outputs", [("short", "long"), ("short", "short")])
def test_results_that_guardrails_made_alike_are_each_delivered_once(outputs: Sequence[str]) -> None:
    state = after_two_results(outputs)
    assert list(delivered_once("t", 1, state)) == []
    again = state.messages[-1]
    state.messages = [*state.messages, again]
    assert {violation.name for violation in delivered_once("t", 1, state)} == {"delivered_once"}
