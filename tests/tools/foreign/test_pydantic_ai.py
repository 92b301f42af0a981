"""Toolsets of the real Pydantic AI, as toolsets of an agent."""

import asyncio
import logging
import threading
import time
from dataclasses import dataclass, replace
from typing import Any

import pytest
from pydantic_ai import ApprovalRequired, BinaryContent, CallDeferred, ModelRetry, RunContext, ToolReturn
from pydantic_ai import Tool as TheirTool
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import CombinedToolset, ExternalToolset, FunctionToolset

from treadle import Agent, Runner, ScriptedModel
from treadle.core.messages import Image, Text
from treadle.engine import in_flight
from treadle.errors import ConfigurationError, ToolsetUnavailable
from treadle.models import call, text
from treadle.ports import Toolset
from treadle.tools import PydanticAIToolset, abandoned

pytestmark = pytest.mark.anyio


@dataclass
class Person:
    name: str
    admin: bool = False


ran: list[str] = []


def shelf() -> FunctionToolset[Person]:
    toolset: FunctionToolset[Person] = FunctionToolset()

    @toolset.tool
    def whoami(ctx: RunContext[Person]) -> str:
        """Say who asks."""
        return f"{ctx.deps.name} in {ctx.tool_call_id}"

    @toolset.tool_plain
    async def add(a: int, b: int = 1) -> dict[str, Any]:
        """Add two numbers.

        Args:
            a: the first.
        """
        return {"sum": a + b, "in_loop": threading.current_thread() is threading.main_thread()}

    @toolset.tool_plain
    def pay(cents: int) -> str:
        """Pay."""
        ran.append(f"pay {cents}")
        return f"paid {cents}"

    return toolset


def agent_of(script: list[Any], toolset: Any, name: str = "desk", **options: Any) -> Agent[Any]:
    return Agent(ScriptedModel(script), name="clerk", tools=[PydanticAIToolset(name, toolset, **options)])


async def run(agent: Agent[Any], context: Any = None) -> Any:
    async with Runner("memory:", agents=[agent]) as runner:
        return await runner.run(agent, "Go.", context=context or Person("Ada"))


async def listed(toolset: Any, **options: Any) -> dict[str, Any]:
    tools = await PydanticAIToolset("desk", toolset, **options).connect().tools()
    return {each.spec.name: each.spec for each in tools}


def outcomes(result: Any) -> list[tuple[str, Any]]:
    return [
        (done.outcome, done.output if done.error is None else done.error.message)
        for done in result.tool_executions
    ]


# ------------------------------------------------------------------------------------------ definition


async def test_names_descriptions_and_schemas_are_kept() -> None:
    specs = await listed(shelf(), effects={"add": ["read_only"]}, timeout=9, retries=1)
    assert list(specs) == ["desk__whoami", "desk__add", "desk__pay"]
    add = specs["desk__add"]
    assert (add.description, add.effect, add.timeout, add.retries) == ("Add two numbers.", "read", 9, 1)
    assert add.parameters["required"] == ["a"]
    assert add.parameters["properties"]["a"] == {"type": "integer", "description": "the first."}
    assert (specs["desk__pay"].effect, specs["desk__pay"].declared, specs["desk__pay"].retries) == (
        "write",
        False,
        0,
    )
    assert not specs["desk__pay"].needs_approval


async def test_a_toolset_that_combines_prefixes_renames_and_filters_is_as_it_says() -> None:
    inner = shelf().filtered(lambda ctx, definition: definition.name != "whoami").prefixed("bank")
    both = CombinedToolset(
        [inner, FunctionToolset([TheirTool(len, name="count", takes_ctx=False)]).renamed({"size": "count"})]
    )
    assert list(await listed(both)) == ["desk__bank_add", "desk__bank_pay", "desk__size"]
    agent = agent_of([[call("desk__bank_add", a=2), call("desk__size", obj=[1, 2])], text("Done.")], both)
    assert outcomes(await run(agent)) == [("ok", {"sum": 3, "in_loop": True}), ("ok", 2)]


def test_a_declaration_is_a_toolset_whose_facts_tell_it_from_another() -> None:
    first, second = PydanticAIToolset("desk", shelf()), PydanticAIToolset("desk", shelf().prefixed("a"))
    assert isinstance(first, Toolset)
    assert first.facts() == PydanticAIToolset("desk", shelf()).facts()
    assert first.facts() != second.facts()
    assert first.known_specs() is None


def test_what_is_no_toolset_is_refused_with_what_to_write() -> None:
    with pytest.raises(
        ConfigurationError, match=r"'desk': a function is not a toolset of Pydantic AI: write FunctionToolset"
    ):
        PydanticAIToolset("desk", shelf)
    with pytest.raises(ConfigurationError, match="name must be at most 32"):
        PydanticAIToolset("a__b", shelf())
    with pytest.raises(
        ConfigurationError, match=r"FunctionToolset of Pydantic AI; write PydanticAIToolset\("
    ):
        Agent("openai:gpt-5.4-mini", tools=[shelf()])  # pyright: ignore[reportArgumentType]


async def test_a_tool_that_ends_outside_of_the_call_is_refused_when_it_is_listed() -> None:
    external = ExternalToolset([ToolDefinition(name="later")])
    with pytest.raises(ConfigurationError, match="the tool 'later' is of the kind 'external'"):
        await listed(external)


async def test_functions_that_need_deps_to_list_are_given_those_of_the_declaration() -> None:
    toolset = shelf().filtered(lambda ctx, definition: ctx.deps.admin or definition.name != "pay")
    with pytest.raises(ToolsetUnavailable, match=r"'desk' cannot be listed: .*'admin'.* give listed_with="):
        await listed(toolset)
    assert "desk__pay" in await listed(toolset, listed_with=Person("all", admin=True))


async def test_instructions_of_a_toolset_are_told_of_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "treadle.tools"):
        await listed(
            FunctionToolset([TheirTool(len, name="n", takes_ctx=False)], instructions="Count first.")
        )
    assert "the toolset desk has instructions, which no model is sent" in caplog.text


# --------------------------------------------------------------------------------------------- calling


async def test_tools_get_the_context_of_the_task_as_their_deps() -> None:
    script = [
        [call("desk__whoami"), call("desk__add", a=1), call("desk__add", a="x"), call("desk__add", a=1, c=2)],
        text("Done."),
    ]
    found = outcomes(await run(agent_of(script, shelf())))
    assert found[:2] == [("ok", "Ada in s1-0"), ("ok", {"sum": 2, "in_loop": True})]
    assert [outcome for outcome, _ in found[2:]] == ["invalid", "invalid"]
    assert "a: should be an integer" in found[2][1]


async def test_a_tool_that_is_left_out_for_the_context_of_a_task_is_not_called() -> None:
    ran.clear()
    toolset = shelf().filtered(lambda ctx, definition: ctx.deps.admin or definition.name != "pay")
    script = [[call("desk__pay", cents=5)], text("Done.")]
    options = {"listed_with": Person("all", admin=True)}
    ((outcome, message),) = outcomes(await run(agent_of(script, toolset, **options)))
    assert (outcome, ran) == ("error", [])
    assert "pay is not there for the context of this task" in message
    assert outcomes(await run(agent_of(script, toolset, **options), Person("Eve", admin=True))) == [
        ("ok", "paid 5")
    ]


async def test_a_toolset_made_for_each_run_gets_the_context_of_the_task() -> None:
    def build(ctx: RunContext[Person]) -> FunctionToolset[Person]:
        return FunctionToolset(
            [TheirTool(lambda: f"for {ctx.deps.name}", name="who", description="d", takes_ctx=False)]
        )

    from pydantic_ai.toolsets._dynamic import DynamicToolset

    agent = agent_of([call("desk__who"), text("Done.")], DynamicToolset(build), listed_with=Person("nobody"))
    assert outcomes(await run(agent)) == [("ok", "for Ada")]


@pytest.mark.parametrize(
    "error", [ModelRetry("try again with tea"), ValueError("no tea"), CallDeferred(), ApprovalRequired()]
)
async def test_what_a_tool_raises_is_the_error_of_its_call(error: Exception) -> None:
    def fail() -> str:
        """Fail."""
        raise error

    (found,) = outcomes(await run(agent_of([call("desk__fail"), text("Done.")], FunctionToolset([fail]))))
    expected = {
        ModelRetry: "try again with tea",
        ValueError: "ValueError: no tea",
        CallDeferred: "leaves its work to others",
        ApprovalRequired: "asks for an approval in the middle of the call",
    }
    assert found[0] == "error"
    assert expected[type(error)] in found[1]


async def test_returns_with_content_and_files_have_all_their_faces() -> None:
    def look() -> ToolReturn:
        """Look."""
        return ToolReturn(
            {"seen": 1},
            content=["a cat", BinaryContent(b"\x89PNG", media_type="image/png")],
            metadata={"cost": 2},
        )

    def paint() -> BinaryContent:
        """Paint."""
        return BinaryContent(b"\x89PNG", media_type="image/png")

    script = [[call("desk__look"), call("desk__paint")], text("Done.")]
    result = await run(agent_of(script, FunctionToolset([look, paint])))
    first, second = result.messages[2].parts
    assert result.tool_executions[0].output == {"return_value": {"seen": 1}, "metadata": {"cost": 2}}
    assert [part.text if isinstance(part, Text) else type(part) for part in first.parts] == [
        '{"seen":1}',
        "a cat",
        Image,
    ]
    assert [type(part) for part in second.parts] == [Image]


async def test_a_validator_of_arguments_is_asked_before_the_tool() -> None:
    ran.clear()

    def positive(ctx: RunContext[Person], cents: int) -> None:
        if cents < 0:
            raise ModelRetry(f"{ctx.deps.name} cannot pay {cents}")

    def pay(cents: int) -> str:
        """Pay."""
        ran.append("paid")
        return "paid"

    toolset = FunctionToolset([TheirTool(pay, args_validator=positive, takes_ctx=False)])
    found = outcomes(await run(agent_of([call("desk__pay", cents=-1), text("Done.")], toolset)))
    assert (found, ran) == ([("error", "Ada cannot pay -1")], [])


@pytest.mark.parametrize("closed", [{"additionalProperties": False}, {}])
async def test_arguments_of_a_tool_made_of_a_schema_are_checked(closed: dict[str, Any]) -> None:
    def find(q: str, user: str = "nobody") -> str:
        return f"{q} of {user}"

    schema = {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"], **closed}
    toolset = FunctionToolset([TheirTool.from_schema(find, "find", "Find.", schema)])
    script = [
        [call("desk__find", q="a", user="root"), call("desk__find", q=5), call("desk__find", q="a")],
        text("Done."),
    ]
    found = outcomes(await run(agent_of(script, toolset)))
    assert [outcome for outcome, _ in found] == ["invalid", "invalid", "ok"]
    assert "user: there is no such argument" in found[0][1]
    assert "q: must be of type string" in found[1][1]
    assert found[2][1] == "a of nobody"


async def test_an_argument_that_prepare_leaves_out_is_refused_and_others_are_converted() -> None:
    def find(q: int, user: str = "nobody") -> str:
        return f"{q} of {user}"

    async def without_user(ctx: RunContext[Person], definition: ToolDefinition) -> ToolDefinition:
        schema = {**definition.parameters_json_schema, "properties": {"q": {"type": "integer"}}}
        return replace(definition, parameters_json_schema=schema)

    toolset = FunctionToolset([TheirTool(find, prepare=without_user, takes_ctx=False)])
    script = [[call("desk__find", q=1, user="root"), call("desk__find", q="2")], text("Done.")]
    (refused, message), found = outcomes(await run(agent_of(script, toolset)))
    assert (refused, found) == ("invalid", ("ok", "2 of nobody"))
    assert "user: there is no such argument" in message


# ------------------------------------------------------------------------------------------- approvals


@pytest.mark.parametrize("form", ["tool", "toolset", "layer", "combined"])
async def test_a_tool_that_requires_an_approval_waits_for_one(form: str) -> None:
    ran.clear()
    toolset: Any = shelf()
    if form == "tool":
        toolset.tools["pay"].requires_approval = True
    elif form == "toolset":
        toolset = FunctionToolset([shelf().tools["pay"].function], requires_approval=True)
    else:
        toolset = toolset.approval_required(
            lambda ctx, definition, arguments: definition.name == "pay" and arguments["cents"] > 3
        )
    if form == "combined":
        toolset = CombinedToolset([toolset.prefixed("bank")])
    name = "desk__bank_pay" if form == "combined" else "desk__pay"
    agent = agent_of([call(name, cents=5), text("Done.")], toolset)
    async with Runner("memory:", agents=[agent]) as runner:
        stopped = await runner.run(agent, "Pay.", context=Person("Ada"))
        assert (stopped.state, stopped.pending[0].tool, stopped.pending[0].arguments, ran) == (
            "waiting",
            name,
            {"cents": 5},
            [],
        )
        await runner.approve(stopped.task_id)
        result = await runner.resume(stopped.task_id, context=Person("Ada"))
    assert (outcomes(result), ran) == ([("ok", "paid 5")], ["pay 5"])


async def test_a_layer_requires_an_approval_only_where_its_function_says_so() -> None:
    ran.clear()
    toolset = shelf().approval_required(
        lambda ctx, definition, arguments: definition.name == "pay" and arguments["cents"] > 3
    )
    script = [[call("desk__pay", cents=2), call("desk__add", a=1)], text("Done.")]
    assert [outcome for outcome, _ in outcomes(await run(agent_of(script, toolset)))] == ["ok", "ok"]
    assert ran == ["pay 2"]


async def test_a_layer_that_changes_its_answer_before_the_call_does_not_let_it_pass_as_approved() -> None:
    ran.clear()
    answers = iter([False, True, True])
    toolset = shelf().approval_required(lambda ctx, definition, arguments: next(answers))
    ((outcome, message),) = outcomes(
        await run(agent_of([call("desk__pay", cents=2), text("Done.")], toolset))
    )
    assert (outcome, ran) == ("error", [])
    assert "requires an approval now" in message


async def test_a_call_of_another_tenant_with_the_same_ids_says_nothing_of_an_approval() -> None:
    ran.clear()
    toolset = shelf().approval_required(lambda ctx, definition, arguments: not ctx.deps.admin)
    agent = agent_of([call("desk__pay", cents=2), text("Done.")], toolset)
    async with Runner("memory:", agents=[agent]) as runner:
        one, other = runner.scoped(tenant="one"), runner.scoped(tenant="other")
        guest, admin = Person("Ada"), Person("Bo", admin=True)
        assert (await one.run(agent, "Pay.", task_id="t", context=guest)).state == "waiting"
        assert (await other.run(agent, "Pay.", task_id="t", context=admin)).state == "completed"
        await one.approve("t")
        result = await one.resume("t", context=guest)
    assert (outcomes(result), ran) == ([("ok", "paid 2")], ["pay 2", "pay 2"])


async def test_a_tool_that_asks_in_its_own_code_is_never_run_as_if_it_were_approved() -> None:
    ran.clear()

    def pay(ctx: RunContext[Person], cents: int) -> str:
        """Pay."""
        if not ctx.tool_call_approved:
            raise ApprovalRequired
        ran.append("paid")
        return "paid"

    ((outcome, message),) = outcomes(
        await run(agent_of([call("desk__pay", cents=1), text("Done.")], FunctionToolset([pay])))
    )
    assert (outcome, ran) == ("error", [])
    assert "let its toolset ask before" in message


# ---------------------------------------------------------------------------------- deadlines, threads


async def until_none_is_abandoned() -> None:
    async with asyncio.timeout(10):
        while abandoned():  # noqa: ASYNC110 - threads set no event of a loop
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("limit", ["ours", "theirs"])
async def test_a_writing_call_that_takes_too_long_has_an_unknown_outcome_and_its_thread_is_counted(
    limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_flight, "GRACE", 0.1)
    release = threading.Event()

    def slow() -> str:
        """Take long."""
        release.wait(20)
        return "late"

    toolset: Any = FunctionToolset([slow], **({"timeout": 0.1} if limit == "theirs" else {}))
    agent = agent_of(
        [call("desk__slow"), text("Done.")], toolset, **({"timeout": 0.1} if limit == "ours" else {})
    )
    try:
        async with Runner("memory:", agents=[agent]) as runner:
            result = await runner.run(agent, "Go.", context=Person("Ada"))
            assert (result.state, result.pending[0].tool) == ("waiting", "desk__slow")
            assert [each.tool for each in abandoned()] == ["desk__slow"]
    finally:
        release.set()
    await until_none_is_abandoned()


async def test_an_async_tool_is_cancelled_at_its_deadline_and_tried_again() -> None:
    tries: list[float] = []

    async def look() -> str:
        """Look."""
        tries.append(time.monotonic())
        if len(tries) == 1:
            await asyncio.sleep(20)
        return "there"

    agent = agent_of(
        [call("desk__look"), text("Done.")],
        FunctionToolset([look]),
        timeout=1,
        retries=1,
        effects={"*": ["read_only"]},
    )
    assert outcomes(await run(agent)) == [("ok", "there")]
    assert len(tries) == 2


async def test_a_drive_lists_a_toolset_anew_and_keeps_what_is_the_same() -> None:
    toolset = shelf()
    connection = PydanticAIToolset("desk", toolset).connect()
    first = await connection.tools()
    assert await connection.tools() is first
    toolset.add_tool(TheirTool(len, name="count", takes_ctx=False))
    assert len(await connection.tools()) == 4
