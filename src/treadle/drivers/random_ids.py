"""Generate random ids. `core.ids` builds the ids that follow from a place in a task."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import cache


@cache
def _uuid7() -> Callable[[], object]:
    if sys.version_info >= (3, 14):
        from uuid import uuid7
    else:
        from uuid_utils import uuid7

    return uuid7


def new_id() -> str:
    """Return an id for a task, a thread or an inbox item; ids sort by creation time."""
    return str(_uuid7()())


def new_frame_key() -> str:
    """Return a task's key for the nonces of its frames."""
    return os.urandom(12).hex()


def new_incarnation() -> str:
    """Return a value that distinguishes a task from earlier, deleted ones of the same id."""
    return os.urandom(4).hex()
