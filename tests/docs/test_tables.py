"""The parts of the docs that are made from the code say what the code says."""

import pytest

from tests.docs.tables import DOCS, MADE, with_made_part
from treadle import errors, events
from treadle.core import events as core_events


@pytest.mark.parametrize("name", MADE)
def test_pages_made_from_the_code_are_not_stale(name: str):
    page = (DOCS / name).read_text(encoding="utf-8")
    assert page == with_made_part(page, MADE[name]()), "run `python -m tests.docs.tables`"


def test_every_error_is_in_the_tree():
    tree = MADE["errors.md"]()
    public = [
        n for n, v in vars(errors).items() if isinstance(v, type) and issubclass(v, errors.TreadleError)
    ]
    assert [name for name in public if f"`{name}`" not in tree] == []
    assert [name for name in public if name not in str(errors.__doc__)] == []


def test_every_event_has_a_public_name():
    missing = [cls.__name__ for cls in core_events.EVENTS.values() if not hasattr(events, cls.__name__)]
    assert missing == []
    assert events.__all__ == sorted(events.__all__, key=lambda name: (not name.isupper(), name))
