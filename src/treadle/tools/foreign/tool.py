"""`ForeignTool`: a tool of another library as a tool of an agent, and the terms that its caller declares."""

from __future__ import annotations

import inspect
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NoReturn, TypeVar, cast

from treadle.core.data import frozen
from treadle.core.messages import Json, ToolCall
from treadle.core.tools import ToolSpec, Unknown, Verdict
from treadle.core.validation_messages import clauses, holds_own_words
from treadle.errors import ConfigurationError, ToolArgumentsInvalid, ToolError
from treadle.ports import ToolContext, ToolOutput
from treadle.tools.definitions import FLAGS, checked_effects, described, effects_of, plain_name
from treadle.tools.faults import contain
from treadle.tools.threads import in_thread

T = TypeVar("T")

Validate = Callable[[dict[str, Json]], Any]
Call = Callable[[Any, ToolContext[Any]], Awaitable[ToolOutput]]
AsTaken = Callable[[dict[str, Json]], dict[str, Json] | None]
NeedsApproval = Callable[[Any, ToolContext[Any]], Awaitable[bool]]


class ForeignTool:
    """A tool that another library or a document defines.

    Args:
        spec: the tool as models see it.
        validate: checks arguments, as the port describes.
        call: runs the tool with the value that `validate` returned.
        code: a digest of its code. An approval holds only for the approved code.
        as_taken: returns arguments as the tool receives them, for policies; None if that is unknown.
        needs_approval: returns whether a call with these arguments needs an approval. The default is the
            specification's.
    """

    def __init__(
        self,
        spec: ToolSpec,
        validate: Validate,
        call: Call,
        *,
        code: str = "",
        as_taken: AsTaken | None = None,
        needs_approval: NeedsApproval | None = None,
    ) -> None:
        self._spec, self._validate, self._call = spec, validate, call
        self._as_taken, self._needs_approval = as_taken, needs_approval
        self.code = code

    def __repr__(self) -> str:
        return f"<foreign tool {self._spec.name} ({self._spec.effect})>"

    @property
    def spec(self) -> ToolSpec:
        return self._spec

    def validate(self, arguments: dict[str, Json]) -> Any:
        return self._validate(arguments)

    def as_taken(self, arguments: dict[str, Json]) -> dict[str, Json] | None:
        """Return arguments as JSON in the form that the tool receives; None if that is unknown."""
        return None if self._as_taken is None else self._as_taken(arguments)

    async def call(self, arguments: Any, ctx: ToolContext[Any]) -> ToolOutput:
        try:
            return await self._call(arguments, ctx)
        except BaseException as error:
            contain(error)
            raise

    async def needs_approval(self, arguments: Any, ctx: ToolContext[Any]) -> bool:
        """Return whether a person must approve a call with these arguments."""
        if self._needs_approval is None:
            return self._spec.needs_approval
        return await self._needs_approval(arguments, ctx)

    async def undo(self, call: ToolCall, ctx: ToolContext[Any]) -> None:
        raise ToolError(f"tool {self._spec.name!r} has no undo=")

    async def reconcile(self, call: ToolCall, ctx: ToolContext[Any]) -> Verdict:
        return Unknown()


@frozen
class Terms:
    """The checked arguments of an adapter that apply to all its tools.

    Args:
        adapter: the adapter's name, for errors.
        effects: declared effects by patterns of tool names.
        timeout: seconds that a call may take; None for no limit.
        retries: how often a failed call of a read-only or idempotent tool is tried again.
    """

    adapter: str
    effects: Mapping[str, Sequence[str]]
    timeout: float | None
    retries: int

    @classmethod
    def of(cls, adapter: str, effects: Any, timeout: Any, retries: Any) -> Terms:
        """Return terms; raises `ConfigurationError` for a value that is not valid."""

        def refuse(field: str, reason: str) -> NoReturn:
            raise ConfigurationError(f"{adapter}: {field} {reason}")

        is_number = isinstance(timeout, (int, float)) and not isinstance(timeout, bool)
        if timeout is not None and not (is_number and 0 < timeout < math.inf):
            refuse("timeout", f"must be seconds, more than 0, or None, got {timeout!r}")
        if isinstance(retries, bool) or not isinstance(retries, int) or retries < 0:
            refuse("retries", f"must be a whole number from 0 up, got {retries!r}")
        return cls(adapter, checked_effects(effects, refuse), timeout, retries)

    def spec(
        self,
        name: str,
        description: str,
        parameters: Mapping[str, Json],
        *,
        names: Sequence[str] = (),
        by_default: frozenset[str] | None = None,
        **more: Any,
    ) -> ToolSpec:
        """Return a tool's specification for models and the core.

        Args:
            name: the tool's name in its library.
            description: the description for models.
            parameters: JSON schema of its arguments.
            names: the names that patterns of `effects` match. The default is its name for models.
            by_default: its effects if the caller declares none; None if they are unknown.
            more: further fields of the specification.
        """
        name = plain_name(name)
        flags = effects_of(self.effects, *(names or (name,)))
        flags = by_default if flags is None else flags
        may_retry = flags is not None and bool(flags & {"read_only", "idempotent"})
        return ToolSpec(
            name=name,
            description=described(description),
            parameters={"type": "object", "properties": {}, **parameters},
            timeout=self.timeout,
            retries=self.retries if may_retry else 0,
            declared=flags is not None,
            **{flag: flag in (flags or ()) for flag in FLAGS},
            **more,
        )

    def check_used(self, names: Sequence[str]) -> None:
        """Raise `ConfigurationError` for a pattern in `effects=` that matches no tool."""
        for pattern in self.effects:
            if effects_of({pattern: ()}, *names) is None:
                tool_names = ", ".join(names) or "none"
                raise ConfigurationError(
                    f"{self.adapter}: effects names {pattern!r}, and no tool is called so: {tool_names:.500}"
                )


def checked_tools(adapter: str, tools: Sequence[Any], problem_with: Callable[[Any], str | None]) -> None:
    """Raise `ConfigurationError` for an object that an adapter does not accept.

    Args:
        adapter: the adapter's name, for the error.
        tools: the objects.
        problem_with: returns the problem with an object, or None.
    """
    for index, tool in enumerate(tools):
        if isinstance(tool, (list, tuple)):
            raise ConfigurationError(f"{adapter}: argument {index} is a list: write {adapter}(*tools)")
        problem = problem_with(tool)
        if problem is not None:
            raise ConfigurationError(f"{adapter}: argument {index}, {_described_object(tool)}, {problem}")


def _described_object(value: Any) -> str:
    if isinstance(value, type):
        return f"the class {value.__name__}"
    return f"the function {value.__name__}" if inspect.isfunction(value) else f"a {type(value).__name__}"


def is_of(value: Any, *modules: str) -> bool:
    """Return whether an object's class, or a base class, is defined in one of the modules or packages."""
    return any(
        kind.__module__ == module or kind.__module__.startswith(f"{module}.")
        for kind in type(value).__mro__
        for module in modules
    )


def validated(model: Any, arguments: dict[str, Json], names: Sequence[str]) -> Any:
    """Return arguments as an object of a pydantic model. Raises `ToolArgumentsInvalid` with the problems."""
    try:
        if hasattr(model, "model_validate"):
            return model.model_validate(arguments)
        return model.parse_obj(arguments)
    except Exception as error:
        details: Any = getattr(error, "errors", None)
        if details is None:
            raise
        try:
            errors: Any = details(include_url=False)
        except TypeError:  # pydantic 1, whose errors have no input
            errors = [{"input": None, **each} for each in details()]
        text = clauses(errors, cast("Json", arguments), names)
        raise ToolArgumentsInvalid(text, is_tools=holds_own_words(errors)) from error


def taken_by(model: Any, arguments: dict[str, Json]) -> dict[str, Json] | None:
    """Return arguments as a pydantic model converts them, as JSON; None if they have no JSON form."""
    try:
        converted: Any = model.model_validate(arguments).model_dump(
            mode="json", by_alias=True, exclude_unset=True
        )
    except Exception:  # noqa: BLE001  rules then see the arguments as the model wrote them
        return None
    return cast("dict[str, Json]", converted) if isinstance(converted, dict) else None


async def in_tool_thread(ctx: ToolContext[Any], name: str, work: Callable[[], T]) -> T:
    """Run a blocking function in a tool thread, which counts until it ends, and return its result."""
    return await in_thread(
        lambda _: work(),
        tool=name,
        task_id=ctx.task_id,
        call_id=ctx.call_id,
        on_left_behind=ctx.on_left_behind,
    )
