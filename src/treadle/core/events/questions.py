"""Questions of calls or step functions to people, and their outcomes."""

from __future__ import annotations

from typing import TypeAlias

from treadle.core.data import mutable
from treadle.core.events.occurrence import CallOccurrence, Event
from treadle.core.ids import question_id
from treadle.core.messages import Json

__all__ = [
    "QuestionAnswered",
    "QuestionAsked",
    "QuestionExpired",
]


class QuestionOccurrence(CallOccurrence):
    """An occurrence of a question: `request_id` is its id, as in `list_pending`."""

    __slots__ = ()

    step: str
    number: int

    @property
    def request_id(self) -> str:
        """The id of the question."""
        return question_id(self.call or self.step, self.number)


@mutable
class QuestionAsked(Event, QuestionOccurrence):
    """A call, or a step function if `call` is empty, asks a person. A call starts again once there is an answer.

    `number` counts the questions of the call, or the requests of the step. `place` is the number of the question in the
    call's code, from 1. `key` is its key for a step function. An answer fits the JSON `schema`, and is bound to
    `digest`, that of question and schema. At `expires`, in microseconds since 1970, UTC, `default` becomes the answer
    if `has_default` is true. `problem` is the tool's reason to reject the previous answer.
    """

    says = "a person is asked ({it.request_id})"

    since = 5
    step: str
    call: str
    number: int
    question: str
    schema: Json
    digest: str
    place: int = 1
    key: str = ""
    expires: int | None = None
    default: Json = None
    has_default: bool = False
    problem: str | None = None


@mutable
class QuestionAnswered(Event, QuestionOccurrence):
    """A person answered a question."""

    says = "a person answered ({it.request_id})"

    since = 5
    step: str
    call: str
    number: int
    value: Json
    by: str | None = None
    inbox: str | None = None


@mutable
class QuestionExpired(Event, QuestionOccurrence):
    """A question expired. Its default becomes the answer, else the code that asked gets an error."""

    says = "the question expired ({it.request_id})"

    since = 5
    step: str
    call: str
    number: int


QuestionEvent: TypeAlias = QuestionAsked | QuestionAnswered | QuestionExpired
"""The events of this module."""
