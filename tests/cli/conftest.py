"""A project with agents, and two ways to run a command: in this process, and as a process of its own."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.forked import Forked
from treadle.cli.main import main

AGENTS = '''
import os, time
from datetime import date
from pathlib import Path

from pydantic import BaseModel
from treadle import Agent, Ask, Happened, Node, Pipeline, ScriptedModel, tool
from treadle.llm.scripted import call, fail, text, turn

class City(BaseModel):
    name: str
    founded: date


LEDGER = Path(__file__).with_name("ledger")


def note(line):
    with LEDGER.open("a") as file:
        file.write(line + "\\n")


@tool(read_only=True)
def add(a: int, b: int) -> int:
    """Add two numbers."""
    print("noise of a tool")
    return a + b


@tool(read_only=True)
def nap(seconds: float) -> str:
    """Sleep a little."""
    note("nap")
    time.sleep(seconds)
    return "rested"


@tool
def pay(amount: int) -> str:
    """Pay; this cannot be undone."""
    note(f"pay {amount}")
    return "paid"


@tool
def pay_and_die(amount: int) -> str:
    """Pay, and crash before the result is recorded."""
    note(f"pay {amount}")
    os._exit(9)


def cancel_booking(booked, ctx):
    note(f"cancel {booked.output}")


@tool(undo=cancel_booking)
def book(seat: str) -> str:
    """Book a seat."""
    note(f"book {seat}")
    return seat


def scripted(name, turns, tools=(), **more):
    return Agent(ScriptedModel(turns), name=name, tools=list(tools), **more)


typed = scripted("typed", [call("final_answer", name="Rome", founded="0001-04-21")], [], output_type=City)
math = scripted("math", [turn("I add.", call("add", a=1, b=2)), text("It is 3.")], [add])
steppy = scripted("steppy", [call("add", a=1, b=2), call("add", a=3, b=3), text("It is 6.")], [add])
slow = scripted("slow", [call("nap", seconds=0.1), text("one two three four five six", chunk=4, pause=0.2)], [nap])
patient = scripted("patient", lambda request: _patient(request), [nap])
failing = scripted("failing", [fail(400, message="no such thing"), text("fine now")])
payer = scripted("payer", [call("pay", amount=5), text("Done.")], [pay])
crasher = scripted("crasher", [call("pay_and_die", amount=5), text("Done.")], [pay_and_die])
thinker = Agent(
    ScriptedModel(
        [
            "Action: add numbers\\nAction Input: {",
            'Thought: I add.\\nAction: add\\nAction Input: {"a": 1, "b": 2}',
            "Thought: I know.\\nAnswer: It is 3.",
        ]
    ),
    name="thinker",
    tools=[add],
    worker="react",
)
def offer_add(ctx):
    return ["add"]


chooser = scripted("chooser", [call("add", a=1, b=2), text("It is 3.")], [add, nap], offer=offer_add)
booker = scripted("booker", [call("book", seat="12A"), text("Booked.")], [book])


def name_of(ctx):
    return ctx.name


def unready(ctx):
    if not os.path.exists("ready"):
        raise ValueError("not ready")
    return f"{ctx.results['book']} for {ctx.results['seats']}"


def fails(ctx):
    raise OSError("no weather today")


trip = Agent(
    ScriptedModel(["two"]),
    name="trip",
    tools=[book],
    worker=Pipeline(
        [
            Node("seats", Ask("How many? {input}")),
            Node("book", book, input={"seat": "12A"}, after="seats"),
            Node("weather", fails, after="seats", optional=True),
            Node("refund", name_of, after="seats", when=lambda ctx: False),
            Node("tell", unready, after=["seats", "book", "weather"]),
            Node("mail", name_of, after="tell"),
        ],
        output="tell",
    ),
)
planned = scripted(
    "planned",
    [
        '{"sub_tasks": [{"id": "sum", "task": "Add 1 and 2."}]}',
        call("add", a=1, b=2),
        text("It is 3."),
        '{"answer": "3, as planned."}',
    ],
    [add],
    worker="plan_refine",
)
loud = scripted("loud", [text("a \\x1b[31mred\\x1b[0m [bold]word[/bold] \\x07")])


def _patient(request):
    """Nap until told to stop."""
    said = [message.text for message in request.messages if message.role == "user"]
    return text("I stop.") if "stop" in said else call("nap", seconds=0.15 + request.turn / 1e5)
'''


@dataclass
class Ended:
    """The exit code and output of a command."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """The one JSON document on standard output."""
        return json.loads(self.out)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project that lists the agents, as working directory, without keys and without a local model."""
    (tmp_path / "team.py").write_text(AGENTS)
    names = [
        "math",
        "steppy",
        "slow",
        "patient",
        "failing",
        "payer",
        "crasher",
        "booker",
        "chooser",
        "loud",
        "typed",
        "thinker",
        "trip",
        "planned",
    ]
    listed = ", ".join(f'"team:{name}"' for name in names)
    (tmp_path / "pyproject.toml").write_text(f"[tool.treadle]\nagents = [{listed}]\n")
    for name in (
        "OPENAI_API_KEY",
        "ANTHROPIC_API_KEY",
        "GOOGLE_API_KEY",
        "GEMINI_API_KEY",
        "TREADLE_STORE",
        "TREADLE_AGENTS",
        "TREADLE_DEBUG",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for module in ("team", "served"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    return tmp_path


@pytest.fixture
def treadle(project: Path, capfd: pytest.CaptureFixture[str]) -> Callable[..., Ended]:
    """Run a command in this process."""

    def type_(*arguments: str) -> Ended:
        capfd.readouterr()
        code = main(arguments)
        out, err = capfd.readouterr()
        return Ended(code, out, err)

    return type_


@pytest.fixture
def begin(project: Path):
    """Start a command in a process of its own, which ends with the test."""
    begun: list[subprocess.Popen[str]] = []

    def type_(*arguments: str, **env: str) -> subprocess.Popen[str]:
        process = Forked(
            [sys.executable, "-m", "treadle", *arguments],
            cwd=project,
            env={**os.environ, **env},
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        begun.append(process)
        return process

    yield type_
    for process in begun:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.communicate()


def wait_for(condition: Callable[[], bool], seconds: float = 10) -> None:
    """Wait until a condition holds; fail after a time."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "timed out while waiting"
        time.sleep(0.02)


@pytest.fixture
def ended_process() -> Callable[[subprocess.Popen[str]], Ended]:
    """Wait for a process and return its exit code and output."""

    def wait(process: subprocess.Popen[str]) -> Ended:
        out, err = process.communicate(timeout=30)
        return Ended(process.returncode, out, err)

    return wait
