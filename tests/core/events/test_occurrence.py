"""Events are a closed list, tagged by their class names, each with the journal format it needs."""

import copy
import pickle
import re
import sys

import pytest

from tests import forked
from treadle.core import events as e


def test_tags_are_the_names_of_the_classes() -> None:
    for tag, kind in e.EVENTS.items():
        assert re.sub("_", "", tag) == kind.__name__.lower()
        assert kind.kind == tag


def test_the_envelope_is_not_part_of_what_an_event_says() -> None:
    assert e.Resumed("ann", seq=3, time=5) == e.Resumed("ann", seq=4, time=9)
    assert e.Resumed("ann") != e.Resumed("bob")


def test_a_copy_of_an_event_knows_where_the_event_came_from() -> None:
    event = e.ToolStarted("s1", "s1-0", seq=3, time=5)
    event.origin, event.tool_name = e.EventOrigin("t", ("a",)), "book"
    for other in (copy.copy(event), copy.deepcopy(event), pickle.loads(pickle.dumps(event))):
        assert (other, other.seq, other.time) == (event, 3, 5)
        assert (other.task_id, other.tool) == ("t", "book")
    assert copy.copy(e.Resumed("ann")).task_id == ""


def test_no_event_needs_a_format_that_this_version_does_not_know() -> None:
    assert all(kind.since <= e.JOURNAL_FORMAT for kind in e.EVENTS.values())


def test_an_unknown_event_needs_a_newer_version_unless_it_is_inert() -> None:
    assert e.UnknownEvent("later", {}).format == e.JOURNAL_FORMAT + 1
    assert e.UnknownEvent("later", {}, inert=True).format == 1


RUN = """
from treadle import Agent, Runner, ScriptedModel
from treadle.core.events import Occurrence
agent, seen = Agent(ScriptedModel(["done", "done"])), []
runner = Runner("memory:")
task = runner.run_sync(agent, "?").task_id
assert not hasattr(Occurrence, "__getattr__"), "no program has looked at an event yet"
{gets_one}
message = ""
try:
    next(each for each in seen if hasattr(each, 'time')).type
except AttributeError as error:
    message = str(error)
assert "write `event.kind`" in message, message
"""


@pytest.mark.parametrize(
    "gets_one",
    [
        pytest.param("seen += runner.sync.handle(task).events()", id="reads a journal"),
        pytest.param("with runner.sync.run_stream(agent, '?') as stream: seen += stream", id="watches a run"),
        pytest.param(
            "other = Runner('memory:', observers=[lambda notice: seen.append(notice.event)])\n"
            "other.run_sync(agent, '?')\nother.sync.close()",
            id="observes a runner",
        ),
        pytest.param("import treadle.events as te; seen += [te.TimerFired('s1')]", id="makes one"),
    ],
)
def test_events_explain_names_from_when_a_program_gets_one(gets_one: str) -> None:
    script = RUN.replace("{gets_one}", gets_one)
    forked.completed([sys.executable, "-c", script], check=True)
