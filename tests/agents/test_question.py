"""Questions as tools and steps put them: what is refused before a person is asked."""

from datetime import date
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel

from treadle.agents.question import terms_of
from treadle.core import events as e
from treadle.core.questions import Question
from treadle.errors import ConfigurationError, QuestionUnanswered


class Room(BaseModel):
    nights: int


def terms(question: Any = "Go?", schema: Any = str, expires: Any = None, *default: Any) -> Any:
    return terms_of("tool 'book'", question, schema, expires, default)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("",), "ask(question) takes a text, got ''"),
        ((3,), "ask(question) takes a text, got 3"),
        (("a\ud800",), "ask(question) takes a text"),
        (("Go?", "text"), "ask(schema) 'text' has no JSON schema"),
        (("Go?", str, 0), "ask(expires=) takes seconds above 0, or None, got 0"),
        (("Go?", str, True), "ask(expires=) takes seconds"),
        (("Go?", str, float("inf")), "ask(expires=) takes seconds"),
        (("Go?", int, 1, "many"), "ask(default=) is not of the type of the answer, got 'many'"),
    ],
)
def test_what_cannot_be_asked_names_the_argument(arguments: Any, named: str) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        terms(*arguments)
    assert named in str(refusal.value)


@pytest.mark.parametrize(
    ("schema", "default", "data"),
    [
        (bool, False, False),
        (Literal["a", "b"], "b", "b"),
        (Room, Room(nights=2), {"nights": 2}),
        (date, date(2026, 1, 31), "2026-01-31"),
        (str | None, None, None),
    ],
)
def test_a_default_is_journalled_as_data_and_comes_back_as_its_type(
    schema: Any, default: Any, data: Any
) -> None:
    made = terms("Go?", schema, 5, default)
    assert (made.default, made.has_default) == (data, True)
    asked = e.QuestionAsked("s1", "", 1, "Go?", {}, made.digest, has_default=True)
    assert made.answer_of(Question(asked, "expired", made.default)) == default


def test_a_question_that_expired_without_a_default_raises() -> None:
    asked = e.QuestionAsked("s1", "", 1, "Go?", {}, "d")
    with pytest.raises(
        QuestionUnanswered, match="tool 'book': the question 'Go\\?' was not answered in time"
    ):
        terms().answer_of(Question(asked, "expired"))


def test_a_type_without_a_hash_is_a_type_too() -> None:
    unhashed: Any = Annotated[int, ["no hash"]]
    assert terms("Go?", unhashed).type.schema == {"type": "integer"}
