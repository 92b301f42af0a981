"""Subagents as tools: each takes a text and answers. The runner runs each call as a task of its own.

Sanitisers are subagents whose answers hold no free text, so that injected instructions cannot reach their caller.

An answer of numbers, booleans, dates and a few fixed words can be wrong. It cannot be an instruction.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, Final, Literal, TypeAlias, cast, get_args

from treadle.agents.decide.rules import ToolFailurePolicy
from treadle.core.data import frozen
from treadle.core.lazy_pattern import lazy_pattern
from treadle.core.messages import Json, ToolCall
from treadle.core.observation import whole_error_text
from treadle.core.refused_uses import can_be_called, no_function
from treadle.core.tools import ToolSpec, Unknown, Verdict
from treadle.core.unknown_names import explains_arguments
from treadle.errors import ConfigurationError, ToolArgumentsInvalid
from treadle.ports import ToolContext, ToolOutput

_FORMATS: Final = ("date", "time", "date-time", "duration")
_MOMENT: Final = lazy_pattern(r"[0-9PYMDWTHSZ:.,+\- ]{1,40}")
"""The characters of dates, times and durations."""


def free_text(schema: Json) -> str | None:
    """Return the path of a part that may hold free text in a schema's answers, such as `answer.note`, or None."""
    return next(_free(schema, schema, "answer", ()), None)


def _free(schema: Any, root: Any, path: str, followed: tuple[str, ...]) -> Iterator[str]:
    """Yield the paths that may hold free text. The references in `followed` are not followed again."""
    if not isinstance(schema, dict):
        yield path
        return
    part = cast("dict[str, Any]", schema)
    if "enum" in part or "const" in part:
        return
    if "$ref" in part:
        name = str(part["$ref"]).rpartition("/")[2]
        if name not in followed:
            definition = cast("dict[str, Any]", root).get("$defs", {}).get(name)
            yield from _free(definition, root, path, (*followed, name))
        return
    options = part.get("anyOf") or part.get("oneOf") or part.get("allOf")
    if options is not None:
        for option in options:
            yield from _free(option, root, path, followed)
        return
    match part.get("type"):
        case "integer" | "number" | "boolean" | "null":
            return
        case "string" if part.get("format") in _FORMATS:
            return
        case "array":
            items = [*part.get("prefixItems", ())]
            if "items" in part or not items:
                items.append(part.get("items"))
            for item in items:
                yield from _free(item, root, f"{path}[]", followed)
        case "object" if part.get("properties") and not part.get("additionalProperties"):
            for name, inner in part["properties"].items():
                yield from _free(inner, root, f"{path}.{name}", followed)
        case _:
            yield path


def holds_free_text(value: Json, schema: Json) -> bool:
    """Return whether an answer holds free text despite its schema, for example in an additional field."""
    words = set(_words(schema))
    return any(text not in words and not _MOMENT.fullmatch(text) for text in _texts(value))


def _words(schema: Any) -> Iterator[str]:
    """Yield the texts that a schema itself contains: the values of its enums, and the names of its properties."""
    if isinstance(schema, dict):
        part = cast("dict[str, Any]", schema)
        allowed = [*part.get("enum", ()), part.get("const")]
        yield from [each for each in allowed if isinstance(each, str)]
        if isinstance(part.get("properties"), dict):
            yield from part["properties"]
        for inner in part.values():
            yield from _words(inner)
    elif isinstance(schema, list):
        for inner in cast("list[Any]", schema):
            yield from _words(inner)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, inner in cast("dict[str, Any]", value).items():
            yield key
            yield from _texts(inner)
    elif isinstance(value, list):
        for inner in cast("list[Any]", value):
            yield from _texts(inner)


ALONE = "It sees nothing of this conversation: tell it all it has to know. What it answers is the result of the call."
_PARAMETERS: Json = {
    "type": "object",
    "properties": {
        "input": {"type": "string", "description": "What it is to do, with all it needs to know for it."}
    },
    "required": ["input"],
    "additionalProperties": False,
}


ContextTerms: TypeAlias = Literal["all"] | Sequence[str] | Callable[[Any], Any] | None
"""The context that a subagent gets from its caller: all, some keys, a function's result, or nothing."""


@frozen
@explains_arguments
class Subagent:
    """An agent that another may call, with the terms of the calls.

    Args:
        agent: the `Agent`, or the name of one that the runner knows.
        timeout: seconds for which one task of a call may run. Then it is cancelled and the call fails. Waits for a
            person do not count. None is no limit.
        retries: how many further tasks a call may begin after one that failed or took too long.
        context: the part of the run's context for the agent's tools and functions. It is `all`, the named keys of a
            mapping, or None for nothing. Or a function of the context, without effects, returns it.
        state: the keys of the caller's `ctx.state` that are copied into the state of its task, if they are set.
        on_failure: how a failure affects the caller's task, instead of `FailurePolicy(subagent=)`.
        sanitises: whether its answers are trusted even if the agent has read untrusted content. Its `output_type` must
            consist of numbers, booleans, dates and fixed words, without free text. Fixed words are `Literal` types and
            enums.

    Raises:
        ConfigurationError: a value is not valid; the message names the field.
    """

    agent: Any
    timeout: float | None = field(default=None, kw_only=True)
    retries: int = field(default=0, kw_only=True)
    context: ContextTerms = field(default="all", kw_only=True)
    state: tuple[str, ...] = field(default=(), kw_only=True)
    on_failure: ToolFailurePolicy | None = field(default=None, kw_only=True)
    sanitises: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        timeout, retries, context, state = self.timeout, self.retries, self.context, self.state
        if timeout is not None and (not _is_number(timeout) or not 0 < timeout < float("inf")):
            raise self._error(f"timeout must be a number of seconds above 0, or None, got {timeout!r}")
        if isinstance(retries, bool) or not isinstance(retries, int) or retries < 0:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise self._error(f"retries must be a whole number from 0 up, got {retries!r}")
        if not (context is None or context == "all" or can_be_called(context) or _are_names(context)):
            raise self._error(
                f"context must be 'all', a list of keys, a function of the context, or None, got "
                f"{no_function(context)}"
            )
        if not _are_names(state):
            raise self._error(f"state must be a list of keys of ctx.state, got {state!r}")
        if self.on_failure not in (None, *get_args(ToolFailurePolicy)):
            policies = ", ".join(get_args(ToolFailurePolicy))
            raise self._error(f"on_failure must be one of {policies}, or None, got {self.on_failure!r}")
        if not isinstance(self.sanitises, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise self._error(f"sanitises must be True or False, got {self.sanitises!r}")
        if self.sanitises:
            self._check_sanitises()

    def context_of(self, context: Any) -> Any:
        """Return the context that the agent gets from its caller's context.

        Raises:
            ConfigurationError: the context has no keys, lacks one of them, or the function raised.
        """
        terms = self.context
        if terms is None or terms == "all":
            return context if terms == "all" else None
        if can_be_called(terms):
            try:
                return terms(context)
            except BaseException as error:  # it ends only this call
                raise self._error(f"the function of context= failed: {whole_error_text(error)}") from error
        if not isinstance(context, Mapping):
            reason = (
                "there is none" if context is None else f"the context is of type {type(context).__name__}"
            )
            raise self._error(
                f"context= names keys, and {reason}: pass a mapping, or write a function, context=lambda context: ..."
            )
        values = cast("Mapping[str, Any]", context)
        missing = [name for name in terms if name not in values]
        if missing:
            raise self._error(f"context= names {', '.join(missing)}, which the context does not have")
        return {name: values[name] for name in terms}

    def _check_sanitises(self) -> None:
        schema = answer_schema(self.agent)
        if schema is None:
            raise self._error(
                "sanitises=True needs an agent with an output_type that holds no free text, such as bool or "
                "Literal['spam', 'ham']"
            )
        if (path := free_text(schema)) is not None:
            raise self._error(
                f"sanitises=True, and {path} of its output_type may hold free text: use numbers, bool, dates, "
                "Literal[...] and enums"
            )

    def _error(self, text: str) -> ConfigurationError:
        name = self.agent if isinstance(self.agent, str) else getattr(self.agent, "name", self.agent)
        return ConfigurationError(f"Subagent {name!r}: {text}")


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _are_names(value: Any) -> bool:
    if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
        return False
    return all(isinstance(name, str) for name in cast("Sequence[Any]", value))


def answer_schema(agent: Any) -> Json:
    """Return the JSON schema of an agent's answers; None for text, or if only the agent's name is known."""
    typed: Any = getattr(agent, "typed", None)
    return None if typed is None else typed.value_schema


class SubagentTool:
    """A subagent as a tool for its caller's model.

    Args:
        agent_name: the agent's name.
        description: the purpose of the agent; empty if only its name is known.
        terms: the terms of its calls.
    """

    def __init__(self, agent_name: str, description: str, terms: Subagent | None = None) -> None:
        self.agent_name = agent_name
        description = description or f"Hands work to the agent {agent_name}."
        self.spec = ToolSpec(
            name=re.sub(r"[^A-Za-z0-9_-]", "_", agent_name),
            description=f"{description}\n\n{ALONE}",
            parameters=_PARAMETERS,
            idempotent=True,  # a second start goes on with the task that the first one began
            timeout=None if terms is None else terms.timeout,
            retries=0 if terms is None else terms.retries,
            declared=True,
            trusted=terms is not None and terms.sanitises,
        )
        self._schema = answer_schema(terms.agent) if terms is not None and terms.sanitises else None

    def sanitised(self, output: Json) -> bool:
        """Return whether an answer is a sanitiser's and indeed holds no free text."""
        return self._schema is not None and not holds_free_text(output, self._schema)

    def validate(self, arguments: dict[str, Json]) -> str:
        """Return the input of the agent's task; raises `ToolArgumentsInvalid`."""
        text: Any = arguments.get("input")
        if not isinstance(text, str) or not text.strip() or len(arguments) != 1:
            raise ToolArgumentsInvalid(
                f'{self.spec.name} takes {{"input": text}} and nothing else, and the text must not be empty'
            )
        return text

    async def call(self, arguments: Any, ctx: ToolContext[Any]) -> ToolOutput:
        """Refuse: only a runner can run an agent."""
        raise ConfigurationError(f"only a runner can run the agent {self.agent_name}, as a task of its own")

    async def undo(self, call: ToolCall, ctx: ToolContext[Any]) -> None:
        """Refuse: the calls of an agent are undone in its own task."""
        raise ConfigurationError(f"the calls of the agent {self.agent_name} are undone in its own task")

    async def reconcile(self, call: ToolCall, ctx: ToolContext[Any]) -> Verdict:
        """Return `Unknown`: the outcome is in the journal of the agent's task."""
        return Unknown()
