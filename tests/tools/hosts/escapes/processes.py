"""Ways to other processes: their files, memory, descriptors, keys."""

import ctypes
import os
import signal
from pathlib import Path

from tests.tools.hosts.escapes.registry import World, checked, escape, libc, syscall


@escape()
def signal_another_process(world: World) -> str:
    os.kill(world["victim"], signal.SIGUSR1)
    return "signalled"


@escape()
def signal_the_group_of_another_process(world: World) -> str:
    os.killpg(world["victim"], signal.SIGUSR1)
    return "signalled"


@escape()
def signal_by_a_handle(world: World) -> str:
    signal.pidfd_send_signal(os.pidfd_open(world["victim"]), signal.SIGUSR1)
    return "signalled"


@escape()
def signal_the_driver(world: World) -> str:
    os.kill(world["driver"], 0)
    return "it may be signalled"


@escape()
def trace_another_process(world: World) -> str:
    checked(libc.ptrace(0x4206, world["victim"], 0, 0))
    return "traced"


@escape()
def trace_the_driver(world: World) -> str:
    checked(libc.ptrace(0x4206, world["driver"], 0, 0))
    return "traced"


class _Piece(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


@escape()
def read_the_memory_of_the_driver(world: World) -> str:
    here = ctypes.create_string_buffer(len(world["secret_text"]))
    mine, theirs = _Piece(ctypes.addressof(here), len(here)), _Piece(world["address"], len(here))
    read = libc.process_vm_readv(world["driver"], ctypes.byref(mine), 1, ctypes.byref(theirs), 1, 0)
    checked(read)
    return here.raw.decode()


@escape()
def write_the_memory_of_the_driver(world: World) -> str:
    here = ctypes.create_string_buffer(world["secret_text"].encode())
    mine, theirs = _Piece(ctypes.addressof(here), 1), _Piece(world["address"], 1)
    checked(libc.process_vm_writev(world["driver"], ctypes.byref(mine), 1, ctypes.byref(theirs), 1, 0))
    return "written"


@escape()
def read_the_memory_file_of_the_driver(world: World) -> str:
    with open(f"/proc/{world['driver']}/mem", "rb", buffering=0) as memory:
        memory.seek(world["address"])
        return memory.read(len(world["secret_text"])).decode()


@escape()
def take_a_descriptor_of_the_driver(world: World) -> str:
    pidfd = syscall("pidfd_open", world["driver"], 0)
    return os.pread(syscall("pidfd_getfd", pidfd, world["secret_fd"], 0), 1000, 0).decode()


@escape()
def limit_another_process(world: World) -> str:
    import resource

    limits = resource.prlimit(world["victim"], resource.RLIMIT_CORE)
    resource.prlimit(world["victim"], resource.RLIMIT_CORE, limits)
    return "limited"


@escape()
def slow_another_process_down(world: World) -> str:
    os.setpriority(os.PRIO_PROCESS, world["victim"], 19)
    return "slowed down"


@escape()
def bind_another_process_to_a_processor(world: World) -> str:
    os.sched_setaffinity(world["victim"], {0})
    return "bound"


@escape()
def read_the_environment_of_the_driver(world: World) -> str | None:
    data = Path(f"/proc/{world['driver']}/environ").read_text()
    return data or None


@escape(closed_anyway="the host clears it without a sandbox, too")
def find_secrets_in_the_environment(world: World) -> str | None:
    found = [str(dict(os.environ))]
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            found.append(path.read_text())
        except OSError:
            continue
    return next((text for text in found if world["environment_secret"] in text), None)


@escape()
def see_other_processes(world: World) -> str:
    return Path(f"/proc/{world['victim']}/cmdline").read_text() or "seen"


@escape()
def attach_shared_memory_of_the_driver(world: World) -> str:
    libc.shmat.restype = ctypes.c_void_p
    segment = checked(libc.shmget(world["shm_key"], 100, 0))
    address = libc.shmat(segment, None, 0o10000)
    return ctypes.string_at(address, 6).decode()


@escape()
def open_named_shared_memory_of_the_driver(world: World) -> str:
    return Path("/dev/shm", world["shm_name"]).read_text()


@escape(closed_anyway="a kernel may lack it")
def open_a_message_queue(world: World) -> str | None:
    library = ctypes.CDLL("librt.so.1", use_errno=True)
    return str(checked(library.mq_open(b"/treadle", os.O_RDONLY)))


@escape()
def read_keys_of_the_session(world: World) -> str:
    search, read, session = 10, 11, -3
    key = syscall("keyctl", search, session, b"user", world["key"].encode(), 0)
    data = ctypes.create_string_buffer(100)
    size = syscall("keyctl", read, key, data, 100)
    return data.raw[:size].decode()
