"""What a command says when a task has stopped: how it stands, what it waits for, and how to go on."""

from __future__ import annotations

from treadle.cli.command import CODES, command_line
from treadle.cli.screen import STYLES, Screen, clean, dollars, some
from treadle.cli.timeline import arguments
from treadle.engine.results import Pending, RunResult, TaskUsage


def told(
    screen: Screen,
    result: RunResult,
    *,
    store: str | None,
    agent: str | None,
    said: str = "",
    driven: bool = False,
    under: str | None = None,
) -> int:
    """Print how a task stands and return the exit code that says so.

    Args:
        screen: where to; with `--json` the document is the result.
        result: how it stands.
        store: as given with `--store`, for the commands to type.
        agent: as given with `--agent`, likewise.
        said: what the model said last, on the screen already.
        driven: whether a process is at work on the task, so that nobody has to go on with it.
        under: of a child, the task that it goes on with.
    """
    screen.document(result)
    state = result.state
    if result.final_text and "".join(result.final_text.split()) != "".join(said.split()):
        screen.line(result.final_text)
    screen.line(
        ("● ", STYLES.get(state, "")), (state, STYLES.get(state, "")), f"  {result.task_id}  ", spent(result)
    )
    if result.error is not None and state == "failed":
        screen.line(("  ✗ ", "red"), f"{result.error.kind}: {result.error.message}")
    for reason in result.degraded_reasons:
        screen.line(("  ! ", "yellow"), reason)
    if state == "waiting":
        pending(screen, result.pending, result.task_id, store)
    go_on = command_line("resume", under or result.task_id, store=store, agent=agent)
    match state:
        case _ if driven:
            screen.line(("  a process is at work on it", "dim"))
        case "interrupted" | "paused" | "failed" | "created" | "running" | "waiting":
            screen.line(("  go on with: ", "dim"), go_on)
        case "answered":
            screen.line(("  end the task with: ", "dim"), go_on)
        case _:
            pass
    return CODES.get(state, 0)


def pending(screen: Screen, waiting: tuple[Pending, ...], task_id: str, store: str | None) -> None:
    """Print what a task waits for, with the commands that settle what a person can."""
    for item in waiting:
        if item.kind == "timer":
            screen.line(("  ? ", "yellow"), item.text)
            continue
        if item.kind == "subagent":
            screen.line(("  ? ", "yellow"), item.text)
            screen.line(("    look at it:      ", "dim"), command_line("show", item.request_id, store=store))
            continue
        screen.line(("  ? ", "yellow"), f"{item.tool}({arguments(item.arguments)}): {item.text}")
        screen.line(("    it had the key:  ", "dim"), item.idempotency_key or "")
        settle = command_line("settle", task_id, item.request_id, store=store)
        screen.line(("    it took effect:  ", "dim"), f"{settle} --happened '<JSON of its result>'")
        screen.line(("    it did not:      ", "dim"), f"{settle} --not-happened")


def spent(result: RunResult) -> tuple[str, str]:
    """Return a task's size and cost in a few words."""
    steps = f"{result.steps} step{'s' if result.steps != 1 else ''}"
    return (f"{steps} · {usage_words(result.usage)}", "dim")


def usage_words(usage: TaskUsage) -> str:
    """Return what was spent in a few words."""
    calls = f"{some(usage.model_calls, 'model call')} · {some(usage.tool_calls, 'tool call')}"
    about = "about " if usage.estimated else ""
    words = f"{calls} · {about}{usage.input_tokens} + {usage.output_tokens} tokens"
    if usage.cost is not None and usage.model_calls:
        return clean(f"{words} · {about}{dollars(usage.cost)}")
    named = [model for model in usage.unpriced if ":" in model]
    return clean(f"{words} · cost unknown: no price for {', '.join(named)}" if named else words)
