"""`threads` and `prune`: whole conversations, and the deletion of old tasks."""

from __future__ import annotations

import json as json_format
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from treadle.cli import agents
from treadle.cli.command import CODES, Session, command, option, text_argument
from treadle.cli.filters import label as label_of
from treadle.cli.screen import some
from treadle.cli.times import seconds_of
from treadle.core.display import clean
from treadle.core.messages import Message, Text, ToolCall, ToolResult
from treadle.errors import ConfigurationError, ThreadNotFound
from treadle.results.wire import to_wire

threads = typer.Typer(
    no_args_is_help=True, help="Conversations: list, show, compact, import, delete.", add_completion=False
)
ThreadArgument = Annotated[str, typer.Argument(metavar="THREAD", help="Id of a thread.")]


@threads.command("list")
@command
async def list_(
    session: Session,
    limit: Annotated[
        int, typer.Option("--limit", min=1, max=1_000, help="Maximum number of threads to list.")
    ] = 100,
    cursor: Annotated[
        str | None, typer.Option("--cursor", help="Continue after the page that ended with this cursor.")
    ] = None,
) -> int:
    """List threads, by id."""
    screen = session.screen
    async with session.runner() as runner:
        page = await runner.list_threads(limit=limit, cursor=cursor)
    screen.document(page)
    rows = [(item.thread_id, str(item.turns), str(item.version)) for item in page.items]
    screen.table(("thread", "turns", "version"), rows)
    if page.cursor is not None:
        screen.note(f"more: --cursor {page.cursor}")
    return 0


@threads.command()
@command
async def show(session: Session, thread: ThreadArgument) -> int:
    """Show all messages of a thread, including those that models see only as a summary."""
    screen = session.screen
    async with session.runner() as runner:
        messages = await runner.get_thread(thread)
    if not messages and not messages.damaged:
        raise ThreadNotFound(f"no task was finalized in a thread {thread!r}")
    screen.document({**to_wire(messages), "cursor": None})
    for message in messages:
        screen.line((f"{message.role}: ", "dim"), clean(message_text(message)))
    for turn in messages.damaged:
        screen.note(clean(f"left out, since it cannot be read: {turn.reason}"))
    return 0


@threads.command()
@command
async def compact(
    session: Session,
    thread: ThreadArgument,
    keep: Annotated[
        int, typer.Option("--keep", min=0, help="Number of the newest turns that are not summarised.")
    ] = 4,
    model: Annotated[str | None, option("PROVIDER:NAME", "The model that writes the summary.")] = None,
) -> int:
    """Show models a summary of a thread's older turns; the messages themselves stay in the store."""
    async with session.runner(tuple(agents.listed_agents().agents.values()), drives=True) as runner:
        report = await runner.compact_thread(thread, keep=keep, model=model)
    session.screen.document(report)
    session.screen.line(
        f"{some(report.messages_before, 'message')} ({report.tokens_before} tokens) -> "
        f"{report.messages_after} ({report.tokens_after})",
        ("" if report.complete else "  not complete: see the last task", "yellow"),
    )
    return 0 if report.complete else CODES["failed"]


@threads.command("import")
@command
async def import_(
    session: Session,
    thread: ThreadArgument,
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="A JSON list of messages; `-` is standard input.")
    ],
) -> int:
    """Add messages to a thread: a JSON list of {"role", "content"}, texts only, without tool calls."""
    messages = _messages(text_argument(file) if file == "-" else _file_text(Path(file)))
    async with session.runner(make=True) as runner:
        task_id = await runner.import_thread(thread, messages)
    session.screen.document({"task_id": task_id, "messages": len(messages)})
    session.screen.line(f"{some(len(messages), 'message')}, in task ", task_id)
    return 0


@threads.command()
@command
async def delete(session: Session, thread: ThreadArgument) -> int:
    """Delete a thread with all its tasks."""
    async with session.runner() as runner:
        await runner.delete_thread(thread)
    session.screen.document({"deleted": thread})
    session.screen.line("deleted")
    return 0


@command
async def prune(
    session: Session,
    older_than: Annotated[str, typer.Argument(metavar="AGE", help="An age such as 30d, 12h or 45m.")],
    state: Annotated[
        list[str] | None, typer.Option("--state", help="Only tasks in this state; may be repeated.")
    ] = None,
    label: Annotated[list[str] | None, option("KEY=TEXT", "Only tasks with this label.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List the tasks that would be deleted, and delete none.")
    ] = False,
) -> int:
    """Delete old tasks: whole threads, and tasks without messages in their threads."""
    seconds, labels = seconds_of(older_than, "AGE"), dict(label_of(item) for item in label or [])
    states: dict[str, Any] = {"states": state} if state else {}
    async with session.runner() as runner:
        report = await runner.prune(seconds, labels=labels, dry_run=dry_run, **states)
    session.screen.document(report)
    verb = "would delete" if dry_run else "deleted"
    session.screen.line(f"{verb} {some(len(report.threads), 'thread')}, {some(len(report.tasks), 'task')}")
    return 0


def message_text(message: Message) -> str:
    """Return a message for people to read: its text, calls and results."""
    texts: list[str] = []
    for part in message.parts:
        if isinstance(part, Text):
            texts.append(part.text)
        elif isinstance(part, ToolCall):
            texts.append(f"{part.name}({json_format.dumps(part.arguments, ensure_ascii=False)})")
        elif isinstance(part, ToolResult):
            texts.append(f"{part.name} -> {part.text}")
        else:
            texts.append(f"({type(part).__name__.lower()})")
    return " ".join(texts)


def _file_text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{file} is not text: {error}") from None


def _messages(text: str) -> list[Message]:
    try:
        document: Any = json_format.loads(text)
    except ValueError as error:
        raise ConfigurationError(f"threads import takes JSON: {error}") from None
    if not isinstance(document, list):
        raise ConfigurationError("threads import takes a JSON list of messages")
    return [_message(item, index) for index, item in enumerate(cast("list[Any]", document))]


def _message(item: Any, index: int) -> Message:
    fields = cast("dict[str, Any]", item) if isinstance(item, dict) else {}
    role, content = fields.get("role"), fields.get("content")
    if role not in ("user", "assistant", "system") or not isinstance(content, str):
        raise ConfigurationError(
            f"message {index} must be {{'role': 'user'|'assistant'|'system', 'content': text}}; "
            "messages with tool calls go in by `runner.import_thread(thread_id, messages)`"
        )
    return Message(role, (Text(content),))
