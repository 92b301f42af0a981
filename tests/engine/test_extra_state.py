"""The state kept with a task: what calls, steps and instructions change in it, when, and who sees it."""

import asyncio
import copy
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cast import last
from tests.engine.function_workers import agent_of, planned, planning, sound
from tests.runner.gates import Gates
from treadle import (
    Agent,
    Happened,
    Limits,
    NextStep,
    Node,
    Pipeline,
    RequestContext,
    RunContext,
    Runner,
    RunOptions,
    RunResult,
    ScriptedModel,
    StepContext,
    StepResult,
    ToolContext,
    events,
    tool,
)
from treadle.core import events as core_events
from treadle.core.messages import ToolCall
from treadle.errors import ConfigurationError, StepFailed, TaskTooNew
from treadle.llm.scripted import Turn, call, text
from treadle.replay import record, replay
from treadle.replay.recording import journal_of

pytestmark = pytest.mark.anyio


@pytest.fixture
async def runner() -> AsyncIterator[Runner]:
    async with Runner("memory:") as runner:
        yield runner


@tool(read_only=True)
async def add(n: int, ctx: ToolContext) -> int:
    """Add to the sum."""
    ctx.state["sum"] = ctx.state.get("sum", 0) + n
    return ctx.state["sum"]


@tool(read_only=True)
async def note(what: str, ctx: ToolContext) -> list[str]:
    """Note something."""
    ctx.state.setdefault("notes", []).append(what)
    return ctx.state["notes"]


@tool(read_only=True)
async def forget(key: str, ctx: ToolContext) -> str:
    """Forget a key."""
    del ctx.state[key]
    return "forgotten"


def agent_with(*turns: Any, tools: Any = (add, note, forget), **options: Any) -> Agent[Any]:
    return Agent(ScriptedModel([*turns, text("Done.")]), name="keeper", tools=tools, **options)


async def state_of(runner: Runner, task: Any) -> Any:
    return (await runner.get_task(task)).extra_state


async def changes_of(runner: Runner, task_id: str) -> list[Any]:
    """Return the changes in a task's journal, in order, each with the id of its call or step."""
    journal = await journal_of(runner.store, task_id)
    found: list[Any] = []
    for event in journal:
        change = getattr(event, "changes", None)
        if change is not None:
            found.append((getattr(event, "call", getattr(event, "step", "")), change.values, change.removed))
    return found


def outputs(result: RunResult) -> list[Any]:
    return [call.output for call in result.tool_executions]


# ------------------------------------------------------------------------------------------- calls


async def test_a_call_sees_what_calls_before_it_changed(store: Any) -> None:
    agent = agent_with(call("add", n=1), call("note", what="a"), call("add", n=2), call("note", what="b"))
    async with Runner(store, agents=[agent]) as runner:
        result = await sound(runner, await runner.run(agent, "go", extra_state={"sum": 10, "kept": True}))
        assert outputs(result) == [11, ["a"], 13, ["a", "b"]]
        assert await changes_of(runner, result.task_id) == [
            ("s1-0", {"sum": 11}, ()),
            ("s2-0", {"notes": ["a"]}, ()),
            ("s3-0", {"sum": 13}, ()),
            ("s4-0", {"notes": ["a", "b"]}, ()),
        ]
    async with Runner(store, agents=[agent]) as runner:  # another process reads the same
        assert await state_of(runner, result.task_id) == {"sum": 13, "kept": True, "notes": ["a", "b"]}
        assert result.extra_state == (await runner.result(result.task_id)).extra_state
        assert result.extra_state == {"sum": 13, "kept": True, "notes": ["a", "b"]}


async def test_a_call_may_remove_a_key(runner: Runner) -> None:
    result = await runner.run(agent_with(call("forget", key="a")), "go", extra_state={"a": 1, "b": 2})
    assert await state_of(runner, result.task_id) == {"b": 2}
    assert await changes_of(runner, result.task_id) == [("s1-0", {}, ("a",))]


@pytest.mark.parametrize(("is_late", "outcome"), [(False, "error"), (True, "timeout")])
async def test_a_call_that_fails_or_takes_too_long_changes_nothing(
    runner: Runner, is_late: bool, outcome: str
) -> None:
    @tool(read_only=True, timeout=0.02)
    async def fail_late(ctx: ToolContext) -> None:
        """Fail."""
        ctx.state["sum"] = 99
        if is_late:
            await asyncio.sleep(60)
        raise RuntimeError("late")

    agent = agent_with(call("fail_late"), call("add", n=1), tools=[fail_late, add])
    result = await sound(runner, await runner.run(agent, "go", extra_state={"sum": 1}))
    assert [each.outcome for each in result.tool_executions] == [outcome, "ok"]
    assert await state_of(runner, result.task_id) == {"sum": 2}


async def test_a_value_that_is_no_json_fails_the_call_and_names_tool_and_key(runner: Runner) -> None:
    @tool(read_only=True)
    async def spoil(ctx: ToolContext) -> None:
        """Spoil the state."""
        ctx.state["sum"] = 99
        ctx.state["cart"] = {1, 2}

    result = await sound(runner, await runner.run(agent_with(call("spoil"), tools=[spoil]), "go"))
    [execution] = result.tool_executions
    assert execution.error is not None
    assert "tool 'spoil': ctx.state['cart'] must be JSON data" in execution.error.message
    assert await state_of(runner, result.task_id) is None


async def test_a_call_that_is_interrupted_changes_nothing_and_begins_again_from_what_it_read(
    store: Any,
) -> None:
    gates = Gates()

    @tool(read_only=True)
    async def wait(ctx: ToolContext) -> int:
        """Wait."""
        ctx.state["sum"] += 1
        if ctx.attempt == 1:
            await gates.pass_("wait")
        return ctx.state["sum"]

    agent = agent_with(call("wait"), tools=[wait])
    async with Runner(store, agents=[agent]) as runner:
        handle = await runner.start(agent, "go", extra_state={"sum": 1})
        await gates.until("wait begins")
        await handle.interrupt()
        assert await state_of(runner, handle.task_id) == {"sum": 1}
        result = await sound(runner, await runner.resume(handle.task_id))
        assert outputs(result) == [2]
        assert await state_of(runner, handle.task_id) == {"sum": 2}


async def test_each_attempt_of_a_call_begins_with_the_same_state(runner: Runner) -> None:
    """A call beside it ends between its attempts: what that changed is seen by calls that start after it only."""
    seen: list[dict[str, Any]] = []
    quick_ended = asyncio.Event()

    @tool(read_only=True, retries=2)
    async def flaky(ctx: ToolContext) -> str:
        """Fail twice."""
        seen.append(dict(ctx.state))
        ctx.state["tries"] = ctx.state.get("tries", 0) + 1
        await quick_ended.wait()
        await asyncio.sleep(0.01)
        if ctx.attempt < 3:
            raise RuntimeError("again")
        return "at last"

    @tool(read_only=True)
    async def quick(ctx: ToolContext) -> str:
        """End first."""
        ctx.state["quick"] = True
        quick_ended.set()
        return "quick"

    agent = agent_with(call("flaky") + call("quick"), tools=[flaky, quick])
    result = await sound(runner, await runner.run(agent, "go", extra_state={"a": 1}))
    assert [each.outcome for each in result.tool_executions] == ["ok", "ok"]
    assert seen == [{"a": 1}] * 3
    assert await state_of(runner, result.task_id) == {"a": 1, "quick": True, "tries": 1}


@pytest.mark.parametrize("slow", ["first", "second"])
async def test_of_parallel_calls_the_last_in_call_order_wins_and_an_event_says_so(
    store: Any, slow: str
) -> None:
    gates = Gates()

    @tool(read_only=True)
    async def put(name: str, ctx: ToolContext) -> str:
        """Put a value."""
        await gates.pass_(name)
        ctx.state["who"] = name
        ctx.state[name] = True
        return name

    agent = agent_with(
        call("put", name="first") + call("put", name="second"), call("add", n=1), tools=[put, add]
    )
    async with Runner(store, agents=[agent]) as runner:
        handle = await runner.start(agent, "go")
        await gates.let("first" if slow == "second" else "second")
        await gates.let(slow)
        result = await sound(runner, await handle.result())
        assert await state_of(runner, result.task_id) == {
            "who": "second",
            "first": True,
            "second": True,
            "sum": 1,
        }
        journal = await journal_of(runner.store, result.task_id)
        [told] = [event for event in journal if isinstance(event, events.StateOverwritten)]
        assert told == events.StateOverwritten("s1", "s1-1", "s1-0", ("who",))
        assert journal[told.seq - 2].kind == "tool_ended"


async def test_calls_that_run_one_after_the_other_overwrite_nothing(runner: Runner) -> None:
    agent = agent_with(Turn() + call("add", n=1) + call("add", n=2) + call("add", n=3))
    result = await runner.run(agent, "go", options=RunOptions(max_parallel_tools=1))
    assert outputs(result) == [1, 3, 6]
    assert "state_overwritten" not in [each.kind for each in await journal_of(runner.store, result.task_id)]


async def test_blocking_tools_and_generators_change_the_state_like_others(runner: Runner) -> None:
    @tool(read_only=True)
    def blocking(ctx: ToolContext) -> int:
        """Block."""
        time.sleep(0.001)
        ctx.state["n"] = ctx.state.get("n", 0) + 1
        return ctx.state["n"]

    @tool(read_only=True)
    def generator(ctx: ToolContext) -> Iterator[int]:
        """Yield."""
        for _ in range(3):
            ctx.state["n"] += 1
            yield ctx.state["n"]

    @tool(read_only=True)
    async def agenerator(ctx: ToolContext) -> AsyncIterator[int]:
        """Yield."""
        for _ in range(3):
            ctx.state["n"] += 1
            yield ctx.state["n"]

    agent = agent_with(
        call("blocking"), call("generator"), call("agenerator"), tools=[blocking, generator, agenerator]
    )
    result = await sound(runner, await runner.run(agent, "go"))
    assert outputs(result) == [1, 4, 7]
    assert [change for _, change, _ in await changes_of(runner, result.task_id)] == [
        {"n": 1},
        {"n": 4},
        {"n": 7},
    ]


@pytest.mark.parametrize("looks", [True, False])
async def test_what_is_written_after_the_end_of_its_call_is_refused(runner: Runner, looks: bool) -> None:
    states: list[Any] = []

    @tool(read_only=True)
    async def leave(ctx: ToolContext) -> str:
        """Leave the state to others."""
        if looks:
            len(ctx.state)
        states.append(ctx.state)
        return "left"

    result = await sound(runner, await runner.run(agent_with(call("leave"), tools=[leave]), "go"))
    with pytest.raises(TypeError, match=r"^tool 'leave': ctx\.state cannot be changed: it has ended$"):
        states[0]["late"] = True
    assert await state_of(runner, result.task_id) is None


async def test_the_journal_grows_by_what_changes_and_not_by_what_is_there(runner: Runner) -> None:
    sizes: list[int] = []
    for pages in (1, 2_000):
        agent = agent_with(*[call("add", n=1)] * 20)
        task = await runner.create_task(
            agent, "go", extra_state={f"page {page}": "x" * 100 for page in range(pages)}
        )
        before = sum(len(row.data) for row in await runner.store.read(task.task_id))
        await runner.resume(task)
        sizes.append(sum(len(row.data) for row in await runner.store.read(task.task_id)) - before)
    assert sizes[1] < sizes[0] * 1.1


# ---------------------------------------------------------------------------- undo, fork, children


async def test_an_undo_restores_the_state(store: Any) -> None:
    agent = agent_with(
        call("add", n=1), call("note", what="a") + call("add", n=5), call("forget", key="kept")
    )
    async with Runner(store, agents=[agent]) as runner:
        result = await runner.run(agent, "go", extra_state={"kept": 1})
        seen: list[Any] = [await state_of(runner, result.task_id)]
        for to in (2, 1, 0):
            await runner.undo_step(result.task_id, to=to)
            seen.append(await state_of(runner, result.task_id))
        assert seen == [
            {"sum": 6, "notes": ["a"]},
            {"kept": 1, "sum": 6, "notes": ["a"]},
            {"kept": 1, "sum": 1},
            {"kept": 1},
        ]
        again = await sound(runner, await runner.resume(result.task_id))
        assert again.state == "completed"
        assert await state_of(runner, result.task_id) == seen[0]


async def test_a_fork_has_the_state_of_its_point_and_goes_its_own_way(store: Any) -> None:
    agent = agent_with(call("add", n=1), call("add", n=2), call("add", n=4))
    async with Runner(store, agents=[agent]) as runner:
        result = await runner.run(agent, "go")
        fork = await runner.fork(result.task_id, at="s1")
        assert await state_of(runner, fork) == {"sum": 1}
        await runner.undo_step(result.task_id, to=0)
        assert await state_of(runner, result.task_id) is not None
        assert await state_of(runner, fork) == {"sum": 1}
        await sound(runner, await runner.resume(fork), ended=False)
        assert await state_of(runner, fork) == {"sum": 7}
        assert await state_of(runner, result.task_id) == {}


async def test_a_subagent_has_a_state_of_its_own(runner: Runner) -> None:
    child = Agent(ScriptedModel([call("add", n=5), text("Five.")]), name="helper", tools=[add])
    agent = agent_with(call("add", n=1), call("helper", input="go"), call("add", n=1), subagents=[child])
    result = await sound(runner, await runner.run(agent, "go", extra_state={"mine": 1}))
    [execution] = result.subagent_executions
    assert await state_of(runner, result.task_id) == {"mine": 1, "sum": 2}
    assert await state_of(runner, execution.task_id) == {"sum": 5}


async def test_undo_and_reconcile_read_the_state_as_it_is_and_cannot_change_it(runner: Runner) -> None:
    seen: list[Any] = []

    async def unbook(done: ToolCall, ctx: ToolContext) -> None:
        seen.append(dict(ctx.state))
        with pytest.raises(TypeError, match=r"undo= of tool .book.: ctx\.state cannot be changed"):
            ctx.state["n"] = 5

    @tool(undo=unbook)
    async def book(ctx: ToolContext) -> str:
        """Book."""
        ctx.state["booked"] = 7
        return "booked"

    agent = agent_with(call("book"), call("add", n=1), tools=[book, add])
    result = await runner.run(agent, "go", extra_state={"a": 1})
    report = await runner.undo_step(result.task_id, to=0)
    assert [each.verdict for each in report.calls] == ["nothing_to_compensate", "compensated"]
    assert seen == [{"a": 1, "booked": 7, "sum": 1}]
    assert await state_of(runner, result.task_id) == {"a": 1}


async def test_a_lost_call_that_is_found_to_have_happened_changed_nothing(runner: Runner) -> None:
    seen: list[Any] = []
    entered = asyncio.Event()

    async def find(lost: ToolCall, ctx: ToolContext) -> Happened:
        seen.append(dict(ctx.state))
        return Happened("paid")

    @tool(reconcile=find)
    async def pay(ctx: ToolContext) -> str:
        """Pay."""
        ctx.state["paid"] = True
        entered.set()
        await asyncio.sleep(60)
        return "paid"

    agent = agent_with(call("pay"), tools=[pay])
    handle = await runner.start(agent, "go", extra_state={"a": 1})
    await entered.wait()
    await handle.interrupt()
    result = await sound(runner, await runner.resume(handle.task_id))
    assert ([each.output for each in result.tool_executions], seen) == (["paid"], [{"a": 1}])
    assert await state_of(runner, result.task_id) == {"a": 1}


async def test_the_state_may_be_returned_copied_and_not_replaced(runner: Runner) -> None:
    @tool(read_only=True)
    async def handle(ctx: ToolContext) -> Any:
        """Handle the state like a dict."""
        for made in (copy.copy(ctx.state), copy.deepcopy(ctx.state), ctx.state.copy(), dict(ctx.state)):  # type: ignore[attr-defined]
            assert type(made) is dict
            made["n"] = 5
        ctx.state.copy()["list"].append(1)  # type: ignore[attr-defined]
        with pytest.raises(AttributeError, match="state"):
            ctx.state = {"n": 5}  # type: ignore[misc]
        return ctx.state

    result = await sound(
        runner, await runner.run(agent_with(call("handle"), tools=[handle]), "go", extra_state={"list": []})
    )
    assert outputs(result) == [{"list": []}]
    assert await changes_of(runner, result.task_id) == []


async def test_calls_that_change_the_state_each_time_go_in_no_circles(runner: Runner) -> None:
    @tool(read_only=True)
    async def turn_page(ctx: ToolContext) -> str:
        """Turn the page."""
        ctx.state["page"] = ctx.state.get("page", 0) + 1
        return "turned"

    agent = agent_with(*[call("turn_page")] * 9, tools=[turn_page])
    result = await sound(runner, await runner.run(agent, "go", options=RunOptions(limits=Limits(repeats=3))))
    assert (result.state, await state_of(runner, result.task_id)) == ("completed", {"page": 9})


# ------------------------------------------------------------------------------------- step functions


async def test_what_a_step_changes_is_stored_with_its_end_and_seen_by_steps_after_it(store: Any) -> None:
    async def worker(ctx: StepContext) -> StepResult:
        ctx.state["steps"] = [*ctx.state.get("steps", []), ctx.name]
        if ctx.name == "start":
            return planned(NextStep("end"))
        return last(ctx.state["steps"])

    async with Runner(store) as runner:
        result = await sound(runner, await runner.run(agent_of(worker), "go"))
        assert result.output == ["start", "end"]
        assert await state_of(runner, result.task_id) == {"steps": ["start", "end"]}
        assert len(await changes_of(runner, result.task_id)) == 2


async def test_a_step_that_fails_or_skips_itself_changes_nothing(runner: Runner) -> None:
    async def worker(ctx: StepContext) -> StepResult:
        ctx.state[ctx.name] = ctx.attempt
        if ctx.name == "start":
            return planned(NextStep("skips"), NextStep("fails", after=("skips",), join="optional"))
        if ctx.name == "skips":
            return StepResult(skipped="no need")
        if ctx.attempt == 1:
            raise RuntimeError("first")
        return last(dict(ctx.state))

    agent = agent_of(worker)
    task = await runner.create_task(agent, "go")
    await runner.run_step(task)
    await runner.run_step(task)
    with pytest.raises(StepFailed):
        await runner.run_step(task)
    assert await state_of(runner, task) == {"start": 1}
    result = await sound(runner, await runner.resume(task))
    assert result.output == {"start": 1, "fails": 2}


async def test_a_step_may_return_its_state_and_not_replace_it(runner: Runner) -> None:
    async def worker(ctx: StepContext) -> StepResult:
        with pytest.raises(AttributeError, match="state"):
            ctx.state = {"n": 1}  # type: ignore[misc]
        ctx.state["n"] = 2
        return StepResult(ctx.state, is_last=True)

    result = await sound(runner, await runner.run(agent_of(worker), "go"))
    assert result.output == {"n": 2} == await state_of(runner, result.task_id)


async def test_a_value_that_is_no_json_fails_the_step_and_names_it(runner: Runner) -> None:
    async def worker(ctx: StepContext) -> StepResult:
        ctx.state["when"] = object()
        return last("x")

    result = await runner.run(agent_of(worker), "go")
    assert result.error is not None
    assert "step 'start': ctx.state['when'] must be JSON data" in result.error.message


async def test_a_function_sees_what_its_calls_changed_in_the_same_way_each_time_it_is_entered(
    runner: Runner,
) -> None:
    """Its requests are made of what it read: if it read otherwise the second time, they would be made twice."""
    entries: list[list[Any]] = []
    entered = asyncio.Event()

    async def worker(ctx: StepContext) -> StepResult:
        entries.append(seen := [])
        for _ in range(3):
            seen.append(ctx.state.get("sum", 0))
            await ctx.call_tool("add", {"n": ctx.state.get("sum", 0) + 1})
        ctx.state["sum"] += 100
        seen.append(ctx.state["sum"])
        if len(entries) == 1:
            entered.set()
            await asyncio.sleep(60)
        return last(seen)

    agent = agent_of(worker, add)
    handle = await runner.start(agent, "go")
    await entered.wait()
    await handle.interrupt()
    assert await state_of(runner, handle.task_id) == {"sum": 7}
    result = await sound(runner, await runner.resume(handle.task_id, agent=agent))
    assert entries == [[0, 1, 3, 107], [0, 1, 3, 107]]
    assert len(result.tool_executions) == 3, "no call was made twice"
    assert await state_of(runner, handle.task_id) == {"sum": 107}


async def test_steps_beside_each_other_see_nothing_of_each_other_and_the_later_in_the_plan_wins(
    runner: Runner,
) -> None:
    gates = Gates()

    @planning(NextStep("a"), NextStep("b"), NextStep("end", after=("a", "b")))
    async def worker(ctx: StepContext) -> StepResult:
        if ctx.name == "end":
            return last(dict(ctx.state))
        await gates.pass_(ctx.name)
        assert "who" not in ctx.state
        ctx.state["who"] = ctx.name
        ctx.state[ctx.name] = 1
        return StepResult(ctx.name)

    agent = agent_of(worker)
    handle = await runner.start(agent, "go")
    await gates.let("b")
    await gates.let("a")
    result = await sound(runner, await handle.result())
    assert result.output == {"who": "b", "a": 1, "b": 1}
    journal = await journal_of(runner.store, result.task_id)
    [told] = [event for event in journal if isinstance(event, events.StateOverwritten)]
    ids = {each.step.name: each.step.step_id for each in await runner.get_completed_steps(result.task_id)}
    assert (told.kept, told.lost, told.keys) == (ids["b"], ids["a"], ("who",))


async def test_an_undone_step_takes_its_changes_back_and_leaves_those_of_steps_beside_it(
    runner: Runner,
) -> None:
    @planning(NextStep("a"), NextStep("b"), NextStep("end", after=("a", "b")))
    async def worker(ctx: StepContext) -> StepResult:
        if ctx.name == "end":
            return last(dict(ctx.state))
        await ctx.call_tool("note", {"what": ctx.name})
        ctx.state[ctx.name] = ctx.state.get(ctx.name, 0) + 1
        return StepResult(ctx.name)

    agent = agent_of(worker, note)
    result = await runner.run(agent, "go", options=RunOptions(max_parallel_steps=1))
    assert result.output == {"notes": ["a", "b"], "a": 1, "b": 1}
    steps = {each.step.name: each.step.step_id for each in await runner.get_completed_steps(result.task_id)}
    await runner.undo_step(result.task_id, step=steps["b"])
    assert await state_of(runner, result.task_id) == {"notes": ["a"], "a": 1}
    again = await sound(runner, await runner.resume(result.task_id, agent=agent))
    assert again.output == {"notes": ["a", "b"], "a": 1, "b": 1}


async def test_nodes_of_a_pipeline_see_the_state_as_it_is_when_they_begin(runner: Runner) -> None:
    def first(ctx: Any) -> str:
        for change in (lambda: ctx.state.update(n=9), lambda: ctx.state.__setitem__("n", 9), ctx.state.clear):
            with pytest.raises(
                TypeError, match=r"a node cannot change ctx\.state: set ctx\.step\.state\[key\]"
            ):
                change()
        ctx.step.state["n"] = ctx.state["n"] + 1
        return "first"

    def second(ctx: Any) -> Any:
        return [ctx.state["n"], ctx.state["own"], len(ctx.state)]

    worker = Pipeline([Node("one", first), Node("two", second, after="one")], state={"n": 0, "own": True})
    agent = Agent(ScriptedModel([]), name="line", worker=worker)
    result = await sound(runner, await runner.run(agent, "go", extra_state={"n": 5}))
    assert result.output == [6, True, 2]
    assert await state_of(runner, result.task_id) == {"n": 6}


# ------------------------------------------------------------------------ instructions and the others


async def test_instructions_read_the_state_and_change_it(store: Any) -> None:
    def instructions(ctx: RunContext[Any]) -> str:
        ctx.state["greeted"] = ctx.state.get("greeted", 0) + 1
        return f"You serve {ctx.state['user']}."

    model = ScriptedModel([call("add", n=1), text("Done.")])
    agent = Agent(model, name="keeper", tools=[add], instructions=instructions)
    async with Runner(store, agents=[agent]) as runner:
        result = await sound(runner, await runner.run(agent, "go", extra_state={"user": "Ada"}))
        assert model.requests[0].instructions == "You serve Ada."
        assert await state_of(runner, result.task_id) == {"user": "Ada", "greeted": 1, "sum": 1}
        await runner.undo_step(result.task_id, to=0)
        assert await state_of(runner, result.task_id) == {"user": "Ada", "greeted": 1}


async def test_the_choice_of_tools_reads_the_state_and_cannot_change_it(runner: Runner) -> None:
    def offer(ctx: RequestContext[Any]) -> list[str]:
        with pytest.raises(TypeError, match="cannot be changed"):
            ctx.state["n"] = 1
        return ["add"] if ctx.state.get("sum", 0) < 2 else []

    agent = agent_with(call("add", n=1), call("add", n=1), offer=offer)
    result = await sound(runner, await runner.run(agent, "go"))
    requests = agent.model.requests  # type: ignore[union-attr]
    assert [[each.name for each in request.tools] for request in requests] == [["add"], ["add"], []]
    assert await state_of(runner, result.task_id) == {"sum": 2}


async def test_a_workers_first_and_last_look_read_the_state_and_cannot_change_it(runner: Runner) -> None:
    seen: list[Any] = []

    class Worker:
        async def initialize_step(self, task: RunContext[Any]) -> NextStep:
            seen.append(dict(task.state))
            with pytest.raises(TypeError, match="cannot be changed"):
                task.state["n"] = 1
            return NextStep("only")

        async def run_step(self, ctx: StepContext) -> StepResult:
            ctx.state["n"] = 2
            return last("x")

        async def finalize_task(self, task: RunContext[Any], output: Any) -> Any:
            seen.append(dict(task.state))
            return None

    await sound(runner, await runner.run(agent_of(Worker()), "go", extra_state={"n": 1}))
    assert seen == [{"n": 1}, {"n": 2}]


# ------------------------------------------------------------------------------- what a task begins with


async def test_every_verb_that_makes_a_task_takes_what_it_begins_with(tmp_path: Path) -> None:
    agent = agent_with(call("add", n=1))
    begun: Any = {"sum": 1, "list": [1]}
    async with Runner(tmp_path / "journal.db", agents=[agent]) as runner:
        ids = [(await runner.run(agent, "go", extra_state=begun)).task_id]
        ids.append((await (await runner.start(agent, "go", extra_state=begun)).result()).task_id)
        async with runner.run_stream(agent, "go", extra_state=begun) as stream:
            async for _ in stream:
                pass
        ids.append(stream.result.task_id)
        task = await runner.create_task(agent, "go", extra_state=begun)
        ids.append((await runner.resume(task)).task_id)
        begun["list"].append(2)
        assert [await state_of(runner, each) for each in ids] == [{"sum": 2, "list": [1]}] * len(ids)


async def test_a_runners_state_is_what_every_task_begins_with_under_its_own(tmp_path: Path) -> None:
    child = Agent(ScriptedModel([call("add", n=5), text("Five.")]), name="helper", tools=[add])
    agent = agent_with(call("helper", input="go"), call("add", n=1), subagents=[child])
    default: Any = {"sum": 10, "plan": "free", "list": []}
    async with Runner(tmp_path / "journal.db", agents=[agent], extra_state=default) as runner:
        default["list"].append(1)
        result = await runner.run(agent, "go", extra_state={"plan": "paid"})
        assert await state_of(runner, result.task_id) == {"sum": 11, "plan": "paid", "list": []}
        [execution] = result.subagent_executions
        assert await state_of(runner, execution.task_id) == {"sum": 15, "plan": "free", "list": []}


async def test_a_known_task_keeps_what_it_has(runner: Runner) -> None:
    agent = agent_with(call("add", n=1))
    await runner.run(agent, "go", task_id="t", extra_state={"sum": 1})
    await runner.run(agent, "go", task_id="t", extra_state={"sum": 50})
    assert await state_of(runner, "t") == {"sum": 2}


@pytest.mark.parametrize("value", [[1], 3, "text", {1: 2}, {"a": {1}}])
async def test_what_a_task_begins_with_must_be_an_object_of_json_data(runner: Runner, value: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"run: extra_state must be .*JSON"):
        await runner.run(agent_with(), "go", extra_state=value)
    with pytest.raises(ConfigurationError, match=r"Runner: extra_state must be .*JSON"):
        Runner("memory:", extra_state=value)


# ----------------------------------------------------------------------------------- carried and replayed


@pytest.fixture
def without_frame_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks as older versions made them: their creation alone needs no newer driver."""
    monkeypatch.setattr("treadle.drivers.new_task.new_frame_key", str)


@pytest.mark.usefixtures("without_frame_keys")
async def test_an_export_carries_the_changes_and_a_copy_goes_on_from_them(tmp_path: Path) -> None:
    agent = agent_with(call("add", n=1), call("note", what="a"), call("add", n=2))
    async with Runner(tmp_path / "one.db", agents=[agent]) as runner:
        task = await runner.create_task(agent, "go", extra_state={"sum": 1}, task_id="t")
        await runner.run_step(task)
        await runner.run_step(task)
        await runner.export_tasks(tmp_path / "export.jsonl", "t")
    async with Runner(tmp_path / "two.db", agents=[agent]) as runner:
        await runner.import_tasks(tmp_path / "export.jsonl")
        assert (await runner.verify()).findings == ()
        assert await state_of(runner, "t") == {"sum": 2, "notes": ["a"]}
        assert (await runner.store.row("t")).format == 3
        await sound(runner, await runner.resume("t"))
        assert await state_of(runner, "t") == {"sum": 4, "notes": ["a"]}


@pytest.mark.usefixtures("without_frame_keys")
async def test_a_task_whose_calls_change_nothing_needs_no_newer_driver(runner: Runner) -> None:
    @tool(read_only=True)
    async def look(ctx: ToolContext) -> list[str]:
        """Look at the state."""
        return list(ctx.state)

    agent = agent_with(call("look"), tools=[look])
    result = await runner.run(agent, "go", extra_state={"a": 1})
    assert outputs(result) == [["a"]]
    assert (await runner.store.row(result.task_id)).format == 1


@pytest.mark.usefixtures("without_frame_keys")
async def test_a_driver_that_cannot_apply_a_change_leaves_the_task_alone(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = agent_with(call("add", n=1), call("add", n=2))
    async with Runner(store, agents=[agent]) as runner:
        task = await runner.create_task(agent, "go")
        await runner.run_step(task)
    with monkeypatch.context() as older:
        older.setattr(core_events, "JOURNAL_FORMAT", 2)
        async with Runner(store, agents=[agent]) as runner:
            for verb in (runner.resume, runner.run_step, runner.fork):
                with pytest.raises(
                    TaskTooNew, match="Driving it needs journal format 3; this version knows format 2"
                ):
                    await verb(task)
    async with Runner(store, agents=[agent]) as runner:
        assert (await runner.resume(task)).extra_state == {"sum": 3}


async def test_a_replay_repeats_the_changes_and_names_those_that_differ(runner: Runner) -> None:
    def keeper(step: int) -> Agent[Any]:
        @tool(read_only=True, name="add")
        async def add_more(n: int, ctx: ToolContext) -> str:
            """Add to the sum."""
            ctx.state["sum"] = ctx.state.get("sum", 0) + n * step
            return "added"

        return agent_with(call("add", n=1), call("add", n=2), tools=[add_more])

    agent = keeper(1)
    result = await runner.run(agent, "go", extra_state={"sum": 1})
    recording = await record(runner, result.task_id, agent)
    assert (await replay(recording, agent)).drifts == ()
    assert (await replay(recording, agent, run_tools=True)).drifts == ()
    drifts = (await replay(recording, keeper(10), run_tools=True)).drifts
    assert [(drift.kind, drift.what) for drift in drifts] == [
        ("result", "the changes of add(n=1) in the state"),
        ("result", "the changes of add(n=2) in the state"),
    ]
    assert drifts[0].recorded == {"values": {"sum": 2}, "removed": []}
    assert drifts[0].now == {"values": {"sum": 11}, "removed": []}
