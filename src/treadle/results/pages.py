"""Pages of lists: of tasks, threads and open requests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, Generic, Self, TypeVar

from treadle.core.data import frozen, set_field
from treadle.core.display import Displayed, Table, View
from treadle.core.refused_uses import refuses
from treadle.core.unknown_names import explains_names
from treadle.results.pending import Pending
from treadle.results.tasks import TaskSummary, tasks_table
from treadle.results.threads import ThreadSummary

Item_co = TypeVar("Item_co", covariant=True)
Cursor = TypeVar("Cursor")


@refuses(
    len="write `len(page.items)`, or `await runner.count_tasks()` for all tasks; iterate over the page for its items"
)
@explains_names("page", subscript=True)
class Page(Displayed, Generic[Item_co, Cursor]):
    """Some items of a list. `for` iterates over these, `async for` also over all later pages.

    For a page of `runner.sync`, a plain `for` also iterates over all later pages.
    """

    __slots__ = ("_server", "_waits", "turn")

    items: tuple[Item_co, ...]
    cursor: Cursor | None
    turn: Callable[[Cursor], Awaitable[Page[Item_co, Cursor]]]
    """returns the page after a cursor"""

    def followed_by(
        self,
        turn: Callable[[Cursor], Awaitable[Page[Any, Cursor]]] | None = None,
        *,
        waits: Callable[[AsyncIterator[Any]], Iterator[Any]] | None = None,
        server: str | None = None,
    ) -> Self:
        """Return this page, with the functions that later pages need; one that is None stays as it is.

        Args:
            turn: returns the page after a cursor.
            waits: makes a plain iterator of an asynchronous one: a plain `for` then iterates over all pages.
            server: the URL of the server that the page is from; a notebook shows links to its inspector.
        """
        if turn is not None:
            set_field(self, "turn", turn)
        if waits is not None:
            set_field(self, "_waits", waits)
        if server is not None:
            set_field(self, "_server", server)
        return self

    def __iter__(self) -> Iterator[Item_co]:
        waits = getattr(self, "_waits", None)
        return iter(self.items) if waits is None else waits(aiter(self))

    async def __aiter__(self) -> AsyncIterator[Item_co]:
        page: Page[Item_co, Cursor] = self
        while True:
            for item in page.items:
                yield item
            if page.cursor is None:
                return
            page = await page.turn(page.cursor)

    def _table(self) -> Table:
        raise NotImplementedError

    def _view(self) -> View:
        return View(title=type(self).__name__, facts=(("cursor", self.cursor),), tables=(self._table(),))


@frozen
class TaskPage(Page[TaskSummary, str]):
    """Some tasks, newest first; `cursor` asks for the next page, None when there is none.

    `for` iterates over the tasks of this page, `async for` also over all later pages.
    """

    items: tuple[TaskSummary, ...]
    cursor: str | None

    def _table(self) -> Table:
        return tasks_table("tasks", self.items, getattr(self, "_server", None))


@frozen
class ThreadPage(Page[ThreadSummary, str]):
    """Some threads, by id; `cursor` asks for the next page, None when there is none.

    `for` iterates over the threads of this page, `async for` also over all later pages.
    """

    items: tuple[ThreadSummary, ...]
    cursor: str | None

    def _table(self) -> Table:
        columns = ("thread", "version", "tasks")
        return Table(
            "threads", columns, self.items, lambda at: (at.thread_id, str(at.version), str(at.turns))
        )


@frozen
class PendingPage(Page[Pending, str]):
    """A page of open requests of tasks; `cursor` asks for the next page, None when there is none.

    `for` iterates over the requests of this page, `async for` also over all later pages.
    """

    items: tuple[Pending, ...]
    cursor: str | None

    def _table(self) -> Table:
        columns = ("task", "request", "kind", "what waits")
        return Table("pending", columns, self.items, lambda at: (at.task_id, at.request_id, at.kind, at.text))
