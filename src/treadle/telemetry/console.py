"""Events as lines for people who look on: who does what, how long it took, what it spent, and what went wrong."""

from __future__ import annotations

import unicodedata
from collections import OrderedDict
from collections.abc import Iterable
from typing import IO, TYPE_CHECKING, Any, Final

from treadle.core import events as e
from treadle.core.model import WHOLE
from treadle.core.observation import as_text
from treadle.ports import DriveBegan, DriveEnded, Missed, Notice
from treadle.telemetry.redaction import Redaction

if TYPE_CHECKING:
    from rich.console import Console as RichConsole

_STATES: Final = {
    "completed": "green",
    "degraded": "yellow",
    "failed": "red",
    "cancelled": "magenta",
    "paused": "cyan",
    "lost": "red",
}
_LONGEST: Final = 200
_MOST: Final = 1_000
"""How many tasks are remembered; of the oldest it is forgotten when its calls began."""


class _Seen:
    """What is known of a task whose events are shown."""

    def __init__(self) -> None:
        self.began: dict[str, int] = {}
        self.names: dict[str, str] = {}


class Console:
    """Prints a line for each thing that happens, with rich.

    Args:
        file: where to; standard error by default.
        content: whether words, arguments, results and texts of errors are shown too; secrets never are.
        secrets: values to hide, beside those of environment variables with such names as `OPENAI_API_KEY`.
    """

    def __init__(
        self, file: IO[str] | None = None, *, content: bool = False, secrets: Iterable[str] = ()
    ) -> None:
        self._file = file
        self.content = content
        self._redaction = Redaction(secrets)
        self._rich: RichConsole | None = None
        self._tasks: OrderedDict[str, _Seen] = OrderedDict()

    def observe(self, notice: Notice) -> None:
        event = notice.event
        if isinstance(event, Missed):
            self._print("", "!", "yellow", f"{event.events} events and {event.deltas} deltas were not shown")
        if notice.task is None:
            return
        seen = self._seen(notice.task.task_id)
        line = self._words(event, seen)
        if line is None:
            return
        mark, style, words, said = line
        whose = f"{notice.task.agent} {notice.task.task_id[-6:]}"
        self._print(f"{'  ' * notice.task.depth}{whose}", mark, style, words, said if self.content else "")

    def _seen(self, task_id: str) -> _Seen:
        seen = self._tasks.setdefault(task_id, _Seen())
        self._tasks.move_to_end(task_id)
        if len(self._tasks) > _MOST:
            self._tasks.popitem(last=False)
        return seen

    def _words(self, event: Any, seen: _Seen) -> tuple[str, str, str, str] | None:
        """Return what is printed of an event: a mark, its style, the facts, and what is said."""
        match event:
            case DriveBegan():
                seen.names.update(event.calls)
                return ("▸", "dim", f"driven on from event {event.seq}", "") if event.seq else None
            case DriveEnded():
                return "■", _STATES.get(event.state, "yellow"), event.state, ""
            case e.TaskCreated() | e.InputReceived():
                parts = event.input if isinstance(event, e.TaskCreated) else event.parts
                return "›", "bold", "input", " ".join([getattr(part, "text", "[file]") for part in parts])
            case e.StepStarted():
                again = f", attempt {event.attempt}" if event.attempt > 1 else ""
                return "─", "bold", f"step {event.index}{again}", ""
            case e.ModelStarted():
                seen.began[event.call or event.step] = event.time
                if event.attempt > 1:
                    return "↻", "yellow", f"{event.model}, attempt {event.attempt}", ""
                return None
            case e.ModelReturned():
                return self._answer(event, seen)
            case e.ToolStarted():
                seen.began[event.call] = event.time
                name = seen.names.get(event.undoes or event.call, event.call)
                return "→", "cyan", f"{'takes back ' if event.undoes else ''}{name} ({event.call})", ""
            case e.ToolEnded():
                name, took = seen.names.get(event.call, event.call), _took(event.call, event.time, seen)
                if event.outcome == "ok":
                    said = event.display if event.display is not None else as_text(event.output)
                    return "←", "green", f"{name}{took}", said
                return "✗", "red", f"{name}: {event.outcome}{took}", _message(event.error)
            case _:
                return _rest(event)

    def _answer(self, event: e.ModelReturned, seen: _Seen) -> tuple[str, str, str, str]:
        for call in event.message.tool_calls:
            seen.names[call.id] = self._redaction.text(call.name)
        calls = ", ".join([seen.names[call.id] for call in event.message.tool_calls])
        spent = f"{event.usage.input_tokens} in, {event.usage.output_tokens} out"
        early = "" if event.finish in WHOLE else f", ended early ({event.finish})"
        wants = f", wants {calls}" if calls else ""
        took = _took(event.call or event.step, event.time, seen)
        return "●", "yellow" if early else "blue", f"answer{took}  {spent}{wants}{early}", event.message.text

    def _print(self, whose: str, mark: str, style: str, words: str, said: str = "") -> None:
        from rich.console import Console as RichConsole
        from rich.text import Text

        if self._rich is None:
            self._rich = RichConsole(
                file=self._file,
                stderr=self._file is None,
                highlight=False,
                markup=False,
                emoji=False,
                soft_wrap=True,
            )
        line = Text(f"{whose}  " if whose else "", "dim")
        line.append(f"{mark} ", style)
        line.append(_shown(words))
        if said:
            line.append(f"  {_shown(self._redaction.text(said[: 4 * _LONGEST]))}", "dim")
        self._rich.print(line)


def _rest(event: Any) -> tuple[str, str, str, str] | None:
    match event:
        case e.ModelFailed() | e.StepFailed() | e.WorkerFailed():
            what = {"model_failed": "the model failed", "step_failed": "the step failed"}.get(
                event.kind, "failed"
            )
            status = f" {event.error.status}" if event.error.status else ""
            return "✗", "red", f"{what}: {event.error.kind}{status}", event.error.message
        case e.ModelStopped() | e.ToolStopped():
            what = "the request" if isinstance(event, e.ModelStopped) else event.call
            return "…", "yellow", f"{what} was given up: {event.reason}", ""
        case e.LimitReached():
            return "!", "yellow", f"limit on {event.limit} reached: {event.used:g} of {event.allowed:g}", ""
        case e.PauseRequested() | e.InterruptRequested() | e.CancelRequested() | e.Resumed():
            return "!", "yellow", event.kind.replace("_", " "), ""
        case e.UndoRequested() | e.Rewound():
            return "↶", "magenta", f"{event.kind.replace('_', ' ')} to step {event.to}", ""
        case e.TaskReopened():
            return "▸", "dim", f"attempt {event.attempt}", ""
        case e.TaskEnded():
            said = event.error.message if event.error is not None else ", ".join(event.reasons)
            return ("!", "yellow", "ended because", said) if said else None
        case _:
            return None


def _message(error: e.Failure | None) -> str:
    return error.message if error is not None else ""


def _took(place: str, ended: int, seen: _Seen) -> str:
    began = seen.began.pop(place, None)
    if began is None:
        return ""
    return (
        f" {(ended - began) / 1e6:.1f} s"
        if ended - began >= 1_000_000
        else f" {(ended - began) / 1e3:.0f} ms"
    )


def _shown(text: str) -> str:
    """Return text on one line that a terminal only shows: control characters become visible escapes."""
    line = " ".join(text.split())
    if len(line) > _LONGEST:
        line = f"{line[:_LONGEST]}…"
    if line.isprintable():
        return line
    return "".join([_escaped(one) if unicodedata.category(one)[0] == "C" else one for one in line])


def _escaped(character: str) -> str:
    return character.encode("unicode_escape", "backslashreplace").decode("ascii")
