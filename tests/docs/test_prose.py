"""The docs, the docstrings and the messages are made of short sentences, and get no worse."""

import pytest

from tests.docs import prose


def test_no_text_is_above_its_limits() -> None:
    limits = prose.limits()
    assert [
        line for text in prose.all_prose() for line in prose.exceeded(text, limits.get(text.name, {}))
    ] == []


def test_limits_are_of_texts_that_exist() -> None:
    assert set(prose.limits()) <= {text.name for text in prose.all_prose()}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One fact. Another fact.", ["One fact.", "Another fact."]),
        ("Call `a.b()`. `c.d()` comes next.", ["Call `a.b()`.", "`c.d()` comes next."]),
        ("It costs 0.5 s. It is (almost) free.", ["It costs 0.5 s.", "It is (almost) free."]),
        ("Both e.g. here and there; still one: yes.", ["Both eg here and there; still one: yes."]),
        ("Is it **bold?** Yes it is.", ["Is it **bold?", "Yes it is."]),
    ],
)
def test_a_sentence_ends_where_a_reader_would_end_it(text: str, expected: list[str]) -> None:
    assert list(prose.sentences(text)) == expected


def test_code_tables_and_headings_are_no_sentences() -> None:
    markdown = (
        "# Title\n\nText here\ngoes on.\n\n```python\nx = 1\n```\n\n| a | b |\n\n- an item\n- two items\n"
    )
    assert list(prose.paragraphs(markdown)) == ["Text here goes on.", "an item", "two items"]


def test_code_counts_as_one_word() -> None:
    assert prose.words("Call `runner.run(agent, text)` — once.") == 3


def test_arguments_are_read_one_by_one_and_apart_from_sentences() -> None:
    text = "Do it.\n\nTwo cases:\n- the first;\n- the second.\n\n    code()\n\n"
    text += "Args:\n    a: the one,\n        or b: the other.\n    c: a third."
    tree = prose.ast.parse(f'def f():\n    """{text}"""')
    found = [(" ".join(part.split()), is_argument) for part, is_argument in prose.docstrings(tree)]
    assert [part for part, is_argument in found if not is_argument] == [
        "Do it.",
        "Two cases:",
        "the first;",
        "the second.",
    ]
    assert [part for part, is_argument in found if is_argument] == ["the one, or b: the other.", "a third."]


def test_a_message_is_read_with_a_word_for_each_value() -> None:
    tree = prose.ast.parse('raise ValueError(f"the task {task!r} has no step" + " with this name")')
    assert list(prose.messages(tree)) == ["the task value has no step with this name"]


def test_a_page_with_a_long_sentence_and_a_banned_phrase_is_reported() -> None:
    text = prose.Prose("page", ["Nobody holds up no other, " + "and so on " * 10])
    assert [line.split()[1] for line in prose.exceeded(text, {})] == ["mean", "p95", "phrases"]
    assert list(prose.exceeded(text, {"mean": 99, "p95": 99, "phrases": 99})) == []
