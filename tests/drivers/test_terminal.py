"""Whether a process has a terminal."""

import io
import sys

import pytest

from treadle import RunOptions
from treadle.drivers.terminal import check_interaction, columns, has_terminal
from treadle.errors import ConfigurationError


class FakeTerminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_is_there_if_input_and_errors_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for streams, is_there in (
        ((FakeTerminal(), FakeTerminal()), True),
        ((FakeTerminal(), io.StringIO()), False),
        ((io.StringIO(), FakeTerminal()), False),
        ((None, FakeTerminal()), False),
    ):
        for name, stream in zip(("stdin", "stderr"), streams, strict=True):
            monkeypatch.setattr(sys, name, stream)
        assert has_terminal() is is_there
        if is_there:
            check_interaction(RunOptions(interaction="interactive"))
        else:
            with pytest.raises(ConfigurationError, match="use 'external'"):
                check_interaction(RunOptions(interaction="interactive"))
        check_interaction(RunOptions(interaction="headless"))


def test_where_no_terminal_tells_its_width_it_is_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(sys, "stderr", closed)
    assert columns() == 80
