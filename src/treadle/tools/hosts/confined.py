"""Confine a tool's process from inside, under its limits and before any code of the tool.

Within bubblewrap little is left to do. With Landlock everything happens here. The process drops all capabilities for
good, restricts itself, and installs the filter of system calls. If a step fails, it raises and the tool does not run.
"""

from __future__ import annotations

import base64
import ctypes
import os
import resource
from contextlib import suppress
from errno import EINVAL
from pathlib import Path
from typing import Any, Final

from treadle.tools.hosts.landlock import check, libc, restrict
from treadle.tools.hosts.pinned import check_pinned

_SET_SECCOMP, _DROP_BOUND, _SET_SECUREBITS, _NO_NEW_PRIVILEGES = 22, 24, 28, 38
_NO_ROOT_LOCKED: Final = 0b11101111
"""Secure bits, locked: root, a change of users, and ambient capabilities grant no capability."""
_CAPABILITIES_V3: Final = 0x20080522


class _Filter(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def by_namespaces(confinement: dict[str, Any]) -> None:
    """Check the `pins`, and limit the `processes` in this user namespace.

    Processes outside the namespace do not count.
    """
    for pin in confinement["pins"]:
        check_pinned(pin[0], Path(pin[0]).stat(), (pin,))
    _limit_processes(confinement["processes"], 0)


def by_landlock(confinement: dict[str, Any]) -> None:
    """Confine this process.

    Args:
        confinement: its `folder`, the paths to `read` and `write`, their `pins`, `network`, the `filter`, and a limit
            of `processes`. The limit is in addition to the user's processes; None is no limit.
    """
    _limit_processes(confinement["processes"], _threads_of_user())
    os.chdir(confinement["folder"])
    _give_up_capabilities()
    check("no new privileges", libc().prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0))
    restrict(
        confinement["read"], confinement["write"], network=confinement["network"], pins=confinement["pins"]
    )
    program = base64.b64decode(confinement["filter"])
    instructions = _Filter(len(program) // 8, program)
    check("the filter of system calls", libc().prctl(_SET_SECCOMP, 2, ctypes.byref(instructions), 0, 0))


def _limit_processes(processes: int | None, counted: int) -> None:
    if processes is not None:
        resource.setrlimit(resource.RLIMIT_NPROC, (processes + counted, processes + counted))


def _threads_of_user() -> int:
    """Return how many threads this process's user runs. The limit counts them all."""
    count = 0
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # the process has ended
            if process.stat().st_uid == os.getuid():
                count += sum(1 for _ in (process / "task").iterdir())
    return count


def _give_up_capabilities() -> None:
    if os.geteuid() == 0:
        number = 0
        while libc().prctl(_DROP_BOUND, number, 0, 0, 0) == 0:
            number += 1
        if ctypes.get_errno() != EINVAL:  # EINVAL: the last capability was dropped
            check("the bounding set of capabilities", -1)
        check("the user 0", libc().prctl(_SET_SECUREBITS, _NO_ROOT_LOCKED, 0, 0, 0))
    header, none = (ctypes.c_uint32 * 2)(_CAPABILITIES_V3, 0), (ctypes.c_uint32 * 6)()
    check("capabilities", libc().capset(header, none))
