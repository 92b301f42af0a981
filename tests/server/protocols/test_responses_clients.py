"""The official clients `openai` of Python and of npm, with servers that are killed and started again.

That of npm needs Node and its package, which `make protocols` installs outside of the repository; TREADLE_PROTOCOLS
says where.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest
from openai import OpenAI, Stream

from tests.server.processes import ServerProcess
from tests.server.protocols.test_agui_client import HERE, HOME, WORKERS

PACKAGE = HOME / "node_modules" / "openai" / "package.json"
VERSION = json.loads((HERE / "package.json").read_text())["dependencies"]["openai"]
WHERE = {
    "type": "function",
    "name": "where",
    "description": "Where the user is.",
    "parameters": {"type": "object", "properties": {}},
}
LONG = " ".join(("long talk" * 20).split()) + " "
"""What the agent answers to `long talk`."""

Then = Callable[[Any], None]


class Python:
    """The client of Python."""

    def ask(
        self, server: ServerProcess, call: str, *, at: str = "", then: Then | None = None, **asked: Any
    ) -> Any:
        """Return what came of a call; at the first event of a type, do something."""
        headers = {"Idempotency-Key": asked["key"]} if "key" in asked else {}
        events: list[Any] = []
        told: dict[str, Any] = {"events": events, "response": None, "error": None, "text": None}
        with OpenAI(base_url=f"{server.url}/v1", api_key="ann", max_retries=0) as client:
            try:
                if call == "create":
                    made: Any = client.responses.create(**asked["body"], extra_headers=headers)
                else:
                    made = getattr(client.responses, call)(asked["id"], **asked.get("query", {}))
                if isinstance(made, Stream):
                    for event in made:
                        events.append(event.to_dict())
                        if event.type == at and then is not None:
                            then(events[-1])
                            at = ""
                    told["response"] = events[-1].get("response")
                elif made is not None:
                    told |= {"response": made.to_dict(), "text": made.output_text}
            except (openai.APIError, httpx2.TransportError) as error:
                told["error"] = {"name": type(error).__name__, "message": str(error)}
                told["error"] |= {name: getattr(error, name, None) for name in ("code", "param")}
        return told

    def close(self) -> None:
        """Do nothing: each call closes its client."""


class Node:
    """The client of npm, in a process of Node."""

    def __init__(self, node: str, folder: Path) -> None:
        self.log = folder / "node.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [node, str(HERE / "openai_client.mjs")],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, "TREADLE_PROTOCOLS": str(HOME)},
            )

    def ask(
        self, server: ServerProcess, call: str, *, at: str = "", then: Then | None = None, **asked: Any
    ) -> Any:
        """Return what came of a call; at the first event of a type, do something."""
        assert self.process.stdin is not None
        line = {"url": server.url, "call": call, "at": at or None, **asked}
        self.process.stdin.write(json.dumps(line).encode() + b"\n")
        self.process.stdin.flush()
        told = self.read()
        if then is not None and "events" not in told:
            then(told)
            told = self.read()
        return told

    def read(self) -> Any:
        """Return what the client tells next."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.log.read_text()
        return json.loads(line)

    def close(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()


@pytest.fixture(params=["python", "npm"])
def client(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Python | Node]:
    made: Python | Node = Python()
    if request.param == "npm":
        node = shutil.which("node")
        if node is None:
            pytest.skip("needs Node 20 or newer, and `make protocols`")
        if not PACKAGE.exists() or json.loads(PACKAGE.read_text())["version"] != VERSION:
            pytest.skip(f"openai {VERSION} is not in {HOME}: make protocols")
        made = Node(node, tmp_path)
    yield made
    made.close()


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Callable[[], ServerProcess]]:
    """Return a function that starts another server of one store."""
    (tmp_path / "workers.py").write_text(WORKERS)
    servers: list[ServerProcess] = []

    def begun() -> ServerProcess:
        servers.append(ServerProcess(tmp_path, f"sqlite:///{tmp_path}/store.db?lease=0.5").begun())
        return servers[-1]

    yield begun
    for server in servers:
        server.close()


def body(text: Any, **more: Any) -> dict[str, Any]:
    return {"model": "shop", "input": text, **more}


def text_of(events: list[Any]) -> str:
    """Return the text that a client has after some events, without void words."""
    text = ""
    for event in events:
        if event["type"] == "response.output_text.delta":
            text += event["delta"]
        elif event["type"] == "treadle:output_void":
            text = ""
    return text


def kinds(told: Any) -> list[str]:
    return [item["type"] for item in told["response"]["output"]]


def test_the_official_clients_start_stream_call_stop_and_repeat(
    client: Python | Node, begin: Callable[[], ServerProcess]
):
    server = begin()
    told = client.ask(server, "create", body=body("hello to all", instructions="Be brief."))
    assert (told["error"], told["response"]["status"], told["text"]) == (None, "completed", "hello to all ")

    told = client.ask(server, "create", body=body("hello to all", stream=True))
    assert (told["error"], told["response"]["status"]) == (None, "completed")
    deltas = [event["delta"] for event in told["events"] if event["type"] == "response.output_text.delta"]
    assert (len(deltas) > 1, "".join(deltas)) == (True, "hello to all ")

    told = client.ask(server, "create", body=body("look around"))
    assert (told["error"], kinds(told)) == (None, ["mcp_call", "message"])
    assert told["response"]["output"][0]["output"] == "seen"
    later = body("and hello", previous_response_id=told["response"]["id"])
    told = client.ask(server, "create", body=later)
    assert (told["error"], told["response"]["previous_response_id"]) == (None, later["previous_response_id"])

    first = client.ask(server, "create", body=body("hello once"), key="once")
    again = client.ask(server, "create", body=body("hello once"), key="once")
    assert (again["error"], again["response"]) == (None, first["response"])

    told = client.ask(server, "create", body=body("long talk", background=True))
    identifier = told["response"]["id"]
    assert told["response"]["status"] in ("queued", "in_progress")
    stopped: list[Any] = []

    def stop(event: Any) -> None:
        stopped.append(
            httpx2.post(
                f"{server.url}/v1/responses/{identifier}/cancel", headers={"Authorization": "Bearer ann"}
            )
        )

    told = client.ask(
        server, "retrieve", id=identifier, query={"stream": True}, at="response.output_text.delta", then=stop
    )
    assert (told["error"], told["response"]["status"]) == (None, "cancelled")
    assert stopped[0].json()["status"] == "cancelled"
    assert client.ask(server, "cancel", id=identifier)["response"]["status"] == "cancelled"
    told = client.ask(server, "create", body=body("hello", top_p=0.5))
    assert (told["error"]["name"], told["error"]["param"]) == ("BadRequestError", "top_p")


def test_what_waits_is_answered_after_the_server_was_killed(
    client: Python | Node, begin: Callable[[], ServerProcess]
):
    server = begin()
    asks = client.ask(server, "create", body=body("where am I?", tools=[WHERE]))
    assert (asks["error"], kinds(asks)) == (None, ["function_call"])
    pays = client.ask(server, "create", body=body("pay now"))
    assert (pays["error"], kinds(pays)) == (None, ["mcp_approval_request"])
    server.kill()
    later = begin()
    output = {
        "type": "function_call_output",
        "call_id": asks["response"]["output"][0]["call_id"],
        "output": "Rome",
    }
    answer = body([output], previous_response_id=asks["response"]["id"], tools=[WHERE])
    told = client.ask(later, "create", body=answer)
    assert (told["error"], told["text"]) == (None, "where am I? ")
    assert client.ask(later, "create", body=answer)["response"] == told["response"]
    decision = {
        "type": "mcp_approval_response",
        "approval_request_id": pays["response"]["output"][0]["id"],
        "approve": True,
    }
    told = client.ask(
        later, "create", body=body([decision], previous_response_id=pays["response"]["id"], stream=True)
    )
    assert (told["error"], kinds(told)) == (None, ["mcp_call", "message"])
    assert told["response"]["output"][0]["output"] == "paid 3"
    assert (
        client.ask(later, "retrieve", id=pays["response"]["id"])["response"]["output"]
        == pays["response"]["output"]
    )


def test_a_stream_that_a_killed_server_cut_goes_on_in_the_middle_of_a_word(
    client: Python | Node, begin: Callable[[], ServerProcess]
):
    server = begin()
    cut = client.ask(
        server,
        "create",
        body=body("long talk", stream=True),
        at="response.output_text.delta",
        then=lambda event: server.kill(),
    )
    assert cut["events"][-1]["type"] == "response.output_text.delta"
    identifier = cut["events"][0]["response"]["id"]
    later = begin()
    query = {"stream": True, "starting_after": cut["events"][-1]["sequence_number"]}
    rest = client.ask(later, "retrieve", id=identifier, query=query)
    assert (rest["error"], rest["response"]["status"]) == (None, "completed")
    events = [*cut["events"], *rest["events"]]
    numbers = [event["sequence_number"] for event in events]
    assert numbers == sorted(set(numbers)), "nothing is lost, doubled or out of order"
    assert text_of(events) == LONG
    assert [event["type"] for event in rest["events"]].count("treadle:output_void") == 1, (
        "the crash made words void"
    )
    for number in (numbers[5], numbers[-3]):
        query = {"stream": True, "starting_after": number}
        again = client.ask(later, "retrieve", id=identifier, query=query)
        seen = [event for event in events if event["sequence_number"] <= number]
        assert text_of(seen + again["events"]) == LONG
