"""A question of a tool or a step function to a person, checked, with the schema of its answers.

Also the end of a `ctx.sleep`, from its arguments.
"""

from __future__ import annotations

import math
from datetime import datetime
from functools import lru_cache
from typing import Any

from treadle.agents.output import AnswerType
from treadle.core.codec import check_fit, is_text
from treadle.core.data import frozen
from treadle.core.events import QuestionAsked
from treadle.core.messages import Json
from treadle.core.questions import Question, question_digest
from treadle.errors import ConfigurationError, QuestionUnanswered
from treadle.ports import MAX_SECONDS


def due_at(where: str, now: int, seconds: float | None, until: datetime | float | None) -> int:
    """Return the end of a sleep, in microseconds since 1970, UTC.

    Args:
        where: the sleeping tool or step, for the error.
        now: in microseconds since 1970, UTC.
        seconds: the duration; None if `until` is given.
        until: a time with its zone, or seconds since 1970, UTC; None if `seconds` is given.

    Raises:
        ConfigurationError: not exactly one of both is given, or the time is not possible.
    """
    if (seconds is None) == (until is None):
        raise ConfigurationError(f"{where}: sleep() takes seconds, or until=, and one of them only")
    if isinstance(until, datetime):
        if until.tzinfo is None:
            raise ConfigurationError(f"{where}: sleep(until=) needs a time with its zone, got {until!r}")
        until = until.timestamp()
    value = seconds if until is None else until
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < MAX_SECONDS:
        name = "sleep()" if until is None else "sleep(until=)"
        raise ConfigurationError(f"{where}: {name} takes a number of seconds from 0 up, got {value!r}")
    return now + int(value * 1e6) if until is None else int(value * 1e6)


@frozen
class QuestionTerms:
    """A question with the type of its answers, and the default if there is one."""

    where: str
    """the asking tool or step, for errors"""

    question: str
    type: AnswerType[Any]
    digest: str
    default: Json
    has_default: bool

    def answer_of(self, question: Question) -> Any:
        """Return the answer to a closed question; raises `ValueError` if it is not of the type."""
        if question.is_answered:
            return self.type.checked(question.value)
        raise QuestionUnanswered(
            f"{self.where}: the question {self.question!r:.200} was not answered in time"
        )

    def check_fit(self, event: QuestionAsked) -> None:
        """Raise `ConfigurationError` unless the question can be journalled."""
        try:
            check_fit(event)
        except ValueError as error:
            raise ConfigurationError(f"{self.where}: this cannot be asked: {error}") from None


def terms_of(where: str, question: Any, schema: Any, expires: Any, default: tuple[Any, ...]) -> QuestionTerms:
    """Return a question with its checked terms.

    Args:
        where: the asking tool or step, for errors.
        question: the text.
        schema: the type of the answer.
        expires: seconds until it expires, or None.
        default: a tuple with the default; empty without one.

    Raises:
        ConfigurationError: an argument is not valid; the text names it.
    """
    if not is_text(question) or not question.strip():
        raise ConfigurationError(f"{where}: ask(question) takes a text, got {question!r:.80}")
    is_number = isinstance(expires, (int, float)) and not isinstance(expires, bool)
    if expires is not None and not (is_number and expires > 0 and math.isfinite(expires)):
        raise ConfigurationError(
            f"{where}: ask(expires=) takes seconds above 0, or None, got {expires!r:.80}"
        )
    answer_type = _type_of(schema)
    data: Json = None
    if default:
        try:
            data = answer_type.dump(default[0])
        except Exception as error:
            raise ConfigurationError(
                f"{where}: ask(default=) is not of the type of the answer, got {default[0]!r:.80}: {error}"
            ) from error
    digest = question_digest(question, answer_type.schema)
    return QuestionTerms(where, question, answer_type, digest, data, bool(default))


def _type_of(schema: Any) -> AnswerType[Any]:
    try:
        return _known_type(schema)
    except TypeError:  # it has no hash
        return AnswerType("ask(schema)", schema)


@lru_cache(maxsize=128)
def _known_type(schema: Any) -> AnswerType[Any]:
    return AnswerType("ask(schema)", schema)
