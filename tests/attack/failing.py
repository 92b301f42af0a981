"""A store that fails at chosen commits."""

import asyncio
from collections.abc import Callable
from typing import Any

from treadle.errors import StoreUnavailable
from treadle.ports import Commit, CommitDone


class Failing:
    """A store whose nth commits fail; with `written` they are written and only their acknowledgement is lost."""

    def __init__(self, inner: Any, fails: Callable[[int], bool], *, written: bool) -> None:
        self.inner = inner
        self.fails = fails
        self.written = written
        self.count = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def commit(self, commit: Commit, done: CommitDone) -> None:
        self.count += 1
        if not self.fails(self.count):
            self.inner.commit(commit, done)
        elif self.written:
            self.inner.commit(commit, lambda _: done(StoreUnavailable("the answer was lost")))
        else:
            asyncio.get_running_loop().call_soon(done, StoreUnavailable("the disk is full"))
