"""The features that users of agent libraries expect, one short test for each, through the public API alone.

Two more are elsewhere: plans that are refined (26) in tests/agents/workers/test_plan_refine.py, the fitting few of many
tools (33) in tests/tools/test_index.py.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest

from examples import reflection
from tests.cast import add
from treadle import (
    Agent,
    AgentWorker,
    Decider,
    File,
    Image,
    Limits,
    ModelSettings,
    NextStep,
    Quorum,
    RunContext,
    Runner,
    RunOptions,
    RunResult,
    ScriptedModel,
    StepContext,
    StepResult,
    ToolOutput,
    tool,
)
from treadle.agents.decide import function_calling
from treadle.llm.scripted import call, call_raw, text, turn
from treadle.testing.audit import audit_store

pytestmark = pytest.mark.anyio


@pytest.fixture
async def runner() -> AsyncIterator[Runner]:
    async with Runner("memory:") as runner:
        yield runner
        assert await audit_store(runner.store) == []


@tool(read_only=True)
async def look(what: str) -> str:
    """Look at something."""
    if what == "nothing":
        raise ValueError("there is nothing to see")
    return f"seen {what}"


def agent_of(*turns: Any, tools: Any = (add, look), **more: Any) -> Agent[Any]:
    return Agent(ScriptedModel(list(turns)), tools=tools, **more)


def requests(agent: Agent[Any]) -> list[Any]:
    """What the agent's model was asked, in order."""
    assert isinstance(agent.model, ScriptedModel)
    return list(agent.model.requests)


def conversation(result: RunResult) -> list[tuple[str, str]]:
    """A result's conversation, with what tools returned."""
    return [
        (message.role, message.text or "".join(getattr(part, "text", "") for part in message.parts))
        for message in result.messages
    ]


# --------------------------------------------------------------------------------- steps and workers


async def test_parallel_steps_are_bounded_and_merged_in_the_order_of_the_plan(
    runner: Runner,
) -> None:
    running, most = 0, 0

    async def worker(ctx: StepContext) -> StepResult:
        nonlocal running, most
        if ctx.name == "start":
            return StepResult(next_steps=[*map(NextStep, "abc"), NextStep("join", after=tuple("abc"))])
        if ctx.name == "join":
            return StepResult([name for name in ctx.results if name != "start"], is_last=True)
        running, most = running + 1, max(most, running + 1)
        answer = await ctx.call_model()
        await asyncio.sleep({"a": 0.03, "b": 0.01, "c": 0.0}[ctx.name])
        running -= 1
        return StepResult(answer.message.text)

    agent = Agent(ScriptedModel(lambda request: f"in {request.step}"), worker=worker)
    result = await runner.run(agent, "go", options=RunOptions(max_parallel_steps=2))
    assert (result.state, result.output, most) == ("completed", ["a", "b", "c"], 2)
    assert [message for _, message in conversation(result)][:4] == ["go", "in s2", "in s3", "in s4"]
    assert {len(request.messages) for request in requests(agent)} == {1}  # no step saw a sibling's messages


async def test_a_step_becomes_ready_when_the_steps_it_waits_for_have_ended(
    runner: Runner,
) -> None:
    async def worker(ctx: StepContext) -> StepResult:
        if ctx.name == "start":
            steps = [NextStep("a"), NextStep("b", after=("a",)), NextStep("c", after=("a", "b"))]
            return StepResult(next_steps=steps)
        return StepResult(ctx.name, is_last=ctx.name == "c")

    task = await runner.create_task(agent_of("never asked", worker=worker), "go")
    await runner.run_step(task)
    seen: list[str] = []
    while True:
        upcoming = await runner.get_upcoming_steps(task)
        seen.append(" ".join(f"{step.name}:{step.status}" for step in upcoming))
        if (await runner.run_step(task)).is_last:
            break
    assert seen == ["a:next b:blocked c:blocked", "b:next c:blocked", "c:next"]
    assert (await runner.finalize(task)).output == "c"


@pytest.mark.parametrize(
    ("join", "fails", "state", "reached"),
    [
        ("all", "", "completed", "abc"),
        ("all", "b", "failed", ""),
        ("any", "ab", "completed", "c"),
        ("any", "abc", "failed", ""),
        (Quorum(2), "b", "completed", "ac"),
        (Quorum(2), "bc", "failed", ""),
        ("optional", "ab", "degraded", "c"),
        ("optional", "abc", "degraded", ""),
    ],
)
async def test_the_join_decides_how_many_steps_have_to_succeed(
    runner: Runner, join: Any, fails: str, state: str, reached: str
) -> None:
    async def worker(ctx: StepContext) -> StepResult:
        if ctx.name == "start":
            return StepResult(
                next_steps=[*map(NextStep, "abc"), NextStep("join", after=tuple("abc"), join=join)]
            )
        if ctx.name == "join":
            return StepResult("".join(value for value in ctx.results.values() if value), is_last=True)
        if ctx.name in fails:
            raise ValueError(f"{ctx.name} failed")
        return StepResult(ctx.name)

    result = await runner.run(agent_of("never asked", worker=worker), "go")
    assert (result.state, result.output or "") == (state, reached)


class Countdown(AgentWorker):
    """A custom worker in three parts."""

    def initialize_step(self, task: RunContext[Any]) -> NextStep:
        return NextStep("count", 3)

    async def run_step(self, ctx: StepContext) -> StepResult:
        difference = await ctx.call_tool("add", {"a": ctx.input, "b": -1})
        return StepResult(
            difference,
            is_last=difference == 0,
            next_steps=[NextStep("count", difference)] if difference else (),
        )

    def finalize_task(self, task: RunContext[Any], output: Any) -> str:
        return f"from 3 to {output}"


async def one_call(ctx: StepContext) -> StepResult:
    return StepResult(await ctx.call_tool("add", {"a": 1, "b": 2}), is_last=True)


@pytest.mark.parametrize(
    ("worker", "output", "steps"),
    [(Countdown(), "from 3 to 0", 3), (one_call, 3, 1), (Decider(function_calling.decide), "It is 3.", 2)],
    ids=["AgentWorker", "function", "Decider"],
)
async def test_a_custom_worker_has_all_that_a_task_can_do(
    runner: Runner, worker: Any, output: Any, steps: int
) -> None:
    agent = agent_of(call("add", a=1, b=2), text("It is 3."), worker=worker)
    free = await runner.run(agent, "go")
    assert (free.state, free.output, free.steps) == ("completed", output, steps)
    task = await runner.create_task(agent, "go")
    await runner.run_step(task)
    await runner.undo_step(task)  # stepped, taken back, and driven on
    resumed = await runner.resume(task, agent=agent)
    assert (resumed.state, resumed.output, resumed.steps) == ("completed", output, steps)


async def test_a_plain_function_is_an_agent_and_needs_no_event_loop(runner: Runner) -> None:
    def shout(ctx: StepContext) -> StepResult:
        text = "".join(getattr(part, "text", "") for part in ctx.task_input)
        rounds = ctx.input or 0
        if rounds < 2:
            return StepResult(next_steps=[NextStep("again", rounds + 1)])
        return StepResult(text.upper() + "!" * rounds, is_last=True)

    result = await runner.run(agent_of("never asked", worker=shout), "hey")
    assert (result.state, result.output, result.steps, result.usage.model_calls) == (
        "completed",
        "HEY!!",
        3,
        0,
    )


async def test_react_reads_what_models_write_around_the_protocol(runner: Runner) -> None:
    wrapped = (
        "Sure!\n**Thought:** I add.\n**Action:** add\nAction Input: ```json\n"
        '{"a": 1, "b": 2,}\n```\nObservation: 7'
    )
    agent = agent_of(wrapped, "Thought: I know.\nAnswer: It is 3.", worker="react")
    result = await runner.run(agent, "1 + 2?")
    assert (result.final_text, result.tool_executions[0].output) == ("It is 3.", 3)
    last = requests(agent)[-1]
    assert last.tools == ()
    assert last.messages[-1].text == "Observation: 3"
    assert "7" not in str([message.text for message in last.messages])  # what it made up counts for nothing


async def test_a_worker_criticises_and_improves_its_own_drafts(runner: Runner) -> None:
    agent = Agent(ScriptedModel(reflection.script), instructions=reflection.WRITER, worker=reflection.reflect)
    result = await runner.run(agent, "What is a lease?", thread_id="talk")
    first, critic, second, content = requests(agent)
    assert (first.instructions, critic.instructions) == (reflection.WRITER, reflection.CRITIC)
    assert "It does not say how" in second.messages[-1].text  # the writer reads the critique
    assert "who does not renew it" in content.messages[-1].text
    assert result.final_text.endswith("has lost it.")
    messages = [message.text for message in await runner.get_thread("talk")]
    assert messages == ["What is a lease?", result.final_text]  # in the place of the drafts
    undone = await runner.undo_step(result.task_id)
    assert undone.steps == ("s2",)
    assert (await runner.resume(result.task_id, agent=agent)).final_text == result.final_text


# -------------------------------------------------------------------------------- models and tools


async def test_a_forced_tool_is_forced_once(runner: Runner) -> None:
    agent = agent_of(
        call("add", a=1, b=2),
        call("look", what="it"),
        text("3"),
        model_settings=ModelSettings(tool_choice="add"),
    )
    assert (await runner.run(agent, "go")).state == "completed"
    assert [request.tool_choice for request in requests(agent)] == ["add", "auto", "auto"]


async def test_a_result_is_the_answer_only_on_success_and_its_siblings_run(runner: Runner) -> None:
    ran: list[str] = []

    @tool(read_only=True, return_direct=True)
    async def fetch(what: str) -> str:
        """Fetch something."""
        ran.append(what)
        if what == "nothing":
            raise ValueError("there is nothing")
        return f"here is {what}"

    both = turn(calls=[call("fetch", what="tea"), call("look", what="cup")])
    good = agent_of(both, text("not asked"), tools=[fetch, look])
    result = await runner.run(good, "go", thread_id="talk")
    assert (result.final_text, result.steps, len(requests(good))) == ("here is tea", 1, 1)
    assert [execution.output for execution in result.tool_executions] == ["here is tea", "seen cup"]
    assert (await runner.get_thread("talk"))[-1].text == "here is tea"
    bad = agent_of(call("fetch", what="nothing"), text("I found nothing."), tools=[fetch])
    assert (await runner.run(bad, "go")).final_text == "I found nothing."
    assert ran == ["tea", "nothing"]


@pytest.mark.parametrize(("steps", "state"), [(2, "completed"), (1, "degraded")])
async def test_an_answer_that_comes_with_the_last_step_counts(runner: Runner, steps: int, state: str) -> None:
    agent = agent_of(call("add", a=1, b=2), text("It is 3."))
    result = await runner.run(agent, "1 + 2?", options=RunOptions(limits=Limits(steps=steps)))
    assert (result.state, result.final_text, result.steps) == (state, "It is 3.", steps)
    assert bool(result.degraded_reasons) == (state == "degraded")


async def test_the_model_may_see_how_many_steps_are_left(runner: Runner) -> None:
    agent = agent_of(call("add", a=1, b=2), text("3"), instructions="Add.")
    limits = Limits(steps=3)
    await runner.run(agent, "go", options=RunOptions(limits=limits, tell_steps_left=True))
    await runner.run(agent, "go", options=RunOptions(limits=limits))
    instructions = [request.instructions for request in requests(agent)]
    assert instructions == [f"Add.\n\nSteps left after this one: {steps_left}." for steps_left in (2, 1)] + [
        "Add.",
        "Add.",
    ]


@pytest.mark.parametrize(
    ("worker", "wrong", "right"),
    [
        ("react", 'Action: add\nAction Input: {"a": 1, ', "Answer: It is 3."),
        (
            "planner",
            '{"thought": "hm", "name": "add", "arguments": {"a": 1',
            '{"thought": "", "name": "finish", "arguments": {"answer": "It is 3."}}',
        ),
    ],
)
async def test_an_unreadable_answer_goes_back_to_the_model_a_bounded_number_of_times(
    runner: Runner, worker: Any, wrong: str, right: str
) -> None:
    agent = agent_of(wrong, wrong, right, worker=worker)
    result = await runner.run(agent, "1 + 2?")
    assert (result.state, result.final_text) == ("completed", "It is 3.")
    assert [execution.outcome for execution in result.tool_executions] == ["invalid", "invalid"]
    assert "not closed" in requests(agent)[1].messages[-1].text  # it reads the critique
    endless = Agent(ScriptedModel(lambda _: wrong), tools=[add], worker=worker)
    failed = await runner.run(endless, "1 + 2?")
    assert (failed.state, len(requests(endless))) == ("failed", 3)


async def test_arguments_that_were_cut_off_run_nothing_and_the_model_sees_why(runner: Runner) -> None:
    agent = agent_of(call_raw("add", '{"a": 1, "b":'), call("add", a=1, b=2), text("3"))
    result = await runner.run(agent, "1 + 2?")
    assert [execution.outcome for execution in result.tool_executions] == ["invalid", "ok"]
    assert result.final_text == "3"


# ------------------------------------------------------------------------------ answers and inputs


@dataclass
class City:
    """What an answer is here."""

    name: str
    people: int


async def test_an_answer_of_the_wrong_type_goes_back_to_the_model_with_the_problem(
    runner: Runner,
) -> None:
    wrong, right = (
        call("final_answer", name="Oslo", people="many"),
        call("final_answer", name="Oslo", people=7),
    )
    agent = agent_of(wrong, right, output_type=City, output_retries=1)
    result = await runner.run(agent, "A city?")
    assert (result.state, result.output) == ("completed", City("Oslo", 7))
    assert "people" in conversation(result)[2][1]
    failed = await runner.run(agent_of(wrong, wrong, right, output_type=City, output_retries=1), "A city?")
    assert (failed.state, failed.output) == ("failed", None)
    assert failed.error is not None
    assert failed.error.kind == "invalid_output"


@pytest.mark.parametrize(
    ("kind", "answer"), [(bool, False), (int, 0), (str | None, None), (list[int], []), (dict[str, int], {})]
)
async def test_an_answer_that_is_falsy_is_an_answer(runner: Runner, kind: Any, answer: Any) -> None:
    answer_given = answer if isinstance(answer, dict) else {"answer": answer}
    typed = agent_of(call("final_answer", **answer_given), text("not asked"), output_type=kind)
    result = await runner.run(typed, "So?")
    assert (result.state, result.output, type(result.output)) == ("completed", answer, type(answer))

    async def worker(ctx: StepContext) -> StepResult:
        return StepResult(answer, is_last=True)

    own = await runner.run(agent_of("never asked", worker=worker), "So?")
    assert (own.state, own.output) == ("completed", answer)


@tool(read_only=True)
async def research(topic: str) -> ToolOutput:
    """Find out about a topic."""
    await asyncio.sleep(0.02 if topic == "slow" else 0)
    sources = [{"title": topic, "url": f"https://e.org/{topic}"}, {"title": "index", "url": "https://e.org"}]
    return ToolOutput(
        f"about {topic}", sources=sources, artifacts=[File(data=topic.encode(), name=f"{topic}.txt")]
    )


async def test_the_sources_of_all_steps_are_collected_in_call_order(runner: Runner) -> None:
    both = turn(calls=[call("research", topic="slow"), call("research", topic="quick")])
    agent = agent_of(both, call("research", topic="last"), text("All."), tools=[research])
    result = await runner.run(agent, "go")
    assert [source["title"] for source in result.sources] == ["slow", "index", "quick", "last"]
    await runner.undo_step(result.task_id, to=1)
    saved = await runner.result(result.task_id)
    assert [source["title"] for source in saved.sources] == ["slow", "index", "quick"]


async def test_artifacts_of_tools_are_stored_with_the_task_under_an_id(runner: Runner) -> None:
    result = await runner.run(agent_of(call("research", topic="oaks"), text("Done."), tools=[research]), "go")
    [artifact] = result.artifacts
    assert (artifact.name, artifact.media_type, artifact.size) == ("oaks.txt", "text/plain", 4)
    assert (await runner.get_artifact(result.task_id, artifact.artifact_id)).data == b"oaks"
    fork = await runner.fork(result.task_id, at="s1")
    assert (await runner.get_artifact(fork, artifact.artifact_id)).data == b"oaks"


@pytest.mark.parametrize("worker", ["function_calling", "react"])
async def test_images_and_files_reach_the_model_with_the_text(runner: Runner, worker: Any) -> None:
    @tool(read_only=True)
    async def snap() -> list[Any]:
        """Take a picture."""
        return ["taken:", Image(data=b"another picture", media_type="image/png")]

    request_for = call("snap") if worker == "function_calling" else text("Action: snap\nAction Input: {}")
    agent = agent_of(request_for, text("Answer: Two pictures."), tools=[snap], worker=worker)
    picture, page = Image(data=b"a picture", media_type="image/png"), File(url="https://e.org/page.pdf")
    result = await runner.run(agent, ["What is this?", picture, page])
    first, last = requests(agent)
    assert [type(part).__name__ for part in first.messages[0].parts] == ["Text", "Image", "File"]
    assert first.messages[0].parts[1].data == b"a picture"
    shown = last.messages[-1].parts if worker == "react" else last.messages[-1].parts[0].parts
    assert [part.data for part in shown if isinstance(part, Image)] == [b"another picture"]
    assert result.state == "completed"


async def test_a_new_thread_is_a_new_conversation(runner: Runner) -> None:
    agent = agent_of("Hello.", tools=[])
    await runner.run(agent, "I am Ada.", thread_id="first")
    await runner.run(agent, "Who am I?", thread_id="first")
    elsewhere = await runner.run(agent, "Who am I?", thread_id="second")
    unnamed = await runner.run(agent, "Who am I?")
    assert [len(request.messages) for request in requests(agent)] == [1, 3, 1, 1]
    assert [message.text for message in requests(agent)[1].messages] == ["I am Ada.", "Hello.", "Who am I?"]
    assert len({"first", elsewhere.thread_id, unnamed.thread_id}) == 3


async def test_a_function_of_instructions_is_called_once_per_run(runner: Runner) -> None:
    instructions_asked: list[str] = []

    def instructions(run: RunContext[str]) -> str:
        instructions_asked.append(run.context)
        return f"Serve {run.context}. They ask: {run.input[0].text}"  # type: ignore[union-attr]

    agent = agent_of(call("add", a=1, b=2), text("3"), instructions=instructions)
    for name in ("Ada", "Bob"):
        await runner.run(agent, "1 + 2?", context=name)
    told = [request.instructions for request in requests(agent)]
    assert told == [f"Serve {name}. They ask: 1 + 2?" for name in ("Ada", "Ada", "Bob", "Bob")]
    assert instructions_asked == ["Ada", "Bob"]
