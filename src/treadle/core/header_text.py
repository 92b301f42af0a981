"""Encode any text as the value of an HTTP header, which allows only printable ASCII.

Printable ASCII is sent unchanged. Other text is sent as a display string of RFC 9651: `%"caf%c3%a9"`.
"""

from __future__ import annotations

import re
from typing import Final

_BEGIN: Final = '%"'
_DISPLAY_STRING: Final = re.compile(r'%"((?:[ !#$&-~]|%[0-9a-f]{2})*)"')
_PAIR: Final = re.compile(rb"%([0-9a-f]{2})")


def to_header(text: str) -> str:
    """Return text as the value of a header."""
    fits = text.isascii() and text.isprintable() and text == text.strip()
    if fits and text and not text.startswith(_BEGIN):
        return text
    plain = [
        chr(byte) if 32 <= byte < 127 and chr(byte) not in '%"' else f"%{byte:02x}" for byte in text.encode()
    ]
    return f'{_BEGIN}{"".join(plain)}"'


def from_header(value: str) -> str | None:
    """Return the text of a header's value, or None if the value is neither printable ASCII nor a display string."""
    if not value.startswith(_BEGIN):
        return value if value.isascii() and value.isprintable() else None
    quoted = _DISPLAY_STRING.fullmatch(value)
    if quoted is None:
        return None
    try:
        return _PAIR.sub(lambda pair: bytes.fromhex(pair[1].decode()), quoted[1].encode()).decode()
    except UnicodeDecodeError:
        return None
