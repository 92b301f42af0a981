"""Which messages of a conversation the model of an agent sees."""

from typing import Any

import pytest

from treadle import Agent, Handoff, Runner, RunOptions, ScriptedModel, without_tool_calls
from treadle.drivers.seen_messages import select_messages
from treadle.models import call
from treadle.ports import ConversationWindow
from treadle.runner.views import driver_of

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("filtered", [False, True])
@pytest.mark.parametrize("tokens", [None, 1_000])
async def test_a_selection_is_made_only_where_not_all_is_seen(filtered: bool, tokens: int | None) -> None:
    second = Agent(ScriptedModel(["done"]), name="second")
    handoff = Handoff(second, filter=without_tool_calls if filtered else None)
    first = Agent(ScriptedModel([call("transfer_to_second")]), name="first", handoffs=[handoff])
    runner, windows = Runner("memory:"), list[Any]()
    result = await runner.run(first, "A question.", options=RunOptions(context_tokens=tokens))
    driver = driver_of(runner)
    state = (await driver.cache.load(result.task_id)).state

    def open_window(conversation: Any) -> ConversationWindow:
        windows.append(conversation)
        return driver._memory.window(conversation)

    runtime = driver.agents.runtime_for(state, second)
    select = select_messages(driver.agents, state, runtime, open_window)
    if not filtered and tokens is None:
        assert select is None
        return
    assert select is not None
    seen = list(select(()))
    assert seen[-1] == state.messages[-1]
    assert (seen == state.messages) == (not filtered)
    assert len(windows) == (tokens is not None)
    assert all((conversation is state) == (not filtered) for conversation in windows)
