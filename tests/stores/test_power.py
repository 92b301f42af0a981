"""A power cut at any write loses no acknowledged write.

The disk is a file system layer that remembers what each file held at its last flush. At the cut, each write since
then is kept, undone or torn, at random: harsher than most disks.
"""

import random
from collections.abc import Iterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

import apsw
import pytest

from treadle.ports import Commit, NewTask, Record
from treadle.stores.processes import this_process
from treadle.stores.sqlite import schema
from treadle.stores.sqlite.journal import Journal
from treadle.stores.sqlite.schema import Connection

VFS_NAME = "treadle-power"


class PowerCut(BaseException):
    """The machine is off."""


class Disk:
    """The flushed data of a disk, and the writes that were not flushed yet."""

    def __init__(self, chance: random.Random, writes: int) -> None:
        self.chance, self.left, self.off = chance, writes, False
        self.pending: dict[str, list[tuple[int, bytes]]] = {}

    def wrote(self, name: str, offset: int, before: bytes) -> None:
        self.pending.setdefault(name, []).append((offset, before))
        self.left -= 1
        if self.left <= 0:
            self.off = True
            raise PowerCut

    def flushed(self, name: str) -> None:
        self.pending.pop(name, None)

    dropped = torn = 0
    """how many writes that were not flushed were undone, and torn, over all cuts"""

    def cut(self) -> None:
        """Undo or tear some of what was written since the last flush of each file."""
        for name, writes in self.pending.items():
            path = Path(name)
            if not path.exists():
                continue
            content = bytearray(path.read_bytes())
            for offset, before in reversed(writes):
                fate = self.chance.random()
                if fate < 0.5:
                    Disk.dropped += 1
                    content[offset : offset + len(before)] = before
                elif fate < 0.65:
                    Disk.torn += 1
                    torn = self.chance.randrange(len(before) + 1)
                    content[offset + torn : offset + len(before)] = before[torn:]
            path.write_bytes(content)


DISK: list[Disk] = []


class PowerFile(apsw.VFSFile):
    def __init__(self, inherit: str, name: Any, flags: Any) -> None:
        self.name = name.filename() if isinstance(name, apsw.URIFilename) else str(name)
        super().__init__(inherit, name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        disk = DISK[-1]
        if disk.off:
            raise PowerCut
        size = super().xFileSize()
        kept = max(0, min(len(data), size - offset))
        before = super().xRead(kept, offset) if kept else b""
        super().xWrite(data, offset)
        disk.wrote(self.name, offset, before + bytes(len(data) - kept))

    def xSync(self, flags: int) -> None:  # noqa: N802
        if DISK[-1].off:
            raise PowerCut
        super().xSync(flags)
        DISK[-1].flushed(self.name)


class PowerVFS(apsw.VFS):
    def __init__(self) -> None:
        super().__init__(VFS_NAME, "")

    def xOpen(self, name: Any, flags: Any) -> PowerFile:  # noqa: N802
        return PowerFile("", name, flags)


@pytest.fixture
def vfs() -> Iterator[str]:
    registered = PowerVFS()
    yield VFS_NAME
    registered.unregister()


def connect(path: Path, vfs: str) -> Connection:
    """Open as the store does, with a single connection: the layer has no shared memory."""
    flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
    connection = cast(Connection, apsw.Connection(str(path), flags=flags, vfs=vfs))
    schema.pragma(connection, "locking_mode", "exclusive")
    schema._settle(connection)
    schema._migrate(connection, path)
    return connection


def write_until_the_cut(connection: Connection, acknowledged: list[tuple[str, bytes]]) -> None:
    journal, digest = Journal(connection, this_process()), b""
    for seq in range(1, 200):
        data = f"event {seq} ".encode() * 40
        digest = sha256(digest + data).digest()
        record = Record(seq, 1, 1, data, digest, {f"b{seq}": data * 30} if seq % 5 == 0 else {})
        create = NewTask("t", "agent", "talk", 1) if seq == 1 else None
        connection.execute("BEGIN IMMEDIATE")
        journal.commit(Commit("t", 1, record, create))
        connection.execute("COMMIT")
        acknowledged.append(("t", data))


@pytest.mark.parametrize("trials", [30, pytest.param(1_000, marks=pytest.mark.full)])
def test_acknowledged_commits_survive_a_power_cut(tmp_path: Path, vfs: str, trials: int) -> None:
    Disk.dropped = Disk.torn = cut_in_the_file = 0
    for trial in range(trials):
        chance, path = random.Random(trial), tmp_path / f"{trial}.db"
        DISK[:] = [Disk(chance, 10**9)]
        connection = connect(path, vfs)
        # Half of them copy from the log into the file now and then, so that cuts fall into that, too.
        schema.pragma(connection, "wal_autocheckpoint", chance.choice([8, 1_000]))
        DISK[0].left = chance.randrange(1, 400)
        acknowledged: list[tuple[str, bytes]] = []
        with suppress(PowerCut, apsw.Error):
            write_until_the_cut(connection, acknowledged)
        DISK[0].off = True
        with suppress(PowerCut, apsw.Error):
            connection.close(True)
        cut_in_the_file += bool(DISK[0].pending.get(str(path)))
        DISK[0].cut()
        DISK[:] = [Disk(chance, 10**9)]
        connection = connect(path, vfs)
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        payloads = [data for (data,) in connection.execute("SELECT data FROM records ORDER BY seq")]
        kept = [data for _, data in acknowledged]
        # The commit under way when the power went may be there as well: whole, for the records are in order.
        assert payloads[: len(kept)] == kept, trial
        assert len(payloads) - len(kept) in (0, 1), trial
        connection.close(True)
        path.unlink()
    print(
        f"{trials} cuts: {Disk.dropped} writes dropped, {Disk.torn} torn, {cut_in_the_file} cuts in the file itself"
    )
    assert Disk.torn > trials / 4
    assert Disk.dropped > trials
    assert cut_in_the_file > trials / 20
