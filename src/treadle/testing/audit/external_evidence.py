"""What can only be judged with more than one witness: the journal beside what callers were told and watchers saw.

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
from treadle.ports import Record, TaskRow
from treadle.testing.audit.events import LedgerEntry, Violation


@frozen
class Acknowledged:
    """What somebody was told: an event, by its number, or that something of a kind is durable.

    Args:
        task: whose.
        kind: the event's kind, such as `rewound` once `undo_step` returned.
        seq: its sequence number, 0 when the caller was not told it.
        time: when, in microseconds since 1970; 0 when not known.
    """

    task: str
    kind: str
    seq: int = 0
    time: int = 0


@frozen
class Stream:
    """What one watcher of a task saw: sequence numbers and kinds, and after which event it began to watch."""

    task: str
    seen: Sequence[tuple[int, str]]
    after: int = 0


Kept: TypeAlias = Mapping[str, tuple[TaskRow, Sequence[tuple[int, bytes]]]]
"""Each task of a store at one moment: its row, and number and digest of each record."""


def acknowledged(task: str, events: Sequence[e.Event], told: Iterable[Acknowledged]) -> Iterator[Violation]:
    """Every acknowledged event is in the journal, at its place."""
    kinds = Counter(event.kind for event in events)
    counted: Counter[str] = Counter()
    for one in told:
        if one.seq:
            there = events[one.seq - 1].kind if one.seq <= len(events) else "nothing"
            if there != one.kind:
                text = f"{one.kind} was acknowledged and {there} is there"
                yield Violation("acknowledged", task, one.seq, text)
        else:
            counted[one.kind] += 1
    for kind, times in counted.items():
        if kinds[kind] < times:
            text = f"{kind} was acknowledged {times} times and is there {kinds[kind]} times"
            yield Violation("acknowledged", task, 0, text)


def stopped_for_good(
    task: str, told: Iterable[Acknowledged], ledger: Iterable[LedgerEntry]
) -> Iterator[Violation]:
    """No tool starts after its task's cancel was acknowledged."""
    times = [one.time for one in told if one.kind == "cancel_requested" and one.time]
    for entry in ledger:
        if times and entry.phase == "start" and entry.time > min(times):
            late = (entry.time - min(times)) / 1e6
            text = f"{entry.call} started {late:.3f} s after the cancel was acknowledged"
            yield Violation("stopped", task, 0, text)


def one_writer(
    task: str, entries: Iterable[tuple[int, e.Event]], ledger: Iterable[LedgerEntry]
) -> Iterator[Violation]:
    """Calls that may act, begun under one epoch, were all started by one process."""
    epochs = {
        (event.call, event.attempt): (epoch, event.seq)
        for epoch, event in entries
        if isinstance(event, e.ToolStarted)
    }
    drivers: dict[int, str] = {}
    for entry in ledger:
        # A read may start before its begin is durable, and again under the next owner with the same number.
        if entry.phase != "start" or not entry.driver or entry.effect == "read":
            continue
        epoch, seq = epochs.get((entry.call, entry.attempt), (0, 0))
        if epoch and drivers.setdefault(epoch, entry.driver) != entry.driver:
            text = f"epoch {epoch} was written by {drivers[epoch]} and by {entry.driver}"
            yield Violation("one_writer", task, seq, text)


def stream(task: str, events: Sequence[e.Event], watched: Stream) -> Iterator[Violation]:
    """What a watcher saw is the journal from where it began: each event once, in order, none left out."""
    for place, (seq, kind) in enumerate(watched.seen, watched.after + 1):
        there = events[place - 1].kind if place <= len(events) else "nothing"
        if (seq, kind) != (place, there):
            text = f"a watcher saw {kind} ({seq}) where the journal has {there} ({place})"
            yield Violation("stream", task, place, text)
            return


def unchanged(before: Kept, after: Kept, touched: Iterable[str]) -> Iterator[Violation]:
    """What was written is still there; of tasks nobody touched nothing changed at all.

    Args:
        before: the store at an earlier moment.
        after: the store now.
        touched: the tasks that something was done to since, in whatever way.
    """
    mine = set(touched)
    for task, (row, records) in before.items():
        now = after.get(task)
        if now is None:
            if task not in mine:
                yield Violation("untouched", task, row.head, "it is gone")
            continue
        for old, new in zip(records, now[1], strict=False):
            if old != new:
                yield Violation("unchanged", task, old[0], "the record that ends here is another one now")
                break
        if len(now[1]) < len(records):
            yield Violation("unchanged", task, row.head, "records at the end of its journal are gone")
        if task not in mine and (now[0].head, now[0].state) != (row.head, row.state):
            text = f"it was {row.state} at event {row.head} and is {now[0].state} at {now[0].head}"
            yield Violation("untouched", task, row.head, text)


def secrets_in(task: str, records: Iterable[Record], secrets: Sequence[str]) -> Iterator[Violation]:
    """No secret is in a record, in any of the forms it may have taken on the way."""
    for record in records:
        for secret in found_secrets(b"".join((record.data, *record.blobs.values())), secrets):
            yield Violation("secrets", task, record.seq, f"{secret[:3]}... is in the record that ends here")


def found_secrets(data: bytes, secrets: Iterable[str]) -> list[str]:
    """Return the secrets that some bytes hold: plain, escaped, in base64 (at any offset) or hexadecimal, or split."""
    unescaped = _ESCAPE.sub(lambda found: bytes((int(found[1], 16),)), data)
    readings = {_bones(data), _bones(unescaped)}
    for text in (data, unescaped):
        readings |= {_bones(_CONTROL.sub(b"", text)), _bones(_TAG.sub(b"", text))}
    return [
        secret
        for secret in secrets
        if any(form in data for form in _forms(secret))
        or any(form in reading for form in _bare_forms(secret) for reading in readings)
    ]


_SHORTEST = 10
"""Letters and digits of the shortest form that is looked for whatever stands between them."""

_ESCAPE = re.compile(rb"(?:%|\\+u00|\\+x|&#x)([0-9a-fA-F]{2})")
_CONTROL = re.compile(rb"\\+[nrt]")
_TAG = re.compile(rb"<[^<>]{0,200}>")
_NO_BONES = bytes(code for code in range(256) if not (code < 128 and chr(code).isalnum()))


def _bones(data: bytes) -> bytes:
    return data.lower().translate(None, _NO_BONES)


def _forms(secret: str) -> Iterator[bytes]:
    plain = secret.encode()
    yield plain
    yield json.dumps(secret)[1:-1].encode()
    yield quote(secret, safe="").encode()
    for offset in range(3):
        # What stands before a secret shifts its base64; the first and last characters mix with the neighbours'.
        shifted = b64encode(b"\0" * offset + plain).rstrip(b"=")
        yield shifted[(0, 2, 3)[offset] : -1]


def _bare_forms(secret: str) -> Iterator[bytes]:
    """Yield the letters and digits of each form that is long enough to be found whatever stands between them."""
    for form in (*_forms(secret), secret.encode().hex().encode()):
        if len(bare := _bones(form)) >= _SHORTEST:
            yield bare
