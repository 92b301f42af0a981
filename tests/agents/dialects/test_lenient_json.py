"""The one JSON object in a text: what around it is passed over, and which objects are refused."""

from typing import Any

import pytest

from treadle.agents.dialects.lenient_json import (
    NotOneObject,
    object_in_text,
    single_object,
    without_thinking,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1}', {"a": 1}),
        ('Here it is:\n```json\n{"a": [1, {"b": null}]}\n```\nDone.', {"a": [1, {"b": None}]}),
        ("{'a': 'it\\'s \"so\"'}", {"a": 'it\'s "so"'}),
        ("{“a”： 1， “b”： 2}", {"a": 1, "b": 2}),
        ('{"a": [1, 2,],}', {"a": [1, 2]}),
        ('{"a": "two,  spaces}"}', {"a": "two,  spaces}"}),
    ],
    ids=["plain", "prose and fence", "single quotes", "full width", "comma at the end", "marks in a string"],
)
def test_an_object_is_read_with_any_text_around_it(text: str, value: Any) -> None:
    assert single_object(text) == value


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("none", "there is no JSON object"),
        ('[{"a": 1}]', "it is a list"),
        ('{"a": 1', "is not closed"),
        ('{"a": (1}', "is not valid"),
        ('{"a": 1]', "do not match"),
        ('{"a": 1}}', "a closing bracket too many"),
        ('{"a": 1, "a": 2}', "is not valid"),
        ('{"a": 1 2}', "is not valid"),
        ('{"a": true, // so\n "b": 1}', "is not valid"),
        ('{"a": "one\ntwo"}', "holds a line break"),
        ('{"a": "one', "a string in it does not end"),
        ('{"a": 1} {"b": 2}', "there are two JSON objects"),
    ],
)
def test_an_object_that_is_not_whole_is_refused_and_never_repaired(text: str, why: str) -> None:
    with pytest.raises(NotOneObject, match=why):
        single_object(text)


def test_the_first_of_two_objects_is_read_together_with_its_end() -> None:
    assert object_in_text('so {"a": 1} {"b": 2}') == ({"a": 1}, 11)


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("<think>{}</think>\n5", "\n5"),
        ("I think {}\n</think>5", "5"),
        ("5 </think> 6", "5 </think> 6"),
        ("5", "5"),
    ],
    ids=["tags", "no opening tag", "a tag within a line", "no thinking"],
)
def test_thinking_at_the_beginning_of_a_text_is_left_out(text: str, rest: str) -> None:
    assert without_thinking(text) == rest


def test_thinking_without_an_end_leaves_no_text() -> None:
    with pytest.raises(NotOneObject, match="has no end"):
        without_thinking('<think>{"a": 1}')
