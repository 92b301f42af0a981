"""The golden task for every store, with its tools in the event loop, in threads and in processes of their own.

Two model turns, a parallel batch of a read, an idempotent and a writing call, an undo with compensations, an interrupt
and a person's messages. What tools do to the world is a line in the file EFFECTS: that, not the ledger, is the truth.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

from treadle import Agent, Happened, NotHappened, RunResult, ScriptedModel, ToolContext, tool
from treadle.core.events import END_STATES
from treadle.core.messages import ToolCall, ToolResult
from treadle.core.model import ModelRequest
from treadle.errors import TaskNotFound, TaskParked, UndoUnfinished
from treadle.llm.scripted import call, text
from treadle.ports import InboxItem
from treadle.runner.runner import TaskRunner

FEEDBACK = "with a view, please"


def effects() -> Path:
    return Path(os.environ["EFFECTS"])


def act(name: str, key: str) -> str:
    """Do to the world what a tool does."""
    file = os.open(effects(), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(file, f"{name} {key}\n".encode())
    os.close(file)
    return f"{name} done"


def happened(key: str) -> bool:
    """Whether an effect has happened, once no process of a tool is at work any more."""
    with (effects().with_suffix(".busy")).open("a") as busy:
        fcntl.flock(busy, fcntl.LOCK_EX)
        return effects().exists() and key in effects().read_text().split()


def act_in_process(name: str, key: str) -> subprocess.Popen[bytes]:
    """The same in a child process; it holds a lock that outlives us until it is done."""
    with effects().with_suffix(".busy").open("a") as busy:
        fcntl.flock(busy, fcntl.LOCK_SH)
        command = ["sh", "-c", 'printf "%s\\n" "$1" >> "$2"', "sh", f"{name} {key}", str(effects())]
        return subprocess.Popen(command, pass_fds=[busy.fileno()], stdin=subprocess.DEVNULL)


def body(name: str, host: str) -> Any:
    """The function of a tool, as its host wants it."""
    if host == "thread":

        def in_thread(n: int, ctx: ToolContext) -> str:
            return act(name, ctx.idempotency_key)

        return in_thread

    async def inline(n: int, ctx: ToolContext) -> str:
        return act(name, ctx.idempotency_key)

    async def in_process(n: int, ctx: ToolContext) -> str:
        child = act_in_process(name, ctx.idempotency_key)
        assert await asyncio.to_thread(child.wait) == 0
        return f"{name} done"

    return in_process if host == "subprocess" else inline


async def take_back(tool_call: ToolCall, ctx: ToolContext) -> None:
    act(f"undo-{tool_call.name}", ctx.idempotency_key)


def answer(request: ModelRequest) -> Any:
    if request.turn == 0:
        return [call("look", n=1), call("book", n=2), call("pay", n=3)]
    parts = [part for message in request.messages for part in message.parts]
    results = [part.text for part in parts if type(part) is ToolResult]
    feedback = [message.text for message in request.messages if message.role == "user"][1:]
    return text("; ".join(results + feedback))


def agent(host: str) -> Agent[None]:
    return Agent(
        ScriptedModel(answer),
        name="golden",
        tools=[
            tool(name="look", description="Look.", read_only=True)(body("look", host)),
            tool(name="book", description="Book.", idempotent=True, undo=take_back)(body("book", host)),
            tool(name="pay", description="Pay.", undo=take_back)(body("pay", host)),
        ],
    )


inline, thread, in_process = agent("inline"), agent("thread"), agent("subprocess")
lying = agent("inline").replace(
    tools=[
        *agent("inline").tools[:2],
        tool(name="pay", description="Pay.", idempotent=True, undo=take_back)(body("pay", "inline")),
    ]
)
"""Says of a tool that writes that it may be repeated: what the count of effects has to notice."""

AGENTS = {"inline": "inline", "thread": "thread", "subprocess": "in_process"}
"""The name of the agent in this module, by where its tools run."""


async def script(runner: TaskRunner, agent: Agent[Any], task_id: str) -> RunResult:
    """Bring the golden task to its end from wherever a kill left it."""
    for _ in range(30):
        done = await kinds(runner, agent, task_id)
        result = await runner.result(task_id)
        if result.state in END_STATES:
            return result
        try:
            if result.pending:
                for pending in result.pending:
                    happened_there = happened(str(pending.idempotency_key))
                    verdict = Happened(f"{pending.tool} done") if happened_there else NotHappened()
                    await runner.settle(task_id, pending.request_id, verdict)
            elif not done["rewound"] and done["step_completed"]:
                await runner.undo_step(task_id, agent=agent)
            elif done["step_completed"] - done["rewound"] < 1:
                await runner.run_step(task_id, agent=agent)
            elif not done["interrupt_requested"]:
                await runner.interrupt(task_id)
            elif not done["input_received"]:
                # Under an id of its own choosing the sender may say it twice: it is heard once.
                data: dict[str, Any] = {"parts": [FEEDBACK], "role": "user", "by": None, "observation": False}
                await runner.store.post(task_id, InboxItem("feedback", "send", data, 1))
                await runner.resume(task_id, agent=agent)
            else:
                await runner.resume(task_id, agent=agent)
        except (TaskParked, UndoUnfinished):
            pass  # what it waits for is seen in the next round
    raise AssertionError(f"not at its end: {await kinds(runner, agent, task_id)}")


async def kinds(runner: TaskRunner, agent: Agent[Any], task_id: str) -> Counter[str]:
    """Return how often each kind of event is in the task's journal; the task is made if it is not there."""
    try:
        await runner.get_task(task_id)
    except TaskNotFound:
        await runner.create_task(agent, "go", task_id=task_id, thread_id=f"thread of {task_id}")
    return Counter([event.kind async for event in runner.handle(task_id).events(deltas=False)])


def repeated(path: Path) -> list[str]:
    """Return the writing calls whose effect happened twice."""
    lines = Counter(path.read_text().splitlines())
    return [line for line, times in lines.items() if times > 1 and line.split()[0] in ("pay", "undo-pay")]
