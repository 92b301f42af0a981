"""Errors as problem documents: each class of the tree comes back, with its message and its fields."""

import inspect
import json
from dataclasses import replace
from typing import Any

import pytest

from treadle import Agent, Runner, ScriptedModel, errors
from treadle.core.events import Failure
from treadle.errors import TreadleError
from treadle.results.pending import Pending
from treadle.results.problem_documents import TYPE, error_from_wire, error_to_wire
from treadle.results.run_result import RunResult
from treadle.results.wire import wire_bytes

pytestmark = pytest.mark.anyio
CLASSES = [
    cls
    for cls in vars(errors).values()
    if isinstance(cls, type)
    and issubclass(cls, TreadleError)
    and cls
    not in (errors.UnknownAttribute, errors.GuardrailStopped)  # the one is no answer, the other has a test
]
VALUES: dict[str, Any] = {
    "pending": (Pending("s1-0", "approval", "order", {"item": "tea"}, "waits"),),
    "calls": ("s1-0",),
    "seq": 7,
    "line": 3,
    "needs": 9,
    "knows": 5,
    "error": Failure("tool", "error", "no"),
    "output": None,
    "usage": None,
    "also": (),
    "is_tools": True,
    "status": None,
    "retry_after": 1.5,
    "again_in": None,
}


@pytest.fixture
async def ended() -> RunResult[Any]:
    async with Runner("memory:") as runner:
        return await runner.run(Agent(ScriptedModel(["Hello."])), "Hi")


def there_and_back(error: BaseException) -> TreadleError:
    return error_from_wire(json.loads(wire_bytes(error_to_wire(error))))


def made(cls: type[TreadleError], result: RunResult[Any]) -> TreadleError:
    """Return an error of a class, with a value for each of its fields."""
    arguments: dict[str, Any] = {}
    for name, parameter in inspect.signature(cls.__init__).parameters.items():
        if name == "result":
            arguments[name] = result
        elif name != "self" and parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            arguments[name] = VALUES.get(name, f"a {name}")
    return cls(**arguments) if arguments else cls("no")


async def test_every_error_comes_back_with_its_class_message_and_fields(ended: RunResult[Any]) -> None:
    assert len(CLASSES) > 50
    for cls in CLASSES:
        error = made(cls, ended)
        back = there_and_back(error)
        assert (type(back), str(back)) == (cls, str(error))
        for name, value in vars(error).items():
            assert getattr(back, name) == value or (name == "also" and not value), f"{cls.__name__}.{name}"


async def test_a_task_that_a_guardrail_stopped_is_told_by_the_same_fields(ended: RunResult[Any]) -> None:
    refused = Failure("guardrail", "input", "no", rule="g1", by="ada")
    error = errors.GuardrailStopped("refused", replace(ended, error=refused, state="failed"))
    back: Any = there_and_back(error)
    assert (type(back), back.guards, back.guardrail, back.by) == (
        errors.GuardrailStopped,
        "input",
        "g1",
        "ada",
    )
    assert back.result == error.result


def test_a_problem_says_its_class_its_sentence_and_its_message() -> None:
    error = errors.TaskConflict("task 't1' exists with another input", task_id="t1", field="input")
    assert error_to_wire(error) == {
        "type": f"{TYPE}TaskConflict",
        "title": "A task of this id exists with another agent, input or thread. `field` names the difference.",
        "detail": "task 't1' exists with another input",
        "task_id": "t1",
        "state": None,
        "field": "input",
    }


def test_an_error_of_a_class_that_this_version_does_not_know_is_read_as_the_base_of_all() -> None:
    back = error_from_wire({"type": "urn:treadle:error:MoonMissing", "detail": "no moon", "moon": 3})
    assert (type(back), str(back)) == (TreadleError, "no moon")
    for name in ("Exception", "open", "Any", "__builtins__", "UnknownAttribute"):
        assert type(error_from_wire({"type": TYPE + name})) is TreadleError


def test_what_is_no_problem_is_refused() -> None:
    with pytest.raises(errors.InvalidField, match="should be an object"):
        error_from_wire([])
    with pytest.raises(errors.InvalidField, match=r"pending\[0\]"):
        error_from_wire({"type": TYPE + "TaskParked", "detail": "x", "pending": [3]})
