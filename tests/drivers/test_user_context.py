"""The context of a drive: checked before anything is sent, and made by the runner's factory for the task at hand."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from treadle import (
    Agent,
    Node,
    NodeContext,
    Pipeline,
    RunContext,
    Runner,
    RunOptions,
    ScriptedModel,
    Task,
    ToolCall,
    ToolContext,
    tool,
)
from treadle.errors import ConfigurationError, ContextFailed, TaskFinished
from treadle.llm.scripted import call, text

pytestmark = pytest.mark.anyio


@dataclass
class Session:
    user: str


@tool(read_only=True)
def whoami(ctx: ToolContext[Session]) -> str:
    """Tell who asks."""
    return ctx.context.user


def asker(**more: Any) -> Agent[Any]:
    return Agent(ScriptedModel([call("whoami"), text("done")]), name="asker", tools=[whoami], **more)


def greeting(ctx: RunContext[Session]) -> str:
    return f"You serve {ctx.context.user}."


def read(ctx: NodeContext[Session]) -> str:
    return ctx.step.context.user


AGENTS: dict[str, Callable[[ScriptedModel], Agent[Any]]] = {
    "it": lambda model: Agent(model, name="asker", context_type=Session),
    "its tool 'whoami'": lambda model: Agent(model, name="asker", tools=[whoami]),
    "the function of its instructions": lambda model: Agent(model, name="asker", instructions=greeting),
    "its node 'first'": lambda model: Agent(model, name="asker", worker=Pipeline([Node("first", read)])),
}


async def streamed(runner: Runner, agent: Agent[Any], context: Any) -> None:
    async with runner.run_stream(agent, "?", context=context) as stream:
        async for _ in stream:
            pass


@pytest.mark.parametrize("source", AGENTS)
@pytest.mark.parametrize(
    ("context", "given"), [(None, "the call has none"), (3, "the context is of type int")]
)
async def test_a_context_that_is_missing_or_wrong_is_an_error_before_a_task_is_made(
    runner: Runner, source: str, context: Any, given: str
) -> None:
    model = ScriptedModel([call("whoami"), text("done")])
    agent = AGENTS[source](model)
    with pytest.raises(ConfigurationError) as refusal:
        await runner.run(agent, "?", context=context)
    assert f"agent 'asker': {source} needs a context of type Session, and {given}" in str(refusal.value)
    assert ("context_factory" in str(refusal.value)) == (context is None)
    with pytest.raises(ConfigurationError):
        await runner.start(agent, "?", context=context)
    with pytest.raises(ConfigurationError):
        await streamed(runner, agent, context)
    assert model.requests == []
    assert (await runner.list_tasks()).items == ()
    assert (await runner.run(agent, "?", context=Session("Ada"))).state == "completed"


async def test_a_value_of_the_context_is_never_shown(runner: Runner) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        await runner.run(asker(), "?", context="the-password")
    assert "the-password" not in str(refusal.value)


async def test_a_task_with_a_missing_context_is_not_changed_by_a_step_or_a_resume(runner: Runner) -> None:
    agent = asker()
    task = await runner.create_task(agent, "?")
    before = (await runner.get_task(task)).head
    with pytest.raises(ConfigurationError, match=f"task {task.task_id}: agent 'asker': its tool 'whoami'"):
        await runner.run_step(task, input="and?")
    with pytest.raises(ConfigurationError, match="Session"):
        await runner.resume(task, context=3, options=RunOptions(tool_output_max_chars=100))
    after = await runner.get_task(task)
    assert (after.state, after.head) == ("created", before)
    assert (await runner.resume(task, context=Session("Ada"))).tool_executions[0].output == "Ada"


async def test_a_wrong_context_is_refused_when_a_task_is_made_without_running_it(runner: Runner) -> None:
    with pytest.raises(ConfigurationError, match="the context is of type int"):
        await runner.create_task(asker(), "?", context=3)


async def test_an_ended_task_tells_its_result_without_a_context(runner: Runner) -> None:
    agent = asker()
    result = await runner.run(agent, "?", task_id="one", context=Session("Ada"))
    assert (await runner.run(agent, "?", task_id="one")).final_text == result.final_text
    assert (await runner.resume("one")).final_text == result.final_text
    with pytest.raises(TaskFinished):
        await runner.run_step("one")


async def test_an_agent_asks_for_the_context_that_its_subagents_need(runner: Runner) -> None:
    model = ScriptedModel([call("asker", input="Who?"), text("done")])
    boss = Agent(model, name="boss", subagents=[asker()])
    with pytest.raises(ConfigurationError, match="agent 'asker': its tool 'whoami' needs a context of type"):
        await runner.run(boss, "?")
    assert model.requests == []
    result = await runner.run(boss, "?", context=Session("Ada"))
    assert result.subagent_executions[0].outcome == "ok"
    assert [each.output for each in result.tool_executions if each.name == "whoami"] == ["Ada"]


async def test_an_undo_needs_no_context_and_refuses_a_wrong_one(runner: Runner) -> None:
    undone: list[Any] = []

    def forget(call: ToolCall, ctx: ToolContext[Any]) -> None:
        undone.append(ctx.context)

    @tool(undo=forget)
    def note(ctx: ToolContext[Session]) -> str:
        return ctx.context.user

    agent = Agent(ScriptedModel([call("note"), text("done")]), name="noter", tools=[note])
    task = (await runner.run(agent, "?", context=Session("Ada"))).task_id
    with pytest.raises(ConfigurationError, match="the context is of type int"):
        await runner.undo_step(task, to=0, context=3)
    assert (await runner.get_task(task)).state == "completed"
    assert (await runner.undo_step(task, to=0)).complete
    assert undone == [None]


async def test_a_class_defined_twice_is_told_from_a_wrong_one(runner: Runner) -> None:
    def again() -> Any:
        @dataclass
        class Session:
            user: str

        Session.__qualname__ = "Session"
        return Session("Ada")

    with pytest.raises(ConfigurationError, match="the same name but differ"):
        await runner.run(asker(), "?", context=again())


# --------------------------------------------------------------------------------------- the factory


async def test_the_factory_is_called_with_the_task(store: Any) -> None:
    tasks: list[Task[Any]] = []

    def make(task: Task[Any]) -> Session:
        tasks.append(task)
        return Session(
            f"{task.labels['user']} in {task.thread_id} since {(task.extra_state or {}).get('since')}"
        )

    options = RunOptions(labels={"user": "ada"})
    async with Runner(store, context_factory=make) as runner:
        result = await runner.run(asker(), "?", thread_id="talk", options=options, extra_state={"since": 7})
        assert result.tool_executions[0].output == "ada in talk since 7"
        task = await runner.create_task(asker(), "?", options=options)
        step = await runner.run_step(task)
        assert step.tool_executions[0].output == f"ada in {task.thread_id} since None"
        given = await runner.run(asker(), "?", context=Session("Grace"))
        assert given.tool_executions[0].output == "Grace"
    assert [each.task_id for each in tasks] == [result.task_id, task.task_id]
    assert [(each.agent, each.driven, each.state) for each in tasks] == [("asker", True, "created")] * 2
    assert tasks[1].input == task.input


async def test_an_async_factory_is_awaited(store: Any) -> None:
    async def make(task: Task[Any]) -> Session:
        await asyncio.sleep(0)
        return Session(task.agent)

    async with Runner(store, context_factory=make) as runner:
        assert (await runner.run(asker(), "?")).tool_executions[0].output == "asker"


async def test_a_factory_that_makes_the_wrong_context_is_told_so_and_nothing_is_sent(store: Any) -> None:
    agent = asker()
    async with Runner(store, context_factory=lambda task: {"user": task.task_id}) as runner:
        with pytest.raises(
            ConfigurationError, match="needs a context of type Session, and the context is of type dict"
        ):
            await runner.run(agent, "?")
    assert agent.model.requests == []


async def test_children_get_the_context_of_their_parent_and_ask_no_factory(store: Any) -> None:
    asked: list[str] = []

    def make(task: Task[Any]) -> Session:
        asked.append(task.agent)
        return Session("Ada")

    boss = Agent(ScriptedModel([call("asker", input="Who?"), text("done")]), name="boss", subagents=[asker()])
    async with Runner(store, context_factory=make) as runner:
        result = await runner.run(boss, "?")
    assert [each.output for each in result.tool_executions if each.name == "whoami"] == ["Ada"]
    assert asked == ["boss"]


def takes_two(task: Task[Any], more: Any) -> Any:
    return more


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        (lambda: Session("Ada"), r"called with the task.*write `def make_context\(task\)`"),
        (takes_two, "takes_two does not take that one argument"),
        (Session, "got the class Session"),
        (3, "got 3"),
    ],
)
def test_a_factory_that_does_not_take_the_task_is_refused_when_the_runner_is_made(
    factory: Any, message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Runner("memory:", context_factory=factory)


# ---------------------------------------------------------------------------------------- adoption


async def until_completed(runner: Runner, task_id: str) -> None:
    async with asyncio.timeout(20):
        while (await runner.handle(task_id).result()).state != "completed":  # noqa: ASYNC110
            await asyncio.sleep(0.02)  # it is not adopted yet


async def test_adopted_tasks_get_the_contexts_of_their_own_users(tmp_path: Path) -> None:
    reached = asyncio.Event()
    at_work = 0

    @tool(idempotent=True)
    async def whoami(ctx: ToolContext[Session], wait: bool = True) -> str:
        nonlocal at_work
        if leaving:
            at_work += 1
            if at_work == 2:
                reached.set()
            await asyncio.sleep(60)
        return ctx.context.user

    def agent() -> Agent[Any]:
        return Agent(ScriptedModel([call("whoami"), text("done")]), name="asker", tools=[whoami])

    leaving, path, tasks = True, tmp_path / "journal.db", {}
    async with Runner(path) as first:
        for user in ("ada", "grace"):
            handle = await first.start(
                agent(), "?", options=RunOptions(labels={"user": user}), context=Session(user)
            )
            tasks[user] = handle.task_id
        await reached.wait()
    leaving = False  # closing the first runner interrupted both tasks, to be driven on
    seen: list[Task[Any]] = []

    def make(task: Task[Any]) -> Session:
        seen.append(task)
        return Session(task.labels["user"])

    async with Runner(path, agents=[agent()], adopt=True, context_factory=make) as second:
        for user, task_id in tasks.items():
            await until_completed(second, task_id)
            result = await second.result(task_id)
            assert [each.output for each in result.tool_executions] == [user]
    assert {each.task_id for each in seen} == set(tasks.values())


async def test_a_factory_that_makes_nothing_for_a_task_is_told_which_task_it_was(tmp_path: Path) -> None:
    path, agent = tmp_path / "journal.db", asker()
    async with Runner(path) as first:
        task = await first.create_task(agent, "?", context=Session("ada"))
        await first.interrupt(task)
    async with Runner(path, agents=[agent], context_factory=lambda task: None) as second:
        with pytest.raises(ConfigurationError, match=f"task {task.task_id}: agent 'asker'"):
            await second.resume(task)
    assert agent.model.requests == []


def of_its_tenant(task: Task[Any]) -> Any:
    return Session({"ada": "Ada"}[task.labels["tenant"]])


async def of_its_tenant_later(task: Task[Any]) -> Any:
    await asyncio.sleep(0)
    return of_its_tenant(task)


@pytest.mark.parametrize("factory", [of_its_tenant, of_its_tenant_later])
async def test_a_factory_that_fails_is_named_with_its_task_and_its_error(store: Any, factory: Any) -> None:
    agent = asker()
    async with Runner(store, agents=[agent], context_factory=factory) as runner:
        task = await runner.create_task(agent, "?")
        handle = await runner.start(agent, "?", task_id="started")
        for drive in (
            runner.resume(task),
            runner.run_step(task),
            runner.run(agent, "?", task_id=task.task_id),
            handle.result(),
        ):
            with pytest.raises(
                ContextFailed, match=f"{factory.__name__} failed for agent 'asker': KeyError: 'tenant'"
            ) as failure:
                await drive
            assert isinstance(failure.value.__cause__, KeyError)
            assert f"task {failure.value.task_id}:" in str(failure.value)
        after = await runner.get_task(task)
        assert (after.state, after.head, failure.value.task_id) == ("created", task.head, "started")
    assert agent.model.requests == []


async def test_a_task_whose_context_cannot_be_made_waits_as_it_was_left_until_it_is_paused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("treadle.drivers.adoption.RETRY_SECONDS", (0.01,))
    monkeypatch.setattr("treadle.drivers.adoption.PAUSE_SECONDS", 0.01)
    monkeypatch.setattr("treadle.drivers.adoption.SCAN_SECONDS", 0.02)
    path, begun = tmp_path / "journal.db", asyncio.Event()

    @tool(idempotent=True)
    async def whoami(ctx: ToolContext[Session]) -> str:
        begun.set()
        await asyncio.sleep(60)
        return ctx.context.user

    agent = Agent(ScriptedModel([call("whoami"), text("done")]), name="asker", tools=[whoami])
    async with Runner(path) as first:
        task = (await first.start(agent, "?", context=Session("Ada"))).task_id
        await begun.wait()
    states: list[str] = []

    def failing(task: Task[Any]) -> Any:
        return of_its_tenant(task)

    async with Runner(path, agents=[agent], adopt=True, context_factory=failing) as second:
        async with asyncio.timeout(20):
            while (state := (await second.get_task(task)).state_text) != "paused":
                states.append(state)
                await asyncio.sleep(0.01)
        [*_, last] = [event async for event in second.handle(task).events()]
    assert "interrupted" in states
    assert set(states) <= {"interrupted", "running"}, (
        "it runs while it is tried, and never rests between steps"
    )
    told = [record for record in caplog.records if record.name == "treadle.adopting"]
    assert len([record for record in told if "is tried again later" in record.message]) == 4
    for message in (str(last.reason), told[-1].message):
        assert f"task {task}: context_factory" in message
        assert "failing failed for agent 'asker': KeyError: 'tenant'" in message
