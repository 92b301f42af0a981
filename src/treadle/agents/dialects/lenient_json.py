"""The one JSON object in what a model wrote: tolerant of what stands around it, strict about the object itself.

Taken as it is meant: prose and code fences around the object, `'single'` and `“typographic”` quotes around strings,
full-width colons and commas between values, a comma before a closing bracket. Refused, and never repaired: an object
that is not closed, a key written twice, a comment, a bare word, a line break inside a string, two objects where one
is asked for. No rule adds, drops or changes a character of a value.
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
"""What a model thinks aloud before all else, also when the server leaves out the tag that begins it."""


class NotOneObject(ValueError):
    """What was written is not one whole JSON object; the message says why, to the model."""


def without_thinking(text: str) -> str:
    """Return what follows a thought between `<think>` and `</think>`; raise `NotOneObject` if that has no end."""
    thinking = THINKING.match(text)
    text = text[thinking.end() :] if thinking is not None else text
    if text.lstrip().startswith("<think>"):
        raise NotOneObject("your thinking has no end (</think>), and nothing comes after it")
    return text


def object_in_text(text: str) -> tuple[dict[str, Json], int]:
    """Return the first JSON object in a text and where it ends; raise `NotOneObject`."""
    start = text.find("{")
    if start < 0:
        raise NotOneObject("there is no JSON object; write {} where there is nothing to say")
    if text[:start].rstrip()[-1:] in ("[", ","):
        raise NotOneObject("it is a list where one JSON object is asked for")
    found, end = _object_at(text, start)
    if text[end:].lstrip()[:1] in ("}", "]"):
        raise NotOneObject("there is a closing bracket too many")
    return found, end


def single_object(text: str) -> dict[str, Json]:
    """Return the JSON object of a text that holds no second one; raise `NotOneObject`."""
    found, end = object_in_text(text)
    if _BEGINS.search(text, end):
        raise NotOneObject("there are two JSON objects where one is asked for")
    return found


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
        what = error.msg if isinstance(error, json.JSONDecodeError) else error
        raise NotOneObject(f"the JSON object is not valid: {what}") from None


def _tidied(text: str, start: int) -> tuple[str, int]:
    """Return the object that begins here with the quotes and commas of JSON, and where it ends."""
    out: list[str] = []
    open_brackets: list[str] = []
    place = start
    while place < len(text):
        found = _TOKEN.match(text, place)
        if found is None:
            raise NotOneObject(_no_token(text, place))
        token, kind = found.group(), found.lastgroup
        place = found.end()
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
            # The blanks keep apart what was apart: `1 2` is no twelve.
            return " ".join(out), place
    raise NotOneObject("the JSON object is not closed")


def _escaped(found: re.Match[str]) -> str:
    if found.group() == '"':
        return '\\"'
    return "'" if found.group(1) == "'" else found.group()


def _no_token(text: str, place: int) -> str:
    if re.compile(r"""["'“](?:[^"'“”\\\n]|\\.)*\n""").match(text, place):
        return "a string in the JSON object holds a line break, which is written \\n, or is not closed"
    return "the JSON object is not closed: a string in it does not end"
