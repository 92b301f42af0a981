"""One-time codes of the inspector."""

import pytest

from treadle.server import entrance
from treadle.server.entrance import SECONDS, Entrance, code_of

TOKEN = "t" * 40


def test_a_code_opens_the_page_once():
    door, code = Entrance(TOKEN), code_of(TOKEN)
    assert door.exchange(code) == TOKEN
    assert door.exchange(code) is None
    assert door.exchange(code_of(TOKEN)) == TOKEN


def test_a_code_expires_and_is_then_forgotten(monkeypatch: pytest.MonkeyPatch):
    door, code, used = Entrance(TOKEN), code_of(TOKEN), code_of(TOKEN)
    door.exchange(used)
    now = entrance.time.time()
    monkeypatch.setattr(entrance.time, "time", lambda: now + SECONDS + 1)
    assert door.exchange(code) is None
    assert door.exchange(code_of(TOKEN)) == TOKEN
    assert len(door._used) == 1


@pytest.mark.parametrize(
    "change", [lambda code: code_of("u" * 40), lambda code: f"9{code}", lambda code: code[:-1]]
)
def test_a_code_of_another_token_or_a_changed_one_is_refused(change):
    assert Entrance(TOKEN).exchange(change(code_of(TOKEN))) is None


@pytest.mark.parametrize("text", ["", ".", "..", "\ud800", "é.é.é", "a.b.c"])
def test_a_text_that_is_no_code_is_refused(text: str):
    assert Entrance(TOKEN).exchange(text) is None
