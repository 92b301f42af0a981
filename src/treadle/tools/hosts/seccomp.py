"""The sandbox's filter of system calls, compiled by libseccomp.

The filter is a deny list of calls and of arguments. So it needs no list of the calls that tools use. Calls that the
installed libseccomp cannot name fail as on an older kernel (ENOSYS). So a new call is never let through. The numbers
are those of this machine's architecture. A call of another architecture kills the process.

There are two filters. Within bubblewrap, namespaces cover files, processes and network, and the filter denies the
rest. With Landlock the filter also covers sockets, sessions, shared memory and file modes.
"""

from __future__ import annotations

import ctypes
import os
import platform
import tempfile
from collections.abc import Iterable, Sequence
from errno import ENOSYS, EPERM
from functools import cache
from struct import pack
from typing import Any, Final

LIBRARY: Final = "libseccomp.so.2"

_ALLOW: Final = 0x7FFF0000
_ERRNO: Final = 0x00050000
_NE, _EQ, _GT, _MASKED = 1, 4, 6, 7
"""Comparison operators of libseccomp."""

_MACHINES: Final = ("x86_64", "aarch64", "riscv64")
"""Architectures on which `clone` takes its flags first, and terminal requests have the numbers below."""

_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
_SET_ID: Final = 0o6000
_O_CREAT, _O_TMPFILE = 0o100, 0o20000000
_NEW_NAMESPACES: Final = (0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000)
_UNIX, _INET, _INET6, _NETLINK = 1, 2, 10, 16
_FAMILIES: Final = 64
"""More than the highest number of a socket family."""

_DENIED: Final = (
    # mounts and namespaces
    *("mount", "umount", "umount2", "pivot_root", "chroot", "move_mount", "open_tree", "fsopen", "fsconfig"),
    *("fsmount", "fspick", "mount_setattr", "open_tree_attr", "unshare", "setns"),
    # other processes
    *(
        "ptrace",
        "process_vm_readv",
        "process_vm_writev",
        "process_madvise",
        "process_mrelease",
        "pidfd_getfd",
    ),
    *("kcmp", "move_pages", "migrate_pages"),
    # keys of the driver's session
    *("keyctl", "add_key", "request_key"),
    # the kernel and the machine
    *(
        "init_module",
        "finit_module",
        "delete_module",
        "create_module",
        "kexec_load",
        "kexec_file_load",
        "reboot",
    ),
    *(
        "swapon",
        "swapoff",
        "syslog",
        "acct",
        "quotactl",
        "quotactl_fd",
        "bpf",
        "perf_event_open",
        "userfaultfd",
    ),
    *("iopl", "ioperm", "sethostname", "setdomainname", "nfsservctl", "lookup_dcookie", "vhangup", "_sysctl"),
    *("settimeofday", "clock_settime", "clock_adjtime", "adjtimex", "stime", "modify_ldt", "vm86", "vm86old"),
    # memory that no process limit counts; some of it is shared with the machine
    *(
        "shmget",
        "shmat",
        "shmctl",
        "msgget",
        "msgsnd",
        "msgrcv",
        "msgctl",
        "semget",
        "semop",
        "semtimedop",
        "semctl",
    ),
    # files by handle, and calls that would bypass a filter
    *("open_by_handle_at", "name_to_handle_at", "fanotify_init", "io_uring_setup", "io_uring_enter"),
    "io_uring_register",
)
_UNKNOWN: Final = ("clone3", "openat2", "memfd_create", "memfd_secret")
"""Calls with arguments that a filter cannot read, and files in memory.

Programs work without them, as on old kernels.
"""

_DENIED_WITHOUT_NAMESPACES: Final = (
    # Landlock does not cover message queues, nor file modes, owners, times and attributes.
    *("mq_open", "mq_unlink", "chmod", "fchmod", "fchmodat", "fchmodat2", "chown", "fchown", "lchown"),
    *("fchownat", "utime", "utimes", "utimensat", "futimesat", "setxattr", "lsetxattr", "fsetxattr"),
    *("setxattrat", "removexattr", "lremovexattr", "fremovexattr", "removexattrat", "file_setattr"),
    *("inotify_init", "inotify_init1"),
)
_FLAGS_OF_FILES: Final = (0x40086602, 0x40046602, 0x401C5820, 0x40087602, 0x40806685)
"""Requests that change a file through a read-only descriptor: attributes, generation, sealing."""
_SILENT_WITHOUT_NAMESPACES: Final = ("setsid", "setpgid")
"""Calls that report success without effect.

The process group must stay the same, so that it can be killed at the end of the call. Programs that try to leave it
continue.
"""

Condition = tuple[int, int, int, int]
"""The number of an argument, a comparison, and one or two values."""

_SAME_PROCESS: Final = (
    # Calls on a process accept 0, the caller, and deny all other processes.
    *(("prlimit64", ((0, _NE, 0, 0),)), ("sched_setaffinity", ((0, _NE, 0, 0),))),
    *(("sched_setscheduler", ((0, _NE, 0, 0),)), ("sched_setparam", ((0, _NE, 0, 0),))),
    *(("sched_setattr", ((0, _NE, 0, 0),)), ("setpriority", ((0, _NE, 0, 0),))),
    *(
        ("setpriority", ((1, _NE, 0, 0),)),
        ("ioprio_set", ((0, _NE, 1, 0),)),
        ("ioprio_set", ((1, _NE, 0, 0),)),
    ),
)
Rule = tuple[str, tuple[Condition, ...]]


def _conditional() -> Iterable[Rule]:
    """Yield the calls that are denied for some arguments."""
    yield from _SAME_PROCESS
    for flag in _NEW_NAMESPACES:
        yield "clone", ((0, _MASKED, flag, flag),)
    for request in (_TIOCSTI, _TIOCLINUX):  # the kernel reads only 32 bits
        yield "ioctl", ((1, _MASKED, 0xFFFFFFFF, request),)
    modes = {"chmod": 1, "fchmod": 1, "fchmodat": 2, "fchmodat2": 2, "creat": 1, "mkdir": 1, "mkdirat": 2}
    modes |= {"mknod": 1, "mknodat": 2}
    for bit in (0o4000, 0o2000):  # a setuid or setgid file would later run as the driver's user
        for name, argument in modes.items():
            yield name, ((argument, _MASKED, bit, bit),)
        for flag in (_O_CREAT, _O_TMPFILE):
            yield "open", ((1, _MASKED, flag, flag), (2, _MASKED, bit, bit))
            yield "openat", ((2, _MASKED, flag, flag), (3, _MASKED, bit, bit))
    yield "socketpair", ((0, _NE, _UNIX, 0),)


def _sockets(families: Sequence[int]) -> Iterable[Rule]:
    """Yield rules that deny all socket families but some. A hypervisor's families have no namespace."""
    if not families:
        yield "socket", ()
        return
    for family in range(_FAMILIES):
        if family not in families:
            yield "socket", ((0, _EQ, family, 0),)
    yield "socket", ((0, _GT, _FAMILIES - 1, 0),)


def missing() -> str | None:
    """Return why this machine cannot make a filter; None if it can."""
    if platform.machine() not in _MACHINES:
        return f"no filter of system calls for machines of the kind {platform.machine()}"
    try:
        _library()
    except OSError:
        return f"{LIBRARY}, which filters system calls (apt-get install libseccomp2, dnf install libseccomp)"
    return None


@cache
def program(*, namespaces: bool, network: bool) -> bytes:
    """Return a sandbox's filter, as BPF instructions for the kernel.

    Args:
        namespaces: whether the sandbox has its own namespaces for files, processes and the network.
        network: whether it may use the network.
    """
    denied = _always(_DENIED if namespaces else (*_DENIED, *_DENIED_WITHOUT_NAMESPACES))
    if not namespaces:
        denied += [("ioctl", ((1, _MASKED, 0xFFFFFFFF, request),)) for request in _FLAGS_OF_FILES]
    unconditional = {name for name, conditions in denied if not conditions}
    denied += [rule for rule in _conditional() if rule[0] not in unconditional]
    # A unix socket leads to services of the machine. It does so by a path in a declared folder, or by an abstract name
    # in a shared network. Socket pairs stay allowed.
    denied += _sockets((_INET, _INET6, _NETLINK) if namespaces or network else ())
    return _compiled(denied, () if namespaces else _SILENT_WITHOUT_NAMESPACES)


@cache
def _library() -> Any:
    library: Any = ctypes.CDLL(LIBRARY, use_errno=True)
    library.seccomp_init.restype = ctypes.c_void_p
    library.seccomp_init.argtypes = (ctypes.c_uint32,)
    library.seccomp_release.argtypes = (ctypes.c_void_p,)
    library.seccomp_release.restype = None
    library.seccomp_attr_set.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32)
    library.seccomp_export_bpf.argtypes = (ctypes.c_void_p, ctypes.c_int)
    library.seccomp_syscall_resolve_name.argtypes = (ctypes.c_char_p,)
    library.seccomp_syscall_resolve_num_arch.argtypes = (ctypes.c_uint32, ctypes.c_int)
    library.seccomp_syscall_resolve_num_arch.restype = ctypes.c_void_p
    library.seccomp_rule_add_array.argtypes = (
        *(ctypes.c_void_p, ctypes.c_uint32, ctypes.c_int, ctypes.c_uint, ctypes.c_void_p),
    )
    return library


class _Condition(ctypes.Structure):
    _fields_ = (
        ("argument", ctypes.c_uint),
        ("comparison", ctypes.c_int),
        ("first", ctypes.c_uint64),
        ("second", ctypes.c_uint64),
    )


def _always(names: Iterable[str]) -> list[Rule]:
    return [(name, ()) for name in names]


def _compiled(denied: Iterable[Rule], silent: Iterable[str]) -> bytes:
    library = _library()
    context = library.seccomp_init(_ALLOW)
    if not context:
        raise OSError("libseccomp made no filter")
    try:
        for error, rules in ((EPERM, denied), (ENOSYS, _always(_UNKNOWN)), (0, _always(silent))):
            for name, conditions in rules:
                number = library.seccomp_syscall_resolve_name(name.encode())
                if number < 0:
                    continue  # this architecture lacks the call
                array = (_Condition * max(len(conditions), 1))(*(_Condition(*each) for each in conditions))
                _check(
                    name,
                    library.seccomp_rule_add_array(
                        context, _ERRNO | error, number, len(conditions), ctypes.addressof(array)
                    ),
                )
        with tempfile.TemporaryFile() as file:
            _check("export", library.seccomp_export_bpf(context, file.fileno()))
            file.seek(0)
            return _unknown_calls() + file.read()
    finally:
        library.seccomp_release(context)


def _unknown_calls() -> bytes:
    """Return instructions that answer unknown call numbers with ENOSYS. They precede the filter."""
    library, last = _library(), 1023
    while not (name := library.seccomp_syscall_resolve_num_arch(0, last)):
        last -= 1
    _libc_free(name)
    load, above, answer = (0x20, 0, 0, 0), (0x25, 0, 1, last), (0x06, 0, 0, _ERRNO | ENOSYS)
    return b"".join(pack("=HBBI", *each) for each in (load, above, answer))


def _libc_free(pointer: int) -> None:
    free: Any = ctypes.CDLL(None).free
    free.argtypes = (ctypes.c_void_p,)
    free(pointer)


def _check(label: str, result: int) -> None:
    if result:
        raise OSError(-result, f"libseccomp: {label}: {os.strerror(-result)}")
