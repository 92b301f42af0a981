"""Answers that are lost, and requests that come again at another server: one task, one fork, one command, one step."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.client.served import LosingProxy, client, served
from treadle import Agent, RunOptions, ScriptedModel, tool
from treadle.client import connection
from treadle.llm.scripted import call, text

pytestmark = pytest.mark.anyio
RAN: Counter[str] = Counter()


@tool
def note(line: str) -> str:
    """Write a line down; nothing undoes that."""
    RAN[line] += 1
    return "noted"


def agent() -> Agent[Any, str]:
    script = [call("note", line="first"), call("note", line="second"), text("Noted."), text("Once more.")]
    return Agent(ScriptedModel(script), name="clerk", tools=[note])


@pytest.mark.parametrize(
    "losses", [1, pytest.param(4, marks=pytest.mark.full), pytest.param(9, marks=pytest.mark.full)]
)
async def test_nothing_is_done_twice_when_answers_are_lost(
    losses: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(connection, "LONGEST_PAUSE", 0.05)
    RAN.clear()
    store = f"sqlite:///{tmp_path}/journal.db"
    with served(agent(), store=store) as one, served(agent(), store=store) as other:
        proxy = LosingProxy(one, other)
        async with proxy as url, client(url, patience=30) as remote:

            def losing() -> None:
                proxy.losses = losses

            name: Any = "clerk"
            losing()
            task = await remote.create_task(name, "Note it.", options=RunOptions(labels={"lost": "answers"}))
            losing()
            await remote.send(task, "And this.", role="observation")
            losing()
            assert (await remote.run_step(task)).step.index == 1
            losing()
            assert (await remote.run_step(task, input="Go on.")).step.index == 2
            losing()
            fork = await remote.fork(task, at=1)
            losing()
            report = await remote.undo_step(task, force=True)
            assert report.steps == ("s2",)
            losing()
            assert (await remote.cancel(task, reason="enough")).state == "cancelled"
            proxy.losses = 0

            assert RAN == {"first": 1, "second": 1}
            ids = {item.task_id async for item in await remote.list_tasks()}
            assert ids == {task.task_id, fork.task_id}
            kinds = Counter([event.kind async for event in await remote.get_events(task.task_id, limit=200)])
            assert (kinds["input_received"], kinds["step_completed"], kinds["rewound"]) == (2, 2, 1)
            assert (kinds["cancel_requested"], kinds["task_ended"], kinds["command_rejected"]) == (1, 1, 0)
    assert proxy.lost == 7 * losses
