"""The fifteen numbered invariants: the statement of each, the evidence that it needs, and its checks.

    I1   events are numbered without a gap, their times go on, records are chained, every prefix is a valid task
    ...
    I15  untrusted content that a task has read counts for it, and for the tasks that it feeds

Two of them cannot be checked in full yet; `NOT_YET` says why.
"""

from __future__ import annotations

from typing import Final

from treadle.core.data import frozen
from treadle.testing.audit.events import NUMBERS, Invariant


@frozen
class Rule:
    """One numbered invariant.

    Args:
        number: `I1` to `I15`.
        says: the invariant, in one sentence.
        sees: the evidence that it needs in addition to the journal, as arguments of `Evidence`.
    """

    number: str
    says: str
    sees: str = ""

    @property
    def checks(self) -> tuple[Invariant, ...]:
        """The names of its checks, which violations carry."""
        return tuple(name for name, number in NUMBERS.items() if number == self.number)


RULES: Final = (
    Rule(
        "I1",
        "events are numbered without a gap, their times go on, records are chained, every prefix is a valid task",
    ),
    Rule("I2", "each begin has at most one end, and each requested call exactly one"),
    Rule("I3", "a writing call starts at most once per begin it was allowed, always under one key", "ledger"),
    Rule(
        "I4",
        "what was acknowledged is in the journal, and what was written never changes",
        "acknowledged, before",
    ),
    Rule("I5", "every history a model was sent is well-formed, and has no traceback", "requests"),
    Rule("I6", "epochs never fall, and each has one writer", "ledger"),
    Rule(
        "I7",
        "nothing starts after a cancel, a pause or an interrupt was acknowledged",
        "ledger, acknowledged",
    ),
    Rule(
        "I8",
        "an approval is consumed at most once, by the call it was given for; a question is answered once",
    ),
    Rule("I9", "an attempt ends exactly once, for good; in the end every task has ended", "ended"),
    Rule("I10", "a watcher sees each event of the journal once and in order", "streams"),
    Rule("I11", "no more is spent than the limits allow and was in flight"),
    Rule("I12", "no secret is in a journal or any file given", "secrets"),
    Rule(
        "I13",
        "a call that may write is unknown exactly where a start of it has no end, and not run only if it never began",
    ),
    Rule("I14", "what was done to one task touches no other", "before"),
    Rule("I15", "what a task has read that is untrusted counts for it, and for the tasks that it feeds"),
)
"""All invariants, in order."""

NOT_YET: Final = {
    "I11": "limits hold for one task; there are no children to share a budget with yet",
    "I10": "streams are those of handles; there is no server to reconnect to yet",
}
"""The reasons why an invariant cannot be checked in full in this version."""
