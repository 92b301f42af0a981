"""A server under test: an application over a runner, called without a network."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from threading import Event
from typing import Any

import httpx2

from tests.cast import scripted_agent
from treadle import Agent, Runner, ScriptedModel, tool
from treadle.llm.scripted import call, text
from treadle.runner.runner import TaskRunner
from treadle.server import ADMIN, Principal, app
from treadle.server.principals import bearer_token

PRINCIPALS = {
    "operator": Principal("ops", scopes=ADMIN),
    "ann": Principal("ann"),
    "eve": Principal("eve", tenant="acme"),
    "reader": Principal("ron", scopes=("read",)),
    "none": Principal("nemo", scopes=()),
    "runner": Principal("rita", scopes=("read", "run")),
}
HOME = "http://127.0.0.1:8700"


def by_name(connection: Any) -> Principal | None:
    """Tokens are the names of principals here."""
    return PRINCIPALS.get(bearer_token(connection) or "")


def agent(*turns: Any, name: str = "shop") -> Agent[Any]:
    return Agent(ScriptedModel([*turns] or [text("done")] * 50), name=name)


def waiting_shop() -> tuple[Event, Agent[Any]]:
    """Return an event, and an agent whose tool waits for it in a thread."""
    gate = Event()

    @tool(read_only=True)
    def wait_for_it() -> str:
        return "it came" if gate.wait(20) else "it did not come"

    return gate, scripted_agent(call("wait_for_it"), "done", name="shop", tools=[wait_for_it])


class Client(httpx2.AsyncClient):
    """Calls an application as one principal."""

    def __init__(self, api: Any, token: str | None = "ann") -> None:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        transport = httpx2.ASGITransport(api, raise_app_exceptions=False)
        super().__init__(transport=transport, base_url=HOME, headers=headers)

    async def json(self, method: str, path: str, body: Any = None, status: int = 200, **headers: str) -> Any:
        """Send a request that must be answered with a status, and return the document of the response."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        response = await self.request(method, path, json=body, headers=named)
        assert response.status_code == status, (method, path, response.status_code, response.text[:500])
        return response.json() if response.content else None


@asynccontextmanager
async def serving(store: Any = "memory:", *agents: Agent[Any], **settings: Any) -> AsyncIterator[Any]:
    """Yield an application within its lifespan; it adopts nothing unless `drive` says so."""
    runner: TaskRunner = Runner(store, agents=agents or [agent()])
    api = app(runner, **{"auth": by_name, "drive": False, **settings})
    async with api.lifespan():
        yield api
