"""Steps of a graph: their names while they run, and a drawing of the graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from treadle.cli.screen import Screen, short
from treadle.core import events as e
from treadle.core.graph import StepNode
from treadle.core.rules.fold import apply
from treadle.core.rules.schedule import ITSELF, UNNEEDED
from treadle.core.state import TaskState, start
from treadle.results.step_outputs import TaskStepOutput
from treadle.results.steps import StepInfo

_MARKS: Final = {
    "completed": ("✓", "green"),
    "failed": ("✗", "red"),
    "skipped": ("-", "yellow"),
    "running": ("▸", "cyan"),
    "next": ("○", ""),
    "blocked": ("·", "dim"),
}


class StepNames:
    """The named steps of a task, from its events; empty unless the first event was seen."""

    def __init__(self) -> None:
        self._state: TaskState | None = None

    def see(self, event: e.Event) -> None:
        """Apply an event."""
        if isinstance(event, e.TaskCreated):
            self._state = start("")
        if self._state is not None:
            try:
                apply(self._state, event)
            except Exception:  # noqa: BLE001  a journal that does not fold is still shown
                self._state = None

    def of(self, step: str | None) -> StepNode | None:
        """Return a step, or None if the steps of this task have no names."""
        return self._state.node_of(step or "") if self._state is not None else None

    def before(self, node: StepNode) -> list[str]:
        """Return the names of the steps on which a step depends."""
        nodes = [self.of(step) for step in node.after]
        return [node.plan.name for node in nodes if node is not None]


def why_skipped(event: e.StepSkipped) -> str:
    """Return why a step was skipped, for people to read."""
    if event.by == UNNEEDED:
        return "not needed any more"
    if event.by == ITSELF:
        return f"skipped: {event.reason}"
    return "the failed step was skipped"


def draw(screen: Screen, steps: Sequence[TaskStepOutput], upcoming: Sequence[StepInfo]) -> None:
    """Draw the graph of dependent steps, each one level below its deepest dependency; draw nothing without one."""
    outputs = {output.step.step_id: output for output in steps}
    infos = {info.step_id: info for info in (*[output.step for output in steps], *upcoming)}
    if not any(info.after for info in infos.values()):
        return
    ordered = sorted(infos.values(), key=lambda info: info.index)
    depths: dict[str, int] = {}
    for info in ordered:
        depths[info.step_id] = 1 + max(
            [depths.get(predecessor, -1) for predecessor in info.after], default=-1
        )
    width = max(2 * depths[info.step_id] + len(info.name) for info in ordered)
    for info in ordered:
        indent = "  " * depths[info.step_id]
        mark, style = _MARKS.get(info.status, ("?", ""))
        after = ", ".join([infos[predecessor].name for predecessor in info.after if predecessor in infos])
        screen.line(
            f"  {indent}",
            (mark, style),
            f" {info.name}".ljust(width - len(indent) + 2) if after else f" {info.name}",
            (f" after {after}" if after else "", "dim"),
            (_note(info, outputs.get(info.step_id)), "dim"),
        )


def _note(info: StepInfo, output: TaskStepOutput | None) -> str:
    if output is None or info.status not in ("failed", "skipped") or output.error is None:
        return f"  ({info.status})" if info.status != "completed" else ""
    return f"  ({info.status}: {short(output.error.message, 80)})"
