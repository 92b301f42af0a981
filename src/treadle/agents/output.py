"""`OutputType`: the type of an agent's answer, as a schema for its model and a check of the model's text.

`AnswerType` is its base. Answers of people use it too.

Pydantic is imported when the first agent with an `output_type` is made. Nothing here decides: the engine reads an
answer with it, and the journal holds the value as JSON data.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Generic, cast

from treadle.core.messages import Json
from treadle.core.observation import error_text, whole_error_text
from treadle.core.validation_messages import clauses
from treadle.errors import ConfigurationError
from treadle.ports import OutputT_co

if TYPE_CHECKING:
    from pydantic import TypeAdapter

WRAPPER: Final = "answer"
"""The one property of the object that wraps an answer which is not an object itself."""


def _no_type(annotation: Any) -> str | None:
    """Return the advice for a value that is not a type; None if it may be one."""
    if isinstance(annotation, (list, tuple)):
        members = " | ".join(
            [getattr(each, "__name__", repr(each)) for each in cast("list[Any]", annotation)]
        )
        return f"for an answer of one of several types, write {members}"
    if isinstance(annotation, str):
        return "give the type itself, not its name"
    if isinstance(annotation, dict):
        return "give the type that a schema describes, such as a class derived from pydantic.BaseModel"
    if not isinstance(annotation, type) and type(annotation).__module__ not in (
        "typing",
        "types",
        "builtins",
    ):
        return f"it is a {type(annotation).__name__}, not a type"
    return None


class AnswerType(Generic[OutputT_co]):
    """The type of an answer: that of an agent, or that of a person to a question.

    Args:
        owner: the owner of the type, for errors, such as "Agent 'a': output_type".
        annotation: any type that pydantic supports, also a union or an annotated one.

    Raises:
        ConfigurationError: pydantic knows no schema for it.
    """

    __slots__ = ("_adapter", "name", "schema")

    name: str
    """the name of the type, for people"""

    schema: dict[str, Json]
    """JSON schema of an answer"""

    def __init__(self, owner: str, annotation: Any) -> None:
        from inspect import isroutine

        from pydantic import TypeAdapter
        from pydantic.json_schema import GenerateJsonSchema

        if isroutine(annotation):
            raise ConfigurationError(
                f"{owner} is the function {annotation.__name__!r}, not a type: write the type of its result. "
                "To compute an answer by a function, make it a tool with @tool(return_direct=True)"
            )

        class Quiet(GenerateJsonSchema):
            """Omits warnings about defaults without a JSON form."""

            ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012

        self.name = annotation.__name__ if isinstance(annotation, type) else str(annotation)
        try:
            self._adapter: TypeAdapter[Any] = TypeAdapter(annotation)
            self.schema = self._adapter.json_schema(schema_generator=Quiet)
        except Exception as error:
            reason = _no_type(annotation) or error_text(error, 300).partition("\n")[0]
            raise ConfigurationError(f"{owner} {annotation!r:.200} has no JSON schema: {reason}") from error

    def dump(self, value: Any) -> Json:
        """Return a value of the type as JSON data that `made` reads. Raises for a value of another type."""
        data = self._adapter.dump_python(value, mode="json", by_alias=True, warnings="error")
        self.checked(data)
        return data

    def made(self, data: Json) -> OutputT_co:
        """Return the value for JSON data; raises the errors of pydantic or of a validator."""
        from pydantic_core import to_json

        # Read as JSON: there a date is text and a tuple is a list, also for strict types.
        return self._adapter.validate_json(to_json(data))

    def checked(self, data: Json) -> OutputT_co:
        """Return the value for JSON data; raises `ValueError`, whose message lists the misfits."""
        from pydantic import ValidationError

        try:
            return self.made(data)
        except ValidationError as error:
            fields = list(cast("dict[str, Json]", self.schema.get("properties", {})))
            details = error.errors(include_url=False, include_context=True)
            raise ValueError(clauses(details, data, fields, "the answer")) from error
        except Exception as error:
            raise ValueError(f"it could not be checked: {whole_error_text(error)}") from error


class OutputType(AnswerType[OutputT_co]):
    """The type of an agent's answers, and the object that its model writes.

    Args:
        agent: the agent's name, for errors.
        annotation: any type that pydantic supports, also a union or an annotated one.

    Raises:
        ConfigurationError: pydantic knows no schema for it.
    """

    __slots__ = ("_wraps",)

    schema: dict[str, Json]
    """JSON schema of the object that a model writes: the type's own, or one that wraps the answer"""

    def __init__(self, agent: str, annotation: Any) -> None:
        super().__init__(f"Agent {agent!r}: output_type", annotation)
        self._wraps = self.schema.get("type") != "object"
        if self._wraps:
            self.schema = _wrapped(self.schema)

    @property
    def value_schema(self) -> dict[str, Json]:
        """JSON schema of the answer itself, without its wrapper."""
        if not self._wraps:
            return self.schema
        inner = cast("dict[str, dict[str, Json]]", self.schema["properties"])[WRAPPER]
        return {**inner, "$defs": self.schema["$defs"]} if "$defs" in self.schema else inner

    def read(self, written: Json) -> Json:
        """Return the answer in a model's JSON data, as JSON data that `load` reads.

        An answer that needs a wrapper is also read without it. Raises `ValueError`; the message names the wrong fields
        and the reasons.
        """
        wrapped = self._is_wrapped(written)
        data = cast("dict[str, Json]", written)[WRAPPER] if wrapped else written
        try:
            value = self.checked(data)
        except ValueError as error:
            if self._wraps and not wrapped:
                raise ValueError(f'write {{"{WRAPPER}": ...}} with the answer in it ({error})') from error
            raise
        try:
            # With defaults filled in and texts converted to numbers, but only if the result reads as the same value.
            dumped = self._adapter.dump_python(value, mode="json", by_alias=True)
            again = self.made(dumped)
            return dumped if type(again) is type(value) and again == value else data
        except Exception:  # noqa: BLE001  a serializer or comparison of the user failed: keep the model's data
            return data

    def _is_wrapped(self, written: Json) -> bool:
        return (
            self._wraps and isinstance(written, dict) and list(cast("dict[str, Json]", written)) == [WRAPPER]
        )

    def load(self, data: Json) -> OutputT_co:
        """Return the answer for JSON data of a journal.

        Data of another version of the agent is returned unchanged if it does not fit this type.
        """
        try:
            return self.made(data)
        except Exception:  # noqa: BLE001  a validator of the user failed, and a result is never an exception
            return data

    def partial(self, data: Json) -> OutputT_co:
        """Return an answer that is still being written. Raises `ValueError` until it fits the type.

        An incomplete last item of a list or a mapping is left out.
        """
        from pydantic_core import to_json

        return self._adapter.validate_json(to_json(data), experimental_allow_partial="trailing-strings")

    def unwrapped(self, written: Json) -> Json:
        """Return the answer so far in an object that a model is still writing."""
        if not self._wraps or not isinstance(written, dict):
            return written
        return cast("dict[str, Json]", written).get(WRAPPER)


def _wrapped(schema: dict[str, Json]) -> dict[str, Json]:
    definitions = schema.pop("$defs", None)
    outer: dict[str, Json] = {
        "type": "object",
        "properties": {WRAPPER: schema},
        "required": [WRAPPER],
        "additionalProperties": False,
    }
    return outer if definitions is None else {**outer, "$defs": definitions}
