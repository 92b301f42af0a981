"""Guardrails in tasks: what is checked passes, is rewritten, asked about or refused, and nothing goes before that."""

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from treadle import (
    Agent,
    Allow,
    AskPerson,
    Deny,
    Guardrail,
    GuardrailRequest,
    NextStep,
    Rewrite,
    Runner,
    RunOptions,
    ScriptedModel,
    StepContext,
    StepResult,
    ToolContext,
    tool,
)
from treadle.errors import GuardrailStopped, TaskFailed
from treadle.events import (
    AnswerHeld,
    GuardrailJudged,
    ModelFailed,
    ModelReturned,
    ModelStarted,
    ModelStopped,
    StepStarted,
    ToolStarted,
)
from treadle.llm.scripted import call, text

pytestmark = pytest.mark.anyio


@tool(read_only=True)
def look(name: str) -> str:
    """Look."""
    return f"{name}: card X4111"


def agent_of(*script: Any, **more: Any) -> Agent[Any]:
    return Agent(ScriptedModel(list(script)), name="desk", **{"tools": [look], **more})


def cards(request: GuardrailRequest) -> Rewrite | None:
    return Rewrite(request.text.replace("X4111", "[card]")) if "X4111" in request.text else None


def no_cards(request: GuardrailRequest) -> Deny | None:
    return Deny(reason="it has a card number") if "X4111" in request.text else None


def ask_cards(request: GuardrailRequest) -> AskPerson | None:
    return AskPerson(reason="it has a card number") if "X4111" in request.text else None


async def events_of(runner: Runner, task_id: str) -> list[Any]:
    return [event async for event in runner.handle(task_id).events()]


def verdicts(events: list[Any]) -> list[tuple[str, str, str | None]]:
    return [(e.guards, e.verdict, e.rule) for e in events if isinstance(e, GuardrailJudged)]


async def streamed(agent: Agent[Any]) -> tuple[Any, list[Any]]:
    async with Runner("memory:") as runner, runner.run_stream(agent, "Go.") as stream:
        shown = [event async for event in stream]
    return stream.result, shown


async def run(agent: Agent[Any], said: str = "Go.", **more: Any) -> tuple[Any, list[Any]]:
    async with Runner("memory:") as runner:
        result = await runner.run(agent, said, **more)
        return result, await events_of(runner, result.task_id)


# ------------------------------------------------------------------------------------------- input


@pytest.mark.parametrize("blocking", [True, False])
async def test_input_that_passes_goes_to_the_model_and_a_blocking_guardrail_judges_it_first(
    blocking: bool,
) -> None:
    agent = agent_of("Done.", guardrails=[Guardrail(no_cards, on="input", blocking=blocking)])
    result, events = await run(agent)
    assert (result.state, result.final_text) == ("completed", "Done.")
    assert verdicts(events) == [("input", "allow", None)]
    kinds = [e.kind for e in events if isinstance(e, (GuardrailJudged, StepStarted, ModelStarted))]
    assert (kinds == ["guardrail_judged", "step_started", "model_started"]) or not blocking


@pytest.mark.parametrize("blocking", [True, False])
async def test_refused_input_stops_the_task_with_a_typed_reason(blocking: bool) -> None:
    agent = agent_of(text("Never.", delay=5), guardrails=[Guardrail(no_cards, on="input", blocking=blocking)])
    result, events = await run(agent, "My card is X4111.")
    error = result.error
    assert (result.state, error.source, error.kind, error.rule) == (
        "failed",
        "guardrail",
        "input",
        "no_cards",
    )
    assert error.message == "the guardrail no_cards refused the input: it has a card number"
    with pytest.raises(GuardrailStopped) as caught:
        result.raise_for_state()
    assert isinstance(caught.value, TaskFailed)
    assert (caught.value.guards, caught.value.guardrail, caught.value.by) == ("input", "no_cards", None)
    assert [e for e in events if isinstance(e, ModelReturned)] == []
    assert (len(agent.model.requests), len([e for e in events if isinstance(e, ModelStopped)])) == (
        (0, 0) if blocking else (1, 1)
    )


@pytest.mark.parametrize("blocking", [True, False])
@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize("streams", [True, False])
async def test_a_guardrail_that_decides_late_still_comes_before_what_is_done(
    blocking: bool, is_async: bool, streams: bool
) -> None:
    acted: list[float] = []
    clock = asyncio.get_running_loop().time
    decided: list[float] = []

    @tool
    def act() -> str:
        """Act."""
        acted.append(clock())
        return "acted"

    async def late(request: GuardrailRequest) -> Deny:
        await asyncio.sleep(0.03)
        decided.append(clock())
        return Deny(reason="No.")

    def late_in_a_thread(request: GuardrailRequest) -> Deny:
        threading.Event().wait(0.03)
        decided.append(clock())
        return Deny(reason="No.")

    guardrail = Guardrail(late if is_async else late_in_a_thread, on="input", blocking=blocking)
    agent = Agent(ScriptedModel([call("act"), "Done."]), name="desk", tools=[act], guardrails=[guardrail])
    result, shown = await (streamed(agent) if streams else run(agent))
    assert (result.state, result.error.kind, len(decided), acted) == ("failed", "input", 1, [])
    assert [e for e in shown if isinstance(e, (ModelReturned, ToolStarted)) or e.kind == "delta"] == []


@pytest.mark.parametrize("blocking", [True, False])
async def test_rewritten_input_takes_the_place_of_the_old_one_and_both_are_in_the_journal(
    blocking: bool,
) -> None:
    model = ScriptedModel([text("Done.", delay=0.05)])
    agent = Agent(model, name="desk", guardrails=[Guardrail(cards, on="input", blocking=blocking)])
    result, events = await run(agent, "My card is X4111.")
    assert (result.state, result.final_text) == ("completed", "Done.")
    assert model.requests[-1].messages[-1].text == "My card is [card]."
    assert verdicts(events) == [("input", "rewrite", "cards"), ("input", "allow", None)]
    rewrite = next(e for e in events if isinstance(e, GuardrailJudged))
    assert (rewrite.content, rewrite.previous) == (
        {"text": "My card is [card]."},
        {"text": "My card is X4111."},
    )
    assert all("X4111" not in message.text for message in result.messages)


@pytest.mark.parametrize("blocking", [True, False])
async def test_input_that_a_person_is_asked_about_waits_also_in_another_process(
    store: Any, blocking: bool
) -> None:
    guardrail = Guardrail(ask_cards, on="input", blocking=blocking)
    agent = agent_of("Done.", guardrails=[guardrail])
    async with Runner(store, agents=[agent]) as runner:
        result = await runner.run(agent, "My card is X4111.")
    assert result.state == "waiting"
    async with Runner(store, agents=[agent]) as runner:
        (pending,) = await runner.list_pending()
        assert (pending.kind, pending.tool, pending.rule) == ("approval", "the input", "ask_cards")
        assert pending.arguments == {"text": "My card is X4111."}
        assert pending.text == "the guardrail ask_cards asks about the input: it has a card number"
        await runner.approve(result.task_id, by="ann")
        done = await runner.resume(result.task_id)
        events = await events_of(runner, result.task_id)
    assert (done.state, done.final_text) == ("completed", "Done.")
    assert verdicts(events) == [("input", "ask", "ask_cards")]


@pytest.mark.parametrize("approves", [True, False])
async def test_a_person_edits_or_refuses_what_a_guardrail_asks_about(approves: bool) -> None:
    agent = agent_of("Done.", guardrails=[Guardrail(ask_cards, on="input", blocking=True)])
    edited = "My card is X4111, that is a test card."
    async with Runner("memory:", agents=[agent]) as runner:
        task = (await runner.run(agent, "My card is X4111.")).task_id
        if approves:
            await runner.approve(task, arguments={"text": edited})
        else:
            await runner.deny(task, reason="Not here.", by="ann")
        done = await runner.resume(task)
    if approves:
        assert (done.state, agent.model.requests[0].messages[-1].text) == ("completed", edited)
    else:
        error = done.error
        assert (done.state, error.kind, error.rule, error.by) == ("failed", "input", "ask_cards", "ann")


async def test_a_headless_run_is_refused_what_a_person_would_be_asked() -> None:
    agent = agent_of("Done.", guardrails=[Guardrail(ask_cards, on="input")])
    result, _ = await run(agent, "X4111", options=RunOptions(interaction="headless"))
    assert (result.state, result.error.rule) == ("failed", "ask_cards")


# ---------------------------------------------------------------------------------------- failures


def raising(request: GuardrailRequest) -> None:
    raise KeyError("gone")


async def slow(request: GuardrailRequest) -> None:
    await asyncio.sleep(5)


def nonsense(request: GuardrailRequest) -> Any:
    return "yes"


def endless(request: GuardrailRequest) -> Rewrite:
    return Rewrite(request.text + "!")


def exits(request: GuardrailRequest) -> None:
    raise SystemExit(3)


async def exits_in_the_loop(request: GuardrailRequest) -> None:
    raise SystemExit(3)


@pytest.mark.parametrize("on", ["input", "output", "result"])
@pytest.mark.parametrize(
    ("function", "why"),
    [
        (exits, "the guardrail failed: it raised SystemExit: 3"),
        (exits_in_the_loop, "the guardrail failed: it raised SystemExit: 3"),
        (raising, "the guardrail failed: KeyError"),
        (slow, "the guardrail failed: it took longer than 0.05 s"),
        (nonsense, "the guardrail returned a str, which is no verdict"),
        (endless, "it was rewritten 8 times, and is not accepted yet"),
    ],
)
async def test_a_guardrail_that_does_not_decide_refuses(on: Any, function: Any, why: str) -> None:
    agent = agent_of(call("look", name="x"), "Done.", guardrails=[Guardrail(function, on=on, deadline=0.05)])
    result, _ = await run(agent)
    assert (result.state, result.error.kind, why in result.error.message) == ("failed", on, True), (
        result.error
    )
    assert ("KeyError" in result.error.traceback) is (function is raising)


# ------------------------------------------------------------------------------------------ output


async def test_an_answer_that_passes_is_returned() -> None:
    agent = agent_of(call("look", name="x"), "Done.", guardrails=[Guardrail(no_cards, on="output")])
    result, events = await run(agent)
    assert (result.state, result.final_text) == ("completed", "Done.")
    assert verdicts(events) == [("output", "allow", None)] * 2
    assert [e.message.parts for e in events if isinstance(e, AnswerHeld)] == [(), ()]


async def test_a_refused_answer_stops_the_task_and_is_shown_nowhere() -> None:
    agent = agent_of("Your card is X4111.", guardrails=[Guardrail(no_cards, on="output")])
    async with Runner("memory:") as runner:
        async with runner.run_stream(agent, "Go.") as stream:
            shown = [event async for event in stream]
        result = stream.result
        events = await events_of(runner, result.task_id)
    assert (result.state, result.error.kind, result.error.rule) == ("failed", "output", "no_cards")
    assert "X4111" not in repr(shown) + repr(events) + repr(result) + str(result.messages)
    assert [e.error.source for e in events if isinstance(e, ModelFailed)] == ["guardrail"]


async def test_a_task_that_goes_on_after_a_refusal_asks_the_model_anew() -> None:
    model = ScriptedModel(lambda request: "X4111" if request.attempt == 1 else "Done.")
    agent = Agent(model, name="desk", guardrails=[Guardrail(no_cards, on="output")])
    async with Runner("memory:", agents=[agent]) as runner:
        result = await runner.run(agent, "Go.")
        done = await runner.resume(result.task_id)
    assert (result.state, done.state, done.final_text) == ("failed", "completed", "Done.")


async def test_a_rewritten_answer_is_what_the_task_says_and_both_versions_are_in_the_journal() -> None:
    agent = agent_of("Your card is X4111.", guardrails=[Guardrail(cards, on="output")])
    async with Runner("memory:") as runner:
        result = await runner.run(agent, "Go.")
        exported = await runner.store.read(result.task_id)
        events = await events_of(runner, result.task_id)
    assert (result.final_text, "X4111" in repr(events)) == ("Your card is [card].", False)
    raw = b"".join(record.data for record in exported)
    assert b"Your card is X4111." in raw
    assert b"Your card is [card]." in raw


async def test_an_answer_that_a_person_is_asked_about_waits_and_is_shown_to_the_approver_alone(
    store: Any,
) -> None:
    agent = agent_of("Your card is X4111.", guardrails=[Guardrail(ask_cards, on="output")])
    async with Runner(store, agents=[agent]) as runner:
        async with runner.run_stream(agent, "Go.") as stream:
            shown = [event async for event in stream]
        result = stream.result
        assert (result.state, "X4111" in repr(shown)) == ("waiting", False)
    async with Runner(store, agents=[agent]) as runner:
        (pending,) = await runner.list_pending()
        assert pending.arguments == {"text": "Your card is X4111."}
        await runner.approve(result.task_id, arguments={"text": "Your card ends with 11."}, by="ann")
        done = await runner.resume(result.task_id)
        events = await events_of(runner, result.task_id)
    assert (done.state, done.final_text) == ("completed", "Your card ends with 11.")
    assert "X4111" not in repr(events)
    assert len(agent.model.requests) == 1


@dataclass
class Card:
    """A card."""

    number: str


def typed_cards(request: GuardrailRequest) -> Rewrite | None:
    if request.part == "answer" and request.value["number"] != "none":
        return Rewrite({"number": "none"})
    return None


@pytest.mark.parametrize("mode", ["native", "tool", "prompt"])
@pytest.mark.parametrize("function", [typed_cards, no_cards])
async def test_typed_answers_are_judged_as_data(mode: Any, function: Any) -> None:
    said = call("final_answer", number="X4111") if mode == "tool" else text('{"number": "X4111"}')
    guardrails = [Guardrail(function, on="output")]
    agent = agent_of(said, tools=[], output_type=Card, output_mode=mode, guardrails=guardrails)
    result, shown = await streamed(agent)
    assert "X4111" not in repr(shown) + repr(result)
    if function is typed_cards:
        assert (result.state, result.output) == ("completed", Card("none"))
    else:
        assert (result.state, result.error.kind) == ("failed", "output")


async def test_a_rewrite_that_is_not_of_the_output_type_refuses_the_answer() -> None:
    wrong = Guardrail(lambda request: Rewrite({"no": 1}), id="wrong", on="output")
    said = text('{"number": "X4111"}')
    result, _ = await run(agent_of(said, output_type=Card, output_mode="native", guardrails=[wrong]))
    assert (result.state, result.error.rule) == ("failed", "wrong")
    assert "not of its type" in result.error.message


async def test_the_thoughts_of_react_are_judged_too() -> None:
    said = text("Thought: the card is X4111\nAnswer: Done.")
    guardrails = [Guardrail(cards, on="output")]
    result, shown = await streamed(agent_of(said, tools=[], worker="react", guardrails=guardrails))
    assert (result.final_text, "X4111" in repr(shown)) == ("Done.", False)


@pytest.mark.parametrize("function", [cards, no_cards, ask_cards])
async def test_the_result_of_a_return_direct_tool_is_an_answer_too(function: Any) -> None:
    @tool(read_only=True, return_direct=True)
    def show() -> str:
        """Show."""
        return "card X4111"

    agent = agent_of(call("show"), tools=[show], guardrails=[Guardrail(function, on="output")])
    async with Runner("memory:", agents=[agent]) as runner:
        result = await runner.run(agent, "Go.")
        if function is cards:
            assert result.final_text == "card [card]"
        elif function is no_cards:
            assert (result.state, result.error.kind) == ("failed", "output")
        else:
            assert (result.state, result.pending[0].arguments) == ("waiting", {"answer": "card X4111"})
            await runner.approve(result.task_id)
            assert (await runner.resume(result.task_id)).final_text == "card X4111"


# ------------------------------------------------------------------------------------------ results


@pytest.mark.parametrize("function", [cards, no_cards, ask_cards])
async def test_results_are_judged_before_the_model_reads_them(function: Any) -> None:
    model = ScriptedModel([call("look", name="x"), "Done."])
    agent = Agent(model, name="desk", tools=[look], guardrails=[Guardrail(function, on="result")])
    async with Runner("memory:", agents=[agent]) as runner:
        result = await runner.run(agent, "Go.")
        if function is no_cards:
            assert (result.state, result.error.kind, len(model.requests)) == ("failed", "result", 1)
            result = await runner.resume(result.task_id)
            told = "[the guardrail no_cards refused the result: it has a card number]"
        elif function is ask_cards:
            assert (result.state, len(model.requests)) == ("waiting", 1)
            assert result.pending[0].arguments == {"result": "x: card X4111"}
            await runner.approve(result.task_id)
            result = await runner.resume(result.task_id)
            told = "x: card X4111"
        else:
            told = "x: card [card]"
    assert (result.state, result.final_text) == ("completed", "Done.")
    assert model.requests[1].messages[-1].parts[0].text == told


async def test_only_the_results_of_tools_that_a_guardrail_names_are_judged() -> None:
    agent = agent_of(
        call("look", name="x"), "Done.", guardrails=[Guardrail(no_cards, on="result", tools="fetch*")]
    )
    result, events = await run(agent)
    assert (result.state, verdicts(events)) == ("completed", [])


async def test_an_undo_is_given_what_the_tool_returned() -> None:
    undone: list[Any] = []

    @tool(undo=lambda call, ctx: undone.append(call.output))
    def book() -> str:
        """Book."""
        return "booking X4111"

    agent = agent_of(call("book"), "Done.", tools=[book], guardrails=[Guardrail(cards, on="result")])
    async with Runner("memory:", agents=[agent]) as runner:
        task = await runner.create_task(agent, "Go.")
        await runner.run_step(task)
        await runner.undo_step(task)
    assert undone == ["booking X4111"]


# -------------------------------------------------------------------------------- steps of functions


async def plain(ctx: StepContext[Any]) -> StepResult:
    answer = await ctx.call_model()
    for asked in answer.message.tool_calls:
        await ctx.call_tool(asked)
    if answer.message.tool_calls:
        return StepResult(next_steps=(NextStep("again"),))
    return StepResult(f"It says {answer.message.text}", is_last=True)


@pytest.mark.parametrize("on", ["input", "output", "result"])
@pytest.mark.parametrize("function", [cards, no_cards, ask_cards])
async def test_steps_that_are_functions_wait_for_guardrails_too(on: Any, function: Any) -> None:
    script = [call("look", name="x"), "card X4111"]
    agent = agent_of(*script, worker=plain, guardrails=[Guardrail(function, on=on)])
    model: Any = agent.model
    async with Runner("memory:", agents=[agent]) as runner:
        result = await runner.run(agent, "My card is X4111.")
        asked: list[Any] = []
        while result.state == "waiting":
            asked.append(result.pending[0].arguments)
            await runner.approve(result.task_id)
            result = await runner.resume(result.task_id)
        events = await events_of(runner, result.task_id)
    if function is no_cards:
        assert (result.state, result.error.source, result.error.kind) == ("failed", "guardrail", on)
        return
    assert result.state == "completed", result.error
    if function is ask_cards:
        assert len(asked) == (2 if on == "output" else 1)
        assert result.final_text == "It says card X4111"
    elif on == "output":
        assert result.final_text == "It says card [card]"
    elif on == "result":
        assert model.requests[1].messages[-1].parts[0].text == "x: card [card]"
    else:
        assert model.requests[0].messages[-1].text == "My card is [card]."
    assert all(event.verdict != "deny" for event in events if isinstance(event, GuardrailJudged))


# ------------------------------------------------------------------------------------- one mechanism


async def test_the_guardrails_of_the_runner_hold_for_every_agent_and_for_subagents() -> None:
    child = Agent(ScriptedModel(["card X4111"]), name="helper")
    agent = Agent(ScriptedModel([call("helper", input="x"), "Done."]), name="desk", subagents=[child])
    async with Runner("memory:", guardrails=[Guardrail(cards, on="output", agents="help*")]) as runner:
        result = await runner.run(agent, "Go.")
    assert result.tool_executions[0].output == "card [card]"


async def test_an_allow_is_not_needed_and_names_its_guardrail() -> None:
    agent = agent_of(
        "Done.", guardrails=[Guardrail(lambda request: Allow(), id="fine", on=["input", "output"])]
    )
    _, events = await run(agent)
    assert sorted(verdicts(events)) == [("input", "allow", "fine"), ("output", "allow", "fine")]


async def test_input_that_arrives_while_the_task_runs_is_judged_before_the_next_step() -> None:
    seen: list[str] = []

    def note(request: GuardrailRequest) -> Deny | None:
        seen.append(request.text)
        return no_cards(request)

    going: list[Callable[[], Any]] = []

    @tool(read_only=True)
    async def talk() -> str:
        """Talk."""
        await going[0]()
        return "talked"

    agent = agent_of(call("talk"), "Done.", tools=[talk], guardrails=[Guardrail(note, on="input")])
    async with Runner("memory:", agents=[agent]) as runner:
        task = await runner.create_task(agent, "Go.")
        going.append(lambda: runner.send(task, "My card is X4111."))
        result = await runner.resume(task)
    assert (seen, result.state, result.error.kind) == (["Go.", "My card is X4111."], "failed", "input")


async def test_what_was_judged_is_not_judged_again_when_the_task_goes_on_or_is_undone() -> None:
    seen: list[str] = []

    def note(request: GuardrailRequest) -> Rewrite | None:
        seen.append(f"{request.on}: {request.text}")
        return cards(request)

    agent = agent_of(call("look", name="x"), "Done.", guardrails=[Guardrail(note, on=["input", "result"])])
    async with Runner("memory:", agents=[agent]) as runner:
        task = await runner.create_task(agent, "X4111")
        await runner.run_step(task)
        before = list(seen)
        await runner.undo_step(task)
        result = await runner.resume(task)
    assert before == ["input: X4111", "input: [card]", "result: x: card X4111", "result: x: card [card]"]
    assert seen[4:] == ["result: x: card X4111", "result: x: card [card]"]
    assert result.state == "completed"
    assert agent.model.requests[-2].messages[-1].text == "[card]"


@pytest.mark.parametrize("function", [cards, no_cards])
async def test_the_result_of_a_call_in_the_background_is_judged_when_it_arrives(function: Any) -> None:
    tickets: list[str] = []

    @tool(background=True, idempotent=True)
    async def render(ctx: ToolContext) -> Any:
        """Render."""
        tickets.append(ctx.ticket)
        return ctx.background(expires=60)

    model = ScriptedModel([call("render"), "It renders.", "It is there."])
    guardrail = Guardrail(function, on="result", tools="render")
    agent = Agent(model, name="desk", tools=[render], guardrails=[guardrail])
    async with Runner("memory:", agents=[agent]) as runner:
        task = await runner.run(agent, "Go.")
        await runner.complete(tickets[0], "card X4111")
        result = await runner.resume(task.task_id)
        if function is no_cards:
            assert (result.state, result.error.kind, len(model.requests)) == ("failed", "result", 2)
            result = await runner.resume(task.task_id)
        told = model.requests[-1].messages[-1].text
    assert (result.state, result.final_text, "X4111" in told) == ("completed", "It is there.", False)
    assert ("[card]" in told, "refused the result" in told) == (function is cards, function is no_cards)


async def test_an_approval_for_always_lets_later_tasks_pass() -> None:
    agent = agent_of("Your card is X4111.", guardrails=[Guardrail(ask_cards, on="output")])
    async with Runner("memory:", agents=[agent]) as runner:
        result = await runner.run(agent, "Go.")
        await runner.approve(result.task_id, scope="always", by="ann")
        assert (await runner.resume(result.task_id)).state == "completed"
        assert (await runner.run(agent, "Go.")).state == "completed"
        (grant,) = await runner.list_grants()
        assert (grant.tool, grant.rule) == ("the answer", "ask_cards")
