"""Ranking by words: BM25 of SQLite's full-text search over names, descriptions and parameters, words by their stems.

The index lies in memory. What a word contributes to which tool is asked of SQLite once and kept, so that a request
costs some additions.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, Final, cast

from treadle.core.tools import ToolSpec
from treadle.errors import ConfigurationError
from treadle.tools.words import apart, groups, telling

_CREATE: Final = """
CREATE VIRTUAL TABLE tools USING fts5(name, description, parameters, tokenize='porter unicode61 remove_diacritics 2')
"""
_INSERT: Final = "INSERT INTO tools(rowid, name, description, parameters) VALUES (?, ?, ?, ?)"
_RANK: Final = "SELECT rowid, -bm25(tools, 3.0, 1.0, 1.0) FROM tools WHERE tools MATCH ?"

_ALIKE: Final = 0.6
"""What another word for the same counts, against the word itself."""

_KEPT: Final = 4_096
"""Of how many words it is kept which tools they find."""


class Lexical:
    """Finds tools by words.

    Args:
        specs: the tools; a rank speaks of them by their place.

    Raises:
        ConfigurationError: SQLite was built without full-text search.
    """

    def __init__(self, specs: Sequence[ToolSpec]) -> None:
        import apsw

        self._lock = threading.Lock()
        self._connection: Any = apsw.Connection(":memory:")
        try:
            self._connection.execute(_CREATE)
        except apsw.SQLError as error:
            raise ConfigurationError(
                f"ToolIndex needs an SQLite with full-text search (FTS5): {error}"
            ) from None
        rows = [
            (place, apart(spec.name), spec.description, _parameters(spec)) for place, spec in enumerate(specs)
        ]
        with self._connection:
            self._connection.executemany(_INSERT, rows)
        self._alike: dict[str, set[str]] = {}
        for group in groups():
            for word in group:
                self._alike.setdefault(self._stem(word), set()).update(group)
        self._found = lru_cache(_KEPT)(self._find)

    def rank(self, text: str) -> list[int]:
        """Return the places of the tools that any word of a text finds, best first; of equals the earlier first."""
        scores: dict[int, float] = {}
        for word in telling(text):
            for place, score in self._found(word):
                scores[place] = scores.get(place, 0.0) + score
        # Rounded: what is added up in another order is not always the same to the last digit.
        return sorted(scores, key=lambda place: (-round(scores[place], 9), place))

    def _find(self, word: str) -> tuple[tuple[int, float], ...]:
        """Return the tools that a word finds, itself or by another one for the same, and how well."""
        with self._lock:
            found = dict(self._ask(word))
            for other in sorted(self._alike.get(self._stem(word), ())):
                for place, score in self._ask(other):
                    found[place] = max(found.get(place, 0.0), _ALIKE * score)
        return tuple(found.items())

    def _ask(self, word: str) -> Iterable[tuple[int, float]]:
        return cast("Iterable[tuple[int, float]]", self._connection.execute(_RANK, (f'"{word}"',)))

    def _stem(self, word: str) -> str:
        import apsw

        tokenizer = self._connection.fts5_tokenizer("porter", ["unicode61", "remove_diacritics", "2"])
        stems: list[str] = tokenizer(
            word.encode(), apsw.FTS5_TOKENIZE_QUERY, None, include_offsets=False, include_colocated=False
        )
        return stems[0] if stems else word


def text_of(spec: ToolSpec) -> str:
    """Return all that a tool says of itself, as one text."""
    return "\n".join([apart(spec.name), spec.description, _parameters(spec)])


def _parameters(spec: ToolSpec) -> str:
    properties: dict[str, Any] = spec.parameters.get("properties") or {}
    return "\n".join([f"{apart(name)}: {_description(told)}" for name, told in properties.items()])


def _description(schema: Any) -> str:
    """Return what a schema says of its value; the shortest schemas are True and False."""
    return str(cast("dict[str, Any]", schema).get("description", "")) if isinstance(schema, dict) else ""
