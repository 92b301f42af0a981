"""Tickets: texts that complete background calls, and the status of such calls.

    tk_Zk3v...q8.order-17      a ticket: a secret, and the task that it belongs to

The holder of the text can end the call. The journal has only its digest, so a reader of the journal cannot.
"""

from __future__ import annotations

import hashlib
from typing import TypeAlias

from treadle.core.data import mutable
from treadle.core.events import InputReceived, TicketCompleted, TicketExpired, TicketFailed
from treadle.core.messages import Json

Completion: TypeAlias = TicketCompleted | TicketFailed | TicketExpired
"""The events that end a call by its ticket."""


@mutable
class Ticket:
    """The status of a call with a ticket. All tickets of its starts share it."""

    seq: int = 0
    """the event that deferred the call; 0 until its tool returned"""

    expires: int = 0
    """microseconds since 1970, UTC"""

    details: Json = None
    """the tool's details of the work"""

    progress: Json = None
    """the holder's last report"""

    completion: Completion | None = None
    arrival: InputReceived | None = None
    """its result as a message, if it came after the results of its step"""

    read: int = 0
    """the event with which a step read that message; 0 for none"""


def ticket_text(secret: str, task_id: str) -> str:
    """Return the ticket for a call of a task. The secret must not contain a dot."""
    return f"tk_{secret}.{task_id}"  # a secret may begin with a dash, as an option of a command does


def task_of_ticket(ticket: str) -> str | None:
    """Return the id of the task that a ticket names, or None if the text is not a ticket."""
    secret, _, task_id = ticket.partition(".")
    return task_id if secret and task_id else None


def digest_of_ticket(ticket: str) -> str:
    """Return the digest of a ticket, for the journal."""
    return hashlib.sha256(ticket.encode("utf-8", "surrogatepass")).hexdigest()
