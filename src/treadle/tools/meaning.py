"""Ranking by meaning: the cosine of the angle between what was said and what each tool says of itself.

Whoever imports this needs the extra `index`.
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
    """Ranks texts by an embedding; asks for the vector of each text that is to be found once.

    Args:
        embed: returns the vectors of texts, all of one length.
    """

    def __init__(self, embed: Embed) -> None:
        self._embed = embed
        self._known: dict[str, Rows] = {}

    def rows(self, texts: Sequence[str]) -> Rows:
        """Return the vectors of texts that are to be found, a row each."""
        missing = [text for text in dict.fromkeys(texts) if text not in self._known]
        for at in range(0, len(missing), _BATCH):
            batch = missing[at : at + _BATCH]
            self._known.update(zip(batch, self._units(batch), strict=True))
        try:
            return np.stack([self._known[text] for text in texts])
        except ValueError:
            raise _unlike("vectors of different lengths") from None

    def rank(self, rows: Rows, said: Sequence[str]) -> list[list[int]]:
        """Return for each text the places of rows that are anything like it, best first, of equals the earlier."""
        asked = self._units(said)
        if asked.shape[1] != rows.shape[1]:
            raise _unlike("vectors of different lengths")
        # Rounded: what two machines make of the last digits is not the same.
        cosines = np.round(asked @ rows.T, 6)
        orders = np.argsort(-cosines, axis=1, kind="stable")
        return [order[row[order] > 0.0].tolist() for row, order in zip(cosines, orders, strict=True)]

    def _units(self, texts: Sequence[str]) -> Rows:
        """Return the vectors of texts, of length 1 unless they are all zeros."""
        given: Any = self._embed(list(texts))
        try:
            rows = np.asarray(given, dtype=np.float64)
        except (TypeError, ValueError):
            raise _unlike(f"{given!r:.80}") from None
        if rows.ndim != 2 or len(rows) != len(texts):
            raise _unlike(f"an array of shape {rows.shape} for {len(texts)} texts")
        if not np.isfinite(rows).all():
            raise _unlike("a number that is not finite")
        lengths = cast("Rows", np.linalg.norm(rows, axis=1, keepdims=True))
        return rows / np.where(lengths == 0.0, 1.0, lengths)


def _unlike(what: str) -> ConfigurationError:
    return ConfigurationError(
        f"ToolIndex: embed must return a list of numbers for each text, all of one length; it returned {what}"
    )
