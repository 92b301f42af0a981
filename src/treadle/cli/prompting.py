"""How `chat` asks a person for text: a line editor on a terminal, else one line of standard input after the other."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

HISTORY = "chat-history"


class Prompt(Protocol):
    """Where the messages of a chat come from."""

    async def ask(self, mark: str, default: str = "") -> str:
        """Return what was written; `default` is there to be edited.

        Raises:
            EOFError: nothing more will be written.
            KeyboardInterrupt: what was written is not meant.
        """
        ...


def make_prompt(commands: Sequence[str], toolbar: Callable[[], str]) -> Prompt:
    """Return the prompt for standard input.

    Args:
        commands: words that begin a line and can be completed.
        toolbar: returns the line below the prompt.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return LinePrompt(echo=not sys.stdin.isatty())
    try:
        return _Editor(commands, toolbar)
    except ImportError:
        return LinePrompt(echo=False)


class LinePrompt:
    """Reads lines as they are; one that ends with a backslash goes on with the next.

    Args:
        echo: print what was read, so that a transcript holds it.
    """

    def __init__(self, *, echo: bool) -> None:
        self._echo = echo

    async def ask(self, mark: str, default: str = "") -> str:
        lines: list[str] = []
        # While a line is read, Ctrl-C means the line. No task of this process runs meanwhile.
        handler = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            while True:
                line = input("" if self._echo else mark if not lines else "… ")  # noqa: ASYNC250 - nothing else runs
                if self._echo:
                    print(f"{mark}{line}" if not lines else f"… {line}")
                lines.append(line.removesuffix("\\"))
                if not line.endswith("\\"):
                    return "\n".join(lines)
        finally:
            signal.signal(signal.SIGINT, handler)


class _Editor:
    """A line editor: history, completion, several lines. Needs the extra `chat`."""

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

    async def ask(self, mark: str, default: str = "") -> str:
        options: dict[str, Any] = {"default": default, "handle_sigint": False}
        return await self._session.prompt_async(mark, **options)


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
