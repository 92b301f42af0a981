"""Calls of the planner as JSON in text, and their readings."""

import pytest

from tests.agents.dialects.readings import check_reading
from tests.agents.dialects.transcripts import PLANNER, Case


@pytest.mark.parametrize("case", PLANNER, ids=str)
def test_a_text_is_read_as_it_is_meant(case: Case) -> None:
    check_reading("planner", case)


def test_every_text_of_the_table_has_a_name_of_its_own() -> None:
    assert len({case.name for case in PLANNER}) == len(PLANNER)
