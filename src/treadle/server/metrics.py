"""The metrics of a server process for Prometheus, without ids or content in labels."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

REQUEST_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)
LAG_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class Histogram:
    """Counts values in buckets by their upper bounds.

    Args:
        bounds: the upper bounds, in order.
    """

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def add(self, value: float) -> None:
        """Count a value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def lines(self, name: str, labels: str = "") -> Iterator[str]:
        """Yield the lines of this histogram; `labels` are inside the braces, before `le`."""
        total = 0
        comma = "," if labels else ""
        for bound, count in zip((*map(str, self._bounds), "+Inf"), self._counts, strict=True):
            total += count
            yield f'{name}_bucket{{{labels}{comma}le="{bound}"}} {total}'
        braces = f"{{{labels}}}" if labels else ""
        yield f"{name}_sum{braces} {self._sum:.6f}"
        yield f"{name}_count{braces} {total}"


class Metrics:
    """The counters of a server process."""

    def __init__(self) -> None:
        self._requests: Counter[tuple[str, int]] = Counter()
        self._seconds: dict[str, Histogram] = {}
        self._lag = Histogram(LAG_SECONDS)
        self.adopted = 0
        """number of tasks that were adopted since the server started"""

    def request(self, operation: str, status: int, seconds: float) -> None:
        """Count a request.

        Args:
            operation: its name in the table of operations.
            status: the status of its response.
            seconds: the time until its response began.
        """
        self._requests[operation, status] += 1
        if operation not in self._seconds:
            self._seconds[operation] = Histogram(REQUEST_SECONDS)
        self._seconds[operation].add(seconds)

    def lag(self, seconds: float) -> None:
        """Record the delay from an event's time to its delivery to streams, in seconds."""
        self._lag.add(seconds)

    def text(self, *, streams: int, driven: int, refused: int) -> str:
        """Return all counters in the text format of Prometheus.

        Args:
            streams: the number of open event streams.
            driven: the number of tasks that this process drives.
            refused: the number of fenced commits of this process.
        """
        lines = [
            *_head("treadle_requests_total", "counter", "Requests by operation and status."),
            *[
                f'treadle_requests_total{{operation="{operation}",status="{status}"}} {count}'
                for (operation, status), count in sorted(self._requests.items())
            ],
            *_head("treadle_request_seconds", "histogram", "Seconds until a response began."),
        ]
        for operation, histogram in sorted(self._seconds.items()):
            lines += histogram.lines("treadle_request_seconds", f'operation="{operation}"')
        lines += _head(
            "treadle_event_lag_seconds", "histogram", "Seconds from an event to its delivery to streams."
        )
        lines += self._lag.lines("treadle_event_lag_seconds")
        lines += _numbers(
            {
                ("treadle_streams", "gauge", "Open event streams."): streams,
                ("treadle_tasks_driven", "gauge", "Tasks that this process drives now."): driven,
                ("treadle_tasks_adopted_total", "counter", "Tasks that this process adopted."): self.adopted,
                (
                    "treadle_commits_refused_total",
                    "counter",
                    "Commits refused: another driver had it.",
                ): refused,
            }
        )
        return "\n".join(lines) + "\n"


def _head(name: str, kind: str, text: str) -> list[str]:
    return [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]


def _numbers(values: Mapping[tuple[str, str, str], int]) -> Iterator[str]:
    for (name, kind, text), value in values.items():
        yield from _head(name, kind, text)
        yield f"{name} {value}"
