"""Check a journal against outside evidence: ledgers, acknowledgements, streams of watchers, earlier copies.

Pure functions that return violations, like those of `treadle.testing.audit.events`.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias
from urllib.parse import quote

from treadle.core import events as e
from treadle.core.data import frozen
from treadle.core.messages import Message
from treadle.ports import Record, TaskRow
from treadle.results.wire import to_wire
from treadle.testing.audit.events import LedgerEntry, Violation


@frozen
class Acknowledged:
    """An event that was acknowledged to a caller or a watcher as durable.

    Args:
        task: the event's task.
        kind: the event's kind, such as `rewound` once `undo_step` returned.
        seq: its sequence number; 0 if the caller does not know it.
        time: the time of the acknowledgement, in microseconds since 1970; 0 if unknown.
    """

    task: str
    kind: str
    seq: int = 0
    time: int = 0


@frozen
class Stream:
    """The number and kind of each event that one watcher of a task received, and the event after which it began."""

    task: str
    seen: Sequence[tuple[int, str]]
    after: int = 0


KeptTask: TypeAlias = tuple[TaskRow, Sequence[tuple[int, bytes]]]
"""The row of a task at one moment, and the number and digest of each record."""

Kept: TypeAlias = Mapping[str, KeptTask]
"""The tasks of a store at one moment, by id."""


def acknowledged(
    task: str, events: Sequence[e.Event], acknowledgements: Iterable[Acknowledged]
) -> Iterator[Violation]:
    """Check that every acknowledged event is in the journal under its number."""
    kinds = Counter(event.kind for event in events)
    counted: Counter[str] = Counter()
    for item in acknowledgements:
        if item.seq:
            kind = events[item.seq - 1].kind if item.seq <= len(events) else "nothing"
            if kind != item.kind:
                text = f"{item.kind} was acknowledged, and the journal has {kind}"
                yield Violation("acknowledged", task, item.seq, text)
        else:
            counted[item.kind] += 1
    for kind, times in counted.items():
        if kinds[kind] < times:
            text = f"{kind} was acknowledged {times} times, and the journal has it {kinds[kind]} times"
            yield Violation("acknowledged", task, 0, text)


def stopped_for_good(
    task: str, acknowledgements: Iterable[Acknowledged], ledger: Iterable[LedgerEntry]
) -> Iterator[Violation]:
    """Check that no tool starts after its task's cancel was acknowledged."""
    times = [item.time for item in acknowledgements if item.kind == "cancel_requested" and item.time]
    for entry in ledger:
        if times and entry.phase == "start" and entry.time > min(times):
            late = (entry.time - min(times)) / 1e6
            text = f"{entry.call} started {late:.3f} s after the cancel was acknowledged"
            yield Violation("stopped", task, 0, text)


def one_writer(
    task: str, entries: Iterable[tuple[int, e.Event]], ledger: Iterable[LedgerEntry]
) -> Iterator[Violation]:
    """Check that one process started all writes of an epoch."""
    epochs = {
        (event.call, event.attempt): (epoch, event.seq)
        for epoch, event in entries
        if isinstance(event, e.ToolStarted)
    }
    drivers: dict[int, str] = {}
    for entry in ledger:
        # A read may start before its begin is durable, and again with the same number in the epoch of the next owner.
        if entry.phase != "start" or not entry.driver or entry.effect == "read":
            continue
        epoch, seq = epochs.get((entry.call, entry.attempt), (0, 0))
        if epoch and drivers.setdefault(epoch, entry.driver) != entry.driver:
            text = f"epoch {epoch} was written by {drivers[epoch]} and by {entry.driver}"
            yield Violation("one_writer", task, seq, text)


def stream(task: str, events: Sequence[e.Event], watched: Stream) -> Iterator[Violation]:
    """Check that a watcher received each event of the journal once and in order, from its first one on."""
    for number, (seq, kind) in enumerate(watched.seen, watched.after + 1):
        expected = events[number - 1].kind if number <= len(events) else "nothing"
        if (seq, kind) != (number, expected):
            text = f"a watcher saw {kind} ({seq}) where the journal has {expected} ({number})"
            yield Violation("stream", task, number, text)
            return


def unchanged(before: Kept, after: Kept, touched: Iterable[str]) -> Iterator[Violation]:
    """Check that no record was changed or removed, and that an untouched task did not change at all.

    Args:
        before: the store at an earlier moment.
        after: the store now.
        touched: the tasks that a command changed, drove or deleted since.
    """
    may_change = set(touched)
    for task, (row, records) in before.items():
        if task not in after:
            if task not in may_change:
                yield Violation("untouched", task, row.head, "it is gone")
            continue
        new_row, new_records = after[task]
        for old, new in zip(records, new_records, strict=False):
            if old != new:
                yield Violation("unchanged", task, old[0], "the record that ends here is another one now")
                break
        if len(new_records) < len(records):
            yield Violation("unchanged", task, row.head, "records at the end of its journal are gone")
        if task not in may_change and (new_row.head, new_row.state) != (row.head, row.state):
            text = f"it was {row.state} at event {row.head} and is {new_row.state} at {new_row.head}"
            yield Violation("untouched", task, row.head, text)


def tracebacks_in(
    task: str, events: Sequence[e.Event], requests: Iterable[Sequence[Message]]
) -> Iterator[Violation]:
    """Check that no model received a traceback of the journal, with or without its first line."""
    tracebacks = dict[str, int]()
    for event in events:
        error: e.Failure | None = getattr(event, "error", None)
        text: str = error.traceback if type(error) is e.Failure else getattr(event, "traceback", "")
        if text:
            tracebacks.setdefault(text.partition("\n")[2] or text, event.seq)
    sent = json.dumps(to_wire([list(request) for request in requests])) if tracebacks else ""
    for text, seq in tracebacks.items():
        if json.dumps(text)[1:-1] in sent:
            yield Violation("tracebacks", task, seq, "a model was sent the traceback of this event")


def secrets_in(task: str, records: Iterable[Record], secrets: Sequence[str]) -> Iterator[Violation]:
    """Check that no record contains a secret, plain or encoded."""
    for record in records:
        for secret in found_secrets(b"".join((record.data, *record.blobs.values())), secrets):
            yield Violation("secrets", task, record.seq, f"{secret[:3]}... is in the record that ends here")


def found_secrets(data: bytes, secrets: Iterable[str]) -> list[str]:
    """Return the secrets in some bytes: plain, escaped, in base64 at any offset, in hexadecimal, or split."""
    unescaped = _ESCAPE.sub(lambda match: bytes((int(match[1], 16),)), data)
    decoded = {_alphanumeric(data), _alphanumeric(unescaped)}
    for text in (data, unescaped):
        decoded |= {_alphanumeric(_CONTROL.sub(b"", text)), _alphanumeric(_TAG.sub(b"", text))}
    return [
        secret
        for secret in secrets
        if any(form in data for form in _forms(secret))
        or any(form in reading for form in _alphanumeric_forms(secret) for reading in decoded)
    ]


_SHORTEST = 10
"""Minimum number of letters and digits of a form that is also searched for with other characters in between."""

_ESCAPE = re.compile(rb"(?:%|\\+u00|\\+x|&#x)([0-9a-fA-F]{2})")
_CONTROL = re.compile(rb"\\+[nrt]")
_TAG = re.compile(rb"<[^<>]{0,200}>")
_NOT_ALPHANUMERIC = bytes(code for code in range(256) if not (code < 128 and chr(code).isalnum()))


def _alphanumeric(data: bytes) -> bytes:
    return data.lower().translate(None, _NOT_ALPHANUMERIC)


def _forms(secret: str) -> Iterator[bytes]:
    plain = secret.encode()
    yield plain
    yield json.dumps(secret)[1:-1].encode()
    yield quote(secret, safe="").encode()
    for offset in range(3):
        # Preceding bytes shift a secret's base64. Its first and last characters mix with those of its neighbours.
        shifted = b64encode(b"\0" * offset + plain).rstrip(b"=")
        yield shifted[(0, 2, 3)[offset] : -1]


def _alphanumeric_forms(secret: str) -> Iterator[bytes]:
    """Yield the letters and digits of each form that has enough of them."""
    for form in (*_forms(secret), secret.encode().hex().encode()):
        if len(bare := _alphanumeric(form)) >= _SHORTEST:
            yield bare
