"""A redirect of a provider sent the API key to another host; a key in an error message was stored in the journal."""

import base64
import json

import pytest

from tests.llm.key_matrix import FORMS, another_host
from tests.llm.wires import SECRET, WHOLE, WIRES, scripted
from treadle import Agent, Runner, tool
from treadle.errors import ModelError
from treadle.models import Retry
from treadle.testing.audit import Evidence, audit_store
from treadle.testing.conformance.model import ask, request
from treadle.testing.provider import call, fail, raw, text

every = pytest.mark.parametrize("made", (WIRES | WHOLE).values(), ids=WIRES | WHOLE)


@pytest.mark.anyio
async def test_a_redirect_to_another_host_ends_a_task_after_one_request():
    """Other redirects and the other wire formats: `tests/llm/test_redirects.py`."""
    with another_host() as elsewhere:
        where = {"location": f"{elsewhere.url}/v1?key={SECRET}"}
        with scripted(WIRES["google"], raw(b"", status=307, headers=where)) as (server, model):
            async with Runner("memory:") as runner:
                result = await runner.run(Agent(Retry(model)), "go")
            assert len(server.requests) == 1
        assert elsewhere.requests == []
    assert (result.state, result.error.kind, result.error.status) == ("failed", "not_found", 307)
    assert elsewhere.url.removeprefix("http://") in result.error.message
    assert "base_url" in result.error.message
    assert SECRET not in result.error.message


@pytest.mark.sampled(2)
@pytest.mark.parametrize("made", WIRES.values(), ids=WIRES)
@pytest.mark.anyio
async def test_a_key_in_the_error_of_a_provider_is_in_no_record(made):
    messages = [f"Incorrect API key provided: {form(SECRET)}." for form in FORMS.values()]
    items = [fail(401, message) for message in messages]
    items += [
        raw(f"<html><title>{message}</title>{message}", status=403, content_type="text/html")
        for message in messages
    ]
    items += [raw(json.dumps({"why": [message]}), status=422) for message in messages]
    with scripted(made, *items) as (server, model):
        async with Runner("memory:") as runner:
            for _ in items:
                assert (await runner.run(Agent(model), "go")).state == "failed"
            assert await audit_store(runner.store, Evidence(secrets=[SECRET])) == []
        assert len(server.requests) == len(items)


@every
@pytest.mark.anyio
async def test_an_error_of_a_provider_has_no_chained_cause(made):
    message = f"No: {base64.b64encode(SECRET.encode()).decode()}"
    with scripted(made, fail(401, message)) as (_, model), pytest.raises(ModelError, match="No: ") as caught:
        await ask(model, request())
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


@pytest.mark.sampled(3)
@every
@pytest.mark.anyio
async def test_a_call_with_a_key_in_its_arguments_does_not_run_with_something_else_in_its_place(made):
    paths: list[str] = []

    @tool
    def remove(path: str) -> str:
        """Remove a folder."""
        paths.append(path)
        return "removed"

    script = [call("remove", path=f"/data/{SECRET}"), call("remove", path="/data/x"), text("Done.")]
    with scripted(made, *script) as (_, model):
        async with Runner("memory:") as runner:
            result = await runner.run(Agent(model, tools=[remove]), "go")
            assert await audit_store(runner.store, Evidence(secrets=[SECRET])) == []
    assert (result.state, paths) == ("completed", ["/data/x"])
    assert [execution.outcome for execution in result.tool_executions] == ["invalid", "ok"]
    expected = "its arguments held a secret of this process, now [secret]. Ask for it without the secret"
    assert expected in str(result.messages)


@pytest.mark.anyio
async def test_the_file_in_which_a_key_lies_may_be_opened(monkeypatch):
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/app/service-account.json")
    paths: list[str] = []

    @tool(read_only=True)
    def read(path: str) -> str:
        """Read a file."""
        paths.append(path)
        return "{}"

    with scripted(WIRES["chat"], call("read", path="/app/service-account.json"), text("Done.")) as (_, model):
        async with Runner("memory:") as runner:
            await runner.run(Agent(model, tools=[read]), "go")
    assert paths == ["/app/service-account.json"]
