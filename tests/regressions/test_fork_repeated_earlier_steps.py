"""A fork in the middle of a task ran the task again from its start."""

from pathlib import Path

import pytest

from treadle import Agent, Runner, ScriptedModel, tool
from treadle.llm.scripted import call, text
from treadle.testing.crash.instrumented import watched
from treadle.testing.ledger import Ledger

pytestmark = pytest.mark.anyio


@tool
async def save(n: int) -> str:
    return f"saved {n}"


@pytest.mark.parametrize("store", ["memory:", "journal.db"])
async def test_a_fork_after_the_third_step_starts_no_call_of_the_first_three(
    store: str, tmp_path: Path
) -> None:
    ledger = Ledger(tmp_path / "ledger", durable=False)
    script = [*(call("save", n=n) for n in range(4)), text("so")]
    agent = watched(Agent(ScriptedModel(script), tools=[save]), ledger)
    async with Runner(store if store == "memory:" else tmp_path / store, agents=[agent]) as runner:
        parent = await runner.run(agent, "go")
        fork = await runner.fork(parent.task_id, at="s3")
        assert (await runner.resume(fork)).final_text == "so"
    started = [(line.task == fork.task_id, line.call) for line in ledger.entries() if line.kind == "start"]
    assert [name for is_own, name in started if not is_own] == ["s1-0", "s2-0", "s3-0", "s4-0"]
    assert len([name for is_own, name in started if is_own]) == 1
