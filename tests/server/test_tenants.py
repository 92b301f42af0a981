"""What belongs to another tenant is not there: made from the table, so that no operation is left out."""

from typing import Any

import pytest

from tests.server.calling import Client, serving, waiting_shop
from tests.server.test_authorisation import BODIES, url
from treadle.server import ADMIN, ALL, Principal, ServerLimits
from treadle.server.principals import bearer_token
from treadle.verbs.operation import Operation
from treadle.verbs.table import OPERATIONS

pytestmark = pytest.mark.anyio

PRINCIPALS = {
    "ann": Principal("ann", "acme", ADMIN),
    "bob": Principal("bob", "bolt", ADMIN),
    "own": Principal("own", "", ADMIN),
    "no operator": Principal("opal", "", ALL),
}


TENANTS = ("ann", "bob", "own")


def by_name(connection: Any) -> Principal | None:
    return PRINCIPALS.get(bearer_token(connection) or "")


def new(task_id: str) -> dict[str, Any]:
    return {"agent": "shop", "input": f"of {task_id}", "task_id": task_id, "thread_id": f"thread-{task_id}"}


ON_ONE = [
    each
    for each in OPERATIONS.values()
    if {"task", "thread_id"} & {*each.in_path} and each.name != "import_thread"
]


async def asked(client: Client, operation: Operation, task: str) -> Any:
    path = url(operation, task).replace("/threads/1", f"/threads/thread-{task}")
    body = BODIES.get(operation.name, {}) if operation.method == "POST" else None
    headers = {"Accept": "application/json"}
    return await client.request(operation.method, path, json=body, headers=headers)


async def test_a_task_of_another_tenant_is_answered_like_a_task_that_never_existed(store: Any):
    async with (
        serving(store, auth=by_name) as api,
        Client(api, "ann") as ann,
        Client(api, "bob") as bob,
        Client(api, "own") as own,
    ):
        for client in (bob, own):
            await client.json("POST", "/v1/tasks", new("theirs"), status=201)
            await client.json("POST", "/v1/tasks/theirs/steps", {}, Prefer="wait=5")
            await client.json("POST", "/v1/tasks/theirs/finalize", {})
        before = [await client.json("GET", "/v1/tasks/theirs/result") for client in (bob, own)]
        for operation in ON_ONE:
            theirs, absent = await asked(ann, operation, "theirs"), await asked(ann, operation, "absent")
            assert theirs.status_code == absent.status_code, (operation.name, theirs.text)
            told, untold = theirs.json(), absent.json()
            for document in (told, untold):
                document.pop("instance", None)
            assert str(told).replace("theirs", "absent") == str(untold), operation.name
        assert [await client.json("GET", "/v1/tasks/theirs/result") for client in (bob, own)] == before
        assert (await ann.json("GET", "/v1/totals"))["tasks"] == 0


async def test_lists_hold_tasks_of_the_own_tenant_alone(store: Any):
    async with serving(store, auth=by_name) as api:
        clients = {name: Client(api, name) for name in TENANTS}
        for name, client in clients.items():
            for task in ("same", name):
                await client.json("POST", "/v1/tasks", new(task), status=201, Idempotency_Key="k")
                await client.json("POST", f"/v1/tasks/{task}/steps", {}, Prefer="wait=5")
                await client.json("POST", f"/v1/tasks/{task}/finalize", {})
        for name, client in clients.items():
            listed = (await client.json("GET", "/v1/tasks"))["items"]
            assert {item["task_id"] for item in listed} == {"same", name}
            threads = (await client.json("GET", "/v1/threads"))["items"]
            assert {item["thread_id"] for item in threads} == {"thread-same", f"thread-{name}"}
            assert (await client.json("GET", "/v1/usage"))["total"]["tasks"] == 2
            assert (await client.json("GET", "/v1/totals"))["tasks"] == 2
            for other in clients.keys() - {name}:
                assert (await client.get(f"/v1/tasks/{other}")).status_code == 404
                assert other not in (await client.get("/v1/tasks/same/export")).text.replace("another", "")


async def test_an_operator_may_act_in_any_tenant_and_no_other_principal_in_another(store: Any):
    async with (
        serving(store, auth=by_name) as api,
        Client(api, "ann") as ann,
        Client(api, "own") as own,
        Client(api, "no operator") as no_operator,
    ):
        await ann.json("POST", "/v1/tasks", new("hers"), status=201)
        await own.json("GET", "/v1/tasks/hers", status=404)
        await own.json("POST", "/v1/tasks/hers/edit_step", {"input": "bye"}, Treadle_Tenant="acme")
        (edited,) = (await ann.json("GET", "/v1/tasks/hers/events?kinds=input_edited"))["items"]
        assert edited["by"] == "own"
        await ann.json("GET", "/v1/tasks", status=403, Treadle_Tenant="bolt")
        await ann.json("GET", "/v1/tasks", Treadle_Tenant="acme")
        await no_operator.json("GET", "/v1/tasks", status=403, Treadle_Tenant="acme")
        await own.json("GET", "/v1/tasks", status=422, Treadle_Tenant="a'b")


async def test_one_key_of_two_tenants_is_two_tasks(store: Any):
    async with serving(store, auth=by_name) as api, Client(api, "ann") as ann, Client(api, "bob") as bob:
        body = {"agent": "shop", "input": "hi"}
        first = await ann.json("POST", "/v1/tasks", body, status=201, Idempotency_Key="k")
        second = await bob.json("POST", "/v1/tasks", body, status=201, Idempotency_Key="k")
        assert first["task_id"] != second["task_id"]


async def test_tasks_of_all_tenants_are_adopted(store: Any):
    async with serving(store, auth=by_name, drive=True) as api:
        for name in TENANTS:
            client = Client(api, name)
            result = await client.json("POST", "/v1/tasks", {**new("same"), "run": True}, Prefer="wait=20")
            assert (result["task_id"], result["state"]) == ("same", "completed")


async def test_a_tenant_has_no_more_tasks_driven_than_it_may():
    gate, shop = waiting_shop()
    limits = ServerLimits(driven_per_tenant=1)
    async with (
        serving("memory:", shop, auth=by_name, limits=limits) as api,
        Client(api, "ann") as ann,
        Client(api, "bob") as bob,
    ):
        for client, task in ((ann, "one"), (ann, "two"), (bob, "one")):
            await client.json("POST", "/v1/tasks", new(task), status=201)
        await ann.json("POST", "/v1/tasks/one/steps", {}, status=202)
        full = await ann.json("POST", "/v1/tasks/two/steps", {}, status=503)
        assert full["type"] == "urn:treadle:error:Full"
        await bob.json("POST", "/v1/tasks/one/steps", {}, status=202)
        gate.set()
        assert (await ann.json("GET", "/v1/tasks/one/steps/1", Prefer="wait=20"))["state"] == "running"


async def test_a_thread_of_another_tenant_was_found_by_its_whole_name(store: Any):
    async with serving(store) as api, Client(api, "eve") as owner, Client(api) as ann:
        task = {"agent": "shop", "input": "hi", "task_id": "t", "thread_id": "theirs"}
        await owner.json("POST", "/v1/tasks", task, status=201)
        await owner.json("POST", "/v1/tasks/t/steps", {}, Prefer="wait=5")
        await owner.json("POST", "/v1/tasks/t/finalize", {})
        assert (await owner.json("GET", "/v1/threads/theirs"))["turns"] == 1
        await ann.json("GET", "/v1/threads/acme%1Ftheirs", status=422)
