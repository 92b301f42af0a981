"""Answers that end early: which finish of an answer is an error of the model, and of which kind."""

from typing import get_args

import pytest

from treadle.agents.finish_reasons import REASONS, WITHHELD, early_finish
from treadle.core.model import Finish


@pytest.mark.parametrize(
    ("finish", "kind"),
    [
        ("stop", None),
        ("tool_calls", None),
        ("length", "truncated"),
        ("content_filter", "refused"),
        ("refusal", "refused"),
        ("error", "unknown"),
        ("unknown", None),
    ],
)
def test_an_answer_that_ended_early_is_an_error_of_its_kind(finish: Finish, kind: str | None) -> None:
    error = early_finish(finish, "step s1: ")
    assert (error.kind if error is not None else None) == kind
    if error is not None:
        assert str(error) == f"step s1: {REASONS[finish]}"


def test_every_finish_but_that_of_a_whole_answer_has_a_reason() -> None:
    assert {*REASONS, "stop", "tool_calls"} == set(get_args(Finish))
    assert set(REASONS) > WITHHELD
