"""How a command reports a task that has stopped: its state, what it waits for, and the command that goes on with it."""

from __future__ import annotations

from treadle.cli.command import CODES, Session
from treadle.cli.screen import STYLES, Screen, clean, dollars, some
from treadle.cli.timeline import call_arguments
from treadle.engine.results import RunResult, TaskUsage


def print_outcome(
    session: Session,
    result: RunResult,
    *,
    agent: str | None = None,
    printed: str = "",
    driven: bool = False,
    root: str | None = None,
) -> int:
    """Print how a task stands and return the exit code for its state.

    Args:
        session: the command's session; with `--json` its document becomes the result.
        result: the result of the task.
        agent: the value of `--agent`, for the command that goes on with the task.
        printed: the model's text that is on the screen already.
        driven: whether a driver process works on the task, so that it goes on by itself.
        root: for a child, the task to resume instead of it.
    """
    screen = session.screen
    screen.document(result)
    if result.final_text and "".join(result.final_text.split()) != "".join(printed.split()):
        screen.line(result.final_text)
    print_state(screen, result, f"{result.task_id}  ")
    if result.state == "waiting":
        print_pending(session, result)
    resume = session.command_line("resume", root or result.task_id, agent=agent)
    if driven:
        screen.line(("  a driver process works on it", "dim"))
    elif result.state in ("interrupted", "paused", "failed", "created", "running", "waiting"):
        screen.line(("  go on with: ", "dim"), resume)
    elif result.state == "answered":
        screen.line(("  end the task with: ", "dim"), resume)
    return CODES.get(result.state, 0)


def print_state(screen: Screen, result: RunResult, task_id: str = "") -> None:
    """Print a task's state, size and cost, and why it failed or is degraded."""
    style = STYLES.get(result.state, "")
    steps = f"{some(result.steps, 'step')} · {usage_summary(result.usage)}"
    screen.line(("● ", style), (result.state, style), f"  {task_id}", (steps, "dim"))
    if result.error is not None:
        screen.line(("  ✗ ", "red"), f"{result.error.kind}: {result.error.message}")
    for reason in result.degraded_reasons:
        screen.line(("  ! ", "yellow"), reason)


def print_pending(session: Session, result: RunResult) -> None:
    """Print what a task waits for, with the commands that settle a call whose outcome is unknown."""
    line = session.screen.line
    for item in result.pending:
        if item.kind in ("timer", "subagent"):
            line(("  ? ", "yellow"), item.text)
            if item.kind == "subagent":
                line(("    look at it:      ", "dim"), session.command_line("show", item.request_id))
            continue
        line(("  ? ", "yellow"), f"{item.tool}({call_arguments(item.arguments)}): {item.text}")
        line(("    its key was:     ", "dim"), item.idempotency_key or "")
        settle = session.command_line("settle", result.task_id, item.request_id)
        line(("    it took effect:  ", "dim"), f"{settle} --happened '<JSON of its result>'")
        line(("    it did not:      ", "dim"), f"{settle} --not-happened")


def usage_summary(usage: TaskUsage) -> str:
    """Return calls, tokens and cost on one line."""
    calls = f"{some(usage.model_calls, 'model call')} · {some(usage.tool_calls, 'tool call')}"
    about = "about " if usage.estimated else ""
    summary = f"{calls} · {about}{usage.input_tokens} + {usage.output_tokens} tokens"
    if usage.cost is not None and usage.model_calls:
        return clean(f"{summary} · {about}{dollars(usage.cost)}")
    unpriced = [model for model in usage.unpriced if ":" in model]
    return clean(f"{summary} · cost unknown: no price for {', '.join(unpriced)}" if unpriced else summary)
