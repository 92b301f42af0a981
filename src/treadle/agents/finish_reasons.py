"""What the reasons mean for which a model ends an answer before it is whole; `stop` and `tool_calls` mean nothing."""

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
"""Why an answer is not whole, by how it finished."""

REFUSED: Final = frozenset(("refusal", "content_filter"))
"""The finishes of answers that the model, or its provider, refused to give."""

WITHHELD: Final = REFUSED | {"error"}
"""The finishes of answers that a model did not give: to ask for another form of them is of no use."""

_KINDS: Final[Mapping[str, ModelErrorKind]] = {
    "length": "truncated",
    "content_filter": "refused",
    "refusal": "refused",
    "error": "unknown",
}


def early_finish(finish: Finish, prefix: str = "") -> ModelError | None:
    """Return the error of an answer that ended early; None for one that is whole, or ended for an unknown reason.

    Args:
        finish: how the answer ended.
        prefix: what the message begins with.
    """
    kind = _KINDS.get(finish)
    return ModelError(f"{prefix}{REASONS[finish]}", kind=kind) if kind is not None else None
