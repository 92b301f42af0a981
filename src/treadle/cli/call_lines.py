"""The lines of a timeline about calls, and about the decisions of policies, guardrails and people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from treadle.cli.event_lines import (
    DATA_SHOWN,
    EventLines,
    by_person,
    call_arguments,
    error_message,
)
from treadle.cli.screen import short
from treadle.cli.times import duration
from treadle.core import events as e
from treadle.core.ids import base_call_id, is_undo
from treadle.core.labels import Label
from treadle.core.messages import ToolCall
from treadle.core.observation import as_text, characters_cut
from treadle.results.displays import moment

_SCOPES: Final = {
    "once": "",
    "task": " for the rest of the task",
    "thread": " for the thread",
    "always": " for all tasks",
}


class DecisionLines:
    """Prints the events of decisions.

    Args:
        lines: prints the lines.
    """

    def __init__(self, lines: EventLines) -> None:
        self._lines = lines

    def judged(self, event: e.CallJudged | e.ApprovalRequested | e.ApprovalVoided) -> None:
        """Print a policy's decision on a call, with its rule; calls without a rule are left out."""
        name = f"{self._lines.name_of(event.call)} ({event.call})"
        if isinstance(event, e.ApprovalVoided):
            self._lines.line(("  ! ", "yellow"), f"the approval of {name} does not hold: {event.why}")
            return
        rule = (f"  by rule {event.rule}" if event.rule else "", "dim")
        reason = f": {event.reason}" if event.reason else ""
        if isinstance(event, e.ApprovalRequested):
            waiting = f"{name} waits for an approval{reason}"
            self._lines.line(("  ? ", "yellow"), waiting, rule, (f"  until {moment(event.expires)}", "dim"))
            if event.untrusted:
                self._lines.line(("    it has read: ", "dim"), f"untrusted: {', '.join(event.untrusted)}")
        elif event.verdict == "replace":
            changed = f"{name} changed to ({call_arguments(event.arguments or {})}){reason}"
            self._lines.line(("  ! ", "yellow"), changed, rule)
        elif event.verdict == "deny" or event.rule is not None:
            outcome, style = ("not allowed", "red") if event.verdict == "deny" else ("allowed", "dim")
            self._lines.line(
                (f"  {'✗' if event.verdict == 'deny' else '✓'} ", style), f"{name} {outcome}{reason}", rule
            )

    def request_judged(self, event: e.RequestJudged) -> None:
        """Print a rule's decision on a model request; a refusal is printed with its failure event."""
        if event.rule is None or event.verdict == "deny":
            return
        mark, outcome, style = (
            ("?", "waits for a person", "yellow") if event.verdict == "ask" else ("✓", "allowed", "dim")
        )
        reason = f": {event.reason}" if event.reason else ""
        text = f"a request to {event.model} {outcome}{reason}"
        self._lines.line((f"  {mark} ", style), text, (f"  by rule {event.rule}", "dim"))

    def content_judged(self, event: e.GuardrailJudged) -> None:
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
        self._lines.line(
            (f"  {mark} ", style), f"{self._lines.name_of(event.place)} ({event.place}) {outcome}{reason}", by
        )

    def decided(self, event: e.ApprovalGiven | e.ApprovalDenied | e.ApprovalExpired) -> None:
        """Print a person's decision on a call."""
        name = f"{self._lines.name_of(event.call)} ({event.call})"
        match event:
            case e.ApprovalGiven():
                edited = f" with ({call_arguments(event.arguments)})" if event.arguments is not None else ""
                scope = _SCOPES[event.scope]
                self._lines.line(("  ✓ ", "green"), f"{name} approved{scope}{edited}", by_person(event.by))
            case e.ApprovalDenied():
                reason = f": {event.reason}" if event.reason else ""
                self._lines.line(("  ✗ ", "red"), f"{name} denied{reason}", by_person(event.by))
            case e.ApprovalExpired():
                self._lines.line(("  ✗ ", "red"), f"{name}: the request for approval expired")

    def question(self, event: e.QuestionAsked | e.QuestionAnswered | e.QuestionExpired) -> None:
        """Print a question to a person, and the answer."""
        asker = f"{self._lines.name_of(event.call)} ({event.call})" if event.call else f"step {event.step}"
        match event:
            case e.QuestionAsked():
                until = f"  until {moment(event.expires)}" if event.expires is not None else ""
                repeated = f", since {event.problem}" if event.problem is not None else ""
                self._lines.line(
                    ("  ? ", "yellow"), f"{asker} asks: {event.question}{repeated}", (until, "dim")
                )
            case e.QuestionAnswered():
                self._lines.line(
                    ("  ✓ ", "green"),
                    f"answer to {asker}: {short(as_text(event.value))}",
                    by_person(event.by),
                )
            case e.QuestionExpired():
                self._lines.line(("  ✗ ", "red"), f"the question of {asker} expired")


class CallLines:
    """Prints the events of calls.

    Args:
        lines: prints the lines.
    """

    def __init__(self, lines: EventLines) -> None:
        self._lines = lines
        self._start_times: dict[str, int] = {}
        self._attempts: dict[str, int] = {}
        self._hosts: dict[str, str | None] = {}
        self._labels: dict[str, Label | None] = {}

    def requested(self, event: e.CallRequested) -> None:
        """Print a call that was not printed with a model's answer."""
        is_shown = event.call in self._lines.calls  # already printed with the model's answer
        self._lines.calls[event.call] = ToolCall(event.call, event.name, event.arguments)
        if not (event.asked or is_shown):
            self._lines.line(
                ("  → ", "cyan"),
                (event.name, "bold"),
                f"({call_arguments(event.arguments)})",
                (f"  {event.call}", "dim"),
            )

    def tool(self, event: e.ToolStarted | e.ToolStopped | e.ToolEnded) -> None:
        """Print the start, the stop or the end of a call."""
        name = self._lines.name_of(event.call)
        if isinstance(event, e.ToolStarted):
            self._start_times[event.call] = event.time
            self._attempts[event.call] = event.attempt
            self._hosts[event.call] = event.host
            self._labels[event.call] = event.label
            if event.undoes:
                self._lines.line(
                    ("  ↶ taking back ", "magenta"), f"{self._lines.name_of(event.undoes)} ({event.undoes})"
                )
            elif event.attempt > 1:
                self._lines.line((f"  ↻ {name} again (attempt {event.attempt})", "yellow"))
        elif isinstance(event, e.ToolStopped):
            stop = f"was stopped ({event.reason})"
            if event.reason == "error":
                stop = f"failed in attempt {self._attempts.get(event.call, 1)}:"
            self._lines.line(("  … ", "yellow"), f"{name} {stop} {error_message(event.error)}".rstrip())
        else:
            self._ended(event, name)

    def _ended(self, event: e.ToolEnded, name: str) -> None:
        began = self._start_times.get(event.call)
        suffix = (f"  {event.call}" + (f" {duration(event.time - began)}" if began else ""), "dim")
        if event.outcome == "ok":
            text = event.display if event.display is not None else as_text(event.output)
            shown = short(text, DATA_SHOWN)
            self._lines.line(
                ("  ← ", "green"), (f"{name}: ", "dim"), shown, suffix, *self._label(event, name)
            )
            if event.cut:
                self._lines.line((f"    {_seen_part(event)}", "dim"))
            if event.report is not None and event.report.answered_by is not None:
                self._lines.line(("    answered by the middleware ", "dim"), event.report.answered_by)
            self._print_host(event)
            self._lines.print_changes(event.changes)
            self._lines.print_files(event, event.call)
        elif event.outcome == "unknown":
            self._lines.line(
                ("  ? ", "yellow"),
                (f"{name}: its outcome is unknown ", "yellow"),
                error_message(event.error),
                suffix,
            )
            self._print_host(event)
        else:
            label = self._label(event, name)
            self._lines.line(
                ("  ✗ ", "red"), f"{name} ({event.outcome}): ", error_message(event.error), suffix, *label
            )
            self._print_host(event)

    def _print_host(self, event: e.ToolEnded) -> None:
        """Print the host of a function that ran outside the driver's process; print nothing if it did not run."""
        did_run = event.report is None or event.report.ran
        if did_run and (host := self._hosts.get(event.call)):
            self._lines.line(("    ran in: ", "dim"), host)

    def _label(self, event: e.ToolEnded, name: str) -> Iterator[tuple[str, str]]:
        """Yield a result's origin and integrity, for the end of its line.

        A result without a label is untrusted, from its tool. The result of an undo has no label, because no model
        reads it. Nor has a call that never began, because its error text is Treadle's own.
        """
        has_run = event.outcome == "ok" or event.call in self._start_times
        if not has_run or is_undo(event.call):
            return
        label = event.label or self._labels.get(event.call) or Label(f"tool:{name}", "untrusted")
        yield f" · {label.integrity}, from {label.origin}", "dim"

    def changed(
        self,
        event: e.OutcomeSettled
        | e.OutcomeUnresolved
        | e.CallEdited
        | e.ArgumentsRewritten
        | e.ResultReplaced,
    ) -> None:
        """Print a change to a call or to its result."""
        name = f"{self._lines.name_of(event.call)} ({event.call})"
        match event:
            case e.OutcomeSettled():
                verdict = "happened" if event.verdict == "happened" else "did not happen"
                self._lines.line(("  ! ", "yellow"), f"{name} {verdict}", by_person(event.by))
            case e.OutcomeUnresolved():
                self._lines.line(
                    ("  ? ", "yellow"), f"{name}: reconcile could not tell {error_message(event.error)}"
                )
            case e.CallEdited():
                self._lines.line(
                    ("  ! ", "yellow"),
                    f"{name} changed to ({call_arguments(event.arguments)})",
                    by_person(event.by),
                )
            case e.ArgumentsRewritten():
                self._lines.line(
                    ("  ! ", "yellow"),
                    f"{name} runs as ({call_arguments(event.arguments)})",
                    by_person(f"middleware {', '.join(event.by)}"),
                )
            case e.ResultReplaced():
                self._lines.line(
                    ("⇄ ", "yellow"), f"the result of {name} replaced: {short(as_text(event.output))}"
                )

    def overwritten(self, event: e.StateOverwritten) -> None:
        """Print that one call overwrote the state of another."""
        writers: list[str] = []
        for writer in (event.lost, event.kept):
            node = self._lines.names.of(writer)
            call = f"{self._lines.name_of(base_call_id(writer))} ({writer})"
            writers.append(call if node is None else f"the step {node.plan.name}")
        keys = short(", ".join(event.keys), DATA_SHOWN)
        self._lines.line(
            ("  ! ", "yellow"),
            f"ctx.state: {keys} of {writers[0]} overwritten by {writers[1]}, a parallel call",
        )

    def background(
        self,
        event: e.CallDeferred | e.TicketProgressed | e.TicketCompleted | e.TicketFailed | e.TicketExpired,
    ) -> None:
        """Print that a call continues in the background, and the events of its ticket. `tool` prints its result."""
        name = f"{self._lines.name_of(event.call)} ({event.call})"
        match event:
            case e.CallDeferred():
                about = f": {short(as_text(event.details), DATA_SHOWN)}" if event.details is not None else ""
                until = (f"  until {moment(event.expires)}", "dim")
                self._lines.line(("  ⋯ ", "cyan"), f"{name} goes on in the background{about}", until)
            case e.TicketProgressed():
                reached = short(as_text(event.value), DATA_SHOWN)
                self._lines.line(("  ⋯ ", "cyan"), f"{name}: {reached}", by_person(event.by))
            case e.TicketCompleted() | e.TicketFailed():
                outcome = "completed" if isinstance(event, e.TicketCompleted) else "failed"
                self._lines.line(("  ⋯ ", "cyan"), f"{name} {outcome} by its ticket", by_person(event.by))
            case e.TicketExpired():
                self._lines.line(("  ! ", "yellow"), f"{name}: its ticket expired")


def _seen_part(event: e.ToolEnded) -> str:
    """Return the note that the model saw a part of a long output."""
    length = len(event.whole if event.whole is not None else as_text(event.output))
    seen_characters = max(0, length - characters_cut(event.observation or (), base_call_id(event.call)))
    return (
        f"the model saw {seen_characters:,} of {length:,} characters; `treadle show --json` has all of them"
    )
