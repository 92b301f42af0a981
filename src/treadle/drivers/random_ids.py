"""Random ids. Ids that follow from a place in a task are made in `core.ids`."""

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
    """Return an id for a task, a thread or an inbox item; ids sort by the time at which they were made."""
    return str(_uuid7()())


def new_frame_key() -> str:
    """Return the key of a task with which the nonces of its frames are made."""
    return os.urandom(12).hex()


def new_incarnation() -> str:
    """Return what tells a task from an earlier one of the same id that was deleted."""
    return os.urandom(4).hex()
