"""Objects that a model writes are taken only if they are complete and unambiguous."""

import pytest

from treadle.core.strict_json import parse_object


def test_a_complete_object_is_returned() -> None:
    assert parse_object('{"a": [1, 2.5, null, "x"], "b": {}}') == {"a": [1, 2.5, None, "x"], "b": {}}


@pytest.mark.parametrize(
    "raw",
    [
        "",
        "[1]",
        '"text"',
        "null",
        '{"a": 1',
        '{"a": 1, "a": 2}',
        '{"a": {"b": 1, "b": 1}}',
        '{"a": NaN}',
        '{"a": 1e999}',
    ],
)
def test_anything_else_is_refused(raw: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_object(raw)
