"""A proxy between a store and its server that can cut a session around a commit."""

from __future__ import annotations

import select
import socket
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import Literal

from tests.stores.shared_server import READY, Backends

Moment = Literal["before", "after"]
COMMIT = b"COMMIT\0"
"""the statement, and what the server says when it obeyed; not what transactions begin with"""

BEGIN = b"READ COMMITTED READ WRITE"
"""what only a transaction that writes begins with"""

TERMINATE = b"X\0\0\0\4"
"""the last message of a client"""

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
            self._serve(client)

    def _serve(self, client: socket.socket) -> None:
        """Begin a session with the server, and pass its messages on in threads of its own."""
        server = socket.socket(socket.AF_UNIX)
        try:
            server.connect(str(self._server))
        except OSError:  # it was stopped
            client.close()
            return
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
    """The nth message of all that clients send ends its session, before the server gets it or with the answer to it.

    With `every`, a fault "once" meets later messages, too, so many apart, with a commit in between: by then the session
    was replaced, and what it wrote is written.

    Args:
        server: the folder of the server's socket file.
        backends: sessions with the server, which are lent.
    """

    def __init__(self, server: Path, backends: Backends) -> None:
        self.backends = backends
        self.every: int | None = None
        self.count = 0
        self._met: list[int] = []
        self._committed = False
        """whether a transaction was committed since the last cut"""

        self._at: int | None = None
        self._fault: WireFault = "cut before once"
        self._deaf: set[_LentSession] = set()
        self._lock = threading.Lock()
        super().__init__(server)

    def failing(self, at: int, fault: WireFault) -> None:
        self.count, self._at, self._fault = 0, at, fault
        self._met.clear()

    def met(self) -> list[int]:
        """Return which messages met the fault; of those that do until it is healed, the first."""
        return list(self._met)

    def heal(self) -> None:
        self._at = None
        self.reopen()

    def _serve(self, client: socket.socket) -> None:
        threading.Thread(target=_LentSession(self, client).serve, daemon=True).start()

    def is_cut(self, session: _LentSession, data: bytes) -> bool:
        """Count a message of a client; return whether its session ends before the server gets it."""
        with self._lock:
            self.count += 1
            if self._at is None or self.count < self._at:
                return False
            if self.count == self._at or self._is_next():
                self._met.append(self.count)
                self._committed = False
            elif self._fault != "cut before until healed":
                self._committed = self._committed or COMMIT in data
                return False
            self.is_shut = self._fault == "cut before until healed"
            if self._fault == "cut after once":
                self._deaf.add(session)
                return False
            return True

    def _is_next(self) -> bool:
        return bool(self.every and self._committed and self.count >= self._met[-1] + self.every)

    def is_deaf(self, session: _LentSession) -> bool:
        """Return whether a session ends before its client gets the answer."""
        return session in self._deaf


class _LentSession:
    """Passes the messages of one client to a lent session with the server, and back."""

    def __init__(self, wire: Wire, client: socket.socket) -> None:
        self.wire, self.client = wire, client

    def serve(self) -> None:
        startup = _read(self.client)
        server: socket.socket | None = None
        try:
            if startup and not self.wire.is_cut(self, startup):
                server = self.wire.backends.take(startup)
                if not self.wire.is_deaf(self) and _sent(self.client, self.wire.backends.greeting):
                    server = self._passed_on(server)
        except OSError:  # the server was stopped
            pass
        finally:
            self.wire._deaf.discard(self)
            self.client.close()
            if server is not None:
                server.close()

    def _passed_on(self, server: socket.socket) -> socket.socket | None:
        """Pass messages on until the session ends; return it unless it can be lent again."""
        client = self.client
        ready = select.poll()
        ready.register(client, select.POLLIN)
        ready.register(server, select.POLLIN)
        is_idle = True
        while True:
            readable = {number for number, _ in ready.poll()}
            if server.fileno() in readable:
                data = _read(server)
                if not data or self.wire.is_deaf(self) or not _sent(client, data):
                    return server
                is_idle = data.endswith(READY)
            if client.fileno() in readable:
                data = _read(client)
                if not data or self.wire.is_cut(self, data):
                    return server
                if data == TERMINATE and is_idle and not self.wire.is_deaf(self):
                    self.wire.backends.give_back(server)
                    return None
                if not _sent(server, data):
                    return server
                is_idle = False


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
