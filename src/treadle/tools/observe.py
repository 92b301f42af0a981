"""Convert the return value of a tool to plain JSON data and content parts, or raise `ToolError`.

Containers are copied, so a tool may change its own lists later without changing the task.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from datetime import date, time, timedelta
from enum import Enum
from functools import cache
from typing import Any, cast

from treadle.core.codec import MAX_CHARACTERS, MAX_DEPTH
from treadle.core.labels import Label
from treadle.core.messages import Content, File, Image, Json, Text
from treadle.core.observation import scrubbed, whole_error_text
from treadle.errors import ToolError
from treadle.ports import Background, ToolOutput

MAX_VALUES = 1_000_000
"""Most values in one output. It bounds small objects that expand to huge ones."""

_type: Callable[[object], type[Any]] = type
_MAX_INT_BITS = 14_000  # Python refuses to parse longer numbers from text


class _Budget:
    """The values and characters that one output may still add."""

    __slots__ = ("characters", "values")

    def __init__(self) -> None:
        self.values, self.characters = MAX_VALUES, MAX_CHARACTERS

    def take(self, characters: int) -> None:
        """Count characters; raises `_NotJson` above the limit."""
        self.characters -= characters
        if self.characters < 0:
            raise _NotJson(
                f"larger than {MAX_CHARACTERS:,} characters; return a part of it, or write it to a file"
            )


class _NotJson(Exception):
    """A value without a JSON form; `path` collects its position while the error propagates."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.path: list[str] = []


def to_output(value: Any) -> ToolOutput:
    """Return a tool's return value as a `ToolOutput`.

    A `ToolOutput` keeps its fields. Content parts, alone or in a list with text, become the observation. Their
    descriptions become the output. Any other value becomes plain JSON data.

    Raises:
        ToolError: the value has no JSON form (NaN, a lone surrogate, a cycle, an object without data, ...).
    """
    if value is None or value is True or value is False:
        return ToolOutput(value)
    kind = _type(value)
    if (kind is str and len(value) <= MAX_CHARACTERS and value.isascii()) or (
        kind is float and math.isfinite(value)
    ):
        return ToolOutput(value)
    try:
        if kind is dict or kind is int:
            return ToolOutput(_plain(value, [], _Budget()))
        if isinstance(value, ToolOutput):
            return _checked(value)
        if _is_content(value):
            return _content_output(value)
        return ToolOutput(_plain(value, [], _Budget()))
    except _NotJson as problem:
        location = f" at {''.join(reversed(problem.path))[:200]}" if problem.path else ""
        text = f"the tool returned something that cannot be stored as JSON: {problem}{location}"
        raise ToolError(scrubbed(text)) from None
    except ToolError:
        raise
    except Exception as error:
        raise ToolError(
            f"the tool returned a {kind.__name__} that cannot be stored as JSON: {whole_error_text(error)}"
        ) from error


def _checked(output: ToolOutput) -> ToolOutput:
    data = _plain(output.output, [], _Budget())
    if output.display is not None and not isinstance(output.display, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ToolError("ToolOutput.display must be text or None")
    display = None if output.display is None else _text(output.display)
    observation = output.observation
    if isinstance(observation, str):
        _Budget().take(len(observation))
        observation = _text(observation)
    elif observation is not None:
        if not _is_content(observation) and not _is_texts(observation):
            raise ToolError("ToolOutput.observation must be text or a list of text, Text, Image and File")
        observation = _parts(observation)
    origin = output.origin
    if origin is not None and (not isinstance(origin, str) or not origin):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ToolError("ToolOutput.origin must be text, such as 'web:example.org'")
    if isinstance(output, Background):
        return Background(data, origin=origin, expires=output.expires)
    faces = (data, observation, display, _sources(output.sources), _artifacts(output.artifacts))
    return ToolOutput(*faces, None if origin is None else _text(origin))


def _sources(value: Any) -> tuple[Json, ...]:
    if not isinstance(value, (list, tuple)):
        raise ToolError(
            "ToolOutput.sources must be a list, each of JSON data, such as {'title': ..., 'url': ...}"
        )
    return tuple(_plain(value, [], _Budget()))


def _artifacts(value: Any) -> tuple[File, ...]:
    if not isinstance(value, (list, tuple)) or not all(isinstance(item, (File, Image)) for item in value):  # pyright: ignore[reportUnknownVariableType]
        raise ToolError("ToolOutput.artifacts must be a list of File and Image")
    return tuple([_artifact(item) for item in cast("Sequence[File | Image]", value)])


def _artifact(part: File | Image) -> File:
    """Return an artifact with a name, a media type, and its bytes or its URL."""
    from pathlib import PurePath
    from urllib.parse import unquote, urlsplit

    name = part.name if isinstance(part, File) else None
    if name is None:
        name = PurePath(part.path or unquote(urlsplit(part.url or "").path)).name
    if not isinstance(name, str) or not name:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ToolError(
            "ToolOutput.artifacts: give File(name=...) if neither its path nor its URL has a name"
        )
    media_type = part.media_type or _guessed(part.path or part.url) or _guessed(name)
    file = File(
        path=part.path, url=part.url, data=part.data, media_type=media_type, name=_text(name), meta=part.meta
    )
    return cast("File", _part(file))


# ---------------------------------------------------------------------------------------- content parts


def _is_content(value: Any) -> bool:
    if isinstance(value, (Text, Image, File)):
        return True
    if not isinstance(value, (list, tuple)) or not value:
        return False
    items = cast("Sequence[Any]", value)
    return any(isinstance(item, (Text, Image, File)) for item in items) and all(
        isinstance(item, (str, Text, Image, File)) for item in items
    )


def _is_texts(value: Any) -> bool:
    if not isinstance(value, (list, tuple)) or not value:
        return False
    return all(isinstance(item, str) for item in cast("Sequence[Any]", value))


def _content_output(value: Content | Sequence[str | Content]) -> ToolOutput:
    parts = _parts(value)
    described = [part.text if isinstance(part, Text) else _described(part) for part in parts]
    return ToolOutput(described[0] if isinstance(value, (Text, Image, File)) else described, parts)


def _parts(value: Any) -> list[Content]:
    items: Sequence[Any] = [value] if isinstance(value, (str, Text, Image, File)) else value
    if not all(isinstance(item, (str, Text, Image, File)) for item in items):
        raise ToolError("an observation holds text, Text, Image and File only")
    budget = _Budget()
    for item in items:
        text = item if isinstance(item, str) else item.text if isinstance(item, Text) else item.data or b""
        budget.take(len(text))
    return [_part(Text(item) if isinstance(item, str) else item) for item in items]


def _part(part: Content) -> Content:
    if part.label is not None and not isinstance(part.label, Label):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ToolError(f"the label of a part must be a Label, not a {type(part.label).__name__}")
    if isinstance(part, Text):
        return Text(_text(part.text), _plain(part.meta, [], _Budget()), part.label)
    kind = _type(part).__name__
    meta = _plain(part.meta, [], _Budget())
    if sum(source is not None for source in (part.path, part.url, part.data)) != 1:
        raise ToolError(f"{kind} needs exactly one of path, url and data")
    media_type = part.media_type or _guessed(part.path or part.url)
    if part.url is not None:
        return dataclasses.replace(part, media_type=media_type, meta=meta)
    if media_type is None:
        raise ToolError(f"{kind} needs media_type, such as 'image/png'")
    if part.path is None:
        return dataclasses.replace(part, media_type=media_type, data=bytes(part.data or b""), meta=meta)
    from pathlib import Path

    path = Path(part.path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ToolError(f"{kind} cannot be read: {error}") from error
    if isinstance(part, Image):
        return Image(data=data, media_type=media_type, meta=meta, label=part.label)
    name = part.name or path.name
    return File(data=data, media_type=media_type, name=name, meta=meta, label=part.label)


def _guessed(path: str | None) -> str | None:
    from mimetypes import guess_type

    return guess_type(path)[0] if path else None


def _described(part: Image | File) -> dict[str, Json]:
    """Return a description of a part without its bytes."""
    size = None if part.data is None else len(part.data)
    name = part.name if isinstance(part, File) else None
    facts = {"media_type": part.media_type, "name": name, "path": part.path, "url": part.url, "bytes": size}
    return {
        "type": type(part).__name__.lower(),
        **{key: fact for key, fact in facts.items() if fact is not None},
    }


# ------------------------------------------------------------------------------------------- plain data


def _plain(value: Any, above: list[int], budget: _Budget) -> Json:
    """Return plain JSON data. `above` lists the ids of the enclosing containers, `budget` limits the size."""
    kind = _type(value)
    if kind is str:
        budget.take(len(value))
        return value if value.isascii() else _text(value)
    if value is None or kind is bool:
        return value
    if kind is int:
        return _int(value)
    if kind is float:
        return _float(value)
    if kind is dict:
        return _object(value, value.items(), len(value), above, budget)
    if kind is list or kind is tuple:
        return _array(value, value, above, budget)
    return _foreign_value(value, above, budget)


def _object(
    value: Any, items: Iterable[tuple[Any, Any]], size: int, above: list[int], budget: _Budget
) -> dict[str, Json]:
    _enter(value, size, above, budget)
    plain: dict[str, Json] = {}
    key: Any = None
    try:
        for key, item in items:
            name = key if type(key) is str and key.isascii() else _key(key)
            if name in plain:
                raise _NotJson(f"two keys that are both written {name!r}")
            kind = _type(item)
            if kind is str and item.isascii():
                budget.take(len(item))
                plain[name] = item
            elif kind is bool or item is None:
                plain[name] = item
            else:
                plain[name] = _plain(item, above, budget)
    except _NotJson as problem:
        if isinstance(key, str):
            problem.path.append(f".{key[:40]}")
        raise
    above.pop()
    return plain


def _array(value: Any, items: Iterable[Any], above: list[int], budget: _Budget) -> list[Json]:
    _enter(value, len(value), above, budget)
    plain: list[Json] = []
    try:
        for item in items:
            plain.append(_plain(item, above, budget))  # noqa: PERF401  its length is in the path of a problem
    except _NotJson as problem:
        problem.path.append(f"[{len(plain)}]")
        raise
    above.pop()
    return plain


def _enter(value: Any, size: int, above: list[int], budget: _Budget) -> None:
    if id(value) in above:
        raise _NotJson("it contains itself")
    if len(above) >= MAX_DEPTH:
        raise _NotJson(f"nested deeper than {MAX_DEPTH}")
    budget.values -= size
    if budget.values < 0:
        raise _NotJson(f"more than {MAX_VALUES:,} values")
    above.append(id(value))


def _int(value: int) -> int:
    if value.bit_length() > _MAX_INT_BITS:
        raise _NotJson("a number of more than 4,000 digits")
    return value


def _float(value: float) -> float:
    if not math.isfinite(value):
        raise _NotJson(f"{value} is not a JSON number")
    return value


def _text(value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise _NotJson(f"text with a lone surrogate at character {error.start}") from None
    return value


def _key(key: Any) -> str:
    if isinstance(key, Enum):
        key = key.value
    if isinstance(key, str):
        return _text(str.__str__(key))
    if key is None or isinstance(key, bool):
        return {None: "null", True: "true", False: "false"}[key]
    if isinstance(key, int):
        return str(_int(int(key)))
    if isinstance(key, float):
        return repr(_float(float(key)))
    plain = _scalar(key)
    if not isinstance(plain, str):
        raise _NotJson(f"a key of type {type(key).__name__}")
    return plain


def _foreign_value(value: Any, above: list[int], budget: _Budget) -> Json:
    """Return plain data for a subclass, a container, a model, or a common library type."""
    if isinstance(value, Enum):
        return _plain(value.value, above, budget)
    if isinstance(value, str):
        budget.take(len(value))
        return _text(str.__str__(value))
    if isinstance(value, int):
        return _int(int.__int__(value))
    if isinstance(value, float):
        return _float(float.__float__(value))
    if isinstance(value, (Image, File)):
        return _described(value)
    scalar = _scalar(value)
    if scalar is not None:
        budget.take(len(value) if isinstance(value, (bytes, bytearray)) else 0)
        return scalar
    if isinstance(value, type):
        raise _NotJson(f"the class {value.__name__}")
    return _compound(value, above, budget)


def _compound(value: Any, above: list[int], budget: _Budget) -> Json:
    kind = _type(value)
    if isinstance(value, Mapping):
        mapping = cast("Mapping[Any, Any]", value)
        return _object(mapping, mapping.items(), len(mapping), above, budget)
    names: tuple[str, ...] | None = None
    if hasattr(kind, "_fields"):
        names = tuple(kind._fields)
    elif dataclasses.is_dataclass(kind):
        names = tuple(field.name for field in dataclasses.fields(kind))
    if names is not None:
        return _object(value, [(name, getattr(value, name)) for name in names], len(names), above, budget)
    if hasattr(kind, "model_dump"):
        _enter(value, 1, above, budget)
        dumped = _plain(value.model_dump(mode="json", warnings=False), above, budget)
        above.pop()
        return dumped
    if isinstance(value, Set):
        return _sorted(_array(value, cast("Set[Any]", value), above, budget))
    if isinstance(value, Sequence):
        return _array(value, cast("Sequence[Any]", value), above, budget)
    if callable(tolist := getattr(value, "tolist", None)):  # arrays and their scalars, of any library
        return _plain(tolist(), above, budget)
    raise _NotJson(f"a value of type {kind.__name__}")


def _sorted(items: list[Json]) -> list[Json]:
    try:
        return sorted(items)
    except TypeError:
        return sorted(items, key=repr)


def _scalar(value: Any) -> str | float | dict[str, Json] | None:
    """Return the JSON value of a date, time, duration, bytes or a type written as text, else None."""
    if isinstance(value, (date, time)):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, (bytes, bytearray, memoryview)):
        return _bytes(bytes(cast("bytes", value)))
    return _text(str(value)) if isinstance(value, _written_as_text()) else None


@cache
def _written_as_text() -> tuple[type, ...]:
    from decimal import Decimal
    from fractions import Fraction
    from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
    from pathlib import PurePath
    from uuid import UUID

    return (Decimal, Fraction, UUID, PurePath, IPv4Address, IPv6Address, IPv4Network, IPv6Network)


def _bytes(data: bytes) -> str | dict[str, Json]:
    """Return UTF-8 bytes as text, and other bytes as base64 in an object."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        from base64 import b64encode

        return {"base64": b64encode(data).decode("ascii")}
