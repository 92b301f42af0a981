"""`threads` and `prune`: conversations as a whole, and what is kept of the past."""

from __future__ import annotations

import json as json_format
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.table import Table

from treadle.cli import agents
from treadle.cli.command import CODES, JsonOption, StoreOption, in_loop, runner_on
from treadle.cli.run import read
from treadle.cli.screen import Screen, clean, some
from treadle.core.messages import Json, Message, Text, ToolCall, ToolResult
from treadle.errors import ConfigurationError, ThreadNotFound

threads = typer.Typer(
    no_args_is_help=True, help="Conversations: list, show, compact, import, delete.", add_completion=False
)
ThreadArgument = Annotated[str, typer.Argument(metavar="THREAD", help="Id of a thread.")]
_UNITS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


@threads.command("list")
def list_(
    ctx: typer.Context,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1_000, help="At most so many.")] = 100,
    cursor: Annotated[str | None, typer.Option("--cursor", help="Go on where the last page ended.")] = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> int:
    """List threads, by id."""

    async def work(screen: Screen) -> int:
        async with runner_on(store) as runner:
            page = await runner.list_threads(limit=limit, cursor=cursor)
            screen.document(page)
            if screen.out.is_terminal:
                table = Table("thread", "turns", "version", box=None, header_style="dim")
                for item in page.items:
                    table.add_row(clean(item.thread_id), str(item.turns), str(item.version))
                screen.out.print(table)
            for item in page.items if not screen.out.is_terminal else ():
                screen.row((item.thread_id, str(item.turns), str(item.version)))
            if page.cursor is not None:
                screen.note(f"more: --cursor {page.cursor}")
        return 0

    return in_loop(ctx, work)


@threads.command()
def show(
    ctx: typer.Context, thread: ThreadArgument, store: StoreOption = None, json: JsonOption = False
) -> int:
    """Show all words of a thread, also those that models see a summary of."""

    async def work(screen: Screen) -> int:
        async with runner_on(store) as runner:
            messages = await runner.get_thread(thread)
            if not messages and not messages.damaged:
                raise ThreadNotFound(f"no task was finalized in a thread {thread!r}")
            damaged = {"damaged": messages.damaged} if messages.damaged else {}
            screen.document({"items": messages, "cursor": None, **damaged})
            for message in messages:
                screen.line((f"{message.role}: ", "dim"), clean(_said(message)))
            for turn in messages.damaged:
                screen.note(clean(f"left out, since it cannot be read: {turn.reason}"))
        return 0

    return in_loop(ctx, work)


@threads.command()
def compact(
    ctx: typer.Context,
    thread: ThreadArgument,
    keep: Annotated[int, typer.Option("--keep", min=0, help="How many of the newest turns stay.")] = 4,
    model: Annotated[
        str | None, typer.Option("--model", metavar="PROVIDER:NAME", help="Who summarises.")
    ] = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> int:
    """Let models see a summary of a thread's older turns; the words themselves stay."""

    async def work(screen: Screen) -> int:
        async with runner_on(store, tuple(agents.known().agents.values())) as runner:
            report = await runner.compact_thread(thread, keep=keep, model=model)
            screen.document(report)
            screen.line(
                f"{some(report.messages_before, 'message')} ({report.tokens_before} tokens) -> "
                f"{report.messages_after} ({report.tokens_after})",
                ("" if report.complete else "  not complete: see the last task", "yellow"),
            )
        return 0 if report.complete else CODES["failed"]

    return in_loop(ctx, work)


@threads.command("import")
def import_(
    ctx: typer.Context,
    thread: ThreadArgument,
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="A JSON list of messages; `-`: standard input.")
    ],
    store: StoreOption = None,
    json: JsonOption = False,
) -> int:
    """Add messages to a thread: a JSON list of {"role", "content"}, as chat APIs have them."""
    messages = _messages(read(file) if file == "-" else _text_in(Path(file)))

    async def work(screen: Screen) -> int:
        async with runner_on(store, make=True) as runner:
            task_id = await runner.import_thread(thread, messages)
            screen.document({"task_id": task_id, "messages": len(messages)})
            screen.line(f"{some(len(messages), 'message')}, in task ", task_id)
        return 0

    return in_loop(ctx, work)


@threads.command()
def delete(
    ctx: typer.Context, thread: ThreadArgument, store: StoreOption = None, json: JsonOption = False
) -> int:
    """Delete a thread with all its tasks."""

    async def work(screen: Screen) -> int:
        async with runner_on(store) as runner:
            await runner.delete_thread(thread)
            screen.document({"deleted": thread})
            screen.line("deleted")
        return 0

    return in_loop(ctx, work)


def prune(
    ctx: typer.Context,
    older_than: Annotated[str, typer.Argument(metavar="AGE", help="Such as 30d, 12h, 45m.")],
    state: Annotated[
        list[str] | None, typer.Option("--state", help="Only of this state; may be repeated.")
    ] = None,
    label: Annotated[
        list[str] | None, typer.Option("--label", metavar="KEY=TEXT", help="Only with this label.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would go.")] = False,
    store: StoreOption = None,
    json: JsonOption = False,
) -> int:
    """Delete what ended long ago: whole threads, and tasks that left no words in theirs."""
    seconds, labels = _seconds(older_than), dict(_label(item) for item in label or [])
    how: dict[str, Any] = {"states": state} if state else {}

    async def work(screen: Screen) -> int:
        async with runner_on(store) as runner:
            report = await runner.prune(seconds, labels=labels, dry_run=dry_run, **how)
            screen.document(report)
            verb = "would delete" if dry_run else "deleted"
            screen.line(f"{verb} {some(len(report.threads), 'thread')}, {some(len(report.tasks), 'task')}")
        return 0

    return in_loop(ctx, work)


def _said(message: Message) -> str:
    told: list[str] = []
    for part in message.parts:
        if isinstance(part, Text):
            told.append(part.text)
        elif isinstance(part, ToolCall):
            told.append(f"{part.name}({json_format.dumps(part.arguments, ensure_ascii=False)})")
        elif isinstance(part, ToolResult):
            told.append(f"{part.name} -> {part.text}")
        else:
            told.append(f"({type(part).__name__.lower()})")
    return " ".join(told)


def _text_in(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{file} is not text: {error}") from None


def _messages(text: str) -> list[Message]:
    try:
        document: Json = json_format.loads(text)
    except ValueError as error:
        raise ConfigurationError(f"threads import takes JSON: {error}") from None
    if not isinstance(document, list):
        raise ConfigurationError("threads import takes a JSON list of messages")
    return [_message(item, place) for place, item in enumerate(document)]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]


def _message(item: Any, place: int) -> Message:
    role = item.get("role") if isinstance(item, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    content = item.get("content") if isinstance(item, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    if role not in ("user", "assistant", "system") or not isinstance(content, str):
        raise ConfigurationError(
            f"message {place} must be {{'role': 'user'|'assistant'|'system', 'content': text}}"
        )
    return Message(role, (Text(content),))


def _label(item: str) -> tuple[str, str]:
    key, equals, value = item.partition("=")
    if not equals or not key:
        raise ConfigurationError(f"--label takes KEY=TEXT, not {item!r}")
    return key, value


def _seconds(age: str) -> float:
    number, unit = age[:-1], age[-1:]
    if unit not in _UNITS or not number.replace(".", "", 1).isdecimal():
        raise ConfigurationError(f"AGE is a number and one of {', '.join(_UNITS)}, such as 30d, not {age!r}")
    return float(number) * _UNITS[unit]
