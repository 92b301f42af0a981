"""Tools that the caller of a task runs: declared with the task, called by its model, answered from outside.

A call of such a tool runs no code here. Like a question, it stops the task until the caller brings the result:
`complete(request_id, value, task=...)` or `fail(...)`. The process may exit meanwhile.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final, cast

from treadle.core.codec import flaw
from treadle.core.data import frozen
from treadle.core.json_schema import misfit, schema_flaw
from treadle.core.lazy_pattern import lazy_pattern
from treadle.core.messages import Json, ToolCall
from treadle.core.tools import ToolSpec, Unknown, Verdict
from treadle.core.unknown_names import explains_arguments
from treadle.errors import ConfigurationError, ToolArgumentsInvalid, ToolError
from treadle.ports import ToolContext, ToolOutput

_NAME: Final = lazy_pattern(r"[A-Za-z0-9_-]{1,64}")

MOST_BYTES: Final = 64 << 10
"""The largest JSON schema of a tool, in bytes: it is checked for each call, and sent with each request."""


def _any_arguments() -> Json:
    return {"type": "object", "properties": {}}


@frozen
@explains_arguments
class CallerTool:
    """A tool that the caller of a task runs, for `RunOptions(caller_tools=[...])`.

    Args:
        name: the name for the model: letters, digits, `_` and `-`, at most 64.
        description: the description for the model.
        parameters: JSON schema of the arguments, an object of up to 64 KiB; None for a tool without arguments. Its
            patterns are sent to the model but not checked here, because the match of a stranger's pattern can take
            long.

    Raises:
        ConfigurationError: a value is not valid; the message names the field.
    """

    name: str
    description: str = ""
    parameters: Json = None

    def __post_init__(self) -> None:
        name: Any = self.name
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ConfigurationError(
                f"CallerTool.name must be up to 64 letters, digits, _ and -, got {name!r:.80}"
            )
        description: Any = self.description
        if not isinstance(description, str):
            raise ConfigurationError(f"CallerTool.description must be a text, got {description!r:.80}")
        schema: Any = self.parameters
        if schema is not None and (
            not isinstance(schema, dict) or cast("Any", schema).get("type") != "object"
        ):
            raise ConfigurationError(
                f"CallerTool.parameters must be the JSON schema of an object, got {schema!r:.80}"
            )
        if (problem := flaw([description, schema])) is not None:
            raise ConfigurationError(f"CallerTool {name!r} cannot be stored with a task: it is {problem}")
        if len(json.dumps(schema)) > MOST_BYTES:
            raise ConfigurationError(f"CallerTool.parameters of {name!r} has more than {MOST_BYTES:,} bytes")
        if schema is not None and (problem := schema_flaw(schema)) is not None:
            raise ConfigurationError(f"CallerTool.parameters of {name!r}: {problem}")


class AnsweredTool:
    """A `CallerTool` as the tool of an agent: each call asks for its result and waits for it.

    Args:
        declared: the declaration of the caller.
    """

    def __init__(self, declared: CallerTool) -> None:
        self._spec = ToolSpec(
            name=declared.name,
            description=declared.description,
            parameters=declared.parameters if declared.parameters is not None else _any_arguments(),
            idempotent=True,  # to ask for the result again changes nothing
            open_world=True,
            declared=True,
        )

    def __repr__(self) -> str:
        return f"<caller tool {self._spec.name}>"

    @property
    def spec(self) -> ToolSpec:
        """The tool as models see it."""
        return self._spec

    def validate(self, arguments: dict[str, Json]) -> Any:
        """Return the arguments; raises `ToolArgumentsInvalid`."""
        problem = misfit(cast("Json", arguments), self._spec.parameters, "the arguments", patterns=False)
        if problem is not None:
            raise ToolArgumentsInvalid(problem)
        return arguments

    async def call(self, arguments: Any, ctx: ToolContext[Any]) -> ToolOutput:
        """Return the caller's result; raises `ToolError` with the caller's error message."""
        text = f"the caller of the task is to run {self._spec.name} and to bring its result"
        answer = await ctx.open_services().ask(text, dict[str, Any], None, ())
        if "error" in answer:
            raise ToolError(str(answer["error"]))
        return ToolOutput(answer.get("output"))

    async def undo(self, call: ToolCall, ctx: ToolContext[Any]) -> None:
        """Raise `ToolError`: only the caller can undo its work."""
        raise ToolError(f"tool {self._spec.name!r} has no undo=")

    async def reconcile(self, call: ToolCall, ctx: ToolContext[Any]) -> Verdict:
        """Return `Unknown`, so that the result is requested again."""
        return Unknown()


def names_of(options: Json) -> frozenset[str]:
    """Return the names of the caller's tools in the stored options of a task."""
    stored: Any = options
    tools: Sequence[Any] = stored.get("caller_tools", ()) if stored else ()
    return frozenset([str(tool["name"]) for tool in tools])
