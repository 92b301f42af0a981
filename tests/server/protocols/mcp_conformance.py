"""The tools that the conformance suite of MCP calls, as served tools; `test_mcp_conformance` serves them."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

from pydantic import BaseModel

from treadle import File, Image, ToolContext, ToolOutput, tool
from treadle.server import Principal, tool_agent

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
)
SOUND = File(data=b"RIFF$\0\0\0WAVE", name="sound.wav", media_type="audio/wav")


@tool(read_only=True)
async def test_simple_text() -> str:
    """Return a text."""
    return "This is a simple text response for testing."


@tool(read_only=True)
async def test_image_content() -> Image:
    """Return a picture."""
    return Image(data=PNG, media_type="image/png")


@tool(read_only=True)
async def test_audio_content() -> ToolOutput:
    """Return a sound."""
    return ToolOutput("a sound", artifacts=[SOUND])


@tool(read_only=True)
async def test_embedded_resource() -> ToolOutput:
    """Return a file."""
    return ToolOutput("a file", artifacts=[File(data=b"text", name="a.txt", media_type="text/plain")])


@tool(read_only=True)
async def test_multiple_content_types() -> ToolOutput:
    """Return a text, a picture and a file."""
    picture = Image(data=PNG, media_type="image/png")
    file = File(data=b'{"test": 1}', name="a.json", media_type="application/json")
    return ToolOutput("several", ["Multiple content types test:", picture], artifacts=[file])


@tool(read_only=True)
async def test_error_handling() -> str:
    """Fail."""
    raise ValueError("This tool intentionally returns an error for testing")


@tool(read_only=True)
async def test_tool_with_progress(ctx: ToolContext[Any]) -> str:
    """Report progress."""
    for percent in (0, 50, 100):
        ctx.progress(percent)
        await asyncio.sleep(0.05)
    return "done"


@tool(read_only=True)
async def test_logging_tool() -> str:
    """Log nothing."""
    return "nothing was logged"


@tool(read_only=True)
async def test_streaming_elicitation(ctx: ToolContext[Any]) -> str:
    """Ask during a call."""
    return str(await ctx.ask("Which?"))


@tool(read_only=True)
async def greet(name: str) -> str:
    """Greet."""
    return f"Hello, {name}!"


@tool(read_only=True)
async def slow_compute(seconds: float = 0, label: str = "") -> str:
    """Take long enough for a handle."""
    await asyncio.sleep(max(seconds, 0.8))
    return f"{label} took {seconds} seconds"


@tool(read_only=True)
async def failing_job() -> str:
    """Fail after some time."""
    await asyncio.sleep(0.8)
    raise ValueError("the job failed")


class Confirmed(BaseModel):
    confirm: bool = False


class Ok(BaseModel):
    ok: bool = False


class Name(BaseModel):
    name: str


class Color(BaseModel):
    color: str


@tool(read_only=True)
async def confirm_delete(ctx: ToolContext[Any], filename: str = "") -> str:
    """Ask whether to delete a file."""
    answer = await ctx.ask(f"Delete {filename}?", Confirmed)
    return f"{filename} was {'deleted' if answer.confirm else 'kept'}"


@tool(read_only=True)
async def multi_input(ctx: ToolContext[Any]) -> str:
    """Ask two questions at once."""
    one, two = await asyncio.gather(ctx.ask("One?", Name), ctx.ask("Two?", Color))
    return f"{one} {two}"


@tool(read_only=True)
async def test_input_required_result_elicitation(ctx: ToolContext[Any]) -> str:
    """Ask for a name."""
    return f"Hello, {(await ctx.ask('What is your name?', Name)).name}!"


@tool(read_only=True)
async def test_input_required_result_request_state(ctx: ToolContext[Any]) -> str:
    """Ask for a confirmation."""
    await ctx.ask("Please confirm", Ok)
    return "state-ok"


@tool(read_only=True)
async def test_input_required_result_tampered_state(ctx: ToolContext[Any]) -> str:
    """Ask for a confirmation."""
    await ctx.ask("Please confirm", Ok)
    return "state-ok"


@tool(read_only=True)
async def test_input_required_result_multi_round(ctx: ToolContext[Any]) -> str:
    """Ask twice."""
    name = await ctx.ask("Step 1: What is your name?", Name)
    color = await ctx.ask("Step 2: What is your favorite color?", Color)
    return f"{name.name} likes {color.color}"


agents = [
    tool_agent(each)
    for each in (
        *(test_simple_text, test_image_content, test_audio_content, test_embedded_resource),
        *(test_multiple_content_types, test_error_handling, test_tool_with_progress, test_logging_tool),
        *(test_streaming_elicitation, greet, slow_compute, failing_job, confirm_delete),
        *(test_input_required_result_request_state, test_input_required_result_tampered_state),
        *(test_input_required_result_multi_round, test_input_required_result_elicitation, multi_input),
    )
]


def principal_of(connection: Any) -> Principal:
    """The suite sends no token."""
    return Principal("conformance")
