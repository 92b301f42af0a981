"""What guardrails judge of input, answers and results, and what is put in their place."""

from typing import Any

import pytest

from treadle.core.checks import (
    Check,
    answer_content,
    check_edit,
    input_content,
    is_judged,
    passed_answer,
    refusal,
    result_content,
    standing,
    with_input,
    withholds,
)
from treadle.core.events import AnswerHeld, Failure, TypedAnswer
from treadle.core.labels import USER
from treadle.core.messages import IN_WORDS, UNSEEN, Image, Message, Reasoning, Text, ToolCall, untrusted
from treadle.core.permits import Permit
from treadle.core.steps import CallState
from treadle.errors import ConfigurationError

PICTURE = Image(url="https://example.org/a.png")


def check_that_is(status: Any, guards: Any = "output") -> Check:
    return Check("s1-said1", "s1", guards, {"text": "x"}, Permit(status, "rule", "why"))


@pytest.mark.parametrize(
    ("status", "stands", "withheld"),
    [
        (None, "open", True),
        ("allowed", "passed", False),
        ("asked", "asked", True),
        ("edited", "open", True),
        ("approved", "passed", False),
        ("denied", "refused", True),
        ("used", "refused", False),
    ],
)
def test_how_a_content_stands(status: Any, stands: str, withheld: bool) -> None:
    check = check_that_is(status) if status is not None else None
    assert (standing(check), withholds(check)) == (stands, withheld)


def test_a_refusal_names_the_content_the_guardrail_and_the_person() -> None:
    check = check_that_is("denied")
    assert check.permit is not None
    check.permit.by = "ann"
    assert refusal(check) == Failure(
        "guardrail", "output", "the guardrail rule refused the answer: why", rule="rule", by="ann"
    )


def test_input_is_judged_by_its_text_and_keeps_its_images() -> None:
    parts = (Text("a"), PICTURE, Text("b"))
    assert input_content(parts) == {"text": "a\nb"}
    assert with_input(parts, {"text": "c"}) == (Text("c"), PICTURE)


def test_input_that_guardrails_rewrote_kept_no_label_of_what_was_untrusted_in_it() -> None:
    parts = (Text("See:"), Text("a", label=USER), untrusted("b", origin="mail"), untrusted("c", origin="web"))
    assert with_input(parts, {"text": "d"}) == (untrusted("d", origin="mail"),)


def answer(*parts: Any, typed: TypedAnswer | None = None) -> AnswerHeld:
    return AnswerHeld("s1", Message("assistant", parts), typed=typed)


FINAL = ToolCall("s1-0", "final_answer", {"n": 1})
UNREAD = ToolCall("s1-0", "unreadable", {}, "Action: {", "it broke off", IN_WORDS)


@pytest.mark.parametrize(
    ("held", "content"),
    [
        (answer(Text("a"), Text("b")), {"text": "ab"}),
        (answer(Reasoning("hm", IN_WORDS), Text("a")), {"reasoning": "hm", "text": "a"}),
        (answer(Text('{"n": 1}'), typed=TypedAnswer({"n": 1})), {"answer": {"n": 1}}),
        (
            answer(Text("so"), FINAL, typed=TypedAnswer({"n": 1}, None, "s1-0")),
            {"answer": {"n": 1}, "text": "so"},
        ),
        (answer(FINAL, typed=TypedAnswer(None, "wrong", "s1-0")), {"answer": {"n": 1}}),
        (answer(Text("no json"), typed=TypedAnswer(None, "wrong")), {"text": "no json"}),
        (answer(UNREAD), {"scratch": "Action: {"}),
        (answer(ToolCall("s1-0", "look", {})), {}),
    ],
)
def test_what_is_judged_of_an_answer_is_all_that_people_could_read(held: AnswerHeld, content: Any) -> None:
    assert answer_content(held) == content
    assert passed_answer(held, content) == (held.message, held.typed)


@pytest.mark.parametrize(
    ("held", "content", "parts", "typed"),
    [
        (answer(Text("a"), PICTURE, Text("b")), {"text": "c"}, (Text("c"), PICTURE), None),
        (answer(Text("a"), FINAL), {"text": ""}, (FINAL,), None),
        (
            answer(Reasoning("hm", IN_WORDS), Text("a")),
            {"reasoning": "h", "text": "a"},
            (Reasoning("h", IN_WORDS), Text("a")),
            None,
        ),
        (
            answer(Reasoning("hm", {"signature": "s"}), Text("a")),
            {"reasoning": "h", "text": "a"},
            (Reasoning("h", UNSEEN), Text("a")),
            None,
        ),
        (
            answer(Text('{"n": 1}'), typed=TypedAnswer({"n": 1})),
            {"answer": {"n": 2}},
            (Text('{"n":2}'),),
            TypedAnswer({"n": 2}),
        ),
        (
            answer(FINAL, typed=TypedAnswer(1, None, "s1-0")),
            {"answer": 2},
            (ToolCall("s1-0", "final_answer", {"answer": 2}),),
            TypedAnswer(2, None, "s1-0"),
        ),
        (
            answer(UNREAD),
            {"scratch": "x"},
            (ToolCall("s1-0", "unreadable", {}, "x", "it broke off", IN_WORDS),),
            None,
        ),
    ],
)
def test_what_guardrails_made_of_an_answer_takes_its_place(
    held: AnswerHeld, content: Any, parts: Any, typed: Any
) -> None:
    assert passed_answer(held, content) == (Message("assistant", parts), typed)


def ended(**fields: Any) -> CallState:
    call = CallState("s1-0", "s1", "look", {}, status="ended", attempt=1, outcome="ok", output={"n": 1})
    for field, value in fields.items():
        setattr(call, field, value)
    return call


def test_a_result_is_judged_as_the_model_would_read_it() -> None:
    assert result_content(ended()) == {"result": {"n": 1}}
    assert result_content(ended(observation=(Text("a"), PICTURE, Text("b")))) == {"result": "a\nb"}
    failed = ended(outcome="error", error=Failure("tool", "error", "it broke"))
    assert result_content(failed) == {"result": "it broke"}


@pytest.mark.parametrize(
    ("fields", "judged"),
    [
        ({}, True),
        ({"outcome": "error"}, True),
        ({"outcome": "timeout"}, False),
        ({"outcome": "invalid", "attempt": 0}, False),
        ({"status": "begun"}, False),
    ],
)
def test_only_what_a_tool_returned_or_raised_is_judged(fields: Any, judged: bool) -> None:
    assert is_judged(ended(**fields)) is judged


@pytest.mark.parametrize("arguments", [{}, {"text": 1}, {"text": "a", "more": "b"}])
def test_a_person_may_put_only_the_same_parts_in_its_place(arguments: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"approve: the answer consists of text \(a text\)"):
        check_edit(check_that_is("asked"), arguments, "approve")
    check_edit(check_that_is("asked"), {"text": "other"}, "approve")
