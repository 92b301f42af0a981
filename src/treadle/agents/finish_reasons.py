"""Messages and errors for answers that ended early, by finish reason. `stop` and `tool_calls` are complete answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from treadle.core.model import Finish
from treadle.errors import ModelError, ModelErrorKind

REASONS: Final[Mapping[str, str]] = {
    "length": "the answer was cut off at the longest length the model may write",
    "content_filter": "the provider filtered the answer",
    "refusal": "the model refused",
    "error": "the answer ended with an error",
    "unknown": "the model stopped for a reason that is not known",
}
"""Why an answer is incomplete, by finish reason."""

REFUSED: Final = frozenset(("refusal", "content_filter"))
"""The finishes of answers that the model, or its provider, refused to give."""

WITHHELD: Final = REFUSED | {"error"}
"""The finish reasons of answers that a model withheld. Asking for another form of them is useless."""

_KINDS: Final[Mapping[str, ModelErrorKind]] = {
    "length": "truncated",
    "content_filter": "refused",
    "refusal": "refused",
    "error": "unknown",
}


def early_finish(finish: Finish, prefix: str = "") -> ModelError | None:
    """Return the error of an answer that ended early; None for a complete one, or for an unknown reason.

    Args:
        finish: how the answer ended.
        prefix: the beginning of the message.
    """
    kind = _KINDS.get(finish)
    return ModelError(f"{prefix}{REASONS[finish]}", kind=kind) if kind is not None else None
