import asyncio
import itertools
import threading
from collections import Counter
from typing import Any

import pytest

from tests.runner.acts import until
from tests.server.calling import HOME, Client, agent, serving
from treadle import Runner
from treadle.errors import ConfigurationError, StoreUnavailable
from treadle.server import Principal, ServerLimits, app, routes
from treadle.server.calls import Readiness
from treadle.server.guard import Rates
from treadle.server.problems import Problem

pytestmark = pytest.mark.anyio

HOSTS = {
    "127.0.0.1:8700": True,
    "localhost:9999": True,
    "[::1]:8700": True,
    "agents.example": True,
    "AGENTS.example:443": True,
    "other.example:8443": True,
    "other.example": False,
    "evil.example": False,
    "127.0.0.1.evil.example": False,
    "agents.example.evil.example": False,
    "localhost@evil.example": False,
    "": False,
}
ORIGINS = {
    None: True,
    "own": True,
    "https://app.example": True,
    "https://evil.example": False,
    "http://app.example": False,
    "https://app.example.evil.example": False,
    "http://localhost:3000": False,
    "null": False,
    "": False,
}
MEDIA = {
    "application/json": True,
    "application/json; charset=utf-8": True,
    "Application/JSON": True,
    "text/plain": False,
    "application/x-www-form-urlencoded": False,
    "multipart/form-data; boundary=x": False,
    "application/json; charset=utf-16": False,
    "application/jsonp": False,
    "": False,
}


async def test_only_requests_of_a_known_host_an_allowed_origin_and_json_are_served():
    origins, hosts = ["https://app.example"], ["agents.example", "other.example:8443"]
    async with serving(hosts=hosts, origins=origins) as api, Client(api) as client:
        for (host, known), (origin, allowed), (media, is_json) in itertools.product(
            HOSTS.items(), ORIGINS.items(), MEDIA.items()
        ):
            headers = {"Host": host, "Content-Type": media}
            if origin is not None:
                headers["Origin"] = f"http://{host.lower()}" if origin == "own" else origin
            response = await client.post("/v1/tasks/x/pause", content=b"{}", headers=headers)
            expected = 421 if not known else 403 if not allowed else 415 if not is_json else 404
            assert response.status_code == expected, (headers, response.text)
            is_listed = origin == "https://app.example"
            assert response.headers.get("access-control-allow-origin") == (origin if is_listed else None)


async def test_a_page_of_another_site_may_not_call_without_an_origin_either():
    async with serving() as api, Client(api) as client:
        await client.json("GET", "/v1/me", status=403, Sec_Fetch_Site="cross-site")
        await client.json("GET", "/v1/me", Sec_Fetch_Site="same-origin")
        await client.json("GET", "/v1/me", Sec_Fetch_Site="none")


async def test_a_preflight_is_answered_for_listed_origins_alone():
    async with serving(origins=["https://app.example"]) as api, Client(api, None) as client:
        asked = {"Access-Control-Request-Method": "POST"}
        allowed = await client.options("/v1/tasks", headers={"Origin": "https://app.example", **asked})
        assert allowed.status_code == 204
        assert allowed.headers["access-control-allow-origin"] == "https://app.example"
        assert "authorization" in allowed.headers["access-control-allow-headers"]
        assert "access-control-allow-credentials" not in allowed.headers
        refused = await client.options("/v1/tasks", headers={"Origin": "https://evil.example", **asked})
        assert refused.status_code == 403
        assert "access-control-allow-origin" not in refused.headers


async def test_credentials_are_taken_from_the_authorization_header_alone():
    async with serving() as api, Client(api, None) as client:
        refused = await client.get("/v1/me")
        assert refused.status_code == 401
        assert refused.headers["www-authenticate"].startswith("Bearer")
        assert refused.headers["content-type"] == "application/problem+json"
        for path in ("/v1/me?token=ann", "/v1/nowhere", "/v1/tasks", "/metrics"):
            assert (await client.get(path, headers={"Cookie": "token=ann"})).status_code == 401
        assert (await client.get("/health")).json() == {"status": "alive"}
        assert (await client.get("/ready")).json() == {"status": "ready"}


async def test_a_request_without_a_principal_is_told_to_the_audit_log(caplog: pytest.LogCaptureFixture):
    async with serving() as api, Client(api, "stranger") as client:
        refused = await client.json("GET", "/v1/me", status=401)
    (record,) = [record for record in caplog.records if record.name == "treadle.audit"]
    assert vars(record)["instance"] == refused["instance"]
    assert "stranger" not in record.getMessage()


async def test_an_error_of_the_function_that_tells_principals_is_a_fault_that_tells_nothing():
    def auth(_: Any) -> None:
        raise ConfigurationError("the tokens in /etc/tokens.toml cannot be read")

    async with serving(auth=auth) as api, Client(api) as client:
        refused = await client.json("GET", "/v1/me", status=500)
        assert refused["type"] == "urn:treadle:error:ServerFault"
        assert "tokens" not in str(refused)


@pytest.mark.parametrize("fault", [KeyError, SystemExit, KeyboardInterrupt])
async def test_an_auth_function_that_raises_filled_the_log(
    fault: type[BaseException], caplog: pytest.LogCaptureFixture
):
    def claim_of(connection: Any) -> str:
        raise fault("no claim 'sub'")

    def auth(connection: Any) -> Principal:
        return Principal(claim_of(connection))

    async with serving(auth=auth) as api, Client(api) as client:
        for _ in range(120):
            refused = await client.json("GET", "/v1/me", status=500)
            assert "claim" not in str(refused)
    lines = [record.getMessage() for record in caplog.records if record.name == "treadle.server"]
    assert len(lines) == 3
    assert "in auth\n" in lines[0]
    assert "in claim_of\n" in lines[0]
    assert "/src/treadle/" not in lines[0]
    assert lines[0].count("\n") < 15
    assert lines[1:] == [
        f"auth= raised {fault.__name__} 10 times; the first is logged in full",
        f"auth= raised {fault.__name__} 100 times; the first is logged in full",
    ]


async def test_a_body_that_is_too_large_is_refused_before_all_of_it_was_read():
    limits = ServerLimits(body_bytes=1_000, file_bytes=3_000)
    async with serving(limits=limits) as api, Client(api) as client:
        await client.json("POST", "/v1/tasks/x/pause", {"reason": "x" * 1_000}, status=413)
        await client.json("POST", "/v1/tasks/x/send", {"message": "x" * 2_000}, status=404)
        await client.json("POST", "/v1/tasks/x/send", {"message": "x" * 3_000}, status=413)
        sent = 0

        async def endless() -> Any:
            nonlocal sent
            while True:
                sent += 100
                yield b" " * 100

        response = await client.post(
            "/v1/tasks/x/pause", content=endless(), headers={"Content-Type": "application/json"}
        )
        assert response.status_code == 413
        assert sent <= 2_000


async def test_a_body_that_does_not_arrive_is_given_up():
    async with serving(limits=ServerLimits(body_seconds=0.05)) as api:

        async def receive() -> Any:
            await asyncio.sleep(30)

        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)

        headers = {"host": "localhost", "authorization": "Bearer ann", "content-type": "application/json"}
        scope = {
            "type": "http",
            "method": "POST",
            "path": "/v1/tasks/x/pause",
            "raw_path": b"/v1/tasks/x/pause",
            "query_string": b"",
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        }
        await api(scope, receive, send)
        assert sent[0]["status"] == 408


HOSTILE = {
    "brackets": b"[" * 49_000,
    "objects": b'{"a":' * 5_000,
    "not a number": b'{"reason": NaN}',
    "infinity": b'{"reason": 1e999}',
    "half a character": b'{"reason": "\\ud800"}',
    "not UTF-8": b'{"reason": "\xff"}',
    "a giant number": b'{"reason": ' + b"9" * 100_000 + b"}",
    "cut": b'{"reason": "x',
    "two documents": b"{} {}",
    "a comment": b"{} // x",
}


async def test_a_body_that_is_no_plain_json_is_refused():
    headers = {"Content-Type": "application/json"}
    async with serving(limits=ServerLimits(requests_per_second=1_000)) as api, Client(api) as client:
        for name, body in HOSTILE.items():
            response = await client.post("/v1/tasks/x/pause", content=body, headers=headers)
            assert response.status_code in (400, 422), (name, response.text)
            assert len(response.content) < 2_000


async def test_a_body_of_very_many_objects_is_refused_before_it_is_read():
    async with serving() as api, Client(api) as client:
        many = b'{"messages": [%s]}' % b",".join([b"{}"] * 60_000)
        headers = {"Content-Type": "application/json"}
        response = await client.post("/v1/threads/t/import", content=many, headers=headers)
        assert response.status_code == 413


async def test_every_response_names_the_request_and_is_not_cached():
    async with serving() as api, Client(api) as client:
        for path in ("/v1/me", "/v1/nowhere", "/health"):
            headers = (await client.get(path)).headers
            assert headers["cache-control"] == "no-store"
            assert headers["x-content-type-options"] == "nosniff"
            assert len(headers["treadle-request"]) == 16


def test_the_requests_of_a_second_are_counted_for_each_principal():
    rates = Rates(5)
    for _ in range(10):
        rates.check("ann")
    with pytest.raises(Problem) as refused:
        rates.check("ann")
    assert (refused.value.status, refused.value.headers["Retry-After"]) == (429, "1")
    rates.check("ben")


WRONG_SETTINGS: list[dict[str, Any]] = [
    {"hosts": "agents.example"},
    {"hosts": ["https://agents.example"]},
    {"hosts": ["*"]},
    {"origins": ["*"]},
    {"origins": ["null"]},
    {"origins": ["app.example"]},
    {"origins": ["https://app.example/"]},
    {"public_url": "agents.example"},
    {"auth": "token"},
    {"ceiling": {"steps": 1}},
]


def test_a_setting_that_would_open_the_server_or_cannot_be_is_refused():
    runner = Runner("memory:", agents=[agent()])
    for wrong in WRONG_SETTINGS:
        with pytest.raises(ConfigurationError):
            app(runner, **{"auth": lambda _: None, **wrong})


async def test_links_never_come_from_the_host_header():
    async with serving(hosts=["agents.example"]) as api, Client(api) as client:
        body = {"agent": "shop", "input": "hi"}
        response = await client.post("/v1/tasks", json=body, headers={"Host": "agents.example"})
        assert response.headers["location"].startswith("/v1/tasks/")
        assert HOME not in response.text


@pytest.mark.parametrize("values", [b"[%s]", b'{"a": 0, %s}'])
async def test_a_body_of_very_many_numbers_or_names_stopped_the_whole_server_for_seconds(values: bytes):
    async with serving() as api, Client(api) as client:
        each = b"0" if values.startswith(b"[") else b'"n": 0'
        many = b'{"agent": "shop", "input": "x", "extra_state": {"a": %s}}' % (
            values % b",".join([each] * 150_000)
        )
        response = await client.post("/v1/tasks", content=many, headers={"Content-Type": "application/json"})
        assert (response.status_code, response.json()["type"]) == (413, "urn:treadle:error:BodyTooLarge")


@pytest.mark.parametrize(
    ("digits", "count", "status"), [(4_000, 250, 413), (999, 1_001, 413), (4_000, 20, 201), (499, 1_500, 201)]
)
async def test_numbers_of_thousands_of_digits_held_the_loop_for_seconds(digits: int, count: int, status: int):
    async with serving() as api, Client(api) as client:
        numbers = b",".join([b"1" * digits] * count)
        body = b'{"agent": "shop", "input": "x", "extra_state": {"a": [%s]}}' % numbers
        response = await client.post("/v1/tasks", content=body, headers={"Content-Type": "application/json"})
        assert response.status_code == status, response.text[:200]


async def test_a_function_that_never_tells_a_principal_held_its_connections_for_ever(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr("treadle.server.guard.AUTH_SECONDS", 0.01)

    async def auth(_: Any) -> None:
        await asyncio.Event().wait()

    async with serving(auth=auth) as api, Client(api) as client, asyncio.timeout(5):
        await client.json("GET", "/v1/me", status=500)


async def test_a_client_that_left_amid_its_body_was_logged_as_a_fault(caplog: pytest.LogCaptureFixture):
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/v1/tasks",
        "query_string": b"",
        "headers": [
            (b"host", b"localhost"),
            (b"authorization", b"Bearer ann"),
            (b"content-type", b"application/json"),
        ],
    }
    async with serving() as api:
        await api(scope, receive, send)
    assert not sent
    assert not [record for record in caplog.records if record.name == "treadle.server"]


async def test_baggage_of_a_caller_was_taken_over_for_what_the_server_calls():
    from opentelemetry import baggage, trace
    from starlette.datastructures import Headers

    from treadle.server.routes import caller_span

    trace_id = "0af7651916cd43dd8448eb211c80319c"
    headers = Headers({"traceparent": f"00-{trace_id}-b7ad6b7169203331-01", "baggage": "tenant=another"})
    with caller_span(headers):
        assert not baggage.get_all()
        assert trace.get_current_span().get_span_context().trace_id == int(trace_id, 16)


async def test_refused_sign_ins_of_an_address_filled_the_audit_log(caplog: pytest.LogCaptureFixture):
    limits = ServerLimits(refusals_per_second=2)  # twice as many at once
    async with serving(limits=limits) as api, Client(api, "stranger") as client, Client(api) as known:
        codes = [(await client.get("/v1/me")).status_code for _ in range(30)]
        assert codes[:4] == [401] * 4
        assert 429 in codes
        told = [record for record in caplog.records if record.name == "treadle.audit"]
        assert len(told) == codes.count(401) < 30
        await known.json("GET", "/v1/me")  # its address is that of the strangers


async def test_every_request_for_readiness_asked_the_store(monkeypatch: pytest.MonkeyPatch):
    async with serving() as api, Client(api, None) as client:
        runner, asked = api.service.runner, 0
        lists = runner.list_tasks

        async def list_tasks(**arguments: Any) -> Any:
            nonlocal asked
            asked += 1
            return await lists(**arguments)

        monkeypatch.setattr(runner, "list_tasks", list_tasks)
        answers = await asyncio.gather(*[client.get("/ready") for _ in range(20)])
        assert {answer.status_code for answer in answers} == {200}
        assert asked == 1
        api.service.readiness = Readiness()  # as if time had passed
        monkeypatch.setattr(runner, "list_tasks", _unavailable)
        assert (await client.get("/ready")).status_code == 503


async def _unavailable(**_: Any) -> Any:
    raise StoreUnavailable("gone")


async def test_requests_of_a_principal_that_wait_were_without_bound():
    limits = ServerLimits(waits_per_principal=2)
    async with serving(limits=limits) as api, Client(api) as ann, Client(api, "operator") as other:
        task = {"agent": "shop", "input": "hi", "task_id": "t"}
        await ann.json("POST", "/v1/tasks", {**task, "run": True}, status=201)  # which nothing drives
        wait = {"Prefer": "wait=20"}
        waiting = [asyncio.ensure_future(ann.get("/v1/tasks/t/result", headers=wait)) for _ in "ab"]
        await until(lambda: len(api.service.waits) == 2)
        refused = await ann.get("/v1/tasks/t/result", headers=wait)
        assert (refused.status_code, "retry-after" in refused.headers) == (429, True)
        made = await ann.post("/v1/tasks", json={**task, "task_id": "u", "run": True}, headers=wait)
        assert made.status_code == 201  # it is made, and not waited for
        third = asyncio.ensure_future(other.get("/v1/tasks/t/result", headers=wait))  # of another principal
        await until(lambda: len(api.service.waits) == 3)
        await ann.json("POST", "/v1/tasks/t/cancel", {})  # a task can be stopped all the same
        assert {answer.status_code for answer in await asyncio.gather(*waiting, third)} == {200}
        await ann.json("GET", "/v1/tasks/t/result", Prefer="wait=1")


def numbers(count: int, task: str) -> dict[str, Any]:
    """Return the body of a new task with so many numbers in its state."""
    state = {f"k{number}": number for number in range(count)}
    return {"agent": "shop", "input": "hello", "task_id": task, "extra_state": state}


async def test_large_bodies_of_one_principal_slowed_the_requests_of_all():
    """Each took as long as hundreds of requests, and counted as one."""
    limits = ServerLimits(requests_per_second=1)
    async with serving(limits=limits) as api, Client(api) as ann, Client(api, "eve") as eve:
        bodies = [numbers(19_000, f"t{number}") for number in range(6)]
        posted = await asyncio.gather(*[ann.post("/v1/tasks", json=body) for body in bodies])
        statuses = sorted([response.status_code for response in posted])
        assert statuses == [201, 429, 429, 429, 429, 429]
        refused = await ann.get("/v1/me")
        assert (refused.status_code, int(refused.headers["retry-after"]) > 30) == (429, True)
        assert (await eve.get("/v1/me")).status_code == 200


async def test_large_bodies_of_a_principal_are_parsed_one_at_a_time_and_beside_those_of_others(
    monkeypatch: pytest.MonkeyPatch,
):
    parsing, most, both = Counter[str](), Counter[str](), threading.Barrier(2, timeout=30)
    parse = routes.json_of

    def watched(body: bytes) -> Any:
        author = "ann" if b'"ann' in body else "eve"
        parsing[author] += 1
        most[author] = max(most[author], parsing[author])
        both.wait()  # one of each principal is parsed at a time
        parsing[author] -= 1
        return parse(body)

    monkeypatch.setattr(routes, "json_of", watched)
    limits = ServerLimits(requests_per_second=1_000)
    async with serving(limits=limits) as api, Client(api) as ann, Client(api, "eve") as eve:
        requests = [
            client.post("/v1/tasks", json=numbers(2_000, f"{name}-{number}"))
            for number in range(4)
            for name, client in (("ann", ann), ("eve", eve))
        ]
        assert {response.status_code for response in await asyncio.gather(*requests)} == {201}
    assert most == {"ann": 1, "eve": 1}


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (numbers(21_000, "t"), 413),
        ({"agent": "shop", "input": "hello", "extra_state": {"lists": [[[]] for _ in range(10_000)]}}, 413),
        ({"agent": "shop", "input": "a, b, [c], {d}, " * 10_000}, 201),
        (numbers(19_000, "t"), 201),
    ],
    ids=["numbers", "lists", "signs in a text", "fewer numbers"],
)
async def test_a_body_holds_a_bounded_number_of_values_and_signs_in_texts_are_none(body: Any, status: int):
    async with serving() as api, Client(api) as client:
        await client.json("POST", "/v1/tasks", body, status=status)


def test_a_debt_is_paid_before_the_next_request_and_small_requests_take_one_token():
    rates = Rates(5)
    rates.charge("ann", 1e6)
    with pytest.raises(Problem) as refused:
        rates.check("ann")
    assert int(refused.value.headers["Retry-After"]) > 100_000
    rates.check("ben")


@pytest.mark.parametrize("length", [33_000, 70_000])
async def test_a_head_over_its_bound_is_refused_and_its_connection_closed(length: int):
    async with serving() as api, Client(api) as client:
        for headers, query in (({"X-Padding": "x" * length}, ""), ({}, "?" + "x" * min(length, 60_000))):
            response = await client.get(f"/v1/me{query}", headers=headers)
            assert (response.status_code, response.headers["connection"]) == (431, "close")
