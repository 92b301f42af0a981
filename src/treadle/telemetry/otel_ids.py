"""The ids of spans. Those of drives and calls follow from their task, so they are known before the spans are made.

Spans are made of events, after these happened. A tool that opens a span of its own needs the id of its call's span
earlier. So the ids of drives and calls are digests, and a tracer is made to use them.
"""

from __future__ import annotations

import threading
from hashlib import blake2b
from secrets import token_hex

from opentelemetry.sdk.trace.id_generator import IdGenerator, RandomIdGenerator


class TaskIds(RandomIdGenerator):
    """Links a drive to the previous drive in another process: the ids of drives follow from task and epoch.

    Pass one as `TracerProvider(id_generator=)` to the provider that `OpenTelemetry` uses. All other ids are random.
    """


class PlannedIds(IdGenerator):
    """Gives the next span of a thread its planned ids. Another generator makes all other ids.

    Args:
        inner: the generator of the provider. Unless it is `TaskIds`, the planned ids differ from process to process.
    """

    def __init__(self, inner: IdGenerator) -> None:
        self._inner = inner
        self._salt = "" if isinstance(inner, TaskIds) else token_hex(8)
        self._planned = threading.local()

    @property
    def links_processes(self) -> bool:
        """Whether this process can compute the ids of another process's drives."""
        return not self._salt

    def plan(self, trace_id: int, span_id: int) -> None:
        """Set the ids of the next span that this thread starts. `trace_id` counts for a span without a parent."""
        self._planned.ids = (trace_id, span_id)

    def of_drive(self, task_id: str, epoch: int) -> tuple[int, int]:
        """Return the ids of the trace and the span of a drive."""
        return ids_of(f"{self._salt}{task_id}", epoch)

    def of_call(self, task_id: str, epoch: int, call: str, attempt: int) -> int:
        """Return the id of the span of a call."""
        text = f"{self._salt}{task_id}/{epoch}/{call}/{attempt}"
        return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big") or 1

    def is_trace_id_random(self) -> bool:
        return self._inner.is_trace_id_random()  # a digest is as good

    def generate_trace_id(self) -> int:
        planned: tuple[int, int] | None = getattr(self._planned, "ids", None)
        return planned[0] if planned is not None else self._inner.generate_trace_id()

    def generate_span_id(self) -> int:
        planned: tuple[int, int] | None = getattr(self._planned, "ids", None)
        self._planned.ids = None
        return planned[1] if planned is not None else self._inner.generate_span_id()


def ids_of(task_id: str, epoch: int) -> tuple[int, int]:
    """Return the ids of the trace and the span of a drive."""
    digest = blake2b(f"{task_id}/{epoch}".encode(), digest_size=24).digest()
    return int.from_bytes(digest[:16], "big") or 1, int.from_bytes(digest[16:], "big") or 1
