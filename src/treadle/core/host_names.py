"""Recognise host names (as DNS allows them) and addresses."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Final

from treadle.core.lazy_pattern import lazy_pattern

_LABEL: Final = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_NAME: Final = lazy_pattern(rf"(?i){_LABEL}(?:\.{_LABEL})*\.?")
_NUMBER: Final = lazy_pattern(r"(?i)[0-9]+|0x[0-9a-f]*")
_MOST: Final = 254
"""The longest name, in characters, with the dot at its end (RFC 1035)."""


def is_host(text: str) -> bool:
    """Return whether a text is the name of a host or an address. An IPv6 address has no brackets here.

    Some programs read a name that ends in a number as an address, such as `0x7f.1`. So it must be an address in the
    usual form.
    """
    if ":" in text or _NUMBER.fullmatch(text.rstrip(".").rpartition(".")[2]):
        try:
            ip_address(text)
        except ValueError:
            return False
        return "%" not in text
    return len(text) <= _MOST and _NAME.fullmatch(text) is not None
