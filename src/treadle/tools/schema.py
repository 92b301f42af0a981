"""Convert a function's signature and docstring to a JSON schema and a validator, without calling the function.

Only this module imports pydantic and griffe, and only when the first tool is defined.
"""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Callable, Set
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final, NotRequired, cast

from treadle.agents.context import named_type
from treadle.core.data import frozen
from treadle.core.lazy_pattern import lazy_pattern
from treadle.core.messages import Json
from treadle.core.observation import error_text, whole_error_text
from treadle.core.validation_messages import clauses, holds_own_words
from treadle.errors import ToolArgumentsInvalid, ToolDefinitionError
from treadle.ports import ToolContext

if TYPE_CHECKING:
    from pydantic_core import SchemaSerializer, SchemaValidator

_SECTIONS = lazy_pattern(
    r"^\s*(:(param|type|arg|argument|returns?|rtype|raises)\b|[\w ]+:\s*$|(-{3,}|={3,})\s*$)", re.MULTILINE
)


@frozen
class Arguments:
    """A function's parameters: the schema for models, and the validator that builds keyword arguments.

    Args:
        parameters: JSON schema of an object without additional properties.
        description: the docstring without its sections.
        context: the name of the `ToolContext` parameter, or None.
        validator: checks and converts arguments. It leaves out optional arguments that were not passed.
        serializer: writes converted arguments as JSON.
        context_type: X if that parameter is a `ToolContext[X]`; None without a type argument.
    """

    parameters: dict[str, Json]
    description: str
    context: str | None
    validator: SchemaValidator
    serializer: SchemaSerializer
    context_type: Any = None

    def as_taken(self, arguments: dict[str, Json]) -> dict[str, Json]:
        """Return converted arguments as JSON, without defaults for arguments that were not passed."""
        converted = self.validator.validate_python(arguments)
        document = self.serializer.to_python(
            converted, mode="json", by_alias=True, exclude_unset=True, warnings=False
        )
        if arguments.keys() - self.parameters["properties"].keys():
            return document  # an argument was passed by its alias
        return {name: value for name, value in document.items() if name in arguments}

    def problems(self, error: Exception, arguments: Json) -> ToolArgumentsInvalid:
        """Return a compact error from the validator's error for these arguments."""
        from pydantic import ValidationError

        if not isinstance(error, ValidationError):
            text = f"the arguments could not be checked: {whole_error_text(error)}"
            return ToolArgumentsInvalid(text, is_tools=True)
        details = error.errors(include_url=False, include_context=True)
        text = clauses(details, arguments, list(self.parameters["properties"]))
        return ToolArgumentsInvalid(text, is_tools=holds_own_words(details))


def arguments_of(fn: Callable[..., Any], name: str, *, frame: types.FrameType | None = None) -> Arguments:
    """Return the parameters of `fn`.

    Args:
        fn: any callable with a signature.
        name: the tool's name, for errors.
        frame: the defining frame. Annotations may name local types of this frame and its callers.

    Raises:
        ToolDefinitionError: a parameter has no JSON schema, or its annotation cannot be resolved.
    """
    try:
        signature = inspect.signature(fn)
    except (TypeError, ValueError) as error:
        raise ToolDefinitionError(f"tool {name!r}: its signature cannot be read: {error}") from error
    scope = _Scope(fn, frame)
    context: str | None = None
    context_type: Any = None
    fields: dict[str, Any] = {}
    for position, parameter in enumerate(signature.parameters.values()):
        _check_kind(parameter, position, fn, name)
        hint = scope.resolve(parameter.annotation, name, parameter.name)
        if (other := _class_among(hint, _OTHER_CONTEXTS, _LIBRARIES)) is not None:
            raise ToolDefinitionError(
                f"tool {name!r}: parameter {parameter.name!r} is a {other}, which tools are not passed: "
                f"annotate it as ToolContext (`from treadle import ToolContext`)"
            )
        if parameter.annotation is parameter.empty and parameter.name in _CALLED_CONTEXT:
            raise ToolDefinitionError(
                f"tool {name!r}: parameter {parameter.name!r} has no annotation, so the model would fill it in: "
                f"annotate it as ToolContext (`from treadle import ToolContext`)"
            )
        if _class_among(hint, _CONTEXT) is None:
            fields[parameter.name] = _field(hint, parameter.default)
        elif context is None:
            context, context_type = parameter.name, named_type(hint, ToolContext)
        else:
            raise ToolDefinitionError(
                f"tool {name!r}: parameters {context!r} and {parameter.name!r} are both a ToolContext"
            )
    validator, serializer, parameters = _compiled(fields, name)
    description, described = _docstring(inspect.getdoc(_target(fn)) or "")
    for parameter, text in described.items():
        if parameter in parameters["properties"]:
            parameters["properties"][parameter].setdefault("description", text)
    return Arguments(parameters, description, context, validator, serializer, context_type)


# ------------------------------------------------------------------------------------------- parameters


def _target(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function that has the annotations and the docstring."""
    fn = inspect.unwrap(fn)
    while isinstance(fn, partial):
        fn = fn.func
    return fn if inspect.isroutine(fn) else type(fn).__call__


def _check_kind(parameter: inspect.Parameter, position: int, fn: Callable[..., Any], name: str) -> None:
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        stars = "*" if parameter.kind is parameter.VAR_POSITIONAL else "**"
        raise ToolDefinitionError(
            f"tool {name!r}: parameter '{stars}{parameter.name}' has no schema; name the parameters one by one"
        )
    if parameter.kind is parameter.POSITIONAL_ONLY:
        raise ToolDefinitionError(
            f"tool {name!r}: parameter {parameter.name!r} is positional-only, but arguments are passed by name"
        )
    owner = getattr(fn, "__qualname__", "").rpartition(".")[0]
    in_class = bool(owner) and not owner.endswith("<locals>") and isinstance(fn, types.FunctionType)
    if position == 0 and in_class and parameter.name in ("self", "cls"):
        raise ToolDefinitionError(
            f"tool {name!r}: parameter {parameter.name!r}: a method becomes a tool when it is bound to its object: "
            f"tool(obj.{name})"
        )


class _Scope:
    """The namespace for annotations: the module, the closure, and the frames around the definition."""

    def __init__(self, fn: Callable[..., Any], frame: types.FrameType | None) -> None:
        target = _target(fn)
        self._globals: dict[str, Any] = getattr(target, "__globals__", {})
        self._target = target
        self._frame = frame
        self._locals: dict[str, Any] | None = None

    def resolve(self, annotation: Any, tool: str, parameter: str) -> Any:
        """Return the type of an annotation; Any if there is none."""
        if annotation is inspect.Parameter.empty:
            return Any
        try:
            return self._evaluated(annotation)
        except Exception as error:
            if "ToolContext" in str(getattr(annotation, "__forward_arg__", annotation)):
                return ToolContext  # its type argument may be imported for type checkers only
            raise ToolDefinitionError(
                f"tool {tool!r}: parameter {parameter!r}: its annotation {annotation!r} cannot be resolved: "
                f"{error_text(error, 300)}"
            ) from error

    def _evaluated(self, annotation: Any) -> Any:
        if isinstance(annotation, type) and not isinstance(annotation, types.GenericAlias):
            return annotation
        holder = types.SimpleNamespace(__annotations__={"it": annotation})
        hints = typing.get_type_hints(holder, self._globals, self._names(), include_extras=True)
        return hints["it"]

    def _names(self) -> dict[str, Any]:
        """Return local names, inner scopes first.

        `ToolContext` is added, as it is often imported for type checkers only.
        """
        if self._locals is not None:
            return self._locals
        names: dict[str, Any] = {} if "ToolContext" in self._globals else {"ToolContext": ToolContext}
        frames: list[dict[str, Any]] = []
        frame = self._frame
        while frame is not None:
            if frame.f_globals is self._globals and frame.f_locals is not frame.f_globals:
                frames.append(frame.f_locals)
            frame = frame.f_back
        for scope in reversed(frames):
            names.update(scope)
        code, cells = (
            getattr(self._target, "__code__", None),
            getattr(self._target, "__closure__", None) or (),
        )
        for name, cell in zip(code.co_freevars if code else (), cells, strict=False):
            try:
                names[name] = cell.cell_contents
            except ValueError:
                continue  # not assigned yet
        for parameter in getattr(self._target, "__type_params__", ()):
            names[parameter.__name__] = parameter
        self._locals = names
        return names


_CONTEXT: Final = frozenset({"ToolContext"})
_CALLED_CONTEXT: Final = frozenset({"ctx", "run_context", "tool_context"})
"""Usual names of context parameters. One of them without an annotation is an error."""

_OTHER_CONTEXTS: Final = frozenset(
    {"NodeContext", "RequestContext", "RunContext", "RunContextWrapper", "StepContext"}
)
_LIBRARIES: Final = frozenset({"treadle", "pydantic_ai", "agents"})
"""The packages whose classes of these names are contexts: Treadle, Pydantic AI and the OpenAI Agents SDK."""


def _class_among(hint: Any, names: Set[str], packages: Set[str] = frozenset({"treadle"})) -> str | None:
    """Return which of these classes a type is. Generic, optional and annotated types count.

    Args:
        hint: the type.
        names: the names of the classes.
        packages: the packages that may define them.
    """
    origin = typing.get_origin(hint)
    if origin is typing.Annotated:
        return _class_among(typing.get_args(hint)[0], names, packages)
    if origin in (typing.Union, types.UnionType):
        members = (_class_among(member, names, packages) for member in typing.get_args(hint))
        return next(filter(None, members), None)
    cls = hint if origin is None else origin
    is_theirs = isinstance(cls, type) and cls.__module__.partition(".")[0] in packages
    return cls.__name__ if is_theirs and cls.__name__ in names else None


def _field(hint: Any, default: Any) -> Any:
    from pydantic import Field
    from pydantic.fields import FieldInfo

    if default is inspect.Parameter.empty:
        return hint
    if isinstance(default, FieldInfo):
        return Annotated[hint, default] if default.is_required() else NotRequired[Annotated[hint, default]]
    if default is None:
        hint = hint | None if isinstance(hint, (type, types.UnionType)) else typing.Union[hint, None]  # noqa: UP007
    return NotRequired[Annotated[hint, Field(default=default)]]


def _compiled(fields: dict[str, Any], name: str) -> tuple[SchemaValidator, SchemaSerializer, dict[str, Json]]:
    """Return the validator, serializer and schema of a typed dict, whose keys may be any parameter name."""
    from pydantic import ConfigDict, TypeAdapter
    from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError
    from pydantic.json_schema import GenerateJsonSchema
    from typing_extensions import TypedDict

    class Compact(GenerateJsonSchema):
        """A schema without titles, which repeat the names. It does not warn of defaults without a JSON form."""

        ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012

        def field_title_should_be_set(self, schema: Any) -> bool:
            return False

    def build(fields: dict[str, Any]) -> tuple[SchemaValidator, SchemaSerializer, dict[str, Json]]:
        shape: Any = TypedDict("Arguments", fields)  # pyright: ignore[reportArgumentType, reportGeneralTypeIssues, reportUnknownVariableType]
        shape.__pydantic_config__ = ConfigDict(extra="forbid")
        adapter = TypeAdapter[Any](shape)
        schema = adapter.json_schema(schema_generator=Compact)
        return cast("SchemaValidator", adapter.validator), adapter.serializer, schema

    try:
        validator, serializer, schema = build(fields)
    except Exception as error:
        for parameter, field in fields.items():
            try:
                build({parameter: field})
            except Exception as error:
                text = error.message if isinstance(error, PydanticUserError) else error_text(error)
                if isinstance(error, PydanticSchemaGenerationError):
                    text = f"a model cannot write {field!r:.80}; a tool reads such objects from ToolContext.context"
                raise ToolDefinitionError(
                    f"tool {name!r}: parameter {parameter!r}: no JSON schema for its type: "
                    f"{text.partition(chr(10))[0][:300]}"
                ) from error
        raise ToolDefinitionError(f"tool {name!r}: no JSON schema: {error_text(error, 300)}") from error
    schema.pop("title", None)
    schema.setdefault("additionalProperties", False)
    return validator, serializer, schema


# -------------------------------------------------------------------------------------------- docstrings


def _docstring(text: str) -> tuple[str, dict[str, str]]:
    """Split a docstring into its text and its parameter descriptions (Google, NumPy or Sphinx style)."""
    if not _SECTIONS.search(text):
        return text.strip(), {}
    from griffe import Docstring, infer_docstring_style

    docstring = Docstring(text)
    style, _ = infer_docstring_style(docstring)
    if style is None:
        return text.strip(), {}
    sections = docstring.parse(style, warnings=False)
    texts = [cast("str", section.value).strip() for section in sections if section.kind.value == "text"]
    described = {
        item.name: " ".join(item.description.split())
        for section in sections
        if section.kind.value in ("parameters", "other parameters")
        for item in section.value
    }
    return "\n\n".join(texts), described


def defining_frame() -> types.FrameType | None:
    """Return the nearest calling frame outside `treadle.tools`."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__", "").startswith("treadle.tools"):
        frame = frame.f_back
    return frame
