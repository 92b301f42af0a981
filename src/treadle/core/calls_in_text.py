"""Parse calls in the text of an answer, for servers that do not separate calls from text.

The parser does not guess. The whole text must be one JSON object or a list of them. Each needs the name of a known tool
and an object of arguments. It may be in a `<tool_call>` tag or in a code fence. The other form is
`<function=NAME>ARGUMENTS</function>`, once or several times. A truncated text has no call.
"""

from __future__ import annotations

import json
import re
from collections.abc import Container
from typing import Any, Final, cast

from treadle.core.lazy_pattern import lazy_pattern
from treadle.core.messages import Json
from treadle.core.strict_json import STRICTLY

BEGINNINGS: Final = ("{", "[", "<tool_call>", "<function=", "```")
"""The beginnings of texts that may be calls."""

_TAG: Final = lazy_pattern(r"<tool_call>(.*)</tool_call>", re.DOTALL)
_FENCE: Final = lazy_pattern(r"```(?:json|tool_call)?[ \t]*\n(.*)\n?```", re.DOTALL)
_FUNCTION: Final = lazy_pattern(r"<function=([^<>\s]{1,64})>(.*?)</function>\s*", re.DOTALL)
_KEYS: Final = ({"name", "arguments"}, {"name", "parameters"})


def may_be_calls(text: str) -> bool:
    """Return whether an incomplete text may become calls."""
    beginning = text.lstrip()
    return any(beginning.startswith(each) or each.startswith(beginning) for each in BEGINNINGS)


def calls_in(text: str, tools: Container[str]) -> tuple[tuple[str, dict[str, Json]], ...]:
    """Return the names and arguments of the calls in a text. A text with anything else has none.

    Args:
        text: the whole text of an answer.
        tools: the names of the known tools.
    """
    body = text.strip()
    for wrapper in (_FENCE, _TAG):
        if (inner := wrapper.fullmatch(body)) is not None:
            body = inner[1].strip()
    if body.startswith("<function="):
        return _tagged_calls(body, tools)
    if body[:1] not in ("{", "["):
        return ()
    value = _read(body)
    items = cast("list[Any]", value) if isinstance(value, list) else [value]
    calls = [_call(item, tools) for item in items]
    return tuple([each for each in calls if each is not None]) if None not in calls else ()


def _tagged_calls(body: str, tools: Container[str]) -> tuple[tuple[str, dict[str, Json]], ...]:
    """Return the calls in a text of nothing but `<function=NAME>ARGUMENTS</function>`; empty for any other text."""
    calls: list[tuple[str, dict[str, Json]]] = []
    place = 0
    while place < len(body):
        match = _FUNCTION.match(body, place)
        arguments = _read(match[2]) if match is not None and match[1] in tools else None
        if match is None or not isinstance(arguments, dict):
            return ()
        calls.append((match[1], cast("dict[str, Json]", arguments)))
        place = match.end()
    return tuple(calls)


def _read(text: str) -> Any:
    """Return the JSON value of a text; None if it is not valid."""
    try:
        return json.loads(text, **STRICTLY)
    except (ValueError, RecursionError):
        return None


def text_calls_warning(tools: tuple[str, ...]) -> str:
    """Return a warning for people about an answer that looks like calls of these tools."""
    names = ", ".join(dict.fromkeys(tools))
    return (
        f"the text of the answer reads like a call of {names}, and nothing was run: start the server with its "
        'template for tools (llama.cpp: --jinja), use Agent(worker="react") or worker="planner", or read such text '
        'as calls with CallsInText(model); for a typed answer write output_mode="native"'
    )


def _call(item: Any, tools: Container[str]) -> tuple[str, dict[str, Json]] | None:
    if not isinstance(item, dict):
        return None
    fields = cast("dict[str, Any]", item)
    if fields.keys() - {"type"} not in _KEYS or fields.get("type", "function") != "function":
        return None
    name, arguments = fields["name"], fields.get("arguments", fields.get("parameters"))
    if not isinstance(name, str) or name not in tools or not isinstance(arguments, dict):
        return None
    return name, cast("dict[str, Json]", arguments)
