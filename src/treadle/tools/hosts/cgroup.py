"""Limit the processes of programs that run as root, by a control group for each call.

`RLIMIT_NPROC` does not bind root.

In version 2 the group is made below the nearest ancestor that delegates the `pids` controller. In version 1 it is made
below this process's own group in the hierarchy of that controller.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable, Generator
from contextlib import suppress
from functools import cache
from itertools import count
from pathlib import Path
from typing import Final

_NAME: Final = "treadle-"
_numbers: Final = count(1)
_leftover_groups: Final[set[Path]] = set()


def binds_rlimit() -> bool:
    """Return whether `RLIMIT_NPROC` binds programs of this process. It does not bind the machine's root user."""
    if os.geteuid() != 0:
        return True
    for line in Path("/proc/self/uid_map").read_text().splitlines():
        inside, outside, _ = map(int, line.split())
        if inside == 0:
            return outside != 0
    return True


@cache
def parent() -> Path | None:
    """Return a group below which groups with a process limit can be made; None if there is none."""
    for candidate in _parent_candidates():
        trial = candidate / f"{_NAME}{os.getpid()}-0"
        try:
            trial.mkdir()
        except OSError:
            continue
        try:
            if (trial / "pids.max").exists() and os.access(trial / "cgroup.procs", os.W_OK):
                return candidate
        finally:
            trial.rmdir()
    return None


def make_group(parent_group: Path, processes: int) -> tuple[str, Callable[[], None]]:
    """Make a group with a limit of processes.

    Returns:
        The file into which a process writes `0` to join the group, and a function that removes the group.
    """
    _sweep(parent_group)
    group = parent_group / f"{_NAME}{os.getpid()}-{next(_numbers)}"
    group.mkdir()
    (group / "pids.max").write_text(str(processes))
    return str(group / "cgroup.procs"), lambda: _remove(group)


def _remove(group: Path) -> None:
    """Remove a group. If its processes still end, leave it to the next removal or to the exit of this process."""
    try:
        group.rmdir()
    except FileNotFoundError:
        _leftover_groups.discard(group)
    except OSError:
        _leftover_groups.add(group)
    else:
        _leftover_groups.discard(group)


def remove_left() -> None:
    """Remove the groups of finished calls whose last processes had not ended in time."""
    for group in list(_leftover_groups):
        _remove(group)


atexit.register(remove_left)


def _sweep(parent_group: Path) -> None:
    """Remove the leftover groups of this driver and of drivers that ended."""
    remove_left()
    for group in parent_group.glob(f"{_NAME}*"):
        driver = group.name.removeprefix(_NAME).split("-")[0]
        if driver.isdecimal() and not Path(f"/proc/{driver}").exists():
            with suppress(OSError):
                group.rmdir()


def _parent_candidates() -> Generator[Path]:
    """Yield possible parent groups, the most likely first."""
    mounts = _mounts()
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        number, controllers, own_group = line.split(":", 2)
        if "pids" in controllers.split(",") and "pids" in mounts:
            mount, root = mounts["pids"]
            yield _below(mount, root, own_group)
            yield mount
        elif number == "0" and "" in mounts:
            mount, root = mounts[""]
            group = _below(mount, root, own_group)
            while group.is_relative_to(mount):
                with suppress(OSError):
                    if "pids" in (group / "cgroup.subtree_control").read_text().split():
                        yield group
                group = group.parent


def _mounts() -> dict[str, tuple[Path, str]]:
    """Return the mount point and root group of hierarchies: `pids` of version 1, and version 2 under an empty name."""
    mounts: dict[str, tuple[Path, str]] = {}
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        mount_fields, _, kind = line.partition(" - ")
        fields, (kind, _, options) = mount_fields.split(), kind.split(None, 2)
        if kind == "cgroup2":
            mounts.setdefault("", (Path(fields[4]), fields[3]))
        elif kind == "cgroup" and "pids" in options.split(","):
            mounts.setdefault("pids", (Path(fields[4]), fields[3]))
    return mounts


def _below(mount: Path, root: str, group: str) -> Path:
    """Return the folder of a group, where `root` is the group that is mounted."""
    return mount / group.removeprefix(root).lstrip("/")
