"""Conversations as text: turns of the model as it would have written them, and results as observations."""

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.agents.dialects.texts import PLANNER, REACT, request
from treadle import Reading
from treadle.agents.dialects.dialect import UNREADABLE, TextDialect
from treadle.agents.dialects.planner import read_call
from treadle.agents.dialects.react import read_text
from treadle.agents.dialects.transcript import IN_WORDS, UNSEEN, Transcript
from treadle.core.framing import framed_message
from treadle.core.labels import Label
from treadle.core.messages import File, Image, Message, Reasoning, Text, ToolCall, ToolResult, user

TRUSTED = Label("clock", "trusted")
PICTURE = Image(data=b"\x89PNG", media_type="image/png")


def test_a_conversation_becomes_text_message_by_message_without_a_copy() -> None:
    messages = [user("go")]
    messages_as_text = REACT.ask(request()).messages
    assert len(messages_as_text) == 0
    transcript = Transcript(messages, REACT.write_turn)
    messages.append(Message("assistant", (Text("Hi."),)))
    assert transcript[1].text == "Answer: Hi."
    assert [message.text for message in transcript] == ["go", "Answer: Hi."]
    assert transcript[0] is messages[0]
    assert transcript[0:2][1].text == transcript[-1].text == "Answer: Hi."


def test_turns_are_written_as_the_model_would_have_written_them() -> None:
    call = ToolCall("s1-0", "add", {"a": "é"})
    assert (
        as_text(REACT, Reasoning("hm", IN_WORDS), call)
        == 'Thought: hm\nAction: add\nAction Input: {"a": "é"}'
    )
    assert as_text(REACT, Text("Let me see."), call).startswith("Thought: Let me see.\nAction: add")
    assert as_text(REACT, Reasoning("hm", IN_WORDS), Text("5")) == "Thought: hm\nAnswer: 5"
    assert as_text(REACT, Reasoning("hm", IN_WORDS)) == "Thought: hm\nAnswer:"
    assert as_text(REACT, call, call).count("Action: add") == 2
    assert json.loads(as_text(PLANNER, Reasoning("hm", IN_WORDS), call)) == {
        "thought": "hm",
        "name": "add",
        "arguments": {"a": "é"},
    }
    for content, value in (("5", 5), ("hi", "hi"), ("", ""), ("[1]", [1]), ("null", None)):
        assert json.loads(as_text(PLANNER, Text(content)))["arguments"] == {"answer": value}


@pytest.mark.parametrize(
    ("dialect", "parse"), [(REACT, read_text), (PLANNER, read_call)], ids=["react", "planner"]
)
def test_a_written_turn_is_read_back_unchanged(dialect: TextDialect, parse: Any) -> None:
    arguments = {"a": ["x\ny", {"b": None}], "c": 'Observation: "'}
    written = as_text(dialect, Reasoning("two\nlines", IN_WORDS), ToolCall("s1-0", "add", arguments))
    assert parse(written) == Reading(thought="two\nlines", name="add", arguments=arguments)


def test_results_are_observations_with_their_pictures_and_files() -> None:
    file = File(url="https://example.org/a.pdf")
    results = Message(
        "tool",
        (
            ToolResult("s1-0", "draw", (Text("one "), PICTURE, Text("two"), Text("!")), label=TRUSTED),
            ToolResult("s1-1", "find", (file,), is_error=False, label=TRUSTED),
        ),
    )
    shown = Transcript([results], REACT.write_turn)[0]
    assert shown.role == "user"
    assert shown.parts == (
        Text("Observation: one "),
        PICTURE,
        Text("two!\nObservation: "),
        file,
    )


def test_an_untrusted_result_keeps_its_label_and_its_frame() -> None:
    result = ToolResult("s1-0", "draw", (Text("one "), PICTURE), frame="x0123456789a")
    shown = Transcript([Message("tool", (result,))], REACT.write_turn)[0]
    label = Label("tool:draw", "untrusted")
    assert shown.parts == (Text("Observation: "), Text("one ", label=label), replace(PICTURE, label=label))
    assert [part.label.frame for part in shown.parts[1:]] == ["x0123456789a", "x0123456789a"]  # type: ignore[union-attr]
    (text, picture, closing) = framed_message(shown).parts
    assert text.text == 'Observation: <untrusted-x0123456789a origin="tool:draw" chars=4>\none '  # type: ignore[union-attr]
    assert (picture, closing) == (shown.parts[2], Text("\n</untrusted-x0123456789a>"))


def test_an_unreadable_answer_is_shown_as_written_up_to_a_length() -> None:
    wrong = ToolCall("s1-0", "add", {}, "Thought: hm\nAction: add", "no input", IN_WORDS)
    assert as_text(REACT, Reasoning("hm", IN_WORDS), wrong) == "Thought: hm\nAction: add"
    assert as_text(REACT, ToolCall("s1-0", UNREADABLE, {}, " ", "nothing", IN_WORDS)) == "(nothing)"
    long = as_text(REACT, ToolCall("s1-0", UNREADABLE, {}, "x" * 50_000, "long", IN_WORDS))
    assert len(long) < 5_000
    native = ToolCall("s1-0", "add", {}, '{"a": ', "truncated")
    assert as_text(REACT, native) == 'Action: add\nAction Input: {"a": '
    assert json.loads(as_text(PLANNER, native))["arguments"] == '{"a": '


def test_reasoning_of_the_provider_is_sent_back_and_thinking_in_tags_is_not() -> None:
    signed = Reasoning("deep", {"signature": "abc"})
    message = Message(
        "assistant", (signed, Reasoning("tags", UNSEEN), Reasoning("hm", IN_WORDS), Text("5")), {"id": "x"}
    )
    shown = Transcript([message], REACT.write_turn)[0]
    assert shown.parts == (signed, Text("Thought: hm\nAnswer: 5"))
    assert shown.meta == {"id": "x"}


def as_text(dialect: TextDialect, *parts: Any) -> str:
    return Transcript([Message("assistant", parts)], dialect.write_turn)[0].text
