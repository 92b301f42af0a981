"""Approvals in every worker, on every store, streamed and not: exactly the intended calls run, each once.

A case is what people, restarts and changed code do to requests. A worker is how an agent comes to make calls. Each
case holds for each worker. What ran is told by a file outside of the library.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from json import dumps
from pathlib import Path
from typing import Any

import pytest

from tests.drivers.agent_trees import calling
from tests.runner.acts import both
from tests.runner.planned import WORKING, a_plan, an_answer, sub
from treadle import (
    Agent,
    Decider,
    NextStep,
    Node,
    Pipeline,
    RunContext,
    Runner,
    RunOptions,
    ScriptedModel,
    StepContext,
    StepResult,
    tool,
)
from treadle.agents.decide import function_calling
from treadle.core.model import ModelRequest
from treadle.errors import AlreadyDecided, CallNotFound, ConfigurationError
from treadle.llm.scripted import call, text
from treadle.testing import clock
from treadle.testing.audit.store import audit_store

Refunds = Sequence[tuple[str, int]]
"""The orders that are to be refunded, and how much of each."""

ONE: Refunds = (("a", 5),)
THREE: Refunds = (("a", 1), ("b", 2), ("c", 3))


def refund_calls(refunds: Refunds) -> list[Any]:
    return [call("refund", order=order, amount=amount) for order, amount in refunds]


# --------------------------------------------------------------------------------------------- workers


def plainly(refunds: Refunds, tools: Any, **more: Any) -> Agent[Any]:
    return Agent(ScriptedModel([both(*refund_calls(refunds)), "Done."]), name="desk", tools=tools, **more)


def in_react(refunds: Refunds, tools: Any) -> Agent[Any]:
    script = [
        f"Thought: I pay.\nAction: refund\nAction Input: {dumps({'order': order, 'amount': amount})}"
        for order, amount in refunds
    ]
    last = "Thought: I can answer without using any more tools.\nAnswer: Done."
    return Agent(ScriptedModel([*script, last]), name="desk", tools=tools, worker="react")


def in_plans_of_calls(refunds: Refunds, tools: Any) -> Agent[Any]:
    script = [
        dumps({"name": "refund", "arguments": {"order": order, "amount": amount}})
        for order, amount in refunds
    ]
    last = dumps({"name": "finish", "arguments": {"answer": "Done."}})
    return Agent(ScriptedModel([*script, last]), name="desk", tools=tools, worker="planner")


def in_sub_tasks(refunds: Refunds, tools: Any) -> Agent[Any]:
    def say(request: ModelRequest) -> Any:
        if request.instructions.startswith(WORKING):
            paid = any(message.role == "tool" for message in request.messages)
            return text("It is paid.") if paid else both(*refund_calls(refunds))
        told = "".join(message.text for message in request.messages)
        return text(an_answer("Done.") if "Plan 1 has run" in told else a_plan(sub("pay")))

    return Agent(ScriptedModel(say), name="desk", tools=tools, worker="plan_refine")


def in_a_pipeline(refunds: Refunds, tools: Any) -> Agent[Any]:
    nodes = [
        Node(f"pay{n}", tools[0], input={"order": order, "amount": amount}, optional=True)
        for n, (order, amount) in enumerate(refunds)
    ]
    return Agent(ScriptedModel(["unused"]), name="desk", tools=tools, worker=Pipeline(nodes))


def in_a_function(refunds: Refunds, tools: Any) -> Agent[Any]:
    async def pay(ctx: StepContext[Any]) -> StepResult:
        calls = [
            ctx.call_tool("refund", {"order": order, "amount": amount}, key=str(n))
            for n, (order, amount) in enumerate(refunds)
        ]
        paid = await asyncio.gather(*calls, return_exceptions=True)
        return StepResult(len(paid), is_last=True)

    return Agent(ScriptedModel(["unused"]), name="desk", tools=tools, worker=pay)


class OfOnesOwn:
    """A worker that asks its model itself, and makes the calls of its answers."""

    def initialize_step(self, task: RunContext[Any]) -> NextStep:
        return NextStep("turn")

    async def run_step(self, ctx: StepContext[Any]) -> StepResult:
        answer = await ctx.call_model()
        if not answer.message.tool_calls:
            return StepResult(answer.message.text, is_last=True)
        await ctx.call_tools(answer)
        return StepResult(next_steps=[NextStep("turn")])

    async def finalize_task(self, task: RunContext[Any], output: Any) -> None:
        assert output == "Done."


def below(levels: int) -> Callable[[Refunds, Any], Agent[Any]]:
    def make(refunds: Refunds, tools: Any) -> Agent[Any]:
        agent = plainly(refunds, tools)
        for level in range(levels):
            agent = calling(f"level{level}", agent)
        return agent

    return make


def after_a_handoff(refunds: Refunds, tools: Any) -> Agent[Any]:
    def say(request: ModelRequest) -> Any:
        paid = sum(message.role == "tool" for message in request.messages) > 1
        return text("Done.") if paid else both(*refund_calls(refunds))

    desk = Agent(ScriptedModel(say), name="desk", tools=tools)
    return Agent(ScriptedModel([call("transfer_to_desk")]), name="front", handoffs=[desk])


WORKERS: dict[str, Callable[[Refunds, Any], Agent[Any]]] = {
    "function_calling": plainly,
    "decider": lambda refunds, tools: plainly(refunds, tools, worker=Decider(function_calling.decide)),
    "own class": lambda refunds, tools: plainly(refunds, tools, worker=OfOnesOwn()),
    "react": in_react,
    "planner": in_plans_of_calls,
    "plan_refine": in_sub_tasks,
    "pipeline": in_a_pipeline,
    "function": in_a_function,
    "handoff": after_a_handoff,
    "child": below(1),
    "grandchild": below(2),
}

ONE_AT_A_TIME = ("react", "planner")
"""The workers whose models make one call in an answer."""


# ------------------------------------------------------------------------------------------------ world


@dataclass
class World:
    """A store, a worker, and the file to which its tool writes."""

    store: Any
    worker: str
    streamed: bool
    path: Path

    @property
    def payments(self) -> list[str]:
        return self.path.read_text().splitlines() if self.path.exists() else []

    @property
    def ends_without_one(self) -> str:
        """The state in which a task ends of whose calls one was denied: a pipeline then lacks the value of a node."""
        return "degraded" if self.worker == "pipeline" else "completed"

    def pay(self, line: str) -> None:
        with self.path.open("a") as book:
            book.write(f"{line}\n")

    def refund(self) -> Any:
        def refund(order: str, amount: int) -> str:
            """Pay money back."""
            self.pay(f"{order} {amount}")
            return f"refunded {amount} for {order}"

        return tool(refund, needs_approval=True)

    def other_schema(self) -> Any:
        def refund(order: str, amount: int, note: str = "") -> str:
            """Pay money back."""
            self.pay(f"{order} {amount}{note}")
            return "refunded"

        return tool(refund, needs_approval=True)

    def other_code(self) -> Any:
        def refund(order: str, amount: int) -> str:
            """Pay money back."""
            self.pay(f"{order} {amount * 100}")
            return f"refunded {amount} for {order}"

        return tool(refund, needs_approval=True)

    def agent(self, refunds: Refunds = ONE, refund: Any = None) -> Agent[Any]:
        return WORKERS[self.worker](refunds, [refund or self.refund()])

    def runner(self, *agents: Agent[Any], **more: Any) -> Runner:
        """Return a process with this code: a runner that is closed has ended like one."""
        return clock.runner(self.store, agents=agents, **more)

    async def run(self, runner: Runner, agent: Agent[Any], task_id: str = "job") -> Any:
        if not self.streamed:
            return await runner.run(agent, "Go.", task_id=task_id)
        async with runner.run_stream(agent, "Go.", task_id=task_id) as stream:
            async for _ in stream:
                pass
        return stream.result

    async def resume(self, runner: Runner, task_id: str = "job") -> Any:
        """Let a task go on; a stream of it is its events, followed beside the resume."""
        if not self.streamed:
            return await runner.resume(task_id)
        seen = asyncio.ensure_future(self._follow(runner, task_id))
        try:
            return await runner.resume(task_id)
        finally:
            await seen

    async def _follow(self, runner: Runner, task_id: str) -> None:
        async for _ in runner.handle(task_id).events():
            pass

    async def asked(self, refunds: Refunds = ONE) -> tuple[Any, ...]:
        """Run the task in a process that ends, and return the requests that are pending at its root."""
        agent = self.agent(refunds)
        async with self.runner(agent) as runner:
            result = await self.run(runner, agent)
            assert (result.state, self.payments) == ("waiting", [])
            return (await runner.list_pending("job")).items


# ------------------------------------------------------------------------------------------------- cases


async def a_double_click(world: World) -> None:
    (item,) = await world.asked()
    async with world.runner(world.agent()) as runner:
        clicks = [runner.approve("job", item.request_id) for _ in range(3)]
        assert await asyncio.gather(*clicks, return_exceptions=True) == [None] * 3
        for late in (runner.deny, partial(runner.approve, scope="task")):
            with pytest.raises(AlreadyDecided, match="was approved already"):
                await late("job", item.request_id)
        assert (await world.resume(runner)).state == "completed"
        await runner.approve("job", item.request_id)
        with pytest.raises(AlreadyDecided, match="was approved already"):
            await runner.deny("job", item.request_id)
        with pytest.raises(CallNotFound, match="waits for no approval"):
            await runner.approve("job")
        assert (await world.resume(runner)).state == "completed"
    assert world.payments == ["a 5"]


async def a_late_click(world: World) -> None:
    (item,) = await world.asked()
    async with world.runner(world.agent()) as runner:
        await runner.cancel("job")
        with pytest.raises(AlreadyDecided, match=r"not pending any more: its .*cancelled"):
            await runner.approve("job", item.request_id)
        assert (await runner.list_pending("job")).items == ()
    assert world.payments == []


async def altered_arguments(world: World) -> None:
    (item,) = await world.asked()
    call_id = item.request_id.rpartition("-ask")[0]
    async with world.runner(world.agent()) as runner:
        await runner.edit_call(item.task_id, call_id, {"order": "a", "amount": 500})
        with pytest.raises(AlreadyDecided, match="its call was changed since"):
            await runner.approve("job", item.request_id)
        result = await world.resume(runner)
        (again,) = await runner.list_pending("job")
        assert (result.state, again.arguments["amount"], world.payments) == ("waiting", 500, [])
        assert again.request_id == f"{call_id}-ask2"
        await runner.approve("job")
        assert (await world.resume(runner)).state == "completed"
    assert world.payments == ["a 500"]


async def changed(world: World, refund: Any) -> None:
    (item,) = await world.asked()
    async with world.runner(world.agent()) as runner:
        await runner.approve("job", item.request_id)
    agent = world.agent(refund=refund)
    async with world.runner(agent) as runner:
        assert ((await world.resume(runner)).state, world.payments) == ("waiting", [])
        (again,) = await runner.list_pending("job")
        assert again.request_id == item.request_id.replace("ask1", "ask2")
        (voided,) = await runner.get_events(item.task_id, kinds=["approval_voided"])
        assert "refund has changed" in voided.why
        await runner.approve("job", again.request_id)
        assert (await world.resume(runner)).state == "completed"
    assert len(world.payments) == 1


async def a_changed_schema(world: World) -> None:
    await changed(world, world.other_schema())


async def changed_code(world: World) -> None:
    await changed(world, world.other_code())


async def a_restart_between(world: World) -> None:
    (item,) = await world.asked()
    async with world.runner() as runner:  # it has no code of the agent
        (pending,) = await runner.list_pending()
        assert (pending.request_id, pending.task_id) == (item.request_id, item.task_id)
        await runner.approve("job", pending.request_id)
        assert (await runner.list_pending()).items == ()
    async with world.runner(world.agent()) as runner:
        assert (await world.resume(runner)).state == "completed"
        assert (await world.resume(runner)).state == "completed"
    assert world.payments == ["a 5"]


async def three_answered_in_reverse(world: World) -> None:
    items = await world.asked(THREE)
    if world.worker in ONE_AT_A_TIME:
        await one_after_the_other(world)
        return
    assert [item.arguments["order"] for item in items] == ["a", "b", "c"]
    async with world.runner(world.agent(THREE)) as runner:
        with pytest.raises(ConfigurationError, match="name one of the requests"):
            await runner.approve("job")
        await runner.approve("job", items[2].request_id)
        await runner.deny("job", items[1].request_id)
        assert (await world.resume(runner)).state == "waiting"
        assert world.payments == ["c 3"], "an approved call does not wait for the others"
        await runner.approve("job", items[0].request_id)
        result = await world.resume(runner)
    refunds = [each.outcome for each in result.tool_executions if each.name == "refund"]
    assert (result.state, refunds) == (world.ends_without_one, ["ok", "denied", "ok"])
    assert world.payments == ["c 3", "a 1"]


async def one_after_the_other(world: World) -> None:
    async with world.runner(world.agent(THREE)) as runner:
        for verdict in (runner.approve, runner.deny, runner.approve):
            await verdict("job")
            result = await world.resume(runner)
    assert (result.state, world.payments) == ("completed", ["a 1", "c 3"])


async def two_calls_with_one_provider_id(world: World) -> None:
    items = await world.asked((("a", 5), ("a", 5)))
    async with world.runner(world.agent((("a", 5), ("a", 5)))) as runner:
        if world.worker in ONE_AT_A_TIME:
            await runner.deny("job", items[0].request_id)
            assert (await world.resume(runner)).state == "waiting"
            await runner.approve("job")
        else:
            first, second = (item.request_id for item in items)
            assert first != second
            await runner.approve("job", second)
            await runner.deny("job", first)
        result = await world.resume(runner)
    refunds = [each.outcome for each in result.tool_executions if each.name == "refund"]
    assert (result.state, refunds, world.payments) == (world.ends_without_one, ["denied", "ok"], ["a 5"])


async def an_expiry_while_no_process_runs(world: World) -> None:
    agent = world.agent()
    async with world.runner(agent, options=RunOptions(approval_expires=3_600)) as runner:
        result = await world.run(runner, agent)
        (item,) = await runner.list_pending("job")
        assert (result.state, item.expires) == ("waiting", clock.now() + 3_600_000_000)
    await asyncio.sleep(3_600)
    async with world.runner(agent) as runner:
        with pytest.raises(AlreadyDecided, match="has expired"):
            await runner.approve("job", item.request_id)
        result = await world.resume(runner)
        with pytest.raises(AlreadyDecided, match="has expired"):
            await runner.approve("job", item.request_id)
    refunds = [each.outcome for each in result.tool_executions if each.name == "refund"]
    assert (refunds, world.payments) == (["denied"], [])


async def a_foreign_task(world: World) -> None:
    (item,) = await world.asked()
    agent = world.agent()
    async with world.runner(agent) as runner:
        await world.run(runner, agent, "other")
        await runner.deny("other")
        await world.resume(runner, "other")
        with pytest.raises(AlreadyDecided):  # that of its own, which has the same id
            await runner.approve("other", item.request_id)
        for foreign in (
            item.request_id.replace("ask1", "ask2"),
            item.request_id.partition("-ask")[0],
            "x-ask1",
        ):
            with pytest.raises(CallNotFound):
                await runner.approve("job", foreign)
        assert len((await runner.list_pending("job")).items) == 1
    assert world.payments == []


Case = Callable[[World], Any]
CASES: list[Case] = [
    a_double_click,
    a_late_click,
    altered_arguments,
    a_changed_schema,
    changed_code,
    a_restart_between,
    three_answered_in_reverse,
    two_calls_with_one_provider_id,
    an_expiry_while_no_process_runs,
    a_foreign_task,
]


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.full)])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """A store that outlives the processes that use it."""
    if request.param == "sqlite":
        yield tmp_path / "store.db"
    else:
        yield request.getfixturevalue("postgres").in_schema(f"t{abs(hash(str(tmp_path))):x}")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_exactly_the_intended_calls_run(shared: Any, case: Case, tmp_path: Path) -> None:
    judge(case, World(shared, "function_calling", False, tmp_path / "ledger"))


@pytest.mark.parametrize("worker", WORKERS)
def test_every_worker_waits_for_approvals(shared: Any, worker: str, tmp_path: Path) -> None:
    judge(a_restart_between, World(shared, worker, True, tmp_path / "ledger"))


@pytest.mark.sampled(5)
@pytest.mark.parametrize("streamed", [False, True], ids=["run", "streamed"])
@pytest.mark.parametrize("worker", WORKERS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_exactly_the_intended_calls_run_in_every_worker(
    shared: Any, case: Case, worker: str, streamed: bool, tmp_path: Path
) -> None:
    judge(case, World(shared, worker, streamed, tmp_path / "ledger"))


def judge(case: Case, world: World) -> None:
    """Run a case in virtual time, and audit the store after it."""

    async def work() -> None:
        await case(world)
        async with world.runner() as runner:
            await runner.list_tasks()
            assert await audit_store(runner.store) == []

    clock.run(work())
