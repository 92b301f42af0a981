"""Regular expressions that are compiled when they are first used: most processes never use most of them."""

from __future__ import annotations

import re
from typing import Any, cast


def lazy_pattern(text: str, flags: re.RegexFlag = re.NOFLAG) -> re.Pattern[str]:
    """Return a pattern that is compiled when it is first used; `text` and `flags` are as for `re.compile`."""
    return cast("re.Pattern[str]", _Lazy(text, flags))


class _Lazy:
    """Has the attributes of a pattern, each taken from the compiled one when it is first read."""

    def __init__(self, text: str, flags: re.RegexFlag) -> None:
        self._source = text, flags

    def __getattr__(self, name: str) -> Any:
        value = getattr(re.compile(*self._source), name)
        self.__dict__[name] = value
        return value
