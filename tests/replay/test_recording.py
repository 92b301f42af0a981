"""The comparison of journals sees every planted difference, and overlooks only what its list names."""

from dataclasses import fields, replace
from typing import Any

import pytest

from tests.cast import calculator
from tests.runner.acts import journal, step_to_answer, stepped
from treadle import Runner
from treadle.core.events import EVENTS, Event, InputReceived
from treadle.core.messages import Message, Text
from treadle.replay.recording import IGNORED, assert_same_journal, facts, first_difference, journal_of


@pytest.fixture
async def events(anyio_backend: str) -> list[Event]:
    async with Runner("memory:") as runner:
        return await journal(runner, (await stepped(runner, calculator(), "?")).task_id)


pytestmark = pytest.mark.anyio


async def test_a_journal_is_the_same_as_itself(events: list[Event]) -> None:
    assert first_difference(events, list(events)) is None
    assert_same_journal(events, list(events))


async def test_an_extra_event_is_seen_wherever_it_is_planted(events: list[Event]) -> None:
    for at in range(len(events) + 1):
        planted = [*events[:at], InputReceived((Text("planted"),), seq=at + 1), *events[at:]]
        for pair in ((events, planted), (planted, events)):
            difference = first_difference(*pair)
            assert difference is not None
            assert difference.startswith(f"event {at + 1}: ")
            with pytest.raises(AssertionError, match=f"event {at + 1}: "):
                assert_same_journal(*pair)


async def test_a_missing_event_is_seen_wherever_it_is_missing(events: list[Event]) -> None:
    for at in range(len(events)):
        assert first_difference(events, events[:at] + events[at + 1 :]) is not None


async def test_two_events_in_another_order_are_seen(events: list[Event]) -> None:
    for at in range(len(events) - 1):
        swapped = [*events[:at], events[at + 1], events[at], *events[at + 2 :]]
        assert first_difference(events, swapped) is not None


async def test_a_changed_field_is_seen_unless_the_list_names_it(events: list[Event]) -> None:
    for at, event in enumerate(events):
        for item in fields(event):
            changed: Any = replace(event, **{item.name: other_than(getattr(event, item.name))})
            changed.seq = event.seq if item.name != "seq" else changed.seq
            difference = first_difference(events, [*events[:at], changed, *events[at + 1 :]])
            assert (difference is None) is (item.name in IGNORED), (event.kind, item.name)


def other_than(value: Any) -> Any:
    if isinstance(value, Message):
        return Message(value.role, (Text("something else"),))
    return "something else" if value != "something else" else None


def test_the_list_names_only_fields_that_events_have() -> None:
    every = {item.name for cls in EVENTS.values() for item in fields(cls)}
    assert set(IGNORED) <= every
    assert all(IGNORED.values()), "each says what it holds"


def test_recorded_actions_are_never_on_the_list() -> None:
    assert not {"seq", "step", "call", "attempt", "outcome", "output", "state", "message", "index"} & set(
        IGNORED
    )


async def test_the_facts_of_an_event_leave_out_fields_on_the_list(events: list[Event]) -> None:
    assert "thread" not in facts(events[0])
    assert facts(events[0])["agent"] == "math"


async def test_a_journal_is_read_from_its_store() -> None:
    async with Runner("memory:") as runner:
        task = await runner.create_task(calculator(), "?")
        await step_to_answer(runner, task)
        assert await journal_of(runner.store, task.task_id) == await journal(runner, task)
