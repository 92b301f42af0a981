"""Print a task's events as lines for people, while it runs or from its journal."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final

from treadle.cli.call_lines import CallLines, DecisionLines
from treadle.cli.event_lines import (
    DATA_SHOWN,
    EventLines,
    by_person,
    content_text,
    failure_text,
)
from treadle.cli.graph import why_skipped
from treadle.cli.model_lines import ModelLines
from treadle.cli.screen import Screen, short
from treadle.cli.times import clock_time
from treadle.core import events as e
from treadle.core.messages import Content, ToolCall
from treadle.core.observation import as_text
from treadle.core.origins import merged, of_input, of_parts
from treadle.core.rules.schedule import ITSELF, UNNEEDED

_REQUESTS: Final = {
    "pause_requested": "pause requested",
    "interrupt_requested": "interrupted",
    "cancel_requested": "cancel requested",
    "resumed": "resumed",
}


class Timeline:
    """Prints events in the order of arrival.

    Args:
        screen: prints the lines.
        live: print the model's text while it is streamed.
        undone: ids of undone steps, which are left out.
    """

    def __init__(self, screen: Screen, *, live: bool = False, undone: Collection[str] = ()) -> None:
        self._screen = screen
        self._live = live
        self._undone = undone
        self._lines = EventLines(screen)
        self._model = ModelLines(screen, self._lines, live=live, undone=undone)
        self._tools = CallLines(self._lines)
        self._decisions = DecisionLines(self._lines)
        self._current_work: dict[str, str] = {}
        """current work by step or call, in the spinner's words"""

        self._last_traceback = ""
        """the last printed traceback, which the events after an error repeat"""

        self.limit: e.LimitReached | None = None
        """the last limit that was reached since the task continued"""

    @property
    def last_text(self) -> str:
        """The text of the model's newest answer."""
        return self._model.last_text

    def learn_steps(self, events: Iterable[e.Event]) -> None:
        """Learn the names of steps from events that are not shown."""
        for event in events:
            self._lines.names.see(event)

    def learn_calls(self, events: Iterable[e.Event]) -> None:
        """Learn the calls of earlier events, so that their results are shown with the names of their tools."""
        for event in events:
            if isinstance(event, (e.ModelReturned, e.RouteChosen)) and event.message is not None:
                self._lines.calls.update({call.id: call for call in event.message.tool_calls})
            elif isinstance(event, e.CallRequested):
                self._lines.calls[event.call] = ToolCall(event.call, event.name, event.arguments)

    def show(self, event: e.Event | e.Ephemeral) -> None:
        """Print the lines for an event; on a live screen a spinner then shows current work."""
        self._show(event)
        self._print_traceback(event)
        if not self._live:
            return
        self._note_current_work(event)
        self.resume()

    def resume(self) -> None:
        """Show current work on a live screen, if there is any."""
        if not self._current_work:
            self._screen.spinner.stop()
        elif not self._model.flow.is_open:
            self._screen.spinner.show(" · ".join(self._current_work.values()))

    def pause(self) -> None:
        """Leave the screen to a person who writes; streamed text continues below that."""
        self._model.flow.end()
        self._screen.spinner.stop()

    def stop(self) -> None:
        """Finish printing, since no more events follow."""
        self._model.end()
        self._current_work.clear()
        self._screen.spinner.stop()

    def _note_current_work(self, event: e.Event | e.Ephemeral) -> None:
        match event:
            case e.ModelStarted():
                self._current_work[event.call or event.step] = f"{event.model} thinks"
            case e.AnswerHeld():
                self._current_work[event.call or event.step] = "guardrails decide"
            case e.ModelReturned() | e.ModelFailed() | e.ModelStopped():
                self._current_work.pop(event.call or event.step, None)
            case e.ToolStarted():
                self._current_work[event.call] = f"{self._lines.name_of(event.call)} runs"
            case e.ToolEnded() | e.ToolStopped():
                self._current_work.pop(event.call, None)
            case e.TaskEnded() | e.PauseRequested():
                self._current_work.clear()
            case _:
                pass

    def _show(self, event: e.Event | e.Ephemeral) -> None:
        self._lines.step = getattr(event, "step", None)
        if isinstance(event, e.Event):
            self._lines.names.see(event)
        if isinstance(event, e.Delta):
            if self._live:
                self._model.write(event)
            return
        if isinstance(event, e.ModelRestarted):
            self._model.restarted(event)
            return
        if isinstance(event, (e.RawChunk, e.TaskStood)):
            return
        if isinstance(event, e.ChildEvent):
            self._child(event)
            return
        if isinstance(event, e.ToolProgress):
            self._lines.line(("  · ", "dim"), (short(as_text(event.value), DATA_SHOWN), "dim"))
            return
        if isinstance(event, e.ModelReturned):
            self._model.returned(event)
            return
        self._model.end()
        if getattr(event, "step", None) not in self._undone:
            self._show_event(event)

    def _child(self, event: e.ChildEvent) -> None:
        """Print the calls and answers of subagents; their other events are left out."""
        inner, path = event.event, " > ".join(event.path)
        if isinstance(inner, e.ModelReturned):
            for call in inner.message.tool_calls:
                self._lines.line(
                    ("  · ", "dim"),
                    (f"{path}: {call.name}({short(as_text(call.arguments), DATA_SHOWN)})", "dim"),
                )
        elif isinstance(inner, e.TaskEnded):
            answer = as_text(inner.output) if inner.output is not None else inner.state
            self._lines.line(("  · ", "dim"), (f"{path}: {short(answer, DATA_SHOWN)}", "dim"))

    def _print_traceback(self, event: e.Event | e.Ephemeral) -> None:
        """Print the user's code that raised an event's error."""
        error: e.Failure | None = getattr(event, "error", None)
        traceback: str = error.traceback if type(error) is e.Failure else getattr(event, "traceback", "")
        is_shown = getattr(event, "step", None) not in self._undone
        if traceback and is_shown and traceback != self._last_traceback:
            self._last_traceback = traceback
            for line in traceback.splitlines():
                self._lines.line((f"    {line}", "dim"))

    def _show_event(self, event: e.Event) -> None:
        match event:
            case e.TaskCreated() | e.InputReceived():
                self._show_input(event)
            case e.ThreadEntered():
                self._print_untrusted((), event.untrusted)
            case e.StepStarted():
                self._step_started(event)
            case e.RouteChosen():
                self._model.routed(event)
            case e.StepCompleted():
                self._step_completed(event)
            case e.CallRequested():
                self._tools.requested(event)
            case e.ModelStarted():
                self._model.started(event)
            case e.ModelFailed():
                self._model.failed(event)
            case e.ModelStopped():
                self._model.stopped(event)
            case e.StepFailed():
                self._lines.line(("  ✗ the step failed: ", "red"), failure_text(event.error))
            case e.StepSkipped():
                is_named = event.by not in (UNNEEDED, ITSELF)
                self._lines.line(
                    (f"  {why_skipped(event)}", "yellow"), by_person(event.by if is_named else None)
                )
            case e.ToolStarted() | e.ToolStopped() | e.ToolEnded():
                self._tools.tool(event)
            case (
                e.OutcomeSettled()
                | e.OutcomeUnresolved()
                | e.CallEdited()
                | e.ArgumentsRewritten()
                | e.ResultReplaced()
            ):
                self._tools.changed(event)
            case e.CallJudged() | e.ApprovalRequested() | e.ApprovalVoided():
                self._decisions.judged(event)
            case e.RequestJudged():
                self._decisions.request_judged(event)
            case e.GuardrailJudged():
                self._decisions.content_judged(event)
            case e.ApprovalGiven() | e.ApprovalDenied() | e.ApprovalExpired():
                self._decisions.decided(event)
            case (
                e.CallDeferred()
                | e.TicketProgressed()
                | e.TicketCompleted()
                | e.TicketFailed()
                | e.TicketExpired()
            ):
                self._tools.background(event)
            case e.QuestionAsked() | e.QuestionAnswered() | e.QuestionExpired():
                self._decisions.question(event)
            case e.InstructionsSet():
                self._lines.print_changes(event.changes)
            case e.StateOverwritten():
                self._tools.overwritten(event)
            case _:
                self._show_task_event(event)

    def _step_started(self, event: e.StepStarted) -> None:
        attempt = f", attempt {event.attempt}" if event.attempt > 1 else ""
        node = self._lines.names.of(event.step)
        self._lines.printed_step = event.step
        began = (f"  {clock_time(event.time)}", "dim")
        if node is None:
            self._lines.line((f"step {event.index}{attempt}", "bold"), began)
            return
        after = ", ".join(self._lines.names.before(node))
        self._lines.line(
            (f"step {node.index}{attempt}: ", "bold"),
            (node.plan.name, "bold"),
            (f"  after {after}" if after else "", "dim"),
            began,
        )

    def _step_completed(self, event: e.StepCompleted) -> None:
        """Print the result of a step function, unless it is the answer just printed."""
        text = as_text(event.output)
        if (
            self._lines.names.of(event.step) is not None
            and event.output is not None
            and text != self._model.last_text
        ):
            self._lines.line(("  = ", "green"), short(text, DATA_SHOWN))
        self._lines.print_changes(event.changes)
        self._lines.print_files(event, event.step)

    def _show_input(self, event: e.TaskCreated | e.InputReceived) -> None:
        """Print a task's input, or a later message, with its untrusted origins."""
        if isinstance(event, e.TaskCreated):
            self._lines.line(("› ", "bold"), _input(event.input))
            self._print_untrusted(of_parts(event.input), event.untrusted)
            return
        role = "observation" if event.observation else event.role if event.role != "user" else ""
        self._lines.line(
            ("› ", "bold"), (f"({role}) " if role else "", "dim"), _input(event.parts), by_person(event.by)
        )
        self._print_untrusted(of_input(event))

    def _print_untrusted(self, origins_of_input: Iterable[str], taken_over: Sequence[str] = ()) -> None:
        """Print untrusted origins of input, and of the content from a task's thread or parent."""
        if origins := merged(origins_of_input):
            self._lines.line((f"    untrusted, from {', '.join(origins)}", "dim"))
        if taken_over:
            self._lines.line(("    before it: ", "dim"), f"untrusted content from {', '.join(taken_over)}")

    def _show_task_event(self, event: e.Event) -> None:
        match event:
            case e.AgentChanged():
                self._lines.line(
                    ("⇢ ", "cyan"), (event.agent, "bold"), f" goes on, in place of {event.previous}"
                )
            case e.TaskForked():
                self._lines.line((f"── forked from {event.parent} ──", "dim"))
            case e.PauseRequested() | e.InterruptRequested() | e.CancelRequested():
                reason = f": {event.reason}" if event.reason else ""
                self._lines.line(("■ ", "yellow"), _REQUESTS[event.kind], by_person(event.by), reason)
            case e.Resumed():
                self.limit = None
                self._lines.line(("▸ ", "dim"), (_REQUESTS[event.kind], "dim"), by_person(event.by))
            case e.LimitReached():
                self.limit = event
                detail = event.detail or f"{event.used:g} of {event.allowed:g}"
                self._lines.line(("! ", "yellow"), f"the limit on {event.limit} was reached ({detail})")
            case e.UndoRequested():
                steps = ", ".join(event.steps)
                self._lines.line(
                    ("↶ ", "magenta"),
                    f"undo of {steps}",
                    " (forced)" if event.forced else "",
                    by_person(event.by),
                )
            case e.Rewound():
                self._lines.line(
                    ("↶ ", "magenta"), f"back to {f'step {event.to}' if event.to else 'the beginning'}"
                )
            case e.TaskReopened():
                self._lines.line(
                    ("▸ ", "dim"), (f"attempt {event.attempt} ({event.reason})", "dim"), by_person(event.by)
                )
            case e.CommandRejected():
                self._lines.line(("! ", "yellow"), f"{event.command} was too late: {event.reason}")
            case e.DriverSurvived():
                self._lines.line(
                    ("! ", "yellow"),
                    (f"an earlier driver lost the task, but is alive (epoch {event.epoch})", "dim"),
                )
            case e.InputEdited():
                self._lines.line(
                    ("› ", "bold"), _input(event.parts), ("  (edited)", "dim"), by_person(event.by)
                )
                self._print_untrusted(of_parts(event.parts))
            case e.UnknownEvent():
                self._lines.line((f"({event.tag}: of another version)", "dim"))
            case e.CommandEvent():
                self._lines.line(("· ", "dim"), (event.description, "dim"))
            case _:
                pass


def _input(parts: Iterable[Content]) -> str:
    """Return an input, with later lines indented below the first."""
    return content_text(parts).replace("\n", "\n  ")
