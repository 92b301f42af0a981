"""Input and results of calls as messages of a conversation."""

from treadle.core import events as e
from treadle.core.framing import nonce_of
from treadle.core.labels import OBSERVATION, RUNNER, Label
from treadle.core.messages import Message, Text, ToolResult
from treadle.core.observation import EMPTY_OUTPUT
from treadle.core.render import input_message, late_result, results
from treadle.core.steps import CallState


def test_input_becomes_a_message_of_its_role() -> None:
    assert input_message(e.InputReceived((Text("stop"),), "system")) == Message("system", (Text("stop"),))


def test_an_observation_becomes_an_untrusted_message_of_the_user_with_the_nonce_of_its_place() -> None:
    received = e.InputReceived((Text("it rains"), Text("it pours")), "system", observation=True, seq=7)
    message = input_message(received, "key")
    label = Label("observation", "untrusted")
    assert message == Message("user", (Text("it rains", label=label), Text("it pours", label=label)))
    frames = [part.label.frame for part in message.parts]  # type: ignore[union-attr]
    assert frames == [nonce_of("key", "input 7")] * 2


def test_only_untrusted_parts_of_input_have_frames() -> None:
    mail = Text("mail", label=Label("mail", "untrusted"))
    clock = Text("noon", label=Label("clock", "trusted"))
    message = input_message(e.InputReceived((Text("Summarise:"), mail, clock), seq=1), "key")
    assert message.parts == (Text("Summarise:"), mail, clock)
    assert [part.label and part.label.frame for part in message.parts] == [
        None,
        nonce_of("key", "input 1"),
        None,
    ]  # type: ignore[union-attr]


def test_results_answer_calls_in_their_order_under_the_ids_the_model_used() -> None:
    calls = [
        CallState("s1-0r2", "s1", "look", {}, outcome="ok", output={"a": 1}),
        CallState("s1-1", "s1", "put", {}, outcome="error", error=e.Failure("tool", "error", "no room")),
        CallState("s1-2", "s1", "say", {}, outcome="ok", output="long", observation=(Text("short"),)),
        CallState("s1-3", "s1", "wait", {}, outcome="ok", output=""),
    ]
    for call in calls:
        call.attempt = 1
    assert results(calls) == Message(
        "tool",
        (
            ToolResult("s1-0", "look", (Text('{"a":1}'),), False),
            ToolResult("s1-1", "put", (Text("no room"),), True),
            ToolResult("s1-2", "say", (Text("short"),), False),
            ToolResult("s1-3", "wait", (Text(EMPTY_OUTPUT),), False),
        ),
    )


def test_a_result_has_the_label_of_its_call_and_that_of_no_tool_if_it_never_began() -> None:
    clock = Label("tool:clock", "trusted")
    told = CallState("s1-0", "s1", "clock", {}, attempt=1, outcome="ok", output="noon", label=clock)
    refused = CallState("s1-1", "s1", "put", {}, outcome="denied", error=e.Failure("tool", "denied", "no"))
    assert [part.label for part in results([told, refused]).parts if isinstance(part, ToolResult)] == [
        clock,
        RUNNER,
    ]


def test_what_is_observed_is_untrusted_by_part() -> None:
    mail = Label("mail", "untrusted")
    parts = input_message(
        e.InputReceived((Text("it rains"), Text("dear friend", label=mail)), observation=True)
    ).parts
    labels = {part.text: part.label for part in parts if isinstance(part, Text)}
    assert (labels["it rains"], labels["dear friend"]) == (OBSERVATION, mail)


def test_a_late_result_keeps_the_label_of_its_call() -> None:
    late = CallState("s1-0", "s1", "scan", {}, attempt=1, outcome="ok", output="all clear")
    head, result = late_result(late)
    assert (head.label, result.label) == (RUNNER, Label("tool:scan", "untrusted"))
