"""`ToolIndex`: offer the model, from many tools, the few that fit the newest messages.

Tools are ranked by words, by an embedding, or by both. An index asks no model, and its choice depends on no state. The
same conversation gets the same tools.

The texts of the newest messages have weights (`_Query`). Each text ranks the tools, by words and by embedding. The
rankings are fused. The request offers the best tools, recently called tools, and `always`.

The ranking by words is BM25 of SQLite's full-text search over stemmed names, descriptions and parameters.

The index is in memory. SQLite is queried once for each word. The scores are cached, so a request costs only additions.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, cast

from treadle.agents.context import RequestContext
from treadle.core.messages import Json, Message, Reasoning, Text, ToolResult
from treadle.core.refused_uses import can_be_called, no_function
from treadle.core.tools import ToolSpec
from treadle.core.unknown_names import explains_arguments, near_name
from treadle.errors import ConfigurationError
from treadle.ports import Tool

if TYPE_CHECKING:
    from treadle.tools.meaning import Embed, Meaning


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
        specs: the tools. A ranking refers to them by position.

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
        """Return the positions of the tools that match any word of a text, best first.

        Ties are in the order of `specs`.
        """
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


_RECENT: Final = 24
"""How many of the newest messages count. Older ones say little about the next step."""

_NOW, _RESULT, _TASK, _BEFORE = 1.0, 0.75, 0.75, 0.5
"""Weights of rankings.

`_NOW` is for the user's newest message and the model's message after it, `_RESULT` for tool results. `_TASK` is for the
task's input, if the user wrote again since. `_BEFORE` is for the model's message before the user's.
"""

_CHARS: Final = 2_000
"""Characters of each text that count, half from its head and half from its tail."""

_POOL: Final = 4
"""How many times `top` tools each ranking adds to a fusion."""

_DAMPING: Final = 10
"""Damping of a fusion. The higher it is, the smaller the lead of the first rank over the next."""

_AGENTS: Final = 8


@explains_arguments
class ToolIndex:
    """Offer the model only the tools that fit the conversation: `Agent(tools=many, offer=ToolIndex())`.

    Recently called tools stay offered, so that a model can call them again. So do tools that it called although they
    were not offered. Agents may share one index.

    Args:
        top: how many of the best-fitting tools each request offers, from 1 up.
        always: names of tools that every request also offers.
        embed: returns the vectors of texts, all of one length. Tools are then also ranked by these vectors, and both
            rankings are fused. Called in the event loop with at most 64 texts: once for all tools, then per request.
        lexical: whether tools are ranked by words. False ranks by `embed` alone.

    Raises:
        ConfigurationError: a value is not valid; the message names the field.
        MissingExtra: `embed` is set, and the extra `index` is not installed.
    """

    def __init__(
        self,
        *,
        top: int = 8,
        always: Iterable[str] = (),
        embed: Embed | None = None,
        lexical: bool = True,
    ) -> None:
        if type(top) is not int or top < 1:
            raise ConfigurationError(f"ToolIndex: top must be a whole number from 1 up, got {top!r}")
        names: tuple[Any, ...] = tuple(always) if isinstance(cast("object", always), Iterable) else (always,)
        if isinstance(always, str) or not all(isinstance(name, str) for name in names):
            raise ConfigurationError(f"ToolIndex: always must be a list of names, got {always!r}")
        if embed is not None and not can_be_called(embed):
            raise ConfigurationError(
                f"ToolIndex: embed must be a function of texts, got {no_function(embed)}"
            )
        if embed is None and not lexical:
            raise ConfigurationError("ToolIndex: lexical=False needs embed=: nothing is left to rank by")
        self.top = top
        self.always: tuple[str, ...] = names
        self.embed = embed
        self.lexical = lexical
        self._meaning = _meaning(embed) if embed is not None else None
        self._built: dict[int, _Built] = {}

    def check(self, tools: Sequence[Tool]) -> None:
        names = {tool.spec.name for tool in tools}
        for name in self.always:
            if name not in names:
                closest = near_name(name, names)
                hint = f", did you mean {closest!r}?" if closest else ""
                raise ConfigurationError(f"ToolIndex: always: {name!r} is no tool of the agent{hint}")

    def facts(self) -> Json:
        embed = getattr(self.embed, "__qualname__", type(self.embed).__qualname__)
        return ["index", self.top, list(self.always), self.lexical, None if self.embed is None else embed]

    def __call__(self, ctx: RequestContext[Any]) -> Iterable[str]:
        if len(ctx.tools) <= self.top:
            return [tool.spec.name for tool in ctx.tools]
        built = self._for(ctx.tools)
        query = _Query(ctx)
        names = {*self.always, *query.called.intersection(built.names)}
        ranked = [name for name in self._ranked(built, query) if name not in names]
        return names.union(ranked[: self.top])

    def __repr__(self) -> str:
        return f"ToolIndex(top={self.top}, always={list(self.always)})"

    def _for(self, tools: tuple[Tool, ...]) -> _Built:
        built = self._built.get(id(tools))
        if built is None:
            built = _Built(tools, lexical=self.lexical, meaning=self._meaning)
            if len(self._built) >= _AGENTS:
                self._built.clear()
            self._built[id(tools)] = built
        return built

    def _ranked(self, built: _Built, query: _Query) -> Iterator[str]:
        """Yield the names of tools, best first."""
        rankings: list[tuple[list[int], float]] = []
        if built.lexical is not None:
            rankings += [(built.lexical.rank(text), weight) for text, weight in query.texts]
        if self._meaning is not None and query.texts:
            by_meaning = self._meaning.rank(built.rows, [text for text, _ in query.texts])
            rankings += zip(by_meaning, [weight for _, weight in query.texts], strict=True)
        return (built.names[position] for position in _fused(rankings, _POOL * self.top))


class _Built:
    """The index of one agent's tools. It keeps a reference to them."""

    def __init__(self, tools: tuple[Tool, ...], *, lexical: bool, meaning: Meaning | None) -> None:
        specs = [tool.spec for tool in tools]
        self.tools = tools
        self.names = [spec.name for spec in specs]
        self.lexical = Lexical(specs) if lexical else None
        self.rows: Any = meaning.rows([text_of(spec) for spec in specs]) if meaning is not None else None


class _Query:
    """The texts of a conversation with their weights, the user's first.

    `called` contains the names of recently called tools.

    Args:
        ctx: the request.
    """

    def __init__(self, ctx: RequestContext[Any]) -> None:
        user = model = ""
        weight = _NOW
        results: list[str] = []
        self.called: set[str] = set()
        for message in _newest(ctx.messages):
            if message.role == "assistant":
                self.called.update([call.name for call in message.tool_calls])
                if not model:
                    model, weight = _written(message), _BEFORE if user else _NOW
            elif message.role == "user":
                user = user or message.text
            elif message.role == "tool" and not model and not self.called:
                results += [part.text for part in message.parts if isinstance(part, ToolResult)]
        task = "".join([part.text for part in ctx.input if isinstance(part, Text)])
        task, user = ("", task) if not user or user == task else (task, user)
        weighted = ((user, _NOW), (model, weight), ("\n".join(results), _RESULT), (task, _TASK))
        self.texts = [(_excerpt(text), weight) for text, weight in weighted if text]


def _meaning(embed: Embed) -> Meaning:
    from treadle.tools.meaning import Meaning

    return Meaning(embed)


def _newest(messages: Sequence[Message]) -> Iterator[Message]:
    return islice((messages[-index] for index in range(1, len(messages) + 1)), _RECENT)


def _written(message: Message) -> str:
    """Return the text and the reasoning of a model's message."""
    return "\n".join([part.text for part in message.parts if isinstance(part, (Text, Reasoning))])


def _excerpt(text: str) -> str:
    half = _CHARS // 2
    return text if len(text) <= _CHARS else f"{text[:half]} {text[-half:]}"


def _fused(rankings: list[tuple[list[int], float]], pool: int) -> list[int]:
    """Fuse rankings into one, by the weighted sum of reciprocal ranks."""
    if len(rankings) == 1:
        return rankings[0][0]
    scores: dict[int, float] = {}
    for ranking, weight in rankings:
        for rank, position in enumerate(ranking[:pool], 1):
            scores[position] = scores.get(position, 0.0) + weight / (_DAMPING + rank)
    return sorted(scores, key=lambda position: (-round(scores[position], 9), position))
