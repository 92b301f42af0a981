"""Objects of other libraries as tools, with stand-ins that have what the adapters look at: the libraries are heavy.

`make foreign` runs the tests beside this one, with the libraries.
"""

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import BaseModel

from treadle import Agent, Runner, ScriptedModel
from treadle.errors import ConfigurationError, ToolArgumentsInvalid, ToolError
from treadle.models import call, text
from treadle.ports import Tool, ToolContext
from treadle.tools import langchain_tools, llamaindex_tools

pytestmark = pytest.mark.anyio
Ctx = ToolContext[Any]


class Arguments(BaseModel):
    q: str
    best: int = 3


class LangChainTool:
    """What a `StructuredTool` of LangChain has."""

    args_schema = tool_call_schema = Arguments
    description, return_direct, response_format, handle_tool_error = "Search.", False, "content", False
    coroutine: Any = None

    def __init__(self, name: str = "search") -> None:
        self.name = name

    def get_input_schema(self) -> Any:
        return Arguments

    def run(self, arguments: dict[str, Any], **more: Any) -> Any:
        return {**arguments, "in_loop": threading.current_thread() is threading.main_thread()}

    def _run(self) -> None: ...


class LlamaIndexTool:
    """What a `FunctionTool` of LlamaIndex has."""

    requires_context = False

    def __init__(self, **result: Any) -> None:
        self.metadata = SimpleNamespace(
            name="search",
            description="Search.",
            fn_schema=Arguments,
            return_direct=True,
            get_parameters_dict=Arguments.model_json_schema,
        )
        self.result = {
            "content": "found",
            "is_error": False,
            "raw_output": {"found": 1},
            "blocks": [],
            **result,
        }
        self.real_fn = lambda: None

    def __call__(self, **arguments: Any) -> Any:
        return SimpleNamespace(**self.result)


LangChainTool.__module__ = "langchain_core.tools.base"
LlamaIndexTool.__module__ = "llama_index.core.tools.function_tool"


def test_what_is_made_is_a_tool_as_the_port_says() -> None:
    assert isinstance(langchain_tools(LangChainTool())[0], Tool)
    assert isinstance(llamaindex_tools(LlamaIndexTool())[0], Tool)


def test_an_agent_says_what_to_write_for_an_object_of_another_library() -> None:
    with pytest.raises(
        ConfigurationError, match=r"tools\[0\] is a LangChainTool of LangChain; write \*langchain_tools"
    ):
        Agent("openai:gpt-5.4-mini", tools=[LangChainTool()])  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigurationError, match=r"LlamaIndexTool of LlamaIndex; write \*llamaindex_tools"):
        Agent("openai:gpt-5.4-mini", tools=[LlamaIndexTool()])  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"timeout": 0}, "timeout must be seconds, more than 0"),
        ({"timeout": True}, "timeout must be seconds"),
        ({"retries": -1}, "retries must be a whole number"),
        ({"effects": ["read_only"]}, "effects must map patterns"),
        ({"effects": {"*": "read_only"}}, "effects must be a list of texts"),
        (
            {"effects": {"*": ["readonly"]}},
            "effects for '\\*' has 'readonly'; they are read_only, idempotent",
        ),
        ({"effects": {"serch": ["read_only"]}}, "effects names 'serch', and no tool is called so: search"),
    ],
)
def test_terms_that_are_not_valid_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=f"langchain_tools: {message}"):
        langchain_tools(LangChainTool(), **options)


def test_effects_are_undeclared_unless_the_caller_declares_them() -> None:
    first, second = langchain_tools(
        LangChainTool(), LangChainTool("pay"), effects={"se*": ["read_only", "private"]}, retries=2
    )
    assert (first.spec.effect, first.spec.private, first.spec.retries) == ("read", True, 2)
    assert (second.spec.effect, second.spec.declared, second.spec.retries) == ("write", False, 0)


async def test_a_call_runs_in_a_thread_with_checked_arguments(ctx: Ctx) -> None:
    (made,) = langchain_tools(LangChainTool())
    assert (await made.call(made.validate({"q": "x"}), ctx)).output == {"q": "x", "in_loop": False}
    with pytest.raises(ToolArgumentsInvalid, match="q: missing; best: should be an integer"):
        made.validate({"best": "x"})
    assert made.as_taken({"q": "x", "best": "2"}) == {"q": "x", "best": 2}


async def test_an_output_that_is_an_error_is_one(ctx: Ctx) -> None:
    (made,) = llamaindex_tools(LlamaIndexTool())
    assert made.spec.return_direct
    output = await made.call({"q": "x"}, ctx)
    assert (output.output, output.observation) == ({"found": 1}, "found")
    (made,) = llamaindex_tools(LlamaIndexTool(is_error=True))
    with pytest.raises(ToolError, match="found"):
        await made.call({"q": "x"}, ctx)


async def test_a_tool_that_exits_or_cancels_itself_harms_only_its_call() -> None:
    class Exits(LangChainTool):
        coroutine = True

        async def arun(self, arguments: dict[str, Any], **more: Any) -> Any:
            raise SystemExit if arguments["q"] == "exit" else asyncio.CancelledError

    Exits.__module__ = "langchain_core.tools.base"
    script = [[call("search", q="exit"), call("search", q="cancel")], text("Done.")]
    agent = Agent(ScriptedModel(script), tools=langchain_tools(Exits()))
    async with Runner("memory:", agents=[agent]) as runner:
        result = await runner.run(agent, "Go.")
    assert [(done.outcome, result.final_text) for done in result.tool_executions] == [("error", "Done.")] * 2
