"""Texts in the ReAct protocol, and their readings."""

import pytest

from tests.agents.dialects.readings import check_reading
from tests.agents.dialects.transcripts import REACT, Case


@pytest.mark.parametrize("case", REACT, ids=str)
def test_a_text_is_read_as_it_is_meant(case: Case) -> None:
    check_reading("react", case)


def test_every_text_of_the_table_has_a_name_of_its_own() -> None:
    assert len(REACT) >= 60
    assert len({case.name for case in REACT}) == len(REACT)
