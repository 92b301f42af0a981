"""Events of guardrails: answers that wait for them, and their decisions on contents."""

from __future__ import annotations

from typing import Literal, TypeAlias

from treadle.core.data import mutable
from treadle.core.events.occurrence import Event
from treadle.core.events.requests import TypedAnswer
from treadle.core.messages import Json, Message
from treadle.core.model import NO_USAGE, Finish, SideCall, Usage

__all__ = [
    "AnswerHeld",
    "GuardrailJudged",
]

GuardedContent = Literal["input", "output", "result"]
"""The contents that guardrails check: user input, the agent's answers, and results of calls for the model."""

GuardrailWord = Literal["allow", "rewrite", "ask", "deny"]


@mutable
class AnswerHeld(Event):
    """The model answered, and guardrails have not passed the answer yet. `ModelReturned` follows once they do.

    The fields are those of `ModelReturned`. Only the journal has its texts: watchers get the event without them.
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
    """Guardrails judged a content of the task. `place` is its id, `rule` the id of the deciding guardrail.

    With `rewrite` the `content` replaces the `previous` one and is judged again. With `ask` a person decides on it.
    `grant` is the earlier approval that let it pass. Watchers get no contents of answers. `traceback` is that of an
    error in a guardrail.
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


GuardrailEvent: TypeAlias = AnswerHeld | GuardrailJudged
"""The events of this module."""
