"""Input and results of calls as messages of a conversation."""

from treadle.core import events as e
from treadle.core.messages import Message, Text, ToolResult
from treadle.core.observation import EMPTY_OUTPUT
from treadle.core.render import results, spoken
from treadle.core.steps import CallState


def test_input_becomes_a_message_of_its_role() -> None:
    assert spoken(e.InputReceived((Text("stop"),), "system")) == Message("system", (Text("stop"),))


def test_an_observation_becomes_a_framed_message_of_the_user() -> None:
    message = spoken(e.InputReceived((Text("it rains"),), "system", observation=True))
    assert message.role == "user"
    assert "it rains" in message.text
    assert message.text != "it rains"


def test_results_answer_calls_in_their_order_under_the_ids_the_model_used() -> None:
    calls = [
        CallState("s1-0r2", "s1", "look", {}, outcome="ok", output={"a": 1}),
        CallState("s1-1", "s1", "put", {}, outcome="error", error=e.Failure("tool", "error", "no room")),
        CallState("s1-2", "s1", "say", {}, outcome="ok", output="long", observation=(Text("short"),)),
        CallState("s1-3", "s1", "wait", {}, outcome="ok", output=""),
    ]
    assert results(calls) == Message(
        "tool",
        (
            ToolResult("s1-0", "look", (Text('{"a":1}'),), False),
            ToolResult("s1-1", "put", (Text("no room"),), True),
            ToolResult("s1-2", "say", (Text("short"),), False),
            ToolResult("s1-3", "wait", (Text(EMPTY_OUTPUT),), False),
        ),
    )
