"""Verify journals against themselves and against the rows around them, a page at a time.

Verification never repairs, and never runs or imports code that a journal names.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import field
from typing import Final, Literal

from treadle.core import events as e
from treadle.core.data import frozen, mutable
from treadle.core.journal import missing_tail, replaced_tail, unfold
from treadle.core.messages import faults
from treadle.core.state import TaskState, start
from treadle.drivers.thread_history import ThreadHistory
from treadle.engine import loading
from treadle.errors import JournalCorrupt, StoreError, TaskNotFound
from treadle.ports import JournalReader, Record, TaskFilter, TaskRow, ThreadMember
from treadle.transfer import rules

PAGE_BYTES: Final = 4 * 1024 * 1024
"""The approximate number of bytes of a journal in memory at once."""

_ROWS: Final = 200

Problem = Literal["journal", "order", "conversation", "row", "thread", "base"]


@frozen
class Finding:
    """A defect of a journal or its surroundings.

    Args:
        task_id: the task. If `problem` is `thread` and no task is the cause, the id of the thread.
        seq: the first untrustworthy event of the journal, or the event that the finding is about.
        problem: `journal` for records that were changed, are missing or cannot be read. `order` for events that cannot
            follow each other. `conversation`, `row`, `thread` or `base` for data that contradict the journal.
        text: a sentence that describes it.
    """

    task_id: str
    seq: int
    problem: Problem
    text: str

    def __str__(self) -> str:
        return f"{self.task_id} at event {self.seq}: {self.text}"


@frozen
class TaskVerified:
    """The check of one task. `unknown` counts events of kinds unknown to this version, which are not damage."""

    task_id: str
    events: int
    bytes: int
    findings: tuple[Finding, ...] = ()
    unknown: int = 0


@frozen
class VerifyReport:
    """The report of `verify`, by task and for threads as a whole."""

    tasks: tuple[TaskVerified, ...]
    threads: tuple[Finding, ...] = ()

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All findings, empty without damage."""
        return (*[finding for task in self.tasks for finding in task.findings], *self.threads)

    @property
    def events(self) -> int:
        """The number of events that were read."""
        return sum(task.events for task in self.tasks)

    @property
    def bytes(self) -> int:
        """The number of bytes of records and large values that were read."""
        return sum(task.bytes for task in self.tasks)

    def raise_for_findings(self) -> None:
        """Raise `JournalCorrupt` for the first finding, if there is one."""
        for finding in self.findings:
            raise JournalCorrupt(str(finding), task_id=finding.task_id, seq=finding.seq)


async def pages(
    store: JournalReader, task_id: str, *, after: int = 0, upto: int
) -> AsyncIterator[list[Record]]:
    """Yield a task's records in order, some megabytes at a time. Raises the errors of `JournalStore.read`."""
    window = 8
    while after < upto:
        page = await store.read(task_id, after=after, upto=min(upto, after + window))
        if not page:
            after += window  # the check of the chain finds the gap
            continue
        yield page
        size = size_of(page)
        if size > PAGE_BYTES:
            window = max(1, window // 2)
        elif size < PAGE_BYTES // 2:
            window = min(4_096, window * 2)
        after = page[-1].seq if page[-1].upto is None else page[-1].upto


def size_of(records: list[Record]) -> int:
    """Return the number of bytes of records, their large values included."""
    return sum(len(record.data) + sum(map(len, record.blobs.values())) for record in records)


async def every_row(store: JournalReader) -> AsyncIterator[TaskRow]:
    """Yield the rows of all listed tasks, newest id first."""
    cursor = None
    while True:
        rows = await store.rows(TaskFilter(limit=_ROWS, cursor=cursor))
        for row in rows:
            yield row
        if len(rows) < _ROWS:
            return
        cursor = rows[-1].cursor


async def verify(store: JournalReader, task_id: str | None) -> VerifyReport:
    """Check one task, or all tasks of a store and the deleted ones that threads still need.

    Args:
        store: a snapshot if the store is in use. A store itself is read at different moments.
        task_id: the task, or None for all.
    """
    history = ThreadHistory(store)
    if task_id is not None:
        return VerifyReport((await verified(store, history, await store.row(task_id)),))
    tasks: list[TaskVerified] = []
    listed: set[str] = set()
    threads: set[str] = set()
    incomplete: list[Finding] = []
    async for thread in rules.every_thread(store):
        threads.add(thread)
    async for row in every_row(store):
        listed.add(row.task_id)
        threads.add(row.thread_id)
        try:
            tasks.append(await verified(store, history, row))
        except TaskNotFound as error:
            finding = Finding(row.task_id, 1, "row", f"it is listed and cannot be found by its id: {error}")
            tasks.append(TaskVerified(row.task_id, 0, 0, (finding,)))
    for thread in sorted(threads):
        version, members = await store.thread(thread)
        if (text := _missing_members(thread, version, members)) is not None:
            incomplete.append(Finding(thread, 0, "thread", text))
        for member in (await rules.whole_thread(store, thread)).members:
            if member.task_id not in listed:
                listed.add(member.task_id)
                tasks.append(await _member_verified(store, history, member))
        named = {finding.task_id for task in tasks for finding in task.findings}
        damaged = {task.task_id for task in tasks if any(each.problem == "journal" for each in task.findings)}
        incomplete += [
            finding for finding in await _end_findings(store, thread) if finding.task_id not in damaged
        ]
        named |= {finding.task_id for finding in incomplete}
        for turn in (await history.messages(thread)).damaged:
            if turn.task_id not in named:
                text = f"thread {thread!r} is read without its messages: {turn}"
                incomplete.append(Finding(turn.task_id, turn.seq, "thread", text))
    return VerifyReport(tuple(tasks), tuple(incomplete))


async def _end_findings(store: JournalReader, thread: str) -> list[Finding]:
    """Return the missing parts of the members of a thread, including removed ones."""
    findings: list[Finding] = []
    for member in (await rules.whole_thread(store, thread)).members:
        text = rules.missing_end(member, await rules.head_of(store, member.task_id))
        if text is not None:
            findings.append(Finding(member.task_id, member.seq, "thread", text))
    return findings


async def thread_findings(store: JournalReader) -> list[Finding]:
    """Return the missing parts of the members of all threads, without reading journals."""
    return [
        finding
        async for thread in rules.every_thread(store)
        for finding in await _end_findings(store, thread)
    ]


async def _member_verified(
    store: JournalReader, history: ThreadHistory, member: ThreadMember
) -> TaskVerified:
    try:
        return await verified(store, history, await store.row(member.task_id, deleted=True))
    except TaskNotFound as error:
        finding = Finding(member.task_id, member.seq, "thread", f"a thread holds its messages: {error}")
        return TaskVerified(member.task_id, 0, 0, (finding,))


async def verified(store: JournalReader, history: ThreadHistory, row: TaskRow) -> TaskVerified:
    """Return the report on a task up to the head in its row. The next check reads later events."""
    reading = _Reading(start(row.task_id), row)
    findings: list[Finding] = []
    try:
        async for page in pages(store, row.task_id, upto=row.head):
            reading.take(page)
        if reading.state.seq < row.head:
            raise missing_tail(row.task_id, reading.state.seq, row.head)
    except JournalCorrupt as error:
        findings.append(Finding(row.task_id, error.seq, "journal", _without_task_id(error)))
    except _OutOfOrder as error:
        findings.append(Finding(row.task_id, error.why.seq, "order", _without_task_id(error.why)))
    except StoreError as error:
        findings.append(Finding(row.task_id, reading.state.seq + 1, "journal", str(error)))
    else:
        findings += reading.end()
        try:
            findings += await _contradictions(store, row, reading.state)
            if not row.deleted:  # tasks do not read the beginning of a deleted one, and a fork has its own
                findings += await _history_findings(store, history, row.task_id, reading.began)
        except StoreError as error:
            findings.append(Finding(row.task_id, reading.state.seq, "thread", str(error)))
    findings += _tail_findings(row, reading)
    # A damaged page may leave a row without the number that its schema requires.
    if row.format is None or reading.format > row.format:  # pyright: ignore[reportUnnecessaryComparison]
        text = f"the row says format {row.format}, the journal needs {reading.format}: older drivers would drive it on"
        findings.append(Finding(row.task_id, reading.state.seq, "row", text))
    return TaskVerified(row.task_id, reading.state.seq, reading.size, tuple(findings), reading.unknown)


def _without_task_id(error: JournalCorrupt) -> str:
    return str(error).removeprefix(f"task {error.task_id}: ")


class _OutOfOrder(Exception):
    """An event cannot follow those before it; `why` names it."""

    def __init__(self, why: JournalCorrupt) -> None:
        super().__init__(str(why))
        self.why = why


@mutable
class _Reading:
    """A journal in a check, which reads and folds it page by page."""

    state: TaskState
    row: TaskRow
    epoch: int = 0
    """of the task's own last record, since records before its fork point have epochs of another task"""

    digest: bytes = b""
    digests: dict[int, bytes] = field(default_factory=dict[int, bytes])
    """of the last record read, by its last event"""

    size: int = 0
    unknown: int = 0
    format: int = 1
    """the journal format that a driver must know after these events"""
    began: tuple[str, int] = "", 0
    """the version of the thread that the task, or the task at the root of its prefix, began with"""

    def take(self, page: list[Record]) -> None:
        state = self.state
        self.size += size_of(page)
        for record in page:
            if record.upto is None and record.seq > self.row.base_seq:
                if (defect := rules.wrong_epoch(self.row, record, self.epoch)) is not None:
                    raise JournalCorrupt(defect, task_id=state.task_id, seq=record.seq - record.count + 1)
                self.epoch = record.epoch
        for epoch, events in unfold(state.task_id, page, after=state.seq, previous=self.digest):
            for event in events:
                try:
                    loading.apply_checked(state, event, epoch)
                except JournalCorrupt as error:
                    raise _OutOfOrder(error) from error
                if type(event) is e.TaskCreated or type(event) is e.ThreadEntered:
                    self.began = state.thread, state.base
                self.unknown += type(event) is e.UnknownEvent
                self.format = max(self.format, event.format)
        self.digest = page[-1].digest
        self.digests = {record.seq: record.digest for record in page}

    def end(self) -> Iterator[Finding]:
        """Yield the malformed parts of the conversation for the next request."""
        state, step = self.state, self.state.step
        messages = state.messages
        alone = [node for node in state.running_nodes() if node.alone]
        if alone and alone[0].owes_results:
            messages = messages[: alone[0].since]  # its calls have not all been answered yet
        if step is not None and step.open:
            messages = messages[: step.first_message]  # its calls have not all ended yet
        for fault in faults(messages):
            yield Finding(state.task_id, state.seq, "conversation", fault)


def _tail_findings(row: TaskRow, reading: _Reading) -> Iterator[Finding]:
    mark = row.mark
    if mark is None:
        return
    error = None
    if row.head < mark.seq:
        error = missing_tail(row.task_id, row.head, mark.seq)
    elif reading.digests.get(mark.seq, mark.digest) != mark.digest:
        error = replaced_tail(row.task_id, mark.seq)
    if error is not None:
        yield Finding(row.task_id, error.seq, "journal", _without_task_id(error))


async def _contradictions(store: JournalReader, row: TaskRow, state: TaskState) -> list[Finding]:
    """Return the contradictions between the journal and the task's row, its thread, and the task it was forked from."""
    task, findings = row.task_id, list[Finding]()
    if row.deleted:
        return findings  # its row holds only data that other tasks need
    for name, in_row, in_journal in (
        ("agent", row.agent, state.created_for),
        ("thread", row.thread_id, state.thread),
        ("parent", row.parent, state.parent),
        ("base", row.base, state.forked_from),
        ("base_seq", row.base_seq, state.fork_seq),
        *((("state", row.state, state.ended),) if state.ended is not None and row.driver is None else ()),
    ):
        if in_row != in_journal:
            text = f"the row says {name} {in_row!r}, the journal {in_journal!r}"
            findings.append(Finding(task, state.seq, "row", text))
    if row.base is not None:
        try:
            await store.row(row.base, deleted=True)
        except (TaskNotFound, StoreError) as error:
            findings.append(Finding(task, row.base_seq, "base", f"the task it was forked from: {error}"))
    if state.thread_version:
        member = ThreadMember(state.thread_version, task, state.end_seq, covers=state.covers)
        _, members = await store.thread(state.thread, version=state.thread_version)
        if member not in members:
            text = f"thread {state.thread!r} does not hold it as of version {state.thread_version}"
            findings.append(Finding(task, state.end_seq, "thread", text))
    return findings


async def _history_findings(
    store: JournalReader, history: ThreadHistory, task_id: str, began: tuple[str, int]
) -> list[Finding]:
    """Return the missing parts of the messages that a task began with."""
    thread, base = began
    if not base:
        return []
    version, members = await store.thread(thread, version=base)
    if version != base:
        text = f"it began with version {base} of thread {thread!r}, which is at version {version}"
        return [Finding(task_id, 1, "thread", text)]
    if (text := _missing_members(thread, version, members)) is not None:
        return [Finding(task_id, 1, "thread", f"a part of the history that it began with is lost: {text}")]
    damaged = (await history.begin(thread, base)).damaged
    return [
        Finding(task_id, 1, "thread", f"it began with messages of task {turn.task_id}: {turn}")
        for turn in damaged
    ]


def _missing_members(thread: str, version: int, members: list[ThreadMember]) -> str | None:
    """Return the reason why a version of a thread cannot have these members. Each version adds or removes one."""
    if (version - len(members)) % 2 == 0:
        return None
    return f"version {version} of thread {thread!r} has {len(members)} members, and at least one more belongs to it"
