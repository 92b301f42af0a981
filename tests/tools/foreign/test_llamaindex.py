"""Tools of the real LlamaIndex, as tools of an agent."""

import base64
import threading
from typing import Annotated, Any

import pytest

from tests.tools.foreign.libraries import needs

needs("llama_index.core.tools")

from llama_index.core import Document, SummaryIndex, VectorStoreIndex
from llama_index.core.base.llms.types import ImageBlock, TextBlock
from llama_index.core.embeddings.mock_embed_model import MockEmbedding
from llama_index.core.llms.mock import MockLLM
from llama_index.core.retrievers import BaseRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
from llama_index.core.tools import FunctionTool, QueryEngineTool, RetrieverTool, ToolMetadata
from llama_index.core.tools.types import ToolOutput as TheirOutput
from llama_index.core.workflow import Context
from pydantic import Field

from treadle import Agent, Runner, ScriptedModel
from treadle.core.messages import Image, Text
from treadle.errors import ConfigurationError, ToolArgumentsInvalid, ToolDefinitionError, ToolError
from treadle.models import call, text
from treadle.ports import ToolContext
from treadle.tools.foreign import llamaindex_tools

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore::DeprecationWarning")]
Ctx = ToolContext[Any]


def where() -> bool:
    return threading.current_thread() is threading.main_thread()


def add(a: float, b: Annotated[float, Field(description="the second")] = 1.0) -> dict[str, Any]:
    """Add two numbers."""
    return {"sum": a + b, "in_loop": where()}


async def multiply(a: int, b: int) -> dict[str, Any]:
    """Multiply two numbers."""
    return {"product": a * b, "in_loop": where()}


async def run(made: Any, ctx: Ctx, **arguments: Any) -> Any:
    return await made.call(made.validate(arguments), ctx)


def index() -> VectorStoreIndex:
    return VectorStoreIndex.from_documents(
        [Document(text="The shop opens at nine.", metadata={"file": "opening.md"}, id_="d1")],
        embed_model=MockEmbedding(embed_dim=4),
    )


# ------------------------------------------------------------------------------------------ definition


def test_name_description_and_schema_are_kept() -> None:
    (made,) = llamaindex_tools(FunctionTool.from_defaults(add), effects={"add": ["read_only"]}, retries=1)
    spec = made.spec
    assert (spec.name, spec.effect, spec.retries, spec.return_direct) == ("add", "read", 1, False)
    assert spec.description.endswith("Add two numbers.")
    assert spec.parameters["required"] == ["a"]
    assert spec.parameters["properties"]["b"]["description"] == "the second"
    (undeclared,) = llamaindex_tools(FunctionTool.from_defaults(add, name="sum up", return_direct=True))
    assert (undeclared.spec.name, undeclared.spec.effect, undeclared.spec.declared) == (
        "sum_up",
        "write",
        False,
    )
    assert undeclared.spec.return_direct


def test_a_function_that_wants_the_context_of_a_workflow_is_refused() -> None:
    async def remember(ctx: Context, a: int) -> int:
        """Remember a number."""
        return a

    with pytest.raises(ToolDefinitionError, match="the tool 'remember' needs ctx, the context of a workflow"):
        llamaindex_tools(FunctionTool.from_defaults(async_fn=remember))


def test_what_is_no_tool_is_refused_with_what_to_write() -> None:
    engine = index().as_query_engine(llm=MockLLM())
    with pytest.raises(ConfigurationError, match=r"has no name: write QueryEngineTool.from_defaults\(engine"):
        llamaindex_tools(engine)
    with pytest.raises(ConfigurationError, match="argument 0, the function add, is not a tool of LlamaIndex"):
        llamaindex_tools(add)


# --------------------------------------------------------------------------------------------- calling


async def test_sync_functions_run_in_a_thread_and_async_ones_in_the_loop(ctx: Ctx) -> None:
    sync, async_ = llamaindex_tools(
        FunctionTool.from_defaults(add), FunctionTool.from_defaults(async_fn=multiply)
    )
    assert (await run(sync, ctx, a=1)).output == {"sum": 2.0, "in_loop": False}
    assert (await run(async_, ctx, a=6, b=7)).output == {"product": 42, "in_loop": True}


def test_wrong_arguments_are_found_before_the_call() -> None:
    (made,) = llamaindex_tools(FunctionTool.from_defaults(add))
    with pytest.raises(ToolArgumentsInvalid, match="a: missing"):
        made.validate({"b": 2})
    with pytest.raises(ToolArgumentsInvalid, match="c: there is no such argument"):
        made.validate({"a": 1, "c": 2})


async def test_partial_parameters_are_not_seen_and_cannot_be_given(ctx: Ctx) -> None:
    def greet(name: str, secret: str) -> str:
        """Greet."""
        return f"{name} {secret}"

    (made,) = llamaindex_tools(FunctionTool.from_defaults(greet, partial_params={"secret": "s"}))
    assert made.spec.parameters["properties"].keys() == {"name"}
    assert (await run(made, ctx, name="Ada")).output == "Ada s"
    with pytest.raises(ToolArgumentsInvalid, match="secret: there is no such argument"):
        made.validate({"name": "Ada", "secret": "x"})


async def test_a_query_engine_answers_with_its_sources(ctx: Ctx) -> None:
    tool = QueryEngineTool.from_defaults(
        index().as_query_engine(llm=MockLLM()), name="handbook", description="The handbook of the shop."
    )
    (made,) = llamaindex_tools(tool, effects={"handbook": ["read_only"]})
    assert made.spec.parameters["required"] == ["input"]
    output = await run(made, ctx, input="When does it open?")
    assert "The shop opens at nine." in output.output  # the mock says its prompt
    (source,) = output.sources
    assert source["metadata"] == {"file": "opening.md"}
    assert source["text"] == "The shop opens at nine."
    assert isinstance(source["score"], float)


async def test_a_retriever_gets_the_question_alone(ctx: Ctx) -> None:
    class Shelf(BaseRetriever):
        def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
            node = TextNode(text=f"{query_bundle.query_str.strip()}?", id_="n1", metadata={"file": "a.md"})
            return [NodeWithScore(node=node, score=0.5)]

    (made,) = llamaindex_tools(RetrieverTool.from_defaults(Shelf(), name="find", description="d"))
    output = await run(made, ctx, input="opening")
    assert "\n\nopening?" in output.output
    assert output.sources == ({"id": "n1", "score": 0.5, "metadata": {"file": "a.md"}, "text": "opening?"},)


async def test_a_list_index_has_sources_without_a_score(ctx: Ctx) -> None:
    engine = SummaryIndex([TextNode(text="Tea.", id_="n1")]).as_query_engine(llm=MockLLM())
    (made,) = llamaindex_tools(QueryEngineTool.from_defaults(engine, name="all", description="d"))
    assert (await run(made, ctx, input="?")).sources == (
        {"id": "n1", "score": None, "metadata": {}, "text": "Tea."},
    )


async def test_blocks_become_parts(ctx: Ctx) -> None:
    pixel = base64.b64decode(
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    )

    def look() -> list[Any]:
        """Look."""
        return [TextBlock(text="a dot"), ImageBlock(image=pixel)]

    (made,) = llamaindex_tools(FunctionTool.from_defaults(look))
    assert (await run(made, ctx)).observation == [Text("a dot"), Image(data=pixel, media_type="image/png")]


async def test_an_output_that_says_it_is_an_error_is_one(ctx: Ctx) -> None:
    def broken(result: Any) -> TheirOutput:
        return TheirOutput(content="no tea", tool_name="t", raw_input={}, raw_output=None, is_error=True)

    (made,) = llamaindex_tools(FunctionTool.from_defaults(add, callback=broken))
    with pytest.raises(ToolError, match="no tea"):
        await run(made, ctx, a=1)


async def test_a_value_without_a_json_form_is_told_as_its_text(ctx: Ctx) -> None:
    class Point:
        def __str__(self) -> str:
            return "(1, 2)"

    (made,) = llamaindex_tools(FunctionTool.from_defaults(Point, name="point", description="d"))
    assert (await run(made, ctx)).output == "(1, 2)"


async def test_an_agent_names_the_nodes_as_the_sources_of_its_answer() -> None:
    tool = QueryEngineTool(
        index().as_query_engine(llm=MockLLM()), metadata=ToolMetadata(name="handbook", description="d")
    )
    agent = Agent(
        ScriptedModel([call("handbook", input="opening"), text("At nine.")]),
        tools=llamaindex_tools(tool, effects={"*": ["read_only"]}),
    )
    async with Runner("memory:", agents=[agent]) as runner:
        result = await runner.run(agent, "When do you open?")
    assert (result.final_text, [each["metadata"] for each in result.sources]) == (
        "At nine.",
        [{"file": "opening.md"}],
    )
