"""Texts of models without tool calling, with their meanings, written by hand."""

from dataclasses import dataclass
from typing import Any

from treadle.agents.dialects.dialect import Reading


@dataclass(frozen=True)
class Case:
    """A text and its meaning; of an unreadable text, a part of the message that says why."""

    name: str
    text: str
    means: Reading
    problem: str | None = None

    def __str__(self) -> str:
        return self.name.replace(" ", "_")


def runs(
    name: str, text: str, tool: str, arguments: dict[str, Any], thought: str = "", thinking: str = ""
) -> Case:
    return Case(name, text, Reading(thinking=thinking, thought=thought, name=tool, arguments=arguments))


def answers(name: str, text: str, answer: str, thought: str = "", thinking: str = "") -> Case:
    return Case(name, text, Reading(thinking=thinking, thought=thought, answer=answer))


def unreadable(
    name: str, text: str, problem: str, tool: str = "", thought: str = "", thinking: str = ""
) -> Case:
    return Case(name, text, Reading(thinking=thinking, thought=thought, name=tool, problem=""), problem)


AB = {"a": 363, "b": 42}
ADD = 'Thought: I need the sum.\nAction: add\nAction Input: {"a": 363, "b": 42}'
SUM = "I need the sum."

REACT = [
    # ------------------------------------------------------------------------------------ as it is asked for
    runs("a call", ADD, "add", AB, SUM),
    runs("a call that ends in a line break", ADD + "\n", "add", AB, SUM),
    runs("a call without a thought", 'Action: add\nAction Input: {"a": 363, "b": 42}', "add", AB),
    runs("a call without arguments", "Thought: Now.\nAction: now\nAction Input: {}", "now", {}, "Now."),
    runs("blank lines everywhere", ADD.replace("\n", "\n\n  \n"), "add", AB, SUM),
    runs("line ends of another system", ADD.replace("\n", "\r\n"), "add", AB, SUM),
    answers("an answer", "Thought: That is it.\nAnswer: It is 405.", "It is 405.", "That is it."),
    answers("an answer without a thought", "Answer: 405", "405"),
    answers("an answer of several lines", "Thought: x\nAnswer: One.\n\nTwo.\n", "One.\n\nTwo.", "x"),
    answers("an empty answer", "Thought: There is nothing.\nAnswer:", "", "There is nothing."),
    answers("a falsy answer", "Answer: 0", "0"),
    answers("a final answer", "Thought: x\nFinal Answer: 7", "7", "x"),
    answers("text without any marker", "It is 405, I am sure.", "It is 405, I am sure."),
    answers("code without any marker", "```python\nprint(1)\n```", "```python\nprint(1)\n```"),
    # ------------------------------------------------------------------------------------------ the envelope
    runs(
        "prose before the first marker", "Sure, let me see!\n" + ADD, "add", AB, "Sure, let me see!\n" + SUM
    ),
    runs("a thought of several lines", ADD.replace("sum.", "sum.\nOf both."), "add", AB, SUM + "\nOf both."),
    runs("two thoughts", "Thought: One.\nThought: Two.\nAction: f\nAction Input: {}", "f", {}, "One.\nTwo."),
    runs("bold markers", "**Thought:** x\n**Action:** add\n**Action Input:** {}", "add", {}, "x"),
    runs(
        "bold markers before their colons",
        "**Thought**: x\n**Action**: add\n**Action Input**: {}",
        "add",
        {},
        "x",
    ),
    runs("headings", "### Thought: x\n### Action: add\n### Action Input:\n{}", "add", {}, "x"),
    runs("numbered markers", "Thought 1: x\nAction 1: add\nAction Input 1: {}", "add", {}, "x"),
    answers(
        "a quotation of a call", "> Action: pay\n> Action Input: {}", "> Action: pay\n> Action Input: {}"
    ),
    unreadable(
        "a thought that quotes a call",
        "Thought: It says:\n> Action: pay\n> Action Input: {}",
        "neither",
        thought="It says:\n> Action: pay\n> Action Input: {}",
    ),
    unreadable(
        "a plan in a list",
        "Thought: first\n- Action: add\n- Answer: 5",
        "neither",
        thought="first\n- Action: add\n- Answer: 5",
    ),
    runs("capitals", "THOUGHT: x\nACTION: add\nACTION INPUT: {}", "add", {}, "x"),
    runs("small letters", "thought: x\naction: add\naction input: {}", "add", {}, "x"),
    runs("an underscore in the marker", "Thought: x\nAction: add\nAction_Input: {}", "add", {}, "x"),
    runs(
        "full-width colons",
        'Thought：我需要和。\nAction：add\nAction Input：{"a": 1}',
        "add",
        {"a": 1},
        "我需要和。",
    ),
    runs(
        "full-width marks in the object",
        'Action: add\nAction Input: {"a"：1，"b"：2}',
        "add",
        {"a": 1, "b": 2},
    ),
    runs("all on one line", 'Action: add Action Input: {"a": 1}', "add", {"a": 1}),
    runs("a fence around the object", 'Action: add\nAction Input:\n```json\n{"a": 1}\n```', "add", {"a": 1}),
    runs("a fence around it all", "```\n" + ADD + "\n```", "add", AB, SUM),
    answers("a fence around an answer", "```\nThought: x\nAnswer: 5\n```", "5", "x"),
    answers("a fence in an answer", "Answer: so:\n```\nx = 1\n```", "so:\n```\nx = 1\n```"),
    runs("back quotes around the name", "Action: `add`\nAction Input: {}", "add", {}),
    runs("quotes around the name", 'Action: "add"\nAction Input: {}', "add", {}),
    runs("a full stop behind the name", "Action: add.\nAction Input: {}", "add", {}),
    runs("text in brackets behind the name", "Action: add (the calculator)\nAction Input: {}", "add", {}),
    runs("empty brackets behind the name", "Action: add()\nAction Input: {}", "add", {}),
    runs("the name on the next line", "Action:\n  add\nAction Input: {}", "add", {}),
    runs("back quotes around the object", 'Action: add\nAction Input: `{"a": 1}`', "add", {"a": 1}),
    runs("quotes around the object", "Action: add\nAction Input: '{\"a\": 1}'", "add", {"a": 1}),
    runs("prose around the object", 'Action: add\nAction Input: these: {"a": 1} as said.', "add", {"a": 1}),
    runs(
        "an object of several lines",
        'Action: add\nAction Input: {\n  "a": 1,\n  "b": 2\n}',
        "add",
        {"a": 1, "b": 2},
    ),
    runs(
        "single quotes", "Action: say\nAction Input: {'text': 'it\\'s \"so\"'}", "say", {"text": 'it\'s "so"'}
    ),
    runs("typographic quotes", "Action: say\nAction Input: {“text”: “hi”}", "say", {"text": "hi"}),
    runs(
        "commas before closing brackets",
        'Action: f\nAction Input: {"a": [1, 2,], "b": 3,}',
        "f",
        {"a": [1, 2], "b": 3},
    ),
    runs(
        "other scripts",
        'Action: say\nAction Input: {"текст": "日本語 🙂 مرحبا"}',
        "say",
        {"текст": "日本語 🙂 مرحبا"},
    ),
    runs("escapes", r"Action: say" + "\nAction Input: " + r'{"t": "a\nb\u00e9\"}"}', "say", {"t": 'a\nbé"}'}),
    runs(
        "deep values",
        'Action: f\nAction Input: {"a": {"b": [{"c": null}, true, -1.5e3]}}',
        "f",
        {"a": {"b": [{"c": None}, True, -1500.0]}},
    ),
    runs(
        "markers inside a string",
        'Action: say\nAction Input: {"t": "Action: rm\\nObservation: 5"}',
        "say",
        {"t": "Action: rm\nObservation: 5"},
    ),
    runs(
        "braces inside a string", 'Action: say\nAction Input: {"t": "}{ ] \\" {"}', "say", {"t": '}{ ] " {'}
    ),
    # ----------------------------------------------------------------------------- what does not count
    runs("an observation of its own", ADD + "\nObservation: 405\nThought: x\nAnswer: 405", "add", AB, SUM),
    runs(
        "an observation and a second call",
        ADD + '\nObservation: 405\nAction: pay\nAction Input: {"n": 1}',
        "add",
        AB,
        SUM,
    ),
    runs("a second call", ADD + '\nAction: pay\nAction Input: {"n": 1}', "add", AB, SUM),
    runs("an answer behind a call", ADD + "\nAnswer: 405", "add", AB, SUM),
    runs("a thought behind a call", ADD + "\nThought: and now I wait", "add", AB, SUM),
    answers("an observation behind an answer", "Answer: 5\nObservation: well done", "5"),
    answers(
        "a line of an answer that looks like a call",
        "Answer: genres\nAction: Die Hard\nThought: deep",
        "genres\nAction: Die Hard\nThought: deep",
    ),
    runs(
        "drafts of calls in thinking",
        '<think>\nAction: pay\nAction Input: {"n": 1}\n</think>\nAction: f\nAction Input: {}',
        "f",
        {},
        thinking='Action: pay\nAction Input: {"n": 1}',
    ),
    answers("thinking and an answer", "<think>easy</think>Answer: 5", "5", thinking="easy"),
    answers("thinking and plain text", "<think>easy</think>\n\nIt is 5.", "It is 5.", thinking="easy"),
    answers(
        "drafts before the end of thinking",
        "hm\nAction: pay\nAction Input: {}\n</think>\nAnswer: 5",
        "5",
        "hm",
    ),
    answers("no action, and an answer", "Thought: x\nAction: None\nAnswer: 4", "4", "x"),
    # ------------------------------------------------------------------------------------------ unreadable
    unreadable("nothing", "", "you wrote nothing"),
    unreadable("blanks", " \n ", "you wrote nothing"),
    unreadable("a thought alone", "Thought: hm", 'neither an "Action:" nor', thought="hm"),
    unreadable("an observation alone", "Observation: 5", "you wrote an observation"),
    unreadable("thinking without an end", "<think>hm", "no end", thinking="hm"),
    unreadable("thinking and nothing", "<think>hm</think>", "you wrote nothing", thinking="hm"),
    unreadable("an object that is not closed", 'Action: add\nAction Input: {"a": 1', "not closed", "add"),
    unreadable(
        "an object that an observation breaks off",
        'Action: add\nAction Input: {"a": 1\nObservation: }',
        "not closed",
        "add",
    ),
    unreadable("a string that is not closed", 'Action: add\nAction Input: {"a": "x', "not closed", "add"),
    unreadable("a list that is not closed", 'Action: add\nAction Input: {"a": [1, 2}', "brackets", "add"),
    unreadable("a line break in a string", 'Action: say\nAction Input: {"t": "a\nb"}', "line break", "say"),
    unreadable("a bracket too many", 'Action: add\nAction Input: {"a": 1}}', "too many", "add"),
    unreadable("a bare word", 'Action: add\nAction Input: {"a": yes}', "not valid", "add"),
    unreadable("a comment", 'Action: add\nAction Input: {"a": 1 // one\n}', "not valid", "add"),
    unreadable("no number", 'Action: add\nAction Input: {"a": NaN}', "not JSON", "add"),
    unreadable("a key twice", 'Action: add\nAction Input: {"a": 1, "a": 2}', "repeated", "add"),
    unreadable("two commas", 'Action: add\nAction Input: {"a": 1,, "b": 2}', "not valid", "add"),
    unreadable("a comma and nothing", "Action: add\nAction Input: {,}", "not valid", "add"),
    unreadable("two numbers in a row", 'Action: add\nAction Input: {"a": 1 2}', "not valid", "add"),
    unreadable("two objects", 'Action: add\nAction Input: {"a": 1}\n{"a": 2}', "two JSON objects", "add"),
    unreadable("a list of objects", 'Action: add\nAction Input: [{"a": 1}]', "a list", "add"),
    unreadable(
        "plain text for arguments", "Action: search\nAction Input: oak trees", "no JSON object", "search"
    ),
    unreadable("no input", "Thought: x\nAction: now", 'no "Action Input:"', "now", "x"),
    unreadable("no input but an observation", "Action: now\nObservation: 5", 'no "Action Input:"', "now"),
    unreadable("an empty input", "Action: now\nAction Input:", "no JSON object", "now"),
    unreadable("no name", "Action:\nAction Input: {}", "names no tool"),
    unreadable("an input alone", 'Action Input: {"a": 1}', 'without an "Action:"'),
    unreadable("two names", "Action: a\nAction: b\nAction Input: {}", 'no "Action Input:"', "a"),
    unreadable("a call and an answer in one", "Action: add\nAnswer: 5", 'no "Action Input:"', "add"),
    unreadable("arguments behind the name", 'Action: add {"a": 1}', 'no "Action Input:"', 'add {"a": 1}'),
]

CALL = '{"thought": "I need the sum.", "name": "add", "arguments": {"a": 363, "b": 42}}'


def finishes(name: str, text: str, answer: str, thought: str = "") -> Case:
    return Case(name, text, Reading(thought=thought, answer=answer))


PLANNER = [
    runs("a call", CALL, "add", AB, SUM),
    runs("a call without a thought", '{"name": "now", "arguments": {}}', "now", {}),
    runs("a call with no thought", '{"thought": null, "name": "now", "arguments": {}}', "now", {}),
    runs("keys in another order", '{"arguments": {"a": 1}, "name": "f", "thought": "t"}', "f", {"a": 1}, "t"),
    runs("a fence", f"```json\n{CALL}\n```", "add", AB, SUM),
    runs("prose", f"Here you are:\n{CALL}\nDone.", "add", AB, SUM),
    runs("single quotes", "{'name': 'f', 'arguments': {'a': 'b',},}", "f", {"a": "b"}),
    runs("several lines", CALL.replace(", ", ",\n  "), "add", AB, SUM),
    runs("a second call", CALL + '\n{"name": "pay", "arguments": {"n": 1}}', "add", AB, SUM),
    runs(
        "an observation of its own",
        CALL + '\nObservation: 405\n{"name": "finish", "arguments": {"answer": 405}}',
        "add",
        AB,
        SUM,
    ),
    runs(
        "a call inside an argument",
        '{"name": "say", "arguments": {"t": "{\\"name\\": \\"pay\\"}"}}',
        "say",
        {"t": '{"name": "pay"}'},
    ),
    runs(
        "thinking",
        '<think>{"name": "pay", "arguments": {}}</think>' + CALL,
        "add",
        AB,
        SUM,
        '{"name": "pay", "arguments": {}}',
    ),
    finishes(
        "an answer",
        '{"thought": "t", "name": "finish", "arguments": {"answer": "It is 405."}}',
        '"It is 405."',
        "t",
    ),
    finishes("a number", '{"name": "finish", "arguments": {"answer": 405}}', "405"),
    finishes("zero", '{"name": "finish", "arguments": {"answer": 0}}', "0"),
    finishes("null", '{"name": "finish", "arguments": {"answer": null}}', "null"),
    finishes("false", '{"name": "finish", "arguments": {"answer": false}}', "false"),
    finishes("an empty text", '{"name": "finish", "arguments": {"answer": ""}}', '""'),
    finishes("an empty list", '{"name": "finish", "arguments": {"answer": []}}', "[]"),
    finishes("an object", '{"name": "finish", "arguments": {"answer": {"k": [1]}}}', '{"k": [1]}'),
    unreadable("nothing", "", "you wrote nothing"),
    unreadable("plain text", "It is 405.", "no JSON object"),
    unreadable("an object that is not closed", CALL[:-1], "not closed"),
    unreadable("half an object", CALL[: len(CALL) // 2], "not closed"),
    unreadable("a list", f"[{CALL}]", "a list"),
    unreadable("no arguments", '{"name": "now"}', '"arguments"', "now"),
    unreadable("arguments that are a list", '{"name": "now", "arguments": [1]}', '"arguments"', "now"),
    unreadable("no name", '{"arguments": {}}', '"name"'),
    unreadable("an empty name", '{"name": " ", "arguments": {}}', '"name"', " "),
    unreadable(
        "arguments beside the call", '{"name": "add", "arguments": {"a": 1}, "b": 2}', "a key 'b'", "add"
    ),
    unreadable(
        "a thought that is no text", '{"thought": 1, "name": "now", "arguments": {}}', '"thought"', "now"
    ),
    unreadable("an answer without its name", '{"name": "finish", "arguments": {}}', '"answer"', "finish"),
    unreadable(
        "an answer and more", '{"name": "finish", "arguments": {"answer": 1, "b": 2}}', '"answer"', "finish"
    ),
    unreadable("a key twice", '{"name": "f", "name": "g", "arguments": {}}', "repeated"),
    unreadable(
        "thinking without an end",
        '<think>{"name": "pay", "arguments": {}}',
        "no end",
        thinking='{"name": "pay", "arguments": {}}',
    ),
]
