"""Subscriptions that a caller opens with a call and then iterates over: events of a task, changes of tasks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import suppress
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Subscription(AsyncGenerator[T, None], Generic[T]):
    """The items since the call of the caller, even if it asks for the first one later.

    Args:
        items: yields them, and leaves in its `finally`.
        leave: ends the subscription; called here only if no item was requested, when no `finally` runs. None if the
            subscription begins with the first item.
    """

    __slots__ = ("_is_read", "_items", "_leave", "_loop")

    def __init__(self, items: AsyncGenerator[T, None], leave: Callable[[], None] | None) -> None:
        self._items = items
        self._leave = leave
        self._loop = asyncio.get_running_loop() if leave is not None else None
        self._is_read = False

    def __anext__(self) -> Coroutine[Any, Any, T]:
        self._is_read = True
        return self._items.__anext__()

    def asend(self, value: None) -> Coroutine[Any, Any, T]:
        self._is_read = True
        return self._items.asend(value)

    def athrow(self, typ: Any, val: Any = None, tb: Any = None) -> Coroutine[Any, Any, T]:
        self._leave_unread()
        return self._items.athrow(typ if val is None else val)

    def aclose(self) -> Coroutine[Any, Any, None]:
        self._leave_unread()
        return self._items.aclose()

    def _leave_unread(self) -> None:
        if not self._is_read and self._leave is not None:
            self._leave()

    def __del__(self) -> None:
        if not self._is_read and self._leave is not None and self._loop is not None:
            # The garbage collector may call this where a lock is held that leaving takes.
            with suppress(RuntimeError):  # the loop is closed, and with it the subscription
                self._loop.call_soon_threadsafe(self._leave)


def in_event_loop() -> bool:
    """Whether the caller runs in an event loop, so that it can subscribe."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
