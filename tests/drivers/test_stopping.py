"""Stopping a task: the state that is returned is that of the moment at which the request was reached."""

import asyncio
from typing import Any

import pytest

from tests.cast import Gate, sayer
from treadle import Agent, Runner, ScriptedModel
from treadle.core import events as e
from treadle.drivers.stopping import Fate, fate_of
from treadle.llm.scripted import call, text
from treadle.ports import Claim
from treadle.stores.memory import MemoryStore

pytestmark = pytest.mark.anyio


class CountingClaims(MemoryStore):
    """A store that counts the claims on its tasks."""

    claims = 0

    async def claim(self, task_id: str, *, enter: bool = False) -> Claim:
        self.claims += 1
        return await super().claim(task_id, enter=enter)


async def test_a_task_at_rest_is_stopped_by_the_caller() -> None:
    async with Runner("memory:") as runner:
        task_id = (await runner.create_task(sayer(), "go")).task_id
        state = await runner._driver.stopper.stop(task_id, "pause", {"by": "ada", "reason": "lunch"})
        assert (state.pausing, state.stop_reason) == (True, "lunch")


async def test_a_task_that_has_ended_is_returned_as_it_ended() -> None:
    async with Runner("memory:") as runner:
        result = await runner.run(sayer(), "go")
        state = await runner._driver.stopper.stop(result.task_id, "cancel", {})
        assert state.ended == "completed"


async def test_a_task_that_another_runner_drives_is_cancelled_without_a_try_to_claim_it() -> None:
    store, gate = CountingClaims(), Gate()
    agent = Agent(ScriptedModel([call("work"), text("never")]), name="worker", tools=[gate.tool])
    async with Runner(store) as one:
        other: Any = Runner(store)
        handle = await one.start(agent, "go")
        await asyncio.wait_for(gate.entered.wait(), 5)
        claims = store.claims
        state = await other._driver.stopper.stop(handle.task_id, "cancel", {"by": "ada", "reason": None})
        assert state.ended == "cancelled"
        assert store.claims == claims


# -------------- whether a request to cancel, pause or interrupt was obeyed, by the events since it was sent


PAUSE = e.PauseRequested(inbox="i", seq=6)
ENDED = e.TaskEnded("completed", seq=9)
RESUMED = e.Resumed(seq=8)


def test_a_request_without_an_event_is_unrecorded() -> None:
    assert fate_of("i", [e.ToolStarted("s1", "s1-0", seq=5), RESUMED, ENDED]) == Fate("unrecorded")


def test_a_recorded_request_is_in_force_until_it_is_lifted_or_the_task_ends() -> None:
    assert fate_of("i", [PAUSE]) == Fate("in_force")
    assert fate_of("i", [RESUMED, PAUSE]) == Fate("in_force")
    assert fate_of("i", [PAUSE, RESUMED, ENDED]) == Fate("lifted", 7)
    assert fate_of("i", [PAUSE, ENDED]) == Fate("ended", 9)


def test_a_cancel_is_not_lifted_and_may_be_refused() -> None:
    cancel = e.CancelRequested(inbox="i", seq=6)
    assert fate_of("i", [cancel, RESUMED]) == Fate("in_force")
    assert fate_of("i", [e.CommandRejected("pause", "cancelled", "i", seq=6)]) == Fate("refused")
