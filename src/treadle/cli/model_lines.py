"""The lines of a timeline about requests to models: answers, streamed or whole, and failures."""

from __future__ import annotations

from collections.abc import Collection

from treadle.cli.event_lines import (
    DATA_SHOWN,
    EventLines,
    call_arguments,
    failure_text,
)
from treadle.cli.screen import Screen, clean, dollars, short
from treadle.cli.times import duration
from treadle.cli.wrapping import WordFlow
from treadle.core import events as e
from treadle.core.calls_in_text import text_calls_warning
from treadle.core.messages import IN_WORDS, Message, Reasoning
from treadle.core.model import NO_USAGE, WHOLE
from treadle.core.spending import as_dollars
from treadle.results.displays import moment


class ModelLines:
    """Prints the events of requests to models.

    Args:
        screen: prints streamed text.
        lines: prints the lines.
        live: print the text while it is streamed.
        undone: ids of undone steps, which are left out.
    """

    def __init__(self, screen: Screen, lines: EventLines, *, live: bool, undone: Collection[str]) -> None:
        self._screen = screen
        self._lines = lines
        self._live = live
        self._undone = undone
        self._model_requests: dict[str, e.ModelStarted] = {}
        self.flow = WordFlow(screen.out)
        self._streaming = ""
        """the step and channel whose text is being printed"""

        self._streamed = ""
        self.last_text = ""
        """the text of the model's newest answer"""

    def started(self, event: e.ModelStarted) -> None:
        """Print that a model is asked again or for the last time, or the tools that the request offers."""
        before = self._model_requests.get(event.call or event.step)
        self._model_requests[event.call or event.step] = event
        if event.final:
            self._lines.line(("  asked for a final answer, without tools", "yellow"))
        elif event.attempt > 1:
            other = f" with {event.model}" if before is not None and before.model != event.model else ""
            self._lines.line((f"  retried{other} (attempt {event.attempt})", "dim"))
        elif event.offered is not None:
            self._lines.line(
                ("  offered: ", "dim"), (short(", ".join(event.offered) or "no tool", 2 * DATA_SHOWN), "dim")
            )

    def write(self, delta: e.Delta) -> None:
        """Print streamed text."""
        if delta.channel == "arguments":
            return
        style = "dim" if delta.channel == "reasoning" else ""
        if self._streaming != f"{delta.step} {delta.channel}":
            self.end()
            self._lines.print_step_name(delta.step)
            self._screen.spinner.stop()
            self._streaming = f"{delta.step} {delta.channel}"
        if delta.is_text:
            self._streamed += delta.text
        self.flow.write(clean(delta.text), style)

    def restarted(self, event: e.ModelRestarted) -> None:
        """Print that the answer starts again, without the streamed text."""
        self.end()
        self._streamed = ""
        if self._live:
            self._lines.line((f"  ↻ from its beginning (attempt {event.attempt}):", "dim"))

    def end(self) -> None:
        """End the streamed text."""
        self.flow.end()
        self._streaming = ""

    def returned(self, event: e.ModelReturned) -> None:
        """Print an answer with its calls and its usage."""
        streamed, self._streamed = self._streamed, ""
        self.end()
        for call in event.message.tool_calls:
            self._lines.calls[call.id] = call
        if event.step in self._undone:
            return
        if not self._live:
            self._print_reasoning(event.message)
        self.last_text = event.message.text
        if self.last_text and streamed != self.last_text:
            self._lines.line("  " + self.last_text.strip().replace("\n", "\n  "))
        if event.finish not in WHOLE:
            self._lines.line(("  ! the answer ended early: ", "yellow"), event.finish)
        if event.text_calls:
            self._lines.line(("  ! ", "yellow"), text_calls_warning(event.text_calls))
        self._print_calls(event.message)
        if not self._live:
            self._lines.line((f"  {self._facts(event)}", "dim"))

    def failed(self, event: e.ModelFailed) -> None:
        """Print that an attempt failed."""
        retry_note = f"; retried at {moment(event.retry_at)}" if event.retry_at is not None else ""
        name = event.error.model or "the model"
        spent = (self._spent(event), "dim")
        self._lines.line(
            (f"  ✗ {name} failed: ", "red"), failure_text(event.error), (retry_note, "dim"), spent
        )

    def stopped(self, event: e.ModelStopped) -> None:
        """Print that an attempt was stopped."""
        spent = (self._spent(event), "dim")
        self._lines.line((f"  … the request was stopped ({event.reason})", "yellow"), spent)

    def routed(self, event: e.RouteChosen) -> None:
        """Print a router's message instead of the model's; print nothing if it left the step to the model."""
        if event.message is not None:
            self._lines.calls.update({call.id: call for call in event.message.tool_calls})
            self._lines.line(("  the router, in place of the model:", "dim"))
            self._print_calls(event.message)

    def _print_calls(self, message: Message) -> None:
        for call in message.tool_calls:
            problem = f"  (not run: {call.problem})" if call.problem else ""
            self._lines.line(
                ("  → ", "cyan"),
                (call.name, "bold"),
                f"({call_arguments(call.arguments)})",
                (problem, "red"),
                (f"  {call.id}", "dim"),
            )
            if call.problem and call.meta == IN_WORDS:
                self._lines.line(("    it wrote: ", "dim"), (short(call.raw or "", DATA_SHOWN), "dim"))

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
                self._lines.line(("  " + short(part.text, 2 * DATA_SHOWN), "dim"))


def _tokens(event: e.ModelReturned | e.ModelFailed | e.ModelStopped) -> list[str]:
    """Return the tokens of an attempt, and its cost if known."""
    about = "about " if event.usage.estimated else ""
    tokens = f"{about}{event.usage.input_tokens} + {event.usage.output_tokens} tokens"
    return [tokens, dollars(as_dollars(event.cost))] if event.cost is not None else [tokens]
