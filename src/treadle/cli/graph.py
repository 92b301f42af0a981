"""Steps that depend on each other: their names while they run, and a drawing of how they hang together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from treadle.cli.screen import Screen, short
from treadle.core import events as e
from treadle.core.fold import apply
from treadle.core.graph import StepNode
from treadle.core.schedule import ITSELF, UNNEEDED
from treadle.core.state import TaskState, start
from treadle.engine.results import StepInfo, TaskStepOutput

_MARKS: Final = {
    "completed": ("✓", "green"),
    "failed": ("✗", "red"),
    "skipped": ("-", "yellow"),
    "running": ("▸", "cyan"),
    "next": ("○", ""),
    "blocked": ("·", "dim"),
}


class Names:
    """What the steps of a task are called, as far as its events have been seen from the first one on."""

    def __init__(self) -> None:
        self._state: TaskState | None = None

    def see(self, event: e.Event) -> None:
        """Take an event down."""
        if isinstance(event, e.TaskCreated):
            self._state = start("")
        if self._state is not None:
            try:
                apply(self._state, event)
            except Exception:  # noqa: BLE001  a journal that does not fold is shown as far as it can be
                self._state = None

    def of(self, step: str | None) -> StepNode | None:
        """Return a step, if steps of this task have names."""
        graph = self._state.graph if self._state is not None else None
        return graph.nodes.get(step or "") if graph is not None else None

    def before(self, node: StepNode) -> list[str]:
        """Return the names of the steps that a step waited for."""
        found = [self.of(step) for step in node.after]
        return [other.plan.name for other in found if other is not None]


def why_skipped(event: e.StepSkipped) -> str:
    """Return why a step was given up, in words."""
    if event.by == UNNEEDED:
        return "not needed any more"
    if event.by == ITSELF:
        return f"skipped: {event.reason}"
    return "the failed step was skipped"


def draw(screen: Screen, steps: Sequence[TaskStepOutput], upcoming: Sequence[StepInfo]) -> None:
    """Draw steps that wait for each other, each one level deeper than the deepest it waits for; no others."""
    told = {one.step.step_id: one for one in steps}
    infos = {info.step_id: info for info in (*[one.step for one in steps], *upcoming)}
    if not any(info.after for info in infos.values()):
        return
    ordered = sorted(infos.values(), key=lambda info: info.index)
    depths: dict[str, int] = {}
    for info in ordered:
        depths[info.step_id] = 1 + max([depths.get(other, -1) for other in info.after], default=-1)
    width = max(2 * depths[info.step_id] + len(info.name) for info in ordered)
    for info in ordered:
        indent = "  " * depths[info.step_id]
        mark, style = _MARKS.get(info.status, ("?", ""))
        after = ", ".join([infos[other].name for other in info.after if other in infos])
        screen.line(
            f"  {indent}",
            (mark, style),
            f" {info.name}".ljust(width - len(indent) + 2) if after else f" {info.name}",
            (f" after {after}" if after else "", "dim"),
            (_note(info, told.get(info.step_id)), "dim"),
        )


def _note(info: StepInfo, done: TaskStepOutput | None) -> str:
    if done is None or info.status not in ("failed", "skipped") or done.error is None:
        return f"  ({info.status})" if info.status != "completed" else ""
    return f"  ({info.status}: {short(done.error.message, 80)})"
