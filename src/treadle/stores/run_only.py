"""Use a store that can only run tasks as a `JournalStore`: each missing method raises an error with its name."""

from __future__ import annotations

from typing import Any

from treadle.errors import ConfigurationError
from treadle.ports import JournalStore, TaskStore


class MethodMissing(ConfigurationError, AttributeError):
    """A store lacks a method of its port; `hasattr` is False for it."""


class RunOnlyStore:
    """Passes each call on to a `TaskStore`; raises for a method of `JournalStore` that it lacks.

    Args:
        store: the store.
    """

    def __init__(self, store: TaskStore) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        try:
            return getattr(self._store, name)
        except AttributeError:
            if not hasattr(JournalStore, name):
                raise
            raise MethodMissing(
                f"the store {type(self._store).__name__} has no method {name}: it only runs tasks, and this verb needs "
                "that method (see treadle.ports.JournalStore)"
            ) from None
