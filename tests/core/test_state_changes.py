"""Only the rules of the core change a task's state: nothing outside assigns to it or grows what it holds."""

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

import pytest

import treadle
from treadle import Agent, Runner, RunOptions, ScriptedModel, tool
from treadle.core.data import set_field
from treadle.core.graph import Graph, StepNode
from treadle.core.state import TaskState, UndoState
from treadle.core.steps import CallState, ModelCall, StepState
from treadle.llm.scripted import call

SOURCE: Final = Path(treadle.__file__).parent
RECORDS: Final = (TaskState, UndoState, StepState, CallState, ModelCall, Graph, StepNode)
FIELDS: Final = {item.name for item in fields(TaskState)}
MUTATORS: Final = {
    "append",
    "clear",
    "extend",
    "insert",
    "pop",
    "popitem",
    "remove",
    "setdefault",
    "sort",
    "update",
}


def reaches_into_state(node: ast.expr) -> bool:
    """Whether an expression is a field of a task's state, or something below one."""
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Call)):
        if isinstance(node, ast.Attribute) and node.attr in FIELDS:
            holder = node.value
            name = holder.attr if isinstance(holder, ast.Attribute) else getattr(holder, "id", "")
            if name in ("state", "_state"):
                return True
        node = node.func if isinstance(node, ast.Call) else node.value
    return False


def changes(tree: ast.AST) -> Iterator[int]:
    """Yield the lines that assign to a field of a task's state, or call a method that changes one."""
    for node in ast.walk(tree):
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, (ast.AugAssign, ast.AnnAssign)):
            targets = [node.target]
        elif isinstance(node, ast.Delete):
            targets = node.targets
        elif (
            isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in MUTATORS
        ):
            targets = [node.func.value]
        for target in targets:
            parts = target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]
            if any(reaches_into_state(part) for part in parts):
                yield target.lineno


@pytest.mark.parametrize(
    "code",
    [
        "state.messages = []",
        "owned.state.seq += 1",
        "a, self._state.turn = 1, 2",
        "state.unread.append(message)",
        "state.step.calls[0].status = 'ended'",
        "del state.reasons[1:]",
    ],
)
def test_the_scan_finds_a_change(code: str) -> None:
    assert REACHING.search(code)
    assert list(changes(ast.parse(code))) == [1]


REACHING: Final = re.compile(rf"state\s*\.\s*(?:{'|'.join(FIELDS)})\b")
"""What a source that reaches into a state contains: any other is not parsed."""


def test_no_source_outside_the_core_changes_a_state() -> None:
    lines = [
        f"{path.relative_to(SOURCE)}:{line}"
        for path in sorted(SOURCE.rglob("*.py"))
        if path.relative_to(SOURCE).parts[0] != "core"
        if REACHING.search(source := path.read_text())
        for line in changes(ast.parse(source))
    ]
    assert lines == []


async def unbook(call: Any, ctx: Any) -> None:
    """Cancel the booking."""


@tool(undo=unbook)
async def book(night: int) -> str:
    """Book a night."""
    return f"night {night} is booked"


def guard(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Have every assignment to a record of the state noted that code outside the core makes."""
    outside: list[str] = []

    def set_attribute(self: Any, name: str, value: Any) -> None:
        frame = sys._getframe(1)
        file = frame.f_code.co_filename
        if file != "<string>" and SOURCE / "core" not in Path(file).parents:
            outside.append(f"{type(self).__name__}.{name} by {file}:{frame.f_lineno}")
        set_field(self, name, value)

    for record in RECORDS:
        monkeypatch.setattr(record, "__setattr__", set_attribute)
    return outside


@pytest.mark.anyio
async def test_nothing_outside_the_core_assigns_while_tasks_run_in_a_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def reply(request: Any) -> Any:
        return "Booked." if request.turn == 2 else call("book", night=request.turn)

    outside = guard(monkeypatch)
    agent = Agent(ScriptedModel(reply), tools=[book])
    async with Runner("memory:") as runner:
        first = await runner.run(agent, "two nights", thread_id="trip")
        task = await runner.create_task(
            agent, "two more", thread_id="trip", options=RunOptions(context_tokens=20_000)
        )
        await runner.run_step(task)
        assert (await runner.undo_step(task)).complete
        result = await runner.resume(task.task_id)
        assert (first.state, result.state) == ("completed", "completed")
    assert outside == []


def test_the_guard_sees_an_assignment_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    outside = guard(monkeypatch)
    state = TaskState("t")
    state.turn = 3
    assert len(outside) == 1
    assert "TaskState.turn" in outside[0]
