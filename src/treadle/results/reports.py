"""The reports of compactions, prunes, undos and comparisons."""

from __future__ import annotations

from typing import Any, Final

from treadle.core import events as e
from treadle.core.data import frozen
from treadle.core.display import Displayed, Table, View, Word
from treadle.core.messages import Json
from treadle.results.displays import parts_text
from treadle.results.step_outputs import TaskStepOutput


@frozen
class CompactionReport:
    """The effect of a compaction on a thread; `complete` is false if a summary could not be made.

    `tasks` are those that made summaries, the newest last. `covers` is the thread's version at the end of the newest
    summary.
    """

    thread_id: str
    complete: bool
    tasks: tuple[str, ...]
    covers: int
    messages_before: int
    tokens_before: int
    messages_after: int
    tokens_after: int


@frozen
class PruneReport:
    """The deleted threads and tasks, or those that would be deleted; `tasks` include those of the threads."""

    threads: tuple[str, ...]
    tasks: tuple[str, ...]


@frozen
class UndoReport(Displayed):
    """The report of an undo. If a compensation stopped it, `complete` is false and `left` names the other calls.

    With `planned` it is the forecast of a dry run: nothing has changed, and all fields describe a future undo.
    """

    task_id: str
    complete: bool
    to: int
    steps: tuple[str, ...]
    calls: tuple[e.UndoneCall, ...]
    problem: str | None = None
    planned: bool = False

    @property
    def left(self) -> tuple[str, ...]:
        """Ids of the calls that are not compensated."""
        return tuple(call.call for call in self.calls if call.verdict in ("not_compensated", "unknown"))

    def verdict_of(self, call: e.UndoneCall) -> str:
        """The verdict on a call for people to read, such as `would be compensated` in a forecast."""
        words = call.verdict.replace("_", " ")
        return _FORECASTS.get(call.verdict, words) if self.planned else words

    def _view(self) -> View:
        def row(call: e.UndoneCall) -> tuple[Any, ...]:
            return call.call, call.tool, Word(self.verdict_of(call)), call.why

        state = "completed" if self.complete else "waiting"
        return View(
            title="UndoReport",
            name=self.task_id,
            state="planned" if self.planned else state,
            facts=(("back to step", str(self.to)), ("undone", ", ".join(self.steps))),
            text=self.problem or "",
            tables=(Table("calls", ("call", "tool", "verdict", "why"), self.calls, row),),
        )


@frozen
class StepDifference:
    """The differences between two tasks in their steps at one place.

    `a` and `b` are the ids of the steps, and None where a task has no step there. A `shared` step ran once: both tasks
    have it from the same journal. `fields` are the names of the fields that differ. A shared step has some only if a
    fork replaced results of its calls.
    """

    index: int
    a: str | None
    b: str | None
    shared: bool
    fields: tuple[str, ...] = ()


@frozen
class Difference(Displayed):
    """The differences between two tasks: the first one with both values, and those of all `steps` by name.

    `index` is None if no step differs. `shared_events` is the number of events that both have from the same journal,
    because they are forks of one task or of each other.
    """

    a: str
    b: str
    shared_events: int
    index: int | None = None
    step_a: TaskStepOutput | None = None
    step_b: TaskStepOutput | None = None
    field: str | None = None
    value_a: Json = None
    value_b: Json = None
    steps: tuple[StepDifference, ...] = ()

    @property
    def same(self) -> bool:
        """Whether nothing differs."""
        return self.field is None

    def _view(self) -> View:
        sides: list[tuple[str, Any]] = [(f"a: {self.a}", self.value_a), (f"b: {self.b}", self.value_b)]
        values = [(name, parts_text(value) if self.field == "input" else value) for name, value in sides]
        return View(
            title="Difference",
            name=f"{self.a} and {self.b}",
            state="same" if self.same else "different",
            facts=(("step", self.index), ("field", self.field), ("shared events", self.shared_events)),
            values=() if self.same else tuple(values),
            tables=(Table("steps", ("step", "a", "b", "shared", "differs in"), self.steps, _difference_row),),
        )


def _difference_row(step: StepDifference) -> tuple[Any, ...]:
    shared = "yes" if step.shared else ""
    return str(step.index), step.a or "", step.b or "", shared, ", ".join(step.fields)


_FORECASTS: Final = {
    "compensated": "would be compensated",
    "not_compensated": "would not be compensated",
    "unknown": "would wait for its end",
}
