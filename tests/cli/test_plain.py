"""Commands that are made from a row of the table of verbs."""

import inspect
from typing import Any, Literal

import pytest

from treadle.cli.plain import _kind, plain_commands  # pyright: ignore[reportPrivateUsage]
from treadle.core.messages import Json

ROLE = Literal["user", "system"]


@pytest.mark.parametrize(
    ("name", "hint", "kind"),
    [
        ("text", str, str),
        ("reason", str | None, str),
        ("message", str | list[int], str),
        ("role", ROLE, ROLE),
        ("keep", int | None, int),
        ("stop", bool, bool),
        ("value", Json, None),
        ("arguments", dict[str, Json] | None, None),
    ],
)
def test_an_argument_is_text_a_number_a_flag_one_of_some_words_or_json(
    name: str, hint: Any, kind: Any
) -> None:
    assert _kind(name, hint) == kind


def test_a_plain_command_takes_the_arguments_of_its_row_and_the_name_of_the_caller() -> None:
    send = inspect.signature(plain_commands()["send"])
    assert list(send.parameters)[1:5] == ["task", "message", "role", "by"]
    assert send.parameters["role"].default == "user"
