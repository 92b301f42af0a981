"""Rank tools by words: BM25 of SQLite's full-text search over stemmed names, descriptions and parameters.

The index is in memory. SQLite is queried once for each word; the scores are cached, so a request costs only additions.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final, cast

from treadle.core.tools import ToolSpec
from treadle.errors import ConfigurationError

_CREATE: Final = """
CREATE VIRTUAL TABLE tools USING fts5(name, description, parameters, tokenize='porter unicode61 remove_diacritics 2')
"""
_INSERT: Final = "INSERT INTO tools(rowid, name, description, parameters) VALUES (?, ?, ?, ?)"
_RANK: Final = "SELECT rowid, -bm25(tools, 3.0, 1.0, 1.0) FROM tools WHERE tools MATCH ?"

_CACHED_WORDS: Final = 4_096

_WORD: Final = re.compile(r"[^\W_]+")
_HUMPS: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")

# English words without information about a tool. Particles (off, out, up, back) are left in: they change a verb.
_STOP_WORDS: Final = """
a an the this that these those some any each every no
i me my mine we us our ours you your yours he him his she her hers it its they them their theirs
who whom whose which what when where why how there here
am is are was were be been being do does did done have has had will would shall should can could may might must
ll ve re s d t m
and or but nor so if then than as because while until since
of to for with by at in into from about between through during before after
not only just also too very please thanks thank let lets want need like
"""
_STOP: Final = frozenset(_STOP_WORDS.split())


class Lexical:
    """A full-text index of tools.

    Args:
        specs: the tools; a ranking refers to them by position.

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
            (position, split_name(spec.name), spec.description, _parameters(spec))
            for position, spec in enumerate(specs)
        ]
        with self._connection:
            self._connection.executemany(_INSERT, rows)
        self._scores = lru_cache(_CACHED_WORDS)(self._ask)

    def rank(self, text: str) -> list[int]:
        """Return the positions of the tools that match any word of a text, best first; ties in order of `specs`."""
        scores: dict[int, float] = {}
        for term in significant_words(text):
            for position, score in self._scores(term):
                scores[position] = scores.get(position, 0.0) + score
        # Rounded, because the last digits of a sum depend on its order.
        return sorted(scores, key=lambda position: (-round(scores[position], 9), position))

    def _ask(self, term: str) -> tuple[tuple[int, float], ...]:
        """Return the tools that match a word, with their scores."""
        with self._lock:
            return tuple(self._connection.execute(_RANK, (f'"{term}"',)))


def split_name(name: str) -> str:
    """Split a name into words at underscores, hyphens and changes of case."""
    return _HUMPS.sub(" ", name).replace("_", " ").replace("-", " ")


def significant_words(text: str) -> list[str]:
    """Return the distinct words of a text in order, without stop words."""
    found_words = _WORD.findall(_HUMPS.sub(" ", text).lower())
    return [term for term in dict.fromkeys(found_words) if term not in _STOP]


def text_of(spec: ToolSpec) -> str:
    """Return a tool's name, description and parameters as one text."""
    return "\n".join([split_name(spec.name), spec.description, _parameters(spec)])


def _parameters(spec: ToolSpec) -> str:
    properties: dict[str, Any] = spec.parameters.get("properties") or {}
    return "\n".join([f"{split_name(name)}: {_description(schema)}" for name, schema in properties.items()])


def _description(schema: Any) -> str:
    """Return the description in a schema; empty if there is none, as in the schemas True and False."""
    return str(cast("dict[str, Any]", schema).get("description", "")) if isinstance(schema, dict) else ""
