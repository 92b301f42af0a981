"""What a deletion keeps: the one rule that all stores go by.

A deleted task keeps its records up to the last event that is still read. They are read by:

- its forks, up to the event at which each begins;
- its thread, while the task is a member of it;
- the tasks that began with an earlier version of the thread, in which the task was still a member.

A task that was taken out of its thread (it was undone) is therefore kept while a task of the thread may have begun
before that. A task begins before it becomes a member itself: one that was a member at version 3 began with version 2
or an earlier one, so it never reads what became a member at version 3 or later. A task that never was a member may
have begun with any version.

    version  1        2        3            4              5
             one +    two +    two -        three +        now
             `two` was a member from 2 to 3. `one` began before 1 and does not read it. `three` may have begun with
             version 2, so that `two` is kept until `three` is deleted, too.

Only tasks that are listed, or that forks share, are read. A fork reads a version of the thread through the task at the
root of its chain, never by itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from treadle.core.data import frozen

ANY_VERSION: Final = 2**62
"""Above every version: a task that never was a member may have begun with any of them."""


@frozen
class Membership:
    """One membership of a deleted task in a thread.

    Args:
        version: the version that added it.
        seq: the last event that is part of the thread.
        taken_out: whether a later version took it out.
        read_below: the tasks of the thread that can be read began with versions below this one.
    """

    version: int
    seq: int
    taken_out: bool
    read_below: int


def read_below(first_versions: Iterable[int | None]) -> int:
    """Return below which version a thread can still be read.

    Args:
        first_versions: of each task of the thread that was not forked, and is listed or shared by forks, the first
            version in which it was a member; None for a task that never was one.
    """
    return max((ANY_VERSION if first is None else first for first in first_versions), default=0)


def needed(fork_points: Iterable[int], memberships: Iterable[Membership]) -> int | None:
    """Return the last event of a deleted task that is still read; None when the whole task can go.

    Args:
        fork_points: for each fork, the last event that it shares.
        memberships: all places the task has or had in threads.
    """
    members = [m.seq for m in memberships if not m.taken_out or m.version < m.read_below]
    return max([*fork_points, *members], default=None)
