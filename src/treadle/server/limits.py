"""Limits of one server process: per principal, per tenant, per connection, and in total."""

from __future__ import annotations

from dataclasses import fields

from treadle.core.data import frozen
from treadle.core.unknown_names import explains_arguments
from treadle.errors import ConfigurationError


@frozen
@explains_arguments
class ServerLimits:
    """Limits at which a server process refuses requests, and the times that it waits.

    Args:
        streams_per_principal: open event streams of one principal; the next one is refused with 429.
        requests_per_second: requests of one principal per second; the next one is refused with 429. In a body, each
            250 values and each 128 KiB count as one more request.
        waits_per_principal: requests of one principal that wait for a result. The next one does not wait: a read is
            refused with 429, and a command is carried out without its result.
        refusals_per_second: unauthenticated requests of one address per second, each with a line in the log
            `treadle.audit`; the next one is refused with 429 and without a line.
        streams: open event streams in total; the next one is refused with 503.
        connections: open connections; the next one is refused with 503.
        unfinished_tasks: unfinished tasks of one tenant; the next one is refused with 503.
        driven: tasks that this process adopts and drives at the same time; the others wait.
        driven_per_tenant: driven tasks of one tenant, so that it does not block the others; a further step is
            refused with 503.
        body_bytes: the largest body, in bytes.
        file_bytes: the largest body with images or files, in bytes.
        body_seconds: seconds in which a body must arrive.
        head_seconds: seconds in which the head of a request must arrive.
        send_seconds: seconds after which a connection is closed whose reader takes nothing.
        stream_seconds: seconds after which a stream ends and its reader must reopen it.
        heartbeat_seconds: seconds without an event after which a stream sends a comment.
        hold_seconds: seconds after the end of the last stream that holds a task, before the task is stopped.

    Raises:
        ConfigurationError: a number is not above 0; the text names it.
    """

    streams_per_principal: int = 50
    requests_per_second: int = 50
    waits_per_principal: int = 100
    refusals_per_second: int = 20
    streams: int = 2_000
    connections: int = 4_000
    unfinished_tasks: int = 1_000
    driven: int = 400
    driven_per_tenant: int = 100
    body_bytes: int = 1 << 20
    file_bytes: int = 16 << 20
    body_seconds: float = 10.0
    head_seconds: float = 10.0
    send_seconds: float = 30.0
    stream_seconds: float = 3_600.0
    heartbeat_seconds: float = 15.0
    hold_seconds: float = 15.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            kinds = (int,) if field.type == "int" else (int, float)
            if type(value) not in kinds or not value > 0:
                raise ConfigurationError(
                    f"ServerLimits: {field.name} must be a number greater than 0, got {value!r}"
                )
