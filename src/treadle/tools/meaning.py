"""Rank tools by an embedding: the cosine between the vectors of a text and of each tool's description.

This module needs the extra `index`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias, cast

from treadle.errors import ConfigurationError, MissingExtra

try:
    import numpy as np
    from numpy.typing import NDArray
except ImportError as error:
    raise MissingExtra("index", "ToolIndex(embed=...)") from error

Embed: TypeAlias = Callable[[Sequence[str]], Sequence[Sequence[float]]]
"""Returns the vector of each text; called in the event loop."""

Rows: TypeAlias = "NDArray[np.float64]"

_BATCH: Final = 64


class Meaning:
    """Ranks texts by an embedding. The vectors of the ranked texts are computed once.

    Args:
        embed: returns the vectors of texts, all of one length.
    """

    def __init__(self, embed: Embed) -> None:
        self._embed = embed
        self._vectors: dict[str, Rows] = {}

    def rows(self, texts: Sequence[str]) -> Rows:
        """Return the vectors of the texts to rank, one row each."""
        missing = [text for text in dict.fromkeys(texts) if text not in self._vectors]
        for at in range(0, len(missing), _BATCH):
            batch = missing[at : at + _BATCH]
            self._vectors.update(zip(batch, self._units(batch), strict=True))
        try:
            return np.stack([self._vectors[text] for text in texts])
        except ValueError:
            raise _wrong_vectors("vectors of different lengths") from None

    def rank(self, rows: Rows, texts: Sequence[str]) -> list[list[int]]:
        """Return for each text the positions of rows with a positive cosine, best first, ties by position."""
        queries = self._units(texts)
        if queries.shape[1] != rows.shape[1]:
            raise _wrong_vectors("vectors of different lengths")
        # Rounded: the last digits differ between machines.
        cosines = np.round(queries @ rows.T, 6)
        orders = np.argsort(-cosines, axis=1, kind="stable")
        return [order[row[order] > 0.0].tolist() for row, order in zip(cosines, orders, strict=True)]

    def _units(self, texts: Sequence[str]) -> Rows:
        """Return the vectors of texts, of length 1 unless they are all zeros."""
        vectors: Any = self._embed(list(texts))
        try:
            rows = np.asarray(vectors, dtype=np.float64)
        except (TypeError, ValueError):
            raise _wrong_vectors(f"{vectors!r:.80}") from None
        if rows.ndim != 2 or len(rows) != len(texts):
            raise _wrong_vectors(f"an array of shape {rows.shape} for {len(texts)} texts")
        if not np.isfinite(rows).all():
            raise _wrong_vectors("a number that is not finite")
        lengths = cast("Rows", np.linalg.norm(rows, axis=1, keepdims=True))
        return rows / np.where(lengths == 0.0, 1.0, lengths)


def _wrong_vectors(problem: str) -> ConfigurationError:
    return ConfigurationError(
        f"ToolIndex: embed must return a list of numbers for each text, all of one length; it returned {problem}"
    )
