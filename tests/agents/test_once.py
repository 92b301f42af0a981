"""Code that makes a value knows it, wherever it runs; other code does not."""

import asyncio

import pytest

from treadle.agents.once import is_making, making


@pytest.mark.anyio
async def test_tasks_and_threads_of_the_code_inside_know_what_it_makes() -> None:
    owner, other = object(), object()
    with making(owner, "a"), making(owner, "b"):
        assert is_making(owner, "a")
        assert is_making(owner, "b")
        assert not is_making(owner, "c")
        assert not is_making(other, "a")
        assert await asyncio.to_thread(is_making, owner, "a")
        assert await asyncio.gather(asyncio.to_thread(is_making, owner, "b")) == [True]
    assert not is_making(owner, "a")
