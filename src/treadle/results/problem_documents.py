"""Convert errors to `application/problem+json` (RFC 9457) and back. The fields of the error's class are members.

    {"type": "urn:treadle:error:TaskConflict", "title": "A task of this id exists with another agent, ...",
     "detail": "task 't1' exists with another input", "task_id": "t1", "state": null, "field": "input"}

The type names the class, from a closed table; an error of another kind is read as a plain `TreadleError`.
"""

from __future__ import annotations

import inspect
from functools import cache
from typing import Any, Final

from treadle import errors
from treadle.core.events import Failure
from treadle.core.messages import Json
from treadle.core.model import Usage
from treadle.errors import InvalidField, TreadleError
from treadle.results.pending import Pending
from treadle.results.run_result import RunResult
from treadle.results.step_outputs import TaskStepOutput
from treadle.results.wire import from_wire, to_wire

TYPE: Final = "urn:treadle:error:"
"""The prefix of a problem's type; the name of the error's class follows."""

_MEMBERS: Final = frozenset({"type", "title", "detail", "status", "instance"})
_TYPED_FIELDS: Final[dict[str, Any]] = {
    "pending": tuple[Pending, ...],
    "calls": tuple[str, ...],
    "output": TaskStepOutput[Any] | None,
    "error": Failure | None,
    "result": RunResult[Any] | None,
    "usage": Usage | None,
}


def error_to_wire(error: BaseException, detail: str | None = None) -> dict[str, Json]:
    """Return the problem document of an error, with its message or another `detail`."""
    cls = error.__class__
    document: dict[str, Any] = {
        "type": f"{TYPE}{cls.__name__}",
        "title": (inspect.getdoc(cls) or "").partition("\n")[0],
        "detail": str(error) if detail is None else detail,
    }
    if isinstance(error, TreadleError):
        names = _fields(cls) - _MEMBERS
        own = {name: value for name, value in vars(error).items() if name in names}
        document |= to_wire(own)
    return document


def error_from_wire(document: Json) -> TreadleError:
    """Return the error of a problem document, with the fields of its class.

    Raises:
        InvalidField: the document is not a problem document, or a field is of another type.
    """
    name = from_wire(dict[str, Any], document).get("type")
    class_name = str(name).removeprefix(TYPE)
    cls = _classes().get(class_name, TreadleError)
    detail = document.get("detail") or document.get("title") or str(name)
    error = cls.__new__(cls, detail)
    error.args = (detail,)
    for field in _fields(cls):
        value = document.get(field) if field not in _MEMBERS else None
        setattr(error, field, _read(field, value) if value is not None else None)
    return error


def _read(field: str, value: Json) -> Any:
    try:
        return from_wire(_TYPED_FIELDS.get(field, Any), value)
    except InvalidField as problem:
        raise problem.inside(field) from None


@cache
def _classes() -> dict[str, type[TreadleError]]:
    classes = [
        cls for cls in vars(errors).values() if isinstance(cls, type) and issubclass(cls, TreadleError)
    ]
    return {cls.__name__: cls for cls in classes if cls is not errors.UnknownAttribute}


@cache
def _fields(cls: type[BaseException]) -> frozenset[str]:
    """Return the names of an error class's fields besides its message."""
    if cls is errors.GuardrailStopped:
        return frozenset({"result", "guards", "guardrail", "by"})
    names: set[str] = set()
    for each in cls.__mro__:
        if each.__module__ == errors.__name__ and "__init__" in vars(each):
            names |= inspect.signature(each.__init__).parameters.keys()
    return frozenset(names - {"self", "message"})
