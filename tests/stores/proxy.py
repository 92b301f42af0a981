"""A proxy between a store and its server that can cut a session around a commit."""

from __future__ import annotations

import socket
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import Literal

Moment = Literal["before", "after"]
COMMIT = b"COMMIT\0"
"""the statement, and what the server says when it obeyed; not what transactions begin with"""

BEGIN = b"READ COMMITTED READ WRITE"
"""what only a transaction that writes begins with"""

WireFault = Literal["cut before once", "cut after once", "cut before until healed"]
WIRE_FAULTS: tuple[WireFault, ...] = ("cut before once", "cut after once", "cut before until healed")


class Proxy:
    """Passes on the messages of clients and server; `cut` ends the session that commits next.

    Args:
        server: the folder of the server's socket file.
    """

    def __init__(self, server: Path) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="proxy-"))
        self._server = server / ".s.PGSQL.5432"
        self._moment: Moment | None = None
        self.cuts = 0
        self._shuts = self.is_shut = self._twice = False
        self._word = COMMIT
        self.is_silent = False
        self.is_mute = self._mutes = False
        self.said = bytearray()
        """the messages of clients so far"""

        self.left: list[socket.socket] = []
        """sessions of which the server does not know that they ended"""

        self._door = socket.socket(socket.AF_UNIX)
        self._door.bind(str(self.folder / ".s.PGSQL.5432"))
        self._door.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self, moment: Moment, *, shut: bool = False, twice: bool = False, silent: bool = False) -> None:
        """Cut the next session that commits: before the server gets the COMMIT, or after it, with the answer lost.

        With `shut`, no client gets in after that until `reopen`; with `twice`, the next session is cut as it begins;
        with `silent`, the server does not hear that it was, as when a cable is cut.
        """
        self.is_silent = silent
        self._moment, self._word, self._shuts, self._twice = moment, COMMIT, shut, twice

    def mute(self, moment: Moment | None = None) -> None:
        """Pass nothing on, and end no session: with `moment`, of the session that commits next, else of all."""
        if moment is None:
            self.is_mute = True
        else:
            self._moment, self._word, self._mutes = moment, COMMIT, True

    def reopen(self) -> None:
        """Accept clients again, and pass on the messages of new ones."""
        self.is_shut = self.is_mute = False

    def close(self) -> None:
        self._door.close()
        for server in self.left:
            with suppress(OSError):
                server.shutdown(socket.SHUT_RDWR)
            server.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._door.accept()
            except OSError:
                return
            if self.is_shut:
                client.close()
                continue
            server = socket.socket(socket.AF_UNIX)
            try:
                server.connect(str(self._server))
            except OSError:  # it was stopped
                client.close()
                continue
            session = _Session(self, client, server)
            for work in (session.upward, session.downward):
                threading.Thread(target=work, daemon=True).start()

    def cuts_off(self, session: _Session, moment: Moment, data: bytes) -> bool:
        """Return whether to end a session: before the server gets a message, or before the client gets the answer."""
        if self._moment != moment or self._word not in data:
            return False
        self._moment, self._word, self._twice = "before" if self._twice else None, BEGIN, False
        self.cuts += 1
        self.is_shut = self._shuts
        return True


class Wire(Proxy):
    """The nth message of all that clients send ends its session, before the server gets it or with the answer to it."""

    def __init__(self, server: Path) -> None:
        super().__init__(server)
        self.count = 0
        self._at: int | None = None
        self._fault: WireFault = "cut before once"
        self._deaf: set[_Session] = set()
        self._lock = threading.Lock()

    def failing(self, at: int, fault: WireFault) -> None:
        self.count, self._at, self._fault = 0, at, fault
        self.said.clear()

    def heal(self) -> None:
        self._at = None
        self.reopen()

    def cuts_off(self, session: _Session, moment: Moment, data: bytes) -> bool:
        with self._lock:
            if moment == "after":
                return session in self._deaf
            self.count += 1
            if self._at is None or self.count < self._at:
                return False
            if self._fault == "cut before until healed":
                self.is_shut = True
                return True
            if self._fault == "cut after once" and self.count == self._at:
                self._deaf.add(session)
            return self._fault == "cut before once" and self.count == self._at


class _Session:
    def __init__(self, proxy: Proxy, client: socket.socket, server: socket.socket) -> None:
        self.proxy, self.client, self.server = proxy, client, server
        self.is_mute = False

    def upward(self) -> None:
        while data := _read(self.client):
            self.proxy.said += data
            if not self._passes_on("before", data, self.server):
                break
        self._close_writer()

    def downward(self) -> None:
        while data := _read(self.server):
            if not self._passes_on("after", data, self.client):
                break
        self._close_writer()

    def _passes_on(self, moment: Moment, data: bytes, to: socket.socket) -> bool:
        """Pass data on, or swallow it; False when the session is to end."""
        self.is_mute = self.is_mute or self.proxy.is_mute
        if self.is_mute:
            return True
        if self.proxy.cuts_off(self, moment, data):
            self.is_mute = self.proxy._mutes
            return self.is_mute
        return _sent(to, data)

    def _close_writer(self) -> None:
        ends = [self.client, self.server]
        if self.proxy.is_silent:
            self.proxy.left.append(ends.pop())
        for end in ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


def _sent(end: socket.socket, data: bytes) -> bool:
    """Whether data went on its way: the other direction may have ended the session just now."""
    try:
        end.sendall(data)
    except OSError:
        return False
    return True


def _read(end: socket.socket) -> bytes:
    try:
        return end.recv(1 << 20)
    except OSError:
        return b""
