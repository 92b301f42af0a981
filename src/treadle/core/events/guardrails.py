"""Events of guardrails: answers that wait for them, and what they decided on a content."""

from __future__ import annotations

from typing import Literal

from treadle.core.data import mutable
from treadle.core.events.occurrence import Event
from treadle.core.events.requests import TypedAnswer
from treadle.core.messages import Json, Message
from treadle.core.model import NO_USAGE, Finish, SideCall, Usage

GuardedContent = Literal["input", "output", "result"]
"""What a guardrail checks: what a user says, what the agent answers, what the model is to read of a call."""

GuardrailWord = Literal["allow", "rewrite", "ask", "deny"]


@mutable
class AnswerHeld(Event):
    """The model answered, and guardrails have not let the answer pass yet; `ModelReturned` follows once they do.

    The fields are those of `ModelReturned`. Its texts are in the journal alone: watchers get the event without them.
    """

    says = "an answer of the model waits for its guardrails"

    since = 5
    step: str
    message: Message
    finish: Finish = "stop"
    usage: Usage = NO_USAGE
    typed: TypedAnswer | None = None
    call: str | None = None
    model: str = ""
    also: tuple[SideCall, ...] = ()
    cost: int | None = None


@mutable
class GuardrailJudged(Event):
    """Guardrails decided on a content of the task: `place` is its id, `rule` the id of the guardrail that decided.

    With `rewrite` the `content` takes the place of the `previous` one, and is judged anew; with `ask` it is what a
    person is asked about. `grant` is the earlier approval that let it pass. Watchers get no contents of answers.
    `traceback` shows where a guardrail raised an error instead of judging.
    """

    says = "the {it.guards} {it.place} was judged by guardrails: {it.verdict}"

    since = 5
    step: str
    place: str
    guards: GuardedContent
    verdict: GuardrailWord
    rule: str | None = None
    reason: str = ""
    content: dict[str, Json] | None = None
    previous: dict[str, Json] | None = None
    grant: str | None = None
    traceback: str = ""
