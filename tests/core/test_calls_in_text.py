"""Which texts are calls: whole ones alone."""

import pytest

from treadle.core.calls_in_text import calls_in, may_be_calls, text_calls_warning

CALL = '{"name": "add", "arguments": {"a": 1}}'
ADD = ("add", {"a": 1})


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        (CALL, (ADD,)),
        (f"\n {CALL} \n", (ADD,)),
        (f"[{CALL}, {CALL}]", (ADD, ADD)),
        (f"<tool_call>\n{CALL}\n</tool_call>", (ADD,)),
        (f"```json\n{CALL}\n```", (ADD,)),
        (f"```\n[{CALL}]\n```", (ADD,)),
        ('{"name": "add", "parameters": {"a": 1}}', (ADD,)),
        ('{"type": "function", "name": "add", "arguments": {"a": 1}}', (ADD,)),
        ('{"name": "add", "arguments": {}}', (("add", {}),)),
        ('<function=add>{"a": 1}</function>', (ADD,)),
        ('<function=add>{"a": 1}</function>\n<function=add>\n{"a": 1}\n</function>\n', (ADD, ADD)),
        ('<tool_call>\n<function=add>{"a": 1}</function>\n</tool_call>', (ADD,)),
    ],
)
def test_a_whole_text_of_calls_is_read(text: str, calls: tuple[object, ...]):
    assert calls_in(text, {"add"}) == calls


@pytest.mark.parametrize(
    "text",
    [
        "",
        "add",
        CALL[:-1],
        f"I call {CALL}",
        f"{CALL} now",
        f"{CALL}\n{CALL}",
        f"<tool_call>{CALL}",
        f"```json\n{CALL}",
        f"[{CALL}",
        "[]",
        f"[{CALL}, 1]",
        f"[[{CALL}]]",
        '{"name": "other", "arguments": {}}',
        '{"name": ["add"], "arguments": {}}',
        '{"name": "add", "arguments": "{}"}',
        '{"name": "add", "arguments": [1]}',
        '{"name": "add"}',
        '{"name": "add", "arguments": {}, "more": 1}',
        '{"name": "add", "arguments": {}, "parameters": {}}',
        '{"name": "add", "name": "add", "arguments": {}}',
        '{"name": "add", "arguments": {"a": 1, "a": 2}}',
        '{"name": "add", "arguments": {"a": NaN}}',
        '{"type": "tool", "name": "add", "arguments": {}}',
        "[" * 100_000,
        '<function=add>{"a": 1}',
        '<function=add>{"a": 1</function>',
        "<function=add>[1]</function>",
        '<function=add>{"a": 1, "a": 2}</function>',
        '<function=add>{"a": "</function>"}</function>',
        '<function=add>{"a": 1}</function> now',
        '<function=add>{"a": 1}</function><function=other>{}</function>',
        "<function=>{}</function>",
        "<function=add>" * 10_000,
        "<function=add>" + "[" * 100_000 + "</function>",
    ],
)
def test_what_is_cut_or_ambiguous_or_of_an_unknown_tool_is_no_call(text: str):
    assert calls_in(text, {"add"}) == ()


@pytest.mark.parametrize(
    "text", ["", " ", "{", "[", "<", "<tool", "<tool_call>{", "<func", "<function=a", "``", "```json"]
)
def test_a_beginning_may_become_calls(text: str):
    assert may_be_calls(text)


@pytest.mark.parametrize("text", ["I", " So", "<b", "`x", "42"])
def test_other_text_is_known_at_once_to_be_none(text: str):
    assert not may_be_calls(text)


def test_the_warning_names_each_tool_once_and_what_to_write():
    text = text_calls_warning(("add", "add", "sub"))
    assert "a call of add, sub, and nothing was run" in text
    for way in ('worker="react"', 'worker="planner"', "--jinja", "CallsInText(model)", "output_mode="):
        assert way in text
