"""Pages: `for` iterates over one, `async for` over all later ones too."""

import pytest

from treadle.results.pages import ThreadPage
from treadle.results.threads import ThreadSummary

pytestmark = pytest.mark.anyio

PAGES = {
    "": ThreadPage((ThreadSummary("a", 1, 1), ThreadSummary("b", 1, 1)), "b"),
    "b": ThreadPage((), "c"),
    "c": ThreadPage((ThreadSummary("d", 1, 1),), None),
}


async def turn(cursor: str) -> ThreadPage:
    return PAGES[cursor].followed_by(turn)


async def test_a_plain_loop_ends_with_the_page_and_an_async_one_with_the_list() -> None:
    page = await turn("")
    assert [each.thread_id for each in page] == ["a", "b"]
    assert [each.thread_id async for each in page] == ["a", "b", "d"]


def test_a_page_with_waits_iterates_over_all_pages_in_a_plain_loop() -> None:
    page = PAGES["c"].followed_by(turn, waits=lambda every: iter([every]))
    [every] = page
    assert hasattr(every, "__anext__")
