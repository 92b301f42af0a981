"""What a stream has told is told once: events by their numbers, deltas by their places, the rest by what they say."""

import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from treadle import events as e
from treadle.client.following import Gap, Replaced, Seen, event_in, until_rest
from treadle.results.wire import wire_bytes

pytestmark = pytest.mark.anyio
STEP = "s1"


def delta(text: str, at: int, *, after: int = 2, **more: Any) -> e.Delta:
    return e.Delta(STEP, "final", text, after, at=at, **more)


def told(seen: Seen, *events: Any) -> list[Any]:
    """What of some events is new, as text where it is a delta."""
    new = [seen.new_part(event, wire_bytes(event).decode()) for event in events]
    return [each.text if isinstance(each, e.Delta) else each for each in new if each is not None]


def test_an_event_comes_once_and_a_gap_is_noticed() -> None:
    seen, first, second = Seen(0), e.StepStarted(STEP, 1, seq=1), e.StepCompleted(STEP, seq=2)
    assert told(seen, first, first, second, first) == [first, second]
    with pytest.raises(Gap, match="event 4 follows event 2"):
        told(seen, e.StepCompleted(STEP, seq=4))


def test_a_connection_that_begins_again_tells_another_task_by_the_time_of_the_last_event() -> None:
    seen, event = Seen(0), e.StepStarted(STEP, 1, seq=1, time=5)
    assert seen.start == 0
    assert told(seen, event) == [event]
    seen.begin_again()
    assert (seen.start, seen.is_same) == (0, False)
    assert told(seen, event) == []
    assert seen.is_same
    seen.begin_again()
    with pytest.raises(Replaced):
        told(seen, e.StepStarted(STEP, 1, seq=1, time=6))


@pytest.mark.parametrize(
    ("again", "new"),
    [
        ([delta("He", 0), delta("llo", 2)], []),
        ([delta("Hello", 0)], []),
        ([delta("Hello wor", 0), delta("ld", 9)], [" wor", "ld"]),
        ([delta("lo w", 3), delta("orld", 7)], [" w", "orld"]),
        ([delta(" world", 5)], [" world"]),
        ([delta("rld", 8)], ["rld"]),  # what was between them was told while no connection was there
        ([delta("Hello", 0, after=1)], []),
    ],
)
def test_of_a_delta_that_is_told_again_only_the_new_part_is_told(
    again: list[e.Delta], new: list[str]
) -> None:
    seen = Seen(2)
    assert told(seen, delta("He", 0), delta("llo", 2)) == ["He", "llo"]
    seen.begin_again()
    assert told(seen, *again) == new


def test_another_attempt_at_an_answer_begins_from_its_first_letter() -> None:
    seen = Seen(2)
    told(seen, delta("Hello", 0))
    seen.begin_again()
    restarted = e.ModelRestarted(STEP, "m", 2, after=2)
    assert told(seen, restarted, delta("Hel", 0)) == [restarted, "Hel"]
    started = e.ModelStarted(STEP, "m", seq=3)
    seen.begin_again()
    assert told(seen, started, delta("Hi", 0, after=3)) == [started, "Hi"]


def test_progress_that_is_told_again_is_left_out_and_the_same_again_in_one_connection_is_not() -> None:
    seen = Seen(2)
    progress = e.ToolProgress(STEP, "s1-0", {"done": 1}, 2)
    assert told(seen, progress, progress) == [progress, progress]
    seen.begin_again()
    assert told(seen, progress) == []
    assert told(seen, progress) == [progress]


def test_how_a_task_stands_is_always_told() -> None:
    seen, stood = Seen(5), e.TaskStood("running", driven=True, live=True, head=2)
    assert told(seen, stood, stood) == [stood, stood]


def test_names_of_tools_come_in_pieces_of_no_length() -> None:
    seen = Seen(2)
    name = [
        e.Delta(STEP, "arguments", "", 2, tool="pri"),
        e.Delta(STEP, "arguments", "", 2, tool="ce", tool_at=3),
    ]
    assert told(seen, *name, e.Delta(STEP, "arguments", "{}", 2)) == ["", "", "{}"]
    seen.begin_again()
    assert told(seen, *name, e.Delta(STEP, "arguments", "{}", 2)) == []


def test_a_name_that_comes_whole_after_a_part_of_it_was_told_is_completed() -> None:
    seen = Seen(2)
    whole = e.Delta(STEP, "arguments", '{"a"', 2, tool="price")
    seen.new_part(e.Delta(STEP, "arguments", "", 2, tool="pri"), "")
    seen.begin_again()
    new = seen.new_part(whole, "")
    assert isinstance(new, e.Delta)
    assert (new.tool, new.tool_at, new.text, new.at) == ("ce", 3, '{"a"', 0)


def test_another_attempt_at_one_answer_leaves_those_beside_it_as_they_are() -> None:
    seen = Seen(2)
    told(seen, delta("Hello", 0, call="s1.a"), delta("Good", 0, call="s1.b"))
    started = e.ModelStarted(STEP, "m", call="s1.a", seq=3)
    seen.begin_again()
    again = [delta("He", 0, after=3, call="s1.a"), delta("Good bye", 0, after=3, call="s1.b")]
    assert told(seen, started, *again) == [started, "He", " bye"]


def test_unknown_ephemeral_events_are_left_out_and_unknown_stored_events_are_not() -> None:
    document = {"format": 2, "kind": "moon_landed", "task_id": "t", "agent_path": [], "x": 3}
    assert event_in(document) is None
    stored = event_in(json.loads(json.dumps({**document, "seq": 4, "time": 9})))
    assert isinstance(stored, e.UnknownEvent)
    assert (stored.tag, stored.seq) == ("moon_landed", 4)


async def as_stream(*items: Any) -> AsyncGenerator[Any]:
    for item in items:
        yield item


def stood(head: int, *, driven: bool) -> e.TaskStood:
    return e.TaskStood("running" if driven else "completed", driven=driven, live=False, head=head)


def event(seq: int) -> e.Event:
    return e.StepStarted(STEP, 1, seq=seq)


@pytest.mark.parametrize(
    ("items", "rests", "seen"),
    [
        ([stood(2, driven=False), event(1), event(2), event(3)], [2], [1, 2]),
        (
            [stood(0, driven=False), stood(0, driven=True), event(1), stood(1, driven=False), event(2)],
            [None, 1],
            [1],
        ),
        # it went on and stopped while it was asked whether it rests
        (
            [stood(1, driven=False), event(1), event(2), event(3), stood(3, driven=False), event(4)],
            [3],
            [1, 2, 3],
        ),
        ([stood(5, driven=True), event(1), stood(1, driven=False), event(2)], [0], [1]),
    ],
)
async def test_a_stream_ends_once_its_task_rests_and_all_before_that_was_told(
    items: list[Any], rests: list[int | None], seen: list[int]
) -> None:
    answers = iter(rests)

    async def rest() -> int | None:
        return next(answers)

    events = until_rest(as_stream(*items), rest, 0)
    assert [each.seq async for each in events] == seen
    assert list(answers) == []
