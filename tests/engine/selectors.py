"""A tool selector that goes by the step."""

from collections.abc import Iterable
from typing import Any

from treadle import RequestContext


class Phases:
    """A tool selector that goes by the step, and records its calls."""

    def __init__(self, *phases: Iterable[Any]) -> None:
        self.phases = phases
        self.asked: list[RequestContext[Any]] = []

    def __call__(self, ctx: RequestContext[Any]) -> Iterable[Any]:
        self.asked.append(ctx)
        return self.phases[min(ctx.step, len(self.phases)) - 1]


def names(request: Any) -> list[str]:
    return [spec.name for spec in request.tools]
