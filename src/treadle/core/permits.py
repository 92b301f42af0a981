"""Whether a call may start: what a policy and a person decided on it, and the digests that bind an approval.

(none)      not judged yet
allowed     a policy allows it, or none of its rules applies
asked       a person is to decide; the task may rest meanwhile
edited      approved with other arguments: they are judged once more, and no person is asked again
approved    as it was shown; checked against the digests when the call starts
denied      by a policy, a person, or since time ran out
used        the call has started: further attempts of the same call need no other approval
"""

from __future__ import annotations

import hashlib
import json
from typing import Literal

from treadle.core.data import frozen, mutable
from treadle.core.events import ApprovalRequested
from treadle.core.messages import Json

PermitStatus = Literal["allowed", "asked", "edited", "approved", "denied", "used"]


@mutable
class Permit:
    """What was decided on a call that has not started, or on one that has."""

    status: PermitStatus
    rule: str | None = None
    """the id of the rule that decided, or asked"""

    reason: str = ""
    """why it is denied or asked for, for people; of a denied call also for the model"""

    request: ApprovalRequested | None = None
    """what the approver was shown, if one was asked"""

    digest: str = ""
    """of the approved arguments"""

    by: str | None = None
    """the approver"""


@frozen
class Grant:
    """An approval that holds for the rest of its task: of the same tool, as defined then, where the same rule asks."""

    call: str
    request_id: str
    tool: str
    definition: str
    rule: str | None
    by: str | None


def digest_of(value: Json) -> str:
    """Return the digest of a JSON value: the same for the same value, in whichever order its keys are."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
