"""Ways out of a sandbox, as a program in it would try them: each returns what it got, or raises.

A way counts as open only if it returns a text. A way that fails without a sandbox, too, proves nothing, so each is also
tried there (`CLOSED_ANYWAY` says why some are not).
"""

import ctypes
import os
import platform
from collections.abc import Callable
from typing import Any, Final

World = dict[str, Any]
ESCAPES: Final[dict[str, Callable[[World], str | None]]] = {}
CLOSED_ANYWAY: Final[dict[str, str]] = {}
"""Why a way is not tried without a sandbox, by its name."""
NAMESPACES_ONLY: Final[set[str]] = set()
"""Ways that Landlock is not claimed to close."""

SECONDS: Final = 6.0
_NUMBERS: Final = {  # of system calls without a function in the C library
    "x86_64": {"add_key": 248, "keyctl": 250, "io_uring_setup": 425, "bpf": 321, "perf_event_open": 298},
    "aarch64": {"add_key": 217, "keyctl": 219, "io_uring_setup": 425, "bpf": 280, "perf_event_open": 241},
}
NUMBERS: Final = (
    _NUMBERS.get(platform.machine(), {})
    | ({"pidfd_open": 434, "pidfd_getfd": 438, "clone3": 435, "open_tree": 428, "fsopen": 430})
    | ({"init_module": 175, "personality": 135} if platform.machine() == "x86_64" else {"init_module": 105})
)
libc = ctypes.CDLL(None, use_errno=True)


def escape(*, closed_anyway: str = "", namespaces_only: bool = False) -> Any:
    def register(fn: Callable[[World], str | None]) -> Callable[[World], str | None]:
        ESCAPES[fn.__name__] = fn
        if closed_anyway:
            CLOSED_ANYWAY[fn.__name__] = closed_anyway
        if namespaces_only:
            NAMESPACES_ONLY.add(fn.__name__)
        return fn

    return register


def checked(result: int, what: str = "") -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}{os.strerror(number)}")
    return result


def syscall(name: str, *arguments: Any) -> int:
    return checked(libc.syscall(NUMBERS[name], *arguments), f"{name}: ")


HARMS = "it would harm this machine"
ROOT = "it takes a privilege that the driver may not have"
