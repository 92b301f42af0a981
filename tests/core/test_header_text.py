"""Any text is the value of a header, and is read back."""

import pytest

from treadle.core.header_text import from_header, to_header

IDS = ("é", "a b", " a", '%"a"', 'a"b', "a\nb", "\U0001f600")


@pytest.mark.parametrize("text", [*IDS, "", "\0", "\ud7ff", "\U0010ffff"], ids=repr)
def test_any_text_becomes_a_header_of_printable_ascii_and_is_read_back(text: str) -> None:
    header = to_header(text)
    assert header.isascii()
    assert header.isprintable()
    assert header == header.strip() != ""
    assert from_header(header) == text


@pytest.mark.parametrize(
    "value", ['%"', '%"a', '%"%"', '%"%zz"', '%"%C3%A9"', '%"%ff"', "é", "a\tb", '%"a"b"']
)
def test_a_header_that_is_neither_ascii_nor_a_display_string_is_none(value: str) -> None:
    assert from_header(value) is None
