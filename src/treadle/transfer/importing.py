"""Import: the whole file is checked before the first write. Then each task is written whole or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, Final

from treadle.core.data import frozen, mutable
from treadle.core.ids import is_name
from treadle.core.journal import unfold
from treadle.core.state import TaskState, start
from treadle.engine import loading
from treadle.errors import Fenced, ImportRefused, JournalCorrupt, TaskConflict, TaskNotFound
from treadle.ports import JournalStore, Record, TaskExists, TaskRow, ThreadMember, ThreadMoved
from treadle.results.usage import figures_of
from treadle.transfer import export_format, rules
from treadle.transfer.export_format import FORMAT, ExportReader, Section
from treadle.transfer.exporting import digest_at
from treadle.transfer.verifying import pages

_BREATH: Final = 256


@frozen
class ImportReport:
    """The imported tasks and threads. `known` names tasks that the store already had, with the same events."""

    tasks: tuple[str, ...]
    known: tuple[str, ...]
    threads: tuple[str, ...]
    events: int


@mutable
class _Export:
    """A complete export: the sections of its tasks, and its threads with their line numbers."""

    tasks: list[Section]
    threads: list[tuple[int, tuple[str, int, list[ThreadMember]]]]


class _Records:
    """The records of a task in a file. Each iteration reads and checks them again."""

    def __init__(self, path: Path, task: Section) -> None:
        self._path = path
        self._task = task

    def __iter__(self) -> Iterator[Record]:
        task = self._task
        head, digest = task.row.base_seq, task.base_digest
        try:
            with self._path.open("rb") as file:
                file.seek(task.offset)
                reader = ExportReader(file, task.line)
                for line, record in _unchecked(reader, task):
                    why = export_format.follows(task.row.task_id, record, head, digest)
                    if why is not None:
                        raise reader.refuse(why, line)
                    head, digest = record.seq, record.digest
                    yield record
        except OSError as error:
            raise ImportRefused(f"{self._path}: {error.strerror or error}", line=task.line) from error
        if (head, digest) != (task.row.head, task.digest):
            raise ImportRefused(f"line {task.line}: the file was changed meanwhile", line=task.line)


def _unchecked(reader: ExportReader, task: Section) -> Iterator[tuple[int, Record]]:
    """Read a task's records up to its head, without checking its lines again."""
    if task.row.head == task.row.base_seq:
        return
    for line, record in export_format.records(reader, task):
        yield line, record
        if record.seq >= task.row.head:
            return


async def import_tasks(store: JournalStore, path: Path) -> ImportReport:
    """Import all tasks of a file that are not in the store yet."""
    try:
        with path.open("rb") as file:
            export = await _checked(store, path, file)
    except OSError as error:
        raise ImportRefused(f"{path}: {error.strerror or error}", line=0) from error
    known_ids = [task.row.task_id for task in export.tasks if await _is_known(store, task)]
    threads = [thread for line, thread in export.threads if not await _is_same_thread(store, line, thread)]
    new = [task for task in export.tasks if task.row.task_id not in set(known_ids)]
    for line, (_, _, members) in export.threads:
        await _check_members(store, export, line, members)
    for task in new:
        await _restore(store, path, task)
    for name, version, members in threads:
        try:
            await store.restore_thread(name, version, members)
        except ThreadMoved as moved:
            raise _thread_conflict(name, moved.version, members) from moved
    events = sum(task.row.head - task.row.base_seq for task in new)
    ids = tuple([task.row.task_id for task in new])
    return ImportReport(ids, tuple(known_ids), tuple([name for name, _, _ in threads]), events)


# ------------------------------------------------------------------------------------- is it whole


async def _checked(store: JournalStore, path: Path, file: BinaryIO) -> _Export:
    reader = ExportReader(file)
    kind, header = reader.next()
    if kind != "treadle_export":
        raise reader.refuse("this is not an export of treadle")
    version = reader.get(header, "treadle_export", int)
    if not 1 <= version <= FORMAT:
        raise reader.refuse(
            f"an export in format {version}; this version reads up to {FORMAT}: upgrade treadle"
        )
    export = _Export([], [])
    sections: dict[str, Section] = {}
    while True:
        kind, document = reader.next()
        if kind == "task":
            task = export_format.section(reader, document)
            row = task.row
            if not is_name(row.task_id, row.thread_id, row.parent, row.base):
                raise reader.refuse(f"the task holds {_NO_NAME}")
            if task.row.task_id in sections:
                raise reader.refuse(f"task {task.row.task_id} is in this file twice")
            await _check_task(reader, task, await _state_before(store, path, task, sections))
            sections[task.row.task_id] = task
            export.tasks.append(task)
        elif kind == "thread":
            thread = export_format.thread(reader, document)
            if not is_name(thread[0], *[member.task_id for member in thread[2]]):
                raise reader.refuse(f"the thread holds {_NO_NAME}")
            export.threads.append((reader.number, thread))
        elif kind == "exported":
            break
        else:
            raise reader.refuse(f"a line of kind {kind!r} does not belong here")
    reader.check(document, whole=True)
    if document["exported"] != len(export.tasks):
        raise reader.refuse(f"{document['exported']!r} tasks should be here, and are {len(export.tasks)}")
    if file.read(1):
        raise reader.refuse("something follows the end of the export", reader.number + 1)
    return export


_NAMING: Final = ("thread", "parent", "child", "call")
"""The fields of events that name tasks, threads, and calls. Names of child tasks derive from calls."""

_NO_NAME: Final = "a name with a unit separator (U+001F), which no task or thread has"


async def _check_task(reader: ExportReader, task: Section, state: TaskState) -> None:
    """Check a task's chain and the order of its events, and set the row's journal format.

    Events after an unknown one are read and not applied, since they may depend on it.
    """
    row = task.row
    head, digest, epoch = row.base_seq, task.base_digest, 0
    for number, (line, record) in enumerate(export_format.records(reader, task)):
        defect = export_format.follows(row.task_id, record, head, digest)
        defect = defect or rules.wrong_epoch(row, record, epoch)
        if defect is not None:
            raise reader.refuse(defect, line)
        try:
            for owner, events in unfold(row.task_id, [record], after=head, previous=None):
                row.format = max([row.format, *[event.format for event in events]])
                for event in events:
                    if not is_name(*[getattr(event, field, None) for field in _NAMING]):
                        raise reader.refuse(f"task {row.task_id}: event {event.seq} holds {_NO_NAME}", line)
                    if state.unknown is None:
                        loading.apply_checked(state, event, owner)
        except JournalCorrupt as error:
            raise reader.refuse(str(error), line) from error
        head, digest, epoch = record.seq, record.digest, record.epoch
        if number % _BREATH == _BREATH - 1:
            await asyncio.sleep(0)
    if head == 0:
        raise reader.refuse(f"task {row.task_id} has no event", task.line)
    if state.unknown is None and not row.deleted and (differs := loading.contradicts(row, state)) is not None:
        raise reader.refuse(f"task {row.task_id}: {differs}", task.line)
    if state.unknown is None and not row.deleted:
        row.figures = figures_of(state)
    if (head, digest) != (row.head, task.digest) and not (row.head == head == row.base_seq):
        raise reader.refuse(
            f"task {row.task_id} should end at event {row.head} and ends at {head}", task.line
        )


async def _state_before(
    store: JournalStore, path: Path, task: Section, sections: dict[str, Section]
) -> TaskState:
    """Return the initial state of a task: empty, or that of its base at the fork point.

    That task is in the file before it, or in the store.
    """
    state, row = start(task.row.task_id), task.row
    if row.base is None:
        return state
    cut, digest = row.base_seq, b""
    refused = ImportRefused(
        f"line {task.line}: task {row.task_id} was forked from task {row.base}, which is not here like that",
        line=task.line,
    )
    try:
        async for record in _shared_records(store, path, row.base, cut, sections):
            for epoch, events in unfold(row.task_id, [record], previous=None):
                for event in [event for event in events if state.seq < event.seq <= cut]:
                    if state.unknown is None:
                        loading.apply_checked(state, event, epoch)
            digest = record.digest
    except (JournalCorrupt, TaskNotFound) as error:
        raise refused from error
    if (state.unknown is None and state.seq != cut) or digest != task.base_digest:
        raise refused
    return state


async def _shared_records(
    store: JournalStore, path: Path, task_id: str, upto: int, sections: dict[str, Section]
) -> AsyncIterator[Record]:
    """Yield the records of a task up to the record of an event, including those of its bases."""
    section = sections.get(task_id)
    if section is None:
        async for page in pages(store, task_id, upto=upto):
            for record in page:
                yield record
        return
    row = section.row
    if row.base is not None:
        async for record in _shared_records(store, path, row.base, min(upto, row.base_seq), sections):
            yield record
    for number, record in enumerate(_Records(path, section) if upto > row.base_seq else ()):
        if record.seq >= upto:
            yield record if record.seq == upto else replace(record, upto=upto)
            return
        yield record
        if number % _BREATH == _BREATH - 1:
            await asyncio.sleep(0)


async def _check_members(
    store: JournalStore, export: _Export, line: int, members: list[ThreadMember]
) -> None:
    """Check that the tasks of a thread, with the events that end them in it, are in the file or the store."""
    heads = {task.row.task_id: task.row.head for task in export.tasks}
    for member in members:
        head = heads.get(member.task_id) or await rules.head_of(store, member.task_id)
        if (defect := rules.missing_end(member, head)) is not None:
            raise ImportRefused(f"line {line}: {defect}", line=line)


# -------------------------------------------------------------------------------- is it in the store


async def _is_known(store: JournalStore, task: Section) -> bool:
    """Return whether the same task is in the store. Raises `TaskConflict` if another one has its id."""
    row = task.row
    try:
        stored = await store.row(row.task_id, deleted=True)
    except TaskNotFound:
        return False
    differs = _difference(row, stored)
    if differs is None and await digest_at(store, row.task_id, row.head) != task.digest:
        differs = "journal"
    if differs is not None:
        raise TaskConflict(
            f"line {task.line}: a task {row.task_id} with another {differs} is in this store; "
            "import into another store, or delete the one that is here",
            task_id=row.task_id,
            field=differs,
        )
    return True


def _difference(row: TaskRow, stored: TaskRow) -> str | None:
    if row.deleted:
        return None if stored.head >= row.head else "journal"
    if stored.deleted or stored.head != row.head:
        return "journal"
    for name in ("agent", "thread_id", "created", "parent", "base", "base_seq", "labels"):
        if getattr(row, name) != getattr(stored, name):
            return name
    return None


async def _is_same_thread(
    store: JournalStore, line: int, thread: tuple[str, int, list[ThreadMember]]
) -> bool:
    """Return whether the store has this thread or a newer version of it. Raises `TaskConflict` if it has another."""
    name, version, members = thread
    at, _ = await store.thread(name)
    if at == 0:
        return False
    _, stored = await store.thread(name, version=version)
    exported = [ThreadMember(m.version, m.task_id, m.seq, covers=m.covers) for m in members if m.gone is None]
    if at < version or stored != exported:
        raise _thread_conflict(name, at, members, line)
    return True


def _thread_conflict(name: str, at: int, members: list[ThreadMember], line: int = 0) -> TaskConflict:
    return TaskConflict(
        f"line {line}: thread {name!r} is in this store at version {at}, with other messages: import into another "
        "store",
        task_id=members[-1].task_id if members else "",
        field="thread",
    )


async def _restore(store: JournalStore, path: Path, task: Section) -> None:
    row = task.row
    try:
        await store.restore(row, _Records(path, task), task.inbox)
    except TaskExists as error:
        raise TaskConflict(
            f"task {row.task_id} was made in this store meanwhile", task_id=row.task_id, field="journal"
        ) from error
    except (TaskNotFound, Fenced) as error:
        raise ImportRefused(
            f"line {task.line}: task {row.base}, of which task {row.task_id} is a fork, was deleted meanwhile",
            line=task.line,
        ) from error
