"""Questions to people: answered from anywhere, once, by what fits; the tools that asked start again under their key."""

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from tests.forked import completed
from tests.runner.acts import both, journal, only
from tests.runner.planned import WORKING, a_plan, an_answer, sub
from treadle import (
    Agent,
    Decider,
    NextStep,
    Node,
    Pending,
    Pipeline,
    RunHandle,
    Runner,
    RunOptions,
    ScriptedModel,
    StepContext,
    StepResult,
    ToolContext,
    tool,
)
from treadle.agents.decide import function_calling
from treadle.core.model import ModelRequest
from treadle.errors import (
    AlreadyDecided,
    CallNotFound,
    ConfigurationError,
    ForkPointBusy,
    TaskParked,
)
from treadle.llm.scripted import call, text
from treadle.testing import clock

pytestmark = pytest.mark.anyio


class Room(BaseModel):
    kind: Literal["single", "double"]
    nights: int = 1


class Hotel:
    """The world outside: a file to which the tools write what they did, however often their process starts."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "hotel"

    @property
    def book(self) -> list[str]:
        return self.path.read_text().splitlines() if self.path.exists() else []

    def write(self, entry: str) -> str:
        with self.path.open("a") as file:
            file.write(f"{entry}\n")
        return entry

    def reserve(self, **asking: Any) -> Any:
        """A tool that holds a room once, asks which one it is to be, and books it under its key."""

        @tool(idempotent=True)
        async def reserve(city: str, ctx: ToolContext) -> str:
            held = await ctx.once("hold", lambda: self.write(f"held in {city}"))
            room = await ctx.ask(f"Which room in {city}?", Room, **asking)
            return self.write(f"{held}: {room.kind} {room.nights} {ctx.idempotency_key.rpartition('/')[2]}")

        return reserve

    def desk(self, *script: Any, **more: Any) -> Agent[Any]:
        tools = more.pop("tools", None) or [self.reserve()]
        script = script or (call("reserve", city="Rome"), "Done.")
        return Agent(ScriptedModel(list(script)), name="desk", tools=tools, **more)


@pytest.fixture
def hotel(tmp_path: Path) -> Hotel:
    return Hotel(tmp_path)


SINGLE: Any = {"kind": "single"}
BOOKED = ["held in Rome", "held in Rome: single 1 s1-0"]


async def streamed(runner: Runner, agent: Agent[Any]) -> Any:
    async with runner.run_stream(agent, "Go.") as stream:
        async for _ in stream:
            pass
    return stream.result


# ------------------------------------------------------------------------------------------- answering


async def test_a_tool_waits_for_its_answer_and_what_it_did_before_is_not_done_again(
    runner: Runner, hotel: Hotel
) -> None:
    result = await runner.run(hotel.desk(), "Go.")
    (asked,) = result.pending
    assert (result.state, hotel.book) == ("waiting", ["held in Rome"])
    assert (asked.kind, asked.request_id, asked.tool) == ("question", "s1-0-q1", "reserve")
    assert (asked.text, asked.arguments, asked.expires) == ("Which room in Rome?", {"city": "Rome"}, None)
    assert asked.schema["properties"]["kind"]["enum"] == ["single", "double"]
    await runner.handle(result.task_id).answer(value=Room(kind="single"), by="ann")
    result = await runner.resume(result.task_id)
    assert (result.state, result.final_text, hotel.book) == ("completed", "Done.", BOOKED)
    (answer,) = await only(runner, result.task_id, "question_answered")
    assert (answer.by, answer.value) == ("ann", {"kind": "single", "nights": 1})


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({"kind": "triple"}, "kind must be one of 'single', 'double', got 'triple'"),
        ({"kind": "single", "nights": "two"}, "nights must be a whole number, got 'two'"),
        ("single", "the answer must be an object, got 'single'"),
        (None, "the answer must be an object, got None"),
    ],
)
async def test_an_answer_that_does_not_fit_is_refused_where_it_is_given_and_the_question_stays_open(
    runner: Runner, hotel: Hotel, value: Any, why: str
) -> None:
    result = await runner.run(hotel.desk(), "Go.")
    with pytest.raises(ConfigurationError) as refusal:
        await runner.answer(result.task_id, value=value)
    assert why in str(refusal.value)
    assert "s1-0-q1, which stays open" in str(refusal.value)
    assert (await runner.result(result.task_id)).pending == result.pending
    assert await only(runner, result.task_id, "command_rejected") == []


async def test_what_is_no_json_data_is_no_answer(runner: Runner, hotel: Hotel) -> None:
    result = await runner.run(hotel.desk(), "Go.")
    with pytest.raises(ConfigurationError, match="answer: value must be JSON data"):
        await runner.answer(result.task_id, value=object())


def nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value",
    [float("nan"), {"a": [float("inf")]}, "\ud800", nested(3_000)],
    ids=["nan", "infinity", "half a character", "nested deep"],
)
async def test_an_answer_that_no_export_could_hold_or_no_error_could_show_is_refused(
    runner: Runner, value: Any
) -> None:
    @tool(read_only=True)
    async def asker(ctx: ToolContext) -> Any:
        return await ctx.ask("What?", Any)

    agent = Agent(ScriptedModel([call("asker"), "Done."]), name="asker", tools=[asker])
    result = await runner.run(agent, "Go.")
    with pytest.raises(ConfigurationError, match="answer: value must be JSON data"):
        await runner.answer(result.task_id, value=value)
    assert (await runner.result(result.task_id)).pending == result.pending


async def test_the_same_answer_again_changes_nothing_and_another_is_refused(
    runner: Runner, hotel: Hotel
) -> None:
    result = await runner.run(hotel.desk(), "Go.")
    request, answer = result.pending[0].request_id, runner.answer
    outcomes = await asyncio.gather(
        *[answer(result.task_id, request, value=SINGLE) for _ in range(3)], return_exceptions=True
    )
    assert outcomes == [None] * 3
    with pytest.raises(AlreadyDecided, match="the request s1-0-q1 was answered already"):
        await answer(result.task_id, request, value={"kind": "double"})
    result = await runner.resume(result.task_id)
    await answer(result.task_id, request, value=SINGLE)
    with pytest.raises(AlreadyDecided):
        await answer(result.task_id, request, value={"kind": "double"})
    with pytest.raises(CallNotFound, match="waits for no question"):
        await answer(result.task_id, value=SINGLE)
    assert hotel.book == BOOKED


async def test_two_people_who_answer_at_once_give_one_answer(runner: Runner, hotel: Hotel) -> None:
    result = await runner.run(hotel.desk(), "Go.")
    outcomes = await asyncio.gather(
        runner.answer(result.task_id, "s1-0-q1", value=SINGLE),
        runner.answer(result.task_id, "s1-0-q1", value={"kind": "double"}),
        return_exceptions=True,
    )
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["AlreadyDecided", "NoneType"]
    await runner.resume(result.task_id)
    kind = "single" if outcomes[0] is None else "double"
    assert hotel.book[1:] == [f"held in Rome: {kind} 1 s1-0"]


async def test_a_request_that_is_not_a_question_of_this_task_is_not_known(
    runner: Runner, hotel: Hotel
) -> None:
    first = await runner.run(hotel.desk(), "Go.")
    second = await runner.run(hotel.desk("Nothing."), "Go.")
    for foreign in ("s1-0-q2", "s1-0-ask1", "s1-0", "nonsense-q1"):
        with pytest.raises(CallNotFound):
            await runner.answer(first.task_id, foreign, value=SINGLE)
    with pytest.raises(CallNotFound):
        await runner.answer(second.task_id, "s1-0-q1", value=SINGLE)
    for verb in (runner.approve, runner.deny):
        with pytest.raises(CallNotFound):
            await verb(first.task_id, "s1-0-q1")


async def test_approvals_and_questions_are_one_list_and_each_has_its_verb(
    runner: Runner, hotel: Hotel
) -> None:
    @tool(needs_approval=True)
    async def pay() -> str:
        return hotel.write("paid")

    calls = both(call("pay"), call("reserve", city="Rome"))
    result = await runner.run(hotel.desk(calls, "Done.", tools=[pay, hotel.reserve()]), "Go.")
    kinds = [(item.kind, item.request_id) for item in await runner.list_pending()]
    assert sorted(kinds) == [("approval", "s1-0-ask1"), ("question", "s1-1-q1")]
    await runner.answer(result.task_id, value=SINGLE)
    await runner.approve(result.task_id)
    assert (await runner.resume(result.task_id)).state == "completed"
    assert sorted(hotel.book) == ["held in Rome", "held in Rome: single 1 s1-1", "paid"]


# ------------------------------------------------------------------------------------- several at once


async def test_three_calls_that_ask_at_once_are_answered_in_reverse(store: Any, hotel: Hotel) -> None:
    cities = ("Rome", "Oslo", "Bern")
    agent = hotel.desk(both(*[call("reserve", city=city) for city in cities]), "Done.")
    async with Runner(store) as runner:
        result = await streamed(runner, agent)
    requests = [item.request_id for item in result.pending]
    assert requests == ["s1-0-q1", "s1-1-q1", "s1-2-q1"]
    for nights, request in enumerate(reversed(requests), 1):
        async with Runner(store, agents=[agent]) as runner:
            await runner.answer(result.task_id, request, value={"kind": "single", "nights": nights})
            result = await runner.resume(result.task_id)
    assert result.state == "completed"
    assert sorted(hotel.book[:3]) == ["held in Bern", "held in Oslo", "held in Rome"]
    assert hotel.book[3:] == [
        "held in Bern: single 1 s1-2",
        "held in Oslo: single 2 s1-1",
        "held in Rome: single 3 s1-0",
    ]


async def test_a_batch_of_which_one_asks_gives_the_others_their_results(runner: Runner, hotel: Hotel) -> None:
    @tool(name="raises")
    async def raising() -> str:
        raise ValueError("broken")

    @tool
    async def slow() -> str:
        await asyncio.sleep(0.05)
        return hotel.write("slow")

    calls = both(call("raises"), call("reserve", city="Rome"), call("slow"))
    agent = hotel.desk(calls, "Done.", tools=[raising, hotel.reserve(), slow])
    result = await runner.run(agent, "Go.")
    assert [each.outcome for each in result.tool_executions] == ["error", None, "ok"]
    assert hotel.book == ["held in Rome", "slow"]
    await runner.answer(result.task_id, value=SINGLE)
    result = await runner.resume(result.task_id)
    assert [each.outcome for each in result.tool_executions] == ["error", "ok", "ok"]


async def test_a_call_that_is_answered_while_others_run_starts_again_at_once(
    runner: Runner, hotel: Hotel
) -> None:
    @tool
    async def slow() -> str:
        async with asyncio.timeout(10):
            while len(hotel.book) < 2:  # noqa: ASYNC110  the ledger is a file
                await asyncio.sleep(0.01)
        return "seen"

    calls = both(call("reserve", city="Rome"), call("slow"))
    handle = await runner.start(hotel.desk(calls, "Done.", tools=[hotel.reserve(), slow]), "Go.")
    async for event in handle.events():
        if event.kind == "question_asked":
            await handle.answer(value=SINGLE)
    result = await handle.result()
    assert [each.outcome for each in result.tool_executions] == ["ok", "ok"]


# -------------------------------------------------------------------------------------------- expiry


def test_a_question_expires_while_no_process_runs(tmp_path: Path, hotel: Hotel) -> None:
    agent = hotel.desk(tools=[hotel.reserve(expires=3_600, default=Room(kind="double", nights=3))])

    async def work() -> None:
        path = tmp_path / "store.db"
        async with clock.runner(path) as runner:
            result = await runner.run(agent, "Go.", task_id="first")
            await runner.run(agent, "Go.", task_id="second")
        assert result.pending[0].expires == clock.now() + 3_600_000_000
        await asyncio.sleep(3_600)
        async with clock.runner(path, agents=[agent]) as runner:
            with pytest.raises(AlreadyDecided, match="the question s1-0-q1 has expired"):
                await runner.answer("first", value=SINGLE)
            assert (await runner.resume("first")).state == "completed"
            with pytest.raises(AlreadyDecided, match="has expired"):
                await runner.answer("first", "s1-0-q1", value=SINGLE)
        assert hotel.book[2:] == ["held in Rome: double 3 s1-0"]
        async with clock.runner(path, agents=[agent], adopt=True) as runner:
            while (await runner.get_task("second")).state != "completed":  # noqa: ASYNC110
                await asyncio.sleep(0.1)
            assert "question_expired" in [event.kind for event in await journal(runner, "second")]

    clock.run(work())


def test_an_answer_that_was_recorded_in_time_holds_when_it_is_read_late(tmp_path: Path, hotel: Hotel) -> None:
    agent = hotel.desk(tools=[hotel.reserve(expires=3_600)])

    async def work() -> None:
        async with clock.runner(tmp_path / "store.db", agents=[agent]) as runner:
            result = await runner.run(agent, "Go.")
            await asyncio.sleep(3_000)
            await runner.answer(result.task_id, value=SINGLE)
            await asyncio.sleep(10_000)
            assert (await runner.resume(result.task_id)).state == "completed"

    clock.run(work())
    assert hotel.book == BOOKED


def test_a_question_without_a_default_that_expires_is_an_error_that_the_model_reads(hotel: Hotel) -> None:
    agent = hotel.desk(tools=[hotel.reserve(expires=5)])

    async def work() -> Any:
        async with clock.runner() as runner:
            result = await runner.run(agent, "Go.")
            assert result.state == "waiting"
            await asyncio.sleep(5)
            return await runner.resume(result.task_id)

    result = clock.run(work())
    (execution,) = result.tool_executions
    assert (result.state, execution.outcome) == ("completed", "error")
    assert "the question 'Which room in Rome?' was not answered in time" in str(execution.error)


# ------------------------------------------------------------------------------------- other commands


async def test_a_task_with_an_open_question_is_paused_undone_and_cancelled(
    runner: Runner, hotel: Hotel
) -> None:
    @tool(read_only=True)
    async def inquire(ctx: ToolContext) -> str:
        return await ctx.ask("What?")

    result = await runner.run(hotel.desk(call("inquire"), "Done.", tools=[inquire]), "Go.")
    assert (await runner.pause(result.task_id)).state == "paused"
    await runner.answer(result.task_id, value="yes")
    undone = await runner.undo_step(result.task_id, to=0)
    assert undone.complete
    result = await runner.resume(result.task_id)
    assert [item.request_id for item in result.pending] == ["s1b1-0-q1"]
    with pytest.raises(AlreadyDecided):
        await runner.answer(result.task_id, "s1-0-q1", value="no")
    result = await runner.cancel(result.task_id)
    (execution,) = result.tool_executions
    assert (result.state, execution.outcome) == ("cancelled", "cancelled")
    assert "inquire asked a person and does not go on: the task was cancelled" in str(execution.error)
    assert (await runner.list_pending()).items == ()
    with pytest.raises(AlreadyDecided, match="ended as cancelled"):
        await runner.answer(result.task_id, "s1b1-0-q1", value="no")


async def test_a_call_that_was_cancelled_after_it_may_have_acted_is_of_unknown_outcome(
    runner: Runner, hotel: Hotel
) -> None:
    result = await runner.run(hotel.desk(), "Go.")
    result = await runner.cancel(result.task_id)
    assert [execution.outcome for execution in result.tool_executions] == ["unknown"]
    assert hotel.book == ["held in Rome"]


async def test_a_call_that_asked_cannot_be_edited(runner: Runner, hotel: Hotel) -> None:
    result = await runner.run(hotel.desk(), "Go.")
    for _ in range(2):
        with pytest.raises(CallNotFound, match="no call 's1-0' that has not begun"):
            await runner.edit_call(result.task_id, "s1-0", {"city": "Oslo"})
        await runner.answer(result.task_id, "s1-0-q1", value=SINGLE)


async def test_a_fork_at_an_open_question_asks_for_itself_unless_its_call_is_halfway(
    runner: Runner, hotel: Hotel
) -> None:
    @tool(idempotent=True)
    async def inquire(ctx: ToolContext) -> str:
        return hotel.write(f"{await ctx.ask('What?')} {ctx.idempotency_key}")

    agent = hotel.desk(call("inquire"), "Done.", tools=[inquire])
    result = await runner.run(agent, "Go.")
    asked = next(each for each in await journal(runner, result.task_id) if each.kind == "question_asked")
    fork = await runner.fork(result.task_id, at=asked.seq)
    await runner.answer(result.task_id, value="yes")
    await runner.resume(result.task_id)
    forked = await runner.resume(fork)
    assert ([item.request_id for item in forked.pending], forked.state) == (["s1-0-q2"], "waiting")
    await runner.answer(fork, value="no")
    await runner.resume(fork)
    assert [entry.split("/")[0] for entry in hotel.book] == [
        f"yes {result.task_id}",
        f"no {fork.task_id}",
    ]
    halfway = await runner.run(hotel.desk(), "Go.")
    asked = next(each for each in await journal(runner, halfway.task_id) if each.kind == "question_asked")
    with pytest.raises(ForkPointBusy):
        await runner.fork(halfway.task_id, at=asked.seq)


async def test_a_stepper_is_told_of_the_question_and_steps_on_after_the_answer(
    runner: Runner, hotel: Hotel
) -> None:
    task = await runner.create_task(hotel.desk(), "Go.")
    with pytest.raises(TaskParked) as parked:
        await runner.run_step(task)
    assert [item.kind for item in parked.value.pending] == ["question"]
    await runner.answer(task, value=SINGLE)
    assert (await runner.run_step(task)).tool_executions[0].outcome == "ok"
    assert hotel.book == BOOKED


async def test_a_step_that_is_tried_again_keeps_the_answers_and_values_of_its_call(
    runner: Runner, hotel: Hotel
) -> None:
    fails = [True]

    @tool(idempotent=True)
    async def flaky(ctx: ToolContext) -> str:
        held = await ctx.once("hold", lambda: hotel.write("held"))
        answer = await ctx.ask("Go?", bool)
        if fails.pop() if fails else False:
            raise ValueError("not now")
        return f"{held} {answer}"

    from treadle import FailurePolicy

    options = RunOptions(on_failure=FailurePolicy(tool="fail"))
    result = await runner.run(hotel.desk(call("flaky"), "Done.", tools=[flaky]), "Go.", options=options)
    await runner.answer(result.task_id, value=True)
    result = await runner.resume(result.task_id)
    assert result.state == "failed"
    result = await runner.resume(result.task_id)
    assert (result.state, hotel.book) == ("completed", ["held"])
    assert result.tool_executions[-1].output == "held True"


async def test_a_descendants_question_is_listed_and_answered_at_every_ancestor(
    runner: Runner, hotel: Hotel
) -> None:
    middle = Agent(ScriptedModel([call("desk", input="book"), "ok"]), name="middle", subagents=[hotel.desk()])
    top = Agent(ScriptedModel([call("middle", input="book"), "End."]), name="top", subagents=[middle])
    result = await runner.run(top, "Go.")
    (asked,) = await runner.list_pending(result.task_id)
    assert (asked.kind, asked.task_id) == ("question", f"{result.task_id}.s1-0.s1-0")
    await runner.handle(result.task_id).answer(asked.request_id, value=SINGLE)
    result = await runner.resume(result.task_id)
    assert (result.state, result.final_text, hotel.book) == ("completed", "End.", BOOKED)


async def test_a_callback_is_told_of_questions_and_may_answer_at_once(hotel: Hotel) -> None:
    told: list[Pending] = []

    async def desk(asked: Pending, handle: RunHandle) -> None:
        told.append(asked)
        await handle.answer(asked.request_id, value=SINGLE, by="the desk")

    async with Runner("memory:", on_pending=desk) as runner:
        assert (await runner.run(hotel.desk(), "Go.")).state == "completed"
    assert ([item.request_id for item in told], hotel.book) == (["s1-0-q1"], BOOKED)


# --------------------------------------------------------------------------------------------- workers


async def one_call(ctx: StepContext) -> StepResult:
    return StepResult(await ctx.call_tool("reserve", {"city": "Rome"}), is_last=True)


REACT = (
    'Thought: I book.\nAction: reserve\nAction Input: {"city": "Rome"}',
    "Thought: I can answer without using any more tools.\nAnswer: Done.",
)
PLANNER = (
    '{"name": "reserve", "arguments": {"city": "Rome"}}',
    '{"name": "finish", "arguments": {"answer": "Done."}}',
)


def planned(request: ModelRequest) -> Any:
    """A model that plans one sub-task, calls the tool in it, and then answers."""
    if request.instructions.startswith(WORKING):
        booked = any(message.role == "tool" for message in request.messages)
        return text("It is booked.") if booked else call("reserve", city="Rome")
    told = "".join(message.text for message in request.messages)
    return text(an_answer("Done.") if "Plan 1 has run" in told else a_plan(sub("book")))


def pipeline(hotel: Hotel) -> Agent[Any]:
    reserve = hotel.reserve()
    worker = Pipeline([Node("book", reserve, input={"city": "Rome"})])
    return hotel.desk("unused", tools=[reserve], worker=worker)


@pytest.mark.parametrize(
    "made",
    [
        lambda hotel: hotel.desk(worker=Decider(function_calling.decide)),
        lambda hotel: hotel.desk(*REACT, worker="react"),
        lambda hotel: hotel.desk(*PLANNER, worker="planner"),
        lambda hotel: hotel.desk("unused", worker=one_call),
        pipeline,
        lambda hotel: hotel.desk(worker="plan_refine").replace(model=ScriptedModel(planned)),
    ],
    ids=["decider", "react", "planner", "step function", "pipeline", "plan_refine"],
)
async def test_the_tools_of_every_worker_ask(
    store: Any, hotel: Hotel, made: Callable[[Hotel], Agent[Any]]
) -> None:
    agent = made(hotel)
    async with Runner(store) as runner:
        task = (await runner.run(agent, "Go.")).task_id
        assert (len((await runner.list_pending(task)).items), hotel.book) == (1, ["held in Rome"])
        await runner.answer(task, value=SINGLE)
    async with Runner(store, agents=[agent]) as runner:
        result = await runner.resume(task)
    assert (result.state, len(hotel.book)) == ("completed", 2)
    assert hotel.book[1].startswith("held in Rome: single 1 ")


async def asking_steps(ctx: StepContext) -> StepResult:
    """A step that asks, one after the other and at once, and keeps a value."""
    drawn = await ctx.random()
    first = await ctx.ask("First?", int, key="first")
    second, third = await asyncio.gather(ctx.ask("Second?", Room), ctx.ask("Third?", bool, default=True))
    assert drawn == await ctx.once("random:1", lambda: -1.0)
    return StepResult(f"{first} {second.kind} {third}", is_last=True)


def blocking_steps(ctx: StepContext) -> StepResult:
    """A step in a thread that asks."""
    first = ctx.wait(ctx.ask("First?", int))
    second = ctx.wait(ctx.ask("Second?", Room))
    third = ctx.wait(ctx.ask("Third?", bool))
    return StepResult(f"{first} {second.kind} {third}", is_last=True)


def asking_nodes() -> Pipeline:
    async def first(ctx: Any) -> int:
        return await ctx.step.ask("First?", int)

    async def second(ctx: Any) -> str:
        return (await ctx.step.ask("Second?", Room)).kind

    async def third(ctx: Any) -> str:
        asked = await ctx.step.ask("Third?", bool)
        return f"{ctx.results['first']} {ctx.results['second']} {asked}"

    return Pipeline(
        [
            Node("first", first),
            Node("second", second),
            Node("third", third, after=["first", "second"]),
        ]
    )


ANSWERS: dict[str, Any] = {"First?": 7, "Second?": SINGLE, "Third?": False}


@pytest.mark.parametrize(
    "worker", [asking_steps, blocking_steps, asking_nodes()], ids=["async", "thread", "pipeline"]
)
async def test_step_functions_ask_and_are_entered_again_by_another_process(store: Any, worker: Any) -> None:
    agent = Agent(ScriptedModel(["unused"]), name="asker", worker=worker)
    async with Runner(store) as runner:
        result = await runner.run(agent, "Go.")
    for _ in range(3):
        if result.state != "waiting":
            break
        async with Runner(store, agents=[agent]) as runner:
            for item in reversed((await runner.list_pending(result.task_id)).items):
                assert (item.kind, item.tool) == ("question", "")
                await runner.answer(result.task_id, item.request_id, value=ANSWERS[item.text], by="ann")
            result = await runner.resume(result.task_id)
    assert (result.state, result.final_text) == ("completed", "7 single False")


async def test_a_key_of_a_step_stands_for_one_question(runner: Runner) -> None:
    async def work(ctx: StepContext) -> StepResult:
        first = await ctx.ask("First?", key="it")
        return StepResult(f"{first} {await ctx.ask('Another?', key='it')}", is_last=True)

    result = await runner.run(Agent(ScriptedModel([]), name="asker", worker=work), "Go.")
    await runner.answer(result.task_id, value="x")
    result = await runner.resume(result.task_id)
    assert result.state == "failed"
    assert "the key 'it' was used before" in str(result.error)


async def test_parallel_steps_go_on_while_one_asks(store: Any, hotel: Hotel) -> None:
    async def worker(ctx: StepContext) -> StepResult:
        if ctx.name == "start":
            plans = [NextStep("ask"), NextStep("work"), NextStep("end", after=("ask", "work"))]
            return StepResult(next_steps=plans)
        if ctx.name == "ask":
            return StepResult(await ctx.ask("What?"))
        if ctx.name == "work":
            await asyncio.sleep(0.2)
            hotel.write("worked")
        return StepResult(ctx.results.get("ask"), is_last=ctx.name == "end")

    agent = hotel.desk("unused", worker=worker)
    async with Runner(store, agents=[agent]) as runner:
        result = await runner.run(agent, "Go.")
        assert ([item.text for item in result.pending], hotel.book) == (["What?"], ["worked"])
        await runner.answer(result.task_id, value="this")
        result = await runner.resume(result.task_id)
    assert (result.state, result.final_text) == ("completed", "this")


async def test_headless_step_functions_take_the_default_or_fail(runner: Runner) -> None:
    async def work(ctx: StepContext) -> StepResult:
        first = await ctx.ask("First?", int, default=3)
        return StepResult(f"{first} {await ctx.ask('Second?')}", is_last=True)

    options = RunOptions(interaction="headless")
    agent = Agent(ScriptedModel([]), name="asker", worker=work)
    result = await runner.run(agent, "Go.", options=options)
    assert result.state == "failed"
    assert "the question 'Second?' was not answered in time" in str(result.error)


async def test_an_adopter_goes_on_as_soon_as_another_process_answered(store: Any, hotel: Hotel) -> None:
    agent = hotel.desk()
    async with Runner(store) as asker:
        task = (await asker.run(agent, "Go.")).task_id
    async with Runner(store, agents=[agent], adopt=True) as adopter, Runner(store) as other:
        await other.answer(task, value=SINGLE)
        async with asyncio.timeout(20):
            while (await adopter.get_task(task)).state != "completed":  # noqa: ASYNC110
                await asyncio.sleep(0.05)
    assert hotel.book == BOOKED


# ------------------------------------------------------------------------------- process after process


PROGRAM = """
import asyncio
import subprocess
import sys
import sys
from pathlib import Path
from typing import Literal

from treadle import Agent, ScriptedModel, ToolContext, tool
from treadle.models import call
from treadle.testing import clock

LEDGER, DAYS = Path("ledger"), 86_400.0

def enter(entry):
    with LEDGER.open("a") as file:
        file.write(entry + "\\n")
    return entry

@tool(idempotent=True)
async def reserve(ctx: ToolContext) -> str:
    enter(f"started {ctx.idempotency_key} {ctx.attempt}")
    held = await ctx.once("hold", lambda: enter("held"))
    kind = await ctx.ask("Which?", Literal["single", "double"])
    return enter(f"{held}, then booked a {kind} room")

agent = Agent(ScriptedModel([call("reserve"), "Booked."]), name="desk", tools=[reserve])

async def main(store, act):
    # Each process begins its virtual time where the one before it ended.
    if act == "run":
        async with clock.runner(store) as runner:
            result = await runner.run(agent, "Go.", task_id="t")
    elif act == "answer":
        await asyncio.sleep(3 * DAYS)
        async with clock.runner(store) as runner:
            await runner.answer("t", value="double", by="ada")
            result = await runner.result("t")
    else:
        await asyncio.sleep(5 * DAYS)
        async with clock.runner(store, agents=[agent]) as runner:
            result = await runner.resume("t")
            asked, answered = [
                event.time async for event in runner.handle("t").events()
                if event.kind in ("question_asked", "question_answered")
            ]
            print((answered - asked) / 1e6 / DAYS)
    print(result.state, [item.request_id for item in result.pending])

clock.run(main(*sys.argv[1:]))
"""


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgresql", marks=pytest.mark.full)])
def test_the_process_exits_after_the_question_and_an_answer_days_later_starts_the_tool_again(
    tmp_path: Path, kind: str, request: pytest.FixtureRequest
) -> None:
    program = tmp_path / "desk.py"
    program.write_text(PROGRAM)
    url = str(tmp_path / "journal.db")
    if kind == "postgresql":
        url = request.getfixturevalue("postgres").in_schema("questions_between_processes")

    def process(act: str) -> list[str]:
        done = completed([sys.executable, program, url, act], cwd=tmp_path, check=True)
        return done.stdout.splitlines()

    assert process("run") == ["waiting ['s1-0-q1']"]
    assert process("answer") == ["running []"], "nothing is waited for, and no process drives it"
    days, end = process("resume")
    assert (float(days) >= 2.99, end) == (True, "completed []")
    first, held, second, booked = (tmp_path / "ledger").read_text().splitlines()
    assert (held, booked) == ("held", "held, then booked a double room")
    assert (first.split()[2], second.split()[2]) == ("1", "2")
    assert first.split()[1] == second.split()[1]
