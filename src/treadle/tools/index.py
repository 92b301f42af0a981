"""`ToolIndex`: of many tools, each request offers the few that fit what was said last.

What fits is found by words, by meaning if there is a function for that, or by both. Nothing here asks a model or has a
state that a choice could depend on: the same conversation gives the same tools.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, cast

from treadle.agents.context import RequestContext
from treadle.core.messages import Json, Message, Reasoning, Text, ToolResult
from treadle.core.observation import near_name
from treadle.errors import ConfigurationError
from treadle.ports import Tool
from treadle.tools.lexical import Lexical, text_of

if TYPE_CHECKING:
    from treadle.tools.meaning import Embed, Meaning

_RECENT: Final = 24
"""How many of the newest messages are looked at: what was said longer ago says little about the next step."""

_NOW, _RESULT, _TASK, _BEFORE = 1.0, 0.75, 0.75, 0.5
"""What a ranking counts: by the newest words of the person, and of the model since; by what tools returned to it; by
what the task began with, if the person said more since; by what the model said before the person spoke."""

_CHARS: Final = 2_000
"""How much of each of them is read, half from its head and half from its tail."""

_POOL: Final = 4
"""How many times more tools than are offered each ranking brings into a fusion."""

_DAMPING: Final = 10
"""How little a place in front counts more than the next one, in a fusion."""

_AGENTS: Final = 8


class ToolIndex:
    """Offers the tools that fit the conversation: `Agent(tools=many, offer=ToolIndex())`.

    Tools called in the newest messages stay offered, so that a model can call again what it has just used; so does
    what it called and was not offered. One index may serve several agents.

    Args:
        top: how many of the best-fitting tools each request offers, from 1 up.
        always: names of tools that every request offers besides.
        embed: returns the vectors of texts, all of one length: tools are then ranked by meaning too, and both rankings
            fused. Called in the event loop, with at most 64 texts: once for all tools, then for each request.
        lexical: whether tools are ranked by words; False leaves it to `embed` alone.

    Raises:
        ConfigurationError: a value is not valid; the text names the field.
        MissingExtra: `embed` is given, and the extra `index` is not installed.
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
        named: tuple[Any, ...] = tuple(always) if isinstance(cast("object", always), Iterable) else (always,)
        if isinstance(always, str) or not all(isinstance(name, str) for name in named):
            raise ConfigurationError(f"ToolIndex: always must be a list of names, got {always!r}")
        if embed is not None and not callable(embed):
            raise ConfigurationError(f"ToolIndex: embed must be a function of texts, got {embed!r}")
        if embed is None and not lexical:
            raise ConfigurationError("ToolIndex: lexical=False needs embed=: nothing is left to rank by")
        self.top = top
        self.always: tuple[str, ...] = named
        self.embed = embed
        self.lexical = lexical
        self._meaning = _meaning(embed) if embed is not None else None
        self._built: dict[int, _Built] = {}

    def check(self, tools: Sequence[Tool]) -> None:
        names = {tool.spec.name for tool in tools}
        for name in self.always:
            if name not in names:
                near = near_name(name, names)
                hint = f", did you mean {near!r}?" if near else ""
                raise ConfigurationError(f"ToolIndex: always: {name!r} is no tool of the agent{hint}")

    def facts(self) -> Json:
        embed = getattr(self.embed, "__qualname__", type(self.embed).__qualname__)
        return ["index", self.top, list(self.always), self.lexical, None if self.embed is None else embed]

    def __call__(self, ctx: RequestContext[Any]) -> Iterable[str]:
        if len(ctx.tools) <= self.top:
            return [tool.spec.name for tool in ctx.tools]
        built = self._for(ctx.tools)
        said = _Said(ctx)
        names = {*self.always, *said.called.intersection(built.names)}
        ranked = [name for name in self._ranked(built, said) if name not in names]
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

    def _ranked(self, built: _Built, said: _Said) -> Iterator[str]:
        """Yield the names of tools, those first that fit best."""
        rankings: list[tuple[list[int], float]] = []
        if built.lexical is not None:
            rankings += [(built.lexical.rank(text), weight) for text, weight in said.words]
        if self._meaning is not None and said.words:
            by_meaning = self._meaning.rank(built.rows, [text for text, _ in said.words])
            rankings += zip(by_meaning, [weight for _, weight in said.words], strict=True)
        return (built.names[place] for place in _fused(rankings, _POOL * self.top))


class _Built:
    """What is worked out once for the tools of an agent, which it keeps."""

    def __init__(self, tools: tuple[Tool, ...], *, lexical: bool, meaning: Meaning | None) -> None:
        specs = [tool.spec for tool in tools]
        self.tools = tools
        self.names = [spec.name for spec in specs]
        self.lexical = Lexical(specs) if lexical else None
        self.rows: Any = meaning.rows([text_of(spec) for spec in specs]) if meaning is not None else None


class _Said:
    """What a conversation says about the next step.

    Args:
        ctx: the request; the newest messages are looked at, and what the task was asked to do.

    `words` are texts and what each of them counts, the person's first; `called` the names of tools called.
    """

    def __init__(self, ctx: RequestContext[Any]) -> None:
        person = model = ""
        weight = _NOW
        results: list[str] = []
        self.called: set[str] = set()
        for message in _newest(ctx.messages):
            if message.role == "assistant":
                self.called.update([call.name for call in message.tool_calls])
                if not model:
                    model, weight = _spoken(message), _BEFORE if person else _NOW
            elif message.role == "user":
                person = person or message.text
            elif message.role == "tool" and not model and not self.called:
                results += [part.text for part in message.parts if isinstance(part, ToolResult)]
        task = "".join([part.text for part in ctx.input if isinstance(part, Text)])
        task, person = ("", task) if not person or person == task else (task, person)
        texts = ((person, _NOW), (model, weight), ("\n".join(results), _RESULT), (task, _TASK))
        self.words = [(_excerpt(text), weight) for text, weight in texts if text]


def _meaning(embed: Embed) -> Meaning:
    from treadle.tools.meaning import Meaning

    return Meaning(embed)


def _newest(messages: Sequence[Message]) -> Iterator[Message]:
    return islice((messages[-place] for place in range(1, len(messages) + 1)), _RECENT)


def _spoken(message: Message) -> str:
    """Return what a model said and thought."""
    return "\n".join([part.text for part in message.parts if isinstance(part, (Text, Reasoning))])


def _excerpt(text: str) -> str:
    half = _CHARS // 2
    return text if len(text) <= _CHARS else f"{text[:half]} {text[-half:]}"


def _fused(rankings: list[tuple[list[int], float]], pool: int) -> list[int]:
    """Return one ranking of several, by the sum of their reciprocal ranks, each with what its ranking counts."""
    if len(rankings) == 1:
        return rankings[0][0]
    scores: dict[int, float] = {}
    for ranking, weight in rankings:
        for rank, place in enumerate(ranking[:pool], 1):
            scores[place] = scores.get(place, 0.0) + weight / (_DAMPING + rank)
    return sorted(scores, key=lambda place: (-round(scores[place], 9), place))
