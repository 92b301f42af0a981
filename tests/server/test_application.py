"""An application as a part of others: mounted, without its lifespan, several over one store."""

from pathlib import Path
from typing import Any

import pytest

from tests.lazily import fastapi
from tests.server.calling import Client, agent, by_name, serving
from treadle import Agent, Runner, ScriptedModel, tool
from treadle.errors import ConfigurationError
from treadle.llm.scripted import call, text
from treadle.server import OneToken, app

pytestmark = pytest.mark.anyio

NEW = {"agent": "shop", "input": "hello", "task_id": "50%/a"}
TASK = "/v1/tasks/50%25%2Fa"


async def test_mounted_in_another_application_it_serves_and_drives_below_its_path():
    api = app(Runner("memory:", agents=[agent()]), auth=by_name)
    site = fastapi.FastAPI(lifespan=api.lifespan)
    site.mount("/agents", api)
    async with site.router.lifespan_context(site), Client(site) as client:
        created = await client.post("/agents/v1/tasks", json={**NEW, "run": True})
        assert created.headers["location"] == f"/agents{TASK}"
        result = await client.json("GET", f"/agents{TASK}/result", Prefer="wait=20")
        assert (result["task_id"], result["final_text"]) == ("50%/a", "done")
        page = await client.get("/agents/v1/tasks?limit=1")
        await client.json("POST", "/agents/v1/tasks", {"agent": "shop", "input": "x"}, status=201)
        page = await client.get("/agents/v1/tasks?limit=1")
        link = page.headers["link"]
        following = await client.json("GET", link[1 : link.index(">")])
        assert [item["task_id"] for item in following["items"]] == ["50%/a"]
        assert (await client.get("/agents/health")).json() == {"status": "alive"}
        async with Client(site, None) as stranger:
            assert (await stranger.get("/agents/health")).status_code == 200
            assert (await stranger.get(f"/agents{TASK}")).status_code == 401


async def test_without_its_lifespan_everything_is_served_and_no_task_is_adopted():
    api = app(Runner("memory:", agents=[agent()]), auth=by_name)
    async with Client(api) as client:
        await client.json("POST", "/v1/tasks", {**NEW, "run": True}, status=201)
        assert (await client.json("GET", f"{TASK}/result"))["state"] == "created"
        output = await client.json("POST", f"{TASK}/steps", {}, Prefer="wait=5")
        assert output["output"] == "done"
    await api.end()


async def test_the_same_request_at_two_servers_of_one_store_is_one_task_one_command_and_one_fork(
    tmp_path: Path,
):
    store = tmp_path / "journal.db"
    async with (
        serving(store) as first,
        serving(store) as second,
        Client(first) as one,
        Client(second) as other,
    ):
        tasks: set[str] = set()
        forks: set[str] = set()
        for number in range(10):
            client = one if number % 2 else other
            body = {"agent": "shop", "input": "hi"}
            made = await client.post("/v1/tasks", json=body, headers={"Idempotency-Key": "k"})
            assert made.status_code == (200 if number else 201)
            tasks.add(made.json()["task_id"])
            task = f"/v1/tasks/{made.json()['task_id']}"
            sent = {"message": "quickly"}
            await client.json("POST", f"{task}/send", sent, status=204, Idempotency_Key="s")
            forked = await client.post(f"{task}/fork", json={"at": 1}, headers={"Idempotency-Key": "f"})
            forks.add(forked.json()["task_id"])
        assert (len(tasks), len(forks)) == (1, 1)
        assert (await one.json("GET", "/v1/totals"))["tasks"] == 2
        (task,) = tasks
        head = (await one.get(f"/v1/tasks/{task}")).headers["etag"]
        steps = [
            await client.post(
                f"/v1/tasks/{task}/steps", json={}, headers={"If-Match": head, "Prefer": "wait=5"}
            )
            for client in (one, other) * 2
        ]
        assert [step.status_code for step in steps] == [200, 412, 412, 412]
        received = (await one.json("GET", f"/v1/tasks/{task}/events?kinds=input_received"))["items"]
        assert len(received) == 1


async def test_without_auth_the_server_has_the_token_of_a_file_of_its_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    api = app(Runner("memory:", agents=[agent()]))
    file = tmp_path / ".treadle" / "server-token"
    assert file.stat().st_mode & 0o777 == 0o600
    async with Client(api, file.read_text().strip()) as client, Client(api, None) as stranger:
        me = await client.json("GET", "/v1/me")
        assert (me["name"], me["models"]) == ("local", [])
        await stranger.json("GET", "/v1/me", status=401)


async def test_the_token_of_the_server_is_hidden_in_the_result_of_a_tool_that_reads_it():
    token = "k3JhsdUYtq8723_hsdkfjh83-ashdkjh8732hds7yds"

    @tool(read_only=True)
    def read() -> str:
        return f"the file holds {token}"

    shop = Agent(ScriptedModel([call("read"), text("done")]), name="shop", tools=[read])
    async with serving("memory:", shop, auth=OneToken(token)) as api, Client(api, token) as client:
        await client.json("POST", "/v1/tasks", NEW, status=201)
        output = await client.json("POST", f"{TASK}/steps", {}, Prefer="wait=5")
        assert output["tool_executions"][0]["output"] == "the file holds [secret]"
        stored = b"".join([record.data for record in await api.service.runner.store.read("50%/a")])
        assert token.encode() not in stored


@pytest.mark.parametrize("runner", ["journal.db", None, Runner])
def test_an_application_is_of_a_runner(runner: Any):
    with pytest.raises(ConfigurationError, match="the runner comes first"):
        app(runner, auth=by_name)
