"""What is printed on a terminal."""

import io
import time

import pytest
from rich.console import Console

from tests.cli.conftest import wait_for
from treadle.cli.screen import DELAY, Spinner, short_ids
from treadle.core.display import clean


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("a\x1b[2Jb", "a\\x1b[2Jb"),
        ("c1 \x9b31m", "c1 \\x9b31m"),
        ("right\u202eleft", "right\\u202eleft"),
        ("one\r\ntwo\rthree", "one\ntwo\\rthree"),
        ("grün 漢字 👩\u200d👧\tx", "grün 漢字 👩\u200d👧\tx"),
    ],
)
def test_text_from_outside_cannot_control_a_terminal(given, shown):
    assert clean(given) == shown


def test_ids_of_one_batch_are_told_apart_by_their_random_ends():
    batch = [f"01a20275-803b-7{number:03x}-8000-0000000{number:05x}" for number in range(3)]
    twins = ["01a20275-803b-7000-8000-aaaaabcdefff", "01a20275-803b-7000-8000-bbbbabcdefff"]
    assert short_ids(batch) == dict(zip(batch, ["0000000", "0000001", "0000002"], strict=True))
    assert short_ids(twins) == dict(zip(twins, ["aabcdefff", "babcdefff"], strict=True))


def test_an_id_that_a_caller_chose_and_the_call_of_a_child_stay_readable():
    chosen, child = "order-4711", "01a20275-803b-7000-8000-00000000000f.s1-0"
    assert short_ids([chosen, child]) == {chosen: "order-4711", child: "000000f.s1-0"}


# ----------------------------------------------------------- the line that moves while something is awaited


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal that can erase a line, whichever one runs the tests."""
    monkeypatch.setenv("TERM", "xterm-256color")


def console(*, terminal: bool = True) -> Console:
    return Console(file=io.StringIO(), width=40, force_terminal=terminal, no_color=True)


def drawn(out: Console) -> str:
    assert isinstance(out.file, io.StringIO)
    return out.file.getvalue()


@pytest.mark.usefixtures("terminal")
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


@pytest.mark.usefixtures("terminal")
def test_what_ends_at_once_draws_nothing() -> None:
    out = console()
    spinner = Spinner(out)
    spinner.show("add runs")
    spinner.stop()
    time.sleep(DELAY + 0.1)
    assert drawn(out) == ""


@pytest.mark.parametrize(("kind", "terminal"), [("xterm-256color", False), ("dumb", True)])
@pytest.mark.usefixtures("terminal")
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


@pytest.mark.usefixtures("terminal")
def test_a_long_text_is_cut_to_the_line() -> None:
    out = console()
    spinner = Spinner(out)
    spinner.show("x" * 100)
    wait_for(lambda: "x" in drawn(out))
    spinner.stop()
    assert max(len(line) for line in drawn(out).replace("\x1b[K", "").split("\r")) < 40
