"""The faces of the runner's verbs: those of handles, and those without asyncio."""

import inspect
import re
from typing import Any

import pytest

from treadle import Runner
from treadle.errors import WrongArguments
from treadle.runner.handle import RunHandle
from treadle.runner.runner import TaskRunner
from treadle.runner.sync import SyncHandle, SyncRunner

pytestmark = pytest.mark.anyio

OF_THE_FACE = {"result", "list_pending", "complete", "fail", "progress"}
"""Methods of a handle that are written by hand: each takes a part of what the verb takes."""

OTHER_RESULTS = {"run_stream", "stream_step", "start", "handle", "changes", "scoped"}
"""Methods of `runner.sync` that return the counterpart without asyncio: `SyncHandle` for `RunHandle`."""


FACES: dict[type, set[str]] = {SyncRunner: set(), RunHandle: OF_THE_FACE, SyncHandle: OF_THE_FACE}


@pytest.mark.parametrize("face", FACES)
def test_a_face_has_the_signatures_and_the_docstrings_of_its_verbs(face: type) -> None:
    names = [name for name in dir(face) if not name.startswith("_") and name not in FACES[face]]
    verbs = {name: verb for name in names if callable(verb := getattr(TaskRunner, name, None))}
    assert len(verbs) > 15
    for name, verb in verbs.items():
        signature, documentation = inspect.signature(verb), inspect.getdoc(verb) or ""
        parameters, returns = (
            [str(each) for each in signature.parameters.values()],
            signature.return_annotation,
        )
        if face is not SyncRunner:
            assert parameters.pop(1).startswith("task: ")
            parameters = [each.replace(", OutputT]", ", Any]") for each in parameters]
            returns = returns.replace("OutputT]", "OutputT_co]")
            lines = documentation.splitlines()
            documentation = "\n".join([line for line in lines if "task: the task, or its id" not in line])
        method: Any = getattr(face, name)
        shown = inspect.signature(method)
        assert [str(each) for each in shown.parameters.values()] == parameters, name
        assert name in OTHER_RESULTS or shown.return_annotation == returns, name
        assert (inspect.getdoc(method) or "").startswith(documentation), name
        owner = next(cls for cls in face.__mro__ if name in vars(cls))
        assert (method.__module__, method.__qualname__) == (owner.__module__, f"{owner.__name__}.{name}")


async def test_a_face_names_arguments_that_do_not_fit_before_it_checks_values() -> None:
    handle = Runner("memory:").handle("t")
    for call, example in (
        (lambda: handle.send("", foo=1), "send has no argument 'foo'"),  # type: ignore[call-arg]
        (lambda: SyncHandle(handle).send(), "write runner.sync.handle(task).send(message)"),  # type: ignore[call-arg]
        (lambda: Runner("memory:").sync.settle(""), "write runner.sync.settle(task, request_id, verdict)"),  # type: ignore[call-arg]
        (lambda: handle.pause(task="t"), "pause has no argument 'task'"),  # type: ignore[call-arg]
        (lambda: Runner("memory:").sync.run_stream("t"), "run_stream needs input"),  # type: ignore[call-arg,arg-type]
    ):
        with pytest.raises(WrongArguments, match=re.escape(example)):
            call()


async def test_a_face_calls_the_method_that_its_object_has_now(monkeypatch: pytest.MonkeyPatch) -> None:
    runner = Runner("memory:")

    async def cancel(task: str, *, by: str | None = None) -> str:
        return f"{task} {by}"

    monkeypatch.setattr(runner, "cancel", cancel)
    handle: Any = runner.handle("t")
    assert await handle.cancel(by="ada") == "t ada"
    assert SyncHandle[Any](handle).cancel(by="ada") == "t ada"
    assert runner.sync.cancel("t", by="ada") == "t ada"
