"""Tasks in the situations in which verbs are called; the agents are known by their names, here and on a server."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from tests.cast import Gate, Jobs, asker, book, calculator, payer, sayer, scripted_agent
from treadle import Breakpoint, File, RunOptions, Subagent, ToolOutput, tool
from treadle.llm.scripted import call, fail
from treadle.runner.runner import TaskRunner


@tool(read_only=True)
async def draw() -> ToolOutput:
    """Draw a picture."""
    return ToolOutput("drawn", artifacts=[File(data=b"%PDF 1", name="picture.pdf")])


JOBS = Jobs()
MATH, SAYER, PAYER, ASKER = calculator(), sayer("Hello.", "Again."), payer(3), asker()
FAILING = sayer(fail(400), "Never mind.", name="failing")
BOOKER = scripted_agent(call("book", place="12A"), "Booked.", name="booker", tools=[book])
DRAWER = scripted_agent(call("draw"), "Drawn.", name="drawer", tools=[draw])
RENDERER = scripted_agent(call("render"), "Rendered.", name="renderer", tools=[JOBS.tool])
BOSS = scripted_agent(call("sayer", input="Greet."), "Greeted.", name="boss", subagents=[Subagent(sayer())])
AGENTS = (MATH, SAYER, PAYER, ASKER, FAILING, BOOKER, DRAWER, RENDERER, BOSS)


@dataclass
class Prepared:
    """A task in a situation, the ids in it that a verb may take, and the gate that its call waits at."""

    task: str
    ids: dict[str, str] = field(default_factory=dict[str, str])
    gate: Gate | None = None

    @property
    def thread(self) -> str:
        return f"thread-of-{self.task}"


async def _created(runner: TaskRunner, task: str, agent: Any, **options: Any) -> Prepared:
    prepared = Prepared(task)
    options = {"labels": {"case": task}, **options}
    await runner.create_task(
        agent, "Go", task_id=task, thread_id=prepared.thread, options=RunOptions(**options)
    )
    return prepared


async def _run(runner: TaskRunner, task: str, agent: Any, **options: Any) -> Prepared:
    prepared = await _created(runner, task, agent, **options)
    await runner.resume(task)
    return prepared


async def stepped(runner: TaskRunner, task: str = "t") -> Prepared:
    """Return a task with one step done, and two to go."""
    prepared = await _created(runner, task, MATH)
    await runner.run_step(task)
    return prepared


async def twice_stepped(runner: TaskRunner, task: str = "t") -> Prepared:
    """Return a task with two steps done, and one to go."""
    prepared = await stepped(runner, task)
    await runner.run_step(task)
    return prepared


async def answered(runner: TaskRunner, task: str = "t") -> Prepared:
    """Return a task that has answered and is not ended."""
    prepared = await _created(runner, task, SAYER)
    await runner.run_step(task)
    return prepared


async def ended(runner: TaskRunner, task: str = "t") -> Prepared:
    """Return a task that has ended."""
    return await _run(runner, task, MATH)


async def booked(runner: TaskRunner, task: str = "t") -> Prepared:
    """Return a task whose first step has an effect that can be undone, with a fork."""
    prepared = await _created(runner, task, BOOKER)
    await runner.run_step(task)
    prepared.ids["fork"] = (await runner.fork(task, task_id=f"{task}-fork")).task_id
    return prepared


async def drawn(runner: TaskRunner, task: str = "t") -> Prepared:
    """Return a task with an artifact."""
    return await _run(runner, task, DRAWER)


async def led(runner: TaskRunner, task: str = "t") -> Prepared:
    """Return a task with a task below it."""
    return await _run(runner, task, BOSS)


async def failed_step(runner: TaskRunner, task: str = "t") -> Prepared:
    """Return a task whose step failed."""
    return await _run(runner, task, FAILING)


async def proposed_call(runner: TaskRunner, task: str = "t") -> Prepared:
    """Return a task with a call that has not begun."""
    return await _run(runner, task, MATH, break_on=[Breakpoint(tool="multiply")])


async def awaiting_approval(runner: TaskRunner, task: str = "t") -> Prepared:
    """Return a task with a call that waits for an approval."""
    return await _run(runner, task, PAYER)


async def awaiting_answer(runner: TaskRunner, task: str = "t") -> Prepared:
    """Return a task with a question."""
    return await _run(runner, task, ASKER)


async def awaiting_job(runner: TaskRunner, task: str = "t") -> Prepared:
    """Return a task with a call in the background."""
    prepared = await _run(runner, task, RENDERER)
    prepared.ids["ticket"] = JOBS.tickets[-1]
    return prepared


async def unknown_outcome(runner: TaskRunner, task: str = "t") -> Prepared:
    """Return a task with a call that was cut off, so that its outcome is not known."""
    gate = Gate("write")
    writer = scripted_agent(call("write"), "Written.", name="writer", tools=[gate.tool])
    prepared = Prepared(task, gate=gate)
    handle = await runner.start(writer, "Go", task_id=task, thread_id=prepared.thread)
    await gate.entered.wait()
    await handle.interrupt()
    await handle.resume()
    return prepared


async def granted(runner: TaskRunner, task: str = "t") -> Prepared:
    """Return a task with an approval that holds for its thread."""
    prepared = await awaiting_approval(runner, task)
    await runner.approve(task, scope="thread")
    await runner.resume(task)
    (grant,) = await runner.list_grants(thread_id=prepared.thread)
    prepared.ids["grant"] = grant.grant_id
    return prepared


async def talked(runner: TaskRunner, task: str = "t") -> Prepared:
    """Return a task in a thread of three turns."""
    prepared = Prepared(task)
    for name in (f"{task}-1", f"{task}-2", task):
        labels = RunOptions(labels={"case": task})
        await runner.run(SAYER, "Go", task_id=name, thread_id=prepared.thread, options=labels)
    return prepared


async def no_task(runner: TaskRunner, task: str = "t") -> Prepared:
    """Return the id of a task that does not exist."""
    return Prepared(task)


Prepare = Callable[..., Awaitable[Prepared]]
"""Takes a runner and the id of the task to make, "t" by default."""
