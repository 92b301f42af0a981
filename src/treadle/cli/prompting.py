"""How `chat` asks a person for text: a line editor on a terminal, else one line of standard input after the other."""

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
"""Terminals on which a line editor cannot show what it holds."""


class Prompt(Protocol):
    """Where the messages of a chat come from."""

    is_interactive: bool
    """whether a person writes at a terminal"""

    async def ask(self, mark: str, default: str = "") -> str:
        """Return what was written; `default` is there to be edited.

        Raises:
            EOFError: nothing more will be written.
            KeyboardInterrupt: what was written is not meant.
        """
        ...

    async def answer(self, mark: str, default: str = "") -> str:
        """Return the answer to a question: what was typed before it is dropped, and it enters no history.

        Raises:
            EOFError: nothing more will be written.
            KeyboardInterrupt: the question is left open.
        """
        ...

    def quiet(self) -> AbstractContextManager[None]:
        """Return a block in which keys that no question reads yet are not echoed."""
        ...

    def interrupt(self) -> bool:
        """End the question that is asked, at a signal of Ctrl-C; return False if none is."""
        ...

    async def typed(self) -> None:
        """Return once a person begins to write while something else runs; never, where input is no terminal."""
        ...


def make_prompt(commands: Sequence[str], toolbar: Callable[[], str]) -> Prompt:
    """Return the prompt for standard input.

    Args:
        commands: words that begin a line and can be completed.
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
    """Reads lines as they are; one that ends with a backslash goes on with the next.

    Args:
        echo: input is no terminal: print what was read, so that a transcript holds it.
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
        # While a line is read, Ctrl-C means the line. What runs in this process waits: a pipe has its lines at once.
        handler = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            line = input()  # noqa: ASYNC250
        finally:
            signal.signal(signal.SIGINT, handler)
        print(f"{mark}{clean(line)}")
        return line

    def interrupt(self) -> bool:
        """End the question that is asked, as Ctrl-C does; return False if there is none."""
        return self._terminal.interrupt()

    async def answer(self, mark: str, default: str = "") -> str:
        if not self._echo:
            if default:
                print(f"    now: {exact_text(default)}")
            drop_typed()
        return await self.ask(mark, default)

    async def typed(self) -> None:
        """Return once a line was written: until then the terminal itself echoes and edits it."""
        if self._echo:
            await asyncio.Event().wait()
        await readable()

    def quiet(self) -> AbstractContextManager[None]:
        """Change nothing: without a line editor it is the terminal that shows what is written."""
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
        keys.add("c-j")(end)  # what was typed while an answer came has this for Enter
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
        """Return False: a question has Ctrl-C as a key, and not as a signal."""
        return False

    async def typed(self) -> None:
        """Return once a key is pressed; the next question of `ask` reads it."""
        await readable()

    def quiet(self) -> AbstractContextManager[None]:
        """Have the terminal echo no keys for the length of a block: they would stand amid what is printed."""
        return echoing(False)


def _history_file() -> Path | None:
    """Return where messages are remembered, for the owner only; None if no file can be there."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    path = Path(state) / "treadle" / HISTORY
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.touch(mode=0o600)
    except OSError:
        return None
    return path
