"""The route of MCP: the checks of all routes, both eras without a session, and secrets."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.cast import look, scripted_agent
from tests.server.calling import Client, agent, by_name, serving
from treadle import Runner
from treadle.errors import ConfigurationError, MissingExtra
from treadle.server import ServerLimits, app, application, tool_agent

pytestmark = pytest.mark.anyio

BOTH = {"Accept": "application/json, text/event-stream"}
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}
MODERN = {**BOTH, "MCP-Protocol-Version": "2026-07-28"}


def body(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"_meta": META, **params}}


async def test_a_request_of_2026_is_one_post():
    async with serving("memory:", agent()) as api, Client(api) as client:
        headers = {**MODERN, "Mcp-Method": "tools/list"}
        response = await client.post("/mcp", json=body("tools/list"), headers=headers)
        assert response.status_code == 200, response.text
        assert [tool["name"] for tool in response.json()["result"]["tools"]] == ["shop"]
        assert "mcp-session-id" not in response.headers
        found = await client.post(
            "/mcp", json=body("server/discover"), headers={**MODERN, "Mcp-Method": "server/discover"}
        )
        result = found.json()["result"]
        assert "do not begin it anew" in result["instructions"]
        assert result["capabilities"]["extensions"] == {"io.modelcontextprotocol/tasks": {}}


async def test_a_client_of_2025_needs_no_session():
    async with serving("memory:", agent()) as api, Client(api) as client:
        start = {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        }
        hello = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": start}
        response = await client.post("/mcp", json=hello, headers=BOTH)
        assert response.status_code == 200
        assert '"protocolVersion":"2025-11-25"' in response.text
        assert "mcp-session-id" not in response.headers
        note = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        assert (await client.post("/mcp", json=note, headers=BOTH)).status_code == 202
        listed = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        headers = {**BOTH, "MCP-Protocol-Version": "2025-11-25"}
        assert '"name":"shop"' in (await client.post("/mcp", json=listed, headers=headers)).text


async def test_the_route_has_the_checks_of_all_routes():
    async with serving("memory:", agent()) as api, Client(api) as client:
        headers = {**MODERN, "Mcp-Method": "tools/list"}

        async def status(method: str = "POST", **changes: Any) -> int:
            given: dict[str, Any] = {"json": body("tools/list"), "headers": headers, **changes}
            return (await client.request(method, "/mcp", **given)).status_code

        assert await status() == 200
        assert await status(headers={**headers, "Authorization": "Bearer x"}) == 401
        assert await status(headers={**headers, "Host": "evil.example"}) == 421
        assert await status(headers={**headers, "Origin": "https://evil.example"}) == 403
        assert await status(headers={**headers, "Content-Type": "text/plain"}) == 415
        assert await status(headers={**headers, "Accept": "text/html"}) == 406
        assert await status(
            json=None, content=b"[" * 100_000, headers={**headers, "Content-Type": "application/json"}
        ) in (400, 413)
        assert await status("GET") == 405
        api.service.draining = True
        assert await status() == 503


@pytest.mark.parametrize("headers", [BOTH, MODERN])
@pytest.mark.parametrize(
    "document", [{}, {"id": 1}, {"jsonrpc": "1.0"}, {"jsonrpc": "2.0", "id": {}, "method": 3}]
)
async def test_a_malformed_request_is_refused(document: Any, headers: dict[str, str]):
    async with serving("memory:", agent()) as api, Client(api) as client:
        response = await client.post("/mcp", json=document, headers=headers)
        assert response.status_code == 400, response.text
        assert response.json()["error"]["code"] in (-32600, -32602)


VALUES: list[Any] = [
    *(None, True, -1, 1e300, 10**30, "", "shop", "look", "t@3", "a\u202eb", "a" * 5_000),
    *([], {}, [1, {"a": None}], {"input": "hi"}, {"a": {"b": []}}),
]
NAMES = (
    "name",
    "arguments",
    "taskId",
    "inputResponses",
    "requestState",
    "cursor",
    "_meta",
    "task",
    "capabilities",
)
METHODS: list[Any] = [
    *(
        "ping",
        "initialize",
        "server/discover",
        "tools/list",
        "tools/call",
        "tasks/get",
        "tasks/update",
        "tasks/cancel",
    ),
    *("notifications/initialized", "notifications/cancelled", "resources/list", "", 3, None),
]
ABLE = {
    **META,
    "io.modelcontextprotocol/clientCapabilities": {
        "elicitation": {},
        "extensions": {"io.modelcontextprotocol/tasks": {}},
    },
}


def odd_request(rng: random.Random) -> tuple[dict[str, Any], dict[str, str]]:
    """Return a request with odd values in odd places, and headers that mostly fit."""
    params: Any = {name: rng.choice(VALUES) for name in NAMES if rng.random() < 0.4}
    params |= {"_meta": ABLE} if rng.random() < 0.7 else {}
    params |= {"name": rng.choice(["shop", "look"])} if rng.random() < 0.6 else {}
    params = params if rng.random() < 0.9 else rng.choice(VALUES)
    method = rng.choice(METHODS)
    document = {
        "jsonrpc": "2.0",
        "id": rng.choice([1, 1, 1, "a", None, 1.5, [], 2**70]),
        "method": method,
        "params": params,
    }
    document = {name: value for name, value in document.items() if rng.random() > 0.05}
    headers = {**MODERN} if rng.random() < 0.7 else {**BOTH}
    if isinstance(method, str):
        headers["Mcp-Method"] = method
    name: Any = (
        params.get("taskId" if str(method).startswith("tasks/") else "name")
        if isinstance(params, dict)
        else ""
    )
    if isinstance(name, str) and name.isascii():
        headers["Mcp-Name"] = name[:100]
    return document, headers


@pytest.mark.parametrize("count", [120, pytest.param(20_000, marks=pytest.mark.full)])
async def test_no_odd_request_is_a_fault_of_the_server(count: int, request: pytest.FixtureRequest):
    rng = random.Random(request.config.option.hypothesis_seed)
    limits = ServerLimits(requests_per_second=1_000_000, unfinished_tasks=1_000_000)
    agents = scripted_agent(name="shop"), tool_agent(look)
    async with serving("memory:", *agents, drive=True, limits=limits) as api, Client(api) as client:
        for _ in range(count):
            document, headers = odd_request(rng)
            response = await client.post("/mcp", json=document, headers=headers)
            assert response.status_code < 500, (document, response.text)
            assert "-32603" not in response.text, (document, response.text)
            assert "the server failed" not in response.text, (document, response.text)


async def test_a_server_without_the_protocol_has_no_route():
    async with serving("memory:", agent(), protocols=["agui"]) as api, Client(api) as client:
        assert (await client.post("/mcp", json={}, headers=BOTH)).status_code == 404


def test_a_protocol_needs_its_package(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(application, "find_spec", lambda name: None if name == "mcp" else object())
    runner = Runner("memory:", agents=[scripted_agent(name="shop")])
    assert "mcp" not in app(runner, auth=by_name).service.protocols
    with pytest.raises(MissingExtra, match=r"treadle\[mcp\]"):
        app(runner, auth=by_name, protocols=["mcp"])
    with pytest.raises(ConfigurationError, match="protocols may contain"):
        app(runner, auth=by_name, protocols=["smtp"])


class Auth:
    """Accepts names as tokens, and knows a secret, which the server masks."""

    def __call__(self, connection: Any) -> Any:
        return by_name(connection)

    def secret_values(self) -> frozenset[str]:
        return frozenset({"hunter2hunter2hunter2"})


async def test_no_secret_is_in_a_result():
    shop = scripted_agent("The key is hunter2hunter2hunter2.", name="shop")
    api = app(Runner("memory:", agents=[shop]), auth=Auth())
    async with api.lifespan(), Client(api) as client:
        headers = {**MODERN, "Mcp-Method": "tools/call", "Mcp-Name": "shop"}
        call = body("tools/call", name="shop", arguments={"input": "Tell me"})
        response = await client.post("/mcp", json=call, headers=headers)
        assert response.status_code == 200
        assert "The key is" in response.text
        assert "hunter2" not in response.text
