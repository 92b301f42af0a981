"""An undo was refused because of a child that had changed nothing: it was interrupted, or waited for a person.

Forced, the same undo reported that there was nothing to compensate.
"""

import asyncio
from typing import Any

import pytest

from treadle import Agent, Runner, ScriptedModel, tool
from treadle.errors import IrreversibleStep
from treadle.models import call, text

pytestmark = pytest.mark.anyio


class Thinker(ScriptedModel):
    """A model that says when it was asked, and never answers."""

    def __init__(self) -> None:
        super().__init__([text("never")])
        self.asked = asyncio.Event()

    async def stream(self, request: Any) -> Any:
        self.asked.set()
        await asyncio.Event().wait()
        yield None


@tool
def save() -> str:
    """Save."""
    return "saved"


@tool(needs_approval=True)
def pay() -> str:
    """Pay."""
    return "paid"


def above(child: Agent[Any], name: str = "top") -> Agent[Any]:
    calls = [call(child.name, input="go"), text("done")]
    return Agent(ScriptedModel(calls), name=name, subagents=[child])


def seen(report: Any) -> list[tuple[str, str]]:
    return [(undone.tool, undone.verdict) for undone in report.calls]


@pytest.mark.parametrize("deep", [False, True], ids=["child", "grandchild"])
async def test_an_undo_takes_back_a_child_that_was_interrupted_while_it_thought(
    store: Any, deep: bool
) -> None:
    model = Thinker()
    child = Agent(model, name="thinker", tools=[save])
    top = above(above(child, "middle")) if deep else above(child)
    async with Runner(store, agents=[top]) as runner:
        handle = await runner.start(top, "go", task_id="t")
        await model.asked.wait()
        await handle.interrupt()
        name = "middle" if deep else "thinker"
        foreseen = await runner.undo_step("t", to=0, dry_run=True)
        assert (foreseen.complete, seen(foreseen)) == (True, [(name, "nothing_to_compensate")])
        report = await runner.undo_step("t", to=0)
        assert (report.complete, seen(report)) == (True, [(name, "nothing_to_compensate")])


async def test_an_undo_takes_back_a_child_that_waits_for_an_approval(store: Any) -> None:
    top = above(Agent(ScriptedModel([call("pay"), text("done")]), name="payer", tools=[pay]))
    async with Runner(store, agents=[top]) as runner:
        assert (await runner.run(top, "go", task_id="t")).state == "waiting"
        report = await runner.undo_step("t", to=0)
        assert seen(report) == [("payer", "nothing_to_compensate")]


async def test_an_undo_is_refused_for_a_child_that_wrote_before_it_waited(store: Any) -> None:
    model = ScriptedModel([call("save"), call("pay"), text("done")])
    top = above(Agent(model, name="payer", tools=[save, pay]))
    async with Runner(store, agents=[top]) as runner:
        assert (await runner.run(top, "go", task_id="t")).state == "waiting"
        with pytest.raises(IrreversibleStep):
            await runner.undo_step("t", to=0)
        report = await runner.undo_step("t", to=0, force=True)
        assert seen(report) == [("payer", "not_compensated")]
