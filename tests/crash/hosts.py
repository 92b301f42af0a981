"""The golden task for every store, with its tools in the event loop, in threads, programs and processes, at a server.

Two model turns, a parallel batch of a read, an idempotent and a writing call, an undo with compensations, an interrupt
and a person's messages. What tools do to the world is a line in the file EFFECTS: that, not the ledger, is the truth.
"""

from __future__ import annotations

import asyncio
import fcntl
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

from tests.crash import hosted_tools
from tests.crash.witness import act, effects, happened
from treadle import Agent, Happened, NotHappened, RunResult, ScriptedModel, ToolContext, tool
from treadle.core.events import END_STATES
from treadle.core.messages import ToolCall, ToolResult
from treadle.core.model import ModelRequest
from treadle.errors import TaskNotFound, TaskParked, UndoUnfinished
from treadle.llm.scripted import call, text
from treadle.ports import InboxItem
from treadle.runner.runner import TaskRunner

FEEDBACK = "with a view, please"


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

    return in_process if host == "program" else inline


async def take_back(tool_call: ToolCall, ctx: ToolContext) -> None:
    act(f"undo-{tool_call.name}", ctx.idempotency_key)


def answer(request: ModelRequest, server: str = "") -> Any:
    """Answer as a model that calls all three tools at once, by the names that they have at a server, and reports."""
    if request.turn == 0:
        return [call(f"{server}{name}", n=n) for n, name in enumerate(("look", "book", "pay"), 1)]
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


inline, thread, program = agent("inline"), agent("thread"), agent("program")
hosted = agent("inline").replace(tools=[hosted_tools.look, hosted_tools.book, hosted_tools.pay])
lying = agent("inline").replace(
    tools=[
        *agent("inline").tools[:2],
        tool(name="pay", description="Pay.", idempotent=True, undo=take_back)(body("pay", "inline")),
    ]
)
"""Says of a tool that writes that it may be repeated: what the count of effects has to notice."""

MODULES = {"served": "tests.crash.served"}
AGENTS = {
    host: f"{MODULES.get(host, __name__)}:{host}"
    for host in ("inline", "thread", "program", "hosted", "served")
}
"""The place of the agent, by where its tools run: `hosted` in processes of their own, `served` by an MCP server."""


KILLS_PER_TASK = {"hosted": 15}
"""How many processes of one task are killed, where more than one: there tools take most of the time to start."""


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
                    name = str(pending.tool).rpartition("__")[2]
                    verdict = Happened(f"{name} done") if happened_there else NotHappened()
                    await runner.settle(task_id, pending.request_id, verdict)
            elif (
                not done["rewound"] and done["step_completed"] and not agent.toolsets
            ):  # a server undoes nothing
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
