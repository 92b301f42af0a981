"""Commits outside of a drive."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from treadle.drivers.continuing import commit
from treadle.errors import Fenced
from treadle.ports import Commit, Committed

pytestmark = pytest.mark.anyio


class OneAnswer:
    """A store that answers each commit when the test says so."""

    def __init__(self) -> None:
        self.done: Callable[[Committed | Exception], None] | None = None

    def commit(self, request: Commit, done: Callable[[Committed | Exception], None]) -> None:
        self.done = done


async def begun(store: Any) -> "asyncio.Task[Committed]":
    task = asyncio.ensure_future(commit(store, Commit("t", 1)))
    await asyncio.sleep(0)
    return task


async def test_a_commit_returns_the_answer_of_the_store() -> None:
    store = OneAnswer()
    task = await begun(store)
    assert store.done is not None
    store.done(Committed(released=True))
    assert (await task).released


async def test_a_refusal_of_the_store_is_raised() -> None:
    store = OneAnswer()
    task = await begun(store)
    assert store.done is not None
    store.done(Fenced("another driver owns it"))
    with pytest.raises(Fenced):
        await task


async def test_an_answer_that_comes_after_the_caller_was_cancelled_is_ignored() -> None:
    store = OneAnswer()
    task = await begun(store)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert store.done is not None
    store.done(Committed())
