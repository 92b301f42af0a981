"""Permits: the decisions of policies and people on calls, and the digests that bind an approval.

The statuses of a call:

    (none)      not judged yet
    allowed     a policy allows it, or none of its rules applies
    asked       a person must decide; the task may stop meanwhile
    edited      approved with other arguments: they are judged again, without asking a person
    approved    as it was shown; checked against the digests when the call starts
    denied      by a policy, by a person, or by expiry
    used        the call has started: further attempts of the same call need no other approval
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Any, Final, Literal, Protocol, cast

from treadle.core.data import frozen, mutable
from treadle.core.display import Displayed, View
from treadle.core.events import ApprovalGiven, ApprovalRequested
from treadle.core.ids import approval_id, grant_id
from treadle.core.messages import Json
from treadle.core.unknown_names import explains_names

PermitStatus = Literal["allowed", "asked", "edited", "approved", "denied", "used"]


@mutable
class Permit:
    """The decision on a call, before and after its start."""

    status: PermitStatus
    rule: str | None = None
    """the id of the rule that decided, or asked"""

    reason: str = ""
    """the reason of a denial or request, for people; that of a denial also for the model"""

    request: ApprovalRequested | None = None
    """the request as shown to the approver, if there was one"""

    digest: str = ""
    """digest of the approved arguments"""

    by: str | None = None
    """the approver"""

    traceback: str = ""
    """of the error of a function that judges, for people"""


@frozen
class Grant:
    """An approval for later calls of its task by the same tool, with the same definition, under the same rule.

    It was given for a call with `arguments`. A later call must have the same values for those in `same`.
    """

    call: str
    request_id: str
    tool: str
    definition: str
    rule: str | None
    by: str | None
    arguments: dict[str, Json]
    same: tuple[str, ...] = ()


@explains_names("StandingGrant")
@frozen
class StandingGrant(Displayed):
    """An approval for later calls of a tool under the same rule, until it is revoked.

    Args:
        grant_id: its id.
        tool: name of the tool.
        definition: digest of the tool's definition. Calls of a changed tool are not covered.
        rule: the id of the rule that asked.
        thread_id: the thread in which it holds. None: all tasks of the store.
        by: the approver. It only covers calls that this person may approve.
        task_id: the task in which it was given.
        request_id: the request that it answered.
        created: when it was given, in microseconds since 1970, UTC.
        revoked: when it was revoked, None until then.
        revoked_by: the person who revoked it.
    """

    grant_id: str
    tool: str
    definition: str
    rule: str
    thread_id: str | None
    by: str | None
    task_id: str
    request_id: str
    created: int
    revoked: int | None = None
    revoked_by: str | None = None

    def holds_in(self, thread: str) -> bool:
        """Return whether it covers calls of a conversation in this thread."""
        return self.revoked is None and self.thread_id in (None, thread)

    def _view(self) -> View:
        facts = (
            ("tool", self.tool),
            ("rule", self.rule),
            ("thread", self.thread_id),
            ("by", self.by),
            ("task", self.task_id),
        )
        state = "revoked" if self.revoked is not None else "always" if self.thread_id is None else "thread"
        return View(title="StandingGrant", name=self.grant_id, state=state, facts=facts)


class Threaded(Protocol):
    """A task in a thread."""

    task_id: str
    thread: str


STANDING: Final = ("thread", "always")
"""The scopes of approvals that outlive their task in the store."""


def standing_grant(task: Threaded, request: ApprovalRequested, event: ApprovalGiven) -> StandingGrant | None:
    """Return the standing grant of an approval, or None if it covers its task at most.

    Args:
        task: the state of the task.
        request: the request for approval.
        event: the answer, with its time.
    """
    if event.scope not in STANDING or request.rule is None or request.same or event.same:
        return None
    request_id = approval_id(event.call, event.number)
    return StandingGrant(
        grant_id(task.task_id, request_id),
        event.tool,
        request.definition,
        request.rule,
        (request.thread or task.thread) if event.scope == "thread" else None,
        event.by,
        task.task_id,
        request_id,
        event.time,
    )


ABSENT: Final = object()
"""Represents an argument that a call does not have."""


def argument_at(arguments: Json, path: str) -> Any:
    """Return an argument by its name, or by a path such as `order.total`. An absent one is `ABSENT`."""
    value: Any = arguments
    for name in path.split("."):
        if not isinstance(value, dict) or name not in value:
            return ABSENT
        value = cast("dict[str, Any]", value)[name]
    return value


def are_same(names: Iterable[str], first: Json, second: Json) -> bool:
    """Return whether the named arguments are the same JSON values in two calls, or absent in both.

    If a path meets a value that is not an object, that value is compared. An example is a list of messages in
    `messages.to`.
    """
    return all(_digest_at(first, name) == _digest_at(second, name) for name in names)


def _digest_at(arguments: Json, path: str) -> tuple[int, str] | None:
    """Return the digest of the value at a path, and the number of unused names of the path. None if absent."""
    value: Any = arguments
    names = path.split(".")
    for at, name in enumerate(names):
        if not isinstance(value, dict):
            return len(names) - at, digest_of(value)
        if name not in value:
            return None
        value = cast("dict[str, Any]", value)[name]
    return 0, digest_of(value)


def digest_of(value: Json) -> str:
    """Return the digest of a JSON value. The order of its keys does not matter."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
