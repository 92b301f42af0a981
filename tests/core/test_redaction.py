"""Secrets are found in every form in which they are written, and ordinary text stays as it is."""

import base64
import codecs
import html
import json
import time
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.core.data import frozen
from treadle.core.redaction import (
    SECRET,
    Secrets,
    hide_named,
    is_secret_name,
    named_secrets,
    secrets_of,
    url_secrets,
)

KEY = "sk-proj-AbC123dEf456GhI789jKl012MnO345"
RAW = KEY.encode()


def each(template, data=RAW):
    return "".join(template.format(byte) for byte in data)


NEAR = {
    "as it is": KEY,
    "in capitals": KEY.upper(),
    "over two lines": f"{KEY[:11]}\n{KEY[11:]}",
    "over three lines of a header": f"{KEY[:7]}\r\n {KEY[7:20]}\r\n {KEY[20:]}",
    "with spaces": " ".join(KEY),
    "with zero-width spaces": "\u200b".join(KEY),
    "with soft hyphens": "\u00ad".join(KEY),
    "with accents": "\u0301".join(KEY),
    "in wide letters": "".join(chr(ord(char) + 0xFEE0) for char in KEY),
    "in markup": f"<b>{KEY[:9]}</b><i class='q'>{KEY[9:]}</i>",
    "around a comment": f"{KEY[:9]}<!-- no -->{KEY[9:]}",
    "in a link": f'<a href="x?k={KEY}">x</a>',
    "as entities": each("&#{};"),
    "as hexadecimal entities": each("&#x{:x};"),
    "in JSON": json.dumps({KEY: [KEY]}),
    "in JSON in JSON in JSON": json.dumps(json.dumps(json.dumps({"k": KEY}))),
    "a list of characters": json.dumps(list(KEY)),
    "joined in source code": f'"{KEY[:9]}" + "{KEY[9:]}"',
    "over an escaped line end": f"{KEY[:9]}\\n{KEY[9:]}",
    "escaped in JSON": each("\\u{:04x}"),
    "escaped in JSON twice": each("\\\\u{:04X}"),
    "escaped in part": KEY.replace("A", "\\u0041").replace("-", "\\u002d"),
    "escaped in JavaScript": each("\\u{{{:x}}}"),
    "escaped in C": each("\\x{:02x}"),
    "in octal": each("\\{:03o}"),
    "in a URL": each("%{:02X}"),
    "in a URL in part": KEY.replace("A", "%41").replace("-", "%2d"),
    "in a URL twice": each("%25{:02x}"),
    "in old JavaScript": each("%u{:04x}"),
    "in a mail": each("={:02X}"),
    "over a line of a mail": f"{KEY[:8]}=\r\n{KEY[8:]}",
    "in base64": base64.b64encode(RAW).decode(),
    "in base64, one byte on": base64.b64encode(b"x" + RAW + b"yy").decode(),
    "in base64, two bytes on": base64.b64encode(b"xx" + RAW + b"y").decode(),
    "in base64 for URLs": base64.urlsafe_b64encode(b">>?" + RAW).decode().rstrip("="),
    "in lines of base64": base64.encodebytes(b'{"key": "' + RAW * 2 + b'"}').decode(),
    "in hexadecimal": RAW.hex(),
    "in capital hexadecimal": RAW.hex(":").upper(),
}
FAR = {
    "cut": f"{KEY[:30]}...",
    "without its beginning": f"...{KEY[-20:]}",
    "in two halves": f"{KEY[:19]} and then {KEY[19:]}",
    "as bytes": ", ".join(f"0x{byte:02x}" for byte in RAW),
    "as code points": " ".join(f"U+{byte:04X}" for byte in RAW),
    "as numbers": str(list(RAW)),
    "in bits": " ".join(f"{byte:08b}" for byte in RAW),
    "rotated": codecs.encode(KEY, "rot13"),
    "backwards": KEY[::-1],
    "in base32": base64.b32encode(b"x" + RAW).decode(),
    "in base64 of UTF-16": base64.b64encode(KEY.encode("utf-16")).decode(),
    "in base64 of base64": base64.b64encode(base64.b64encode(RAW)).decode(),
    "in base64 of JSON of base64": base64.b64encode(
        json.dumps({"a": [base64.b64encode(RAW).decode()]}).encode()
    ).decode(),
    "in base64 of hexadecimal": base64.b64encode(RAW.hex().encode()).decode(),
    "in hexadecimal of base64": base64.b64encode(RAW).hex(),
    "in base64 of a URL": base64.b64encode(each("%{:02X}").encode()).decode(),
    "in base64 of lines": base64.b64encode(f"{KEY[:11]}\n{KEY[11:]}".encode()).decode(),
}


@pytest.mark.parametrize("written", NEAR)
def test_a_secret_is_hidden_however_it_is_written(written):
    for text in (f"Bad key: {NEAR[written]} is wrong.", f'{{"x{NEAR[written]}":\ty}}'):
        hidden = Secrets([KEY]).hide(text)
        assert SECRET in hidden
        assert KEY[10:20].lower() not in hidden.lower()
        assert Secrets([KEY]).hide(hidden, deep=True) == hidden


@pytest.mark.parametrize("written", FAR)
def test_secrets_are_also_found_in_decoded_forms_of_hostile_text(written):
    for text in (f"Bad key: {FAR[written]} is wrong.", f'x{FAR[written]}"y'):
        hidden = Secrets([KEY]).hide(text, deep=True)
        assert SECRET in hidden
        assert Secrets([KEY]).hide(hidden, deep=True) == hidden


@given(st.text(), st.text(), st.integers(0, 40), st.sampled_from(["", "\n", "\r\n", " ", "\u200b", "\t"]))
def test_wherever_a_secret_stands_it_is_hidden(before, after, at, between):
    text = f"{before} {KEY[:at]}{between}{KEY[at:]} {after}"
    for deep in (False, True):
        hidden = Secrets([KEY]).hide(text, deep=deep)
        assert SECRET in hidden
        assert KEY not in hidden
        assert Secrets([KEY]).hide(hidden, deep=deep) == hidden


@pytest.mark.parametrize(
    "value", ["", "test", "sk-", "none", "1234567", "whatever", "not-x", "placeholder", "Password"]
)
def test_values_that_occur_in_ordinary_text_are_not_secrets(value):
    text = f"A test: whatever the placeholder is, sk-1 or none, not-x is the Password 1234567. {value}"
    assert Secrets([value]).hide(text, deep=True) == text
    assert not Secrets([value])


@pytest.mark.parametrize("value", ["tr0ub4dor", "12345678", "not-needed", "top/secret+value", "hunterXYZ"])
def test_a_weak_secret_is_hidden_as_a_whole_and_its_parts_are_not(value):
    text = f"A top secret value is not needed by a hunter; {quote(value, safe='')}; {value}."
    hidden = Secrets([value]).hide(text)
    assert hidden == f"A top secret value is not needed by a hunter; {SECRET}; {SECRET}."


def test_text_that_only_begins_like_a_secret_stays():
    for text in (
        "sk-proj-Zz9 is another key",
        "The quick brown fox jumps over 13 lazy dogs, " * 20,
        '{"id": "chatcmpl-0123", "n": [1, 2, 3], "b": "%41 &amp; <b>x</b> \\u0041"}',
        base64.b64encode(bytes(range(256))).decode(),
    ):
        assert Secrets([KEY]).hide(text, deep=True) == text


def test_a_text_that_cannot_be_cleaned_is_withheld_whole():
    # What is left when one secret is taken out of another is a secret again.
    inner = "aB3dE5fG7hI9kL1m"
    assert inner not in Secrets([KEY, inner]).hide(f"{inner[:8]}{inner}{inner[8:]} {KEY}", deep=True)


def test_names_of_fields_are_texts_too():
    assert Secrets([KEY]).hide_json({KEY: [KEY, 1, None, {"a": f"x {KEY}"}]}) == {
        SECRET: [SECRET, 1, None, {"a": f"x {SECRET}"}]
    }


def test_secrets_are_known_by_the_names_of_variables_headers_and_parameters():
    assert named_secrets(
        {"OPENAI_API_KEY": "a", "Authorization": "Bearer b", "x": {"password": "c"}, "HOME": "d"}
    ) == {*("a", "Bearer b", "b", "c")}
    places = ["/app/key.json", "/run/secrets/db_password", "~/.ssh/id_rsa", "./key.pem", "C:\\keys\\a.json"]
    assert named_secrets({f"{n}_API_KEY": place for n, place in enumerate(places)}) == set()
    near = ["/a9/Xb+C/d", "/pass.word1", "ab/cd.ef/gh"]  # base64 may begin like this; no absolute paths
    assert named_secrets({f"{n}_API_KEY": value for n, value in enumerate(near)}) == set(near)
    url = "https://me:pa%24s@host/v1?key=k1&api-key=k2&alt=sse"
    assert url_secrets(url) == {"pa%24s", "pa$s", "k1", "k2", base64.b64encode(b"me:pa$s").decode()}
    assert url_secrets("https://token@host") == {"token"}
    assert url_secrets("https://host:no-port/[") == url_secrets("") == url_secrets(None) == set()
    assert [is_secret_name(name) for name in ("x-goog-api-key", "max_tokens", "Set-Cookie", "monkey")] == [
        *(True, False, True, False)
    ]


def test_a_value_that_the_text_names_as_a_secret_is_hidden():
    text = 'x-api-key: abcdefgh1 and {"api_key": "abcdefgh2"} and Bearer abcdefgh3 and http://u:abcdefgh4@h/?key=abcdefgh5'
    hidden = hide_named(text)
    assert "abcdefgh" not in hidden
    assert hidden.count(SECRET) == 5


def test_the_search_for_secrets_is_cheap_and_bounded_for_hostile_text():
    secrets = secrets_of(frozenset((KEY,)))
    began = time.process_time()
    for _ in range(200):
        secrets.hide("The answer of a model, in some hundred words of ordinary text. " * 40)
    assert time.process_time() - began < 1
    hostile = ("%25" * 300 + "\\u005c" * 300 + "&amp;" * 300 + "QUFB" * 300)[:4_000]
    began = time.process_time()
    secrets.hide(hostile, deep=True)
    assert time.process_time() - began < 5


def test_html_escapes_of_every_kind_are_read():
    for key in ("a<b>c&d\"e'f-0123456789-xyz", KEY):
        assert Secrets([key]).hide(f"<p>{html.escape(key)}</p>") != f"<p>{html.escape(key)}</p>"


# ------------------------------------------------------------------------------------------------- data


@frozen
class Page:
    """Something that holds data."""

    title: str
    parts: tuple[object, ...] = ()
    data: bytes = b""


def test_secrets_are_hidden_in_data_of_every_kind():
    page = Page(f"about {KEY}", ({KEY: [KEY, 7, None]}, Page("x", data=b"key " + RAW)))
    assert Secrets([KEY]).hide_data(page) == Page(
        f"about {SECRET}", ({SECRET: [SECRET, 7, None]}, Page("x", data=f"key {SECRET}".encode()))
    )


def test_data_without_a_secret_is_returned_as_it_is():
    page = Page("x" * 20, ({"a": ["plain text", True]},))
    assert Secrets([KEY]).hide_data(page) is page
    with_bytes = Page("x", data=b"\xff\x00 plain")
    assert Secrets([KEY]).hide_data(with_bytes) is with_bytes


def test_bytes_that_are_no_text_are_searched_too():
    assert Secrets([KEY]).hide_bytes(b"\xff\xfe" + RAW + b"\x00") == b"\xff\xfe" + SECRET.encode() + b"\x00"


@pytest.mark.parametrize("value", ["changeme", "swordfish", "a1b2", "p4ss"])
def test_a_declared_secret_is_looked_for_though_it_is_short_or_a_word(value):
    assert Secrets(declared=[value]).hide(f"the password {value}!") == f"the password {SECRET}!"
    assert Secrets([value]).hide(f"the password {value}!") == f"the password {value}!"


def test_a_declared_secret_of_three_letters_is_not_looked_for():
    assert not Secrets(declared=["abc"])
