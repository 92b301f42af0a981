"""Questions as tools and steps put them: what is refused before a person is asked."""

from datetime import UTC, date, datetime, timedelta, timezone
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel

from treadle.agents.question import due_at, terms_of
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


# --------------------------------------------------------------- until when a sleep lasts, by its arguments


NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "until", "due"),
    [
        (5, None, 1_005_000_000),
        (0.5, None, 1_000_500_000),
        (0, None, 1_000_000_000),
        (None, 1_600, 1_600_000_000),
        (None, NOON, 1_767_268_800_000_000),
        (None, NOON.astimezone(timezone(timedelta(hours=5))), 1_767_268_800_000_000),
    ],
)
def test_a_sleep_ends_after_seconds_or_at_a_time(seconds: Any, until: Any, due: int) -> None:
    assert due_at("a tool", 1_000_000_000, seconds, until) == due


@pytest.mark.parametrize(
    ("seconds", "until", "words"),
    [
        (None, None, "one of them only"),
        (5, 5, "one of them only"),
        (-1, None, "from 0 up"),
        (float("nan"), None, "from 0 up"),
        (1e11, None, "from 0 up"),
        (True, None, "from 0 up"),
        ("5", None, "from 0 up"),
        (None, datetime(2026, 1, 1, 12), "with its zone"),  # noqa: DTZ001
        (None, "noon", r"until=\) takes a number"),
    ],
)
def test_a_time_that_cannot_be_is_refused(seconds: Any, until: Any, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        due_at("a tool", 0, seconds, until)
