import asyncio
import json
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.server.calling import Client, agent, by_name, serving, waiting_shop
from treadle import Agent, File, Limits, Runner, RunOptions, ScriptedModel, ToolOutput, tool
from treadle.llm.scripted import call, fail, text
from treadle.server import ADMIN, Principal, ServerLimits, app
from treadle.telemetry import OpenTelemetry

pytestmark = pytest.mark.anyio

NEW = {"agent": "shop", "input": "hello", "task_id": "order/1"}
TASK = "/v1/tasks/order%2F1"


async def test_a_task_is_created_once_stepped_and_finalized():
    async with serving() as api, Client(api) as client:
        created = await client.post("/v1/tasks", json=NEW)
        assert (created.status_code, created.headers["location"]) == (201, TASK)
        assert created.headers["etag"] == f'"{created.json()["head"]}"'
        again = await client.json("POST", "/v1/tasks", NEW, status=200)
        assert again == created.json()
        conflict = await client.json("POST", "/v1/tasks", {**NEW, "input": "bye"}, status=409)
        assert (conflict["type"], conflict["field"]) == ("urn:treadle:error:TaskConflict", "input")
        output = await client.json("POST", f"{TASK}/steps", {}, Prefer="wait=5")
        assert (output["is_last"], output["output"]) == (True, "done")
        result = await client.json("POST", f"{TASK}/finalize", {})
        assert (result["state"], result["final_text"]) == ("completed", "done")
        assert await client.json("GET", f"{TASK}/result") == result


async def test_a_key_makes_a_lost_answer_safe_to_ask_for_again():
    async with serving() as api, Client(api) as client, Client(api, "operator") as other:
        body = {"agent": "shop", "input": "hello"}
        first = await client.json("POST", "/v1/tasks", body, status=201, Idempotency_Key="k 1")
        for _ in range(9):
            same = await client.json("POST", "/v1/tasks", body, status=200, Idempotency_Key="k 1")
            assert same["task_id"] == first["task_id"]
        another = await other.json("POST", "/v1/tasks", body, status=201, Idempotency_Key="k 2")
        assert another["task_id"] != first["task_id"]
        assert (await client.json("GET", "/v1/totals"))["tasks"] == 2
        await client.json("POST", "/v1/tasks", body, status=400, Idempotency_Key="k" * 201)
        task = f"/v1/tasks/{another['task_id']}"
        await client.json("GET", task, status=400, Idempotency_Key="k")
        forks = [
            await client.post(f"{task}/fork", json={"at": 1}, headers={"Idempotency-Key": "f"}) for _ in "ab"
        ]
        assert [fork.status_code for fork in forks] == [201, 200]
        assert forks[0].json()["task_id"] == forks[1].json()["task_id"]
        for _ in range(3):
            await client.json("POST", f"{task}/send", {"message": "quickly"}, status=204, Idempotency_Key="s")
        await client.json("POST", f"{task}/steps", {}, Prefer="wait=5")
        events = (await client.json("GET", f"{task}/events?kinds=input_received"))["items"]
        assert len(events) == 1


async def test_a_submitted_task_is_driven_and_waited_for():
    async with serving(drive=True) as api, Client(api) as client:
        result = await client.json("POST", "/v1/tasks", {**NEW, "run": True}, status=200, Prefer="wait=20")
        assert (result["state"], result["final_text"]) == ("completed", "done")
        assert (await client.json("POST", f"{TASK}/resume", {}))["state"] == "completed"


async def test_no_request_has_to_stay_open_for_a_task_to_go_on():
    gate, shop = waiting_shop()
    async with serving("memory:", shop, drive=True) as api, Client(api) as client:
        started = await client.post("/v1/tasks", json={**NEW, "run": True}, headers={"Prefer": "wait=1"})
        assert started.status_code == 202, started.text
        location = started.headers["location"]
        assert location == f"{TASK}/result"
        assert (await client.get(location, headers={"Prefer": "wait=0"})).json()["state"] == "running"
        waiting = asyncio.create_task(client.json("GET", location, Prefer="wait=20"))
        await asyncio.sleep(0.05)
        gate.set()
        assert (await waiting)["final_text"] == "done"


async def test_a_step_that_takes_longer_than_the_request_goes_on_and_is_found():
    gate, shop = waiting_shop()
    async with serving("memory:", shop) as api, Client(api) as client:
        await client.json("POST", "/v1/tasks", NEW, status=201)
        begun = await client.post(f"{TASK}/steps", json={})
        assert (begun.status_code, begun.headers["location"]) == (202, f"{TASK}/steps/s1")
        busy = await client.post(f"{TASK}/steps", json={}, headers={"Prefer": "wait=1"})
        assert (busy.status_code, busy.headers["retry-after"]) == (409, "1")
        gate.set()
        output = await client.json("GET", f"{TASK}/steps/s1", Prefer="wait=20")
        assert (output["step"]["status"], output["tool_executions"][0]["output"]) == ("completed", "it came")
        assert (await client.json("GET", f"{TASK}/steps"))["items"] == [output]


async def test_a_step_that_failed_is_a_result():
    shop = agent(fail(400), text("done"))
    async with serving("memory:", shop) as api, Client(api) as client:
        await client.json("POST", "/v1/tasks", NEW, status=201)
        output = await client.json("POST", f"{TASK}/steps", {}, Prefer="wait=5")
        assert (output["state"], output["step"]["status"]) == ("failed", "failed")
        assert (await client.json("POST", f"{TASK}/steps", {}, Prefer="wait=5"))["output"] == "done"


async def test_a_request_for_all_ready_steps_runs_none_once_the_task_has_moved():
    async with serving() as api, Client(api) as client:
        await client.json("POST", "/v1/tasks", NEW, status=201)
        tag = (await client.get(TASK)).headers["etag"]
        headers = {"If-Match": tag, "Prefer": "wait=5"}
        ran = [await client.post(f"{TASK}/steps", json={"ready": True}, headers=headers) for _ in range(2)]
        assert [response.status_code for response in ran] == [200, 412]
        assert (await client.json("GET", TASK))["steps"] == 1


async def test_a_key_that_comes_again_with_another_message_is_refused_and_no_message_is_lost():
    async with serving() as api, Client(api) as client:
        await client.json("POST", "/v1/tasks", NEW, status=201)
        for text, status in [("one", 204), ("two", 422), ("one", 204)]:
            await client.json("POST", f"{TASK}/send", {"message": text}, status=status, Idempotency_Key="s")


async def test_the_first_of_two_edits_on_the_same_head_wins():
    async with serving() as api, Client(api) as client:
        await client.json("POST", "/v1/tasks", NEW, status=201)
        tag = (await client.get(TASK)).headers["etag"]

        async def edit(text: str) -> Any:
            while True:
                edited = await client.post(
                    f"{TASK}/edit_step", json={"input": text}, headers={"If-Match": tag}
                )
                if edited.status_code != 409:  # the other one has the task just now
                    return edited
                await asyncio.sleep(0.05)

        first, second = await asyncio.gather(edit("a"), edit("b"))
        assert sorted([first.status_code, second.status_code]) == [200, 412]
        moved = first.json() if first.status_code == 412 else second.json()
        assert moved["type"] == "urn:treadle:error:TaskMoved"
        assert moved["head"] == (await client.json("GET", TASK))["head"]
        unchanged = await client.get(TASK, headers={"If-None-Match": f'"{moved["head"]}"'})
        assert (unchanged.status_code, unchanged.content) == (304, b"")
        for wrong in ("17", 'w/"17"', 'W/ "17"', '"x"', '"-1"', '"17", "18"', "*", "", ","):
            await client.json("POST", f"{TASK}/edit_step", {"input": "c"}, status=400, If_Match=wrong)
        await client.json("POST", f"{TASK}/pause", {}, status=400, If_Match=tag)


async def test_a_tag_that_a_proxy_weakened_or_a_client_listed_was_not_known():
    async with serving() as api, Client(api) as client:
        created = await client.post("/v1/tasks", json=NEW, headers={"If-None-Match": "*"})
        tag = created.headers["etag"]
        assert created.status_code == 201
        for known in (tag, f"W/{tag}", f'"99", {tag}', f'W/"99" ,W/{tag}', "*"):
            answer = await client.get(TASK, headers={"If-None-Match": known})
            assert (answer.status_code, answer.headers["etag"], answer.content) == (304, tag, b""), known
        twice = [("If-None-Match", '"99"'), ("If-None-Match", tag)]
        assert (await client.get(TASK, headers=twice)).status_code == 304
        for other in ('"99"', 'W/"99", "x"', tag.strip('"'), tag[1:], ""):
            assert (await client.get(TASK, headers={"If-None-Match": other})).status_code == 200, other
        edit = f"{TASK}/edit_step"
        for number, match in enumerate((tag, f"W/{tag}", f" W/{tag} ")):
            status = 200 if number == 0 else 412  # the first edit moves the task
            await client.json("POST", edit, {"input": "b"}, status=status, If_Match=match)
        moved = (await client.get(TASK)).headers["etag"]
        await client.json("POST", edit, {"input": "c"}, If_Match=f"W/{moved}")
        refused = await client.post(edit, json={"input": "d"}, headers={"If-Match": f'{moved}, "99"'})
        assert refused.status_code == 400
        assert "`If-Match`" in refused.json()["detail"]


async def test_every_command_records_the_principal():
    async with serving() as api, Client(api) as client:
        await client.json("POST", "/v1/tasks", NEW, status=201)
        await client.json("POST", f"{TASK}/edit_step", {"input": "bye"})
        await client.json("POST", f"{TASK}/steps", {}, Prefer="wait=5")
        await client.json("POST", f"{TASK}/undo", {})
        events = (await client.json("GET", f"{TASK}/events"))["items"]
        said = {event["kind"]: event["by"] for event in events if event.get("by")}
        assert {"task_created", "input_edited", "undo_requested"} <= said.keys()
        assert set(said.values()) == {"ann"}
        refused = await client.json("POST", f"{TASK}/undo", {"by": "eve"}, status=422)
        assert refused["field"] == "by"


async def test_a_person_decides_on_what_waits():
    done: list[int] = []

    @tool(needs_approval=True)
    def pay(amount: int) -> str:
        done.append(amount)
        return "paid"

    shop = Agent(ScriptedModel([call("pay", amount=7), text("done")] * 3), name="shop", tools=[pay])
    async with serving("memory:", shop, drive=True) as api, Client(api) as client:
        result = await client.json("POST", "/v1/tasks", {**NEW, "run": True}, Prefer="wait=20")
        assert result["state"] == "waiting"
        page = await client.json("GET", "/v1/pending")
        assert await client.json("GET", f"{TASK}/pending") == page
        (item,) = page["items"]
        decision = {"request_id": item["request_id"], "arguments": {"amount": 5}}
        async with Client(api, "reader") as reader:
            await reader.json("POST", f"{TASK}/approve", decision, status=403)
        await client.json("POST", f"{TASK}/approve", decision, status=204)
        await client.json("POST", f"{TASK}/approve", decision, status=204)
        assert (await client.json("GET", f"{TASK}/result", Prefer="wait=20"))["final_text"] == "done"
        assert done == [5]
        refused = await client.json("POST", f"{TASK}/deny", decision | {"reason": "no"}, status=422)
        assert refused["field"] == "arguments"


async def test_a_caller_answers_a_call_of_a_tool_that_its_request_declared():
    shop = agent(call("pick_date", month="May"), text("done"))
    tools = [{"name": "pick_date", "description": "Pick a date.", "parameters": {"type": "object"}}]
    async with serving("memory:", shop, drive=True) as api, Client(api) as client:
        body = {**NEW, "run": True, "options": {"caller_tools": tools}}
        result = await client.json("POST", "/v1/tasks", body, Prefer="wait=20")
        (item,) = result["pending"]
        assert (item["kind"], item["tool"], item["arguments"]) == ("call", "pick_date", {"month": "May"})
        answer = {"ticket": item["request_id"], "value": "2027-05-01"}
        for _ in range(2):
            await client.json("POST", f"{TASK}/complete", answer, status=204)
        result = await client.json("GET", f"{TASK}/result", Prefer="wait=20")
        assert (result["final_text"], result["tool_executions"][0]["output"]) == ("done", "2027-05-01")


async def test_a_denial_with_stop_needs_the_scope_that_cancels():
    def auth(_: Any) -> Principal:
        return Principal("ann", scopes=("read", "run", "decide"))

    async with serving(auth=auth) as api, Client(api) as client:
        await client.json("POST", "/v1/tasks", NEW, status=201)
        refused = await client.json("POST", f"{TASK}/deny", {"stop": True}, status=403)
        assert refused["scope"] == "control"
        assert (await client.json("GET", TASK))["state"] == "created"


async def test_a_fork_and_a_page_link_to_what_follows():
    async with serving() as api, Client(api) as client:
        await client.json("POST", "/v1/tasks", {**NEW, "labels": {"shop": "x=y"}}, status=201)
        forked = await client.post(f"{TASK}/fork", json={"input": "and now?", "thread_id": "t"})
        fork = forked.json()["task_id"]
        assert (forked.status_code, forked.headers["location"]) == (201, f"/v1/tasks/{fork}")
        listed = await client.json("GET", "/v1/tasks?labels=shop=x=y&state=created&state=running&limit=1")
        assert listed["cursor"]
        page = await client.get("/v1/tasks?limit=1&labels=shop%3Dx%3Dy")
        (link,) = [page.headers["link"]]
        following = await client.json("GET", link[1 : link.index(">")])
        assert len(following["items"]) == 1
        assert following["items"] != page.json()["items"]
        assert (await client.json("GET", "/v1/tasks?forked_from=order/1"))["items"][0]["task_id"] == fork
        await client.json("DELETE", f"/v1/tasks/{fork}", status=204)
        await client.json("GET", f"/v1/tasks/{fork}", status=404)


async def test_events_come_in_pages_whole_or_cut_and_one_by_one():
    shop = agent(text("x" * 5_000))
    async with serving("memory:", shop) as api, Client(api) as client:
        await client.json("POST", "/v1/tasks", NEW, status=201)
        await client.json("POST", f"{TASK}/steps", {}, Prefer="wait=5")
        events: list[Any] = []
        url = f"{TASK}/events?limit=2"
        while True:
            page = await client.get(url)
            events += page.json()["items"]
            link = page.headers.get("link")
            if link is None:
                break
            url = link[1 : link.index(">")]
        assert [event["seq"] for event in events] == [*range(1, page.json()["head"] + 1)]
        answered = next(event for event in events if "x" * 5_000 in json.dumps(event))
        cut = (await client.json("GET", f"{TASK}/events?cut=1024&after={answered['seq'] - 1}&limit=1"))[
            "items"
        ][0]
        assert len(json.dumps(cut)) < 3_000
        assert await client.json("GET", f"{TASK}/events/{answered['seq']}") == answered
        await client.json("GET", f"{TASK}/events/9999", status=404)
        await client.json("GET", f"{TASK}/events/x", status=422)
        assert (await client.json("GET", f"{TASK}/events?limit=501", status=422))["field"] == "limit"
        refused = await client.json("GET", "/v1/tasks?since=yesterday", status=422)
        assert (refused["field"], "ISO 8601" in refused["detail"]) == ("since", True)
        kinds = (await client.json("GET", f"{TASK}/events?kinds=task_created&kinds=step_completed"))["items"]
        assert {event["kind"] for event in kinds} == {"task_created", "step_completed"}


async def test_an_artifact_is_an_attachment_that_no_browser_shows():
    @tool(read_only=True)
    def draw() -> ToolOutput:
        return ToolOutput("drawn", artifacts=[File(data=b"<script>", name="a.html", media_type="text/html")])

    shop = Agent(ScriptedModel([call("draw"), text("done")]), name="shop", tools=[draw])
    async with serving("memory:", shop) as api, Client(api) as client:
        await client.json("POST", "/v1/tasks", NEW, status=201)
        await client.json("POST", f"{TASK}/steps", {}, Prefer="wait=5")
        (artifact,) = (await client.json("GET", f"{TASK}/result"))["artifacts"]
        response = await client.get(f"{TASK}/artifacts/{artifact['artifact_id']}")
        assert (response.content, response.headers["content-type"]) == (
            b"<script>",
            "application/octet-stream",
        )
        assert response.headers["content-disposition"].startswith("attachment")
        as_json = await client.json(
            "GET", f"{TASK}/artifacts/{artifact['artifact_id']}", Accept="application/json"
        )
        assert (as_json["data"], as_json["media_type"]) == ("PHNjcmlwdD4=", "text/html")


async def test_an_export_of_the_server_is_imported_elsewhere(tmp_path: Any):
    async with serving() as api, Client(api) as client:
        await client.json("POST", "/v1/tasks", NEW, status=201)
        await client.json("POST", f"{TASK}/steps", {}, Prefer="wait=5")
        response = await client.get(f"{TASK}/export")
        (tmp_path / "tasks.jsonl").write_bytes(response.content)
        assert (await client.json("GET", f"{TASK}/verify"))["tasks"][0]["findings"] == []
        async with Runner("memory:") as elsewhere:
            await elsewhere.import_tasks(tmp_path / "tasks.jsonl")
            assert (await elsewhere.get_task("order/1")).steps == 1
        await client.json("GET", "/v1/tasks/none/export", status=404)


async def test_threads_are_imported_listed_read_and_deleted():
    messages = [
        {"role": "user", "parts": [{"type": "text", "text": "hi"}]},
        {"role": "assistant", "parts": [{"type": "text", "text": "hello"}]},
    ]
    async with serving() as api, Client(api) as client:
        await client.json("POST", "/v1/threads/t%2F1/import", {"messages": messages}, status=201)
        assert [item["thread_id"] for item in (await client.json("GET", "/v1/threads"))["items"]] == ["t/1"]
        thread = await client.json("GET", "/v1/threads/t%2F1/messages")
        assert (await client.json("GET", "/v1/threads/t%2F1"))["turns"] == 1
        await client.json("GET", "/v1/threads/none", status=404)
        assert [part["text"] for message in thread["items"] for part in message["parts"]] == ["hi", "hello"]
        await client.json("DELETE", "/v1/threads/t%2F1", status=204)
        await client.json("DELETE", "/v1/threads/t%2F1", status=404)


async def test_a_past_of_a_task_is_not_waited_for_and_a_step_has_two_names():
    async with serving() as api, Client(api) as client:
        await client.json("POST", "/v1/tasks", NEW, status=201)
        await client.json("POST", f"{TASK}/steps", {}, Prefer="wait=5")
        assert (await client.json("GET", f"{TASK}/result?at=1"))["state"] == "created"
        await client.json("GET", f"{TASK}/result?at=1", status=422, Prefer="wait=1")
        await client.json("GET", f"{TASK}?at=999", status=404)
        request = await client.json("GET", f"{TASK}/steps/s1/request")
        assert request == await client.json("GET", f"{TASK}/steps/1/request")


FORBIDDEN: list[tuple[str, Any, str]] = [
    ("/v1/tasks", {**NEW, "input": {"type": "image", "path": "/etc/passwd"}}, "input.path"),
    ("/v1/tasks", {**NEW, "input": ["x", {"type": "file", "path": "/etc/passwd"}]}, "input[1].path"),
    (
        "/v1/tasks",
        {**NEW, "input": [{"type": "image", "url": "http://169.254.169.254/"}]},
        "input[0].url",
    ),
    ("/v1/tasks", {**NEW, "options": {"interaction": "interactive"}}, "options.interaction"),
    (
        "/v1/tasks",
        {**NEW, "options": {"model_settings": {"extra": {"extra_headers": {"Host": "evil"}}}}},
        "options.model_settings.extra",
    ),
    ("/v1/tasks", {**NEW, "context": {}}, "context"),
    ("/v1/tasks", {**NEW, "by": "eve"}, "by"),
    ("/v1/tasks", {**NEW, "options": {"limits": {"steps": "many"}}}, "options.limits.steps"),
    ("/v1/tasks", {"input": "hello"}, "agent"),
    (f"{TASK}/fork", {"model": "openai:x"}, "model"),
    (f"{TASK}/send", {"message": [{"type": "file", "path": "x"}]}, "message[0].path"),
    (f"{TASK}/edit_step", {"input": [{"type": "file", "path": "x"}]}, "input[0].path"),
    ("/v1/threads/t/compact", {"model": "openai:x"}, "model"),
    ("/v1/threads/t/compact", {"agent": "shop"}, "agent"),
    (
        "/v1/threads/t/import",
        {"messages": [{"role": "user", "parts": [{"type": "image", "path": "/etc/passwd"}]}]},
        "messages[0].parts[0].path",
    ),
    (f"{TASK}/settle", {"request_id": "x", "verdict": {"type": "unknown"}}, "verdict.type"),
    ("/v1/tasks", [], ""),
]


async def test_an_argument_that_no_request_may_carry_is_refused_by_name():
    async with serving() as api, Client(api) as client:
        await client.json("POST", "/v1/tasks", NEW, status=201)
        for path, body, field in FORBIDDEN:
            refused = await client.json("POST", path, body, status=422)
            assert refused["field"] == field, (path, body)


async def test_content_may_name_an_address_where_the_server_allows_it():
    async with serving(allow_urls=True) as api, Client(api) as client:
        body = {**NEW, "input": [{"type": "image", "url": "https://example.org/a.png"}]}
        assert (await client.json("POST", "/v1/tasks", body, status=201))["input"][0]["url"]


async def test_a_fork_may_have_other_instructions_and_one_of_the_models_that_the_server_allows():
    async with serving(models=["test:other"]) as api, Client(api) as client:
        await client.json("POST", "/v1/tasks", NEW, status=201)
        body = {"at": 1, "instructions": "Be brief."}
        forked = await client.json("POST", f"{TASK}/fork", body, status=201)
        await client.json("POST", f"/v1/tasks/{forked['task_id']}/steps", {}, Prefer="wait=5")
        request = await client.json("GET", f"/v1/tasks/{forked['task_id']}/steps/1/request")
        assert request["instructions"] == "Be brief."
        refused = await client.json("POST", f"{TASK}/fork", {"at": 1, "model": "openai:gpt-9"}, status=422)
        assert (refused["field"], "test:other" in refused["detail"]) == ("model", True)
        unknown = await client.json("POST", f"{TASK}/fork", {"at": 1, "model": "test:other"}, status=422)
        assert unknown["type"] == "urn:treadle:error:ModelUnknown"


async def test_the_options_of_a_request_stay_under_the_ceiling_of_the_server_and_of_the_principal():
    def auth(_: Any) -> Principal:
        return Principal("ann", options=RunOptions(limits=Limits(tokens=70)))

    ceiling = RunOptions(limits=Limits(steps=3, tokens=1_000))
    async with serving(ceiling=ceiling, auth=auth) as api, Client(api) as client:
        body = {**NEW, "options": {"limits": {"steps": 50, "tokens": 500, "model_calls": 9}}}
        await client.json("POST", "/v1/tasks", body, status=201)
        (created,) = (await client.json("GET", f"{TASK}/events?kinds=task_created"))["items"]
        limits = created["options"]["limits"]
        assert (limits["steps"], limits["tokens"], limits["model_calls"]) == (3, 70, 9)
        await client.json("POST", f"{TASK}/resume", {"options": {"limits": {"steps": 2}}}, status=403)


async def test_a_tenant_has_as_many_unfinished_tasks_as_the_server_accepts():
    async with serving(limits=ServerLimits(unfinished_tasks=2)) as api, Client(api) as client:
        for number in range(2):
            await client.json("POST", "/v1/tasks", {**NEW, "task_id": str(number)}, status=201)
        refused = await client.post("/v1/tasks", json=NEW)
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
        await client.json("POST", "/v1/tasks", {**NEW, "task_id": "1"}, status=200)
        await client.json("POST", "/v1/tasks/1/cancel", {})
        await client.json("POST", "/v1/tasks", NEW, status=201)


async def test_a_server_that_is_about_to_end_takes_no_new_work():
    async with serving() as api, Client(api) as client:
        await client.json("POST", "/v1/tasks", NEW, status=201)
        api.begin_leaving()
        assert (await client.get("/ready")).status_code == 503
        assert (await client.get("/health")).status_code == 200
        refused = await client.post("/v1/tasks", json={**NEW, "task_id": "2"})
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
        await client.json("GET", TASK)


async def test_no_response_tells_where_the_store_is_or_a_secret(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("CRM_TOKEN", "tok-1234567890abcdef")

    @tool(read_only=True, secrets=("crm",))
    def look(ctx: Any) -> str:
        return "seen"

    runner_store = tmp_path / "journal.db"
    async with serving(runner_store) as api, Client(api) as client:
        refused = await client.get("/v1/tasks/none")
        assert refused.status_code == 404
        assert str(tmp_path) not in refused.text
        from treadle.runner.views import driver_of

        driver_of(api.service.runner).vault.learn(["tok-1234567890abcdef"])
        await client.json("POST", "/v1/tasks", {**NEW, "input": "my key is tok-1234567890abcdef"}, status=201)
        for path in (TASK, f"{TASK}/result", f"{TASK}/events", "/v1/tasks"):
            assert "tok-1234567890abcdef" not in (await client.get(path)).text


async def test_a_drive_is_traced_below_the_span_of_its_caller():
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    runner = Runner("memory:", agents=[agent()], observers=[OpenTelemetry(tracer_provider=provider)])
    api = app(runner, auth=by_name, drive=False)
    async with api.lifespan(), Client(api) as client:
        caller = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        await client.json("POST", "/v1/tasks", NEW, status=201, traceparent=caller)
        await client.json("POST", f"{TASK}/steps", {}, Prefer="wait=5", traceparent=caller)
    assert {f"{span.context.trace_id:032x}" for span in exporter.get_finished_spans() if span.context} == {
        caller[3:35]
    }


async def test_usage_and_agents_are_told_to_readers():
    async with serving() as api, Client(api) as client:
        assert (await client.json("GET", "/v1/usage?by=day"))["by"] == "day"
        (shop,) = await client.json("GET", "/v1/agents")
        assert shop["name"] == "shop"
        assert await client.json("GET", "/v1/agents/shop") == shop
        await client.json("GET", "/v1/agents/none", status=404)
        assert (await client.json("GET", "/v1/me"))["name"] == "ann"


async def test_a_key_of_one_command_is_refused_for_another_command_at_once():
    async with serving() as api, Client(api) as client:
        body = {"agent": "shop", "input": "hello"}
        task = f"/v1/tasks/{(await client.json('POST', '/v1/tasks', body, status=201))['task_id']}"
        await client.json("POST", f"{task}/send", {"message": "more"}, status=204, Idempotency_Key="k")
        refused = await client.json("POST", f"{task}/cancel", {}, status=422, Idempotency_Key="k")
        assert "belongs to another command" in refused["detail"]
        ended = await client.json("POST", f"{task}/cancel", {}, Idempotency_Key="k 2", Prefer="wait=2")
        assert ended["state"] == "cancelled"


async def test_an_age_beyond_all_time_was_a_fault_of_prune():
    async with serving() as api, Client(api) as client:
        pruned = await client.json("POST", "/v1/prune", {"older_than": 1e308, "dry_run": True})
        assert pruned == {"threads": [], "tasks": []}
        await client.json("POST", "/v1/prune", {"older_than": 10**400, "dry_run": True}, status=422)


async def test_labels_breakpoints_and_tools_without_number_wore_the_store_and_the_driver_out():
    async with serving() as api, Client(api) as client:
        many = {f"k{number}": "v" for number in range(1_200)}
        asked = "&".join([f"labels={key}=v" for key in many])
        refused = [
            await client.json("GET", f"/v1/{what}?{asked}", status=422) for what in ("tasks", "totals")
        ]
        body = {"agent": "shop", "input": "x"}
        tools = [{"name": f"t{number}"} for number in range(1_000)]
        refused += [
            await client.json("POST", "/v1/tasks", {**body, **wrong}, status=422)
            for wrong in (
                {"labels": many},
                {"labels": {"k": "v" * 2_000}},
                {"options": {"labels": many}},
                {"options": {"caller_tools": tools}},
                {"options": {"break_on": [{"after_step": 0}] * 1_000}},
            )
        ]
        names = ["labels"] * 4 + ["options.labels", "options.caller_tools", "options.break_on"]
        assert [problem["field"] for problem in refused] == names


class Gated:
    """A model that answers once it may."""

    def __init__(self, *turns: Any) -> None:
        self.inner, self.may_answer = ScriptedModel([*turns]), threading.Event()
        self.name = self.inner.name

    async def stream(self, request: Any) -> AsyncIterator[Any]:
        await asyncio.to_thread(self.may_answer.wait, 60)
        async for item in self.inner.stream(request):
            yield item


async def test_a_compaction_that_took_longer_was_answered_with_null_and_no_location():
    model = Gated(text("Hello."), text("They greeted each other."))
    async with serving("memory:", agent(), Agent(model, name="slow")) as api, Client(api) as client:
        made = {"agent": "slow", "input": "hi", "task_id": "t", "thread_id": "a/b"}
        await client.json("POST", "/v1/tasks", made, status=201)
        model.may_answer.set()
        await client.json("POST", "/v1/tasks/t/steps", {}, Prefer="wait=10")
        await client.json("POST", "/v1/tasks/t/finalize", {}, Prefer="wait=10")
        model.may_answer.clear()
        path, body = "/v1/threads/a%2Fb/compact", {"keep": 0}
        accepted = await client.post(path, json=body)
        assert accepted.status_code == 202
        thread = accepted.json()
        assert (thread["thread_id"], accepted.headers["Location"]) == ("a/b", "/v1/threads/a%2Fb")
        assert (await client.get(accepted.headers["Location"])).json() == thread
        model.may_answer.set()
        report = await client.json("POST", path, body, Prefer="wait=30")
        assert (report["complete"], report["thread_id"]) == (True, "a/b")


async def test_the_admin_of_a_tenant_read_the_metrics_of_the_whole_process():
    def by_tenant(connection: Any) -> Principal:
        return Principal("ann", tenant=connection.headers.get("tenant", ""), scopes=ADMIN)

    async with serving("memory:", agent(), auth=by_tenant) as api, Client(api) as client:
        for tenant, named, status in (("acme", None, 403), ("", None, 200), ("", "acme", 200)):
            headers = {"tenant": tenant} if named is None else {"tenant": tenant, "Treadle-Tenant": named}
            assert (await client.get("/metrics", headers=headers)).status_code == status
            assert (await client.get("/v1/usage", headers=headers)).status_code == 200
