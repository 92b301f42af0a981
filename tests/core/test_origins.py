"""Untrusted origins of a task: of what it took over, of input, of results, and bounded in number."""

from typing import Any

import pytest

from tests.agents.stories import answered, began, ended, ran, state_after, step
from treadle.core import events as e
from treadle.core import origins
from treadle.core.labels import Label
from treadle.core.messages import Image, Message, Text, ToolResult

MAIL = Label("mail", "untrusted")
CLOCK = Label("tool:clock", "trusted")


def labelled(event: Any, **fields: Any) -> Any:
    for name, value in fields.items():
        setattr(event, name, value)
    return event


def read(*parts: Any, observation: bool = False) -> list[Any]:
    return [e.InputReceived(parts, observation=observation), step()]


@pytest.mark.parametrize(
    ("events", "found"),
    [
        ([], ()),
        ([step()], ()),
        (read(Text("hello")), ()),
        (read(Text("dear friend", label=MAIL)), ("mail",)),
        (read(Text("a"), Image(url="https://a.example/a.png", label=MAIL)), ("mail",)),
        (read(Text("it rains"), observation=True), ("observation",)),
        (read(Text("it rains", label=MAIL), observation=True), ("mail",)),
        ([step(), answered("look")], ()),
        ([step(), answered("look"), began(0, name="look")], ()),
        ([step(), answered("look"), began(0, name="look"), ended(0)], ("tool:look",)),
        ([step(), answered("look"), began(0, name="look"), ended(0, "error")], ("tool:look",)),
        ([step(), answered("look"), ended(0, "refused")], ()),
        ([step(), answered("look"), labelled(began(0, name="look"), label=CLOCK), ended(0)], ()),
        ([step(), answered("look"), labelled(began(0, name="look"), label=CLOCK), ended(0, "error")], ()),
        (
            [
                step(),
                answered("look"),
                labelled(began(0, name="look"), label=CLOCK),
                labelled(ended(0), label=Label("web:a.example", "untrusted")),
            ],
            ("web:a.example",),
        ),
        (
            [
                step(),
                answered("look"),
                began(0, name="look"),
                labelled(ended(0), observation=(Text("He wrote"), Text("dear friend", label=MAIL))),
            ],
            ("tool:look", "mail"),
        ),
        ([*ran("look"), e.StepCompleted("s1"), *ran("look", index=2)], ("tool:look",)),
    ],
)
def test_a_task_has_the_untrusted_origins_of_all_that_it_read(events: list[Any], found: tuple[str, ...]):
    assert origins.of_task(state_after(*events)) == found


def test_input_that_waits_to_be_read_counts_for_the_thread_and_not_yet_for_the_model():
    state = state_after(*ran("look"), e.InputReceived((Text("dear friend", label=MAIL),)))
    assert origins.of_task(state) == ("tool:look", "mail")
    assert all("mail" not in origins.of_step(each) for each in state.under_way())


def test_what_a_task_took_over_comes_first():
    state = state_after(*ran("look"))
    state.untrusted, state.history_untrusted = ("mail",), ("web:a.example", "mail")
    assert origins.of_task(state) == ("mail", "web:a.example", "tool:look")


def test_imported_messages_say_themselves_what_is_untrusted():
    result = ToolResult("c1", "fetch", (Text("a page"),))
    state = state_after(
        e.MessagesImported((Message("tool", (result,)), Message("user", (Text("dear friend", label=MAIL),))))
    )
    assert origins.of_task(state) == ("tool:fetch", "mail")


def test_no_more_origins_are_named_than_a_few_and_the_first_ones_are():
    many = [f"web:{number}.example" for number in range(40)]
    named = (*many[: origins.MAX_ORIGINS], origins.FURTHER)
    assert origins.merged(many[:3], many) == named
