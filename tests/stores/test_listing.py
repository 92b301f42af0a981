"""What stores share about lists."""

from dataclasses import replace

import pytest

from treadle.core.events import ForkChange
from treadle.errors import ConfigurationError
from treadle.ports import TaskFigures
from treadle.stores.listing import figures_column, figures_of_column, label_key, position


@pytest.mark.parametrize("cursor", ["", "17", "t", "x.t", "-1.t", "1e3.t", "١.t"])
def test_a_cursor_that_no_page_gave_is_refused(cursor: str) -> None:
    with pytest.raises(ConfigurationError, match="cursor must be the cursor of the previous page"):
        position(cursor)


def test_a_cursor_holds_any_id() -> None:
    assert position("17.order.s1-0") == (17, "order.s1-0")


def test_figures_come_back_as_they_were_stored_but_for_the_text_of_searches() -> None:
    changes = (ForkChange("model", "provider:small"), ForkChange("result", "sold out", "look", "s1-0"))
    figures = TaskFigures(
        1, 2, 3, None, 5, 6, 7, 'a "line"\u2028', "\ud7ff", "said\0more", None, "m", changes, 2, 1
    )
    column, search = figures_column(figures)
    assert column is not None
    assert column.isascii()
    assert figures_of_column(column) == replace(figures, text="")
    common = replace(figures, fork_changes=(), shared_steps=0, undos=0)
    assert not [key for key in ('"f"', '"h"', '"b"') if key in str(figures_column(common))]
    assert search == "said\ufffdmore"
    assert figures_column(None) == (None, None)
    assert figures_of_column(None) is None


def test_a_label_is_its_own_key_unless_an_index_may_refuse_it() -> None:
    assert label_key("blue") == "blue"
    keys = {label_key(text) for text in ("x" * 201, "x" * 202, "a\0", "a\0\0")}
    assert len(keys) == 4
    assert all(key.startswith("sha256:") and len(key) < 100 for key in keys)
