"""Ways by mounts and namespaces."""

import ctypes
import os
import platform
import signal
import struct
from pathlib import Path

from tests.tools.hosts.escapes.registry import HARMS, NUMBERS, ROOT, World, checked, escape, libc, syscall


@escape(closed_anyway=ROOT)
def mount_a_folder(world: World) -> str:
    checked(libc.mount(b"none", os.fsencode(world["writable"]), b"tmpfs", 0, None))
    return "mounted"


@escape(closed_anyway=ROOT)
def make_a_readable_folder_writable(world: World) -> str:
    remount, bind = 32, 4096
    checked(libc.mount(None, os.fsencode(world["readable"]), None, remount | bind, None))
    return "remounted"


@escape(closed_anyway=HARMS)
def unmount_proc(world: World) -> str:
    checked(libc.umount2(b"/proc", 2))
    return "unmounted"


@escape(closed_anyway=ROOT)
def take_a_tree_of_mounts(world: World) -> str:
    return str(syscall("open_tree", -100, b"/", 1))


@escape(closed_anyway=ROOT)
def open_a_file_system(world: World) -> str:
    return str(syscall("fsopen", b"tmpfs", 0))


@escape(closed_anyway=ROOT)
def change_the_root(world: World) -> str:
    os.chroot(".")
    return "changed"


@escape(closed_anyway=ROOT)
def make_namespaces(world: World) -> str | None:
    for flag in (0x10000000, 0x00020000, 0x20000000, 0x40000000):
        if libc.unshare(flag) == 0:
            return hex(flag)
    return None


@escape(closed_anyway=ROOT)
def make_namespaces_with_a_process(world: World) -> str | None:
    pid = libc.syscall(56 if platform.machine() == "x86_64" else 220, 0x10000000 | signal.SIGCHLD, 0, 0, 0, 0)
    if pid == 0:
        os._exit(0)
    return None if pid < 0 else "made"


@escape(closed_anyway=ROOT)
def make_namespaces_unseen_by_a_filter(world: World) -> str | None:
    arguments = struct.pack("=8Q", 0x10000000, 0, 0, 0, signal.SIGCHLD, 0, 0, 0)
    pid = libc.syscall(NUMBERS["clone3"], ctypes.create_string_buffer(arguments), ctypes.c_size_t(64))
    if pid == 0:
        os._exit(0)
    return None if pid < 0 else "made"


@escape(closed_anyway=ROOT)
def enter_the_namespaces_of_the_driver(world: World) -> str:
    handle = os.open(f"/proc/{world['driver']}/ns/net", os.O_RDONLY)
    checked(libc.setns(handle, 0))
    return "entered"


@escape(closed_anyway="what it reads is there by right without a sandbox")
def find_another_mount_of_the_machine(world: World) -> str | None:
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        place = line.split()[4]
        if place in ("/sys", "/run", "/home", "/var", "/boot") or place.startswith("/sys/"):
            return place
    return None
