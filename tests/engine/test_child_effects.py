"""What a child has changed is read from its own journal, and from those of the tasks below it."""

from typing import Any

import pytest

from tests.cast import pay, save
from treadle import Agent, Runner, ScriptedModel
from treadle.engine.undo_plan import harmless_children
from treadle.models import call, text

pytestmark = pytest.mark.anyio


def above(child: Agent[Any], name: str) -> Agent[Any]:
    return Agent(ScriptedModel([call(child.name, input="go"), text("done")]), name=name, subagents=[child])


@pytest.mark.parametrize(("first", "harmless"), [([], {"s1-0"}), ([call("save", note="x")], set[str]())])
async def test_a_child_is_harmless_if_no_task_below_it_has_changed_anything(
    runner: Runner, first: list[Any], harmless: set[str]
) -> None:
    payer = Agent(
        ScriptedModel([*first, call("pay", amount=1), text("done")]), name="payer", tools=[pay, save]
    )
    top = above(above(payer, "middle"), "top")
    assert (await runner.run(top, "go", task_id="t")).state == "waiting"
    state = (await runner._driver.cache.load("t")).state
    assert await harmless_children(runner.store, state) == harmless
