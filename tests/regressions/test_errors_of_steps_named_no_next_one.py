"""Errors about steps said "(there is none)", named no next step, and left brackets in code; one verb had no undo."""

from typing import Any

import pytest

from treadle import Agent, Runner, ScriptedModel
from treadle.core.foreign_names import ATTRIBUTES
from treadle.errors import StepNotFound, WrongArguments
from treadle.tools import langchain_tools

pytestmark = pytest.mark.anyio


async def test_a_wrong_step_names_the_next_one() -> None:
    async with Runner("memory:") as runner:
        task = await runner.create_task(Agent(ScriptedModel(["Hi."])), "?")
        with pytest.raises(StepNotFound, match=r"'zz' is not the next step; next: 's1'$"):
            await runner.run_step(task, step="zz")


async def test_an_undo_without_a_step_says_why() -> None:
    async with Runner("memory:") as runner:
        task = await runner.create_task(Agent(ScriptedModel(["Hi."])), "?")
        with pytest.raises(StepNotFound, match=r"no step to take back: none has begun$"):
            await runner.undo_step(task)


def test_hints_without_asyncio_have_no_brackets_left() -> None:
    hints = ATTRIBUTES["runner.sync"]
    assert hints["get_task_output"].endswith("`runner.sync.get_completed_steps(task)[-1]`")
    assert [hint for hint in hints.values() if "(runner.sync." in hint] == []


def test_an_undo_of_a_tool_of_another_library_is_a_function() -> None:
    adapter: Any = langchain_tools
    with pytest.raises(WrongArguments, match=r"`@tool\(undo=function, reconcile=function\)`"):
        adapter(undo=print)
