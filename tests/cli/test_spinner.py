"""The line that moves while something is awaited."""

import io
import time

import pytest
from rich.console import Console

from tests.cli.conftest import wait_for
from treadle.cli.screen import DELAY, Spinner


@pytest.fixture(autouse=True)
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal that can erase a line, whichever one runs the tests."""
    monkeypatch.setenv("TERM", "xterm-256color")


def console(*, terminal: bool = True) -> Console:
    return Console(file=io.StringIO(), width=40, force_terminal=terminal, no_color=True)


def drawn(out: Console) -> str:
    assert isinstance(out.file, io.StringIO)
    return out.file.getvalue()


def test_it_is_drawn_after_a_while_and_erased_at_the_end() -> None:
    out = console()
    spinner = Spinner(out)
    spinner.show("openai:gpt thinks")
    wait_for(lambda: "openai:gpt thinks  0 s" in drawn(out))
    spinner.stop()
    size = len(drawn(out))
    assert drawn(out).endswith("\r\x1b[K")
    time.sleep(0.15)
    assert len(drawn(out)) == size, "it draws on after its end"


def test_what_ends_at_once_draws_nothing() -> None:
    out = console()
    spinner = Spinner(out)
    spinner.show("add runs")
    spinner.stop()
    time.sleep(DELAY + 0.1)
    assert drawn(out) == ""


@pytest.mark.parametrize(("kind", "terminal"), [("xterm-256color", False), ("dumb", True)])
def test_nothing_is_drawn_without_a_terminal_that_can_erase_a_line(
    monkeypatch: pytest.MonkeyPatch, kind: str, terminal: bool
) -> None:
    monkeypatch.setenv("TERM", kind)
    monkeypatch.setattr("treadle.cli.screen.DELAY", 0.0)
    out = console(terminal=terminal)
    spinner = Spinner(out)
    spinner.show("add runs")
    time.sleep(0.1)
    spinner.stop()
    assert drawn(out) == ""


def test_a_long_text_is_cut_to_the_line() -> None:
    out = console()
    spinner = Spinner(out)
    spinner.show("x" * 100)
    wait_for(lambda: "x" in drawn(out))
    spinner.stop()
    assert max(len(line) for line in drawn(out).replace("\x1b[K", "").split("\r")) < 40
