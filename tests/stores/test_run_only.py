"""A store that only runs tasks: what a runner does with it, and what it says of the methods that it lacks."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.cast import calculator, sayer
from treadle import Agent, Policy, Rule, Runner, RunOptions, ScriptedModel, tool
from treadle.errors import ConfigurationError, TaskNotFound
from treadle.llm.scripted import call
from treadle.ports import JournalStore, TaskStore
from treadle.stores.memory import MemoryStore
from treadle.testing.conformance.store import StoreConformance

pytestmark = pytest.mark.anyio


class Part:
    """A store by duck typing that has some methods of a store in memory."""

    def __init__(self, names: frozenset[str]) -> None:
        self._names, self._inside = names, MemoryStore()

    def __getattr__(self, name: str) -> Any:
        if name not in self._names:
            raise AttributeError(name)
        return getattr(self._inside, name)


def run_only() -> Any:
    return Part(TaskStore.__abstractmethods__)


@tool(needs_approval=True, idempotent=True)
async def pay(amount: int) -> str:
    """Pay an amount."""
    return f"paid {amount}"


def payer() -> Agent[Any]:
    return Agent(ScriptedModel([call("pay", amount=3), "Done."]), name="payer", tools=[pay])


class TestRunOnlyStore(StoreConformance):
    def make(self, place: Path) -> Any:
        return run_only()


async def test_a_store_that_only_runs_tasks_needs_thirteen_methods_and_two_properties():
    properties = {
        name for name in TaskStore.__abstractmethods__ if isinstance(getattr(TaskStore, name), property)
    }
    assert properties == {"url", "fenced"}
    assert len(TaskStore.__abstractmethods__ - properties) == 13


async def test_it_runs_steps_threads_approvals_and_undoes():
    async with Runner(run_only(), agents=[calculator(), payer()]) as runner:
        first = await runner.run(calculator(), "?", thread_id="talk")
        assert first.output == "405"
        await runner.run(sayer(), "And?", thread_id="talk")
        assert len(await runner.get_thread("talk")) > 4
        task = await runner.create_task(calculator(), "?")
        assert not (await runner.run_step(task)).is_last
        await runner.undo_step(task)
        assert (await runner.resume(task)).output == "405"
        assert (await runner.get_task(task)).state == "completed"
        paid = await runner.run(payer(), "Pay.")
        assert paid.state == "waiting"
        await runner.approve(paid.task_id)
        assert (await runner.resume(paid.task_id)).output == "Done."
        fork = await runner.fork(first.task_id, at=2)
        assert (await runner.resume(fork)).output == "405"


async def test_it_has_its_tasks_adopted():
    store = run_only()
    async with Runner(store) as sender, Runner(store, agents=[calculator()], adopt=True):
        task = await sender.submit(calculator(), "?")
        async with asyncio.timeout(10):
            while (await sender.get_task(task)).state != "completed":  # noqa: ASYNC110  it has no driver to wait for
                await asyncio.sleep(0.01)
        assert (await sender.result(task)).output == "405"


@pytest.mark.parametrize(
    ("verb", "method"),
    [
        ("list_tasks", "rows"),
        ("list_threads", "threads"),
        ("list_grants", "grants"),
        ("usage", "usage"),
        ("verify", "snapshot"),
    ],
)
async def test_a_verb_that_needs_more_names_the_method(verb: str, method: str):
    async with Runner(run_only()) as runner:
        with pytest.raises(ConfigurationError, match=rf"the store Part has no method {method}\b"):
            await getattr(runner, verb)()


async def test_what_it_could_not_keep_is_refused_before_anything_runs():
    policy = Policy(Rule("pay", "ask", tool="pay"))
    async with Runner(run_only(), policy=policy) as runner:
        paid = await runner.run(payer(), "Pay.")
        with pytest.raises(ConfigurationError, match="needs a store with a method grants"):
            await runner.approve(paid.task_id, scope="always")
        with pytest.raises(ConfigurationError, match="needs a store with a method delete"):
            await runner.run(sayer(), "?", options=RunOptions(delete_on_finish=True))
        with pytest.raises(TaskNotFound, match="no task 'missing'"):
            await runner.get_task("missing")


@pytest.mark.parametrize("name", sorted(TaskStore.__abstractmethods__ - {"commit"}))
def test_a_store_that_lacks_a_method_of_running_is_refused_by_its_name(name: str):
    with pytest.raises(ConfigurationError, match=rf"Part lacks methods that running tasks needs: {name} "):
        Runner(Part(JournalStore.__abstractmethods__ - {name}))


def test_all_missing_methods_are_named():
    with pytest.raises(ConfigurationError, match="claim, post, watch"):
        Runner(Part(TaskStore.__abstractmethods__ - {"claim", "post", "watch"}))


def test_a_whole_store_is_used_as_it_is():
    store = MemoryStore()
    assert Runner(store).store is store


def test_an_attribute_of_its_own_is_found_and_an_unknown_one_is_not():
    store = Runner(run_only()).store
    assert store.url.startswith("memory:")
    with pytest.raises(AttributeError):
        store.colour  # noqa: B018
    assert not hasattr(store, "rows")
