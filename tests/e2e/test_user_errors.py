"""An error of the user's own code keeps its traceback: each kind of function, each fault, each face.

The task ends as a typed failure. People find the traceback in the result, the journal, the log and the `__cause__`; no
model sees any of it, no value of a variable is in it, and no secret.
"""

import asyncio
import json
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.client.served import client, served
from tests.e2e.user_functions import FAULTS, FUNCTIONS, SECRET, STRICT, Fault, models_of
from tests.runner.acts import journal
from treadle import Agent, Runner, RunResult
from treadle.cli.main import main
from treadle.results.wire import to_wire

SECRETS = {"token": "env:SHOP_TOKEN"}


def cases() -> list[Any]:
    made: list[Any] = []
    for function in FUNCTIONS:
        for name, fault in FAULTS.items():
            if name == "hangs" and not FUNCTIONS[function](fault).hangs:
                continue
            if function in ("needs_approval", "context of a subagent") and name == "nonsense":
                continue  # whatever it returns is true or false, or a context
            made += [pytest.param(function, fault, face, id=f"{function}-{name}-{face}") for face in FACES]
    return made


def a_context(task: Any) -> dict[str, Any]:
    """Make the context of a task, which functions of `Subagent(context=)` fail on."""
    return {}


async def run(agent: Agent[Any], store: str) -> dict[str, Any]:
    async with Runner(store, agents=[agent], secrets=SECRETS, context_factory=a_context) as runner:
        return to_wire(await runner.run(agent, "go", options=STRICT, task_id="t"))


def run_async(agent: Agent[Any], store: str, out: Any) -> Any:
    return asyncio.run(run(agent, store))


def run_sync(agent: Agent[Any], store: str, out: Any) -> Any:
    with Runner(store, agents=[agent], secrets=SECRETS, context_factory=a_context).sync as runner:
        return to_wire(runner.run(agent, "go", options=STRICT, task_id="t"))


def run_over_http(agent: Agent[Any], store: str, out: Any) -> Any:
    async def ask(url: str) -> RunResult[Any]:
        async with client(url) as runner:
            return await runner.run("clerk", "go", options=STRICT, task_id="t")

    with served(agent, store=store, secrets=SECRETS, context_factory=a_context) as url:
        return to_wire(asyncio.run(ask(url)))


def run_by_command(agent: Agent[Any], store: str, out: Any) -> Any:
    module = ModuleType("user_code_of_a_test")
    module.clerk = agent  # type: ignore[attr-defined]
    sys.modules[module.__name__] = module
    try:
        main(["run", f"{module.__name__}:clerk", "go", "--task-id", "t", "--json", "--store", store])
    finally:
        del sys.modules[module.__name__]
    return json.loads(out.readouterr().out)


FACES: dict[str, Callable[[Agent[Any], str, Any], Any]] = {
    "async": run_async,
    "sync": run_sync,
    "http": run_over_http,
    "cli": run_by_command,
}


@pytest.mark.sampled(40)
@pytest.mark.parametrize(("function", "fault", "face"), cases())
def test_of_each_kind_of_function(
    function: str, fault: Fault, face: str, tmp_path: Path, capfd: Any, caplog: Any, monkeypatch: Any
) -> None:
    monkeypatch.setenv("SHOP_TOKEN", SECRET)
    monkeypatch.setenv("TREADLE_SECRETS", "token=env:SHOP_TOKEN")
    monkeypatch.setenv("TREADLE_CONTEXT_FACTORY", f"{__name__}:a_context")
    caplog.set_level(logging.WARNING, "treadle")
    case = FUNCTIONS[function](fault)
    store = str(tmp_path / "journal.db")
    result = FACES[face](case.agent, store, capfd)

    # No command says that a failed tool fails its task: there the model goes on.
    assert result["state"] in (*case.states, *(["completed"] if face == "cli" else [])), result
    told = json.dumps(result)
    events = asyncio.run(events_of(store))
    recorded = json.dumps(events)
    assert case.says in recorded
    logged = [record for record in caplog.records if getattr(record, "event", "") == "user_code_raised"]
    if fault.raises:
        tracebacks = tracebacks_in(events)
        assert tracebacks, recorded
        for traceback in tracebacks:
            check_traceback(traceback, fault)
        if function != "preview":
            assert any(traceback in tracebacks_in(result) for traceback in tracebacks), told
        assert logged
        assert all(record.exc_info for record in logged)
        assert "innermost" in caplog.text
        assert {record.task_id for record in logged} >= {"t"} or function == "tool of a subagent"
    elif fault.name == "hangs":
        tracebacks = tracebacks_in(events)
        assert tracebacks, recorded
        for traceback in tracebacks:
            assert "in wait\n    await asyncio.Event().wait()" in traceback
            assert traceback.endswith("\nTimeoutError: it was here when its time was up")
            assert "/src/treadle/" not in traceback
    else:
        assert not tracebacks_in(events)
    if result["state"] == "failed":
        assert result["error"]["message"]
    for text in (told, recorded, caplog.text):
        assert SECRET not in text
        assert "value-of-a-variable" not in text
    for model in models_of(case.agent):
        for request in model.requests:
            assert "innermost" not in repr(request)
            assert "Traceback" not in repr(request)
            assert SECRET not in repr(request)


def check_traceback(traceback: str, fault: Fault) -> None:
    assert fault.error is not None
    assert "in outermost" in traceback
    assert "in innermost" in traceback
    assert "/src/treadle/" not in traceback
    assert f"\n{fault.error.__name__}: " in traceback.replace("e2e.user_functions.", "").replace("tests.", "")
    assert len(traceback) <= 4_100


def tracebacks_in(data: Any) -> list[str]:
    """Return all tracebacks in JSON data."""
    if isinstance(data, dict):
        own = [data["traceback"]] if data.get("traceback") else []
        return own + [each for value in data.values() for each in tracebacks_in(value)]
    return [each for value in data for each in tracebacks_in(value)] if isinstance(data, list) else []


async def events_of(store: str) -> list[Any]:
    async with Runner(store) as runner:
        tasks = [task.task_id for task in await runner.list_tasks()]
        children = [task.task_id for task in await runner.list_tasks(parent="t")]
        return [to_wire(event) for task in {*tasks, *children} for event in await journal(runner, task)]
