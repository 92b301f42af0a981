"""The promises of every worker, for every protocol of its model. Another worker is one more line in `WORKERS`."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from tests.cast import InThreeParts
from tests.property.mortal import MortalStore, next_life
from tests.runner.acts import assert_well_formed
from treadle import (
    Agent,
    Guardrail,
    GuardrailRequest,
    Limits,
    NextLayer,
    NextStep,
    Node,
    NodeContext,
    Pipeline,
    Rewrite,
    Runner,
    RunOptions,
    RunResult,
    ScriptedModel,
    StepContext,
    StepResult,
    ToolContext,
    ToolInvocation,
    ToolOutput,
    Usage,
    tool,
)
from treadle.agents.context import RequestContext
from treadle.agents.workers.plan_refine import WORKING
from treadle.core.events import Delta, Event
from treadle.core.messages import Message
from treadle.core.model import ModelRequest
from treadle.core.tools import EffectClass
from treadle.errors import StoreError, TreadleError
from treadle.llm.scripted import Turn, call, text, turn
from treadle.replay import record, replay
from treadle.replay.recording import assert_same_journal, journal_of
from treadle.stores.memory import MemoryStore
from treadle.testing.audit import Evidence, LedgerEntry, audit_store

pytestmark = pytest.mark.anyio


@dataclass(frozen=True)
class Way:
    """A worker, and how a model writes a call and an answer for it."""

    worker: Any
    calls: Callable[[str, dict[str, Any]], Turn]
    answers: Callable[[str], Turn]
    offer: Any = None
    own: bool = False
    """whether its steps are functions: what it makes of a limit or of a tool's flags is its own affair"""

    says: Callable[[ModelRequest], Turn] | None = None
    """what the model says, if it is not asked once in each step and in the conversation"""

    steps: int = 7
    asks: int = 7
    """how often the model is asked"""

    @property
    def talks(self) -> bool:
        """Return whether calls and their results are in the conversation."""
        return self.says is None


async def one_turn(ctx: StepContext) -> StepResult:
    answer = await ctx.call_model()
    if not answer.message.tool_calls:
        return StepResult(answer.message.text, is_last=True)
    await ctx.call_tools(answer)
    return StepResult(next_steps=[NextStep("turn", ctx.index)])


async def a_node(ctx: NodeContext) -> Any:
    answer = await ctx.step.call_model()
    await ctx.step.call_tools(answer)
    return answer.message.text


IN_A_ROW = Pipeline([Node(f"n{i}", a_node, after=[f"n{i - 1}"] if i else ()) for i in range(7)])
"""The plan's six turns and the answer, each a node."""


def in_react(name: str, arguments: dict[str, Any]) -> Turn:
    return text(f"Thought: I want {name}.\nAction: {name}\nAction Input: {json.dumps(arguments)}", chunk=5)


def in_json(name: str, arguments: dict[str, Any]) -> Turn:
    call = {"thought": f"I want {name}.", "name": name, "arguments": arguments}
    return text(json.dumps(call), chunk=5)


def as_planned(ctx: RequestContext[Any]) -> list[Any]:
    """What the plan wants in each step, and nothing else."""
    return [tool for tool in ctx.tools if tool.spec.name == dict(enumerate(PLAN, 1)).get(ctx.step, ("",))[0]]


def plans_one_sub_task(request: ModelRequest) -> Turn:
    """Return the turns of a plan with one sub-task that does all the work, and then the answer."""
    if request.instructions.startswith(WORKING):
        done = sum(message.role == "tool" for message in request.messages)
        return in_calls(*PLAN[done]) if done < len(PLAN) else text("It is done.")
    if "Plan 1 has run" in str(request.messages):
        return text(json.dumps({"thought": "So it is.", "answer": ANSWER}))
    sub_task = {"id": "do", "task": "Do it all.", "after": []}
    return text(json.dumps({"thought": "I plan.", "sub_tasks": [sub_task]}))


def in_calls(name: str, arguments: dict[str, Any]) -> Turn:
    return call(name, **arguments)


WORKERS = {
    "function_calling": Way("function_calling", in_calls, text),
    "offering": Way("function_calling", in_calls, text, as_planned),
    "react": Way("react", in_react, lambda content: text(f"Thought: Done.\nAnswer: {content}", chunk=5)),
    "planner": Way("planner", in_json, lambda content: in_json("finish", {"answer": content})),
    "function": Way(one_turn, in_calls, text, own=True),
    "pipeline": Way(IN_A_ROW, in_calls, text, own=True),
    "own class": Way(InThreeParts(one_turn), in_calls, text, own=True),
    "plan_refine": Way("plan_refine", in_calls, text, None, True, plans_one_sub_task, 3, 9),
}
USAGE = Usage(100, 7, cached_tokens=30, reasoning_tokens=2)
LAST_WORDS = "I know no more."
ANSWER = "All is done, as you wished."
PLAN = (
    ("look", {"n": 1}),
    ("book", {"n": 2}),
    ("missing", {"n": 3}),
    ("look", {"n": "x"}),
    ("break_", {}),
    ("look", {"n": 6}),
)
"""What the model asks for: of its six calls one is of no tool, one has wrong arguments, and one fails."""

PROTOCOL = ("Thought:", "Action", "Answer:", "Observation", '"name"', '"arguments"', "finish")


@dataclass
class World:
    """A model that follows the plan, tools that take down what they do, and the process they live in."""

    way: Way
    ledger: list[LedgerEntry] = field(default_factory=list)
    life: MortalStore | None = None
    dies_at: int | None = None
    """how many times code outside the engine is reached before the process dies in it"""

    reached: int = 0
    store: MemoryStore | None = None
    """where its task is at the end, if it lived through the deaths of processes"""

    asked: list[ModelRequest] = field(default_factory=list)
    agent: Agent[Any] = field(init=False)

    def __post_init__(self) -> None:
        tools = list(self.tools())
        model = ScriptedModel(self.says)
        self.agent = Agent(
            model, tools=tools, worker=self.way.worker, offer=self.way.offer, instructions="Be brief."
        )

    async def reach(self) -> None:
        self.reached += 1
        if self.reached - 1 == self.dies_at and self.life is not None:
            self.life.die()
            await asyncio.sleep(0)

    async def says(self, request: ModelRequest) -> Turn:
        self.asked.append(request)
        await self.reach()
        if self.way.says is not None:
            said = self.way.says(request)
        elif request.tool_choice == "none" or "no tool may be used any more" in request.instructions:
            said = self.way.answers(LAST_WORDS)
        elif request.turn < len(PLAN):
            said = self.way.calls(*PLAN[request.turn])
        else:
            said = self.way.answers(ANSWER)
        return turn() + said + Turn(usage=USAGE)

    async def act(self, ctx: ToolContext, effect: EffectClass, said: str) -> str:
        self.ledger.append(LedgerEntry(ctx.call_id, ctx.idempotency_key, effect, "start", ctx.task_id))
        await self.reach()
        self.ledger.append(LedgerEntry(ctx.call_id, ctx.idempotency_key, effect, "done", ctx.task_id))
        return said

    def tools(self) -> Iterator[Any]:
        async def unbook(booked: Any, ctx: ToolContext) -> None:
            await self.act(ctx, "write", "unbooked")

        @tool(read_only=True)
        async def look(n: int, ctx: ToolContext) -> str:
            """Look."""
            return await self.act(ctx, "read", f"seen {n}")

        @tool(undo=unbook)
        async def book(n: int, ctx: ToolContext) -> str:
            """Book."""
            return await self.act(ctx, "write", f"booked {n}")

        @tool(read_only=True)
        async def break_() -> str:
            """Break."""
            raise RuntimeError("broken")

        yield from (look, book, break_)

    def outcomes(self, result: RunResult) -> list[tuple[str, str]]:
        return [(run.name, run.outcome) for run in result.tool_executions]


@pytest.fixture(params=WORKERS)
def world(request: pytest.FixtureRequest) -> World:
    return World(WORKERS[request.param])


@pytest.fixture
async def runner() -> AsyncIterator[Runner]:
    async with Runner("memory:", options=RunOptions(on_unknown_outcome="tell_model")) as runner:
        yield runner


async def audited(
    world: World, runner: Runner, result: RunResult | None = None, *, ended: bool = True
) -> None:
    """Nothing of what the auditor knows to look for is wrong, and no provider would refuse the history."""
    requests: dict[str, list[Any]] = {}
    for request in world.asked:
        requests.setdefault(request.task_id, []).append(list(request.messages))
    evidence = Evidence(ledger=world.ledger, requests=requests, ended=ended)
    assert await audit_store(runner.store, evidence) == []
    if result is not None:
        assert_well_formed(result.messages)


OUTCOMES = [
    ("look", "ok"),
    ("book", "ok"),
    ("missing", "invalid"),
    ("look", "invalid"),
    ("break_", "error"),
    ("look", "ok"),
]


async def test_a_free_run_does_what_the_model_says_with_its_answer_at_the_last_step(world: World) -> None:
    names: list[str] = []

    async def notes(call: ToolInvocation, next: NextLayer) -> ToolOutput:
        names.append(call.name)
        call.note("seen", len(names))
        return await next(call)

    way, options = world.way, RunOptions(limits=Limits(steps=world.way.steps))
    async with Runner("memory:", middleware=[notes]) as runner:
        result = await runner.run(world.agent, "go", options=options)
        await audited(world, runner, result)
    assert (result.state, result.final_text, result.output) == ("completed", ANSWER, ANSWER)
    assert (result.error, result.degraded_reasons, result.steps) == (None, (), way.steps)
    assert world.outcomes(result) == OUTCOMES
    assert names == [name for name, outcome in OUTCOMES if outcome != "invalid"]
    said = str([request.messages for request in world.asked])
    assert "Did you mean" in said or "There is no tool 'missing'" in said
    assert "RuntimeError: broken" in said
    used = result.usage
    assert (used.input_tokens, used.output_tokens) == (way.asks * 100, way.asks * 7)
    assert (used.cached_tokens, used.reasoning_tokens) == (way.asks * 30, way.asks * 2)
    assert (used.model_calls, used.tool_calls) == (way.asks, 6)


async def test_nothing_passes_a_worker_that_guardrails_rewrite(world: World) -> None:
    """Neither the model nor a watcher reads what has not passed, and the answer is what guardrails made of it."""

    async def other(request: GuardrailRequest) -> Rewrite | None:
        said = request.text.replace("wished", "asked").replace("seen", "looked up").replace("Go", "Start")
        return Rewrite(said) if said != request.text else None

    guardrail = Guardrail(other, on=["input", "output", "result"], blocking=True)
    async with Runner("memory:", guardrails=[guardrail]) as runner:
        async with runner.run_stream(world.agent, "Go.") as stream:
            shown = [event async for event in stream]
        result = stream.result
        assert (result.state, "as you asked" in result.final_text) == ("completed", True)
        await audited(world, runner, result)
    texts = "".join([event.text for event in shown if event.kind == "delta"])
    assert "wished" not in texts + repr([event for event in shown if event.kind != "guardrail_judged"])
    asked = repr([list(request.messages) for request in world.asked])
    assert "seen" not in asked
    assert "Go." not in asked


async def test_stepping_and_streaming_give_the_journal_of_the_free_run(world: World, runner: Runner) -> None:
    free = await runner.run(world.agent, "go")
    journal = await journal_of(runner.store, free.task_id)
    task = await runner.create_task(world.agent, "go")
    steps = 1
    while not (await runner.run_step(task)).is_last:
        steps += 1
    stepped = await runner.finalize(task)
    assert steps == world.way.steps
    async with runner.run_stream(world.agent, "go") as stream:
        seen = [event async for event in stream]
    for other in (stepped, stream.result):
        assert (other.final_text, other.messages, other.usage) == (free.final_text, free.messages, free.usage)
        assert_same_journal(journal, await journal_of(runner.store, other.task_id))
    assert [event for event in seen if isinstance(event, Event)] == await journal_of(
        runner.store, stream.task_id
    )
    if not world.way.talks:
        return
    content = [delta for delta in seen if isinstance(delta, Delta) and delta.is_text]
    assert "".join(delta.text for delta in content) == ANSWER
    assert all(mark not in delta.text for delta in content for mark in PROTOCOL), "no marker of a protocol"


async def drive(world: World, store: Any, task_id: str) -> RunResult | None:
    """Begin or resume the task in one process; return None if the process crashes."""
    with suppress(StoreError):
        async with Runner(
            store, options=RunOptions(on_unknown_outcome="tell_model"), agents=[world.agent]
        ) as runner:
            return await runner.run(world.agent, "go", task_id=task_id)
    return None


async def lived_through(
    way: Way, mortal: Callable[[World, MortalStore], None]
) -> tuple[World, RunResult | None, RunResult]:
    """Begin a task in a process that crashes at the named point, end it in another one, and audit the store."""
    world = World(way)
    life = MortalStore(MemoryStore())
    await life.real.open()
    world.life = life
    mortal(world, life)
    first = await drive(world, life, "t1")
    second = await next_life(life, None)
    world.life = world.dies_at = None
    result = await drive(world, second, "t1")
    assert result is not None
    world.store = second.real
    async with Runner(second.real) as reader:
        await audited(world, reader, result)
    return world, first, result


@pytest.mark.parametrize("way", WORKERS.values(), ids=WORKERS)
async def test_a_recorded_task_goes_as_it_went_also_one_that_lived_in_two_processes(way: Way) -> None:
    def dies_in_a_call(world: World, life: MortalStore) -> None:
        world.dies_at = 5

    async def replayed(world: World, store: Any, result: RunResult) -> None:
        done = len(world.ledger), len(world.asked)
        async with Runner(store) as reader:
            recording = await record(reader, result.task_id, world.agent)
        report = await replay(recording, world.agent)
        assert (report.drifts, report.steps) == ((), way.steps)
        assert (len(world.ledger), len(world.asked)) == done

    free, store = World(way), MemoryStore()
    async with Runner(store, agents=[free.agent]) as runner:
        result = await runner.run(free.agent, "go")
        await replayed(free, runner.store, result)
    crashed, _, result = await lived_through(way, dies_in_a_call)
    assert result.state == "completed"
    assert crashed.store is not None
    await replayed(crashed, crashed.store, result)


SHARE_THEIR_DECIDER: Final = ("offering", "own class", "planner")
"""Workers whose decider and journal are those of another worker: the slow matrices run them in `make full`."""

MATRIX: Final = [
    pytest.param(way, id=name, marks=pytest.mark.full if name in SHARE_THEIR_DECIDER else ())
    for name, way in WORKERS.items()
]


each_third_place = pytest.mark.parametrize(
    "stride", [pytest.param(3, id="each third"), pytest.param(1, marks=pytest.mark.full, id="each")]
)


@pytest.mark.sampled(2)
@each_third_place
@pytest.mark.parametrize("way", MATRIX)
async def test_a_crash_at_any_commit_and_in_any_call_leaves_a_task_that_ends_as_it_would(
    way: Way, stride: int
) -> None:
    whole, _, plain = await lived_through(way, lambda world, life: None)
    deaths = 0
    for at in range(0, whole.reached, stride):
        _, first, result = await lived_through(way, lambda world, _, at=at: setattr(world, "dies_at", at))
        assert (first, result.state, result.final_text) == (None, "completed", ANSWER)
        deaths += 1
    for after_writing in (False, True):
        at, first = 0, None
        while first is None:

            def mortal(world: World, life: MortalStore, at: int = at, after: bool = after_writing) -> None:
                life.commits_left, life.dies_after_writing = at, after

            world, first, result = await lived_through(way, mortal)
            assert (result.state, result.final_text) == ("completed", ANSWER)
            starts = [
                entry.key for entry in world.ledger if (entry.effect, entry.phase) == ("write", "start")
            ]
            assert len(starts) == len(set(starts))
            if first is None:
                deaths += 1
            at += stride
    assert result.messages == plain.messages
    assert deaths >= 20 // stride


@pytest.mark.sampled(2)
@each_third_place
@pytest.mark.parametrize("way", MATRIX)
async def test_a_cancel_at_any_event_ends_the_task_with_a_history_a_provider_takes(
    way: Way, stride: int, runner: Runner
) -> None:
    states: set[str] = set()
    place = 0
    while True:
        world = World(way)
        handle = await runner.start(world.agent, "go")
        events = 0
        async for event in handle.events():
            events += isinstance(event, Event) or getattr(event, "channel", "") == "arguments"
            if events > place:
                with suppress(TreadleError):
                    await handle.cancel()
                break
        result = await handle.result()
        states.add(result.state)
        assert result.state in ("cancelled", "completed")
        assert_well_formed(result.messages)
        if events <= place:
            break
        place += stride
    assert states == {"cancelled", "completed"}
    await audited(world, runner)


async def test_steps_are_undone_and_done_again(world: World, runner: Runner) -> None:
    first = await runner.run(world.agent, "go")
    report = await runner.undo_step(first.task_id, to=1)
    assert [(call.tool, call.verdict) for call in report.calls if call.tool == "book"] == [
        ("book", "compensated")
    ]
    again = await runner.resume(first.task_id)
    assert (again.state, again.final_text, again.steps) == ("completed", ANSWER, world.way.steps)
    assert [message.text for message in again.messages] == [message.text for message in first.messages]
    assert again.usage.model_calls == 2 * world.way.asks - 1
    await audited(world, runner, again)


@pytest.mark.sampled(3)
async def test_a_fork_continues_from_any_step_and_its_parent_stays_the_same(
    world: World, runner: Runner
) -> None:
    parent = await runner.run(world.agent, "go")
    for step in (await runner.get_completed_steps(parent.task_id))[:-1]:
        fork = await runner.fork(parent.task_id, at=step.step.step_id)
        result = await runner.resume(fork)
        assert (result.state, result.final_text) == ("completed", ANSWER)
        assert result.messages == parent.messages
    assert (await runner.get_task(parent.task_id)).state == "completed"
    await audited(world, runner)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("on_limit", ["final_answer", "fail", "pause"])
async def test_a_limit_of_any_size_is_kept(world: World, runner: Runner, on_limit: Any) -> None:
    for steps in range(9):
        result = await runner.run(
            world.agent, "go", options=RunOptions(limits=Limits(steps=steps), on_limit=on_limit)
        )
        ended = {"final_answer": "degraded", "fail": "failed", "pause": "paused"}[on_limit]
        if steps >= world.way.steps:
            assert (result.state, result.final_text) == ("completed", ANSWER)
        else:
            assert result.state == ended
            assert result.steps <= steps
        assert result.usage.model_calls <= steps + 1 or not world.way.talks
        if result.state == "degraded" and steps and not world.way.own:
            assert result.final_text == LAST_WORDS
        assert_well_formed(result.messages)
    for calls in range(8):
        limits = Limits(tool_calls=calls)
        result = await runner.run(world.agent, "go", options=RunOptions(limits=limits, on_limit=on_limit))
        begun = [run for run in result.tool_executions if run.outcome not in ("refused", None)]
        assert len(begun) <= calls
        assert result.state == ("completed" if calls >= 6 else ended)
        if (
            result.state != "paused" or not world.way.own
        ):  # a function's call may still be made once the limit is raised
            assert_well_formed(result.messages)
    enough = (
        world.way.asks + 1
    ) * USAGE.total_tokens + 1  # the last answer of a limited task is kept back for
    for tokens in (0, 100, 321, enough):
        limits = Limits(tokens=tokens)
        result = await runner.run(world.agent, "go", options=RunOptions(limits=limits, on_limit=on_limit))
        assert result.state == ("completed" if tokens == enough else ended)
        assert_well_formed(result.messages)
    await audited(world, runner, ended=False)


@pytest.mark.parametrize("way", [way for way in WORKERS.values() if way.talks])
async def test_a_message_between_steps_is_read_and_stays_in_the_thread(way: Way, runner: Runner) -> None:
    world = World(way)
    task = await runner.create_task(world.agent, "go", thread_id="talk")
    await runner.run_step(task)
    await runner.run_step(task, input="rather two")
    assert world.asked[-1].messages[-1].text == "rather two"
    await runner.resume(task)
    later = await runner.run(world.agent, "and now?", thread_id="talk")
    assert "rather two" in [message.text for message in world.asked[-7].messages]
    await audited(world, runner, later)


@pytest.mark.sampled(10)
@pytest.mark.parametrize("then", WORKERS.values(), ids=WORKERS)
async def test_a_thread_continues_with_any_other_worker(world: World, runner: Runner, then: Way) -> None:
    await runner.run(world.agent, "go", thread_id="talk")
    other = World(then)
    result = await runner.run(other.agent, "again", thread_id="talk")
    assert (result.state, result.final_text) == ("completed", ANSWER)
    first: list[Message] = list(other.asked[0].messages)
    assert sum("booked 2" in str(message) for message in first) == world.way.talks
    assert first[-1].text == "again"
    await audited(other, runner, result)


@pytest.mark.parametrize("way", [way for way in WORKERS.values() if not way.own])
async def test_a_return_direct_tool_ends_the_task_unless_it_fails(way: Way, runner: Runner) -> None:
    @tool(read_only=True, return_direct=True)
    def reply(n: int) -> str:
        """Reply."""
        if n == 0:
            raise ValueError("not yet")
        return f"reply {n}"

    script = [way.calls("reply", {"n": 0}), way.calls("reply", {"n": 1})]
    result = await runner.run(Agent(ScriptedModel(script), tools=[reply], worker=way.worker), "go")
    assert (result.state, result.final_text, result.steps) == ("completed", "reply 1", 2)


@pytest.mark.sampled(2)
async def test_many_tasks_share_an_agent(world: World, runner: Runner) -> None:
    results = await asyncio.gather(*(runner.run(world.agent, "go") for _ in range(5)))
    assert {result.final_text for result in results} == {ANSWER}
    assert all(result.messages == results[0].messages for result in results)
    await audited(world, runner)
