"""Events of the decisions of policies and people on calls, before they start."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from treadle.core.data import mutable
from treadle.core.events.occurrence import CallOccurrence, Event
from treadle.core.messages import Json

__all__ = [
    "ApprovalDenied",
    "ApprovalExpired",
    "ApprovalGiven",
    "ApprovalRequested",
    "ApprovalVoided",
    "CallJudged",
]

JudgedVerdict = Literal["allow", "deny", "replace"]
ApprovalScope = Literal["once", "task", "thread", "always"]
"""The scope of an approval: this call, or all calls under the same rule in a task, a thread or the store."""


def _approval_format(event: ApprovalRequested | ApprovalGiven) -> int:
    """Return the journal format of an approval. Older versions would also apply it to other arguments."""
    return 5 if event.same else 4


_format_of_approval: Any = property(_approval_format)


@mutable
class CallJudged(Event, CallOccurrence):
    """A policy judged a call before it started. `rule` decided, or is None if no rule applies.

    With `replace` the call gets other `arguments` instead of the `previous` ones, and is judged again. With `allow`,
    `grant` is the id of the earlier approval that answers the question of the rule. `traceback` is that of an error in
    a function that judges. `policy` is the fingerprint of the runner's policy, if `set_policy` set it.
    """

    says = "{it.tool} was judged ({it.call}): {it.verdict}"

    since = 4
    step: str
    call: str
    verdict: JudgedVerdict
    rule: str | None = None
    reason: str = ""
    arguments: dict[str, Json] | None = None
    previous: Json = None
    grant: str | None = None
    traceback: str = ""
    policy: str = ""


@mutable
class ApprovalRequested(Event, CallOccurrence):
    """A person must decide whether a call starts. This is request `number` of the call, by `rule`.

    `definition` and `digest` bind an approval to the tool's present definition and the call's arguments. At `expires`,
    in microseconds since 1970, UTC, an unanswered call is denied. `preview` is the tool's description of the effect. If
    there are `approvers`, only they may decide. The `excluded` may never decide. `thread` is the thread of the
    conversation, if it is not that of the task. An approval must fill in `argument`, if one is named. With `every_call`
    it covers this call alone. With `same` it covers later calls only while these arguments are the same. `untrusted`
    are the origins of the untrusted content that the model had read then. `traceback` is that of an error in
    `preview=`. `policy` is the fingerprint of the runner's policy, if `set_policy` set it.
    """

    says = "{it.tool} needs an approval ({it.call})"

    since = 4
    step: str
    call: str
    number: int
    definition: str
    digest: str
    expires: int
    rule: str | None = None
    reason: str = ""
    preview: Json = None
    approvers: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()
    thread: str | None = None
    argument: str | None = None
    every_call: bool = False
    untrusted: tuple[str, ...] = ()
    traceback: str = ""
    same: tuple[str, ...] = ()
    policy: str = ""
    format = _format_of_approval


@mutable
class ApprovalGiven(Event, CallOccurrence):
    """A call was approved. If `arguments` replace the `previous` ones, they are checked before it starts.

    With a `scope` beyond `once` it also covers later calls of the tool under the same rule. These are calls in the
    task, in the thread of the conversation, or in all tasks of the store. With `same`, the named arguments must be
    those of this call.
    """

    says = "{it.tool} was approved ({it.call})"

    since = 4
    step: str
    call: str
    number: int
    scope: ApprovalScope = "once"
    arguments: dict[str, Json] | None = None
    previous: Json = None
    by: str | None = None
    inbox: str | None = None
    same: tuple[str, ...] = ()
    format = _format_of_approval


@mutable
class ApprovalDenied(Event, CallOccurrence):
    """A call was denied, so it does not start. The model gets the reason. With `stop` the task is cancelled too."""

    says = "{it.tool} was denied ({it.call})"

    since = 4
    step: str
    call: str
    number: int
    reason: str | None = None
    by: str | None = None
    inbox: str | None = None
    stop: bool = False


@mutable
class ApprovalExpired(Event, CallOccurrence):
    """A request for approval was not answered in time, so the call is denied."""

    says = "the request to approve {it.tool} expired ({it.call})"

    since = 4
    step: str
    call: str
    number: int


@mutable
class ApprovalVoided(Event, CallOccurrence):
    """An approval does not cover the call that was about to start, so the call is judged again. `why` is the reason."""

    says = "the approval of {it.tool} does not hold ({it.call})"

    since = 4
    step: str
    call: str
    number: int
    why: str


ApprovalEvent: TypeAlias = (
    CallJudged | ApprovalRequested | ApprovalGiven | ApprovalDenied | ApprovalExpired | ApprovalVoided
)
"""The events of this module."""
