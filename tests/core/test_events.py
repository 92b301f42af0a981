"""Events are a closed list, tagged by their class names, each with the journal format it needs."""

import re

from treadle.core import events as e


def test_tags_are_the_names_of_the_classes() -> None:
    for tag, kind in e.EVENTS.items():
        assert re.sub("_", "", tag) == kind.__name__.lower()
        assert kind.kind == tag


def test_the_envelope_is_not_part_of_what_an_event_says() -> None:
    assert e.Resumed("ann", seq=3, time=5) == e.Resumed("ann", seq=4, time=9)
    assert e.Resumed("ann") != e.Resumed("bob")


def test_an_event_that_changes_keys_needs_a_newer_format() -> None:
    assert (e.TaskCreated("a", (), "t").format, e.TaskCreated("a", (), "t", incarnation="x").format) == (1, 2)
    assert all(kind.since <= e.JOURNAL_FORMAT for kind in e.EVENTS.values())


def test_an_unknown_event_needs_a_newer_version_unless_it_is_inert() -> None:
    assert e.UnknownEvent("later", {}).format == e.JOURNAL_FORMAT + 1
    assert e.UnknownEvent("later", {}, inert=True).format == 1
