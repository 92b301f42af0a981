"""Regular expressions that are compiled at their first use, since most processes use few of them."""

from __future__ import annotations

import re
from typing import Any, cast


def lazy_pattern(text: str, flags: re.RegexFlag = re.NOFLAG) -> re.Pattern[str]:
    """Return a pattern that is compiled at its first use. Arguments are those of `re.compile`."""
    return cast("re.Pattern[str]", _Lazy(text, flags))


class _Lazy:
    """Has the attributes of a pattern, and reads each from the compiled one at its first use."""

    def __init__(self, text: str, flags: re.RegexFlag) -> None:
        self._source = text, flags

    def __getattr__(self, name: str) -> Any:
        value = getattr(re.compile(*self._source), name)
        self.__dict__[name] = value
        return value
