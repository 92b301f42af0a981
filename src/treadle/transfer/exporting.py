"""Export: select the tasks that belong together, and write them a page at a time."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from typing import BinaryIO

from treadle.core.data import frozen
from treadle.core.events import END_STATES
from treadle.errors import StoreUnavailable, TaskNotFound
from treadle.ports import JournalReader, TaskFilter, TaskRow
from treadle.transfer.export_format import FORMAT, ExportWriter
from treadle.transfer.rules import WholeThread, every_thread, whole_thread
from treadle.transfer.verifying import every_row, pages

_PAGE = 200


@frozen
class ExportReport:
    """The exported tasks and threads. `tasks` include those that others were forked from or share a thread with."""

    tasks: tuple[str, ...]
    threads: tuple[str, ...]
    events: int
    bytes: int


class Selection:
    """The tasks of an export, with every task that is needed to read or drive them.

    Those are the tasks that they were forked from, all members of their threads, and the whole tree of each.
    """

    def __init__(self, store: JournalReader) -> None:
        self._store = store
        self._seen: set[str] = set()
        self.order: list[str] = []
        """tasks, each after the one it was forked from"""

        self.threads: dict[str, WholeThread] = {}

    async def add(self, task_id: str) -> None:
        """Add a task and the tasks that it needs."""
        await self._add([task_id])

    async def add_thread(self, thread_id: str) -> None:
        """Add a thread, also one whose tasks have all been deleted, and the tasks that it needs."""
        if thread_id not in self.threads:
            await self._add(await self._members(thread_id))

    async def _add(self, waiting: list[str]) -> None:
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
                waiting += await self._members(row.thread_id)

    async def _members(self, thread_id: str) -> list[str]:
        """Add a thread, and return the tasks of its members."""
        thread = self.threads[thread_id] = await whole_thread(self._store, thread_id)
        return [member.task_id for member in thread.members]

    async def _relatives(self, row: TaskRow) -> list[str]:
        """Return the children of a task, and its parent."""
        relatives: list[str] = []
        if row.parent is not None and await self._exists(row.parent):
            relatives.append(row.parent)
        cursor = None
        while not row.deleted:
            page = await self._store.rows(TaskFilter(parent=row.task_id, limit=_PAGE, cursor=cursor))
            relatives += [child.task_id for child in page]
            if len(page) < _PAGE:
                break
            cursor = page[-1].cursor
        return relatives

    async def _exists(self, task_id: str) -> bool:
        try:
            await self._store.row(task_id, deleted=True)
        except TaskNotFound:
            return False
        return True


async def export(store: JournalReader, out: BinaryIO, tasks: Iterable[str] | None) -> ExportReport:
    """Write tasks with their data, by default all tasks and threads. Pass a snapshot if the store is in use."""
    selection = Selection(store)
    for task_id in [row.task_id async for row in every_row(store)][::-1] if tasks is None else tasks:
        await selection.add(task_id)
    for thread_id in [name async for name in every_thread(store)] if tasks is None else ():
        await selection.add_thread(thread_id)
    writer = ExportWriter(out)
    writer.line({"treadle_export": FORMAT, "made": time.time_ns() // 1000})
    events = 0
    for task_id in selection.order:
        events += await _write_task(store, writer, await store.row(task_id, deleted=True))
    threads = {name: thread for name, thread in selection.threads.items() if thread.version}
    for name, thread in threads.items():
        writer.thread(name, thread.version, thread.members)
    writer.close()
    return ExportReport(tuple(selection.order), tuple(threads), events, writer.bytes)


async def _write_task(store: JournalReader, writer: ExportWriter, row: TaskRow) -> int:
    """Write one task and return how many events it has of its own."""
    # An imported task has no driver, as if its driver had shut down.
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
    """Return the digest of the record that holds an event of a task, empty without one."""
    records = await store.read(task_id, after=seq - 1, upto=seq) if seq else []
    return records[-1].digest if records else b""


async def export_to_file(store: JournalReader, path: Path, tasks: Iterable[str] | None) -> ExportReport:
    """Write a file, readable by its owner only, that appears once it is complete.

    It writes to a device or pipe directly, since a file must not replace it.
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
        return False  # opening the path raises the error


async def _export_into(store: JournalReader, path: Path, tasks: Iterable[str] | None) -> ExportReport:
    """Write to a device or a pipe."""
    try:
        with path.open("wb") as out:
            return await export(store, out, tasks)
    except OSError as error:
        raise StoreUnavailable(f"{path}: {error.strerror or error}") from error
