"""Events of requests to models."""

from __future__ import annotations

from typing import Any, Final, Literal, TypeAlias

from treadle.core.data import frozen, mutable
from treadle.core.events.occurrence import Event, Failure, StopReason
from treadle.core.messages import Json, Message
from treadle.core.model import NO_USAGE, Finish, SideCall, Usage

__all__ = [
    "ModelFailed",
    "ModelReturned",
    "ModelStarted",
    "ModelStopped",
    "RequestJudged",
    "TimerFired",
    "TypedAnswer",
]

RequestVerdict = Literal["allow", "ask", "deny"]


def _request_format(event: ModelStarted) -> int:
    """Return the journal format of a request. Older versions cannot read the origins of tools."""
    return 5 if event.untrusted else 1


_format_of_request: Any = property(_request_format)


@mutable
class ModelStarted(Event):
    """A request was sent to the model. `final` asks for a last answer without tools. `call` is a function's request.

    `offered` names the tools in it, if the agent offers only some of its own (`Agent.offer`). None: all of them.
    `untrusted` are the origins of the tools' definitions that strangers wrote.
    """

    says = "model {it.model} was asked, attempt {it.attempt}"

    step: str
    model: str
    attempt: int = 1
    final: bool = False
    offered: tuple[str, ...] | None = None
    call: str | None = None
    untrusted: tuple[str, ...] = ()
    format = _format_of_request


_REJECTED: Final = "This is not the answer that was asked for: "
_AGAIN: Final = ". Give the whole answer again"


@frozen
class TypedAnswer:
    """An answer as the agent's output type: the value, or its defect as text for the model.

    `call` is the id of the call that has the answer, if the agent has an output tool. Such a call never runs.
    """

    output: Json = None
    problem: str | None = None
    call: str | None = None

    @classmethod
    def rejected(cls, defect: str, call: str | None = None, *, how: str = "") -> TypedAnswer:
        """Return a rejected answer. `defect` is a clause about it, `how` advises the model."""
        return cls(None, f"{_REJECTED}{defect}{_AGAIN}{how}.", call)

    @property
    def why_rejected(self) -> str:
        """The defect of the answer, as a clause for people, without the text for the model."""
        defect, _, _ = (self.problem or "").removeprefix(_REJECTED).rpartition(_AGAIN)
        return defect or self.problem or ""


@mutable
class ModelReturned(Event):
    """The model answered. Ids of the calls in `message` are their places in the task.

    `typed` is set if the agent has an output type and the message is an answer, neither a refusal nor with calls.
    `model` is the model that answered, if not the requested one. `also` are further requests on the way. `cost` is in
    pico-dollars (see `treadle.core.spending`), computed when the answer came. None: it is not known. `text_calls` are
    tools whose calls the text resembles. Such calls were not run.
    """

    says = "the model answered ({it.finish}), {it.usage.input_tokens} tokens in, {it.usage.output_tokens} out"

    step: str
    message: Message
    finish: Finish = "stop"
    usage: Usage = NO_USAGE
    typed: TypedAnswer | None = None
    call: str | None = None
    model: str = ""
    also: tuple[SideCall, ...] = ()
    cost: int | None = None
    text_calls: tuple[str, ...] = ()


@mutable
class ModelFailed(Event):
    """The model did not answer. From `retry_at` on, in microseconds since 1970, UTC, it is asked again.

    `model` is the model that failed, if not the requested one. `route` is its choice among several, and `next_route`
    the next choice (see `FailedAttempt`). `also` are further requests on the way. `usage` and `cost` are those of an
    unusable answer. For one that broke off they are estimates.
    """

    says = "the model failed: {it.error.kind}"

    step: str
    error: Failure
    call: str | None = None
    retry_at: int | None = None
    model: str = ""
    route: str = ""
    next_route: str = ""
    also: tuple[SideCall, ...] = ()
    usage: Usage = NO_USAGE
    cost: int | None = None


@mutable
class RequestJudged(Event):
    """A policy judged a request to `model` before it was sent. `rule` decided, and `call` is a function's request.

    For a request that a person must decide, the task pauses. A resume sends the request. `policy` is the fingerprint of
    the runner's policy, if `set_policy` set it.
    """

    says = "a request to {it.model} was judged: {it.verdict}"

    since = 4
    step: str
    verdict: RequestVerdict
    model: str
    rule: str | None = None
    reason: str = ""
    call: str | None = None
    policy: str = ""


@mutable
class TimerFired(Event):
    """The time has come to ask the model again. `call` is a function's request."""

    says = "the model may be asked again"

    step: str
    call: str | None = None


@mutable
class ModelStopped(Event):
    """A request was stopped before its answer arrived. It is sent again when the task continues.

    `usage` and `cost` are estimates of the request and the answer so far, if the answer had begun.
    """

    says = "the request to the model was stopped: {it.reason}"

    step: str
    reason: StopReason
    call: str | None = None
    usage: Usage = NO_USAGE
    cost: int | None = None


RequestEvent: TypeAlias = (
    RequestJudged | ModelStarted | ModelReturned | ModelFailed | ModelStopped | TimerFired
)
"""The events of this module."""
