"""Every operation of the table, with every kind of credentials: made from the table, so that no row is left out."""

import itertools
import random
from typing import Any

import pytest

from tests.server.calling import Client, agent, serving
from treadle.server import ADMIN, ALL, Principal, ServerLimits
from treadle.server.principals import bearer_token
from treadle.verbs.operation import Operation
from treadle.verbs.table import OPERATIONS

pytestmark = pytest.mark.anyio

SCOPES = sorted(ADMIN)
PRINCIPALS = {
    **{f"only-{scope}": Principal(f"only-{scope}", scopes=[scope]) for scope in SCOPES},
    **{f"all-but-{scope}": Principal(f"all-but-{scope}", scopes=ADMIN - {scope}) for scope in SCOPES},
    "everything": Principal("everything", scopes=ADMIN),
    "default": Principal("default", scopes=ALL),
    "nothing": Principal("nothing", scopes=()),
    "admin-of-a-tenant": Principal("admin-of-a-tenant", "acme", scopes=ADMIN),
}
NO_CREDENTIALS = {
    "no header": {},
    "another token": {"Authorization": "Bearer nobody"},
    "no token": {"Authorization": "Bearer"},
    "basic": {"Authorization": "Basic everything"},
    "a cookie": {"Cookie": "Authorization=Bearer everything"},
    "another case": {"Authorization": "Bearer EVERYTHING"},
}
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW")

BODIES: dict[str, dict[str, Any]] = {
    "create_task": {"agent": "shop", "input": "hi"},
    "send": {"message": "hi"},
    "settle": {"request_id": "s1-0", "verdict": {"type": "not_happened"}},
    "answer": {"value": 1},
    "complete": {"ticket": "x"},
    "fail": {"ticket": "x", "error": "y"},
    "progress": {"ticket": "x", "value": 1},
    "edit_step": {"input": "hi"},
    "edit_call": {"call_id": "s1-0", "arguments": {}},
    "import_thread": {"messages": [{"role": "user", "parts": [{"type": "text", "text": "hi"}]}]},
    "prune": {"older_than": 1e6, "dry_run": True},
    "run_a2a": {"jsonrpc": "2.0", "id": 1, "method": "none"},
    "run_agui": {"threadId": "t", "runId": "r", "messages": []},
    "call_mcp": {"jsonrpc": "2.0", "id": 1, "method": "ping"},
    "create_response": {"model": "shop", "input": 1},
}
QUERIES = {"diff": "?a=there&b=there"}
"""What an operation needs to do something: without it, each would be refused for that."""


def by_token(connection: Any) -> Principal | None:
    return PRINCIPALS.get(bearer_token(connection) or "")


def url(operation: Operation, task: str = "there") -> str:
    path = operation.path.replace("{task}", task)
    for name in operation.in_path:
        path = path.replace(f"{{{name}}}", "1")
    return path + QUERIES.get(operation.name, "")


def scope_of(operation: Operation) -> str:
    return "admin" if operation.access == "operator" else operation.access


def allowed(operation: Operation, principal: Principal) -> bool:
    if operation.access == "operator" and principal.tenant:
        return False
    return operation.access in ("open", "any") or scope_of(operation) in principal.scopes


@pytest.mark.parametrize("others", [1, pytest.param(len(PRINCIPALS), marks=pytest.mark.full)])
async def test_each_operation_serves_principals_with_its_scope_alone(
    others: int, request: pytest.FixtureRequest
):
    """Beside those with all scopes or none, with its scope alone and all but it, some principals are any others."""
    rng = random.Random(request.config.option.hypothesis_seed)
    names = {name for name in PRINCIPALS if not name.startswith(("only-", "all-but-"))}
    async with serving("memory:", agent(), auth=by_token) as api, Client(api, None) as client:
        maker = {"Authorization": "Bearer everything"}
        for operation in OPERATIONS.values():
            # An operation before may have deleted it.
            task = {"agent": "shop", "input": "hi", "task_id": "there"}
            await client.post("/v1/tasks", json=task, headers=maker)
            scope = scope_of(operation)
            chosen = names | ({f"only-{scope}", f"all-but-{scope}"} & PRINCIPALS.keys())
            left = sorted(PRINCIPALS.keys() - chosen)
            for token in sorted(chosen) + rng.sample(left, min(others, len(left))):
                principal = PRINCIPALS[token]
                await check_access(client, operation, token, principal)


async def check_access(client: Client, operation: Operation, token: str, principal: Principal) -> None:
    response = await client.request(
        operation.method,
        url(operation),
        json=BODIES.get(operation.name, {}) if operation.method == "POST" else None,
        headers={"Authorization": f"Bearer {token}"},
    )
    if allowed(operation, principal):
        assert response.status_code not in (401, 403), (operation.name, token, response.text)
        assert response.status_code < 500, (operation.name, response.text)
    else:
        assert response.status_code == 403, (operation.name, token, response.text)
        assert response.json()["scope"] == scope_of(operation)


@pytest.mark.parametrize("count", [600, pytest.param(100_000, marks=pytest.mark.full)])
async def test_without_credentials_nothing_is_served_and_nothing_is_told(
    count: int, request: pytest.FixtureRequest
):
    told: set[tuple[int, str]] = set()
    paths = [url(operation) for operation in OPERATIONS.values() if operation.access != "open"]
    paths += ["/", "/v1", "/v1/nowhere", "/docs", "/openapi.json", "/v1/tasks/", "//v1/tasks", "/favicon.ico"]
    settings: Any = {
        "limits": ServerLimits(refusals_per_second=1_000_000),
        "inspector": False,
    }  # its files are open
    async with serving("memory:", agent(), auth=by_token, **settings) as api, Client(api, None) as client:
        cases = [*itertools.product(paths, NO_CREDENTIALS.items(), METHODS)]
        random.Random(request.config.option.hypothesis_seed).shuffle(cases)
        for path, (kind, headers), method in cases[:count]:
            response = await client.request(method, path, headers=headers)
            assert response.status_code == 401, (method, path, kind, response.text)
            told.add((len(response.content), response.headers["www-authenticate"]))
        assert len(told) <= 3, (
            "a response without credentials is the same for every path of a protocol"
        )  # that to HEAD is empty
        assert (await client.get("/v1/totals", headers={"Authorization": "Bearer everything"})).json()[
            "tasks"
        ] == 0


async def test_a_path_has_the_methods_of_the_table_and_no_others():
    by_path: dict[str, set[str]] = {}
    for operation in OPERATIONS.values():
        by_path.setdefault(operation.path, set()).add(operation.method)
    streamed = {operation.path for operation in OPERATIONS.values() if operation.streams}
    async with serving("memory:", agent(), auth=by_token) as api, Client(api, None) as client:
        for operation, method in itertools.product(OPERATIONS.values(), METHODS):
            has_head = "GET" in by_path[operation.path] and operation.path not in streamed
            served = by_path[operation.path] | ({"HEAD"} if has_head else set())
            if method not in served:
                response = await client.request(
                    method, url(operation), headers={"Authorization": "Bearer everything"}
                )
                assert response.status_code in (404, 405), (method, operation.path)
                if response.status_code == 405:
                    allow = {each.strip() for each in response.headers["allow"].split(",")}
                    assert served <= allow, (method, operation.path, allow)
