"""Async calls that ignore their cancellation are abandoned, listed and counted, and their number is limited."""

import asyncio

import pytest

from tests.runner.acts import until
from treadle import Agent, Runner, ScriptedModel, tool
from treadle.core.abandoned import MAX_ABANDONED
from treadle.engine import abandoned, in_flight
from treadle.models import call, text

pytestmark = pytest.mark.anyio


async def test_calls_that_ignore_two_cancellations_are_named_until_they_end_and_too_many_refuse_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(in_flight, "GRACE", 0.02)
    monkeypatch.setattr(in_flight, "INSIST", 0.02)
    begun, end = list[str](), asyncio.Event()

    @tool(read_only=True)
    async def stubborn() -> str:
        """Ignore every cancellation."""
        begun.append("begun")
        while not end.is_set():
            try:
                await end.wait()
            except asyncio.CancelledError:
                continue
        return "at last"

    @tool(read_only=True)
    async def greet() -> str:
        """Greet."""
        return "hello"

    def turns(request):
        name = "greet" if request.task_id == "late" else "stubborn"
        return call(name) if request.turn == 0 else text("Done.")

    agent = Agent(ScriptedModel(turns), name="mule", tools=[stubborn, greet])
    async with Runner("memory:", agents=[agent]) as runner:
        try:
            handles = [await runner.start(agent, "Go", task_id=f"t{n}") for n in range(MAX_ABANDONED)]
            await until(lambda: len(begun) == MAX_ABANDONED)
            results = await asyncio.gather(*[handle.cancel() for handle in handles])
            assert {result.state for result in results} == {"cancelled"}
            assert {result.tool_executions[0].outcome for result in results} == {"abandoned"}
            left = runner.abandoned
            assert sorted((c.name, c.task_id, c.call_id) for c in left) == sorted(
                ("stubborn", f"t{n}", "s1-0") for n in range(MAX_ABANDONED)
            )
            refused = (await runner.run(agent, "Go", task_id="late")).tool_executions[0]
            assert refused.outcome == "error"
            assert "16 calls that ignored their cancellation still run (stubborn)" in refused.error.message
            end.set()
            await until(lambda: runner.abandoned == ())
            assert (await runner.run(agent, "Go", task_id="t-next")).tool_executions[0].outcome == "ok"
        finally:
            end.set()  # or what fails here would hang


def test_an_abandoned_call_in_a_closed_event_loop_is_not_listed() -> None:
    loop = asyncio.new_event_loop()
    work = loop.create_task(asyncio.sleep(60))
    loop.run_until_complete(asyncio.sleep(0))
    abandoned.give_up(work, "deaf", "closed", "s1-0")
    assert "closed" in [call.task_id for call in abandoned.still_running()]
    loop.close()
    assert "closed" not in [call.task_id for call in abandoned.still_running()]
