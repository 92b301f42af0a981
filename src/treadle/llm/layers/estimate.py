"""About how many tokens a request costs, where nobody has counted them."""

from __future__ import annotations

from treadle.core.messages import Part, Reasoning, Text, ToolCall, ToolResult
from treadle.core.model import ModelRequest

CHARACTERS = 3
"""How many characters are taken for a token: fewer than most languages need, so an estimate is rather too high."""

_PICTURE = 3_000
"""Characters that a picture or a document counts for at least."""


def estimated_input(request: ModelRequest) -> int:
    """Return about how many tokens a request has before it is answered."""
    size = len(request.instructions)
    for message in request.messages:
        size += sum(map(_size, message.parts))
    for tool in request.tools:
        size += len(tool.name) + len(tool.description) + len(str(tool.parameters))
    return size // CHARACTERS


def _size(part: Part) -> int:
    if isinstance(part, (Text, Reasoning)):
        return len(part.text)
    if isinstance(part, ToolCall):
        return len(part.name) + len(str(part.arguments))
    if isinstance(part, ToolResult):
        return sum(map(_size, part.parts))
    return max(_PICTURE, len(part.data or b"") // 100)
