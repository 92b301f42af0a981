"""How text is read from standard input, line by line."""

import io
import signal

import pytest

from treadle.cli.prompting import LinePrompt, make_prompt

pytestmark = pytest.mark.anyio


async def test_a_line_that_ends_with_a_backslash_goes_on_with_the_next(monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", io.StringIO("one\\\ntwo\\\n\nthree\n"))
    prompt = make_prompt(["/help"], lambda: "")
    assert isinstance(prompt, LinePrompt)
    assert await prompt.ask("> ") == "one\ntwo\n"
    assert await prompt.ask("> ") == "three"
    with pytest.raises(EOFError):
        await prompt.ask("> ")
    assert capsys.readouterr().out == "> one\\\n… two\\\n… \n> three\n"


async def test_ctrl_c_means_again_what_it_meant_before(monkeypatch):
    before = signal.getsignal(signal.SIGINT)
    monkeypatch.setattr("sys.stdin", io.StringIO("one\n"))
    await LinePrompt(echo=True).ask("> ")
    assert signal.getsignal(signal.SIGINT) is before
