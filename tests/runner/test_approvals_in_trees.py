"""Requests to people in trees of agents: a child asks, and every task above it tells of it and takes the decision."""

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.drivers.agent_trees import answering, calling, states
from tests.runner.acts import both, journal
from treadle import (
    Agent,
    Allow,
    Deny,
    EffectRequest,
    Happened,
    NotHappened,
    Policy,
    Rule,
    Runner,
    ScriptedModel,
    Subagent,
    ToolContext,
    tool,
)
from treadle.core import events as e
from treadle.core.journal import events_with_epochs
from treadle.errors import AlreadyDecided, CallNotFound, ConfigurationError
from treadle.llm.scripted import call, text
from treadle.policy.verdicts import PolicyVerdict
from treadle.testing.audit.store import audit_store

pytestmark = pytest.mark.anyio


class Ledger:
    """What tools did, in a file outside of the library."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def lines(self) -> list[str]:
        return self.path.read_text().splitlines() if self.path.exists() else []

    def note(self, line: str) -> None:
        with self.path.open("a") as book:
            book.write(f"{line}\n")

    def pay(self, **declared: Any) -> Any:
        def pay(what: str) -> str:
            """Pay."""
            self.note(what)
            return f"paid {what}"

        return tool(pay, **{"needs_approval": True, **declared})

    def clerk(self, name: str, *script: Any, tools: Any = None) -> Agent[Any]:
        turns = [*(script or (call("pay", what=name),)), text(f"{name} is done")]
        return Agent(ScriptedModel(turns), name=name, tools=tools or [self.pay()])


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger")


async def audited(runner: Runner) -> None:
    await runner.list_tasks()
    assert await audit_store(runner.store) == []


# ---------------------------------------------------------------------------------------- at every ancestor


@pytest.mark.parametrize("levels", [1, 2, 3])
async def test_a_request_is_listed_and_decided_at_each_task_above(
    runner: Runner, ledger: Ledger, levels: int
) -> None:
    for decided_at in range(levels + 1):
        agent = ledger.clerk(f"clerk{decided_at}")
        for level in range(levels):
            agent = calling(f"level{level}", agent)
        root = (await runner.run(agent, "go")).task_id
        ids = [root + ".s1-0" * depth for depth in range(levels + 1)]
        assert await states(runner, tuple(ids)) == ["waiting"] * (levels + 1)
        for task_id in ids:
            (item,) = await runner.handle(task_id).list_pending()
            assert (item.task_id, item.request_id, item.tool) == (ids[-1], "s1-0-ask1", "pay")
        for above in ids[:-1]:
            (waits,) = (await runner.result(above)).pending
            assert (waits.kind, waits.request_id) == ("subagent", f"{above}.s1-0")
            assert "pay waits for an approval" in waits.text
        await runner.handle(ids[decided_at]).approve(by="ann")
        (waits,) = (await runner.result(root)).pending
        assert waits.text.endswith(f"clerk{decided_at} (task {ids[-1]}) no longer waits: `resume` goes on")
        assert (await runner.resume(root)).state == "completed"
    assert ledger.lines == [f"clerk{n}" for n in range(levels + 1)]
    await audited(runner)


async def test_a_request_names_the_agents_from_the_task_that_is_asked_for_down_to_the_one_that_asks(
    runner: Runner, ledger: Ledger
) -> None:
    agents = calling("boss", calling("desk", ledger.clerk("clerk")))
    result = await runner.run(agents, "go", task_id="t")
    (at_rest,) = result.pending
    assert (at_rest.kind, at_rest.path) == ("subagent", ("boss", "desk", "clerk"))
    paths = [(await runner.list_pending(task)).items[0].path for task in ("t", "t.s1-0", "t.s1-0.s1-0")]
    assert paths == [("boss", "desk", "clerk"), ("desk", "clerk"), ("clerk",)]
    (item,) = await runner.list_pending()
    assert (item.task_id, item.path) == ("t.s1-0.s1-0", ("boss", "desk", "clerk"))
    assert [pending.path for pending in (await runner.result("t.s1-0.s1-0")).pending] == [("clerk",)]


async def test_the_path_to_several_requests_below_ends_where_they_part(
    runner: Runner, ledger: Ledger
) -> None:
    desk = calling("desk", ledger.clerk("a"), ledger.clerk("b"))
    (at_rest,) = (await runner.run(calling("boss", desk), "go")).pending
    assert at_rest.path == ("boss", "desk")


async def test_requests_of_several_children_with_one_id_are_told_apart_by_their_tasks(
    runner: Runner, ledger: Ledger
) -> None:
    boss = calling("boss", ledger.clerk("first"), ledger.clerk("second"), ledger.clerk("third"))
    root = (await runner.run(boss, "go")).task_id
    items = (await runner.list_pending(root)).items
    assert [(item.task_id, item.request_id) for item in items] == [
        (f"{root}.s1-{n}", "s1-0-ask1") for n in range(3)
    ]
    with pytest.raises(ConfigurationError, match=rf"name the task, .* of task {root}\.s1-0, .*{root}\.s1-2"):
        await runner.approve(root, "s1-0-ask1")
    await runner.approve(items[2].task_id, items[2].request_id)
    await runner.deny(items[1].task_id, items[1].request_id)
    assert (await runner.resume(root)).state == "waiting"
    assert ledger.lines == ["third"]
    with pytest.raises(AlreadyDecided):
        await runner.approve(items[1].task_id, items[1].request_id)
    await runner.approve(root, "s1-0-ask1")
    result = await runner.resume(root)
    paid = [each.outcome for each in result.tool_executions if each.name == "pay"]
    assert (result.state, paid, ledger.lines) == ("completed", ["ok", "denied", "ok"], ["third", "first"])
    assert [(each.depth, each.path) for each in result.tool_executions if each.name == "pay"] == [
        (1, ("boss", name)) for name in ("first", "second", "third")
    ]
    with pytest.raises(
        ConfigurationError, match="several tasks have a request s1-0-ask1, and none is pending"
    ):
        await runner.approve(root, "s1-0-ask1")
    with pytest.raises(CallNotFound):
        await runner.approve(root, "s1-0-ask2")
    await audited(runner)


async def test_a_request_of_a_task_itself_comes_before_those_below_it(runner: Runner, ledger: Ledger) -> None:
    calls = both(call("pay", what="own"), call("clerk", input="pay"))
    boss = Agent(
        ScriptedModel([calls, "End."]), name="boss", tools=[ledger.pay()], subagents=[ledger.clerk("clerk")]
    )
    root = (await runner.run(boss, "go")).task_id
    assert [item.task_id for item in await runner.list_pending(root)] == [root, f"{root}.s1-1"]
    await runner.approve(root, "s1-0-ask1")
    assert [item.task_id for item in await runner.list_pending(root)] == [f"{root}.s1-1"]
    await runner.resume(root)
    assert ledger.lines == ["own"]
    await runner.deny(root)
    assert (await runner.resume(root)).state == "completed"
    assert ledger.lines == ["own"]


async def test_a_question_of_a_child_is_answered_at_its_root(store: Any, ledger: Ledger) -> None:
    @tool(read_only=True)
    async def ask(ctx: ToolContext[Any]) -> str:
        """Ask a person."""
        return f"size {await ctx.ask('How big?', schema=int)}"

    boss = calling("boss", calling("middle", ledger.clerk("clerk", call("ask"), tools=[ask])))
    async with Runner(store) as runner:
        root = (await runner.run(boss, "go")).task_id
        (item,) = await runner.list_pending(root)
        assert (item.kind, item.text, item.task_id) == ("question", "How big?", f"{root}.s1-0.s1-0")
        with pytest.raises(ConfigurationError, match="does not fit the question"):
            await runner.answer(root, value="big")
        await runner.answer(root, item.request_id, value=7)
        await runner.answer(root, item.request_id, value=7)
        with pytest.raises(AlreadyDecided, match="was answered already"):
            await runner.answer(root, item.request_id, value=8)
        result = await runner.resume(root)
        assert [each.output for each in result.tool_executions if each.name == "ask"] == ["size 7"]
        await audited(runner)


@pytest.mark.parametrize("verdict", [Happened("it was paid"), NotHappened()])
async def test_a_lost_call_of_a_child_is_settled_at_its_root(
    runner: Runner, ledger: Ledger, verdict: Any
) -> None:
    entered = asyncio.Event()

    @tool
    async def transfer() -> str:
        """Pay, and be cut off."""
        ledger.note("paid")
        if not entered.is_set():
            entered.set()
            await asyncio.sleep(60)
        return "paid"

    boss = calling("boss", calling("middle", ledger.clerk("clerk", call("transfer"), tools=[transfer])))
    root = (await runner.start(boss, "go")).task_id
    await entered.wait()
    await runner.interrupt(root)
    assert (await runner.resume(root)).state == "waiting"
    (item,) = await runner.list_pending(root)
    assert (item.kind, item.request_id, item.task_id) == ("settlement", "s1-0", f"{root}.s1-0.s1-0")
    await runner.settle(root, item.request_id, verdict)
    await runner.settle(root, item.request_id, verdict)
    other = NotHappened() if isinstance(verdict, Happened) else Happened("x")
    with pytest.raises(AlreadyDecided):
        await runner.settle(root, item.request_id, other)
    assert (await runner.resume(root)).state == "completed"
    assert len(ledger.lines) == (1 if isinstance(verdict, Happened) else 2)


# ----------------------------------------------------------------------------------------- other processes

TEAM = """
from pathlib import Path

from treadle import Agent, Runner, ScriptedModel, tool
from treadle.models import call, text


@tool(needs_approval=True)
def pay(what: str) -> str:
    with Path(__file__).with_name("ledger").open("a") as book:
        book.write(what + "\\n")
    return "paid"


clerk = Agent(ScriptedModel([call("pay", what="rent"), text("Paid.")]), name="clerk", tools=[pay])
middle = Agent(ScriptedModel([call("clerk", input="pay"), text("Told.")]), name="middle", subagents=[clerk])
boss = Agent(ScriptedModel([call("middle", input="pay"), text("Done.")]), name="boss", subagents=[middle])
"""


def typed(folder: Path, *command: str) -> str:
    """Run a command in a process of its own and return what it prints."""
    return subprocess.run(
        [sys.executable, "-m", "treadle", *command, "--store", "team.db"],
        cwd=folder,
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    ).stdout


@pytest.mark.full
def test_a_tree_at_rest_is_decided_at_its_root_by_another_process_and_resumed_by_a_third(
    tmp_path: Path,
) -> None:
    (tmp_path / "decided_team.py").write_text(TEAM)
    assert "job.s1-0.s1-0" in typed(tmp_path, "run", "decided_team:boss", "go", "--task-id", "job")
    assert not (tmp_path / "ledger").exists()
    shown = typed(tmp_path, "show", "job")
    assert "clerk (task job.s1-0.s1-0) is waiting: pay waits for an approval" in shown
    listed = typed(tmp_path, "pending", "job")
    assert "job.s1-0.s1-0" in listed
    assert 'pay({"what":"rent"})' in listed
    tree = typed(tmp_path, "tasks", "--tree").splitlines()
    assert [line.split("\t")[1] for line in tree] == ["waiting"] * 3
    typed(tmp_path, "approve", "job", "--by", "ann")
    assert "nothing waits" not in typed(tmp_path, "pending", "job")
    assert "completed" in typed(tmp_path, "resume", "job", "--agent", "decided_team:boss")
    assert (tmp_path / "ledger").read_text() == "rent\n"


# ------------------------------------------------------------------------------------------------- batches


async def test_a_batch_of_agents_has_four_correct_outcomes(runner: Runner, ledger: Ledger) -> None:
    @tool(read_only=True)
    async def nap() -> str:
        """Sleep a little."""
        await asyncio.sleep(0.05)
        ledger.note("slow")
        return "rested"

    boss = calling(
        "boss",
        answering("good", "fine"),
        Agent(ScriptedModel(lambda _: 1 / 0), name="raises"),
        ledger.clerk("asks"),
        ledger.clerk("slow", call("nap"), tools=[nap]),
    )
    async with runner.run_stream(boss, "go") as stream:
        async for _ in stream:
            pass
    result: Any = stream.result
    outcomes = [each.outcome for each in result.subagent_executions]
    assert (result.state, outcomes, ledger.lines) == ("waiting", ["ok", "error", None, "ok"], ["slow"])
    await runner.approve(result.task_id)
    result = await runner.resume(result.task_id)
    outcomes = [each.outcome for each in result.subagent_executions]
    assert (result.state, outcomes) == ("completed", ["ok", "error", "ok", "ok"])
    assert ledger.lines == ["slow", "asks"]
    await audited(runner)


async def test_a_policy_function_that_decides_late_comes_before_agents_and_their_calls(
    store: Any, ledger: Ledger
) -> None:
    decided: list[tuple[str, int]] = []

    async def late(request: EffectRequest) -> PolicyVerdict | None:
        await asyncio.sleep(0.3)
        decided.append((f"{request.kind} {request.name}", len(ledger.lines)))
        return Deny("late") if request.name == "second" else Allow("late")

    first, second = (
        ledger.clerk(name, tools=[ledger.pay(needs_approval=False)]) for name in ("first", "second")
    )
    boss = calling("boss", first, second)
    async with Runner(store, policy=Policy(Rule("late", late, tool="*"))) as runner:
        result = await runner.run(boss, "go")
        assert [each.outcome for each in result.tool_executions] == ["ok", "ok", "denied"]
        assert len((await runner.list_tasks(parent=result.task_id)).items) == 1
    assert sorted(decided) == [("subagent first", 0), ("subagent second", 0), ("tool pay", 0)]
    assert ledger.lines == ["first"]


# --------------------------------------------------------------------------------------------- cancelling


async def journal_of(runner: Runner, task_id: str) -> list[e.Event]:
    """Return the events of a task so far, also of one that works."""
    return [event for _, event in events_with_epochs(task_id, await runner.store.read(task_id))]


def tree_of_13(ledger: Ledger) -> Agent[Any]:
    """Return 1 agent above 3 above 9, which work, ask a person, ask for an approval, or wait for a ticket."""

    @tool(read_only=True)
    async def work(ctx: ToolContext[Any]) -> str:
        """Work for ever, and note each sign of life."""
        while True:
            ledger.note(ctx.task_id)
            await asyncio.sleep(0.01)

    @tool(read_only=True)
    async def ask(ctx: ToolContext[Any]) -> str:
        """Ask a person."""
        return await ctx.ask("Go on?", schema=str)

    @tool(background=True, idempotent=True)
    async def order(ctx: ToolContext[Any]) -> Any:
        """Have the work done elsewhere."""
        return ctx.background({"job": 1}, expires=3_600.0)

    middles = []
    for n in range(3):
        waits = ledger.clerk(f"asks{n}") if n else ledger.clerk("orders", call("order"), tools=[order])
        leaves = [
            ledger.clerk(f"works{n}", call("work"), tools=[work]),
            ledger.clerk(f"questions{n}", call("ask"), tools=[ask]),
            waits,
        ]
        middles.append(calling(f"middle{n}", *leaves))
    return calling("root", *middles)


@pytest.mark.virtual_time
@pytest.mark.parametrize("at_rest", [False, True], ids=["at work", "interrupted"])
async def test_nothing_of_a_cancelled_tree_of_13_runs_after_a_second(
    runner: Runner, ledger: Ledger, at_rest: bool
) -> None:
    handle = await runner.start(tree_of_13(ledger), "go")
    root = handle.task_id
    async with asyncio.timeout(20):
        while len((await runner.list_pending(root)).items) < 5 or len(set(ledger.lines)) < 3:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        kinds: list[str] = []
        while "call_deferred" not in kinds:
            kinds = [event.kind for event in await journal_of(runner, f"{root}.s1-0.s1-2")]
    if at_rest:
        await runner.interrupt(root)
    cancelling = asyncio.ensure_future(runner.cancel(root, reason="enough"))
    await asyncio.sleep(1)
    signs = len(ledger.lines)
    await asyncio.sleep(0.2)
    assert len(ledger.lines) == signs
    await cancelling
    rows = [task async for task in await runner.list_tasks()]
    assert [task.state for task in rows] == ["cancelled"] * 13
    assert (await runner.list_pending()).items == ()
    assert runner.abandoned == ()
    await audited(runner)
    for task in rows:
        after = [event for event in await journal(runner, task.task_id) if event.kind == "task_ended"]
        assert len(after) == 1


async def test_a_retried_child_that_asks_is_asked_once_for_each_task(runner: Runner, ledger: Ledger) -> None:
    failing = ledger.clerk("clerk", call("pay", what="rent"))

    def say(request: Any) -> Any:
        if not request.turn:
            return call("pay", what=f"rent {request.task_id[-2:]}")
        if request.task_id.endswith("t2"):
            return "Paid."
        raise ValueError("out of luck")

    boss = calling("boss", Subagent(failing.replace(model=ScriptedModel(say)), retries=1))
    root = (await runner.run(boss, "go")).task_id
    await runner.approve(root)
    result = await runner.resume(root)
    assert (result.state, ledger.lines) == ("waiting", ["rent -0"])
    (item,) = await runner.list_pending(root)
    assert item.task_id == f"{root}.s1-0t2"
    await runner.approve(root)
    result = await runner.resume(root)
    assert (result.state, ledger.lines) == ("completed", ["rent -0", "rent t2"])
    kinds = [event for event in await journal(runner, root) if isinstance(event, e.ToolStopped)]
    assert [event.failed for event in kinds if event.failed] == [f"{root}.s1-0"]
    await audited(runner)
