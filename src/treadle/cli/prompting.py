"""Ask a person for text in `chat`: by a line editor on a terminal, else line by line from standard input."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Protocol

from treadle.core.display import clean, exact_text
from treadle.drivers.terminal import TerminalLines, drop_typed, echoing, readable

HISTORY = "chat-history"
_WITHOUT_A_CURSOR = ("", "dumb", "unknown")
"""Terminals that cannot show a line editor."""


class Prompt(Protocol):
    """The source of a chat's messages."""

    is_interactive: bool
    """whether a person writes at a terminal"""

    async def ask(self, mark: str, default: str = "") -> str:
        """Return a written message; `default` can be edited.

        Raises:
            EOFError: the input has ended.
            KeyboardInterrupt: the message was dropped.
        """
        ...

    async def answer(self, mark: str, default: str = "") -> str:
        """Return the answer to a question. Earlier keys are dropped, and the answer does not enter the history.

        Raises:
            EOFError: the input has ended.
            KeyboardInterrupt: the question is left open.
        """
        ...

    def quiet(self) -> AbstractContextManager[None]:
        """Return a block in which unread keys are not echoed."""
        ...

    def interrupt(self) -> bool:
        """End the current question as Ctrl-C does; return False if there is none."""
        ...

    async def typed(self) -> None:
        """Wait until a person begins to write while a task runs; without a terminal, wait for ever."""
        ...


def make_prompt(commands: Sequence[str], toolbar: Callable[[], str]) -> Prompt:
    """Return the prompt for standard input.

    Args:
        commands: words that begin a line and are completed.
        toolbar: returns the line below the prompt.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return LinePrompt(echo=not sys.stdin.isatty())
    if os.environ.get("TERM", "dumb") in _WITHOUT_A_CURSOR:
        return LinePrompt(echo=False)
    try:
        return _Editor(commands, toolbar)
    except ImportError:
        return LinePrompt(echo=False)


class LinePrompt:
    """Reads lines unedited; a line that ends with a backslash continues with the next.

    Args:
        echo: print each line, since input is not a terminal, so that a transcript contains it.
    """

    def __init__(self, *, echo: bool) -> None:
        self._echo = echo
        self.is_interactive = not echo
        self._terminal = TerminalLines(lambda mark: print(mark, end="", flush=True))

    async def ask(self, mark: str, default: str = "") -> str:
        lines: list[str] = []
        while True:
            line = await self._line(mark if not lines else "… ")
            lines.append(line.removesuffix("\\"))
            if not line.endswith("\\"):
                return "\n".join(lines)

    async def _line(self, mark: str) -> str:
        if not self._echo:
            return await self._terminal.read(mark)
        # While a line is read, Ctrl-C drops the line. Blocking is fine: a pipe has its lines at once.
        handler = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            line = input()  # noqa: ASYNC250
        finally:
            signal.signal(signal.SIGINT, handler)
        print(f"{mark}{clean(line)}")
        return line

    def interrupt(self) -> bool:
        """End the current question as Ctrl-C does; return False if there is none."""
        return self._terminal.interrupt()

    async def answer(self, mark: str, default: str = "") -> str:
        if not self._echo:
            if default:
                print(f"    now: {exact_text(default)}")
            drop_typed()
        return await self.ask(mark, default)

    async def typed(self) -> None:
        """Wait until a line was written, which the terminal itself echoes and edits."""
        if self._echo:
            await asyncio.Event().wait()
        await readable()

    def quiet(self) -> AbstractContextManager[None]:
        """Change nothing, since without a line editor the terminal itself echoes keys."""
        return nullcontext()


class _Editor:
    """A line editor: history, completion, several lines. Needs the extra `chat`."""

    is_interactive = True

    def __init__(self, commands: Sequence[str], toolbar: Callable[[], str]) -> None:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.auto_suggest import AutoSuggestFromHistory
        from prompt_toolkit.completion import WordCompleter
        from prompt_toolkit.history import FileHistory, InMemoryHistory
        from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

        keys = KeyBindings()

        def new_line(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text("\n")

        def end(event: KeyPressEvent) -> None:
            buffer = event.current_buffer
            if buffer.document.text_before_cursor.endswith("\\"):
                buffer.delete_before_cursor()
                buffer.insert_text("\n")
            else:
                buffer.validate_and_handle()

        keys.add("escape", "enter")(new_line)
        keys.add("enter")(end)
        keys.add("c-j")(end)  # Enter, if it was typed while an answer came
        path = _history_file()
        self._session: PromptSession[str] = PromptSession(
            history=FileHistory(str(path)) if path is not None else InMemoryHistory(),
            auto_suggest=AutoSuggestFromHistory(),
            completer=WordCompleter([*commands], sentence=True),
            complete_while_typing=False,
            key_bindings=keys,
            multiline=True,
            prompt_continuation="… ",
            bottom_toolbar=toolbar,
            enable_open_in_editor=True,
        )
        self._questions: PromptSession[str] = PromptSession(
            history=InMemoryHistory(), key_bindings=keys, multiline=True, prompt_continuation="  "
        )

    async def ask(self, mark: str, default: str = "") -> str:
        options: dict[str, Any] = {"default": default, "handle_sigint": False}
        return await self._session.prompt_async(mark, **options)

    async def answer(self, mark: str, default: str = "") -> str:
        from prompt_toolkit.input.typeahead import clear_typeahead

        drop_typed()
        clear_typeahead(self._questions.input)
        options: dict[str, Any] = {"default": default, "handle_sigint": False}
        return await self._questions.prompt_async([("bold", mark)], **options)

    def interrupt(self) -> bool:
        """Return False, since questions receive Ctrl-C as a key, not as a signal."""
        return False

    async def typed(self) -> None:
        """Wait until a key is pressed; the next question of `ask` reads it."""
        await readable()

    def quiet(self) -> AbstractContextManager[None]:
        """Turn off the terminal's echo for a block, since keys would appear within printed text."""
        return echoing(False)


def _history_file() -> Path | None:
    """Return the file of the chat history, readable only by its owner; None if there is no place for it."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    path = Path(state) / "treadle" / HISTORY
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.touch(mode=0o600)
    except OSError:
        return None
    return path
