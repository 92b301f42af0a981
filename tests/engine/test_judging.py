"""What a policy is asked of a call, and how long its functions may take."""

import asyncio
from datetime import date
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from pydantic import BaseModel, ConfigDict, Field

from treadle import Agent, Policy, Rule, Runner, RunOptions, ScriptedModel, tool
from treadle.core.data import frozen
from treadle.engine.judging import within
from treadle.llm.scripted import call
from treadle.policy.verdicts import EffectKind, EffectRequest

pytestmark = pytest.mark.anyio


@frozen
class Listener:
    """A policy without a rule that notes what it was asked."""

    requests: list[EffectRequest]
    deadline: float = 5.0

    def concerns(self, kind: EffectKind, name: str | None, agent: str) -> bool:
        return kind == "tool" and name != "free"

    def functions_for(self, request: EffectRequest) -> tuple[Any, ...]:
        return ()

    def judge(self, request: EffectRequest, answers: Any = ()) -> None:
        self.requests.append(request)


@tool(read_only=True, open_world=True)
def search(query: str) -> str:
    """Search."""
    return query


@tool
def save(text: str) -> str:
    """Save."""
    return text


async def test_a_policy_is_told_of_the_call_its_task_and_what_the_model_has_seen() -> None:
    listener = Listener([])
    script = [call("search", query="x"), call("save", text="y"), call("save", text="z"), "Done."]
    agent = Agent(ScriptedModel(script), name="desk", tools=[search, save])
    async with Runner("memory:", policy=listener) as runner:
        result = await runner.run(agent, "Go.", thread_id="talk", options=RunOptions(labels={"team": "red"}))
    first, second, third = listener.requests
    assert (first.kind, first.name, first.arguments, first.call) == ("tool", "search", {"query": "x"}, "s1-0")
    assert (first.task_id, first.thread_id, first.step) == (result.task_id, "talk", "s1")
    assert (first.agent, first.agent_path, first.depth) == ("desk", ("desk",), 0)
    assert (dict(first.labels), first.cost, first.spec) == ({"team": "red"}, None, search.spec)
    assert [each.exposed for each in (first, second, third)] == [
        frozenset(),
        {"open_world", "read_only"},
        {"open_world", "read_only", "undeclared"},
    ]
    assert [each.tool_calls for each in (first, second, third)] == [0, 1, 2]


async def test_a_call_with_invalid_arguments_is_not_judged() -> None:
    listener = Listener([])
    agent = Agent(ScriptedModel([call("save", wrong=1), call("unknown"), "Done."]), tools=[save])
    async with Runner("memory:", policy=listener) as runner:
        result = await runner.run(agent, "Go.")
    assert ([each.outcome for each in result.tool_executions], listener.requests) == (["invalid"] * 2, [])


async def test_a_call_that_concerns_no_policy_leaves_no_event() -> None:
    listener, free = Listener([]), tool(save, name="free")
    agent = Agent(ScriptedModel([call("free", text="y"), "Done."]), tools=[free])
    async with Runner("memory:", policy=listener) as runner:
        result = await runner.run(agent, "Go.")
        events = [event.kind async for event in runner.handle(result.task_id).events()]
    assert ("call_judged" in events, listener.requests) == (False, [])


async def test_what_ignores_its_cancellation_is_late_all_the_same() -> None:
    async def stubborn() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await asyncio.sleep(0.05)
            raise ValueError("too late to matter") from None

    with pytest.raises(TimeoutError):
        await within(0.01, stubborn())
    await asyncio.sleep(0.1)


def leaves(request: EffectRequest) -> None:
    raise SystemExit(3)


async def leaves_in_the_loop(request: EffectRequest) -> None:
    raise SystemExit(3)


async def leaves_in_a_group(request: EffectRequest) -> None:
    raise BaseExceptionGroup("several", [SystemExit(3)])


async def interrupts(request: EffectRequest) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("function", [leaves, leaves_in_the_loop, leaves_in_a_group, interrupts])
async def test_a_policy_function_that_exits_denies_its_call_and_does_not_end_the_run(function: Any) -> None:
    agent = Agent(ScriptedModel([call("save", text="x"), "Done."]), tools=[save])
    async with Runner("memory:", policy=Policy(Rule("gate", function, tool="save"))) as runner:
        result = await runner.run(agent, "Go.")
    (execution,) = result.tool_executions
    assert (result.state, execution.outcome) == ("completed", "denied")
    assert execution.error is not None
    assert "SystemExit" in execution.error.message or "KeyboardInterrupt" in execution.error.message
    assert "in leaves" in execution.error.traceback or "in interrupts" in execution.error.traceback


async def test_a_judgement_that_is_cut_off_is_made_again() -> None:
    entered, calls = asyncio.Event(), 0

    async def slow(text: str) -> bool:
        nonlocal calls
        calls += 1
        entered.set()
        if calls == 1:
            await asyncio.sleep(60)
        return False

    agent = Agent(ScriptedModel([call("save", text="x"), "Done."]), tools=[tool(save, needs_approval=slow)])
    async with Runner("memory:", agents=[agent]) as runner:
        handle = await runner.start(agent, "Go.")
        await entered.wait()
        assert (await handle.pause()).state == "paused"
        assert (await handle.resume()).state == "completed"
    assert calls == 2


def fails(text: str) -> str:
    raise RuntimeError("no database")


def gives_nan(text: str) -> dict[str, float]:
    return {"price": float("nan")}


@pytest.mark.parametrize(
    ("preview", "says"),
    [
        (fails, "[no preview: RuntimeError: no database]"),
        (gives_nan, "[no preview: ValueError: it is a number that JSON cannot hold"),
    ],
)
async def test_a_preview_that_fails_or_that_no_export_can_hold_is_told_to_the_approver(
    preview: Any, says: str
) -> None:
    asking = tool(save, needs_approval=True, preview=preview)
    agent = Agent(ScriptedModel([call("save", text="x"), "Done."]), tools=[asking])
    async with Runner("memory:") as runner:
        (pending,) = (await runner.run(agent, "Go.")).pending
    assert says in str(pending.preview)


class Command(BaseModel):
    model_config = ConfigDict(str_strip_whitespace=True, str_to_lower=True, populate_by_name=True)

    name: str
    host: str = Field(alias="h", default="local")


TAGS: Any = Field(default_factory=list)
KEY = "12345678-1234-5678-1234-56781234567a"


@tool
def act(
    key: UUID | None = None,
    day: date | None = None,
    sum: Decimal | None = None,
    do: Command | None = None,
    tags: list[str] = TAGS,
) -> str:
    """Act."""
    return "acted"


async def outcome(rule: Rule, arguments: dict[str, Any], default: Any) -> str | None:
    agent = Agent(ScriptedModel([call("act", **arguments), "Done."]), tools=[act])
    async with Runner("memory:", policy=Policy(rule, default=default)) as runner:
        result = await runner.run(agent, "Go.")
    return result.tool_executions[0].outcome


@pytest.mark.parametrize(
    ("condition", "arguments"),
    [
        ({"arguments.key": KEY}, {"key": KEY.upper()}),
        ({"arguments.key": KEY}, {"key": KEY.replace("-", "")}),
        ({"arguments.key": [KEY]}, {"key": "{" + KEY + "}"}),
        ({"arguments.day": "2026-01-01"}, {"day": "2026-01-01T00:00:00"}),
        ({"arguments.day": "2026-01-01"}, {"day": "1767225600"}),
        ({"arguments.sum": "666"}, {"sum": "0666"}),
        ({"arguments.do.name": "rm"}, {"do": {"name": " RM "}}),
        ({"arguments.do.name": {"matches": "r*"}}, {"do": {"name": " RM "}}),
        ({"arguments.do.h": "evil"}, {"do": {"name": "rm", "host": "evil"}}),
        ({"arguments.do.h": {"exists": True}}, {"do": {"name": "rm", "host": "evil"}}),
    ],
)
async def test_another_spelling_of_what_a_rule_denies_does_not_evade_it(
    condition: dict[str, Any], arguments: dict[str, Any]
) -> None:
    assert await outcome(Rule("no", "deny", tool="act", when=condition), arguments, "allow") == "denied"


@pytest.mark.parametrize(
    ("condition", "arguments", "expected"),
    [
        ({"arguments.day": {"is_not": "2026-01-01"}}, {"day": "2026-01-01T00:00:00"}, "denied"),
        ({"arguments.day": {"is_not": "2026-01-01"}}, {"day": "2026-01-02"}, "ok"),
        ({"arguments.key": {"not_in": [KEY]}}, {"key": KEY.upper()}, "denied"),
        ({"arguments.key": KEY}, {"key": KEY}, "ok"),
        ({"arguments.sum": {"below": 100}}, {"sum": 5}, "ok"),  # though its JSON is a text
        ({"arguments.sum": {"below": 100}}, {"sum": 500}, "denied"),
        ({"arguments.do.name": "ls"}, {"do": {"name": "ls"}}, "ok"),
        ({"arguments.tags": {"exists": False}}, {"key": KEY}, "ok"),  # though the function has a default
    ],
)
async def test_a_rule_that_allows_wants_both_spellings_good(
    condition: dict[str, Any], arguments: dict[str, Any], expected: str
) -> None:
    assert await outcome(Rule("yes", "allow", tool="act", when=condition), arguments, "deny") == expected


async def test_a_replacement_is_judged_in_the_form_that_the_tool_gets() -> None:
    replaced = Rule("fix", "replace", tool="act", when={"arguments.key": KEY}, arguments={"key": None})
    assert await outcome(replaced, {"key": KEY.upper()}, "allow") == "ok"
