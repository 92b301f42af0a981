"""State that all layers of a process share, such as the circuit of a service: one object for each key."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from typing import Generic, TypeVar

T = TypeVar("T")


class Shared(Generic[T]):
    """One object for each key, for all event loops and threads of the process.

    Args:
        limit: how many objects are held; the one not used for longest goes first. A layer that uses it keeps it.
    """

    def __init__(self, limit: int = 1_000) -> None:
        self._limit = limit
        self._objects: OrderedDict[tuple[object, ...], T] = OrderedDict()
        self._lock = Lock()

    def get(self, key: tuple[object, ...], make: Callable[[], T]) -> T:
        """Return the object of a key; made at first use."""
        with self._lock:
            if key not in self._objects:
                self._objects[key] = make()
                if len(self._objects) > self._limit:
                    self._objects.popitem(last=False)
            else:
                self._objects.move_to_end(key)
            return self._objects[key]

    def values(self) -> list[T]:
        """Return all objects."""
        with self._lock:
            return list(self._objects.values())
