"""Report a task that has stopped: its state, its pending requests, and the command that continues it."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Final

from treadle.cli import agents
from treadle.cli.command import CODES, Session
from treadle.cli.screen import STYLES, Screen, dollars, some
from treadle.core.display import clean
from treadle.core.events import LimitReached
from treadle.results.pending import Pending
from treadle.results.run_result import RunResult
from treadle.results.usage import TaskUsage
from treadle.runner.deciding import described

LIMIT_OPTIONS: Final = ("steps", "tokens", "seconds", "model_calls", "tool_calls", "cost", "repeats")
"""The limits with an option of `run` and `resume`."""


def print_outcome(
    session: Session,
    result: RunResult,
    *,
    agent: str | None = None,
    printed: str = "",
    root: str | None = None,
    limit: LimitReached | None = None,
    is_recorded: bool = False,
) -> int:
    """Print a task's state and return the exit code for it.

    Args:
        session: the command's session; with `--json` its document becomes the result.
        result: the result of the task.
        agent: the value of `--agent`, for the command that continues the task.
        printed: the model's text that is already on the screen.
        root: for a child, the task to resume instead of it.
        limit: the last limit that was reached; a paused task continues with a higher one.
        is_recorded: whether a command to the task was just recorded, so that a driver may take the task.
    """
    screen = session.screen
    screen.document(result)
    if result.final_text and "".join(result.final_text.split()) != "".join(printed.split()):
        screen.line(result.final_text)
    print_state(screen, result, f"{result.task_id}  ")
    if result.state == "waiting":
        print_pending(session, result)
    print_next(session, result, agent=agent, root=root, limit=limit, is_recorded=is_recorded)
    return CODES.get(result.state, 0)


def print_next(
    session: Session,
    result: RunResult,
    *,
    agent: str | None = None,
    root: str | None = None,
    limit: LimitReached | None = None,
    is_recorded: bool = False,
) -> None:
    """Print the command that continues a task, if it can continue; the arguments are those of `print_outcome`."""
    screen = session.screen
    raised = _raised_limit(limit) if limit is not None and result.state == "paused" else {}
    task = screen.short(root or result.task_id)
    if agent is None and session.url is None and not agents.may_be_found(result.agent):
        agent = "MODULE:AGENT"
    resume = session.command_line("resume", task, agent=agent, policy=session.policy, **raised)
    if result.driven:  # a driver continues it
        screen.line(("  a driver process works on it", "dim"))
    elif result.state in ("interrupted", "paused", "failed", "created", "running", "waiting"):
        if result.state == "created":
            screen.line(
                ("  not begun: no driver took it, or its tools cannot be had; a resume tells which", "dim")
            )
        kinds = {item.kind for item in result.pending}
        label = "go on with: "
        if result.state == "waiting" and "undo" in kinds:
            resume = session.command_line("undo", task, agent=agent)
        elif result.state == "waiting" and kinds == {"timer"}:
            label = "a driver (treadle drive) wakes it then; without one, after that time: "
        elif is_recorded and result.state in ("waiting", "running", "created") and not kinds:
            label = "a driver (treadle drive) continues it; without one: "
        screen.command(f"  {label}", resume)
    elif result.state == "answered":
        screen.command("  end the task with: ", resume)


def _raised_limit(limit: LimitReached) -> dict[str, str | None]:
    """Return the option that doubles the limit that a task reached; empty for a limit without an option."""
    value = Decimal(str(max(limit.used, limit.allowed))) * 2
    if limit.limit not in LIMIT_OPTIONS:
        return {}
    return {f"max-{limit.limit.replace('_', '-')}": f"{value.normalize():f}"}


def print_state(screen: Screen, result: RunResult, task_id: str = "") -> None:
    """Print a task's state, size and cost, and the reason if it failed or is degraded."""
    style = STYLES.get(result.state, "")
    steps = f"{some(result.steps, 'step')} · {usage_summary(result.usage)}"
    screen.line(("● ", style), (result.state_text, style), f"  {task_id}", (steps, "dim"))
    if result.error is not None and result.error.message != result.state:
        who = f"{result.error.model}: " if result.error.model else ""
        kind = "" if result.error.kind == "cancelled" == result.state else f"{result.error.kind}: "
        screen.line(("  ✗ ", "red"), f"{who}{kind}{result.error.message}")
    for reason in (*result.degraded_reasons, *result.warnings):
        screen.line(("  ! ", "yellow"), reason)


def print_pending(session: Session, result: RunResult) -> None:
    """Print a task's pending requests, with the commands that decide them."""
    print_pending_items(session, result.pending)


def print_pending_items(session: Session, items: Sequence[Pending]) -> None:
    """Print pending requests with the commands that decide them; commands for several approvals follow once."""
    approvals = [item for item in items if item.kind == "approval"]
    many = {item.task_id for item in approvals if sum(each.task_id == item.task_id for each in approvals) > 1}
    for item in items:
        together = item.kind == "approval" and item.task_id in many
        _print_pending_item(session, item, together=together)
    for task_id in dict.fromkeys(item.task_id for item in approvals if item.task_id in many):
        task = session.screen.short(task_id)
        session.screen.command("    let all run:     ", session.command_line("approve", task, "--all"))
        session.screen.command("    let one run:     ", session.command_line("approve", task, "REQUEST"))
        session.screen.command("    refuse one:      ", session.command_line("deny", task, "REQUEST"))


def _print_pending_item(session: Session, item: Pending, *, together: bool) -> None:
    """Print a pending request with the commands that decide it, or with its id."""
    screen, line = session.screen, session.screen.line
    heading, *rest = described(item, screen.width)
    line(*heading, *([(f"  {item.request_id}", "dim")] if together else []))
    for parts in rest:
        line(*parts)
    if together:
        return
    task = screen.short(item.task_id)
    match item.kind:
        case "subagent":
            below = screen.short(item.request_id)
            screen.command("    look at it:      ", session.command_line("show", below))
            screen.command("    its requests:    ", session.command_line("pending", below))
        case "approval":
            screen.command("    let it run:      ", session.command_line("approve", task, item.request_id))
            screen.command("    refuse it:       ", session.command_line("deny", task, item.request_id))
        case "question":
            answer = session.command_line("answer", task, item.request_id)
            screen.command("    answer it:       ", f"{answer} '<answer>'")
        case "request":
            resume = session.command_line("resume", task, policy=session.policy)
            screen.command("    let it go out:   ", resume)
            screen.command("    refuse it:       ", session.command_line("cancel", task))
        case "settlement":
            settle = session.command_line("settle", task, item.request_id)
            screen.command("    it took effect:  ", f"{settle} --happened '<JSON of its result>'")
            screen.command("    it did not:      ", f"{settle} --not-happened")
        case "call":
            complete = session.command_line("complete", item.request_id, task=task)
            screen.command("    give its result: ", f"{complete} '<JSON of its result>'")
        case "undo":
            screen.command("    go without it:   ", session.command_line("undo", task, "--force"))
        case "timer" | "background":
            pass


def usage_summary(usage: TaskUsage) -> str:
    """Return calls, tokens and cost on one line."""
    calls = f"{some(usage.model_calls, 'model call')} · {some(usage.tool_calls, 'tool call')}"
    about = "about " if usage.estimated else ""
    summary = f"{calls} · {about}{usage.input_tokens} + {usage.output_tokens} tokens"
    if usage.cost is not None and usage.model_calls:
        return clean(f"{summary} · {about}{dollars(usage.cost)}")
    unpriced = [model for model in usage.unpriced if ":" in model]
    return clean(f"{summary} · cost unknown: no price for {', '.join(unpriced)}" if unpriced else summary)
