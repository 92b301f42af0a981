"""The tables of other libraries' names: what they advise to write exists, and what they call missing does not."""

import inspect
import re
from abc import ABCMeta
from functools import cache
from importlib import resources
from typing import Any

import pytest

import treadle
from tests.cast import calculator
from treadle import (
    Agent,
    Breakpoint,
    CallerTool,
    Client,
    Guardrail,
    Limits,
    MCPServer,
    Message,
    ModelSettings,
    Pending,
    Pipeline,
    RunContext,
    Runner,
    RunOptions,
    RunResult,
    StepContext,
    Task,
    TaskStepOutput,
    TaskUsage,
    ToolContext,
    tool,
)
from treadle import server as treadle_server
from treadle.core.foreign_names import ARGUMENTS, ATTRIBUTES, EXAMPLES, ITEMS, VERB_ARGUMENTS
from treadle.core.messages import Messages
from treadle.core.unknown_names import Listed
from treadle.ports import Notice
from treadle.results.calls import ToolExecution
from treadle.results.pages import Page
from treadle.results.threads import ThreadMessages
from treadle.runner.handle import RunHandle
from treadle.runner.stream import EventStream
from treadle.runner.sync import SyncHandle, SyncRun, SyncRunner
from treadle.tools import Subprocess
from treadle.tools.function import FunctionTool, ToolOptions

CLASSES: dict[str, Any] = {
    "Agent": Agent,
    "Runner": Runner,
    "runner.sync": SyncRunner,
    "handle": RunHandle,
    "sync handle": SyncHandle,
    "stream": EventStream,
    "sync stream": SyncRun,
    "RunResult": RunResult,
    "Task": Task,
    "TaskStepOutput": TaskStepOutput,
    "TaskUsage": TaskUsage,
    "ToolExecution": ToolExecution,
    "Message": Message,
    "page": Page,
    "ThreadMessages": ThreadMessages,
    "event": treadle.events.Event,
    "Notice": Notice,
    "ToolContext": ToolContext,
    "RunContext": RunContext,
    "StepContext": StepContext,
    "tool": FunctionTool,
    "treadle": treadle,
    "treadle.models": treadle.models,
    "treadle.telemetry": treadle.telemetry,
    "treadle.server": treadle_server,
    "agent.tools": Listed,
    "result.messages": Messages,
    "Application": treadle_server.Application,
    "Client": Client,
    "MCPServer": MCPServer,
    "Pending": Pending,
    "Pipeline": Pipeline,
}

RUNNER = Runner("memory:")


@cache
def objects() -> dict[str, Any]:
    """Return an object for each variable that advice names."""
    agent = calculator()
    result = RUNNER.run_sync(agent, "?")
    event = next(iter(RUNNER.sync.handle(result.task_id).events()))
    return {
        "agent": agent,
        "runner": RUNNER,
        "client": Client("http://127.0.0.1:1"),
        "pending": Pending("r1", "approval", "pay", {}, "Pay?"),
        "server": MCPServer("files", command="npx"),
        "handle": RUNNER.handle("t"),
        "stream": RUNNER.run_stream(agent, "?"),
        "result": result,
        "task": RUNNER.sync.get_task(result.task_id),
        "out": RUNNER.sync.get_step(result.task_id, 1),
        "usage": result.usage,
        "execution": result.tool_executions[0],
        "message": result.messages[0],
        "event": event,
        "page": RUNNER.sync.list_tasks(),
        "notice": Notice(None, event),
        "ctx": ToolContext("t", "th", "s1", "s1-0", "key", "agent", 1, None),
    }


CONSTRUCTORS: dict[str, Any] = {
    **{name: getattr(treadle.models, name) for name in treadle.models.__all__ if name in ARGUMENTS},
    "Node": treadle.Node,
    "ToolIndex": treadle.ToolIndex,
    "Agent": Agent,
    "Runner": Runner,
    "RunOptions": RunOptions,
    "Limits": Limits,
    "Breakpoint": Breakpoint,
    "ModelSettings": ModelSettings,
    "CallerTool": CallerTool,
    "Client": Client,
    "Guardrail": Guardrail,
    "MCPServer": MCPServer,
    "Principal": treadle_server.Principal,
    "ServerLimits": treadle_server.ServerLimits,
    "Subprocess": Subprocess,
    "app": treadle_server.app,
    "untrusted": treadle.untrusted,
}

ADVICE = [
    *(
        pytest.param(text, id=f"{label}.{name}")
        for label, names in ATTRIBUTES.items()
        for name, text in names.items()
    ),
    *(
        pytest.param(text, id=f"{label}({name}=)")
        for label, names in ARGUMENTS.items()
        for name, text in names.items()
    ),
    *(
        pytest.param(text, id=f"run({name}=) {number}")
        for name, texts in VERB_ARGUMENTS.items()
        for number, text in enumerate(texts)
    ),
    *(pytest.param(text, id=label) for label, text in EXAMPLES.items()),
    *(pytest.param(text, id=f"{label}[]") for label, text in ITEMS.items()),
]


def parameters(function: Any) -> set[str]:
    return set(inspect.signature(function).parameters)


def test_no_name_is_in_a_section_twice() -> None:
    section, seen = "", set[tuple[str, str]]()
    lines = (
        resources.files("treadle.core").joinpath("foreign_names.ini").read_text(encoding="utf-8").splitlines()
    )
    for line in lines:
        section = line if line.startswith("[") else section
        for name in line.partition(" =")[0].split() if re.match(r"\w.* =", line) else ():
            assert (section, name) not in seen
            seen.add((section, name))
    assert len(seen) > 1_000


def test_every_label_is_a_class_that_explains_its_names() -> None:
    assert set(ATTRIBUTES) == set(CLASSES)
    for label, cls in CLASSES.items():
        assert label.startswith("treadle") or "__getattr__" in {
            name for each in cls.__mro__ for name in vars(each)
        }, label


@pytest.mark.parametrize("label", ATTRIBUTES)
def test_a_name_that_is_called_missing_is_missing(label: str) -> None:
    there = [
        name for name in ATTRIBUTES[label] if hasattr(CLASSES[label], name) and not hasattr(ABCMeta, name)
    ]
    assert there == [], "it exists now: take it out of the table"


@pytest.mark.parametrize("label", CONSTRUCTORS)
def test_an_argument_that_is_called_missing_is_missing(label: str) -> None:
    assert parameters(CONSTRUCTORS[label]).isdisjoint(ARGUMENTS[label])


def test_an_option_of_a_tool_that_is_called_missing_is_missing() -> None:
    assert set(ToolOptions.__annotations__).isdisjoint(ARGUMENTS["@tool"])


@pytest.mark.parametrize("verb", ["run", "run_sync", "run_stream", "start", "create_task", "resume"])
def test_an_argument_of_a_verb_that_is_called_missing_is_missing(verb: str) -> None:
    missing = set(VERB_ARGUMENTS) - {"instructions"}
    assert parameters(getattr(RUNNER, verb)) & missing <= {"task", "command_id"}


@pytest.mark.sampled(150)
@pytest.mark.parametrize("text", ADVICE)
def test_what_is_advised_exists(text: str) -> None:
    for holder, path in re.findall(r"(?<![\w.'])([a-z]+)\.([a-z_]+(?:\.[a-z_]+)*)", text):
        if holder not in objects():
            assert holder in ("treadle", "dataclasses", "asyncio", "pydantic", "journal"), text
            continue
        if holder == "ctx" and hasattr(StepContext, path):
            continue
        value = objects()[holder]
        for name in path.split("."):
            if holder == "stream" and name == "result":  # a stream has one at its end
                value = objects()["result"]
                continue
            value = getattr(value, name)
    for name, argument in re.findall(r"(?<![\w.@])([A-Z]\w+)\(([a-z_]+)=", text):
        home = treadle if hasattr(treadle, name) else treadle.tools
        assert argument in parameters(getattr(home, name)), text
    for name in re.findall(r"from treadle import (\w+)", text):
        assert hasattr(treadle, name), text
    for name in re.findall(r"from treadle\.models import (\w+)", text):
        assert hasattr(treadle.models, name), text
    for name in re.findall(r"(\w+)\(\)\]\), from treadle\.telemetry", text):
        assert hasattr(treadle.telemetry, name), text


def test_a_tool_is_told_by_its_spec() -> None:
    @tool
    def plain() -> None:
        """Do nothing."""

    assert {name for text in ATTRIBUTES["tool"].values() for name in re.findall(r"\.spec\.(\w+)", text)} <= {
        name for name in dir(plain.spec) if not name.startswith("_")
    }
