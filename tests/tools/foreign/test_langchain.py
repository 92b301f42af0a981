"""Tools of the real LangChain, as tools of an agent."""

import asyncio
import base64
import threading
import time
from typing import Annotated, Any

import pytest

from tests.tools.foreign.libraries import needs

needs("langchain_core.tools")

from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import (
    BaseTool,
    InjectedToolArg,
    InjectedToolCallId,
    StructuredTool,
    Tool,
    ToolException,
)
from langchain_core.tools import tool as langchain_tool
from langchain_core.tools.retriever import create_retriever_tool
from pydantic import AliasChoices, AliasPath, BaseModel, Field, create_model

from treadle import Agent, Runner, ScriptedModel
from treadle.core.messages import Image, Text
from treadle.errors import ConfigurationError, ToolArgumentsInvalid, ToolDefinitionError, ToolError
from treadle.models import call, text
from treadle.ports import ToolContext
from treadle.tools import abandoned
from treadle.tools.foreign import langchain_tools

pytestmark = pytest.mark.anyio
Ctx = ToolContext[Any]


class Wanted(BaseModel):
    """What is looked for."""

    city: str = Field(description="the name of a city")
    days: int = Field(default=1, ge=1, le=7)


@langchain_tool(args_schema=Wanted)
def forecast(city: str, days: int = 1) -> dict[str, Any]:
    """Return the weather of the coming days."""
    return {"city": city, "days": days, "sun": True}


@langchain_tool
async def multiply(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b if threading.current_thread() is threading.main_thread() else -1


async def run(made: Any, ctx: Ctx, **arguments: Any) -> Any:
    return await made.call(made.validate(arguments), ctx)


# ------------------------------------------------------------------------------------------ definition


def test_name_description_and_schema_of_a_model_are_kept() -> None:
    (made,) = langchain_tools(forecast)
    assert (made.spec.name, made.spec.description) == ("forecast", "Return the weather of the coming days.")
    assert made.spec.parameters == {
        "type": "object",
        "properties": {
            "city": {"type": "string", "title": "City", "description": "the name of a city"},
            "days": {"type": "integer", "title": "Days", "default": 1, "minimum": 1, "maximum": 7},
        },
        "required": ["city"],
    }
    assert (made.spec.effect, made.spec.declared, made.spec.return_direct) == ("write", False, False)


def test_effects_are_declared_by_patterns_of_names() -> None:
    first, second = langchain_tools(
        forecast, multiply, effects={"fore*": ["read_only", "open_world"]}, timeout=5, retries=2
    )
    assert (first.spec.effect, first.spec.open_world, first.spec.declared) == ("read", True, True)
    assert (first.spec.timeout, first.spec.retries) == (5, 2)
    assert (second.spec.effect, second.spec.declared, second.spec.retries) == ("write", False, 0)


def test_a_pattern_that_matches_no_tool_is_refused() -> None:
    with pytest.raises(
        ConfigurationError, match="effects names 'forcast', and no tool is called so: forecast"
    ):
        langchain_tools(forecast, effects={"forcast": ["read_only"]})


def test_a_schema_that_is_json_is_kept() -> None:
    schema = {"title": "T", "type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}
    (made,) = langchain_tools(
        StructuredTool(name="ask it", description="d", args_schema=schema, func=lambda q: q.upper())
    )
    assert made.spec.name == "ask_it"
    assert made.spec.parameters == {k: v for k, v in schema.items() if k != "title"}
    with pytest.raises(ToolArgumentsInvalid, match="q: missing"):
        made.validate({})


async def test_the_oldest_kind_of_tool_takes_one_text(ctx: Ctx) -> None:
    (made,) = langchain_tools(Tool(name="Google Search", description="d", func=lambda q: f"found {q}"))
    assert made.spec.parameters["required"] == ["tool_input"]
    assert (await run(made, ctx, tool_input="tea")).output == "found tea"


def test_return_direct_is_kept() -> None:
    (made,) = langchain_tools(Tool(name="t", description="d", func=str, return_direct=True))
    assert made.spec.return_direct


async def test_a_subclass_with_run_alone_runs_in_a_thread_and_one_with_arun_in_the_loop(ctx: Ctx) -> None:
    class Sync(BaseTool):
        name: str = "sync"
        description: str = "d"

        def _run(self, a: int) -> bool:
            return threading.current_thread() is threading.main_thread()

    class Async(Sync):
        name: str = "async"

        async def _arun(self, a: int) -> bool:
            return threading.current_thread() is threading.main_thread()

    sync, async_ = langchain_tools(Sync(), Async())
    assert sync.spec.parameters["properties"].keys() == {"a"}
    assert (await run(sync, ctx, a=1)).output is False
    assert (await run(async_, ctx, a=1)).output is True


# ------------------------------------------------------------------------------------------- arguments


def test_wrong_arguments_are_found_before_the_call() -> None:
    (made,) = langchain_tools(forecast)
    with pytest.raises(ToolArgumentsInvalid, match=r"city: missing; days: .*less than or equal to 7.*got 9"):
        made.validate({"days": 9})


def test_policies_judge_arguments_as_the_tool_takes_them() -> None:
    (made,) = langchain_tools(forecast)
    assert made.as_taken({"city": "Rome", "days": "3"}) == {"city": "Rome", "days": 3}
    assert made.as_taken({"days": "x"}) is None


def test_arguments_that_a_graph_would_inject_are_refused() -> None:
    @langchain_tool
    def mine(q: str, user: Annotated[str, InjectedToolArg]) -> str:
        """Search in what is mine."""
        return q + user

    with pytest.raises(ToolDefinitionError, match="the tool 'mine' needs user, which only LangGraph injects"):
        langchain_tools(mine)


async def test_a_model_cannot_give_an_argument_that_it_does_not_see(ctx: Ctx) -> None:
    @langchain_tool
    def mine(q: str, user: Annotated[str, InjectedToolArg] = "nobody") -> str:
        """Search in what is mine."""
        return f"{q} of {user}"

    (made,) = langchain_tools(mine)
    assert made.spec.parameters["properties"].keys() == {"q"}
    assert (await run(made, ctx, q="mail")).output == "mail of nobody"
    with pytest.raises(ToolArgumentsInvalid, match="user: there is no such argument"):
        made.validate({"q": "mail", "user": "root"})


@pytest.mark.parametrize(
    "field",
    [
        Field("nobody", alias="userId"),
        Field("nobody", validation_alias="userId"),
        Field("nobody", validation_alias=AliasChoices("id", AliasPath("userId", 0))),
    ],
)
@pytest.mark.parametrize("extra", ["ignore", "allow"])
def test_a_model_cannot_give_an_argument_that_it_does_not_see_by_its_alias(field: Any, extra: Any) -> None:
    wanted = create_model(
        "Wanted", __config__={"extra": extra}, q=(str, ...), user=(Annotated[str, InjectedToolArg], field)
    )

    def mine(q: str, user: str = "nobody") -> str:
        return f"{q} of {user}"

    (made,) = langchain_tools(
        StructuredTool.from_function(mine, name="mine", description="d", args_schema=wanted)
    )
    assert made.spec.parameters["properties"].keys() == {"q"}
    for name in ("userId", "user"):
        with pytest.raises(ToolArgumentsInvalid, match=f"{name}: there is no such argument"):
            made.validate({"q": "mail", name: "root"})


async def test_a_model_cannot_give_an_argument_that_a_json_schema_leaves_out(ctx: Ctx) -> None:
    def mine(q: str, user: str = "nobody") -> str:
        return f"{q} of {user}"

    schema = {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}
    closed, open_ = langchain_tools(
        StructuredTool(name="closed", description="d", args_schema=schema, func=mine),
        StructuredTool(
            name="open", description="d", args_schema={**schema, "additionalProperties": True}, func=mine
        ),
    )
    with pytest.raises(ToolArgumentsInvalid, match="user: there is no such argument"):
        closed.validate({"q": "mail", "user": "root"})
    assert (await run(open_, ctx, q="mail", user="Ada")).output == "mail of Ada"


@pytest.mark.parametrize("form", ["content", "content_and_artifact"])
async def test_arguments_that_look_like_a_call_are_not_taken_for_one(ctx: Ctx, form: Any) -> None:
    @langchain_tool(response_format=form)
    def mine(q: str, user: Annotated[str, InjectedToolArg] = "nobody") -> Any:
        """Search in what is mine."""
        return (f"{q} of {user}", None) if form == "content_and_artifact" else f"{q} of {user}"

    (made,) = langchain_tools(mine)
    call_inside = {"type": "tool_call", "id": "1", "name": "mine", "args": {"q": "mail", "user": "root"}}
    with pytest.raises(ToolArgumentsInvalid, match="type, id, name, args: there is no such argument"):
        made.validate({"q": "tea", **call_inside})
    assert (await made.call({"q": "tea", **call_inside}, ctx)).output == "tea of nobody"


async def test_a_function_that_takes_a_config_gets_an_empty_one(ctx: Ctx) -> None:
    @langchain_tool
    def sync(q: str, config: RunnableConfig) -> Any:
        """Sync."""
        return config["configurable"].get(q, "nothing")

    @langchain_tool
    async def async_(q: str, config: RunnableConfig) -> Any:
        """Async."""
        return config["configurable"].get(q, "nothing")

    for made in langchain_tools(sync, async_):
        assert made.spec.parameters["properties"].keys() == {"q"}
        assert (await run(made, ctx, q="x")).output == "nothing"


async def test_an_injected_argument_that_has_a_default_is_left_at_it(ctx: Ctx) -> None:
    async def remote(runtime: Annotated[Any, InjectedToolArg()] = None, **arguments: Any) -> tuple[str, Any]:
        return f"{runtime} {arguments}", None

    schema = {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}
    (made,) = langchain_tools(
        StructuredTool(
            name="r",
            description="d",
            args_schema=schema,
            coroutine=remote,
            response_format="content_and_artifact",
        )
    )
    assert (await run(made, ctx, q="x")).output == "None {'q': 'x'}"
    with pytest.raises(ToolArgumentsInvalid, match="runtime: there is no such argument"):
        made.validate({"q": "x", "runtime": "mine"})


async def test_the_id_of_the_call_is_given(ctx: Ctx) -> None:
    @langchain_tool
    def note(q: str, call_id: Annotated[str, InjectedToolCallId]) -> str:
        """Note."""
        return f"{q} in {call_id}"

    (made,) = langchain_tools(note)
    assert made.spec.parameters["properties"].keys() == {"q"}
    assert (await run(made, ctx, q="x")).output == "x in s1-0"


def test_what_is_no_tool_is_refused_with_what_to_write() -> None:
    with pytest.raises(ConfigurationError, match=r"argument 0 is a list: write langchain_tools\(\*tools\)"):
        langchain_tools([forecast])
    with pytest.raises(ConfigurationError, match="argument 0, the function run, is not a tool of LangChain"):
        langchain_tools(run)


# --------------------------------------------------------------------------------------------- results


async def test_a_plain_value_stays_data(ctx: Ctx) -> None:
    sync, async_ = langchain_tools(forecast, multiply)
    assert (await run(sync, ctx, city="Rome", days=2)).output == {"city": "Rome", "days": 2, "sun": True}
    assert (await run(async_, ctx, a=6, b=7)).output == 42


async def test_content_and_artifact_are_two_faces(ctx: Ctx) -> None:
    @langchain_tool(response_format="content_and_artifact")
    def rows() -> tuple[str, Any]:
        """Return rows."""
        return "2 rows", [{"a": 1}, {"a": 2}]

    (made,) = langchain_tools(rows)
    output = await run(made, ctx)
    assert (output.output, output.observation) == ([{"a": 1}, {"a": 2}], "2 rows")


async def test_an_artifact_that_is_no_data_costs_no_result(ctx: Ctx) -> None:
    @langchain_tool(response_format="content_and_artifact")
    def rows() -> tuple[str, Any]:
        """Return rows."""
        return "done", threading.Lock()

    (made,) = langchain_tools(rows)
    output = await run(made, ctx)
    assert output.observation == "done"
    assert output.output["content"] == "done"
    assert "cannot be stored as JSON: a value of type lock" in output.output["artifact"]


async def test_documents_of_a_retriever_are_sources(ctx: Ctx) -> None:
    class Shelf(BaseRetriever):
        def _get_relevant_documents(self, query: str, **more: Any) -> list[Document]:
            return [Document(page_content="Open from nine.", metadata={"file": "opening.md"}, id="d1")]

    found = [{"id": "d1", "metadata": {"file": "opening.md"}, "text": "Open from nine."}]
    for form in ("content", "content_and_artifact"):
        (made,) = langchain_tools(create_retriever_tool(Shelf(), "search", "d", response_format=form))
        output = await run(made, ctx, query="opening")
        assert "Open from nine." in (output.observation or output.output)
        assert list(output.sources) == (found if form == "content_and_artifact" else [])


async def test_content_blocks_become_parts(ctx: Ctx) -> None:
    pixel = base64.b64encode(b"\x89PNG").decode()

    @langchain_tool
    def look() -> list[dict[str, Any]]:
        """Look."""
        return [
            {"type": "text", "text": "a cat"},
            {"type": "image", "base64": pixel, "mime_type": "image/png"},
            {"type": "image_url", "image_url": {"url": f"data:image/gif;base64,{pixel}"}},
            {"type": "image_url", "image_url": {"url": "https://example.org/cat.png"}},
        ]

    (made,) = langchain_tools(look)
    assert (await run(made, ctx)).observation == [
        Text("a cat"),
        Image(data=b"\x89PNG", media_type="image/png"),
        Image(data=b"\x89PNG", media_type="image/gif"),
        Image(url="https://example.org/cat.png", media_type="image/png"),
    ]


@pytest.mark.parametrize("handled", [False, True, "say it is gone", lambda error: f"handled: {error}"])
async def test_a_tool_exception_is_an_error_also_when_it_is_handled(ctx: Ctx, handled: Any) -> None:
    def fail(q: str) -> str:
        raise ToolException(f"no {q}")

    made = StructuredTool.from_function(fail, name="fail", description="d", handle_tool_error=handled)
    expected = "say it is gone" if isinstance(handled, str) else "no tea"
    with pytest.raises((ToolError, ToolException), match=expected):
        await run(langchain_tools(made)[0], ctx, q="tea")


# ---------------------------------------------------------------------------------- in a runner's hands


async def test_an_agent_calls_both_kinds_and_reads_a_handled_error() -> None:
    def refuse(q: str) -> str:
        raise ToolException(f"no {q}")

    refusing = StructuredTool.from_function(refuse, name="refuse", description="d", handle_tool_error=True)
    script = [
        [
            call("forecast", city="Rome"),
            call("multiply", a=6, b=7),
            call("refuse", q="tea"),
            call("multiply", a="x"),
        ],
        text("Done."),
    ]
    agent = Agent(ScriptedModel(script), tools=langchain_tools(forecast, multiply, refusing))
    async with Runner("memory:", agents=[agent]) as runner:
        result = await runner.run(agent, "Go.")
    outcomes = [(done.name, done.outcome, done.output) for done in result.tool_executions]
    assert outcomes[:2] == [
        ("forecast", "ok", {"city": "Rome", "days": 1, "sun": True}),
        ("multiply", "ok", 42),
    ]
    assert [outcome for _, outcome, _ in outcomes[2:]] == ["error", "invalid"]
    assert result.tool_executions[2].error.message == "no tea"


async def test_a_writing_call_that_takes_too_long_has_an_unknown_outcome_and_its_thread_is_counted() -> None:
    release = threading.Event()

    def slow() -> str:
        release.wait(20)
        return "late"

    made = langchain_tools(StructuredTool.from_function(slow, name="slow", description="d"), timeout=0.1)
    agent = Agent(ScriptedModel([call("slow"), text("Done.")]), tools=made)
    try:
        async with Runner("memory:", agents=[agent]) as runner:
            started = time.monotonic()
            result = await runner.run(agent, "Go.")
            assert (result.state, result.pending[0].tool) == ("waiting", "slow")
            assert time.monotonic() - started < 15
            assert [each.tool for each in abandoned()] == ["slow"]
    finally:
        release.set()


async def test_a_read_only_call_is_tried_again_and_an_async_one_is_cancelled() -> None:
    tries: list[str] = []

    @langchain_tool
    async def look(q: str) -> str:
        """Look."""
        tries.append(q)
        if len(tries) == 1:
            raise ToolException("busy")
        if len(tries) == 2:
            await asyncio.sleep(20)
        return "there"

    made = langchain_tools(look, effects={"look": ["read_only"]}, timeout=1, retries=2)
    agent = Agent(ScriptedModel([call("look", q="x"), text("Done.")]), tools=made)
    async with Runner("memory:", agents=[agent]) as runner:
        result = await runner.run(agent, "Go.")
    assert (tries, result.tool_executions[0].output) == (["x", "x", "x"], "there")
