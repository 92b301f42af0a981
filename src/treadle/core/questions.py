"""A question of a tool or a step function to a person, and what became of it.

open        a person is to answer; the task may rest meanwhile
answered    a person answered
expired     time ran out: the default is the answer, or there is none
"""

from __future__ import annotations

from typing import Literal

from treadle.core.data import mutable
from treadle.core.events import QuestionAsked
from treadle.core.messages import Json
from treadle.core.permits import digest_of

QuestionStatus = Literal["open", "answered", "expired"]


@mutable
class Question:
    """A question that was asked, and its answer once there is one."""

    asked: QuestionAsked
    status: QuestionStatus = "open"
    value: Json = None
    """the answer; of an expired question its default"""

    by: str | None = None
    """who answered"""

    @property
    def request_id(self) -> str:
        """The id of the question, as `list_pending` names it."""
        return self.asked.request_id

    @property
    def is_answered(self) -> bool:
        """Whether there is an answer: a person's, or the default of a question that expired."""
        return self.status == "answered" or (self.status == "expired" and self.asked.has_default)


class AwaitingAnswer(BaseException):
    """Ends an attempt of a call that asked a question; the call starts again once the question is answered.

    It is no error: code of a tool that catches `Exception` lets it pass.
    """


def expires_at(now: int, seconds: float | None, *, headless: bool) -> int | None:
    """Return when a question expires that is asked now, in microseconds; at once in a run without people."""
    if headless:
        return now
    return now + int(seconds * 1e6) if seconds is not None else None


def question_digest(question: str, schema: Json) -> str:
    """Return what an answer is bound to: the text of the question, and the schema of its answers."""
    return digest_of([question, schema])
