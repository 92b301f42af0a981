"""A journal that was changed, cut or mixed up raises an error with the task and the event; a whole journal is read."""

from dataclasses import replace

import pytest

from treadle.core import codec
from treadle.core import events as e
from treadle.core.journal import unfold
from treadle.core.messages import Text
from treadle.errors import JournalCorrupt
from treadle.ports import Record

LONG = "x" * 9_000


def chained(*commits: list[e.Event], after: int = 0, previous: bytes = b"", epoch: int = 1) -> list[Record]:
    """Records of these commits, each chained to the one before."""
    records: list[Record] = []
    seq = after
    for events in commits:
        for event in events:
            seq += 1
            event.seq = event.time = seq
        data, blobs = codec.encode(events)
        digest = codec.chain(previous, data)
        records.append(Record(seq, len(events), epoch, data, digest, blobs))
        previous = digest
    return records


def message(text: str) -> e.InputReceived:
    return e.InputReceived((Text(text),))


def journal() -> list[Record]:
    return chained(
        [e.TaskCreated("math", (), "talk"), message("a")],
        [message("b")],
        [message(LONG), message("d")],
        [message("e")],
    )


def seqs(records: list[Record], **how: object) -> list[int]:
    return [event.seq for _, events in unfold("t", records, **how) for event in events]  # type: ignore[arg-type]


def corrupt(records: list[Record], **how: object) -> JournalCorrupt:
    with pytest.raises(JournalCorrupt) as raised:
        seqs(records, **how)
    assert raised.value.task_id == "t"
    assert "task t" in str(raised.value)
    return raised.value


def test_an_honest_journal_is_read_from_its_beginning_or_from_anywhere() -> None:
    records = journal()
    assert seqs(records) == [1, 2, 3, 4, 5, 6]
    assert seqs(records, after=4) == [5, 6]
    assert seqs(records[2:], after=4, previous=records[1].digest) == [5, 6]
    assert seqs(records[2:], after=3, previous=None) == [4, 5, 6]
    assert [epoch for epoch, _ in unfold("t", chained([message("a")], epoch=7))] == [7]


@pytest.mark.parametrize("place", range(4))
def test_a_flipped_byte_is_named_by_its_record(place: int) -> None:
    records = journal()
    data = bytearray(records[place].data)
    data[len(data) // 2] ^= 1
    records[place] = replace(records[place], data=bytes(data))
    assert corrupt(records).seq == records[place].seq


def test_a_missing_record_is_a_gap() -> None:
    records = journal()
    error = corrupt([records[0], *records[2:]])
    assert error.seq == 4
    assert "events 3 to 3 are missing" in str(error)


def test_a_missing_first_record_is_seen() -> None:
    assert corrupt(journal()[1:]).seq == 3


def test_swapped_records_are_seen() -> None:
    records = journal()
    assert corrupt([records[0], records[2], records[1], records[3]]).seq == 4


def test_a_record_of_another_task_in_this_ones_place_is_seen() -> None:
    records, others = journal(), chained([message("x"), message("y")], [message("z")])
    assert corrupt([records[0], others[1], *records[2:]]).seq == 3


def test_a_truncated_record_is_detected_even_with_a_recomputed_digest() -> None:
    records = journal()
    data = records[1].data[:-10]
    records[1] = replace(records[1], data=data, digest=codec.chain(records[0].digest, data))
    error = corrupt(records)
    assert error.seq == 3
    assert "not a record" in str(error)


def test_a_record_with_a_wrong_number_of_events_is_detected() -> None:
    records = journal()
    records[0] = replace(records[0], count=1, seq=1)
    assert "2 events where 1 belong" in str(corrupt(records))


@pytest.mark.parametrize("blobs", [{}, {"changed": b"x"}])
def test_a_missing_or_changed_large_value_is_named_by_its_record(blobs: dict[str, bytes]) -> None:
    records = journal()
    blobs_left = dict.fromkeys(records[2].blobs, b"other") if blobs else {}
    records[2] = replace(records[2], blobs=blobs_left)
    error = corrupt(records)
    assert error.seq == 4
    assert "large value" in str(error)


def test_records_before_a_damaged_one_can_still_be_read() -> None:
    records = journal()
    records[3] = replace(records[3], digest=b"0" * 16)
    reading = unfold("t", records)
    assert [event.seq for _ in range(3) for event in next(reading)[1]] == [1, 2, 3, 4, 5]
    with pytest.raises(JournalCorrupt):
        next(reading)


# --------------------------------------------------------------------------------------------- forks


def forked(at: int, records: list[Record], cut: Record) -> list[Record]:
    """The records a fork reads: its parent's up to its point, and its own."""
    own = chained(
        [e.TaskForked("t", "math", "other")],
        [message("f")],
        after=at,
        previous=codec.branch_digest(cut.digest, at),
    )
    return [*records, *own]


def test_a_fork_between_records_reads_its_parents_part_and_its_own() -> None:
    records = journal()
    assert seqs(forked(3, records[:2], records[1])) == [1, 2, 3, 4, 5]


def test_a_fork_inside_a_record_reads_only_what_it_shares_of_it() -> None:
    records = journal()
    shared = [*records[:2], replace(records[2], upto=4)]
    assert seqs(forked(4, shared, records[2])) == [1, 2, 3, 4, 5, 6]
    assert [event.kind for _, events in unfold("t", forked(4, shared, records[2])) for event in events][
        4
    ] == "task_forked"


def test_a_fork_chained_to_another_place_of_its_parent_is_refused() -> None:
    records = journal()
    own = chained([message("f")], after=3, previous=codec.branch_digest(records[1].digest, 2))
    assert corrupt([*records[:2], *own]).seq == 4
    own = chained([message("f")], after=3, previous=codec.branch_digest(records[0].digest, 3))
    assert corrupt([*records[:2], *own]).seq == 4
