"""Events as lines for people: the agent, its action, the duration, the spending and the failures."""

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
_LINE_MAX: Final = 200
_TASKS_MAX: Final = 1_000
"""The most tasks whose calls are tracked; the lines of older tasks show no durations."""


class _TaskCalls:
    """The calls of a task: when they began, and the names of their tools."""

    def __init__(self) -> None:
        self.began: dict[str, int] = {}
        self.names: dict[str, str] = {}


class Console:
    """Prints a line for each thing that happens, with rich.

    Args:
        file: where to print; standard error by default.
        content: whether messages, arguments, results and error messages are printed too; secrets never are.
        secrets: values to hide, beside those of environment variables with such names as `OPENAI_API_KEY`.
    """

    def __init__(
        self, file: IO[str] | None = None, *, content: bool = False, secrets: Iterable[str] = ()
    ) -> None:
        self._file = file
        self.content = content
        self._redaction = Redaction(secrets)
        self._rich: RichConsole | None = None
        self._tasks: OrderedDict[str, _TaskCalls] = OrderedDict()

    def observe(self, notice: Notice) -> None:
        event = notice.event
        if isinstance(event, Missed):
            self._print("", "!", "yellow", f"{event.events} events and {event.deltas} deltas were not shown")
        if notice.task is None:
            return
        line = self._line(event, self._calls_of(notice.task.full_id))
        if line is None:
            return
        mark, style, facts, content = line
        task = f"{notice.task.agent} {notice.task.task_id[-6:]}"
        self._print(f"{'  ' * notice.task.depth}{task}", mark, style, facts, content if self.content else "")

    def _calls_of(self, task_id: str) -> _TaskCalls:
        calls = self._tasks.setdefault(task_id, _TaskCalls())
        self._tasks.move_to_end(task_id)
        if len(self._tasks) > _TASKS_MAX:
            self._tasks.popitem(last=False)
        return calls

    def _line(self, event: Any, calls: _TaskCalls) -> tuple[str, str, str, str] | None:
        """Return the line for an event: a mark, its style, the facts, and the content; None for no line."""
        match event:
            case DriveBegan():
                calls.names.update(event.calls)
                return ("▸", "dim", f"driven on from event {event.seq}", "") if event.seq else None
            case DriveEnded():
                return "■", _STATES.get(event.state, "yellow"), event.state, ""
            case e.TaskCreated() | e.InputReceived():
                parts = event.input if isinstance(event, e.TaskCreated) else event.parts
                return "›", "bold", "input", " ".join([getattr(part, "text", "[file]") for part in parts])
            case e.StepStarted():
                attempt = f", attempt {event.attempt}" if event.attempt > 1 else ""
                return "─", "bold", f"step {event.index}{attempt}", ""
            case e.ModelStarted():
                calls.began[event.call or event.step] = event.time
                if event.attempt > 1:
                    return "↻", "yellow", f"{event.model}, attempt {event.attempt}", ""
                return None
            case e.ModelReturned():
                return self._answer(event, calls)
            case e.RouteChosen():
                chosen = event.message.tool_calls if event.message is not None else ()
                calls.names.update({call.id: self._redaction.text(call.name) for call in chosen})
                names = ", ".join([calls.names[call.id] for call in chosen])
                return ("⇢", "bold", f"the router wants {names}", "") if names else None
            case e.ToolStarted():
                calls.began[event.call] = event.time
                name = calls.names.get(event.undoes or event.call, event.call)
                return "→", "cyan", f"{'undoes ' if event.undoes else ''}{name} ({event.call})", ""
            case e.ToolEnded():
                name, duration = (
                    calls.names.get(event.call, event.call),
                    _duration_text(event.call, event.time, calls),
                )
                if event.outcome == "ok":
                    content = event.display if event.display is not None else as_text(event.output)
                    return "←", "green", f"{name}{duration}", content
                return "✗", "red", f"{name}: {event.outcome}{duration}", _message(event.error)
            case _:
                return _other_line(event)

    def _answer(self, event: e.ModelReturned, calls: _TaskCalls) -> tuple[str, str, str, str]:
        for call in event.message.tool_calls:
            calls.names[call.id] = self._redaction.text(call.name)
        tools = ", ".join([calls.names[call.id] for call in event.message.tool_calls])
        spent = f"{event.usage.input_tokens} in, {event.usage.output_tokens} out"
        early = "" if event.finish in WHOLE else f", ended early ({event.finish})"
        requested = f", wants {tools}" if tools else ""
        duration = _duration_text(event.call or event.step, event.time, calls)
        return (
            "●",
            "yellow" if early else "blue",
            f"answer{duration}  {spent}{requested}{early}",
            event.message.text,
        )

    def _print(self, task: str, mark: str, style: str, facts: str, content: str = "") -> None:
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
        line = Text(f"{task}  " if task else "", "dim")
        line.append(f"{mark} ", style)
        line.append(_one_line(facts))
        if content:
            line.append(f"  {_one_line(self._redaction.text(content))}", "dim")
        self._rich.print(line)


def _other_line(event: Any) -> tuple[str, str, str, str] | None:
    match event:
        case e.ModelFailed() | e.StepFailed() | e.WorkerFailed():
            subject = {"model_failed": event.error.model or "the model", "step_failed": "the step"}
            description = f"{subject.get(event.kind, '')} failed".strip()
            status = f" {event.error.status}" if event.error.status else ""
            return "✗", "red", f"{description}: {event.error.kind}{status}", event.error.message
        case e.ModelStopped() | e.ToolStopped():
            description = "the request" if isinstance(event, e.ModelStopped) else event.call
            return "…", "yellow", f"{description} was stopped: {event.reason}", ""
        case e.CallJudged() | e.RequestJudged():
            is_shown = event.rule is not None or event.verdict == "deny"
            by = f" by rule {event.rule}" if event.rule is not None else ""
            return ("!", "yellow", f"{event.description}{by}", event.reason) if is_shown else None
        case e.GuardrailJudged():
            is_shown = event.rule is not None or event.verdict == "deny"
            by = f" by {event.rule}" if event.rule is not None else ""
            return ("!", "yellow", f"{event.description}{by}", event.reason) if is_shown else None
        case e.QuestionAsked():
            return "?", "yellow", event.description, event.question
        case e.ApprovalRequested() | e.ApprovalVoided() | e.ApprovalExpired() | e.QuestionExpired():
            return "?", "yellow", event.description, ""
        case e.ApprovalGiven() | e.ApprovalDenied() | e.QuestionAnswered():
            return "!", "yellow", event.description, ""
        case e.AgentChanged():
            return "⇢", "bold", event.description, ""
        case e.CallDeferred() | e.TicketCompleted() | e.TicketFailed() | e.TicketExpired():
            return "⋯", "cyan", event.description, ""
        case e.LimitReached():
            return "!", "yellow", f"limit on {event.limit} reached: {event.used:g} of {event.allowed:g}", ""
        case e.PauseRequested() | e.InterruptRequested() | e.CancelRequested() | e.Resumed():
            return "!", "yellow", event.kind.replace("_", " "), ""
        case e.UndoRequested() | e.Rewound():
            return "↶", "magenta", f"{event.kind.replace('_', ' ')} to step {event.to}", ""
        case e.TaskReopened():
            return "▸", "dim", f"attempt {event.attempt}", ""
        case e.TaskEnded():
            reason = event.error.message if event.error is not None else ", ".join(event.reasons)
            return ("!", "yellow", "ended because", reason) if reason else None
        case _:
            return None


def _message(error: e.Failure | None) -> str:
    return error.message if error is not None else ""


def _duration_text(call: str, ended: int, calls: _TaskCalls) -> str:
    began = calls.began.pop(call, None)
    if began is None:
        return ""
    return (
        f" {(ended - began) / 1e6:.1f} s"
        if ended - began >= 1_000_000
        else f" {(ended - began) / 1e3:.0f} ms"
    )


def _one_line(text: str) -> str:
    """Return text on one line, cut, with control characters as visible escapes."""
    line = " ".join(text.split())
    if len(line) > _LINE_MAX:
        line = f"{line[:_LINE_MAX]}…"
    if line.isprintable():
        return line
    return "".join([_escaped(char) if unicodedata.category(char)[0] == "C" else char for char in line])


def _escaped(character: str) -> str:
    return character.encode("unicode_escape", "backslashreplace").decode("ascii")
