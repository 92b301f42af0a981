"""Requests to a model: in the conversation, after it, and beside it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest
from pydantic import BaseModel

from tests.cast import Ledger, look
from tests.engine.selectors import Phases, names
from tests.property.mortal import MortalStore, next_life
from tests.runner.acts import assert_journal_makes_sense
from treadle import (
    Agent,
    Ask,
    Limits,
    ModelSettings,
    NextStep,
    Node,
    Pipeline,
    PlanRefine,
    Runner,
    RunOptions,
    RunResult,
    ScriptedModel,
    StepContext,
    StepResult,
    ToolSpec,
    Usage,
    tool,
)
from treadle.core.events import ModelStarted
from treadle.core.messages import Message, Text, user
from treadle.core.model import ModelRequest
from treadle.errors import StoreError
from treadle.llm.scripted import Turn, call, fail, text, turn
from treadle.replay.recording import journal_of
from treadle.stores.memory import MemoryStore
from treadle.testing.audit import Evidence, audit_store

pytestmark = pytest.mark.anyio


async def test_a_request_after_the_conversation_sees_it_and_leaves_it_as_it_was() -> None:
    seen: list[list[str]] = []

    def reply(request: ModelRequest) -> Turn:
        seen.append([message.text for message in request.messages])
        return text(f"answer {request.turn}")

    async def worker(ctx: StepContext[Any]) -> StepResult:
        await ctx.call_model()
        aside = await ctx.call_model("and?", after_conversation=True)
        side_messages = [user("and?"), Message("assistant", (Text("x"),)), user("no?")]
        again = await ctx.call_model(side_messages, after_conversation=True)
        alone = await ctx.call_model("and?")
        return StepResult([aside.message.text, again.message.text, alone.message.text], is_last=True)

    async with Runner("memory:") as runner:
        agent = Agent(ScriptedModel(reply), worker=worker)
        await runner.run(agent, "before", thread_id="talk")
        seen.clear()
        result = await runner.run(agent, "go", thread_id="talk")
    assert seen[0][-1] == "go"
    talk = [*seen[0], "answer 0"]
    assert seen[1:] == [[*talk, "and?"], [*talk, "and?", "x", "no?"], ["and?"]]
    assert result.output == ["answer 1", "answer 2", "answer 3"]
    assert [message.text for message in result.messages[:2]] == ["go", "answer 0"]


async def test_such_a_request_fits_the_window_like_one_in_the_conversation() -> None:
    model = ScriptedModel(lambda request: text("yes " * 200))

    async def worker(ctx: StepContext[Any]) -> StepResult:
        await ctx.call_model("and?", after_conversation=True)
        return StepResult("done", is_last=True)

    store = MemoryStore()
    async with Runner(store) as runner:
        for _ in range(5):
            await runner.run(Agent(model), "go " * 200, thread_id="talk")
        options = RunOptions(context_tokens=1000)
        await runner.run(Agent(model, worker=worker), "go", thread_id="talk", options=options)
    assert 2 < len(model.requests[-1].messages) < 12
    assert model.requests[-1].messages[-1].text == "and?"


# ----------- what a request is estimated at before it is sent, and whether that fits into what limits leave


async def test_the_last_answer_is_asked_for_where_it_fits_without_the_tools(store: Any) -> None:
    @tool(read_only=True, description="Look. " * 2_000)
    def look() -> str:
        return "seen"

    agent = Agent(ScriptedModel([turn("A guess.", usage=Usage(30, 5))]), name="a", tools=[look])
    async with Runner(store) as runner:
        result = await runner.run(agent, "go", options=RunOptions(limits=Limits(tokens=1_000)))
        assert (result.state, result.final_text) == ("degraded", "A guess.")
        assert [request.tools for request in agent.model.requests] == [()]
        await assert_journal_makes_sense(runner, result.task_id)


@pytest.mark.parametrize(("reported", "requests"), [(2_000, 2), (4_000, 1)])
async def test_an_estimate_follows_what_the_model_reports(store: Any, reported: int, requests: int) -> None:
    """By the rule of thumb, the prompt has 5,000 tokens: after 2,000 it would not fit into the rest of 6,500."""

    script = [turn("", [call("look")], usage=Usage(reported, 5)), turn("Done.", usage=Usage(reported, 5))]
    agent = Agent(ScriptedModel(script), name="a", tools=[look])
    options = RunOptions(limits=Limits(tokens=6_500), on_limit="fail")
    async with Runner(store) as runner:
        result = await runner.run(agent, "word " * 4_000, options=options)
        assert (result.state, len(agent.model.requests)) == (
            "completed" if requests == 2 else "failed",
            requests,
        )


async def test_a_part_of_requests_that_does_not_grow_is_not_multiplied(store: Any) -> None:
    """A provider adds 400 tokens of its own to a short request: a longer one has no more of them."""

    @tool(read_only=True)
    def look() -> str:
        return "word " * 800

    script = [turn("", [call("look")], usage=Usage(430, 5)), turn("Done.", usage=Usage(1_430, 5))]
    agent = Agent(ScriptedModel(script), name="a", tools=[look])
    async with Runner(store) as runner:
        result = await runner.run(agent, "go", options=RunOptions(limits=Limits(tokens=4_000)))
        assert (result.state, result.final_text) == ("completed", "Done.")


# ----------------- `Agent(offer=)`: each request holds some of an agent's tools, and the journal says which


async def offered(runner: Runner, result: Any) -> list[tuple[str, ...] | None]:
    events = await journal_of(runner.store, result.task_id)
    return [event.offered for event in events if isinstance(event, ModelStarted)]


async def test_each_request_offers_the_selected_tools_and_the_journal_names_them(runner: Runner) -> None:
    ledger = Ledger()
    offer = Phases(["look"], ("mail", "book", "mail"), ())
    agent = ledger.agent(call("look", what="room"), call("book", what="room"), "Booked.", offer=offer)
    result = await runner.run(agent, "Book a room.", context="mine")
    assert (result.state, result.final_text) == ("completed", "Booked.")
    assert [names(request) for request in agent.model.requests] == [["look"], ["book", "mail"], []]
    assert await offered(runner, result) == [("look",), ("book", "mail"), ()]
    ctx = offer.asked[1]
    assert (ctx.task_id, ctx.step, ctx.context) == (result.task_id, 2, "mine")
    assert [message.role for message in ctx.messages] == ["user", "assistant", "tool"]
    assert ctx.tools == agent.tools
    assert await audit_store(runner.store, Evidence(ended=True)) == []


async def test_an_offer_may_return_the_tools_themselves_and_without_one_the_journal_says_nothing(
    runner: Runner,
) -> None:
    agent = Ledger().agent("Hello.", offer=lambda ctx: [tool for tool in ctx.tools if tool.spec.read_only])
    assert await offered(runner, await runner.run(agent, "go")) == [("look",)]
    assert await offered(runner, await runner.run(agent.replace(offer=None), "go")) == [None]
    assert names(agent.model.requests[1]) == ["look", "book", "mail"]


async def test_a_call_of_a_tool_that_was_not_offered_does_not_run_and_the_model_can_act_on_that(
    runner: Runner,
) -> None:
    ledger = Ledger()
    agent = ledger.agent(
        call("book", what="room"),
        call("lok", what="room"),
        call("book", what="room"),
        "Booked.",
        offer=Phases(["look", "mail"], ["look"], ["book"]),
    )
    result = await runner.run(agent, "Book a room.")
    assert [(run.name, run.outcome) for run in result.tool_executions] == [
        ("book", "invalid"),
        ("lok", "invalid"),
        ("book", "ok"),
    ]
    assert ledger.entries == ["book room"]
    results = [part.text for message in result.messages for part in message.parts if message.role == "tool"]
    assert results[0] == (
        "book was not run: it was not offered in this turn. Offered were: look, mail. "
        "Call it again if a later turn offers it."
    )
    assert results[1] == "There is no tool 'lok'. Did you mean 'look'? Tools: look."
    assert await audit_store(runner.store, Evidence(ended=True)) == []


# ------------------------------------------------------------------------------ the same request again


async def driven(store: Any, agent: Agent[Any]) -> RunResult | None:
    with suppress(StoreError):
        async with Runner(store, agents=[agent]) as runner:
            return await runner.run(agent, "Book a room.", task_id="t1")
    return None


async def test_a_request_whose_answer_was_lost_is_made_again_with_the_same_tools() -> None:
    life = MortalStore(MemoryStore())
    offered_names: list[list[str]] = []

    async def reply(request: Any) -> Any:
        offered_names.append(names(request))
        if len(offered_names) == 2:
            async with Runner(life.real) as reader:
                while await offered(reader, request) != [("look",), ("a",)]:  # noqa: ASYNC110  it is on its way there
                    await asyncio.sleep(0.001)
            life.die()
        return call("look", what="room") if request.turn == 0 else "Seen."

    @tool(read_only=True)
    async def look(what: str) -> str:
        """Look something up."""
        return what

    others = [tool(lambda: None, name=name) for name in ("a", "b", "c")]
    offer = Phases(["look"], ["a"], ["b"], ["c"])
    agent = Agent(ScriptedModel(reply), name="clerk", tools=[look, *others], offer=offer)
    assert await driven(life, agent) is None
    offer.phases = (["c"], ["c"])  # what the selector would return now
    before = len(offer.asked)
    second = await next_life(life, None)
    result = await driven(second, agent)
    assert result is not None
    assert result.state == "completed"
    assert offered_names == [["look"], ["a"], ["a"]]
    assert len(offer.asked) == before
    async with Runner(second.real) as reader:
        assert await offered(reader, result) == [("look",), ("a",), ("a",)]


async def test_a_retry_and_a_fork_offer_the_same_tools_until_a_message_arrives(runner: Runner) -> None:
    offer = Phases(["look"])
    agent = Ledger().agent(fail(500), fail(500), fail(500), "Hello.", offer=offer)
    failed = await runner.run(agent, "go")
    assert failed.state == "failed"
    offer.phases = (["mail"],)
    fork = await runner.fork(failed.task_id, at=len(await journal_of(runner.store, failed.task_id)) - 1)
    assert (await runner.resume(fork)).state == "failed", "as its parent's step did"
    await runner.resume(fork)
    again = await runner.resume(failed.task_id)
    assert again.state == "failed"
    assert await offered(runner, fork) == [("look",), ("look",)]
    assert await offered(runner, again) == [("look",), ("look",)]
    assert len(offer.asked) == 1
    await runner.send(failed.task_id, "Mail it.")
    assert (await runner.resume(failed.task_id)).state == "failed"
    assert (await offered(runner, failed))[-1] == ("mail",)


def _mail(ctx: Any) -> list[str]:
    return ["mail"]


@pytest.mark.parametrize("forked", [False, True])
async def test_another_version_of_the_agent_chooses_for_itself_in_the_task_and_in_a_fork(
    runner: Runner, forked: bool
) -> None:
    agent = Ledger().agent(fail(500), "Hello.", offer=Phases(["look", "book"]))
    task = (await runner.run(agent, "go")).task_id
    wider = Ledger().agent(fail(500), "Hello.", offer=_mail)
    if forked:
        at = len(await journal_of(runner.store, task)) - 1
        task = (await runner.fork(task, at=at, agent=wider)).task_id
        assert (await runner.resume(task)).state == "failed", "as its parent's step did"
    result = await runner.resume(task, agent=wider)
    assert await offered(runner, result) == [("look", "book"), ("mail",)]


async def test_a_retry_after_an_answer_of_the_wrong_type_selects_tools_again(runner: Runner) -> None:
    offer = Phases(["look"])
    agent = Ledger().agent(
        "no number", "5", offer=offer, output_type=int, output_mode="prompt", output_retries=0
    )
    failed = await runner.run(agent, "go")
    assert failed.state == "failed"
    offer.phases = (["mail"],)
    result = await runner.resume(failed.task_id)
    assert (result.state, await offered(runner, result)) == ("completed", [("look",), ("mail",)])


async def test_a_last_answer_at_a_limit_offers_no_tools_and_calls_no_selector(runner: Runner) -> None:
    offer = Phases(["look"])
    agent = Ledger().agent(call("look", what="room"), "So far.", offer=offer, limits=Limits(steps=1))
    result = await runner.run(agent, "go")
    assert (result.state, len(offer.asked)) == ("degraded", 1)
    assert await offered(runner, result) == [("look",), None]
    assert names(agent.model.requests[1]) == []


async def test_a_call_is_taken_back_though_its_tool_is_not_offered_any_more(runner: Runner) -> None:
    ledger = Ledger()
    agent = ledger.agent(
        call("book", what="room"), call("look", what="sky"), "Done.", offer=Phases(["book"], ["look"], [])
    )
    result = await runner.run(agent, "Book a room.")
    report = await runner.undo_step(result.task_id, to=0)
    assert [(each.tool, each.verdict) for each in report.calls] == [
        ("look", "nothing_to_compensate"),
        ("book", "compensated"),
    ]
    assert ledger.entries == ["book room", "look sky", "unbook room (room booked)"]


# --------------------------------------------------------------------------------- beside other features


async def test_the_tool_that_gives_a_typed_answer_is_always_there(runner: Runner) -> None:
    class Room(BaseModel):
        number: int

    agent = Ledger().agent(
        call("look", what="room"),
        call("final_answer", number=5),
        offer=Phases(["look"], []),
        output_type=Room,
        output_mode="tool",
    )
    result = await runner.run(agent, "go")
    assert result.output == Room(number=5)
    assert [names(request) for request in agent.model.requests] == [
        ["look", "final_answer"],
        ["final_answer"],
    ]
    assert await offered(runner, result) == [("look",), ()]


async def test_a_tool_that_the_model_must_call_is_always_offered(runner: Runner) -> None:
    settings = ModelSettings(tool_choice="book")
    agent = Ledger().agent(
        call("book", what="room"), "Done.", offer=Phases(["look"]), model_settings=settings
    )
    result = await runner.run(agent, "go")
    assert await offered(runner, result) == [("look", "book"), ("look",)]


async def test_a_request_of_a_step_function_offers_the_selected_tools_unless_it_names_tools(
    runner: Runner,
) -> None:
    async def worker(ctx: StepContext) -> StepResult:
        answer = await ctx.call_model()
        if not answer.message.tool_calls:
            await ctx.call_model("Spell check.")
            await ctx.call_model("Mail it.", tools=["mail"])
            return StepResult(answer.message.text, is_last=True)
        await ctx.call_tools(answer)
        return StepResult(next_steps=[NextStep("turn")])

    ledger = Ledger()
    script = [call("book", what="room"), call("book", what="room"), "Booked.", "Fine.", "Mailed."]
    offer = Phases(["look"], ["book"], ["look"])
    agent = ledger.agent(*script, offer=offer, worker=worker)
    result = await runner.run(agent, "Book a room.")
    assert (result.state, result.final_text) == ("completed", "Booked.")
    assert [(run.name, run.outcome) for run in result.tool_executions] == [
        ("book", "invalid"),
        ("book", "ok"),
    ]
    assert ledger.entries == ["book room"]
    assert [names(request) for request in agent.model.requests] == [
        ["look"],
        ["book"],
        ["look"],
        [],
        ["mail"],
    ]
    assert await offered(runner, result) == [("look",), ("book",), ("look",), None, None]
    assert [message.role for message in offer.asked[1].messages] == ["user", "assistant", "tool"]
    assert await audit_store(runner.store, Evidence(ended=True)) == []


async def test_a_side_request_may_have_tools_selected_by_its_own_messages(runner: Runner) -> None:
    async def worker(ctx: StepContext) -> StepResult:
        await ctx.call_model("Look.", tools="offered")
        await ctx.call_model("And?", tools="offered", after_conversation=True)
        return StepResult("Done.", is_last=True)

    offer = Phases(["look"])
    agent = Ledger().agent("A.", "B.", offer=offer, worker=worker)
    await runner.run(agent, "Book a room.")
    assert [names(request) for request in agent.model.requests] == [["look"], ["look"]]
    assert [[message.text for message in asked.messages] for asked in offer.asked] == [
        ["Look."],
        ["Book a room.", "And?"],
    ]
    every = agent.replace(offer=None, model=ScriptedModel(["A.", "B."]))
    await runner.run(every, "Book a room.")
    assert [len(names(request)) for request in every.model.requests] == [len(every.tools)] * 2


def _planned(request: Any) -> Any:
    if request.tools:
        return call("book", what="room") if request.messages[-1].role == "user" else "It cannot be done."
    if "Plan 1 has run" in request.messages[-1].text:
        return '{"thought": "", "answer": "no room"}'
    return '{"thought": "", "sub_tasks": [{"id": "a", "task": "book a room", "after": []}]}'


async def _asks_on_the_side(ctx: StepContext) -> StepResult:
    await ctx.call_tools(await ctx.call_model("Book a room.", tools=["look"]))
    return StepResult("no room", is_last=True)


@pytest.mark.parametrize(
    ("worker", "offer"),
    [
        (_asks_on_the_side, None),
        (Pipeline([Node("go", run=Ask("Book.", tools=["look"]))]), None),
        (PlanRefine(), lambda _: ["look"]),
    ],
)
async def test_a_call_of_a_tool_that_a_request_on_the_side_did_not_hold_does_not_run(
    runner: Runner, worker: Any, offer: Any
) -> None:
    ledger = Ledger()
    agent = ledger.agent(worker=worker, offer=offer).replace(model=ScriptedModel(_planned))
    result = await runner.run(agent, "Book a room.")
    assert [(run.name, run.outcome) for run in result.tool_executions] == [("book", "invalid")]
    assert (result.state, ledger.entries) == ("completed", [])
    assert await audit_store(runner.store, Evidence(ended=True)) == []


async def test_a_call_that_was_not_offered_and_met_a_limit_does_not_run_once_that_is_raised(
    runner: Runner,
) -> None:
    async def worker(ctx: StepContext) -> StepResult:
        await ctx.call_tools(await ctx.call_model(tools=["look"]))
        return StepResult("done", is_last=True)

    ledger = Ledger()
    both_calls = turn(calls=[call("look", what="room"), call("book", what="room")])
    agent = ledger.agent(both_calls, worker=worker).replace(limits=Limits(tool_calls=1))
    result = await runner.run(agent, "Book a room.")
    assert [run.outcome for run in result.tool_executions] == ["ok", "refused"]
    raised = RunOptions(limits=Limits(tool_calls=5))
    result = await runner.resume(result.task_id, agent=agent, options=raised)
    assert [run.outcome for run in result.tool_executions] == ["ok", "invalid"]
    assert (result.state, ledger.entries) == ("completed", ["look room"])


@pytest.mark.parametrize(("offer_then", "chosen"), [(None, "look"), (_mail, "mail")])
async def test_a_request_of_a_function_that_is_made_again_offers_the_same_unless_its_agent_is_another(
    tmp_path: Any, offer_then: Any, chosen: str
) -> None:
    async def worker(ctx: StepContext) -> StepResult:
        return StepResult((await ctx.call_model()).message.text, is_last=True)

    async def reply(request: Any) -> Any:
        if request.attempt == 1:
            await asyncio.sleep(30)
        return "Hello."

    offer = Phases(["look"])
    agent = Ledger().agent(offer=offer, worker=worker).replace(model=ScriptedModel(reply))
    async with Runner(tmp_path / "journal.db") as runner:
        handle = await runner.start(agent, "go")
        async for event in handle.events():
            if getattr(event, "kind", "") == "model_started":
                break
        await handle.interrupt()
        offer.phases = (["mail"],)
        other = agent if offer_then is None else agent.replace(offer=offer_then)
        again = await runner.resume(handle.task_id, agent=other)
        assert (again.state, await offered(runner, again)) == ("completed", [("look",), (chosen,)])
        assert len(offer.asked) == 1


async def test_a_text_dialect_describes_only_the_offered_tools(runner: Runner) -> None:
    for worker, first_answer in (("react", "Thought: Yes.\nAnswer: Done."), ("planner", None)):
        answer = first_answer or '{"thought": "Yes.", "name": "finish", "arguments": {"answer": "Done."}}'
        agent = Ledger().agent(answer, offer=Phases(["book"]), worker=worker)
        result = await runner.run(agent, "go")
        assert (result.final_text, await offered(runner, result)) == ("Done.", [("book",)])
        told = agent.model.requests[0].instructions
        assert "Book something." in told
        assert "Look something up." not in told
        assert "mail" not in told


async def test_room_is_kept_for_the_tools_of_the_request_and_not_for_all(runner: Runner) -> None:
    many = [tool(lambda: None, name=f"t{n}", description="x" * 400) for n in range(100)]
    agent = Agent(ScriptedModel(["Hello."] * 4), tools=many, offer=Phases(["t1", "t2"], ["t3"]))
    assert (await runner.run(agent, "go", options=RunOptions(context_tokens=2_000))).state == "completed"
    whole = await runner.run(agent.replace(offer=None), "go", options=RunOptions(context_tokens=2_000))
    assert whole.error is not None
    assert whole.error.kind == "too_large"


async def test_larger_tools_leave_less_room_for_messages(runner: Runner) -> None:
    from treadle.core.tokens import message_tokens, request_tokens

    @tool(read_only=True)
    async def read(page: int) -> str:
        """Read a page."""
        return "x" * 600

    large = [tool(lambda: None, name=f"t{n}", description="x" * 300) for n in range(20)]
    offer = Phases(*[["read", *[f"t{n}" for n in range(step % 15)]] for step in range(1, 41)])
    agent = Agent(
        ScriptedModel(lambda request: "read" if request.turn == 40 else call("read", page=request.turn)),
        tools=[read, *large],
        offer=offer,
    )
    assert (await runner.run(agent, "go", options=RunOptions(context_tokens=4_000))).state == "completed"
    sizes: list[int] = []
    for request in agent.model.requests:
        specs: list[ToolSpec] = list(request.tools)
        sizes.append(request_tokens(request.instructions, specs) + sum(map(message_tokens, request.messages)))
    assert max(sizes) <= 4_000
    assert max(sizes) > 2_500, "it shows as much as fits"
