"""Agents of other A2A servers as tools.

Theory of operation. A `RemoteAgent` is a declaration. A driver process makes one `RemoteConnection` of it, which reads
the agent's card. Each call of the tool is one task of the other server:

    attempt 1   send the message ---> task id, kept in the journal ---> follow the task ... (crash)
    attempt 2                         the kept task id              ---> follow the task ---> its answer

    the task asks for input           the question is kept, and asked of a person as by `ctx.ask`
    the answer comes                  it is sent once, and the task is followed on

Invariants: the id of a message follows from the idempotency key of its call. A message whose task is not known is sent
again only if the server treats a repeated message as one task. All requests go to the origin of the card, and each
response is bounded.
"""

from __future__ import annotations

from treadle.tools.a2a.remote_agent import RemoteAgent

__all__ = ["RemoteAgent"]
