"""Models without tool calling over HTTP: they see text and pictures, and never a tool."""

import base64
import json
import struct
import zlib
from typing import Any

import pytest

from tests.cast import add
from treadle import Agent, Image, Runner, ToolOutput, tool
from treadle.core.events import Delta
from treadle.testing.provider import call, text

COLOURS = {(200, 30, 30): "red", (30, 30, 200): "blue"}


def png(colour: tuple[int, int, int], size: int = 8) -> bytes:
    """A picture of one colour, as a camera would send it."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + bytes(colour) * size for _ in range(size))
    header = struct.pack(">IIBBBBB", size, size, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )


def colour_of(picture: bytes) -> str:
    """What a model that sees would say of a picture."""
    assert picture[:8] == b"\x89PNG\r\n\x1a\n"
    at = picture.index(b"IDAT")
    (size,) = struct.unpack(">I", picture[at - 4 : at])
    red, green, blue = zlib.decompress(picture[at + 4 : at + 4 + size])[1:4]
    return COLOURS[red, green, blue]


def seen(body: dict[str, Any]) -> list[str]:
    """The colours of all pictures in a request of either provider, in order."""
    texts: list[str] = []
    for message in body["messages"]:
        for part in message["content"] if isinstance(message["content"], list) else []:
            if part["type"] == "image_url":
                texts.append(colour_of(base64.b64decode(part["image_url"]["url"].partition("base64,")[2])))
            elif part["type"] == "image":
                texts.append(colour_of(base64.b64decode(part["source"]["data"])))
    return texts


@tool(read_only=True)
def photograph(what: str) -> ToolOutput:
    """Take a photograph."""
    return ToolOutput(
        what, observation=[f"here is {what}:", Image(data=png((30, 30, 200)), media_type="image/png")]
    )


def react(name: str, **options: Any) -> Any:
    return text(
        f"Thought: I want {name}.\nAction: {name}\nAction Input: {json.dumps(options)}\nObservation: made up"
    )


def planner(name: str, **options: Any) -> Any:
    return text(json.dumps({"thought": f"I want {name}.", "name": name, "arguments": options}))


CALLS = {"react": react, "planner": planner}


def answers(worker: str, content: str) -> Any:
    return (
        text(f"Thought: I know.\nAnswer: {content}")
        if worker == "react"
        else planner("finish", answer=content)
    )


@pytest.fixture(params=["openai:scripted", "anthropic:scripted"], ids=["openai", "anthropic"])
def model(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=["react", "planner"])
def worker(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.mark.anyio
async def test_pictures_reach_the_model_in_its_input_and_in_observations(
    serve: Any, model: str, worker: Any, tmp_path: Any
) -> None:
    def says(request: Any) -> Any:
        colours = seen(request.body)
        if len(colours) < 2:
            return CALLS[worker]("photograph", what=f"a {colours[0]} thing's neighbour")
        return answers(worker, f"First {colours[0]}, then {colours[1]}.")

    server = serve(says)
    (tmp_path / "in.png").write_bytes(png((200, 30, 30)))
    async with Runner(tmp_path / "journal.db") as runner:
        agent = Agent(model, tools=[photograph], worker=worker, instructions="Look closely.")
        task = await runner.create_task(agent, ["Which colours?", Image(path=str(tmp_path / "in.png"))])
        await runner.run_step(task)
    (tmp_path / "in.png").unlink()
    async with Runner(tmp_path / "journal.db", agents=[agent]) as runner:
        result = await runner.resume(task.task_id)
    assert (result.state, result.final_text) == ("completed", "First red, then blue.")
    assert result.tool_executions[0].arguments == {"what": "a red thing's neighbour"}
    bodies = [request.body for request in server.requests]
    assert all("tools" not in body and "tool_choice" not in body for body in bodies)
    assert "made up" not in str(bodies)
    assert "here is" in str(bodies[-1])
    assert "Observation: <untrusted-" in str(bodies[-1])


@pytest.mark.anyio
async def test_a_stream_brings_thought_arguments_and_answer_as_they_come(
    serve: Any, model: str, worker: Any
) -> None:
    serve(CALLS[worker]("add", a=1, b=2), answers(worker, "It is three, as far as I can see."))
    async with Runner("memory:") as runner:
        agent = Agent(model, tools=[add], worker=worker)
        async with runner.run_stream(agent, "1 + 2?") as stream:
            deltas = [event async for event in stream if isinstance(event, Delta)]
    expected = {
        channel: [d.text for d in deltas if d.channel == channel]
        for channel in ("reasoning", "arguments", "final")
    }
    assert "".join(expected["final"]) == stream.result.final_text == "It is three, as far as I can see."
    assert len(expected["final"]) > 1
    assert "".join(expected["reasoning"]).startswith("I want add.")
    assert json.loads("".join(expected["arguments"])) == {"a": 1, "b": 2}


@pytest.mark.anyio
async def test_a_thread_passes_between_workers_and_no_provider_refuses_it(
    serve: Any, model: str, worker: Any
) -> None:
    native = [call("add", a=1, b=2), text("Three.")]
    garbled = (
        text("Action: add two numbers\nAction Input: {") if worker == "react" else text('{"name": "add ')
    )
    server = serve(
        garbled, CALLS[worker]("add", a=1, b=1), answers(worker, "Two."), *native, answers(worker, "Still.")
    )
    async with Runner("memory:") as runner:
        texts_agent = Agent(model, tools=[add], worker=worker, name="words")
        tools = Agent(model, tools=[add], name="tools")
        await runner.run(texts_agent, "1 + 1?", thread_id="t")
        assert (await runner.run(tools, "1 + 2?", thread_id="t")).final_text == "Three."
        (answer,) = [
            m for m in server.requests[3].messages if m["role"] == "assistant" and "I want add." in str(m)
        ]
        assert "thinking" not in str(server.requests[3].body)
        assert "add" in str(answer)
        last = await runner.run(texts_agent, "sure?", thread_id="t")
    assert (last.state, last.final_text) == ("completed", "Still.")
    sent = str(server.requests[-1].body)
    assert [sent.count(message) for message in ("1 + 1?", "1 + 2?", "sure?")] == [1, 1, 1]
    assert "Observation: <untrusted-" in sent
