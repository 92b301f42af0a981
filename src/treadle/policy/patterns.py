"""Patterns of names and texts in rules: `*` matches any text, `?` any character; case counts."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import translate
from functools import lru_cache
from typing import Any, cast


def texts(value: Any) -> list[str]:
    """Return a text, or the texts of a list, as a list; empty if it is neither."""
    listed: list[Any] = cast("list[Any]", value) if isinstance(value, (list, tuple)) else [value]
    return [*listed] if all(isinstance(each, str) and each for each in listed) else []


def matches(patterns: Iterable[str], text: str) -> bool:
    """Return whether a text matches one of the patterns: `*` is any text, `?` any character, case counts."""
    return any(_pattern(pattern).match(text) is not None for pattern in texts(patterns))


@lru_cache(maxsize=1024)
def _pattern(pattern: str) -> re.Pattern[str]:
    return re.compile(translate(pattern))
