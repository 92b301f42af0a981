"""Patterns that are compiled when they are first used."""

import re

import pytest

from treadle.core.lazy_pattern import lazy_pattern


def test_a_lazy_pattern_finds_what_the_compiled_one_finds() -> None:
    lazy, compiled = lazy_pattern("(a+)b", re.IGNORECASE), re.compile("(a+)b", re.IGNORECASE)
    assert lazy.sub(r"<\1>", "xAabab") == compiled.sub(r"<\1>", "xAabab") == "x<Aa><a>"
    assert lazy.search("none") is None
    assert (lazy.pattern, lazy.flags) == (compiled.pattern, compiled.flags)


def test_a_lazy_pattern_is_compiled_when_it_is_used() -> None:
    broken = lazy_pattern("(")
    with pytest.raises(re.error):
        broken.search("text")
