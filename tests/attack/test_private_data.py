"""What a model has seen of private data stays known to a policy: no path to a later task, or to a fork, loses it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from treadle import Agent, Allow, Policy, Rule, Runner, ScriptedModel, tool
from treadle.models import call
from treadle.policy.verdicts import EffectRequest

pytestmark = pytest.mark.anyio

SENT = list[str]()


@tool(sends=True)
def send(to: str) -> str:
    """Send a mail."""
    SENT.append(to)
    return "sent"


@tool(read_only=True, private=True, trusted=True)
def salaries() -> str:
    """Return the salaries."""
    return "Ann: 7000"


def unless_private(request: EffectRequest) -> Allow | None:
    return None if "private" in request.exposed else Allow("nothing private")


POLICY = Policy.strict(Rule("nothing-private", unless_private, tool="send"))
Path_ = Callable[[Runner, bool], Awaitable[None]]


def reader(*, reads: bool = True) -> Agent:
    return Agent(
        ScriptedModel([call("salaries"), "7000."] if reads else ["Hm."]), name="reader", tools=[salaries]
    )


def sender(*before: str) -> Agent:
    return Agent(ScriptedModel([*before, call("send", to="ann"), "Done."]), name="sender", tools=[send])


async def later_task_of_the_thread(runner: Runner, reads: bool) -> None:
    await runner.run(reader(reads=reads), "read", thread_id="t")
    await runner.run(sender(), "send", thread_id="t")


async def later_task_that_waited_for_its_thread(runner: Runner, reads: bool) -> None:
    first = await runner.create_task(reader(reads=reads), "read", thread_id="t")
    second = await runner.create_task(sender(), "send", thread_id="t")
    await runner.resume(first.task_id)
    await runner.resume(second.task_id)


async def subagent_of_an_earlier_task(runner: Runner, reads: bool) -> None:
    model = ScriptedModel([call("reader", input="read"), "Done."])
    boss = Agent(model, name="boss", subagents=[reader(reads=reads)])
    await runner.run(boss, "go", thread_id="t")
    await runner.run(sender(), "send", thread_id="t")


async def summary_of_the_thread(runner: Runner, reads: bool) -> None:
    await runner.run(reader(reads=reads), "read", thread_id="t")
    await runner.run(Agent(ScriptedModel(["Hm."]), name="other"), "hm", thread_id="t")
    report = await runner.compact_thread("t", keep=1, model=ScriptedModel(["A summary."]))
    assert report.complete
    await runner.run(sender(), "send", thread_id="t")


async def fork_for_another_agent(runner: Runner, reads: bool) -> None:
    first = await runner.run(reader(reads=reads), "read")
    forked = await runner.fork(first.task_id, at="s1", input="send", agent=sender("said before"))
    await runner.resume(forked.task_id)


async def fork_in_a_thread_of_its_own(runner: Runner, reads: bool) -> None:
    await runner.run(reader(reads=reads), "read", thread_id="a")
    second = await runner.run(Agent(ScriptedModel(["Hm."]), name="other"), "hm", thread_id="a")
    forked = await runner.fork(
        second.task_id, thread_id="t", agent=Agent(ScriptedModel(["Hm."]), name="third")
    )
    await runner.resume(forked.task_id)
    await runner.run(sender(), "send", thread_id="t")


PATHS: list[Path_] = [
    later_task_of_the_thread,
    later_task_that_waited_for_its_thread,
    subagent_of_an_earlier_task,
    summary_of_the_thread,
    fork_for_another_agent,
    fork_in_a_thread_of_its_own,
]


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.__name__)
@pytest.mark.parametrize("reads", [True, False], ids=["private", "nothing"])
async def test_what_was_sent_after_private_data_was_forgotten(
    path: Path_, reads: bool, tmp_path: Path
) -> None:
    SENT.clear()
    async with Runner(tmp_path / "journal.db", policy=POLICY) as runner:
        await path(runner, reads)
        waiting = [each.tool for each in await runner.list_pending()]
    if reads:
        assert (SENT, waiting) == ([], ["send"])
    else:
        assert (SENT, waiting) == (["ann"], [])
