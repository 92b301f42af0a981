"""A task's events as lines for people, both while a task runs and from its journal."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final, cast

from treadle.cli.graph import StepNames, why_skipped
from treadle.cli.screen import Screen, clean, dollars, short
from treadle.cli.times import clock_time, duration
from treadle.cli.wrapping import WordFlow
from treadle.core import events as e
from treadle.core.calls_in_text import text_calls_warning
from treadle.core.ids import base_call_id, content_name, is_undo, undone_call
from treadle.core.labels import Label
from treadle.core.messages import IN_WORDS, Content, File, Json, Message, Reasoning, ToolCall
from treadle.core.model import NO_USAGE, WHOLE
from treadle.core.observation import as_text, characters_cut
from treadle.core.origins import merged, of_input, of_parts
from treadle.core.rules.schedule import ITSELF, UNNEEDED
from treadle.core.spending import as_dollars
from treadle.results.displays import moment
from treadle.results.figures import content_text as engine_text

_DATA_SHOWN: Final = 300
"""Most characters of arguments and results in a line."""

_INPUT_SHOWN: Final = 10_000
"""Most characters of an input: a terminal needs seconds for millions, and the driver waits for it."""

_SCOPES: Final = {
    "once": "",
    "task": " for the rest of the task",
    "thread": " for the thread",
    "always": " for all tasks",
}
_REQUESTS: Final = {
    "pause_requested": "pause requested",
    "interrupt_requested": "interrupted",
    "cancel_requested": "cancel requested",
    "resumed": "resumed",
}


def content_text(parts: Iterable[Content]) -> str:
    """Return content parts as text; a long text is cut, and other parts are named by their kind."""
    text = engine_text(parts)
    return text if len(text) <= _INPUT_SHOWN else f"{text[:_INPUT_SHOWN]}… ({len(text):,} characters)"


def call_arguments(arguments: dict[str, Json]) -> str:
    """Return a call's arguments as `name=value, ...`."""
    return short(", ".join(f"{name}={as_text(value)}" for name, value in arguments.items()), _DATA_SHOWN)


class Timeline:
    """Prints events in the order of arrival.

    Args:
        screen: where to print.
        live: print the model's text while it is streamed.
        undone: ids of undone steps, which are left out.
    """

    def __init__(self, screen: Screen, *, live: bool = False, undone: Collection[str] = ()) -> None:
        self._screen = screen
        self._live = live
        self._undone = undone
        self._calls: dict[str, ToolCall] = {}
        self._start_times: dict[str, int] = {}
        self._hosts: dict[str, str | None] = {}
        self._labels: dict[str, Label | None] = {}
        self._model_requests: dict[str, e.ModelStarted] = {}
        self._current_work: dict[str, str] = {}
        """current work by step or call, in the spinner's words"""

        self._flow = WordFlow(screen.out)
        self._streaming = ""
        """the step and channel whose text is being printed"""

        self._streamed = ""
        self._names = StepNames()
        self._last_traceback = ""
        """the last printed traceback: the events after an error repeat it"""

        self._printed_step: str | None = None
        self._event_step: str | None = None
        self.last_text = ""
        """the text of the model's newest answer"""

        self.limit: e.LimitReached | None = None
        """the last limit that was reached since the task continued"""

    def learn_steps(self, events: Iterable[e.Event]) -> None:
        """Learn the names of steps from events that are not shown."""
        for event in events:
            self._names.see(event)

    def learn_calls(self, events: Iterable[e.Event]) -> None:
        """Learn the calls of earlier events, so that their results are shown with the names of their tools."""
        for event in events:
            if isinstance(event, (e.ModelReturned, e.RouteChosen)) and event.message is not None:
                self._calls.update({call.id: call for call in event.message.tool_calls})
            elif isinstance(event, e.CallRequested):
                self._calls[event.call] = ToolCall(event.call, event.name, event.arguments)

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
        elif not self._flow.is_open:
            self._screen.spinner.show(" · ".join(self._current_work.values()))

    def pause(self) -> None:
        """Leave the screen to a person who writes; streamed text continues below."""
        self._flow.end()
        self._screen.spinner.stop()

    def stop(self) -> None:
        """Finish printing: no more events follow."""
        self._end_stream()
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
                self._current_work[event.call] = f"{self._name(event.call)} runs"
            case e.ToolEnded() | e.ToolStopped():
                self._current_work.pop(event.call, None)
            case e.TaskEnded() | e.PauseRequested():
                self._current_work.clear()
            case _:
                pass

    def _show(self, event: e.Event | e.Ephemeral) -> None:
        self._event_step = getattr(event, "step", None)
        if isinstance(event, e.Event):
            self._names.see(event)
        if isinstance(event, e.Delta):
            if self._live:
                self._write(event)
            return
        if isinstance(event, e.ModelRestarted):
            self._restarted(event)
            return
        if isinstance(event, (e.RawChunk, e.TaskStood)):
            return
        if isinstance(event, e.ChildEvent):
            self._child(event)
            return
        if isinstance(event, e.ToolProgress):
            self._line(("  · ", "dim"), (short(as_text(event.value), _DATA_SHOWN), "dim"))
            return
        if isinstance(event, e.ModelReturned):
            self._returned(event)
            return
        self._end_stream()
        if getattr(event, "step", None) not in self._undone:
            self._show_event(event)

    def _child(self, event: e.ChildEvent) -> None:
        """Print the calls and answers of subagents; their other events are left out."""
        inner, path = event.event, " > ".join(event.path)
        if isinstance(inner, e.ModelReturned):
            for call in inner.message.tool_calls:
                self._line(
                    ("  · ", "dim"),
                    (f"{path}: {call.name}({short(as_text(call.arguments), _DATA_SHOWN)})", "dim"),
                )
        elif isinstance(inner, e.TaskEnded):
            answer = as_text(inner.output) if inner.output is not None else inner.state
            self._line(("  · ", "dim"), (f"{path}: {short(answer, _DATA_SHOWN)}", "dim"))

    def _print_traceback(self, event: e.Event | e.Ephemeral) -> None:
        """Print the user's code that raised an event's error."""
        error: e.Failure | None = getattr(event, "error", None)
        traceback: str = error.traceback if type(error) is e.Failure else getattr(event, "traceback", "")
        is_shown = getattr(event, "step", None) not in self._undone
        if traceback and is_shown and traceback != self._last_traceback:
            self._last_traceback = traceback
            for line in traceback.splitlines():
                self._line((f"    {line}", "dim"))

    # ------------------------------------------------------------------------------------- the model

    def _write(self, delta: e.Delta) -> None:
        if delta.channel == "arguments":
            return
        style = "dim" if delta.channel == "reasoning" else ""
        if self._streaming != f"{delta.step} {delta.channel}":
            self._end_stream()
            self._print_step_name(delta.step)
            self._screen.spinner.stop()
            self._streaming = f"{delta.step} {delta.channel}"
        if delta.is_text:
            self._streamed += delta.text
        self._flow.write(clean(delta.text), style)

    def _restarted(self, event: e.ModelRestarted) -> None:
        """Print that the answer starts again: the streamed text is not part of it."""
        self._end_stream()
        self._streamed = ""
        if self._live:
            self._line((f"  ↻ from its beginning (attempt {event.attempt}):", "dim"))

    def _end_stream(self) -> None:
        self._flow.end()
        self._streaming = ""

    def _returned(self, event: e.ModelReturned) -> None:
        streamed, self._streamed = self._streamed, ""
        self._end_stream()
        for call in event.message.tool_calls:
            self._calls[call.id] = call
        if event.step in self._undone:
            return
        if not self._live:
            self._print_reasoning(event.message)
        self.last_text = event.message.text
        if self.last_text and streamed != self.last_text:
            self._line("  " + self.last_text.strip().replace("\n", "\n  "))
        if event.finish not in WHOLE:
            self._line(("  ! the answer ended early: ", "yellow"), event.finish)
        if event.text_calls:
            self._line(("  ! ", "yellow"), text_calls_warning(event.text_calls))
        self._print_calls(event.message)
        if not self._live:
            self._line((f"  {self._facts(event)}", "dim"))

    def _print_calls(self, message: Message) -> None:
        for call in message.tool_calls:
            problem = f"  (not run: {call.problem})" if call.problem else ""
            self._line(
                ("  → ", "cyan"),
                (call.name, "bold"),
                f"({call_arguments(call.arguments)})",
                (problem, "red"),
                (f"  {call.id}", "dim"),
            )
            if call.problem and call.meta == IN_WORDS:
                self._line(("    it wrote: ", "dim"), (short(call.raw or "", _DATA_SHOWN), "dim"))

    def _routed(self, event: e.RouteChosen) -> None:
        """Print a router's message in place of the model's; nothing if it left the step to the model."""
        if event.message is not None:
            self._calls.update({call.id: call for call in event.message.tool_calls})
            self._line(("  the router, in place of the model:", "dim"))
            self._print_calls(event.message)

    def _facts(self, event: e.ModelReturned) -> str:
        """Return the model that answered, its duration and its usage."""
        request = self._model_requests.get(event.call or event.step)
        facts = [event.model or (request.model if request is not None else "")]
        facts += [duration(event.time - request.time)] if request is not None else []
        return " · ".join([*filter(None, facts), *_tokens(event)])

    def _spent(self, event: e.ModelFailed | e.ModelStopped) -> str:
        """Return the usage of an attempt without an answer; empty if it is unknown."""
        return "".join(f" · {fact}" for fact in _tokens(event)) if event.usage != NO_USAGE else ""

    def _print_reasoning(self, message: Message) -> None:
        """Print the reasoning that the model wrote as text; other reasoning stays hidden."""
        for part in message.parts:
            if isinstance(part, Reasoning) and part.meta == IN_WORDS:
                self._line(("  " + short(part.text, 2 * _DATA_SHOWN), "dim"))

    # ------------------------------------------------------------------------------- everything else

    def _show_event(self, event: e.Event) -> None:
        match event:
            case e.TaskCreated() | e.InputReceived():
                self._show_input(event)
            case e.ThreadEntered():
                self._print_untrusted((), event.untrusted)
            case e.StepStarted():
                self._step_started(event)
            case e.RouteChosen():
                self._routed(event)
            case e.StepCompleted():
                self._step_completed(event)
            case e.CallRequested():
                self._call_requested(event)
            case e.ModelStarted():
                self._model_started(event)
            case e.ModelFailed():
                retry_note = f"; retried at {moment(event.retry_at)}" if event.retry_at is not None else ""
                name = event.error.model or "the model"
                spent = (self._spent(event), "dim")
                self._line((f"  ✗ {name} failed: ", "red"), _failure(event.error), (retry_note, "dim"), spent)
            case e.ModelStopped():
                spent = (self._spent(event), "dim")
                self._line((f"  … the request was stopped ({event.reason})", "yellow"), spent)
            case e.StepFailed():
                self._line(("  ✗ the step failed: ", "red"), _failure(event.error))
            case e.StepSkipped():
                is_named = event.by not in (UNNEEDED, ITSELF)
                self._line((f"  {why_skipped(event)}", "yellow"), _by(event.by if is_named else None))
            case e.ToolStarted() | e.ToolStopped() | e.ToolEnded():
                self._tool(event)
            case (
                e.OutcomeSettled()
                | e.OutcomeUnresolved()
                | e.CallEdited()
                | e.ArgumentsRewritten()
                | e.ResultReplaced()
            ):
                self._show_call_change(event)
            case e.CallJudged() | e.ApprovalRequested() | e.ApprovalVoided():
                self._show_judgement(event)
            case e.RequestJudged():
                self._show_request_judged(event)
            case e.GuardrailJudged():
                self._show_content_judged(event)
            case e.ApprovalGiven() | e.ApprovalDenied() | e.ApprovalExpired():
                self._show_decision(event)
            case (
                e.CallDeferred()
                | e.TicketProgressed()
                | e.TicketCompleted()
                | e.TicketFailed()
                | e.TicketExpired()
            ):
                self._show_background(event)
            case e.QuestionAsked() | e.QuestionAnswered() | e.QuestionExpired():
                self._show_question(event)
            case e.InstructionsSet():
                self._print_changes(event.changes)
            case e.StateOverwritten():
                self._overwritten(event)
            case _:
                self._show_task_event(event)

    def _step_started(self, event: e.StepStarted) -> None:
        attempt = f", attempt {event.attempt}" if event.attempt > 1 else ""
        node = self._names.of(event.step)
        self._printed_step = event.step
        began = (f"  {clock_time(event.time)}", "dim")
        if node is None:
            self._line((f"step {event.index}{attempt}", "bold"), began)
            return
        after = ", ".join(self._names.before(node))
        self._line(
            (f"step {node.index}{attempt}: ", "bold"),
            (node.plan.name, "bold"),
            (f"  after {after}" if after else "", "dim"),
            began,
        )

    def _step_completed(self, event: e.StepCompleted) -> None:
        """Print the result of a step function, unless it is the answer just printed."""
        text = as_text(event.output)
        if self._names.of(event.step) is not None and event.output is not None and text != self.last_text:
            self._line(("  = ", "green"), short(text, _DATA_SHOWN))
        self._print_changes(event.changes)
        self._print_files(event, event.step)

    def _call_requested(self, event: e.CallRequested) -> None:
        is_shown = event.call in self._calls  # already printed with the model's answer
        self._calls[event.call] = ToolCall(event.call, event.name, event.arguments)
        if not (event.asked or is_shown):
            self._line(
                ("  → ", "cyan"),
                (event.name, "bold"),
                f"({call_arguments(event.arguments)})",
                (f"  {event.call}", "dim"),
            )

    def _model_started(self, event: e.ModelStarted) -> None:
        before = self._model_requests.get(event.call or event.step)
        self._model_requests[event.call or event.step] = event
        if event.final:
            self._line(("  asked for a final answer, without tools", "yellow"))
        elif event.attempt > 1:
            other = f" with {event.model}" if before is not None and before.model != event.model else ""
            self._line((f"  retried{other} (attempt {event.attempt})", "dim"))
        elif event.offered is not None:
            self._line(
                ("  offered: ", "dim"), (short(", ".join(event.offered) or "no tool", 2 * _DATA_SHOWN), "dim")
            )

    def _tool(self, event: e.ToolStarted | e.ToolStopped | e.ToolEnded) -> None:
        name = self._name(event.call)
        if isinstance(event, e.ToolStarted):
            self._start_times[event.call] = event.time
            self._hosts[event.call] = event.host
            self._labels[event.call] = event.label
            if event.undoes:
                self._line(("  ↶ taking back ", "magenta"), f"{self._name(event.undoes)} ({event.undoes})")
            elif event.attempt > 1:
                self._line((f"  ↻ {name} again (attempt {event.attempt})", "yellow"))
        elif isinstance(event, e.ToolStopped):
            self._line(
                ("  … ", "yellow"), f"{name} was stopped ({event.reason}) {_reason(event.error)}".rstrip()
            )
        else:
            self._tool_ended(event, name)

    def _tool_ended(self, event: e.ToolEnded, name: str) -> None:
        began = self._start_times.get(event.call)
        suffix = (f"  {event.call}" + (f" {duration(event.time - began)}" if began else ""), "dim")
        if event.outcome == "ok":
            text = event.display if event.display is not None else as_text(event.output)
            shown = short(text, _DATA_SHOWN)
            self._line(("  ← ", "green"), (f"{name}: ", "dim"), shown, suffix, *self._label(event, name))
            if event.cut:
                self._line((f"    {_seen_part(event)}", "dim"))
            if event.report is not None and event.report.answered_by is not None:
                self._line(("    answered by the middleware ", "dim"), event.report.answered_by)
            self._print_host(event)
            self._print_changes(event.changes)
            self._print_files(event, event.call)
        elif event.outcome == "unknown":
            self._line(
                ("  ? ", "yellow"),
                (f"{name}: its outcome is unknown ", "yellow"),
                _reason(event.error),
                suffix,
            )
            self._print_host(event)
        else:
            label = self._label(event, name)
            self._line(("  ✗ ", "red"), f"{name} ({event.outcome}): ", _reason(event.error), suffix, *label)
            self._print_host(event)

    def _print_host(self, event: e.ToolEnded) -> None:
        """Print the host of a function that ran outside the driver's process; nothing if it did not run."""
        did_run = event.report is None or event.report.ran
        if did_run and (host := self._hosts.get(event.call)):
            self._line(("    ran in: ", "dim"), host)

    def _label(self, event: e.ToolEnded, name: str) -> Iterator[tuple[str, str]]:
        """Yield a result's origin and integrity, for the end of its line.

        A result without a label is untrusted, from its tool. The result of an undo has no label, because no model reads
        it; nor has a call that never began, because its error text is Treadle's own.
        """
        has_run = event.outcome == "ok" or event.call in self._start_times
        if not has_run or is_undo(event.call):
            return
        label = event.label or self._labels.get(event.call) or Label(f"tool:{name}", "untrusted")
        yield f" · {label.integrity}, from {label.origin}", "dim"

    def _show_input(self, event: e.TaskCreated | e.InputReceived) -> None:
        """Print a task's input, or a later message, with its untrusted origins."""
        if isinstance(event, e.TaskCreated):
            self._line(("› ", "bold"), _input(event.input))
            self._print_untrusted(of_parts(event.input), event.untrusted)
            return
        role = "observation" if event.observation else event.role if event.role != "user" else ""
        self._line(("› ", "bold"), (f"({role}) " if role else "", "dim"), _input(event.parts), _by(event.by))
        self._print_untrusted(of_input(event))

    def _print_untrusted(self, origins_of_input: Iterable[str], taken_over: Sequence[str] = ()) -> None:
        """Print untrusted origins of input, and of the content from a task's thread or parent."""
        if origins := merged(origins_of_input):
            self._line((f"    untrusted, from {', '.join(origins)}", "dim"))
        if taken_over:
            self._line(("    before it: ", "dim"), f"untrusted content from {', '.join(taken_over)}")

    def _print_changes(self, changes: e.StateChange | None) -> None:
        """Print a call's changes to the task's `extra_state`."""
        if changes is not None:
            removed = ", ".join([f"{key} removed" for key in changes.removed])
            parts = [part for part in (call_arguments(changes.values), removed) if part]
            self._line(("    ctx.state: ", "dim"), ", ".join(parts))

    def _overwritten(self, event: e.StateOverwritten) -> None:
        writers: list[str] = []
        for writer in (event.lost, event.kept):
            node = self._names.of(writer)
            call = f"{self._name(base_call_id(writer))} ({writer})"
            writers.append(call if node is None else f"the step {node.plan.name}")
        keys = short(", ".join(event.keys), _DATA_SHOWN)
        self._line(
            ("  ! ", "yellow"), f"ctx.state: {keys} of {writers[0]} gave way to {writers[1]}, beside it"
        )

    def _print_files(self, event: e.ToolEnded | e.StepCompleted, prefix: str) -> None:
        """Print the sources and artifacts of a result; an artifact's id is `<prefix>-a<number>`."""
        for source in event.sources:
            self._line(("    source: ", "dim"), short(_source(source), _DATA_SHOWN))
        for number, file in enumerate(event.artifacts, 1):
            self._line(
                ("    made: ", "dim"), short(_artifact(file), _DATA_SHOWN), (f"  {prefix}-a{number}", "dim")
            )

    def _show_call_change(
        self,
        event: e.OutcomeSettled
        | e.OutcomeUnresolved
        | e.CallEdited
        | e.ArgumentsRewritten
        | e.ResultReplaced,
    ) -> None:
        name = f"{self._name(event.call)} ({event.call})"
        match event:
            case e.OutcomeSettled():
                verdict = "happened" if event.verdict == "happened" else "did not happen"
                self._line(("  ! ", "yellow"), f"{name} {verdict}", _by(event.by))
            case e.OutcomeUnresolved():
                self._line(("  ? ", "yellow"), f"{name}: reconcile could not tell {_reason(event.error)}")
            case e.CallEdited():
                self._line(
                    ("  ! ", "yellow"),
                    f"{name} changed to ({call_arguments(event.arguments)})",
                    _by(event.by),
                )
            case e.ArgumentsRewritten():
                self._line(
                    ("  ! ", "yellow"),
                    f"{name} runs as ({call_arguments(event.arguments)})",
                    _by(f"middleware {', '.join(event.by)}"),
                )
            case e.ResultReplaced():
                self._line(("⇄ ", "yellow"), f"the result of {name} replaced: {short(as_text(event.output))}")

    def _show_judgement(self, event: e.CallJudged | e.ApprovalRequested | e.ApprovalVoided) -> None:
        """Print a policy's decision on a call, with its rule; calls without a rule are left out."""
        name = f"{self._name(event.call)} ({event.call})"
        if isinstance(event, e.ApprovalVoided):
            self._line(("  ! ", "yellow"), f"the approval of {name} does not hold: {event.why}")
            return
        rule = (f"  by rule {event.rule}" if event.rule else "", "dim")
        reason = f": {event.reason}" if event.reason else ""
        if isinstance(event, e.ApprovalRequested):
            waiting = f"{name} waits for an approval{reason}"
            self._line(("  ? ", "yellow"), waiting, rule, (f"  until {moment(event.expires)}", "dim"))
            if event.untrusted:
                self._line(("    it has read: ", "dim"), f"untrusted: {', '.join(event.untrusted)}")
        elif event.verdict == "replace":
            changed = f"{name} changed to ({call_arguments(event.arguments or {})}){reason}"
            self._line(("  ! ", "yellow"), changed, rule)
        elif event.verdict == "deny" or event.rule is not None:
            outcome, style = ("not allowed", "red") if event.verdict == "deny" else ("allowed", "dim")
            self._line(
                (f"  {'✗' if event.verdict == 'deny' else '✓'} ", style), f"{name} {outcome}{reason}", rule
            )

    def _show_request_judged(self, event: e.RequestJudged) -> None:
        """Print a rule's decision on a model request; a refusal is printed with its failure event."""
        if event.rule is None or event.verdict == "deny":
            return
        mark, outcome, style = (
            ("?", "waits for a person", "yellow") if event.verdict == "ask" else ("✓", "allowed", "dim")
        )
        reason = f": {event.reason}" if event.reason else ""
        text = f"a request to {event.model} {outcome}{reason}"
        self._line((f"  {mark} ", style), text, (f"  by rule {event.rule}", "dim"))

    def _show_content_judged(self, event: e.GuardrailJudged) -> None:
        """Print a guardrail's decision on content; questions to a person are printed with their request."""
        if event.verdict == "ask" or (event.verdict == "allow" and event.rule is None):
            return
        mark, outcome, style = {
            "allow": ("✓", "passed", "dim"),
            "rewrite": ("!", "was rewritten", "yellow"),
            "deny": ("✗", "was refused", "red"),
        }[event.verdict]
        reason = f": {event.reason}" if event.reason else ""
        by = (f"  by guardrail {event.rule}" if event.rule else "", "dim")
        self._line((f"  {mark} ", style), f"{self._name(event.place)} ({event.place}) {outcome}{reason}", by)

    def _show_background(
        self,
        event: e.CallDeferred | e.TicketProgressed | e.TicketCompleted | e.TicketFailed | e.TicketExpired,
    ) -> None:
        """Print that a call continues in the background, and its ticket's events; its result is printed at its end."""
        name = f"{self._name(event.call)} ({event.call})"
        match event:
            case e.CallDeferred():
                about = f": {short(as_text(event.details), _DATA_SHOWN)}" if event.details is not None else ""
                until = (f"  until {moment(event.expires)}", "dim")
                self._line(("  ⋯ ", "cyan"), f"{name} goes on in the background{about}", until)
            case e.TicketProgressed():
                reached = short(as_text(event.value), _DATA_SHOWN)
                self._line(("  ⋯ ", "cyan"), f"{name}: {reached}", _by(event.by))
            case e.TicketCompleted() | e.TicketFailed():
                outcome = "completed" if isinstance(event, e.TicketCompleted) else "failed"
                self._line(("  ⋯ ", "cyan"), f"{name} {outcome} by its ticket", _by(event.by))
            case e.TicketExpired():
                self._line(("  ! ", "yellow"), f"{name}: its ticket expired")

    def _show_decision(self, event: e.ApprovalGiven | e.ApprovalDenied | e.ApprovalExpired) -> None:
        """Print a person's decision on a call."""
        name = f"{self._name(event.call)} ({event.call})"
        match event:
            case e.ApprovalGiven():
                edited = f" with ({call_arguments(event.arguments)})" if event.arguments is not None else ""
                scope = _SCOPES[event.scope]
                self._line(("  ✓ ", "green"), f"{name} approved{scope}{edited}", _by(event.by))
            case e.ApprovalDenied():
                reason = f": {event.reason}" if event.reason else ""
                self._line(("  ✗ ", "red"), f"{name} denied{reason}", _by(event.by))
            case e.ApprovalExpired():
                self._line(("  ✗ ", "red"), f"{name}: the request for approval expired")

    def _show_question(self, event: e.QuestionAsked | e.QuestionAnswered | e.QuestionExpired) -> None:
        """Print a question to a person, and the answer."""
        asker = f"{self._name(event.call)} ({event.call})" if event.call else f"step {event.step}"
        match event:
            case e.QuestionAsked():
                until = f"  until {moment(event.expires)}" if event.expires is not None else ""
                repeated = f", since {event.problem}" if event.problem is not None else ""
                self._line(("  ? ", "yellow"), f"{asker} asks: {event.question}{repeated}", (until, "dim"))
            case e.QuestionAnswered():
                self._line(
                    ("  ✓ ", "green"), f"answer to {asker}: {short(as_text(event.value))}", _by(event.by)
                )
            case e.QuestionExpired():
                self._line(("  ✗ ", "red"), f"the question of {asker} expired")

    def _show_task_event(self, event: e.Event) -> None:
        match event:
            case e.AgentChanged():
                self._line(("⇢ ", "cyan"), (event.agent, "bold"), f" goes on, in place of {event.previous}")
            case e.TaskForked():
                self._line((f"── forked from {event.parent} ──", "dim"))
            case e.PauseRequested() | e.InterruptRequested() | e.CancelRequested():
                reason = f": {event.reason}" if event.reason else ""
                self._line(("■ ", "yellow"), _REQUESTS[event.kind], _by(event.by), reason)
            case e.Resumed():
                self.limit = None
                self._line(("▸ ", "dim"), (_REQUESTS[event.kind], "dim"), _by(event.by))
            case e.LimitReached():
                self.limit = event
                detail = event.detail or f"{event.used:g} of {event.allowed:g}"
                self._line(("! ", "yellow"), f"the limit on {event.limit} was reached ({detail})")
            case e.UndoRequested():
                steps = ", ".join(event.steps)
                self._line(
                    ("↶ ", "magenta"), f"undo of {steps}", " (forced)" if event.forced else "", _by(event.by)
                )
            case e.Rewound():
                self._line(
                    ("↶ ", "magenta"), f"back to {f'step {event.to}' if event.to else 'the beginning'}"
                )
            case e.TaskReopened():
                self._line(("▸ ", "dim"), (f"attempt {event.attempt} ({event.reason})", "dim"), _by(event.by))
            case e.CommandRejected():
                self._line(("! ", "yellow"), f"{event.command} was too late: {event.reason}")
            case e.DriverSurvived():
                self._line(("! ", "yellow"), (f"driver {event.epoch} lost the task, but is alive", "dim"))
            case e.InputEdited():
                self._line(("› ", "bold"), _input(event.parts), ("  (edited)", "dim"), _by(event.by))
                self._print_untrusted(of_parts(event.parts))
            case e.UnknownEvent():
                self._line((f"({event.tag}: of another version)", "dim"))
            case e.CommandEvent():
                self._line(("· ", "dim"), (event.description, "dim"))
            case _:
                pass

    # ----------------------------------------------------------------------------------------- lines

    def _name(self, call: str) -> str:
        requested = self._calls.get(undone_call(call))
        return content_name(call) or call if requested is None else requested.name

    def _line(self, *parts: str | tuple[str, str]) -> None:
        self._print_step_name(self._event_step)
        self._screen.line(*parts)

    def _print_step_name(self, step: str | None) -> None:
        """Print the name of the step of the next lines, if it differs from the previous lines' step."""
        node = self._names.of(step)
        if node is not None and step != self._printed_step:
            self._screen.line((f"{node.plan.name}:", "bold"))
            self._printed_step = step


def _input(parts: Iterable[Content]) -> str:
    """Return an input with its further lines indented below the first."""
    return content_text(parts).replace("\n", "\n  ")


def _source(source: Json) -> str:
    """Return a source for people: its title and URL, if it has them."""
    if isinstance(source, dict):
        fields = cast("dict[str, Json]", source)
        facts = [str(fields[key]) for key in ("title", "url") if fields.get(key)]
        if facts:
            return "  ".join(facts)
    return as_text(source)


def _artifact(file: File) -> str:
    """Return the name, type and size of an artifact."""
    size = f"{len(file.data):,} bytes" if file.data is not None else str(file.url)
    return f"{file.name} ({', '.join(filter(None, [file.media_type, size]))})"


def _seen_part(event: e.ToolEnded) -> str:
    """Return how much of a long output the model saw."""
    length = len(event.whole if event.whole is not None else as_text(event.output))
    seen_characters = max(0, length - characters_cut(event.observation or (), base_call_id(event.call)))
    return (
        f"the model saw {seen_characters:,} of {length:,} characters; `treadle show --json` has all of them"
    )


def _by(person: str | None) -> tuple[str, str]:
    return (f"  by {person}" if person else "", "dim")


def _tokens(event: e.ModelReturned | e.ModelFailed | e.ModelStopped) -> list[str]:
    """Return the tokens of an attempt, and its cost if known."""
    about = "about " if event.usage.estimated else ""
    tokens = f"{about}{event.usage.input_tokens} + {event.usage.output_tokens} tokens"
    return [tokens, dollars(as_dollars(event.cost))] if event.cost is not None else [tokens]


def _failure(error: e.Failure) -> str:
    return f"{error.kind}: {short(error.message, 600)}"


def _reason(error: e.Failure | None) -> str:
    return short(error.message, 600) if error is not None else ""
