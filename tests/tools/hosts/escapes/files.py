"""Ways to files outside of a sandbox."""

import ctypes
import os
import stat
import sys
from pathlib import Path

from tests.tools.hosts.escapes.registry import HARMS, ROOT, World, checked, escape, libc


@escape()
def read_a_file_outside(world: World) -> str:
    return Path(world["secret"]).read_text()


@escape()
def read_by_dots(world: World) -> str:
    return Path("../" * 30 + world["secret"]).read_text()


@escape()
def read_through_an_own_link(world: World) -> str:
    Path("link").symlink_to(world["secret"])
    return Path("link").read_text()


@escape()
def read_through_a_link_in_a_declared_folder(world: World) -> str:
    return Path(world["readable"], "link-out").read_text()


@escape()
def list_a_folder_outside(world: World) -> str:
    return str(os.listdir(Path(world["secret"]).parent))


@escape()
def link_a_file_outside_into_the_working_folder(world: World) -> str:
    os.link(world["secret"], Path(world["writable"], "mine"))
    return Path(world["writable"], "mine").read_text()


@escape()
def link_a_readable_file_and_write_it(world: World) -> str:
    target = Path(world["writable"], "linked")
    os.link(Path(world["readable"], "file"), target)
    target.write_text("changed")
    return "written"


@escape()
def read_by_the_root_of_this_process(world: World) -> str:
    return Path("/proc/self/root" + world["secret"]).read_text()


@escape()
def read_by_the_root_of_process_1(world: World) -> str:
    return Path("/proc/1/root" + world["secret"]).read_text()


@escape()
def read_by_the_root_of_the_driver(world: World) -> str:
    return Path(f"/proc/{world['driver']}/root" + world["secret"]).read_text()


@escape()
def read_by_the_folder_of_the_driver(world: World) -> str:
    return str(os.listdir(f"/proc/{world['driver']}/cwd/"))


@escape()
def read_a_descriptor_of_the_driver(world: World) -> str:
    return Path(f"/proc/{world['driver']}/fd/{world['secret_fd']}").read_text()


@escape(closed_anyway="the host closes them without a sandbox, too")
def read_an_inherited_descriptor(world: World) -> str | None:
    secret = Path(world["secret_text"]).name.encode()
    for fd in range(3, 512):
        try:
            data = os.pread(fd, 1000, 0)
        except OSError:
            continue
        if secret in data:
            return data.decode()
    return None


@escape(closed_anyway=ROOT)
def open_a_file_by_its_handle(world: World) -> str:
    class Handle(ctypes.Structure):
        _fields_ = (("size", ctypes.c_uint), ("kind", ctypes.c_int), ("data", ctypes.c_ubyte * 128))

    handle, mount = Handle(size=128), ctypes.c_int()
    checked(libc.name_to_handle_at(-100, b"/usr", ctypes.byref(handle), ctypes.byref(mount), 0))
    usr = os.open("/usr", os.O_RDONLY)
    return str(checked(libc.open_by_handle_at(usr, ctypes.byref(handle), os.O_RDONLY)))


@escape()
def write_a_readable_file(world: World) -> str:
    Path(world["readable"], "file").write_text("changed")
    return "written"


@escape()
def make_a_file_in_a_readable_folder(world: World) -> str:
    Path(world["readable"], "new").write_text("new")
    return "made"


@escape()
def rename_a_readable_file(world: World) -> str:
    os.rename(Path(world["readable"], "file"), Path(world["readable"], "other"))
    os.rename(Path(world["readable"], "other"), Path(world["readable"], "file"))
    return "renamed"


@escape()
def truncate_a_readable_file(world: World) -> str:
    os.truncate(Path(world["readable"], "file"), 0)
    return "truncated"


@escape()
def change_the_mode_of_a_readable_file(world: World) -> str:
    os.chmod(Path(world["readable"], "file"), 0o777)
    return "changed"


@escape()
def change_the_mode_of_a_file_outside(world: World) -> str:
    os.chmod(world["secret"], 0o777)
    return "changed"


@escape()
def change_the_times_of_a_file_outside(world: World) -> str:
    os.utime(world["secret"], (1, 1))
    return "changed"


@escape()
def set_an_attribute_of_a_readable_file(world: World) -> str:
    os.setxattr(Path(world["readable"], "file"), "user.mark", b"x")
    return "set"


@escape()
def change_the_flags_of_a_readable_file(world: World) -> str:
    get, put, no_dump = 0x80086601, 0x40086602, 0x40
    handle, flags = os.open(Path(world["readable"], "file"), os.O_RDONLY), ctypes.c_long()
    checked(libc.ioctl(handle, ctypes.c_ulong(get), ctypes.byref(flags)), "get: ")
    flags.value ^= no_dump
    checked(libc.ioctl(handle, ctypes.c_ulong(put), ctypes.byref(flags)), "put: ")
    return "changed"


@escape(closed_anyway=HARMS)
def write_into_system_folders(world: World) -> str | None:
    for folder in ("/usr", "/usr/bin", "/usr/lib", "/etc", "/root", "/home", "/opt", "/var", "/boot"):
        try:
            path = Path(folder, f"treadle-{os.getpid()}")
            path.write_text("x")
            path.unlink()
            return folder
        except OSError:
            continue
    return None


@escape(closed_anyway=HARMS)
def replace_the_code_of_the_package(world: World) -> str:
    with open(sys.modules["treadle"].__file__ or "", "r+b"):
        return "opened"


@escape(closed_anyway=HARMS)
def replace_the_interpreter(world: World) -> str:
    with open(os.__file__, "r+b"):  # the program itself is busy
        return "opened"


@escape()
def leave_a_setuid_program_behind(world: World) -> str:
    path = Path(world["writable"], "program")
    path.write_bytes(b"#!/bin/sh\n")
    path.chmod(0o4755)
    return oct(path.stat().st_mode)


@escape()
def make_a_setuid_program_at_once(world: World) -> str | None:
    path = Path(world["writable"], "made")
    os.umask(0)
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o6755))
    return "made" if path.stat().st_mode & stat.S_ISUID else None


@escape()
def make_a_setuid_program_without_a_name(world: World) -> str | None:
    os.umask(0)
    handle = os.open(world["writable"], os.O_TMPFILE | os.O_RDWR, 0o6755)
    return "made" if os.fstat(handle).st_mode & stat.S_ISUID else None


@escape(closed_anyway=ROOT)
def make_a_device(world: World) -> str:
    path = Path(world["writable"], "disk")
    os.mknod(path, 0o600 | stat.S_IFBLK, os.makedev(254, 0))
    return "made"


@escape(closed_anyway=ROOT)
def open_devices_of_the_machine(world: World) -> str | None:
    for name in (
        "mem",
        "kmsg",
        "port",
        "vda",
        "sda",
        "nvme0n1",
        "kvm",
        "fuse",
        "net/tun",
        "vhost-net",
        "loop-control",
    ):
        try:
            os.close(os.open(f"/dev/{name}", os.O_RDONLY))
            return name
        except OSError:
            continue
    return None
