"""What waits for a person, a page at a time."""

import asyncio
import time
from typing import Any

import pytest

from tests.cast import pay
from treadle import Agent, Runner, ScriptedModel
from treadle.engine import time_slice
from treadle.errors import ConfigurationError
from treadle.llm.scripted import turn
from treadle.models import call
from treadle.results.pending import Pending
from treadle.stores.memory import MemoryStore

pytestmark = pytest.mark.anyio


def payer(calls: int) -> Agent:
    return Agent(ScriptedModel([turn("", [call("pay", amount=n) for n in range(calls)])]), tools=[pay])


def ids(items: Any) -> list[tuple[str, str]]:
    return [(item.task_id, item.request_id) for item in items]


async def test_pages_split_the_requests_of_tasks_and_tell_each_once(store: Any):
    async with Runner(store) as runner:
        for number, calls in enumerate((3, 1, 5, 2)):
            await runner.run(payer(calls), "Pay.", task_id=f"task/{number}")
        whole = await runner.list_pending()
        assert (len(whole.items), whole.cursor) == (11, None)
        assert [item.task_id for item in whole] == [
            *["task/3"] * 2,
            *["task/2"] * 5,
            "task/1",
            *["task/0"] * 3,
        ]
        for limit in range(1, 12):
            page, pages = await runner.list_pending(limit=limit), list[tuple[Pending, ...]]()
            pages.append(page.items)
            while page.cursor is not None:
                page = await runner.list_pending(limit=limit, cursor=page.cursor)
                pages.append(page.items)
            assert [len(items) for items in pages[:-1]] == [limit] * (len(pages) - 1)
            assert pages[-1], "no page is empty"
            assert [item for items in pages for item in items] == list(whole.items)
        of_one = await runner.list_pending("task/2", limit=2)
        assert [item async for item in of_one] == list(whole.items[2:7])
        async with Runner(store) as other:
            assert [item async for item in await other.list_pending(limit=4)] == list(whole.items)


async def test_requests_that_are_decided_from_page_to_page_hide_no_other(store: Any):
    async with Runner(store) as runner:
        for number in range(2):
            await runner.run(payer(5), "Pay.", task_id=f"task/{number}")
        every = ids(await runner.list_pending())
        seen = list[tuple[str, str]]()
        async for item in await runner.list_pending(limit=2):
            seen += ids([item])
            await runner.approve(item.task_id, item.request_id)
        assert seen == every
        assert (await runner.list_pending()).items == ()


async def test_a_deleted_task_at_the_end_of_a_page_hides_no_other(store: Any):
    async with Runner(store) as runner:
        for number in range(3):
            await runner.run(payer(2), "Pay.", task_id=f"task/{number}")
        first = await runner.list_pending(limit=3)
        assert ids(first)[-1][0] == "task/1"
        await runner.delete_task("task/1")
        rest = [item async for item in await runner.list_pending(cursor=first.cursor)]
        assert [item.task_id for item in rest] == ["task/0"] * 2


async def test_pages_of_a_tree_name_its_tasks_in_one_order(store: Any):
    leaf = Agent(payer(3).model, name="leaf", tools=[pay])
    root = Agent(ScriptedModel([call("leaf", input="go")]), name="root", subagents=[leaf])
    async with Runner(store) as runner:
        result = await runner.run(root, "Go.")
        page = await runner.handle(result.task_id).list_pending(limit=2)
        assert page.cursor is not None
        child = f"{result.task_id}.s1-0"
        assert ids([item async for item in page]) == [(child, f"s1-{n}-ask1") for n in range(3)]
        scoped = runner.scoped(tenant="acme")
        await scoped.run(payer(3), "Pay.", task_id="theirs")
        assert {item.task_id async for item in await scoped.list_pending(limit=2)} == {"theirs"}
        assert "theirs" not in {item.task_id async for item in await runner.list_pending(limit=2)}


async def test_a_cursor_that_no_page_gave_is_refused(store: Any):
    async with Runner(store) as runner:
        for cursor in ("", "x", "x/s1-0-ask1", "1.\0/s1-0-ask1", "9" * 5_000 + ".x/", "9" * 30 + ".x/"):
            with pytest.raises(ConfigurationError, match="cursor must be the cursor of the previous page"):
                await runner.list_pending(cursor=cursor)
        with pytest.raises(ConfigurationError, match="limit must be 1 to"):
            await runner.list_pending(limit=0)


async def test_a_list_of_hundreds_of_requests_lets_other_work_run_after_each_slice(
    monkeypatch: pytest.MonkeyPatch,
):
    """With slices of no length, other work gets a turn after each task; none is held longer than its task takes."""
    store, tasks, calls = MemoryStore(), 60, 5
    async with Runner(store) as runner:
        await asyncio.gather(*[runner.run(payer(calls), "Pay.") for _ in range(tasks)])
    async with Runner(store) as runner:
        await runner.list_pending(limit=1_000)  # what is cached is read without a wait
        monkeypatch.setattr(time_slice, "SLICE_SECONDS", 0.0)
        turns, held, last, ended = 0, 0.0, time.thread_time(), False

        async def other_work() -> None:
            nonlocal turns, held, last
            while not ended:
                turns, held, last = turns + 1, max(held, time.thread_time() - last), time.thread_time()
                await asyncio.sleep(0)

        other = asyncio.ensure_future(other_work())
        await asyncio.sleep(0)
        listed = [item async for item in await runner.list_pending(limit=1_000)]
        ended = True
        await other
    assert len(set(ids(listed))) == tasks * calls
    assert turns >= tasks
    assert held < 0.1
