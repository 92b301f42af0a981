"""The lines of a timeline about decisions: those of policies, guardrails and people, and the answers to questions."""

from __future__ import annotations

from typing import Final

from treadle.cli.event_lines import (
    EventLines,
    by_person,
    call_arguments,
)
from treadle.cli.screen import short
from treadle.core import events as e
from treadle.core.observation import as_text
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
