"""The one JSON object in a model's text: tolerant of the text around it, strict about the object itself.

Accepted are prose and code fences around the object, and a comma before a closing bracket. So are `'single'` and
`“typographic”` quotes around strings, and full-width colons and commas between values. Refused, and never repaired, are
an unclosed object, a duplicate key, a comment and a bare word. So are a line break inside a string, and two objects
where one is expected. No rule adds, drops or changes a character of a value.
"""

from __future__ import annotations

import json
import re
from typing import Final

from treadle.core.messages import Json
from treadle.core.strict_json import STRICTLY, parse_object

_STRICT: Final = json.JSONDecoder(**STRICTLY)
_TOKEN: Final = re.compile(
    r"""(?P<blank>[ \t\r\n\u00a0\u3000]+)
    | (?P<double>"(?:[^"\\\x00-\x1f]|\\.)*")
    | (?P<other>'(?:[^'\\\x00-\x1f]|\\.)*'|“(?:[^“”\\\x00-\x1f]|\\.)*”)
    | (?P<mark>[{}\[\],:，：])
    | (?P<word>[^\s{}\[\],:，："'“”]+)
    """,
    re.VERBOSE,
)
_BEGINS: Final = re.compile(r"""\{\s*["'“}]""")
_ESCAPE: Final = re.compile(r'\\(.)|"')
_NARROW: Final = {"，": ",", "：": ":"}
_CLOSES: Final = {"}": "{", "]": "["}


THINKING: Final = re.compile(r"\s*<think>(.*?)</think>|(.*?)^[ \t]*</think>", re.DOTALL | re.MULTILINE)
"""The thinking at the beginning of a text, even if the server leaves out the opening tag."""


class NotOneObject(ValueError):
    """The text is not one whole JSON object; the message for the model says why."""


def without_thinking(text: str) -> str:
    """Return a text without the thinking between `<think>` and `</think>`.

    Raises `NotOneObject` if the thinking has no end.
    """
    thinking = THINKING.match(text)
    text = text[thinking.end() :] if thinking is not None else text
    if text.lstrip().startswith("<think>"):
        raise NotOneObject("your thinking has no end (</think>), and nothing comes after it")
    return text


def object_in_text(text: str) -> tuple[dict[str, Json], int]:
    """Return the first JSON object in a text and its end position; raises `NotOneObject`."""
    start = text.find("{")
    if start < 0:
        raise NotOneObject("there is no JSON object")
    if text[:start].rstrip()[-1:] in ("[", ","):
        raise NotOneObject("it is a list where one JSON object is asked for")
    document, end = _object_at(text, start)
    if text[end:].lstrip()[:1] in ("}", "]"):
        raise NotOneObject("there is a closing bracket too many")
    return document, end


def single_object(text: str) -> dict[str, Json]:
    """Return the only JSON object of a text; raises `NotOneObject`."""
    document, end = object_in_text(text)
    if _BEGINS.search(text, end):
        raise NotOneObject("there are two JSON objects where one is asked for")
    return document


def _object_at(text: str, start: int) -> tuple[dict[str, Json], int]:
    try:
        return _STRICT.raw_decode(text, start)
    except (ValueError, RecursionError):
        strict, end = _tidied(text, start)
    try:
        return parse_object(strict), end
    except RecursionError:
        raise NotOneObject("the JSON object is nested too deeply") from None
    except ValueError as error:
        reason = error.msg if isinstance(error, json.JSONDecodeError) else error
        raise NotOneObject(f"the JSON object is not valid: {reason}") from None


def _tidied(text: str, start: int) -> tuple[str, int]:
    """Return the object at a position with the quotes and commas of JSON, and its end position."""
    out: list[str] = []
    open_brackets: list[str] = []
    position = start
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise NotOneObject(_no_token(text, position))
        token, kind = match.group(), match.lastgroup
        position = match.end()
        if kind == "blank":
            continue
        if kind == "other":
            token = '"' + _ESCAPE.sub(_escaped, token[1:-1]) + '"'
        elif kind == "mark":
            token = _NARROW.get(token, token)
            if token in _CLOSES:
                if open_brackets.pop() != _CLOSES[token]:
                    raise NotOneObject("the brackets of the JSON object do not match")
                if out[-1] == "," and out[-2] not in ("{", "[", ","):
                    out.pop()
            elif token in ("{", "["):
                open_brackets.append(token)
        out.append(token)
        if not open_brackets:
            # The spaces keep tokens apart: `1 2` is not 12.
            return " ".join(out), position
    raise NotOneObject("the JSON object is not closed")


def _escaped(match: re.Match[str]) -> str:
    if match.group() == '"':
        return '\\"'
    return "'" if match.group(1) == "'" else match.group()


def _no_token(text: str, position: int) -> str:
    if re.compile(r"""["'“](?:[^"'“”\\\n]|\\.)*\n""").match(text, position):
        return "a string in the JSON object holds a line break, which is written \\n, or is not closed"
    return "the JSON object is not closed: a string in it does not end"
