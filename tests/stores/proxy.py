"""A door between a store and its server that can be slammed around a commit."""

import socket
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import Literal

Moment = Literal["before", "after"]


class Proxy:
    """Hands on what clients and server say; `cut` ends the session that commits next.

    Args:
        server: the folder of the server's socket file.
    """

    def __init__(self, server: Path) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="proxy-"))
        self._server = server / ".s.PGSQL.5432"
        self._moment: Moment | None = None
        self.cuts = 0
        self._shuts = self.is_shut = False
        self._door = socket.socket(socket.AF_UNIX)
        self._door.bind(str(self.folder / ".s.PGSQL.5432"))
        self._door.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self, moment: Moment, *, shut: bool = False) -> None:
        """Cut the next session that commits: before the server gets the word, or after it obeyed, its answer lost.

        With `shut`, nobody gets in after that until `reopen`.
        """
        self._moment, self._shuts = moment, shut

    def reopen(self) -> None:
        """Let clients in again."""
        self.is_shut = False

    def close(self) -> None:
        self._door.close()

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
            server.connect(str(self._server))
            session = _Session(self, client, server)
            for work in (session.upward, session.downward):
                threading.Thread(target=work, daemon=True).start()

    def take(self, moment: Moment) -> bool:
        if self._moment != moment:
            return False
        self._moment = None
        self.cuts += 1
        self.is_shut = self._shuts
        return True


class _Session:
    def __init__(self, proxy: Proxy, client: socket.socket, server: socket.socket) -> None:
        self.proxy, self.client, self.server = proxy, client, server

    def upward(self) -> None:
        while data := _read(self.client):
            if b"COMMIT" in data and self.proxy.take("before"):
                break
            self.server.sendall(data)
        self._end()

    def downward(self) -> None:
        while data := _read(self.server):
            if b"COMMIT" in data and self.proxy.take("after"):
                break
            try:
                self.client.sendall(data)
            except OSError:
                break
        self._end()

    def _end(self) -> None:
        for end in (self.client, self.server):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


def _read(end: socket.socket) -> bytes:
    try:
        return end.recv(1 << 20)
    except OSError:
        return b""
