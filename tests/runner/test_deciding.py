"""Asking a person at a keyboard: what is shown, and which decisions are recorded."""

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from treadle import Agent, Policy, Rule, Runner, ScriptedModel, tool
from treadle.core.display import clean, exact_json, exact_text
from treadle.errors import ConfigurationError
from treadle.llm.scripted import call, text
from treadle.results.pending import Pending
from treadle.runner.deciding import Dialogue, cells, described, edited_text

anyio = pytest.mark.anyio


class Keys:
    """A person who writes lines, and a screen that keeps them."""

    def __init__(self, *lines: str) -> None:
        self.lines = [*lines]
        self.drafts = list[str]()
        self.shown = list[str]()

    async def answer(self, mark: str, default: str = "") -> str:
        self.drafts.append(default)
        if not self.lines:
            raise EOFError
        return self.lines.pop(0)

    def line(self, *parts: Any) -> None:
        self.shown.append("".join([part if isinstance(part, str) else part[0] for part in parts]))


paid = list[int]()


@tool(needs_approval=True)
def pay(amount: int) -> str:
    """Pay."""
    paid.append(amount)
    return "paid"


@pytest.fixture
async def waiting() -> AsyncIterator[tuple[Any, str]]:
    """A task that waits for two approvals."""
    paid.clear()
    model = ScriptedModel([[call("pay", amount=5), call("pay", amount=6)], text("Done.")])
    async with Runner("memory:") as runner:
        result = await runner.run(Agent(model, name="payer", tools=[pay]), "go")
        assert result.state == "waiting"
        yield runner, result.task_id


@pytest.mark.parametrize(
    ("lines", "decided", "booked"),
    [
        (("y", "YES"), True, [5, 6]),
        (("y", "n too much"), True, [5]),
        (("n", "", "n", "no"), True, []),
        (('e {"amount": 4}', "y"), True, [4, 6]),
        (("e", '{"amount": []}', "[4]", '{"amount": 4, "amount": 9}', '{"amount": 4}', "y"), True, [4, 6]),
        (("e", "", "y", "perhaps", "?", "v", "y"), True, [5, 6]),
        (("task", "n not both"), True, [5]),
        (("", "y"), False, [6]),
        ((), False, []),
    ],
)
@anyio
async def test_what_a_person_writes_is_decided(
    waiting: Any, lines: tuple[str, ...], decided: bool, booked: list[int]
) -> None:
    runner, task_id = waiting
    keys = Keys(*lines)
    dialogue = Dialogue(runner, keys, keys.line, by="ada")
    items = (await runner.list_pending(task_id)).items
    assert await dialogue.decide(items) is decided
    await runner.resume(task_id)
    assert sorted(paid) == booked
    assert not keys.lines


@anyio
async def test_the_argument_that_a_rule_wants_is_written_by_the_approver() -> None:
    paid.clear()
    model = ScriptedModel([call("pay", amount=5), text("Done.")])
    rule = Rule("how-much", "ask", tool="pay", argument="amount")
    async with Runner("memory:", policy=Policy(rule)) as runner:
        result = await runner.run(Agent(model, name="payer", tools=[pay]), "go")
        keys = Keys()
        assert not await Dialogue(runner, Keys("y", ""), keys.line).decide(result.pending)
        assert await Dialogue(runner, Keys("y", "much", "7"), keys.line).decide(result.pending)
        await runner.resume(result.task_id)
    assert paid == [7]
    assert any("you write:       amount" in line for line in keys.shown)
    assert any("amount: should be an integer, got 'much'" in line for line in keys.shown)


@anyio
async def test_a_rule_that_asks_about_every_call_takes_an_approval_for_one() -> None:
    paid.clear()
    model = ScriptedModel([call("pay", amount=5), text("Done.")])
    rule = Rule("each", "ask", tool="pay", every_call=True)
    async with Runner("memory:", policy=Policy(rule)) as runner:
        result = await runner.run(Agent(model, name="payer", tools=[pay]), "go")
        keys = Keys("task", "y")
        assert await Dialogue(runner, keys, keys.line).decide(result.pending)
        await runner.resume(result.task_id)
    assert paid == [5]
    assert any("asks about every call" in line for line in keys.shown)


@anyio
async def test_stop_denies_and_cancels(waiting: Any) -> None:
    runner, task_id = waiting
    keys = Keys("stop", "enough")
    items = (await runner.list_pending(task_id)).items
    assert await Dialogue(runner, keys, keys.line).decide(items[:1])
    assert (await runner.result(task_id)).state == "cancelled"
    assert paid == []


@anyio
async def test_an_error_in_the_arguments_is_shown_and_what_was_written_is_there_to_be_mended(
    waiting: Any,
) -> None:
    runner, task_id = waiting
    keys = Keys("e", '{"amount": "x"}', "", "")
    items = (await runner.list_pending(task_id)).items
    assert not await Dialogue(runner, keys, keys.line).decide(items[:1])
    assert keys.drafts == ["", '{"amount":5}', '{"amount": "x"}', ""]
    assert any("amount: should be an integer" in line for line in keys.shown)


@anyio
async def test_a_request_that_was_decided_elsewhere_is_told_and_is_not_open(waiting: Any) -> None:
    runner, task_id = waiting
    items = (await runner.list_pending(task_id)).items
    await runner.deny(task_id, items[0].request_id, by="bob")
    keys = Keys("y")
    assert await Dialogue(runner, keys, keys.line).decide(items[:1])
    assert "denied by bob already" in keys.shown[-1]


@anyio
async def test_arguments_are_edited_in_an_editor(waiting: Any, monkeypatch: Any, tmp_path: Any) -> None:
    runner, task_id = waiting
    script = tmp_path / "editor"
    script.write_text('#!/bin/sh\nsed -i -e \'s/"many"/7/\' -e \'s/: 5/: "many"/\' "$1"\n')
    script.chmod(0o755)
    monkeypatch.setenv("VISUAL", str(script))
    keys = Keys("editor", "y")
    items = (await runner.list_pending(task_id)).items
    assert await Dialogue(runner, keys, keys.line).decide(items[:1])
    assert any("should be an integer" in line for line in keys.shown)
    await runner.resume(task_id)
    assert paid == [7]


def test_an_editor_that_fails_is_named(monkeypatch: Any) -> None:
    monkeypatch.setenv("VISUAL", "/nowhere/editor -w")
    with pytest.raises(ConfigurationError, match="/nowhere/editor -w"):
        edited_text("{}")


# ----------------------------------------------------------------------------------------------- shown

TRICKS = {
    "turned": "\u202eeruces\u202c",
    "joined": "a\u200db\ufe0f\u3164\u00a0c",
    "erased": "\x1b[2K\r\x07\x7f",
    "asks": "\n\nmay it run? [y/n/e, ? lists all, Enter: later] y\n",
    "far": "\U000e0100 日本語 " * 30,
}


@pytest.mark.parametrize("width", [40, 80, 120])
def test_no_text_of_a_model_looks_like_a_question_or_hides(width: int) -> None:
    item = Pending(
        *("s1-0-ask1", "approval", "pay", TRICKS, "pay waits"),
        rule="cap",
        reason="ask\nmay it run? [y/n/e]\u2028x",
        preview=TRICKS["asks"] + TRICKS["erased"],
    )
    keys = Keys()
    for parts in described(item, width):
        keys.line(*parts)
    assert all(cells(line) <= width for line in keys.shown)
    assert all(line.startswith("  ") for line in keys.shown)
    assert all(line.isprintable() for line in keys.shown)
    assert not any(line.lstrip().startswith("may it run?") for line in keys.shown)
    lines = keys.shown[keys.shown.index("    it would run:") + 1 : keys.shown.index("    what it does:")]
    shown = "".join([line.removeprefix("  │ ") for line in lines])
    assert json.loads(shown.removeprefix("pay(").removesuffix(")")) == TRICKS, "they are exact"


def test_a_long_value_is_cut_on_the_screen_until_all_of_it_is_asked_for() -> None:
    item = Pending("s1-0-ask1", "approval", "pay", {"note": "x" * 10_000}, "pay waits")
    cut = "\n".join(
        [
            "".join([part if isinstance(part, str) else part[0] for part in line])
            for line in described(item, 80)
        ]
    )
    assert "10,016 characters in all: v shows them" in cut
    assert len(cut) < 5_000
    keys = Keys()
    for parts in described(item, 80, None):
        keys.line(*parts)
    assert sum([line.count("x") for line in keys.shown]) == 10_000


@pytest.mark.parametrize(
    "value", [TRICKS, ["\ud800", "\U0001f468\u200d\U0001f469"], {"\u202e": None}, 1.5, "\x85"]
)
def test_exact_json_reads_back_and_holds_nothing_unseen(value: Any) -> None:
    shown = exact_json(value)
    assert json.loads(shown) == value
    assert shown.isprintable()
    assert "\u200d" not in shown


def test_the_lines_of_a_long_reason_break_between_words() -> None:
    reason = "the model wants to send what it has read to a stranger, " * 5
    item = Pending("s1-0-ask1", "approval", "pay", {}, "pay waits", reason=reason, untrusted=("mail",))
    keys = Keys()
    for parts in described(item, 50):
        keys.line(*parts)
    pieces = [line.removeprefix("  │ ") for line in keys.shown if line.startswith("  │ ")]
    assert "".join(pieces) == reason
    assert all(piece.endswith(" ") for piece in pieces)
    assert any("it has read" in line for line in keys.shown)


def test_untrusted_origins_that_the_reason_names_are_not_said_again() -> None:
    reason = "It sends data out; the model has read untrusted content from mail."
    item = Pending("s1-0-ask1", "approval", "pay", {}, "pay waits", reason=reason, untrusted=("mail",))
    shown = "".join([str(part) for parts in described(item, None) for part in parts])
    assert shown.count("mail") == 1


@anyio
async def test_only_answers_that_hold_are_listed(waiting: Any) -> None:
    runner, task_id = waiting
    (item, *_) = await runner.list_pending(task_id)
    for every_call, listed in ((True, False), (False, True)):
        keys = Keys("?", "")
        await Dialogue(runner, keys, keys.line).decide([replace(item, every_call=every_call)])
        assert any(line.startswith("  always") for line in keys.shown) is listed


def test_a_hidden_character_has_one_form_in_texts_and_in_arguments() -> None:
    assert exact_text("a\U000e0041") == exact_json("a\U000e0041").strip('"') == clean("a\U000e0041")
