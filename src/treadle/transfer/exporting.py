"""Exporting: which tasks belong together, and how they are written, a page at a time."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from typing import BinaryIO

from treadle.core.data import frozen, mutable
from treadle.core.events import END_STATES
from treadle.errors import StoreUnavailable, TaskNotFound
from treadle.ports import JournalReader, TaskFilter, TaskRow, ThreadMember
from treadle.transfer.export_format import FORMAT, ExportWriter
from treadle.transfer.verifying import every_row, pages

_PAGE = 200


@frozen
class ExportReport:
    """What was exported: ids of tasks, also those that others were forked from or share a thread with."""

    tasks: tuple[str, ...]
    threads: tuple[str, ...]
    events: int
    bytes: int


@mutable
class _Thread:
    version: int
    members: list[ThreadMember]


class Selection:
    """The tasks of an export, with what they cannot be read without, or gone on with.

    That is the tasks they were forked from, all who spoke in their threads, and the whole tree of each.
    """

    def __init__(self, store: JournalReader) -> None:
        self._store = store
        self._seen: set[str] = set()
        self.order: list[str] = []
        """tasks, each behind the one it was forked from"""

        self.threads: dict[str, _Thread] = {}

    async def add(self, task_id: str) -> None:
        """Take in a task and what it needs."""
        waiting = [task_id]
        while waiting:
            task_id = waiting.pop()
            if task_id in self._seen:
                continue
            row = await self._store.row(task_id, deleted=True)
            if row.base is not None and row.base not in self._seen:
                waiting += [task_id, row.base]
                continue
            self._seen.add(task_id)
            self.order.append(task_id)
            waiting += await self._relatives(row)
            if row.thread_id not in self.threads:
                found = self.threads[row.thread_id] = await _history(self._store, row.thread_id)
                waiting += [member.task_id for member in found.members]

    async def _relatives(self, row: TaskRow) -> list[str]:
        """Return the children of a task, and its parent."""
        found: list[str] = []
        if row.parent is not None and await self._is_there(row.parent):
            found.append(row.parent)
        cursor = None
        while not row.deleted:
            page = await self._store.rows(TaskFilter(parent=row.task_id, limit=_PAGE, cursor=cursor))
            found += [child.task_id for child in page]
            if len(page) < _PAGE:
                break
            cursor = page[-1].task_id
        return found

    async def _is_there(self, task_id: str) -> bool:
        try:
            await self._store.row(task_id, deleted=True)
        except TaskNotFound:
            return False
        return True


async def _history(store: JournalReader, thread_id: str) -> _Thread:
    """Return a thread with those who were taken out of it again."""
    version, members = await store.thread(thread_id)
    if len(members) == version:
        return _Thread(version, members)
    known: dict[int, ThreadMember] = {}
    for at in range(1, version + 1):
        _, there = await store.thread(thread_id, version=at)
        for member in there:
            known.setdefault(member.version, member)
        still = {member.version for member in there}
        for member in known.values():
            if member.version not in still and member.gone is None:
                member.gone = at
    return _Thread(version, [known[at] for at in sorted(known)])


async def export(store: JournalReader, out: BinaryIO, tasks: Iterable[str] | None) -> ExportReport:
    """Write tasks, all by default, with what they need, from a snapshot if the store is in use."""
    wanted = Selection(store)
    if tasks is None:
        tasks = [row.task_id async for row in every_row(store)][::-1]
    for task_id in tasks:
        await wanted.add(task_id)
    writer = ExportWriter(out)
    writer.line({"treadle_export": FORMAT, "made": time.time_ns() // 1000})
    events = 0
    for task_id in wanted.order:
        events += await _write_task(store, writer, await store.row(task_id, deleted=True))
    kept = {name: found for name, found in wanted.threads.items() if found.version}
    for name, found in kept.items():
        writer.thread(name, found.version, found.members)
    writer.close()
    return ExportReport(tuple(wanted.order), tuple(kept), events, writer.bytes)


async def _write_task(store: JournalReader, writer: ExportWriter, row: TaskRow) -> int:
    """Write one task and return how many events it has of its own."""
    # Nobody drives it where it is taken in: there it is a task whose driver has gone.
    owned = row.driver is not None and row.state not in END_STATES
    digest = await digest_at(store, row.task_id, row.head)
    base_digest = await digest_at(store, row.base, row.base_seq) if row.base is not None else b""
    writer.task(row, "interrupted" if owned else row.state, digest, base_digest)
    async for page in pages(store, row.task_id, after=row.base_seq, upto=row.head):
        for record in page:
            writer.record(record)
        await asyncio.sleep(0)
    for item in [] if row.deleted else await store.inbox(row.task_id):
        writer.inbox(item)
    writer.end(row)
    return row.head - row.base_seq


async def digest_at(store: JournalReader, task_id: str, seq: int) -> bytes:
    """Return the digest of the record that holds an event of a task; empty if there is none."""
    found = await store.read(task_id, after=seq - 1, upto=seq) if seq else []
    return found[-1].digest if found else b""


async def export_to_file(store: JournalReader, path: Path, tasks: Iterable[str] | None) -> ExportReport:
    """Write a file, for its owner only, that is there when it is whole and not before.

    What is there and is no file (a device, a pipe) is written to as it is: it must not be replaced by a file.
    """
    if _is_device(path):
        return await _export_into(store, path, tasks)
    part = path.with_name(f".{path.name}.{token_hex(4)}.part")
    try:
        with os.fdopen(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as out:
            report = await export(store, out, tasks)
            out.flush()
            os.fsync(out.fileno())
        part.replace(path)
    except OSError as error:
        raise StoreUnavailable(f"{path}: {error.strerror or error}") from error
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)
    return report


def _is_device(path: Path) -> bool:
    try:
        return path.exists() and not path.is_file()
    except OSError:
        return False  # what is wrong with the path is said when it is opened


async def _export_into(store: JournalReader, path: Path, tasks: Iterable[str] | None) -> ExportReport:
    """Write to a device or a pipe."""
    try:
        with path.open("wb") as out:
            return await export(store, out, tasks)
    except OSError as error:
        raise StoreUnavailable(f"{path}: {error.strerror or error}") from error
