"""A question of a tool or a step function to a person, and its status.

The statuses of a question:

    open        a person must answer; the task may stop meanwhile
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
    """A question, and its answer once there is one."""

    event: QuestionAsked
    status: QuestionStatus = "open"
    value: Json = None
    """the answer; for an expired question its default"""

    by: str | None = None
    """the person who answered"""

    @property
    def request_id(self) -> str:
        """The id of the question, as `list_pending` names it."""
        return self.event.request_id

    @property
    def is_answered(self) -> bool:
        """Whether there is an answer: a person's, or the default of an expired question."""
        return self.status == "answered" or (self.status == "expired" and self.event.has_default)


class AwaitingAnswer(BaseException):
    """Ends an attempt of a call that asked a question. The call starts again when the question is answered.

    It derives from `BaseException`, so a tool that catches `Exception` lets it pass.
    """


def expires_at(now: int, seconds: float | None, *, headless: bool) -> int | None:
    """Return the expiry of a question that is asked now, in microseconds. In a headless run it expires at once."""
    if headless:
        return now
    return now + int(seconds * 1e6) if seconds is not None else None


def question_digest(question: str, schema: Json) -> str:
    """Return the digest of a question's text and schema, which binds an answer."""
    return digest_of([question, schema])
