"""What is outside of a sandbox, for ways out to reach: files, sockets, processes, memory, keys."""

import ctypes
import os
import secrets
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.tools.hosts.escapes.registry import libc, syscall


class Outside:
    """Files, sockets and processes of this machine, in a folder; `world` says where they are."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.reached: list[str] = []
        self.text = f"canary-{secrets.token_hex(8)}"
        self.readable, self.writable, outside = folder / "readable", folder / "writable", folder / "outside"
        for each in (self.readable, self.writable, outside):
            each.mkdir()
        self.secret = outside / "secret.txt"
        self.secret.write_text(self.text)
        self.file = self.readable / "file"
        self.file.write_text("as it was")
        (self.readable / "link-out").symlink_to(self.secret)
        self.status = self.secret.stat(), self.file.stat()
        handle = os.open(self.secret, os.O_RDONLY)
        os.set_inheritable(handle, True)
        stack.callback(os.close, handle)
        self.memory = ctypes.create_string_buffer(self.text.encode())
        self.victim = subprocess.Popen(("/bin/sleep", "600"), start_new_session=True)
        stack.callback(self._end_victim)
        self.marker = f"600.{secrets.randbelow(10**9)}"
        self.world: dict[str, Any] = {
            "secret": str(self.secret),
            "secret_text": self.text,
            "secret_fd": handle,
            "readable": str(self.readable),
            "writable": str(self.writable),
            "driver": os.getpid(),
            "victim": self.victim.pid,
            "address": ctypes.addressof(self.memory),
            "marker": self.marker,
            "key": "",
            "shm_key": -1,
            "shm_name": f"treadle-{secrets.token_hex(4)}",
            "environment_secret": f"environment-{secrets.token_hex(8)}",
            "interfaces": sorted(name for _, name in socket.if_nameindex()),
            "tcp6": 1,
        }
        self._listen(stack, socket.AF_INET, ("127.0.0.1", 0), "tcp")
        with suppress(OSError):  # a machine may have no IPv6
            self._listen(stack, socket.AF_INET6, ("::1", 0), "tcp6")
        self._listen(stack, socket.AF_UNIX, "\0" + self.world["shm_name"], "abstract")
        for name, path in (("socket", outside / "service"), ("", self.readable / "service")):
            self._listen(stack, socket.AF_UNIX, str(path), name)
        self.world["abstract"] = self.world["shm_name"]
        self._answer_datagrams(stack)
        self._knock(stack)
        self._share_memory(stack)

    def processes(self) -> list[str]:
        """Return the command lines of processes that a way left behind."""
        found: list[str] = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):
                line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
                if line.startswith("sleep ") and self.marker in line:
                    found.append(line)
        return found

    def _end_victim(self) -> None:
        self.victim.kill()
        self.victim.wait()

    def _listen(self, stack: ExitStack, family: int, address: Any, name: str) -> None:
        listener = stack.enter_context(socket.socket(family))
        listener.bind(address)
        listener.listen()
        if family != socket.AF_UNIX:
            self.world[name] = listener.getsockname()[1]
        elif name == "socket":
            self.world[name] = address

        def accept() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    connection.close()
                    self.reached.append(name or "a socket in a declared folder")

        stack.callback(listener.shutdown, socket.SHUT_RDWR)
        threading.Thread(target=accept, daemon=True).start()

    def _answer_datagrams(self, stack: ExitStack) -> None:
        receiver = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        receiver.bind(("127.0.0.1", 0))
        receiver.settimeout(0.2)
        self.world["udp"] = receiver.getsockname()[1]
        ended = threading.Event()

        def answer() -> None:
            while not ended.is_set():
                try:
                    data, sender = receiver.recvfrom(1000)
                except TimeoutError:
                    continue
                self.reached.append("udp")
                receiver.sendto(b"answered " + data[:10], sender)

        thread = threading.Thread(target=answer)
        thread.start()
        stack.callback(thread.join)
        stack.callback(ended.set)

    def _knock(self, stack: ExitStack) -> None:
        """Connect to a port as soon as something listens there."""
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            port = self.world["free_port"] = unused.getsockname()[1]
        ended = threading.Event()

        def knock() -> None:
            while not ended.wait(0.05):
                with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1) as connection:
                    connection.sendall(b"from the machine")

        thread = threading.Thread(target=knock)
        thread.start()
        stack.callback(thread.join)
        stack.callback(ended.set)

    def _share_memory(self, stack: ExitStack) -> None:
        named = Path("/dev/shm", self.world["shm_name"])
        named.write_text(self.text)
        stack.callback(named.unlink)
        key = secrets.randbelow(1 << 30) + 1
        segment = libc.shmget(key, 100, 0o1666)
        if segment >= 0:
            libc.shmat.restype = ctypes.c_void_p
            address = libc.shmat(segment, None, 0)
            ctypes.memmove(address, self.text.encode(), len(self.text))
            self.world["shm_key"] = key
            stack.callback(libc.shmctl, segment, 0, None)
            stack.callback(libc.shmdt, ctypes.c_void_p(address))
        name = f"treadle-{secrets.token_hex(4)}"
        with suppress(
            OSError, KeyError
        ):  # a container may deny keys, and this test knows few machines' numbers
            number = syscall("add_key", b"user", name.encode(), self.text.encode(), len(self.text), -3)
            self.world["key"] = name
            stack.callback(syscall, "keyctl", 9, number, -3)


@contextmanager
def outside(folder: Path) -> Iterator[Outside]:
    """Make what is outside of a sandbox, and remove it."""
    with ExitStack() as stack:
        made = Outside(folder, stack)
        os.environ["TREADLE_TEST_SECRET"] = made.world["environment_secret"]
        stack.callback(os.environ.pop, "TREADLE_TEST_SECRET", None)
        yield made
