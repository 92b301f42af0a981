"""The tasks of the recorded journals, one of each kind that a release must be able to read for ever.

Each story leaves a task of its own name in a store. An agent here may be added; one that recorded journals belong to is
not changed, so that they can be driven on.
"""

from __future__ import annotations

import asyncio
import io
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from treadle import (
    Agent,
    Ask,
    AskPerson,
    Breakpoint,
    Deny,
    File,
    Guardrail,
    GuardrailRequest,
    Handoff,
    Happened,
    Image,
    Limits,
    ModelRequest,
    NextLayer,
    NextStep,
    Node,
    NotHappened,
    Pipeline,
    Policy,
    RequestContext,
    Rewrite,
    Rule,
    Runner,
    RunOptions,
    ScriptedModel,
    StepContext,
    StepResult,
    Subagent,
    ToolContext,
    ToolInvocation,
    ToolOutput,
    tool,
    without_tool_calls,
)
from treadle.core import events as e
from treadle.core.messages import ToolCall
from treadle.drivers.continuing import commit
from treadle.engine.journal_writer import encode_record
from treadle.errors import StepFailed, TaskTooNew
from treadle.llm.scripted import call, fail, text, turn
from treadle.ports import Commit

Story = Callable[[Runner], Awaitable[None]]
Taking = Callable[[], Awaitable[Any]] | None
"""The context of a run whose journal is taken away in the middle of a call."""


@tool(read_only=True)
async def look(place: str) -> str:
    """Look at a place."""
    return f"{place} is free"


@tool
async def book(place: str, ctx: ToolContext[Taking]) -> str:
    """Book a place; nobody can take that back."""
    if ctx.context is not None:
        await ctx.context()
    return f"{place} booked"


async def _give_back(tool_call: ToolCall, ctx: ToolContext[Taking]) -> None:
    if ctx.context is not None:
        await ctx.context()


@tool(undo=_give_back)
async def reserve(place: str) -> str:
    """Reserve a place; that can be taken back."""
    return f"{place} reserved"


@tool(read_only=True)
async def read(words: int) -> str:
    """Read a long text."""
    return "word " * words


@tool(read_only=True)
async def break_down() -> str:
    """Fail."""
    raise RuntimeError("it broke")


@tool(read_only=True)
async def watch(ctx: ToolContext[Taking]) -> str:
    """Watch for a while."""
    if ctx.context is not None:
        await ctx.context()
    return "nothing moved"


@dataclass
class Room:
    """A room that a person wants."""

    kind: Literal["single", "double"]
    nights: int = 1


@tool(idempotent=True)
async def ask_for_room(place: str, ctx: ToolContext) -> str:
    """Hold a place, and ask which room it is to be."""
    held = await ctx.once("held", lambda: f"{place} held")
    room = await ctx.ask(f"Which room in {place}?", Room)
    late = await ctx.ask("Breakfast?", Literal["early", "late"])
    return f"{held}: {room.kind} for {room.nights}, {late}"


@tool(read_only=True)
async def confirm(ctx: ToolContext) -> str:
    """Ask whether to go on."""
    return f"confirmed: {await ctx.ask('Go on?', bool, default=False, expires=3_600)}"


async def _asks(ctx: StepContext) -> StepResult:
    first = await ctx.ask("First?", int)
    return StepResult(f"{first} {await ctx.ask('Second?', key='second')}", is_last=True)


TOOLS = [look, book, reserve, read, break_down, watch]


def _agent(name: str, *turns: Any, **more: Any) -> Agent[Any]:
    return Agent(ScriptedModel(list(turns)), name=name, tools=TOOLS, **more)


LOOKER = _agent(
    "looker", call("look", place="oslo"), text("Oslo is free."), text("Still free."), instructions="Be brief."
)
BOOKER = _agent("booker", call("look", place="rome"), call("book", place="rome"), text("Rome is booked."))
UNDOER = _agent("undoer", call("reserve", place="bonn"), call("reserve", place="bern"), text("Two places."))
READER = _agent("reader", call("read", words=5_000), text("A long text."))
SEVERAL = _agent(
    "several",
    turn(calls=[call("look", place="a"), call("break_down"), call("book", place="b"), call("nowhere", x=1)]),
    text("Some of it worked."),
)
FAILING = _agent(
    "failing", call("look", place="oslo"), fail(400, message="no such model"), text("It went on.")
)
WATCHER = _agent("watcher", call("watch"), text("All quiet."))
ENDLESS = _agent("endless", *[call("look", place=str(n)) for n in range(6)], text("Six places."))


@dataclass
class Place:
    """What a typed answer is here."""

    name: str
    free: bool


TYPED = _agent(
    "typed",
    call("final_answer", name="oslo"),
    turn(calls=[call("look", place="oslo"), call("final_answer", name="oslo", free="no idea")]),
    call("final_answer", name="oslo", free=True),
    output_type=Place,
    output_mode="tool",
)

IN_WORDS = _agent(
    "in_words",
    text("<think>Where?</think>Action: look\nAction Input: {"),
    text('Thought: I look.\nAction: look\nAction Input: {"place": "oslo"}\nObservation: made up'),
    text("Thought: I know.\nAnswer: Oslo is free."),
    worker="react",
)


def _by_step(ctx: RequestContext[Any]) -> list[str]:
    return ["look", "read"] if ctx.step < 3 else []


CHOOSER = _agent(
    "chooser",
    call("look", place="oslo"),
    call("book", place="oslo"),
    fail(400, message="no such model"),
    text("Oslo is free."),
    offer=_by_step,
)


@tool(read_only=True)
async def research(place: str) -> ToolOutput:
    """Find out about a place."""
    source = {"title": place.title(), "url": f"https://example.org/{place}", "$page": 1}
    report = File(data=place.encode() * 5_000, name=f"{place}.txt", meta={"pages": 1})
    return ToolOutput(f"{place} is old", sources=[source, "a guide"], artifacts=[report])


RESEARCHER = Agent(
    ScriptedModel(
        [turn(calls=[call("research", place="rome"), call("research", place="oslo")]), text("Both are old.")]
    ),
    name="researcher",
    tools=[research],
)


@tool(idempotent=True)
async def pay(ctx: ToolContext[Taking]) -> str:
    """Pay a bill, once for each key."""
    if ctx.context is not None:
        await ctx.context()
    return f"paid under {ctx.idempotency_key}"


PAYER: Agent[Any] = Agent(
    ScriptedModel(lambda r: text(r.messages[-1].parts[0].text) if r.turn else call("pay")),
    name="payer",
    tools=[pay],
)


@tool(read_only=True)
async def keep(key: str, value: Any, ctx: ToolContext[Taking]) -> list[str]:
    """Keep a value in the task's state."""
    ctx.state[key] = value
    ctx.state.pop("empty", None)
    ctx.state.setdefault("order", []).append(key)
    return list(ctx.state)


KEEPER: Agent[Any] = Agent(
    ScriptedModel(
        [
            call("keep", key="a", value=1),
            turn(calls=[call("keep", key="a", value=2), call("keep", key="b", value={"$blob": ["ü"]})]),
            text("Kept."),
        ]
    ),
    name="keeper",
    tools=[keep],
    instructions=lambda ctx: f"Keep things for {ctx.state.setdefault('user', 'ada')}.",
)


async def _keeping(ctx: StepContext[Any]) -> StepResult:
    ctx.state["steps"] = [*ctx.state.get("steps", []), ctx.name]
    if ctx.name == "start":
        return StepResult(
            next_steps=[NextStep("one"), NextStep("two"), NextStep("end", after=("one", "two"))]
        )
    if ctx.name != "end":
        await ctx.call_tool("keep", {"key": ctx.name, "value": len(ctx.state)})
    return StepResult(dict(ctx.state), is_last=ctx.name == "end")


@tool(needs_approval=lambda amount: amount > 10, preview=lambda order: f"pays for {order}")
async def refund(order: str, amount: int) -> str:
    """Pay money back."""
    return f"{amount} for {order}"


vars(refund)["code"] = ""  # other versions of Python compile it otherwise, and the journal is to be the same

REFUNDS = [call("refund", order=order, amount=amount) for order, amount in (("a", 5), ("b", 50), ("c", 60))]
INQUIRER: Agent[Any] = Agent(
    ScriptedModel([[call("ask_for_room", place="oslo"), call("confirm")], text("Booked.")]),
    name="inquirer",
    tools=[ask_for_room, confirm],
)
INQUIRING_STEPS: Agent[Any] = Agent(ScriptedModel([]), name="inquiring_steps", worker=_asks)
ASKER: Agent[Any] = Agent(
    ScriptedModel([turn(calls=REFUNDS), call("refund", order="d", amount=70), text("Paid.")]),
    name="asker",
    tools=[refund],
)
RULES = [
    Rule("no-c", "deny", tool="refund", when={"arguments.order": "c"}, reason="Order c is settled."),
    Rule("cap", "replace", tool="refund", when={"arguments.amount": {"above": 10}}, arguments={"amount": 10}),
    Rule("small", "allow", tool="refund", when={"arguments.amount": {"at_most": 10}}),
    Rule("second", "ask", model="*", when={"model_calls": 1}, reason="It is dear."),
    Rule("third", "deny", model="*", when={"model_calls": 2}, reason="Enough."),
]
JUDGED: Agent[Any] = Agent(
    ScriptedModel([turn(calls=REFUNDS), call("refund", order="d", amount=70), text("Paid.")]),
    name="judged",
    tools=[refund],
    policy=Policy(*RULES),
)

SHOP: Agent[Any] = Agent(
    ScriptedModel([call("transfer_to_front", reason="not mine"), text("It is on its way.")]),
    name="shop",
    instructions="You know the orders.",
    handoffs=["front"],
)
FRONT: Agent[Any] = Agent(
    ScriptedModel([call("transfer_to_shop", reason="an order"), call("transfer_to_shop")]),
    name="front",
    instructions="You greet.",
    handoffs=[Handoff(SHOP, filter=without_tool_calls)],
)


def _hide(request: GuardrailRequest) -> Rewrite | None:
    return Rewrite(request.text.replace("4111", "[card]")) if "4111" in request.text else None


def _ask(request: GuardrailRequest) -> AskPerson | None:
    return AskPerson(reason="It promises money.") if "EUR" in request.text else None


def _refuse(request: GuardrailRequest) -> Deny | None:
    return Deny(reason="It is an insult.") if "idiot" in request.text else None


def _said(request: ModelRequest) -> Any:
    if request.turn == 0:
        return call("look", place="4111")
    return text("You idiot." if request.attempt == 1 else "5 EUR to 4111.")


GUARDED: Agent[Any] = Agent(
    ScriptedModel(_said),
    name="guarded",
    tools=TOOLS,
    guardrails=[
        Guardrail(_hide, on=["input", "output", "result"], blocking=True),
        Guardrail(_ask, on="output"),
        Guardrail(_refuse, on="output"),
    ],
)

RETRYING: Agent[Any] = Agent(
    ScriptedModel([fail(500), fail(500), text("It is up.")]),
    name="retrying",
    worker=Pipeline([Node("ask", Ask("Are you up?"), retries=1)]),
)
KEEPING_STEPS: Agent[Any] = Agent(ScriptedModel([]), name="keeping_steps", worker=_keeping, tools=[keep])


@tool(undo=lambda call, ctx: None)
async def order(item: str, count: int) -> str:
    """Order some of an item."""
    return f"{count} of {item} ordered"


async def at_most_two(call: ToolInvocation, next: NextLayer) -> ToolOutput:
    call.note("limit", 2)
    return await next(call.with_arguments({**call.arguments, "count": min(call.arguments["count"], 2)}))


async def known_places(call: ToolInvocation, next: NextLayer) -> ToolOutput:
    if call.arguments.get("place") == "Oslo":
        return ToolOutput("Oslo is known to be free")
    return await next(call)


WRAPPED = Agent(
    ScriptedModel(
        [
            call("look", place="Oslo") + call("order", item="tea", count=5),
            call("look", place="Rome") + call("order", item="mugs", count=1),
            text("Ordered."),
        ]
    ),
    name="wrapped",
    tools=[look, tool(order, middleware=[at_most_two])],
    middleware=[known_places],
)


def _clerk_says(request: Any) -> Any:
    if not request.turn:
        return call("refund", order="A-7", amount=30)
    return text("It is paid.") if request.task_id.endswith("t2") else fail(400)


def _chief_says(request: Any) -> Any:
    if request.turn:
        return text("It is done.")
    return turn(calls=[call("clerk", input="Refund A-7."), call("poet", input="Say it in rhyme.")])


CLERK = Agent(ScriptedModel(_clerk_says), name="clerk", tools=[refund])
POET = Agent(ScriptedModel([text("Roses are paid.")]), name="poet")
CHIEF = Agent(
    ScriptedModel(_chief_says), name="chief", subagents=[Subagent(CLERK, retries=1, timeout=60), POET]
)


TICKETS: list[str] = []
"""What the tools of the story with background work handed out last."""


@tool(background=True, idempotent=True)
async def render(title: str, ctx: ToolContext[Any]) -> Any:
    """Render a film elsewhere."""
    TICKETS[:] = [ctx.ticket]
    return ctx.background({"job": title}, expires=3_600)


@tool(read_only=True)
async def nap(ctx: ToolContext[Any]) -> str:
    """Sleep a little."""
    await ctx.sleep(0.01)
    return "rested"


FILMS = Agent(
    ScriptedModel(
        [[call("render", title="Metropolis"), call("nap")], "It is being rendered.", "It is there."]
    ),
    name="films",
    tools=[render, nap],
)

AGENTS: list[Agent[Any]] = [
    FILMS,
    LOOKER,
    BOOKER,
    UNDOER,
    READER,
    SEVERAL,
    FAILING,
    WATCHER,
    ENDLESS,
    TYPED,
    IN_WORDS,
    CHOOSER,
    RESEARCHER,
    PAYER,
    KEEPER,
    KEEPING_STEPS,
    ASKER,
    INQUIRER,
    INQUIRING_STEPS,
    JUDGED,
    FRONT,
    RETRYING,
    WRAPPED,
    CHIEF,
    GUARDED,
]


# -------------------------------------------------------------------------------------------- stories


async def finished(runner: Runner) -> None:
    await runner.run(LOOKER, "Is Oslo free?", task_id="finished")


async def failed(runner: Runner) -> None:
    await runner.run(FAILING, "Go.", task_id="failed")


async def degraded(runner: Runner) -> None:
    await runner.run(ENDLESS, "Go.", task_id="degraded", options=RunOptions(limits=Limits(steps=2)))


async def limited(runner: Runner) -> None:
    options = RunOptions(limits=Limits(tool_calls=3), on_limit="pause")
    await runner.run(ENDLESS, "Go.", task_id="limited", options=options)


async def reopened(runner: Runner) -> None:
    options = RunOptions(limits=Limits(steps=2))
    await runner.run(ENDLESS, "Go.", task_id="reopened", options=options)
    await runner.resume("reopened", options=RunOptions(limits=Limits(steps=20)))


async def paused(runner: Runner) -> None:
    options = RunOptions(break_on=[Breakpoint(before_tool="book")])
    await runner.run(BOOKER, "Book.", task_id="paused", options=options)


async def cancelled(runner: Runner) -> None:
    await runner.create_task(BOOKER, "Book.", task_id="cancelled")
    await runner.run_step("cancelled")
    await runner.cancel("cancelled", reason="no money", by="ada")


async def created(runner: Runner) -> None:
    await runner.create_task(LOOKER, "Is Oslo free?", task_id="created", extra_state={"a": [1, None, "ü"]})


async def between_steps(runner: Runner) -> None:
    await runner.create_task(
        BOOKER, "Book.", task_id="between_steps", options=RunOptions(labels={"who": "ada"})
    )
    await runner.run_step("between_steps")
    await runner.send("between_steps", "Rather two places.", by="ada")
    await runner.send("between_steps", "The bus is late.", role="observation")


async def forked(runner: Runner) -> None:
    await runner.run(LOOKER, "Is Oslo free?", task_id="trunk")
    fork = await runner.fork("trunk", replace={"s1-0": "oslo is full"}, input="Look again.")
    await _named(runner, fork.task_id, "forked")


async def fork_of_a_deleted_task(runner: Runner) -> None:
    await runner.run(LOOKER, "Is Oslo free?", task_id="gone")
    fork = await runner.fork("gone", at="s1")
    await _named(runner, fork.task_id, "fork_of_a_deleted_task")
    await runner.delete_task("gone")


async def undone(runner: Runner) -> None:
    await runner.create_task(UNDOER, "Two places.", task_id="undone")
    for _ in range(2):
        await runner.run_step("undone")
    await runner.undo_step("undone", to=0)
    await runner.run_step("undone")


async def with_images_and_large_values(runner: Runner) -> None:
    picture = Image(data=bytes(range(256)) * 80, media_type="image/png")
    await runner.run(
        READER, ["Look at this: \u2028 \x00 ü 🚲", picture], task_id="with_images_and_large_values"
    )


async def parallel_tools(runner: Runner) -> None:
    await runner.run(SEVERAL, "All of it.", task_id="parallel_tools")


async def thread_of_two_turns(runner: Runner) -> None:
    await runner.run(LOOKER, "Is Oslo free?", task_id="first_turn", thread_id="ada")
    await runner.run(LOOKER, "And now?", task_id="thread_of_two_turns", thread_id="ada")


async def settled(runner: Runner) -> None:
    await _taken_away(runner, BOOKER, "settled")
    result = await runner.resume("settled")
    await runner.settle("settled", result.pending[0].request_id, NotHappened(), by="ada")
    await runner.resume("settled")


async def waiting_on_an_unknown_outcome(runner: Runner) -> None:
    await _taken_away(runner, BOOKER, "waiting_on_an_unknown_outcome")
    await runner.resume("waiting_on_an_unknown_outcome")


async def in_flight_in_a_read(runner: Runner) -> None:
    await _taken_away(runner, WATCHER, "in_flight_in_a_read")


async def in_flight_in_a_write(runner: Runner) -> None:
    await _taken_away(runner, BOOKER, "in_flight_in_a_write")


async def in_flight_under_a_key_of_its_own(runner: Runner) -> None:
    await _taken_away(runner, PAYER, "in_flight_under_a_key_of_its_own")


async def in_flight_in_an_undo(runner: Runner) -> None:
    taken: list[bytes] = []
    async with Runner("memory:", agents=AGENTS) as other:
        await other.create_task(UNDOER, "Two places.", task_id="in_flight_in_an_undo")
        for _ in range(2):
            await other.run_step("in_flight_in_an_undo")
        take = _taking(other, "in_flight_in_an_undo", taken)
        await other.undo_step("in_flight_in_an_undo", to=0, context=take)
    await _put(runner, taken[0])


async def skipped_and_edited(runner: Runner) -> None:
    name = "skipped_and_edited"
    await runner.create_task(FAILING, "Go.", task_id=name)
    await runner.edit_step(name, "Go on.", by="ada")
    await runner.run_step(name)
    try:
        await runner.run_step(name)
    except StepFailed:
        await runner.skip_step(name, by="ada")


async def with_an_unreadable_answer(runner: Runner) -> None:
    await runner.create_task(IN_WORDS, "Is Oslo free?", task_id="with_an_unreadable_answer")
    for _ in range(2):
        await runner.run_step("with_an_unreadable_answer")


async def with_offers(runner: Runner) -> None:
    await runner.run(CHOOSER, "Is Oslo free?", task_id="with_offers")


async def with_sources_and_artifacts(runner: Runner) -> None:
    await runner.create_task(RESEARCHER, "How old are they?", task_id="with_sources_and_artifacts")
    await runner.run_step("with_sources_and_artifacts")


async def with_wrong_answers(runner: Runner) -> None:
    await runner.create_task(TYPED, "Is Oslo free?", task_id="with_wrong_answers")
    for _ in range(2):
        await runner.run_step("with_wrong_answers")


async def with_another_version_of_its_agent(runner: Runner) -> None:
    name = "with_another_version_of_its_agent"
    await runner.create_task(LOOKER, "Is Oslo free?", task_id=name)
    await runner.run_step(name)
    await runner.resume(name, agent=LOOKER.replace(instructions="Be kind."))


async def with_a_state(runner: Runner) -> None:
    begun = {"a": 0, "empty": [], "long": "long " * 2_000}
    await runner.run(KEEPER, "Keep.", task_id="with_a_state", extra_state=begun)
    await runner.undo_step("with_a_state", to=1)
    await runner.run_step("with_a_state")


async def with_steps_that_change_the_state(runner: Runner) -> None:
    name = "with_steps_that_change_the_state"
    await runner.create_task(KEEPING_STEPS, "Keep.", task_id=name, extra_state={"kept": True})
    await runner.run_step(name)
    await runner.run_step(name)


async def with_approvals(runner: Runner) -> None:
    name, options = "with_approvals", RunOptions(max_parallel_tools=1)
    await runner.run(ASKER, "Refund.", task_id=name, options=options)
    await runner.approve(name, "s1-1-ask1", arguments={"order": "b", "amount": 40}, scope="task", by="ada")
    await runner.deny(name, "s1-2-ask1", reason="too much", by="bob")
    await runner.resume(name)


async def with_questions(runner: Runner) -> None:
    name, options = "with_questions", RunOptions(max_parallel_tools=1)
    await runner.run(INQUIRER, "Book.", task_id=name, options=options)
    await runner.answer(name, "s1-1-q1", value=True, by="ada")
    await runner.answer(name, "s1-0-q1", value={"kind": "single", "nights": 2}, by="bob")
    await runner.resume(name)


async def with_steps_that_ask(runner: Runner) -> None:
    name = "with_steps_that_ask"
    await runner.run(INQUIRING_STEPS, "Ask.", task_id=name)
    await runner.answer(name, value=7, by="ada")
    await runner.resume(name)


async def with_a_step_that_is_tried_again(runner: Runner) -> None:
    await runner.run(RETRYING, "Ask.", task_id="with_a_step_that_is_tried_again")


async def with_a_policy(runner: Runner) -> None:
    name, options = "with_a_policy", RunOptions(max_parallel_tools=1)
    await runner.run(JUDGED, "Refund.", task_id=name, options=options)
    await runner.resume(name)


async def with_background_work(runner: Runner) -> None:
    name, options = "with_background_work", RunOptions(max_parallel_tools=1)
    await runner.run(FILMS, "Metropolis, please.", task_id=name, options=options)
    await runner.progress(TICKETS[0], {"percent": 40}, by="farm")
    await runner.complete(TICKETS[0], {"file": "metropolis.mp4"}, by="farm")


async def with_handoffs(runner: Runner) -> None:
    name = "with_handoffs"
    await runner.create_task(FRONT, "Where is my order?", task_id=name)
    await runner.run_step(name)
    await runner.run_step(name)
    await runner.undo_step(name)
    await runner.run_step(name)
    await runner.undo_step(name, to=0)
    await runner.run_step(name)


async def with_middleware(runner: Runner) -> None:
    name, options = "with_middleware", RunOptions(max_parallel_tools=1)
    await runner.create_task(WRAPPED, "Order.", task_id=name, options=options)
    await runner.run_step(name)


async def with_a_child_that_asks_again(runner: Runner) -> None:
    name = "with_a_child_that_asks_again"
    await runner.run(CHIEF, "Refund.", task_id=name)
    await runner.approve(name, by="ann")
    await runner.resume(name)


async def with_guardrails(runner: Runner) -> None:
    name = "with_guardrails"
    await runner.run(GUARDED, "Pay back to 4111.", task_id=name)
    await runner.resume(name)
    await runner.approve(name, arguments={"text": "4 EUR to them."}, by="ada")
    await runner.resume(name)


async def waiting_for_a_guardrail(runner: Runner) -> None:
    await runner.run(GUARDED, "Pay back to 4111.", task_id="waiting_for_a_guardrail")
    await runner.resume("waiting_for_a_guardrail")


async def waiting_for_an_approval(runner: Runner) -> None:
    options = RunOptions(max_parallel_tools=1)
    await runner.run(ASKER, "Refund.", task_id="waiting_for_an_approval", options=options)


async def with_callers_and_commands(runner: Runner) -> None:
    name = "with_callers_and_commands"
    await runner.submit(BOOKER, "Book.", task_id=name, by="ada")
    await runner.edit_step(name, "Book two.", by="bob", command_id="e1")
    await runner.run_step(name, input="Be quick.", by="bob")
    await runner.pause(name, reason="lunch", by="ada", command_id="p1")
    await runner.resume(name, drive=False, by="ada", command_id="r1")
    await runner.undo_step(name, by="bob", command_id="u1")
    await runner.run_step(name)
    await runner.run_step(name)
    await runner.run_step(name)
    await runner.finalize(name, by="ada", command_id="f1")


async def forked_with_other_instructions(runner: Runner) -> None:
    name = "forked_with_other_instructions"
    await runner.run(LOOKER, "Is Oslo free?", task_id="old_trunk")
    await runner.fork("old_trunk", instructions="Look twice.", input="Look again.", task_id=name, by="ada")


async def with_an_event_of_the_future(runner: Runner) -> None:
    name = "with_an_event_of_the_future"
    await runner.create_task(LOOKER, "Is Oslo free?", task_id=name)
    await runner.run_step(name)
    await _written(runner, name, e.UnknownEvent("weather_changed", {"to": "rain", "by": {"$blob": 1}}), 1)


async def with_an_event_that_a_driver_must_know(runner: Runner) -> None:
    name = "with_an_event_that_a_driver_must_know"
    options = RunOptions(break_on=[Breakpoint(before_tool="book")])
    await runner.run(BOOKER, "Book Rome.", task_id=name, options=options)
    await _written(runner, name, e.UnknownEvent("approval_asked", {"call": "s2-0", "of": ["ada"]}), 3)


async def with_an_event_that_a_driver_may_ignore(runner: Runner) -> None:
    name = "with_an_event_that_a_driver_may_ignore"
    await runner.create_task(LOOKER, "Is Oslo free?", task_id=name)
    await runner.run_step(name)
    await _written(runner, name, e.UnknownEvent("weather_changed", {"to": "rain"}, inert=True), 1)


async def _written(runner: Runner, name: str, event: e.UnknownEvent, needs: int) -> None:
    """Write an event as a newer version would: its driver must know this journal format."""
    claim = await runner.store.claim(name)
    event.seq, event.time = claim.head + 1, 4_000_000_000_000_000
    record = encode_record([event], claim.epoch, claim.digest)
    await commit(runner.store, Commit(name, claim.epoch, record, release=True, format=needs))


STORIES: list[Story] = [
    finished,
    failed,
    degraded,
    limited,
    reopened,
    paused,
    cancelled,
    created,
    between_steps,
    forked,
    fork_of_a_deleted_task,
    undone,
    with_images_and_large_values,
    parallel_tools,
    thread_of_two_turns,
    settled,
    waiting_on_an_unknown_outcome,
    in_flight_in_a_read,
    in_flight_in_a_write,
    in_flight_under_a_key_of_its_own,
    in_flight_in_an_undo,
    skipped_and_edited,
    with_an_unreadable_answer,
    with_offers,
    with_sources_and_artifacts,
    with_wrong_answers,
    with_another_version_of_its_agent,
    with_a_state,
    with_steps_that_change_the_state,
    with_approvals,
    with_questions,
    with_steps_that_ask,
    with_a_step_that_is_tried_again,
    with_a_policy,
    with_background_work,
    with_handoffs,
    with_middleware,
    with_a_child_that_asks_again,
    with_guardrails,
    waiting_for_a_guardrail,
    waiting_for_an_approval,
    with_callers_and_commands,
    forked_with_other_instructions,
    with_an_event_of_the_future,
    with_an_event_that_a_driver_must_know,
    with_an_event_that_a_driver_may_ignore,
]


# ------------------------------------------------------------------------------------ taken to the end


async def goes_on(runner: Runner, task_id: str) -> tuple[str, str]:
    """Drive a task to its end, as a person would; return its state and what it says.

    The state of a task that only a newer version may drive is `too new`.
    """
    try:
        return await _goes_on(runner, task_id)
    except TaskTooNew:
        return "too new", ""


async def _goes_on(runner: Runner, task_id: str) -> tuple[str, str]:
    if (await runner.store.row(task_id)).state == "waiting" or task_id == "in_flight_in_an_undo":
        await _settle(runner, task_id)
    if task_id == "in_flight_in_an_undo":
        await runner.undo_step(task_id)
    result = await runner.resume(
        task_id, options=RunOptions(limits=Limits(steps=50, tool_calls=50), break_on=[])
    )
    while result.state == "waiting":
        await _settle(runner, task_id)
        result = await runner.resume(task_id)
    return result.state, result.final_text or ""


async def _settle(runner: Runner, task_id: str) -> None:
    if task_id == "in_flight_in_an_undo":
        await runner.undo_step(task_id)
    for pending in await runner.list_pending(task_id):
        if pending.kind == "approval":
            await runner.approve(task_id, pending.request_id, by="ada")
            continue
        if pending.kind == "question":
            await runner.answer(task_id, pending.request_id, value=_ANSWERS[pending.text], by="ada")
            continue
        await runner.settle(task_id, pending.request_id, Happened("it did"), by="ada")


_ANSWERS: dict[str, Any] = {"Breakfast?": "late", "Second?": "yes"}
"""The answers to the questions that stories leave open."""


def _taking(runner: Runner, task_id: str, taken: list[bytes]) -> Taking:
    async def take() -> None:
        await asyncio.sleep(0.02)  # until the begin of a read, for which nobody waits, is written as well
        out = io.BytesIO()
        await runner.export_tasks(out, task_id)
        taken.append(out.getvalue())

    return take


async def _taken_away(runner: Runner, agent: Agent[Any], task_id: str) -> None:
    """Leave a task as it stood in the middle of a call: as if its driver had died there."""
    taken: list[bytes] = []
    async with Runner("memory:", agents=AGENTS) as other:
        await other.run(agent, "Go.", task_id=task_id, context=_taking(other, task_id, taken))
    await _put(runner, taken[0])


async def _put(runner: Runner, exported: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "task"
        file.write_bytes(exported)
        await runner.import_tasks(file)


async def _named(runner: Runner, task_id: str, name: str) -> None:
    """Give a task a name of its own: forks get their ids from the clock."""
    row = await runner.store.row(task_id)
    row.task_id = name
    own = await runner.store.read(task_id, after=row.base_seq)
    await runner.store.restore(row, own)
    await runner.delete_task(task_id)
