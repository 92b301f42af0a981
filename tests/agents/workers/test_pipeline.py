"""Pipelines: when each node runs, what it sees, and what follows a skipped or failed node or a crash."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any

import pytest

from tests.agents.workers.nodes import add, agent_of, echo, inputs_of, name_of, run
from tests.property.mortal import MortalStore, next_life
from tests.runner.gates import Gates, shown
from treadle import (
    Agent,
    Ask,
    FailurePolicy,
    Happened,
    Limits,
    Node,
    NodeContext,
    NotHappened,
    Pipeline,
    Quorum,
    Runner,
    RunOptions,
    RunResult,
    ScriptedModel,
    ToolContext,
    tool,
)
from treadle.agents.dialects.react import React
from treadle.core.events import Delta, Event
from treadle.core.model import ModelSettings
from treadle.errors import ConfigurationError, StoreError
from treadle.llm.scripted import fail, text
from treadle.replay.recording import assert_same_journal, journal_of
from treadle.stores.memory import MemoryStore
from treadle.testing.audit import Evidence, LedgerEntry, audit_store

pytestmark = pytest.mark.anyio


def broken(ctx: NodeContext) -> Any:
    raise ValueError("broken")


@pytest.fixture
async def runner() -> AsyncIterator[Runner]:
    async with Runner("memory:") as runner:
        yield runner
        assert await audit_store(runner.store, Evidence(ended=False)) == []


async def statuses(runner: Runner, result: RunResult) -> dict[str, str]:
    steps = await runner.get_completed_steps(result.task_id)
    return {step.step.name: step.step.status for step in steps}


# ----------------------------------------------------------------------------------------- what runs


async def test_a_chain_hands_each_value_to_the_next_node(runner: Runner) -> None:
    result = await run(
        runner,
        Node("c", lambda ctx: ctx.results["b"] * 2, after="b"),
        Node("a", lambda ctx: len(ctx.text)),
        Node("b", lambda ctx: ctx.results["a"] + 40, after="a"),
    )
    assert (result.state, result.output, result.final_text, result.steps) == ("completed", 84, "84", 3)
    assert [message.text for message in result.messages] == ["go", "84"]


async def test_a_diamond_joins_what_both_sides_made(runner: Runner) -> None:
    result = await run(
        runner,
        Node("top", lambda ctx: 1),
        Node("left", lambda ctx: ctx.results["top"] + 1, after="top"),
        Node("right", lambda ctx: ctx.results["top"] + 2, after="top"),
        Node("end", inputs_of, after=["left", "right"]),
    )
    assert result.output == {"left": 2, "right": 3}


async def test_a_wide_fan_runs_all_its_nodes_and_joins_them_in_order(runner: Runner) -> None:
    names = [f"n{i}" for i in range(60)]
    fan = [Node(name, name_of) for name in names]
    result = await run(runner, *fan, Node("end", lambda ctx: list(ctx.results.values()), after=names))
    assert (result.output, result.steps) == (names, 61)


async def test_nodes_without_followers_are_an_object_by_name(runner: Runner) -> None:
    result = await run(runner, Node("a", lambda ctx: 1), Node("b", lambda ctx: [2]))
    assert (result.output, result.final_text) == ({"a": 1, "b": [2]}, '{"a":1,"b":[2]}')


async def test_the_answer_may_be_the_value_of_any_node_and_all_nodes_run(runner: Runner) -> None:
    nodes = (Node("a", lambda ctx: 1), Node("b", name_of, after="a"), Node("c", name_of, after="b"))
    result = await run(runner, *nodes, output="a")
    assert (result.output, (await statuses(runner, result))["c"]) == (1, "completed")
    assert (await run(runner, *nodes, output=["b", "a"])).output == {"b": "b", "a": 1}


# ------------------------------------------------------------------------------------- when it runs


async def test_a_node_begins_as_soon_as_its_own_end_though_another_still_runs(runner: Runner) -> None:
    gates = Gates()

    async def gated(ctx: NodeContext) -> str:
        await gates.pass_(ctx.name)
        return ctx.name

    agent = agent_of(
        Node("slow", gated),
        Node("quick", gated),
        Node("next", gated, after="quick"),
        Node("end", inputs_of, after=["slow", "next"]),
    )
    handle = await runner.start(agent, "go")
    await gates.let("quick")
    await gates.let("next")
    assert "slow ends" not in gates.log
    await gates.let("slow")
    assert (await handle.result()).output == {"slow": "slow", "next": "next"}


async def test_a_blocking_function_delays_no_other_node(runner: Runner) -> None:
    import threading

    free = threading.Event()
    result = await run(
        runner, Node("a", lambda ctx: free.wait(5)), Node("b", lambda ctx: free.set()), output="a"
    )
    assert result.output is True


@pytest.mark.sampled(8)
@pytest.mark.parametrize("order", list(itertools.permutations("abcd")), ids="".join)
async def test_state_and_answer_do_not_depend_on_the_order_in_which_nodes_end(
    runner: Runner, order: tuple[str, ...]
) -> None:
    gates = Gates()

    async def gated(ctx: NodeContext) -> Any:
        await gates.pass_(ctx.name)
        answer = await ctx.step.call_model(f"say {ctx.name}")
        return {"last": ctx.name, ctx.name: answer.message.text, "seen": sorted(ctx.state)}

    def state(ctx: NodeContext) -> Any:
        return [dict(ctx.state), list(ctx.results)]

    agent = agent_of(
        Node("join", state, after=["d", "a", "c", "b"]),
        *[Node(name, gated, update=True) for name in "abcd"],
        Node("after_a", lambda ctx: {"last": "after a", "x": 1}, after="a", update=True),
        Node("end", state, after=["join", "after_a"]),
        state={"last": None, "given": True},
    )
    handle = await runner.start(agent, "go")
    for name in order:
        await gates.let(name)
        await shown(runner, handle.task_id, f"say {name}")
    result = await handle.result()
    answers = {name: f"heard say {name}" for name in "abcd"}
    seen = {"seen": ["given", "last"], "given": True, **answers}
    assert result.output == [{"last": "after a", "x": 1, **seen}, ["join", "after_a"]]
    joined = await runner.get_step(result.task_id, "s5")
    assert (joined.step.name, joined.output) == ("join", [{"last": "d", **seen}, ["d", "a", "c", "b"]])
    assert [step.step.name for step in await runner.get_completed_steps(result.task_id)] == [
        *"abcd",
        "join",
        "after_a",
        "end",
    ]


async def test_a_node_sees_the_results_of_the_nodes_before_it_only(runner: Runner) -> None:
    seen: dict[str, Any] = {}

    def look(ctx: NodeContext) -> Any:
        seen[ctx.name] = dict(ctx.state)
        return {ctx.name: True}

    task = await runner.create_task(
        agent_of(
            Node("a", look, update=True),
            Node("b", look, update=True),
            Node("c", look, after="a", update=True),
            Node("d", look, after=["b", "c"]),
            state={"given": 1, "mine": 1},
        ),
        "go",
        extra_state={"mine": 2},
    )
    while not (await runner.run_step(task)).is_last:
        pass
    base = {"given": 1, "mine": 2}
    assert seen == {
        "a": base,
        "b": base,
        "c": {**base, "a": True},
        "d": {**base, "a": True, "b": True, "c": True},
    }


async def test_a_join_of_any_takes_the_first_result_and_stops_the_other_nodes(runner: Runner) -> None:
    gates = Gates()

    async def gated(ctx: NodeContext) -> str:
        await gates.pass_(ctx.name)
        return ctx.name

    agent = agent_of(Node("a", gated), Node("b", gated), Node("end", inputs_of, after=["a", "b"], join="any"))
    handle = await runner.start(agent, "go")
    await gates.until("a begins", "b begins")
    gates.open["b"].set()
    result = await handle.result()
    assert result.output == {"b": "b"}
    assert await statuses(runner, result) == {"a": "skipped", "b": "completed", "end": "completed"}


async def test_a_quorum_waits_for_so_many_values_and_counts_no_node_that_was_skipped(runner: Runner) -> None:
    gates = Gates()

    async def gated(ctx: NodeContext) -> str:
        await gates.pass_(ctx.name)
        return ctx.name

    agent = agent_of(
        Node("skipped", name_of, when=lambda ctx: False),
        Node("fails", broken, optional=True),
        *[Node(name, gated) for name in "abc"],
        Node("end", inputs_of, after=["skipped", "fails", *"abc"], join=Quorum(2)),
    )
    handle = await runner.start(agent, "go")
    await gates.let("c")
    assert not [line for line in gates.log if line.startswith("end")]
    await gates.let("a")
    result = await handle.result()
    assert result.output == {"a": "a", "c": "c"}
    assert (await statuses(runner, result))["b"] == "skipped"


# --------------------------------------------------------------------------- skipped nodes, failed nodes


async def test_of_two_branches_the_one_whose_condition_holds_is_taken(runner: Runner) -> None:
    def reply(condition: bool) -> list[Node]:
        return [
            Node("bug", lambda ctx: condition),
            Node("fix", name_of, after="bug", when=lambda ctx: ctx.results["bug"]),
            Node("build", name_of, after="bug", when=lambda ctx: not ctx.results["bug"]),
            Node("reply", inputs_of, after=["fix", "build"], join="any"),
        ]

    assert (await run(runner, *reply(True))).output == {"fix": "fix"}
    result = await run(runner, *reply(False))
    assert result.output == {"build": "build"}
    assert (await statuses(runner, result))["fix"] == "skipped"


async def test_nodes_that_need_a_skipped_node_are_skipped_and_optional_followers_run(runner: Runner) -> None:
    result = await run(
        runner,
        Node("off", name_of, when=lambda ctx: False),
        Node("needs", name_of, after="off"),
        Node("needs_one", name_of, after=["off", "needs"], join="any"),
        Node("runs", inputs_of, after=["off", "needs"], join="optional"),
        Node("told", Ask("[{off}] {runs}"), after=["off", "runs"], join="optional"),
    )
    assert result.output == {"needs_one": None, "told": "heard [] {}"}
    assert [name for name, status in (await statuses(runner, result)).items() if status == "skipped"] == [
        "off",
        "needs",
        "needs_one",
    ]


async def test_a_pipeline_whose_last_node_is_skipped_answers_with_nothing(runner: Runner) -> None:
    result = await run(runner, Node("only", name_of, when=lambda ctx: False))
    assert (result.state, result.output, result.final_text) == ("completed", None, "")


async def test_a_node_that_fails_fails_the_task_and_is_run_again_alone(runner: Runner) -> None:
    ran: list[str] = []
    works = False

    def note(ctx: NodeContext) -> str:
        ran.append(ctx.name)
        if ctx.name == "b" and not works:
            raise ValueError("not yet")
        return ctx.name

    agent = agent_of(*[Node(name, note) for name in "abc"], Node("end", inputs_of, after=["a", "b", "c"]))
    failed = await runner.run(agent, "go")
    assert (failed.state, sorted(ran)) == ("failed", ["a", "b", "c"])
    assert "ValueError: not yet" in str(failed.error)
    works = True
    result = await runner.resume(failed.task_id)
    assert (result.output, sorted(ran)) == ({"a": "a", "b": "b", "c": "c"}, ["a", "b", "b", "c"])


async def test_a_node_with_retries_is_tried_again_before_its_failure_counts(runner: Runner) -> None:
    attempts: list[int] = []

    def flaky(ctx: NodeContext) -> str:
        attempts.append(ctx.step.attempt)
        if len(attempts) < 3:
            raise ValueError("not yet")
        return "works"

    result = await run(
        runner,
        Node("a", flaky, retries=2),
        Node("b", lambda ctx: ctx.results["a"], after="a"),
        Node("beside", name_of),
        output="b",
    )
    assert (result.state, result.output, attempts) == ("completed", "works", [1, 2, 3])
    events = await journal_of(runner.store, result.task_id)
    kinds = [event.kind for event in events if getattr(event, "step", "") == "s1"]
    assert kinds == ["step_started", "step_failed"] * 2 + ["step_started", "step_completed"]


async def test_a_node_without_retries_left_fails_and_a_resume_tries_it_once_more(runner: Runner) -> None:
    attempts: list[int] = []

    def never(ctx: NodeContext) -> None:
        attempts.append(ctx.step.attempt)
        raise ValueError("no")

    result = await run(runner, Node("a", never, retries=1))
    assert (result.state, attempts) == ("failed", [1, 2])
    assert (await runner.resume(result.task_id)).state == "failed"
    assert attempts == [1, 2, 3]


@pytest.mark.parametrize("join", ["all", "any", "optional"])
async def test_retries_come_before_what_a_failure_means_for_other_nodes(runner: Runner, join: Any) -> None:
    attempts: list[str] = []

    def twice(ctx: NodeContext) -> str:
        attempts.append(ctx.name)
        if len(attempts) < 3:
            raise ValueError("not yet")
        return "works"

    result = await run(
        runner,
        Node("a", twice, retries=2, optional=join == "optional"),
        Node("b", lambda ctx: ctx.results["a"], after="a", join=join),
    )
    assert (result.state, result.output, len(attempts)) == ("completed", "works", 3)


async def test_a_stepped_node_with_retries_is_one_step(runner: Runner) -> None:
    model = ScriptedModel([fail(500), "fine"])
    task = await runner.create_task(agent_of(Node("a", Ask("go"), retries=1), model=model), "go")
    output = await runner.run_step(task)
    assert (output.step.status, output.step.attempt, output.output) == ("completed", 2, "fine")


async def test_a_tool_that_only_reads_is_called_again_and_one_that_writes_is_not(runner: Runner) -> None:
    calls: list[str] = []

    @tool(read_only=True)
    def look(what: str) -> str:
        """Look."""
        calls.append(what)
        if len(calls) == 1:
            raise OSError("down")
        return "seen"

    @tool
    def pay() -> str:
        """Pay."""
        calls.append("pay")
        raise OSError("down")

    result = await run(runner, Node("a", look, input={"what": "x"}, retries=1), tools=[look])
    assert (result.output, calls) == ("seen", ["x", "x"])

    async def paying(ctx: NodeContext) -> Any:
        return await ctx.step.call_tool("pay")

    result = await run(runner, Node("a", paying, retries=3), tools=[pay])
    assert (result.state, calls) == ("failed", ["x", "x", "pay"])


async def test_a_crash_between_two_attempts_neither_loses_nor_adds_one() -> None:
    attempts: list[int] = []

    def flaky(ctx: NodeContext) -> str:
        attempts.append(ctx.step.attempt)
        if ctx.step.attempt < 3:
            raise ValueError("not yet")
        return "works"

    agent = agent_of(Node("a", flaky, retries=2))
    for boundary in itertools.count():
        life = MortalStore(MemoryStore())
        await life.real.open()
        life.commits_left = boundary
        survived = False
        with suppress(StoreError):
            await Runner(life).run(agent, "go", task_id="t")
            survived = True
        async with Runner(await next_life(life, None)) as runner:
            result = await runner.run(agent, "go", task_id="t")
            assert (result.output, max(attempts)) == ("works", 3)
            assert await audit_store(runner.store, Evidence(ended=False)) == []
        if survived:
            break
    assert boundary > 3


async def test_a_failed_prompt_is_sent_again_as_the_next_attempt(runner: Runner) -> None:
    model = ScriptedModel([fail(500), fail(500), "fine"])
    result = await run(runner, Node("a", Ask("go")), model=model)
    for state in ("failed", "completed"):
        result = await runner.resume(result.task_id)
        assert result.state == state
    assert [(request.turn, request.attempt) for request in model.requests] == [(0, 1), (0, 2), (0, 3)]


async def test_a_failure_policy_holds_for_nodes(runner: Runner) -> None:
    works = False
    agent = agent_of(
        Node("a", Ask("go")), model=ScriptedModel(lambda request: text("fine") if works else fail(500))
    )
    paused = await runner.run(agent, "go", options=RunOptions(on_failure=FailurePolicy(model="pause")))
    assert paused.state == "paused"
    works = True
    assert (await runner.resume(paused.task_id)).output == "fine"
    degraded = await runner.run(
        agent_of(Node("a", Ask("go")), model=ScriptedModel([fail(500)])),
        "go",
        options=RunOptions(on_failure=FailurePolicy(model="degrade")),
    )
    assert degraded.state == "degraded"


async def test_the_pipeline_goes_on_without_an_optional_node_that_failed(runner: Runner) -> None:
    @tool
    async def never() -> None:
        """Fail."""
        raise OSError("no")

    result = await run(
        runner,
        Node("a", broken, optional=True),
        Node("b", never, optional=True),
        Node("c", Ask("go"), optional=True),
        Node("needs", lambda ctx: [dict(ctx.results), sorted(ctx.step.failures)], after=["a", "b", "c"]),
        Node("last", broken, optional=True, after="needs"),
        model=ScriptedModel([fail(500)]),
        tools=[never],
    )
    assert (result.state, result.output) == ("degraded", None)
    assert sorted(result.degraded_reasons) == [
        "step 'a' failed: ValueError: broken",
        "step 'b' failed: OSError: no",
        "step 'c' failed: scripted failure: 500",
        "step 'last' failed: ValueError: broken",
    ]
    steps = {step.step.name: step for step in await runner.get_completed_steps(result.task_id)}
    assert [steps[name].step.status for name in ("a", "b", "c", "needs", "last")] == [
        *["skipped"] * 3,
        "completed",
        "skipped",
    ]
    assert [(steps[name].error or result.error).source for name in "abc"] == ["worker", "tool", "model"]
    assert steps["last"].error.message == "ValueError: broken"
    assert steps["needs"].output == [{}, ["a", "b", "c"]]


async def test_a_node_that_follows_optionally_runs_though_all_before_it_failed(runner: Runner) -> None:
    result = await run(
        runner,
        Node("a", broken),
        Node("b", name_of),
        Node("end", inputs_of, after=["a", "b"], join="optional"),
    )
    assert (result.state, result.output) == ("degraded", {"b": "b"})
    assert result.degraded_reasons == ("step 'a' failed: ValueError: broken",)
    assert (await statuses(runner, result))["a"] == "failed"


async def test_a_node_skipped_beside_one_that_failed_does_not_take_the_failure_back(runner: Runner) -> None:
    gates = Gates()

    async def late(ctx: NodeContext) -> Any:
        await gates.pass_(ctx.name)
        raise ValueError("late")

    agent = agent_of(
        Node("late", late, optional=True), Node("bad", broken), Node("end", inputs_of, after=["late", "bad"])
    )
    handle = await runner.start(agent, "go")
    await gates.until("late begins")
    for _ in range(20):
        await asyncio.sleep(0.001)
    gates.open["late"].set()
    result = await handle.result()
    assert (result.state, "ValueError: broken" in str(result.error)) == ("failed", True)


# ---------------------------------------------------------------------------- crash, undo, streams, limits


class World:
    """Nodes that write, and the process they live in."""

    def __init__(self) -> None:
        self.ledger: list[LedgerEntry] = []
        self.life = MortalStore(MemoryStore())
        self.dies_at: int | None = None
        self.reached = 0

        async def unbook(call: Any, ctx: ToolContext) -> None:
            self.ledger.append(LedgerEntry(ctx.call_id, ctx.idempotency_key, "write", "start", ctx.task_id))
            self.ledger.append(LedgerEntry(ctx.call_id, ctx.idempotency_key, "write", "done", ctx.task_id))

        @tool(undo=unbook)
        async def book(n: str, ctx: ToolContext) -> str:
            """Book."""
            self.ledger.append(LedgerEntry(ctx.call_id, ctx.idempotency_key, "write", "start", ctx.task_id))
            await self.reach()
            self.ledger.append(LedgerEntry(ctx.call_id, ctx.idempotency_key, "write", "done", ctx.task_id))
            return f"booked {n}"

        self.agent = Agent(
            ScriptedModel(echo),
            tools=[book],
            worker=Pipeline(
                [
                    Node("plan", Ask("plan {input}")),
                    Node("left", book, input={"n": "left of {plan}"}, after="plan"),
                    Node("right", self.right, after="plan", update=True),
                    Node("off", book, input={"n": "never"}, after="plan", when=lambda ctx: False),
                    Node("maybe", broken, optional=True, after="plan"),
                    Node(
                        "sum",
                        Ask("{left} and {booked}"),
                        after=["left", "right", "off", "maybe"],
                        join="optional",
                    ),
                    Node("last", "book", input={"n": "{sum}"}, after="sum", when=self.unbooked),
                ]
            ),
        )

    def unbooked(self, ctx: NodeContext) -> bool:
        """Return true until the node itself has acted: the condition must not be asked a second time."""
        return not any(entry.call.startswith(ctx.step.step_id) for entry in self.ledger)

    async def right(self, ctx: NodeContext) -> Any:
        return {"booked": await ctx.step.call_tool("book", {"n": "right"})}

    async def reach(self) -> None:
        self.reached += 1
        if self.reached - 1 == self.dies_at:
            self.life.die()
            await asyncio.sleep(0)

    async def drive(self, store: Any) -> RunResult | None:
        options = RunOptions(on_unknown_outcome="wait")
        with suppress(StoreError):
            async with Runner(store, options=options, agents=[self.agent]) as runner:
                result = await runner.run(self.agent, "go", task_id="t1")
                while result.state == "waiting":
                    await runner.settle("t1", result.pending[0].request_id, self.verdict(result))
                    result = await runner.resume("t1")
                return result
        return None

    def verdict(self, result: RunResult) -> Any:
        call_id = result.pending[0].request_id
        done = any(entry.call == call_id and entry.phase == "done" for entry in self.ledger)
        return Happened(f"booked {result.pending[0].arguments['n']}") if done else NotHappened()


async def lived_through(mortal: Callable[[World], None]) -> tuple[RunResult | None, RunResult, World]:
    world = World()
    await world.life.real.open()
    mortal(world)
    first = await world.drive(world.life)
    second = await next_life(world.life, None)
    world.dies_at = None
    result = await world.drive(second)
    assert result is not None
    async with Runner(second.real) as reader:
        assert await audit_store(reader.store, Evidence(ledger=world.ledger)) == []
    return first, result, world


async def test_a_crash_at_any_boundary_runs_no_finished_writing_node_twice() -> None:
    first, plain, _ = await lived_through(lambda world: None)
    assert first is not None
    assert plain.output == "booked heard booked left of heard plan go and booked right"
    deaths = 0
    for mode in ("before", "after", "inside"):
        at, first = 0, None
        while first is None:

            def mortal(world: World, at: int = at, mode: str = mode) -> None:
                if mode == "inside":
                    world.dies_at = at
                else:
                    world.life.commits_left, world.life.dies_after_writing = at, mode == "after"

            first, result, world = await lived_through(mortal)
            assert (result.state, result.output, result.messages) == (
                "degraded",
                plain.output,
                plain.messages,
            )
            assert result.degraded_reasons == plain.degraded_reasons
            done = [entry.call for entry in world.ledger if entry.phase == "done"]
            assert len(done) == len(set(done)) == 3, "each booking was done once"
            deaths += first is None
            at += 1
    assert deaths > 15


async def test_an_undo_of_one_node_reruns_it_and_what_follows_it_alone(runner: Runner) -> None:
    world = World()
    first = await runner.run(world.agent, "go")
    booked = len(world.ledger)
    report = await runner.undo_step(first.task_id, step="left")
    assert [(call.tool, call.verdict) for call in report.calls] == [("book", "compensated")] * 2
    left = [step.step.name for step in await runner.get_completed_steps(first.task_id)]
    assert left == ["plan", "right", "off", "maybe"]
    again = await runner.resume(first.task_id)
    assert (again.output, again.messages) == (first.output, first.messages)
    assert [entry.phase for entry in world.ledger[booked:]] == ["start", "done"] * 4, "two undone, two done"
    assert again.usage.model_calls == first.usage.model_calls + 1


async def test_a_skipped_node_stays_skipped_when_a_node_beside_it_is_undone(runner: Runner) -> None:
    agent = agent_of(
        Node("off", name_of, when=lambda ctx: False, optional=True),
        Node("fails", broken),
        Node("b", name_of),
        Node("end", inputs_of, after=["off", "fails", "b"], join="all"),
        Node("answer", inputs_of, after="end", join="optional"),
    )
    failed = await runner.run(agent, "go")
    assert failed.state == "failed"
    await runner.skip_step(failed.task_id)
    first = await runner.resume(failed.task_id)
    assert (first.state, (await statuses(runner, first))["fails"]) == ("completed", "skipped")
    await runner.undo_step(first.task_id, step="b")
    again = await runner.resume(first.task_id)
    assert (again.state, again.output) == ("completed", first.output)


async def test_an_undo_restores_the_steps_of_skipped_nodes(runner: Runner) -> None:
    nodes = (Node("a", name_of), Node("off", name_of, after="a", when=lambda ctx: False))
    agent = agent_of(*nodes).replace(limits=Limits(steps=3))
    first = await runner.run(agent, "go")
    await runner.undo_step(first.task_id, to=0)
    again = await runner.resume(first.task_id)
    assert (first.state, again.state, again.steps) == ("completed", "completed", 3)


async def test_the_first_step_of_several_that_may_begin_begins_alone(runner: Runner) -> None:
    ran: list[str] = []

    async def note(ctx: NodeContext) -> str:
        ran.append(ctx.name)
        await asyncio.sleep(0)
        return ctx.name

    task = await runner.create_task(agent_of(*[Node(name, note) for name in "abc"], output="b"), "go")
    for name in "abc":
        assert (await runner.run_step(task)).step.name == name
        assert ran == list("abc"[: len(ran)])
        assert ran[-1] == name


async def test_a_message_after_the_answer_runs_the_pipeline_again(runner: Runner) -> None:
    nodes = (Node("a", lambda ctx: len(ctx.step.messages)), Node("b", inputs_of, after="a"))
    task = await runner.create_task(agent_of(*nodes), "go")
    while not (await runner.run_step(task)).is_last:
        pass
    again = await runner.run_step(task, input="and more?")
    assert (again.step.name, again.step.step_id, again.output) == ("a", "s3", 3)
    result = await runner.resume(task)
    assert (result.state, result.output, result.steps) == ("completed", {"a": 3}, 4)


async def test_an_undo_after_a_message_does_not_restore_the_answer_before_it(
    runner: Runner,
) -> None:
    nodes = (Node("a", lambda ctx: len(ctx.step.messages)), Node("b", inputs_of, after="a"))
    task = await runner.create_task(agent_of(*nodes), "go")
    while not (await runner.run_step(task)).is_last:
        pass
    await runner.run_step(task, input="and more?")
    await runner.run_step(task)
    await runner.undo_step(task)
    result = await runner.resume(task)
    assert (result.state, result.output) == ("completed", {"a": 3})


async def test_stepping_streaming_and_running_give_one_journal(runner: Runner) -> None:
    agent = agent_of(
        Node("a", Ask("one of {input}")),
        Node("off", name_of, when=lambda ctx: False, after="a"),
        Node("b", add, input={"a": 1, "b": 2}, after="a"),
        Node("c", Ask("{a} {b}"), after=["a", "b"]),
        Node("d", name_of, after="off"),
        output="c",
    )
    one_at_a_time = RunOptions(max_parallel_steps=1)
    free = await runner.run(agent, "go", options=one_at_a_time)
    task = await runner.create_task(agent, "go", options=one_at_a_time)
    while not (await runner.run_step(task)).is_last:
        pass
    stepped = await runner.finalize(task)
    async with runner.run_stream(agent, "go", options=one_at_a_time) as stream:
        seen = [event async for event in stream]
    journals = [
        await journal_of(runner.store, task_id)
        for task_id in (free.task_id, stepped.task_id, stream.result.task_id)
    ]
    assert_same_journal(journals[0], journals[1])
    assert_same_journal(journals[0], journals[2])
    assert [event for event in seen if isinstance(event, Event)] == journals[2]
    texts: dict[str, str] = {}
    for event in seen:
        if isinstance(event, Delta):
            texts[event.step] = texts.get(event.step, "") + event.text
    assert texts == {"s1": "heard one of go", "s4": "heard heard one of go 3"}


async def test_limits_hold_across_nodes(runner: Runner) -> None:
    nodes = [Node(name, Ask(name)) for name in "abcd"]
    for limits, most in ((Limits(model_calls=2), 2), (Limits(steps=3), 3)):
        agent = agent_of(*nodes).replace(limits=limits)
        result = await runner.run(agent, "go")
        assert (result.state, result.usage.model_calls) == ("degraded", most)
    calls = [Node(name, add, input={"a": 1, "b": 1}) for name in "abcd"]
    result = await runner.run(agent_of(*calls).replace(limits=Limits(tool_calls=2)), "go")
    assert (result.state, [run.outcome for run in result.tool_executions].count("ok")) == ("degraded", 2)


# --------------------------------------------------------------------------------------------- refused


MODEL = ScriptedModel(["x"])
REFUSED: list[tuple[Callable[[], Any], str]] = [
    (lambda: Pipeline([]), "Pipeline takes a list of Node"),
    (lambda: Pipeline([Node("a", name_of), "b"]), "Pipeline takes a list of Node.* got 'b'"),  # type: ignore[list-item]
    (lambda: Pipeline([Node("a", name_of), Node("a", name_of)]), "two nodes are named 'a'"),
    (lambda: Pipeline([Node("a", name_of, after="b")]), "'a' follows 'b', and there is no such node"),
    (lambda: Pipeline([Node("a", name_of, after="a")]), "in a circle: a -> a"),
    (
        lambda: Pipeline(
            [Node("x", name_of), *[Node(n, name_of, after=[m, "x"]) for n, m in ("ab", "bc", "ca")]]
        ),
        "in a circle: . -> . -> . -> .$",
    ),
    (lambda: Pipeline([Node("a", name_of)], output="b"), "output names b"),
    (lambda: Pipeline([Node("a", name_of)], output=[]), "output names nothing"),
    (lambda: Pipeline([Node("a", name_of)], state=[1]), "state must be an object"),  # type: ignore[arg-type]
    (
        lambda: Pipeline([Node("a", name_of), Node("b", Ask("{a}"))]),
        r"'b' names \{a\}: add 'a' to its after=",
    ),
    (lambda: Pipeline([Node("a", Ask("{a"))]), "the template '{a'"),
    (lambda: Pipeline([Node("a", Ask("{a.b}"))]), "must be a name, or a name and keys"),
    (lambda: Pipeline([Node("b", name_of, after=["a"], join=2), Node("a", name_of)]), "of which 2 cannot"),
    (lambda: Node("a b", name_of), "a node's name must be"),
    (lambda: Node("input", name_of), "that is the task's input"),
    (lambda: Node("a", 3), "run must be a function of NodeContext"),  # type: ignore[arg-type]
    (lambda: Node("a", Pipeline), "run must be a function of NodeContext"),  # type: ignore[arg-type]
    (lambda: Node("a", name_of, when=True), "when must be a function"),  # type: ignore[arg-type]
    (lambda: Node("a", name_of, join="some"), "join must be"),  # type: ignore[arg-type]
    (lambda: Node("a", name_of, after=3), "after must be names of nodes"),  # type: ignore[arg-type]
    (lambda: Node("a", name_of, input=object()), "input must be JSON data"),  # type: ignore[arg-type]
    (lambda: Node("a", name_of, input=name_of), "input must be JSON data for a function"),
    (lambda: Node("a", add, input=3), "input must be the arguments of the tool 'add'"),
    (lambda: Node("a", Ask("go"), input=3), r"Ask\(...\) takes no input"),
    (lambda: Node("a", Ask(3)), "a prompt must be text or a function"),  # type: ignore[arg-type]
    (lambda: Node("a", Ask("go", rounds=-1)), "rounds must be a whole number"),
    (lambda: Node("a", Ask("go", tools="add")), "tools must be a list"),
    (lambda: Node("a", Ask("go", instructions=3)), "instructions must be text"),  # type: ignore[arg-type]
    (lambda: Node("a", name_of, retries=-1), "retries must be a whole number from 0 up"),
    (
        lambda: Node("a", tool(name="pay")(lambda: 1), retries=1),
        "'pay' may write, so a call starts at most",
    ),
    (
        lambda: agent_of(Node("a", "pay", retries=1), tools=[tool(name="pay")(lambda: 1)]),
        "'pay' may write, so a call starts at most",
    ),
    (lambda: agent_of(Node("a", "nothing")), "Agent 'agent': node 'a' calls the tool 'nothing'"),
    (lambda: agent_of(Node("a", Ask("go", tools=[add])), tools=[]), "calls the tool 'add', which the agent"),
    (lambda: agent_of(Node("a", tool(name="add")(lambda: 1))), "calls another tool 'add'"),
    (lambda: agent_of(Node("a", Agent(MODEL))), "has another model"),
    (lambda: Node("a", Agent(MODEL, output_type=int)), "has its own output_type"),
    (lambda: Node("a", Agent(MODEL, worker=React())), "has its own worker"),
    (lambda: Node("a", Agent(MODEL, limits=Limits(steps=1))), "has its own limits"),
    (
        lambda: Node("a", Agent(MODEL, model_settings=ModelSettings(max_tokens=1))),
        "has its own model_settings",
    ),
    (lambda: Node("a", Agent(MODEL, instructions=lambda ctx: "x")), "instructions as a function"),
]


@pytest.mark.parametrize(("make", "why"), REFUSED, ids=[why for _, why in REFUSED])
def test_a_pipeline_that_cannot_run_is_refused_when_it_is_made(make: Callable[[], Any], why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        make()


def test_another_graph_is_another_fingerprint() -> None:
    nodes = [Node("a", name_of), Node("b", Ask("say"))]
    others = [
        [Node("a", inputs_of), nodes[1]],
        [nodes[0], Node("b", Ask("tell"))],
        [nodes[0], Node("b", Ask("say"), after="a")],
        [nodes[0], Node("b", Ask("say"), optional=True)],
        [nodes[0], Node("b", Ask("say"), when=broken)],
        [nodes[0], Node("b", Ask("say", tools=[add]))],
        [Node("a", name_of, input=1), nodes[1]],
        [Node("a", name_of, update=True), nodes[1]],
        [Node("a", name_of, retries=1), nodes[1]],
    ]
    prints = [agent_of(*each).fingerprint for each in (nodes, *others)]
    assert len(set(prints)) == len(prints)
    assert agent_of(*nodes).fingerprint == prints[0]
    assert agent_of(*nodes, output="a").fingerprint not in prints
