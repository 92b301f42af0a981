"""Ways by settings and calls of the kernel."""

import ctypes
import os
import platform
import socket
import struct
import time

from tests.tools.hosts.escapes.registry import HARMS, NUMBERS, ROOT, World, checked, escape, libc, syscall


@escape(closed_anyway=HARMS)
def name_a_program_for_crashes(world: World) -> str:
    with open("/proc/sys/kernel/core_pattern", "r+b"):
        return "opened"


@escape(closed_anyway=ROOT)
def write_settings_of_the_kernel(world: World) -> str | None:
    for root in ("/proc/sys", "/sys"):
        for folder, _, names in os.walk(root):
            for name in names[:20]:
                try:
                    os.close(os.open(f"{folder}/{name}", os.O_WRONLY))
                    return f"{folder}/{name}"
                except OSError:
                    continue
    return None


@escape(closed_anyway=HARMS)
def use_magic_keys(world: World) -> str:
    with open("/proc/sysrq-trigger", "wb"):
        return "opened"


@escape(closed_anyway=ROOT)
def leave_the_control_group(world: World) -> str | None:
    for path in (
        "/sys/fs/cgroup/cgroup.procs",
        "/sys/fs/cgroup/pids/cgroup.procs",
        "/sys/fs/cgroup/pids/tasks",
    ):
        try:
            with open(path, "w") as file:
                file.write("0")
            return path
        except OSError:
            continue
    return None


@escape(closed_anyway=HARMS)
def load_a_module(world: World) -> str | None:
    libc.syscall(NUMBERS["init_module"], b"", 0, b"")
    return None if ctypes.get_errno() == 1 else os.strerror(ctypes.get_errno())


@escape(closed_anyway=HARMS)
def set_the_clock(world: World) -> str:
    time.clock_settime(time.CLOCK_REALTIME, time.time())
    return "set"


@escape(closed_anyway=HARMS)
def restart_the_machine(world: World) -> str | None:
    libc.syscall(
        169 if platform.machine() == "x86_64" else 142, 0, 0, 0, 0
    )  # wrong magic: EINVAL where allowed
    return None if ctypes.get_errno() == 1 else "allowed"


@escape(closed_anyway=HARMS)
def rename_the_machine(world: World) -> str:
    socket.sethostname(socket.gethostname())
    return "renamed"


@escape(closed_anyway=ROOT)
def load_a_program_into_the_kernel(world: World) -> str:
    return str(syscall("bpf", 0, struct.pack("=5I", 1, 4, 4, 1, 0) + bytes(100), 72))


@escape(closed_anyway="a kernel may have it switched off")
def watch_the_machine(world: World) -> str:
    attributes = ctypes.create_string_buffer(struct.pack("=IIQ", 1, 112, 0) + bytes(96), 112)
    return str(syscall("perf_event_open", attributes, 0, -1, -1, 0))


@escape(closed_anyway="the driver may have none itself")
def use_a_capability(world: World) -> str | None:
    header, data = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    checked(libc.capget(header, data))
    return hex(data[0]) if data[0] or data[1] or data[3] or data[4] else None


@escape()
def gain_privileges_by_a_program(world: World) -> str | None:
    return "it may" if checked(libc.prctl(39, 0, 0, 0, 0)) == 0 else None


@escape(closed_anyway=ROOT)
def become_another_user(world: World) -> str | None:
    for user in (0, 1, 1000):
        if user != os.getuid():
            try:
                os.setresuid(user, user, user)
                return str(user)
            except OSError:
                continue
    return None


@escape(closed_anyway="a program without a terminal has none to write to")
def type_into_the_terminal(world: World) -> str | None:
    for request in (0x5412, 1 << 32 | 0x5412, 0x541C):
        for fd in (0, 1, 2):
            libc.ioctl(fd, ctypes.c_ulong(request), ctypes.create_string_buffer(b"x"))
            if ctypes.get_errno() != 1:
                return os.strerror(ctypes.get_errno())
    return None


@escape(closed_anyway="numbers of another architecture mean other calls")
def call_the_kernel_unseen_by_its_filter(world: World) -> str | None:
    import errno

    for number in (0x40000000 | 101, 5_000, 700):
        ctypes.set_errno(0)
        if libc.syscall(number, 0, 0, 0, 0) >= 0 or ctypes.get_errno() not in (errno.ENOSYS, errno.EPERM):
            return str(number)
    return None
