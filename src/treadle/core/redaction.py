r"""Find and mask secrets in errors of providers, answers of models and telemetry.

A secret is found by its value. Only `hide_named` uses the form of the text around it.

Theory of operation. A text has several *views*. They are the text itself, and the text after decoding escapes, markup,
base64 or hexadecimal digits, several times in a row. The *skeleton* of a view has only its ASCII letters and digits,
without case. So line ends, markup and zero-width characters between the characters of a secret do not hide it. A secret
is present if the skeleton of a view contains one of its *forms*. The forms are the value itself, its base64 at each of
the three alignments, its hexadecimal digits, and some more. Invariant: a view of a text from `hide` never contains a
secret. If that is impossible, `hide` returns `SECRET` alone.

    text      {"error": "bad key: sk-\u0050roj-1234 ..."}     the skeleton has "sku0050roj1234", which is no form
    a view    {"error": "bad key: sk-Proj-1234 ..."}           the skeleton has "skproj1234...", which is one
    returned  {"error": "bad key: [secret] ..."}

Not found: secrets that are encrypted, compressed, or split by other letters or digits.
"""

from __future__ import annotations

import base64
import codecs
import re
from binascii import Error as NotBase64
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import fields, is_dataclass, replace
from functools import cache, cached_property, lru_cache, partial
from typing import Any, Final, cast
from unicodedata import normalize
from urllib.parse import parse_qsl, unquote, urlsplit

from treadle.core.lazy_pattern import lazy_pattern
from treadle.core.observation import bounded

SECRET: Final = "[secret]"  # noqa: S105  replaces a secret

SHORTEST: Final = 8
"""The fewest characters of a value that is searched for. Shorter values occur in ordinary text by chance."""

LEAST: Final = 4
"""The fewest characters of a declared secret. Shorter values occur in any text."""

_WORD: Final = 16
"""The length below which a value of letters in one case is an ordinary word, such as `placeholder`."""

_FRAGMENT: Final = 12
"""The length of the pieces of a long secret that are masked too, since libraries truncate echoed values."""

SEARCHED_CHARS: Final = 16_000
"""The most characters that are searched for rarer forms of a secret. Decoding more would block the process."""

_VIEWS: Final = 64
"""The most views of one text."""

_LONG: Final = 200_000
"""The length from which on a text is searched undecoded, since decoding it would block the process."""

# ------------------------------------------------------------------------------------------ kinds of secrets

_HIDDEN: Final = (
    r"pass(?:word|wd|phrase)|secret|token|(?:api|access|private|goog-api|subscription)[_-]?key"
    r"|authori[sz]ation|credentials?|cookie"
)
_HIDDEN_NAME: Final = lazy_pattern(rf"(?:^|[_\W]|(?<=[a-z])(?=[A-Z]))(?:{_HIDDEN})$", re.IGNORECASE)
_PARAMETER: Final = lazy_pattern(r"(?:^|[_-])(?:key|token|sig|signature|secret|password)$", re.IGNORECASE)
_CREDENTIAL: Final = lazy_pattern(
    r"(?:^|[_-])(?:auth|key|token|sig|signature|secret|password|pat)$", re.IGNORECASE
)
_FILE_PATH: Final = lazy_pattern(
    r"(?:~|\.{1,2}|[A-Za-z]:)(?:[\\/][\w.@+ -]+)+|(?=.*[._-])(?:/[\w.@+-]+){2,}", re.ASCII
)
"""The path of a file, as in `GOOGLE_APPLICATION_CREDENTIALS`, which is not a secret."""

_SCHEME: Final = lazy_pattern(r"(?:bearer|basic|token|apikey)\s+", re.IGNORECASE)


def is_secret_name(name: str) -> bool:
    """Return whether a value of this name is a secret, for example `api_key`, `Authorization` or `OPENAI_API_KEY`."""
    return _HIDDEN_NAME.search(name) is not None


def named_secrets(values: Mapping[str, Any]) -> set[str]:
    """Return the values of environment variables, headers or settings with names of secrets.

    The path of a file is not a secret, since a tool may have to open it.
    """
    secrets: set[str] = set()
    for name, value in values.items():
        if isinstance(value, Mapping):
            secrets |= named_secrets(cast("Mapping[str, Any]", value))
        elif isinstance(value, str) and is_secret_name(name) and not _FILE_PATH.fullmatch(value):
            secrets |= {value, _SCHEME.sub("", value, count=1)}
    return secrets


def credentials(values: Mapping[str, str]) -> set[str]:
    """Return the values of headers or variables with names of credentials, also of `X-Auth` and `CRM_KEY`.

    Passwords in addresses count as well.
    """
    named = [value for name, value in values.items() if _CREDENTIAL.search(name)]
    return environment_secrets(values).union(*[named_secrets({"token": value}) for value in named])


def environment_secrets(environment: Mapping[str, str]) -> set[str]:
    """Return the secrets of an environment: values of variables with names of secrets, and passwords in addresses."""
    addresses = [value for value in environment.values() if "://" in value]
    return named_secrets(environment).union(*map(url_secrets, addresses))


def url_secrets(url: str | None) -> set[str]:
    """Return the secrets in a URL: its password, a user name without one, and parameters such as `key`."""
    if not url:
        return set()
    try:
        parts = urlsplit(url)
        secret = parts.password if parts.password is not None else parts.username
    except ValueError:
        return set()
    secrets = {secret, unquote(secret)} if secret else set[str]()
    if parts.username and parts.password:
        secrets.add(base64.b64encode(unquote(f"{parts.username}:{parts.password}").encode()).decode())
    return secrets | {
        value for name, value in parse_qsl(parts.query) if _PARAMETER.search(name) or is_secret_name(name)
    }


# ------------------------------------------------------------------------------------------ named secrets

_NAMED: Final = lazy_pattern(
    rf"""((?:\b|_)(?:{_HIDDEN})\\?["']?\s*[:=]\s*(?:(?:bearer|basic)\s+)?\\?["']?)[^\s"'\\,;&<>{{}}\[\]]+"""
    r"|([?&](?:[\w-]*key|[\w-]*token|sig|signature|secret)=)[^&\s\"'<>]+"
    r"|(\b(?:bearer|basic)\s+)(?=\S*\d)[\w.~+/=-]{8,}"
    r"|(://)[^/@\s:]+:[^/@\s]+(?=@)"
    r"|(://[^\s/@:]*:)[^\s/@]+(?=@)"
    r"|\b(?:sk|rk|gsk|xai|hf)[-_][\w-]{16,}|\bAIza[\w-]{20,}",
    re.IGNORECASE,
)


def hide_named(text: str) -> str:
    """Return a text without values that look like keys or follow names such as `api_key=` or `Bearer`."""
    return _NAMED.sub(_name_and_mark, text)


def _name_and_mark(match: re.Match[str]) -> str:
    return f"{next(filter(None, match.groups()), '')}{SECRET}"


# ------------------------------------------------------------------------------------------ search by value


class Secrets:
    """Values that are masked wherever they occur.

    Values of fewer than eight characters, and plain words such as `placeholder`, are ignored. Values of fewer than
    twelve letters and digits, or without a digit, are found unencoded in any view. All others are also found in pieces,
    in base64, in hexadecimal digits and the like.

    Args:
        values: possible secrets.
        declared: values that a person declared as secrets. They are masked from `LEAST` characters on, even plain
            words.
    """

    def __init__(self, values: Iterable[str] = (), declared: Iterable[str] = ()) -> None:
        to_mask = {value for value in map(str.strip, values) if _is_worth_hiding(value)}
        to_mask |= {value for value in map(str.strip, declared) if len(value) >= LEAST}
        # The longest first, so that a value is masked before its prefix is.
        ordered = sorted(to_mask, key=lambda value: (-len(value), value))
        self._shortest = min([SHORTEST, *map(len, ordered)])
        self._exact = [value for value in ordered if not _is_strong(value)]
        strong = [value for value in ordered if _is_strong(value)]
        self._near = _Forms(form for value in strong for form in _near_forms(value))
        self._all = _Forms(form for value in strong for form in (*_near_forms(value), *_far_forms(value)))

    def __bool__(self) -> bool:
        return bool(self._exact or self._near)

    def __repr__(self) -> str:
        return f"Secrets({len(self._exact) + len(self._near.forms)} forms)"

    def hide(self, text: str, *, deep: bool = False) -> str:
        """Return a text without secrets in any of its views. A text without secrets is returned unchanged.

        Args:
            text: any text.
            deep: whether to decode base64 and numbers too, and to search for rarer forms. This is for short text that
                may be hostile, such as errors, and takes milliseconds.
        """
        return self._hide(text, _DEEP if deep else _SHALLOW if len(text) < _LONG else (), deep)

    def hide_undecoded(self, text: str) -> str:
        """Return a text without unencoded secrets. It decodes nothing, so it is quick for a long text."""
        return self._hide(text, (), deep=False)

    def hide_and_cut(self, text: str, most: int) -> str:
        """Return a text without secrets, with its middle cut if it has more characters than `most`.

        Secrets are masked before the cut, since half of one would not be recognised. Only `SEARCHED_CHARS` are decoded,
        so a longer text with an encoded secret becomes `SECRET`.
        """
        text = self.hide_undecoded(text)
        searched = bounded(text, SEARCHED_CHARS)
        hidden = self.hide(searched, deep=True)
        if len(text) > SEARCHED_CHARS and hidden != searched:
            return SECRET
        return bounded(hidden, most)

    def hide_json(self, value: Any) -> Any:
        """Return JSON data without secrets in texts and names of fields."""
        if isinstance(value, str):
            return self.hide(value)
        if isinstance(value, Mapping):
            pairs = cast("Mapping[str, Any]", value).items()
            return {self.hide(name): self.hide_json(inner) for name, inner in pairs}
        if isinstance(value, (list, tuple)):
            return [self.hide_json(inner) for inner in cast("list[Any]", value)]
        return value

    def hide_bytes(self, data: bytes) -> bytes:
        """Return bytes without secrets. Text is searched as text, and other data for unencoded secrets."""
        try:
            text, code = data.decode("utf-8"), "utf-8"
        except UnicodeDecodeError:
            text, code = data.decode("latin-1"), "latin-1"
        hidden = self.hide(text)
        return data if hidden is text or hidden == text else hidden.encode(code, "replace")

    def hide_data(self, value: Any, *, deep: bool = False) -> Any:
        """Return JSON data, bytes, or data classes of these, without secrets.

        Data without secrets are returned unchanged. All texts are searched at once, which is usually all the work.

        Args:
            value: the data. All fields of data classes are searched.
            deep: as for `hide`.
        """
        texts: list[str] = []
        blobs: list[bytes] = []
        _collect(value, self._shortest, texts, blobs)
        if not blobs:
            all_texts = "\n".join(texts)  # a secret in a part would be in this text
            if (
                len(all_texts) < _LONG
                and self._view_with_secret(all_texts, _DEEP if deep else _SHALLOW, deep) is None
            ):
                return value
        return with_texts(value, partial(self.hide, deep=deep), self.hide_bytes)

    def open_end(self, text: str) -> int:
        """Return the position of an end of the text that may begin a secret, else the length of the text."""
        skeleton = _skeleton(text)
        tail = skeleton[-self._near.longest :] if self._near else ""
        if not any(head in tail for head in self._near.heads):
            return len(text)
        most = 0
        for form in self._near.forms:
            for size in range(min(len(form) - 1, len(tail)), max(most, _HEAD - 1), -1):
                if tail.endswith(form[:size]):
                    most = size
                    break
        return _positions(text)[len(skeleton) - most] if most else len(text)

    def _hide(self, text: str, decoders: tuple[_Decoder, ...], deep: bool) -> str:
        for _ in range(_ROUNDS):
            view = self._view_with_secret(text, decoders, deep)
            if view is None:
                return text
            text = self._without(view, deep)
        return SECRET

    def _view_with_secret(self, text: str, decoders: tuple[_Decoder, ...], deep: bool) -> str | None:
        if len(text) < self._shortest or not self:
            return None
        skeletons: list[tuple[str, str]] = []
        for view in _views(text, decoders):
            skeleton = _skeleton(view)
            if any(value in view for value in self._exact):
                return view
            if any(form in skeleton for form in (self._all if deep else self._near).forms):
                return view
            skeletons.append((view, skeleton))
        # Pieces are searched last, since a view with the whole secret masks it better.
        return next((view for view, skeleton in skeletons if deep and self._all.pieces_in(skeleton)), None)

    def _without(self, view: str, deep: bool) -> str:
        for value in self._exact:
            view = view.replace(value, SECRET)
        skeleton = _skeleton(view)
        spans = sorted(
            span for form in (self._all if deep else self._near).forms for span in _spans(form, skeleton)
        )
        if not spans:
            return view
        positions = _positions(view)
        parts: list[str] = []
        end = 0
        for first, last in spans:
            begins, ends = positions[first], positions[last - 1] + 1
            while begins > end and view[begins - 1] in _RUN:
                begins -= 1  # adjacent characters belong to the same run of coded text
            while ends < len(view) and view[ends] in _RUN:
                ends += 1
            if begins > end or not parts:
                parts += [view[end:begins], SECRET]
            end = max(end, ends)
        return "".join(parts) + view[end:]


class _Forms:
    """The skeletons of secrets, and their pieces."""

    def __init__(self, forms: Iterable[str]) -> None:
        self.forms = sorted({form for form in forms if len(form) >= SHORTEST})
        self.heads = {form[:_HEAD] for form in self.forms}
        self.longest = max(map(len, self.forms), default=0)

    def __bool__(self) -> bool:
        return bool(self.forms)

    @cached_property
    def probes(self) -> list[str]:
        """Pieces of the forms, which are searched for in hostile text."""
        return sorted({probe for form in self.forms for probe in _probes(form)})

    def pieces_in(self, skeleton: str) -> bool:
        """Return whether a skeleton holds a piece of a secret."""
        return any(probe in skeleton for probe in self.probes)


@cache
def _names_of(cls: type[Any]) -> tuple[str, ...] | None:
    """Return the names of the fields of a data class, or None for any other class."""
    return tuple([item.name for item in fields(cls)]) if is_dataclass(cls) else None


def with_texts(value: Any, text: Callable[[str], str], data: Callable[[bytes], bytes]) -> Any:
    """Return JSON data, bytes, or data classes of these, with a function applied to each text and all bytes.

    A data class without a change is returned itself.

    Args:
        value: the data.
        text: returns the replacement of a text. Names of fields of JSON objects are texts, too.
        data: returns the replacement of bytes.
    """
    if isinstance(value, str):
        return text(value)
    if isinstance(value, bytes):
        return data(value)
    if isinstance(value, Mapping):
        pairs = cast("Mapping[str, Any]", value).items()
        return {with_texts(name, text, data): with_texts(inner, text, data) for name, inner in pairs}
    if isinstance(value, (list, tuple)):
        kind: Any = list if isinstance(value, list) else tuple
        return kind([with_texts(inner, text, data) for inner in cast("list[Any]", value)])
    if (names := _names_of(cast("type[Any]", type(value)))) is not None:
        changed = {
            name: other
            for name in names
            if (other := with_texts(inner := getattr(value, name), text, data)) is not inner
            and other != inner
        }
        return replace(value, **changed) if changed else value
    return value


def _collect(value: Any, least: int, texts: list[str], blobs: list[bytes]) -> None:
    """Collect the bytes in data, and every text of at least `least` characters."""
    if isinstance(value, str):
        if len(value) >= least:
            texts.append(value)
    elif value is None or isinstance(value, (int, float)):
        return
    elif isinstance(value, bytes):
        blobs.append(value)
    elif isinstance(value, Mapping):
        for name, inner in cast("Mapping[str, Any]", value).items():
            _collect(name, least, texts, blobs)
            _collect(inner, least, texts, blobs)
    elif isinstance(value, (list, tuple)):
        for inner in cast("list[Any]", value):
            _collect(inner, least, texts, blobs)
    else:
        for name in _names_of(cast("type[Any]", type(value))) or ():
            _collect(getattr(value, name), least, texts, blobs)


@lru_cache(maxsize=64)
def secrets_of(values: frozenset[str]) -> Secrets:
    """Return the `Secrets` of these values. Building their forms takes longer than a search."""
    return Secrets(values)


NO_SECRETS: Final = Secrets()

hidden_in_logs: Final[ContextVar[Secrets]] = ContextVar("hidden_in_logs", default=NO_SECRETS)
"""The secrets of the present request to a model, or of the present call that read a secret."""

_ROUNDS: Final = 8
_HEAD: Final = 6
"""The number of letters and digits of a secret that may be sent before its beginning is recognised."""

_RUN: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=_-")


def _is_worth_hiding(value: str) -> bool:
    plain = value.isascii() and value.isalpha() and (value[1:].islower() or value.isupper())
    return len(value) >= SHORTEST and not (plain and len(value) < _WORD)


def _is_strong(value: str) -> bool:
    skeleton = _skeleton(value)
    mixed = any(map(str.isdigit, skeleton)) and any(map(str.isalpha, skeleton))
    return len(skeleton) >= (12 if mixed else 24)


# A skeleton is built by two passes in C: this table, and the ignored bytes.
_LOWER: Final = bytes(range(256)).lower()
_IGNORED_BYTES: Final = bytes(byte for byte in range(256) if byte > 127 or not chr(byte).isalnum())


def _skeleton(text: str) -> str:
    return text.encode("utf-8", "replace").translate(_LOWER, _IGNORED_BYTES).decode("ascii")


def _positions(text: str) -> list[int]:
    """Return the positions in the text of its skeleton's characters."""
    return [position for position, char in enumerate(text) if char.isascii() and char.isalnum()]


@lru_cache(maxsize=1024)
def _near_forms(value: str) -> tuple[str, ...]:
    """Return the skeletons of a value itself, escaped in JSON, in hexadecimal digits and in base64."""
    raw = value.encode("utf-8", "replace")
    escaped = "".join(f"u{ord(char):04x}" for char in value)
    coded = [_skeleton(_aligned(base64.b64encode, raw, at, 3)) for at in range(3)]
    return (_skeleton(value), raw.hex(), escaped, *coded)


@lru_cache(maxsize=1024)
def _far_forms(value: str) -> tuple[str, ...]:
    """Return the skeletons of a value in rare forms: backwards, rotated, in UTF-16, in base32."""
    raw, wide = value.encode("utf-8", "replace"), value.encode("utf-16-le", "replace")
    forms = [_skeleton(value[::-1]), _skeleton(codecs.encode(value, "rot13")), wide.hex()]
    forms += [
        _skeleton(_aligned(base64.b64encode, part, at, 3)) for at in range(3) for part in (raw[::-1], wide)
    ]
    forms += [_skeleton(_aligned(base64.b32encode, raw, at, 5)) for at in range(5)]
    return tuple(forms)


def _aligned(code: Callable[[bytes], bytes], raw: bytes, at: int, block: int) -> str:
    """Return coded bytes for a value `at` bytes into a block, without the characters shared with neighbours."""
    aligned = raw[(block - at) % block :]
    return code(aligned[: len(aligned) - len(aligned) % block]).decode()


@lru_cache(maxsize=16_384)
def _probes(form: str) -> list[str]:
    """Return probe substrings. Each maskable part of the form contains at least one."""
    fragments = [form[at : at + _FRAGMENT] for at in range(0, len(form) - _FRAGMENT + 1, _FRAGMENT // 3)]
    telling = [fragment for fragment in fragments if any(map(str.isdigit, fragment))]
    return telling or [form]


def _spans(form: str, skeleton: str) -> Iterator[tuple[int, int]]:
    """Yield the spans of a skeleton that contain a form, or a piece of it."""
    for probe in _probes(form):
        inside = form.find(probe)
        at_probe = skeleton.find(probe)
        while at_probe >= 0:
            first, last = at_probe, at_probe + len(probe)
            while (
                first > 0
                and first - at_probe + inside > 0
                and skeleton[first - 1] == form[first - at_probe + inside - 1]
            ):
                first -= 1
            while (
                last < len(skeleton)
                and last - at_probe + inside < len(form)
                and skeleton[last] == form[last - at_probe + inside]
            ):
                last += 1
            yield first, last
            at_probe = skeleton.find(probe, last)


# ---------------------------------------------------------------------------------------------------- views

_ESCAPE: Final = lazy_pattern(
    r"\\u\{?([0-9a-fA-F]{1,6})\}|\\u([0-9a-fA-F]{4})|\\U([0-9a-fA-F]{8})|\\x([0-9a-fA-F]{2})|\\([0-7]{3})"
    r"|\\([nrtbfv0])|\\(.)",
    re.DOTALL,
)
_PERCENT: Final = lazy_pattern(r"%u([0-9a-fA-F]{4})|%([0-9a-fA-F]{2})|=([0-9a-fA-F]{2})|=\r?\n")
_TAG: Final = lazy_pattern(r"<!--.{0,400}?-->|</?[A-Za-z!?][^<>]{0,400}>", re.DOTALL)
_CODED: Final = lazy_pattern(r"(?<![\w+/-])[\w+/-]{12,}+(?:(?:[\r\n]|\\[rn])++[\w+/-]++)*+={0,2}", re.ASCII)
_DIGITS: Final = lazy_pattern(
    r"(?<![0-9a-fA-F])(?:(?:0x|\\x|U\+(?:00)?)?[0-9a-fA-F]{2}[\s:,;.-]{0,2}+){8,}+[0-9a-fA-F]?"
)
_NUMBERS: Final = lazy_pattern(r"(?<!\d)\d{2,3}(?:[\s,;]{1,3}\d{2,3}){7,}+")
_BINARY: Final = lazy_pattern(r"(?<!\d)[01]{7,8}(?:\s{0,2}[01]{7,8}){7,}+")


_Decoder = tuple[Callable[[str], Iterator[str]], str]


def _views(text: str, decoders: tuple[_Decoder, ...]) -> Iterator[str]:
    """Yield a text and its decoded views, the least decoded first."""
    seen_views = {text}
    waiting = [text]
    for view in waiting:  # grows during the loop
        yield view
        for decode, marks in decoders:
            if marks and not any(mark in view for mark in marks):
                continue
            for decoded in decode(view):
                if decoded not in seen_views and len(seen_views) < _VIEWS:
                    seen_views.add(decoded)
                    waiting.append(decoded)


def _unescaped(text: str) -> Iterator[str]:
    yield _ESCAPE.sub(_escaped_char, text)


def _escaped_char(match: re.Match[str]) -> str:
    *codes, octal, control, itself = match.groups()
    if itself is not None:
        return itself
    if control is not None:
        return " "
    return (
        _char(octal, 8) if octal is not None else _char(next(code for code in codes if code is not None), 16)
    )


def _char(code: str, base: int) -> str:
    number = int(code, base)
    return chr(number) if number < 0x110000 and not 0xD800 <= number < 0xE000 else " "


def _unquoted(text: str) -> Iterator[str]:
    yield _PERCENT.sub(lambda match: _char(next(filter(None, match.groups()), "20"), 16), text)


def _unmarked(text: str) -> Iterator[str]:
    yield _TAG.sub("", text)


def _named_characters(text: str) -> Iterator[str]:
    from html import unescape  # its tables are large, and most processes redact no HTML

    yield unescape(text)


def _folded(text: str) -> Iterator[str]:
    if not text.isascii():
        yield normalize("NFKC", text)


def _from_base64(text: str) -> Iterator[str]:
    """Yield a text with its runs of base64 decoded, at each of four alignments."""
    for skip in range(4) if _CODED.search(text) else ():
        decoded = _CODED.sub(lambda run, skip=skip: _plain(run[0], skip), text)
        if decoded != text:
            yield decoded


def _plain(run: str, skip: int) -> str:
    data = re.sub(r"\\[rn]|[\\\r\n=]", "", run)[skip:].replace("-", "+").replace("_", "/")
    data = data[: len(data) - 1] if len(data) % 4 == 1 else data
    try:
        decoded = base64.b64decode(data + "=" * (-len(data) % 4))
    except (NotBase64, ValueError):
        return run
    return _readable(decoded) or run


def _readable(data: bytes) -> str | None:
    text = data.replace(b"\0", b"").decode("utf-8", "replace")
    odd = sum((not char.isprintable() and not char.isspace()) or char == "\ufffd" for char in text)
    return text if text and odd * 4 <= len(text) else None


def _from_digits(text: str) -> Iterator[str]:
    """Yield a text with its runs of hexadecimal, decimal or binary codes of characters decoded."""
    for pattern, read in _CODES:
        decoded = pattern.sub(lambda run, read=read: _readable(read(run[0])) or run[0], text)
        if decoded != text:
            yield decoded


def _hexadecimal(run: str, skip: int) -> bytes:
    digits = _NO_DIGITS.sub("", run)[skip:]
    return bytes.fromhex(digits[: len(digits) - len(digits) % 2])


_NO_DIGITS: Final = lazy_pattern(r"0x|\\x|U\+(?:00)?|[^0-9a-fA-F]")
_CODES: Final[tuple[tuple[re.Pattern[str], Callable[[str], bytes]], ...]] = (
    (_DIGITS, lambda run: _hexadecimal(run, 0)),
    (_DIGITS, lambda run: _hexadecimal(run, 1)),
    (_NUMBERS, lambda run: bytes(min(int(code), 255) for code in re.findall(r"\d+", run))),
    (_BINARY, lambda run: bytes(int(code, 2) for code in re.findall(r"[01]{7,8}", run))),
)

_SHALLOW: Final[tuple[_Decoder, ...]] = (
    (_unescaped, "\\"),
    (_unquoted, "%="),
    (_unmarked, "<"),
    (_named_characters, "&"),
    (_folded, ""),
)
_DEEP: Final[tuple[_Decoder, ...]] = (*_SHALLOW, (_from_digits, ""), (_from_base64, ""))
"""The decoders, each with the characters of which a text must contain one."""
