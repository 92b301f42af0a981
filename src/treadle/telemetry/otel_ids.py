"""Trace ids derived from tasks, so that a drive can be linked to the drive before it in another process."""

from __future__ import annotations

import threading
from hashlib import blake2b

from opentelemetry.sdk.trace.id_generator import IdGenerator, RandomIdGenerator


class TaskIds(IdGenerator):
    """Makes the ids of spans: those of a drive are derived from its task and epoch, all others are random.

    Pass one as `TracerProvider(id_generator=)` to the provider that `OpenTelemetry` uses.
    """

    def __init__(self) -> None:
        self._random = RandomIdGenerator()
        self._planned = threading.local()

    def plan(self, task_id: str, epoch: int) -> None:
        """Set the ids of the next span that this thread starts: those of a drive."""
        self._planned.ids = ids_of(task_id, epoch)

    def is_trace_id_random(self) -> bool:
        return True  # a digest is as good

    def generate_trace_id(self) -> int:
        planned: tuple[int, int] | None = getattr(self._planned, "ids", None)
        return planned[0] if planned is not None else self._random.generate_trace_id()

    def generate_span_id(self) -> int:
        planned: tuple[int, int] | None = getattr(self._planned, "ids", None)
        self._planned.ids = None
        return planned[1] if planned is not None else self._random.generate_span_id()


def ids_of(task_id: str, epoch: int) -> tuple[int, int]:
    """Return the ids of the trace and the span of a drive."""
    digest = blake2b(f"{task_id}/{epoch}".encode(), digest_size=24).digest()
    return int.from_bytes(digest[:16], "big") or 1, int.from_bytes(digest[16:], "big") or 1
