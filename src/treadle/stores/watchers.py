"""The watchers of a store object: functions to call when tasks may have changed."""

from __future__ import annotations

from collections.abc import Callable

from treadle.ports import StoreChanges, Wake


class Watchers(dict[object, Wake]):
    """The watchers of one store object by their tokens, until each of them ends."""

    def add(self, wake: Wake) -> Callable[[], None]:
        """Call `wake` with all changes from now on; return a function that stops it."""
        token = object()
        self[token] = wake
        return lambda: self.pop(token, None) and None

    def wake(self, changes: StoreChanges) -> None:
        """Report changes to all watchers; remove those whose event loop is closed."""
        for token, wake in list(self.items()):
            try:
                wake(changes)
            except RuntimeError:  # its event loop is closed
                self.pop(token, None)
