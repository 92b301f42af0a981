"""The compatibility kit of A2A, a2a-tck, against a server here; every case that fails is listed with its reason.

The kit is no part of this project. TREADLE_A2A_TCK names a checkout of its branch 1.0-dev, with its requirements in
`.venv` there. It differs from clients in two ways, which `Shim` undoes: it adds a slash to the address in the card, and
it sends one message id with different messages. The id also names what the agent is to do, so it becomes the message.
"""

from __future__ import annotations

import asyncio
import json
import os
import uuid
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from tests.cast import inquire
from tests.server.hosting import hosted
from treadle import Agent, File, Message, ModelAnswer, Runner, Text, TextDelta, ToolCall, ToolOutput, tool
from treadle.server import ADMIN, Principal, ServerLimits, app

KIT = os.environ.get("TREADLE_A2A_TCK")
PYTHON = Path(KIT or "-") / ".venv" / "bin" / "python"

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(KIT is None, reason="TREADLE_A2A_TCK names no checkout of a2a-tck"),
]

EXPECTED = {
    "test_last_modified_present": "optional: a card has an ETag and no date",
    "test_task_has_file_artifact[jsonrpc]": "its first artifact must be a file; ours is always the answer",
    "test_task_has_file_url_artifact[jsonrpc]": "its first artifact must be a file; ours is always the answer",
    "test_task_has_data_artifact[jsonrpc]": "the agent of this test answers with text",
    "test_returns_message_with_text_part[jsonrpc]": "each message is a task, so no answer is a message alone",
}
"""The cases that fail, each with its reason."""


@tool(read_only=True)
async def write() -> ToolOutput:
    """Write a file."""
    return ToolOutput("written", artifacts=[File(data=b"x", media_type="text/plain", name="output.txt")])


@tool(read_only=True)
async def wait() -> str:
    """Take long."""
    await asyncio.sleep(8)
    return "waited"


class Scenarios:
    """Does what the kit's message ids ask for."""

    name = "test:scenarios"

    CALLS = (
        ("tck-input", "inquire", 1),
        ("tck-multi-turn", "inquire", 3),
        ("tck-artifact-file", "write", 1),
        ("tck-stream-artifact-file", "write", 1),
        ("test-resubscribe", "wait", 1),
    )

    async def stream(self, request: Any) -> AsyncIterator[Any]:
        asked = next(message.text for message in request.messages if message.role == "user")
        for prefix, name, count in self.CALLS:
            if asked.startswith(prefix) and request.turn < count:
                yield ModelAnswer(
                    Message("assistant", (ToolCall(f"c{request.turn}", name, {}),)), "tool_calls"
                )
                return
        text = "Generated text content" if asked.startswith("tck-artifact-text") else "Hello from TCK"
        for word in text.split():
            yield TextDelta(f"{word} ")
        yield ModelAnswer(Message("assistant", (Text(text),)))


class Shim:
    """Passes the kit's requests on to an application."""

    def __init__(self, api: Any) -> None:
        self._api = api

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._api(scope, receive, send)
            return
        body, more = b"", True
        while more:
            part = await receive()
            body, more = body + part.get("body", b""), part.get("more_body", False)
        with suppress(ValueError, KeyError, TypeError):
            document = json.loads(body)
            message = document["params"]["message"]
            if "taskId" not in message and [*message["parts"][0]] == ["text"]:
                message["parts"][0]["text"] = message["messageId"]
            message["messageId"] += uuid.uuid4().hex
            body = json.dumps(document).encode()
        rest = [{"type": "http.request", "body": body, "more_body": False}]

        async def again() -> Any:
            return rest.pop() if rest else await receive()

        headers = [each for each in scope["headers"] if each[0] != b"content-length"]
        headers.append((b"content-length", str(len(body)).encode()))
        path = scope["path"].rstrip("/")
        await self._api({**scope, "headers": headers, "path": path, "raw_path": path.encode()}, again, send)


async def test_the_cases_of_the_kit_pass_but_for_those_with_a_reason(tmp_path: Path):
    agent = Agent(Scenarios(), name="tck", tools=[inquire, write, wait])
    limits = ServerLimits(requests_per_second=100_000)
    api = app(Runner("memory:", agents=[agent]), auth=lambda _: Principal("tck", scopes=ADMIN), limits=limits)
    report = tmp_path / "report.xml"
    async with api.lifespan(), hosted(Shim(api), api.leave) as http:
        host = f"--sut-host={str(http.base_url).rstrip('/')}"
        command = [str(PYTHON), "-m", "pytest", "tests/compatibility", host, "--transport=jsonrpc"]
        kit = await asyncio.create_subprocess_exec(
            *command, f"--junitxml={report}", "-q", "-p", "no:cacheprovider", cwd=KIT, stdout=-3
        )
        await asyncio.wait_for(kit.wait(), 600)
    cases = [*ET.parse(report).getroot().iter("testcase")]
    failed = {str(case.get("name")) for case in cases if {part.tag for part in case} & {"failure", "error"}}
    passed = [case for case in cases if not len(case)]
    assert (failed, len(passed) > 80) == (set(EXPECTED), True), len(passed)
