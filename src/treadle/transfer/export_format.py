"""The export format: journals as JSON Lines, readable for people and programs, and imported again bit by bit.

    {"treadle_export":1,"made":1763700000000000}
    {"task":"order-7","agent":"shop","thread":"...","state":"completed","epoch":1,"head":9,"digest":"...",...}
    {"blob":"<sha256>","text":"a value too large for a record"}           before the record that refers to it
    {"record":3,"count":2,"epoch":1,"digest":"...","v":1,"t":1763700000000000}
    {"event":{"k":"step_started","step":"s1","index":1}}                   `count` of them; `d`: time since the last
    {"inbox":"...","kind":"send","data":{...},"created":...}               a command that no driver has read yet
    {"end":"order-7","check":"..."}                                        digest of the task's lines
    {"thread":"...","version":2,"members":[[1,"order-7",9,null],...],"check":"..."}
    {"exported":1,"check":"..."}                                           digest of all lines before

Lines of events are the bytes of the record itself, so that its digest can be checked. A record of other software may
not consist of such lines. It has its bytes in `data`, as base64. Everything is read as data, and a line never names
code.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from dataclasses import field
from typing import Any, BinaryIO, Final, TypeVar, cast, get_origin

from treadle.core import codec
from treadle.core.data import mutable
from treadle.core.messages import Json
from treadle.errors import ImportRefused
from treadle.ports import AT_ONCE, InboxItem, JournalEnd, Record, TaskRow, ThreadMember

FORMAT: Final = 1
"""The version of the export format that this code writes and reads."""

_EVENT: Final = b'{"event":'

T = TypeVar("T")


def _json(document: Any) -> bytes:
    from pydantic_core import to_json

    return to_json(document, inf_nan_mode="constants")


def _digest() -> Any:
    return hashlib.blake2b(digest_size=16)


# ------------------------------------------------------------------------------------------- writing


class ExportWriter:
    """Writes the lines of an export; `bytes` counts them."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._whole = _digest()
        self._part = _digest()
        self.bytes = 0
        self.tasks = 0

    def line(self, document: dict[str, Json]) -> None:
        self._write(_json(document))

    def _write(self, line: bytes) -> None:
        line += b"\n"
        self._whole.update(line)
        self._part.update(line)
        self.bytes += len(line)
        self._out.write(line)

    def task(self, row: TaskRow, state: str, digest: bytes, base_digest: bytes) -> None:
        """Begin a task, with the fields of its row that another store needs."""
        self._part = _digest()
        document: dict[str, Json] = {
            "task": row.task_id,
            "agent": row.agent,
            "thread": row.thread_id,
            "state": state,
            "created": row.created,
            "epoch": row.epoch,
            **({"wanted": row.due_at} if row.due_at > AT_ONCE else {}),
            **({"format": row.format} if row.format > 1 else {}),
            "head": row.head,
            "digest": digest.hex(),
            "labels": row.labels,
        }
        if row.parent is not None:
            document["parent"] = row.parent
        if row.base is not None:
            document |= {"base": row.base, "base_seq": row.base_seq, "base_digest": base_digest.hex()}
        if row.deleted:
            document["deleted"] = True
        self.line(document)

    def record(self, record: Record) -> None:
        """Write a record, with its large values, its head and its events."""
        for digest, data in record.blobs.items():
            self.line({"blob": digest, **_bytes_as("text", data)})
        document: dict[str, Json] = {
            "record": record.seq,
            "count": record.count,
            "epoch": record.epoch,
            "digest": record.digest.hex(),
        }
        if record.blobs:
            document["blobs"] = list(record.blobs)
        parts = _parts(record.data)
        if parts is None:
            self.line({**document, "data": base64.b64encode(record.data).decode("ascii")})
            return
        head, events = parts
        self.line({**document, **head})
        for event in events:
            self._write(_EVENT + event + b"}")

    def inbox(self, item: InboxItem) -> None:
        """Write an inbox item that no driver has read yet."""
        self.line({"inbox": item.item_id, "kind": item.kind, "data": item.data, "created": item.created})

    def end(self, row: TaskRow) -> None:
        self.tasks += 1
        self.line({"end": row.task_id, "check": self._part.hexdigest()})

    def thread(self, thread_id: str, version: int, members: list[ThreadMember]) -> None:
        # `covers` is last, and only there for a summary, since the first exports had none.
        members_json = [
            [m.version, m.task_id, m.seq, m.gone, *([m.covers] if m.covers else [])] for m in members
        ]
        checked = [thread_id, version, members_json]
        self.line(
            {"thread": thread_id, "version": version, "members": members_json, "check": _check(checked)}
        )

    def close(self) -> None:
        """Write the last line, which completes the export."""
        self.line({"exported": self.tasks, "check": self._whole.hexdigest()})


def _check(checked: Json) -> str:
    return hashlib.blake2b(_json(checked), digest_size=16).hexdigest()


def _bytes_as(name: str, data: bytes) -> dict[str, Json]:
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode("ascii")}


def _parts(data: bytes) -> tuple[dict[str, Json], list[bytes]] | None:
    """Return a record's head and the bytes of its events, or None unless they rebuild the same record."""
    from pydantic_core import from_json

    try:
        document = dict(from_json(data, allow_inf_nan=True))
        events = [_json(event) for event in document.pop("e")]
        whole = _record_data(document, events)
    except (ValueError, TypeError, KeyError):
        return None
    return (document, events) if whole == data and not _RESERVED & document.keys() else None


_RESERVED: Final = {"record", "count", "epoch", "digest", "blobs", "data"}


def _record_data(head: dict[str, Json], events: list[bytes]) -> bytes:
    """Return a record in the form of the codec, with version, time, events and other fields."""
    before = {name: head[name] for name in ("v", "t")}
    after = {name: value for name, value in head.items() if name not in before}
    rest = b"," + _json(after)[1:] if after else b"}"
    return _json(before)[:-1] + b',"e":[' + b",".join(events) + b"]" + rest


# ------------------------------------------------------------------------------------------- reading


class ExportReader:
    """Reads the lines of an export, one at a time. `number` is the line last read."""

    def __init__(self, file: BinaryIO, number: int = 0) -> None:
        self._file = file
        self.number = number
        self._whole = _digest()
        self._part = _digest()
        self._checks = ("", "")
        self._line = b""

    @property
    def offset(self) -> int:
        """The offset of the next line in the file."""
        return self._file.tell()

    def refuse(self, reason: str, line: int | None = None) -> ImportRefused:
        """Return the error for a file that was changed since it was written."""
        return ImportRefused(f"line {line or self.number}: {reason}", line=line or self.number)

    def next(self) -> tuple[str, dict[str, Json]]:
        """Return the kind of the next line and its document. The line of an event is in `event`."""
        self._line = line = self._file.readline()
        self.number += 1
        if not line.endswith(b"\n"):
            raise self.refuse("the file ends here, but not the export: it was cut")
        self._checks = (self._part.hexdigest(), self._whole.hexdigest())
        self._part.update(line)
        self._whole.update(line)
        if line.startswith(_EVENT) and line.endswith(b"}\n"):
            return "event", {}
        document = self._parsed(line)
        kind = next(iter(document), "")
        if kind == "task":
            self._part = _digest()
            self._part.update(line)
        return kind, document

    def _parsed(self, line: bytes) -> dict[str, Json]:
        from pydantic_core import from_json

        try:
            document = from_json(line, allow_inf_nan=True)
        except ValueError as error:
            raise self.refuse(f"this is not JSON: {error}") from error
        if not isinstance(document, dict):
            raise self.refuse("this is not a JSON object")
        return cast("dict[str, Json]", document)

    @property
    def event(self) -> bytes:
        """The event in the line last read, as the bytes in its record."""
        return self._line[len(_EVENT) : -2]

    def check(self, document: dict[str, Json], *, whole: bool, since: int = 1) -> None:
        """Compare the digest in a closing line with that of the lines before it."""
        if document.get("check") != self._checks[whole]:
            raise self.refuse(f"lines {since} to {self.number - 1} are not as they were written", self.number)

    def get(self, document: dict[str, Json], name: str, kind: type[T], default: T | None = None) -> T:
        """Return a field of a line. Raises `ImportRefused` if it is missing or of another type."""
        value = document.get(name, default)
        plain = get_origin(kind) or kind
        if type(value) is not plain or (plain is int and not 0 <= cast("int", value) < codec.WHOLE):
            raise self.refuse(f"{name} should be {_KINDS[plain]}, and is {value!r:.60}")
        return value

    def bytes_of(self, document: dict[str, Json], name: str) -> bytes:
        """Return a field that holds hexadecimal digits."""
        try:
            return bytes.fromhex(self.get(document, name, str))
        except ValueError as error:
            raise self.refuse(f"{name} should be hexadecimal: {error}") from error


_KINDS: Final[dict[type, str]] = {
    str: "text",
    int: "a whole number from 0 to 2**63 - 1",
    dict: "an object",
    list: "a list",
}


@mutable
class Section:
    """A task in an export: its row, the offset of its records in the file, and their last digest."""

    row: TaskRow
    line: int
    offset: int
    digest: bytes
    base_digest: bytes
    inbox: list[InboxItem] = field(default_factory=list[InboxItem])


def section(reader: ExportReader, document: dict[str, Json]) -> Section:
    """Return the section of a task from its first line."""
    get = reader.get
    base = get(document, "base", str) if "base" in document else None
    labels = get(document, "labels", dict[str, Json])
    if not all(type(value) is str for value in labels.values()):
        raise reader.refuse("labels should be text")
    row = TaskRow(
        task_id=get(document, "task", str),
        agent=get(document, "agent", str),
        thread_id=get(document, "thread", str),
        state=get(document, "state", str),
        created=get(document, "created", int),
        parent=get(document, "parent", str) if "parent" in document else None,
        base=base,
        base_seq=get(document, "base_seq", int) if base is not None else 0,
        epoch=get(document, "epoch", int),
        labels=labels,
        driver=None,
        head=get(document, "head", int),
        deleted=document.get("deleted") is True,
        due_at=get(document, "wanted", int) if "wanted" in document else 0,
        format=get(document, "format", int) if "format" in document else 1,
    )
    digest = reader.bytes_of(document, "digest")
    row.mark = None if row.deleted else JournalEnd(row.head, digest)
    base_digest = reader.bytes_of(document, "base_digest") if base is not None else b""
    return Section(row, reader.number, reader.offset, digest, base_digest)


def records(reader: ExportReader, task: Section) -> Iterator[tuple[int, Record]]:
    """Yield a task's records with their first lines, up to its closing line, and fill its inbox."""
    blobs: dict[str, bytes] = {}
    inbox: list[InboxItem] = []
    while True:
        kind, document = reader.next()
        line = reader.number
        if kind == "blob":
            digest, data = _blob(reader, document)
            blobs[digest] = data
        elif kind == "record":
            yield line, _record(reader, document, blobs)
            blobs = {}
        elif kind == "inbox":
            get = reader.get
            data = get(document, "data", dict[str, Json])
            name, item_kind = get(document, "inbox", str), get(document, "kind", str)
            inbox.append(InboxItem(name, item_kind, data, get(document, "created", int)))
        elif kind == "end" and document["end"] == task.row.task_id:
            reader.check(document, whole=False, since=task.line)
            task.inbox = inbox
            return
        else:
            raise reader.refuse(f"a line of kind {kind!r} does not belong into task {task.row.task_id}")


def _blob(reader: ExportReader, document: dict[str, Json]) -> tuple[str, bytes]:
    digest = reader.get(document, "blob", str)
    if "text" in document:
        data = reader.get(document, "text", str).encode("utf-8", "replace")
    else:
        data = _base64(reader, reader.get(document, "base64", str))
    if hashlib.sha256(data).hexdigest() != digest:
        raise reader.refuse(f"the large value {digest[:12]} was changed")
    return digest, data


def _base64(reader: ExportReader, text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:
        raise reader.refuse(f"this is not base64: {error}") from error


def _record(reader: ExportReader, document: dict[str, Json], blobs: dict[str, bytes]) -> Record:
    line = reader.number
    count = reader.get(document, "count", int)
    digest, epoch = reader.bytes_of(document, "digest"), reader.get(document, "epoch", int)
    if sorted(blobs) != sorted(map(str, reader.get(document, "blobs", list[Json], []))):
        raise reader.refuse("the large values before this record are not those it refers to")
    if "data" in document:
        data = _base64(reader, reader.get(document, "data", str))
    else:
        events: list[bytes] = []
        for _ in range(count):
            kind, _ = reader.next()
            if kind != "event":
                raise reader.refuse(f"the record of line {line} holds {count} events, this is not one")
            events.append(reader.event)
        head = {name: value for name, value in document.items() if name not in _RESERVED}
        if not {"v", "t"} <= head.keys():
            raise reader.refuse("a record's version and time are missing", line)
        data = _record_data(head, events)
    return Record(reader.get(document, "record", int), count, epoch, data, digest, blobs)


_AFTER_A_MEMBER: Final[list[list[type]]] = [[int], [type(None)], [int, int], [type(None), int]]
"""The types of a member's last fields: the version that removed it, and the version that a summary covers."""


def thread(reader: ExportReader, document: dict[str, Json]) -> tuple[str, int, list[ThreadMember]]:
    """Return the id, version and members of a thread from its line."""
    name, version = reader.get(document, "thread", str), reader.get(document, "version", int)
    members_json = reader.get(document, "members", list[Json])
    if document.get("check") != _check([name, version, members_json]):
        raise reader.refuse(f"thread {name!r} is not as it was written")
    members: list[ThreadMember] = []
    for fields in members_json:
        types: list[Any] = [type(item) for item in cast("list[Json]", fields)] if type(fields) is list else []
        if types[:3] != [int, str, int] or types[3:] not in _AFTER_A_MEMBER:
            raise reader.refuse(
                f"a member of thread {name!r} should be version, task, event, version, version"
            )
        members.append(ThreadMember(*cast("tuple[int, str, int, int | None]", fields)))
    return name, version, members


def follows(task_id: str, record: Record, head: int, previous: bytes) -> str | None:
    """Return the reason why a record cannot follow the records before it, or None."""
    if record.count < 1 or record.seq - record.count != head:
        return f"task {task_id}: event {head + 1} should be here"
    for before in (previous, codec.branch_digest(previous, head)):
        if codec.chain(before, record.data) == record.digest:
            return None
    return f"task {task_id}: the record of events {head + 1} to {record.seq} was changed or belongs elsewhere"
