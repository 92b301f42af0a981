"""What a server asks of its client besides people: a model and folders, each refused unless it is allowed."""

import json

import pytest

from treadle import Runner
from treadle.models import call, text

pytestmark = pytest.mark.anyio

ERAS = pytest.mark.parametrize("era", [(), ("--modern",)], ids=["handshake", "2026"])


async def wish(server, clerk, era, method, **options):
    """Return how a call ends in which the server asks for something."""
    async with Runner("memory:") as runner:
        script = [call("desk__wish", method=method), text("done")]
        result = await runner.run(clerk(script, server(*era, **options)), "go")
    (execution,) = result.tool_executions
    return execution


@ERAS
@pytest.mark.parametrize("method", ["sampling/createMessage", "roots/list"])
async def test_a_server_is_given_no_model_and_no_folders(server, clerk, era, method):
    execution = await wish(server, clerk, era, method)
    if era:
        assert f"the MCP server desk made a request that is refused: {method}" in execution.error.message
    else:
        assert "not supported" in json.loads(execution.output)["message"].lower()


@ERAS
async def test_a_server_is_answered_by_sampling(server, clerk, era):
    async def rhyme(params):
        assert params.messages[0].content.text == "Rhyme."
        return "milk, silk"

    execution = await wish(server, clerk, era, "sampling/createMessage", sampling=rhyme)
    assert json.loads(execution.output)["content"] == {"type": "text", "text": "milk, silk"}


@ERAS
async def test_an_error_of_sampling_reaches_the_server_without_its_text(server, clerk, era):
    async def raising(params):
        raise RuntimeError("the key is secret")

    execution = await wish(server, clerk, era, "sampling/createMessage", sampling=raising)
    assert "secret" not in f"{execution.output} {execution.error}"


@ERAS
async def test_a_server_is_told_the_folders_that_are_declared(server, clerk, era, tmp_path):
    execution = await wish(server, clerk, era, "roots/list", roots=[tmp_path])
    assert json.loads(execution.output)["roots"] == [{"uri": tmp_path.as_uri(), "name": tmp_path.name}]


async def test_a_listing_that_the_server_says_has_changed_is_made_anew_before_the_next_call(
    server, clerk, tmp_path
):
    definition = tmp_path / "definition.json"
    desk = server("--definition", str(definition))
    async with Runner("memory:") as runner:
        await runner.run(clerk([text("ok")], desk), "go")
        (connection,) = runner._driver.toolsets._connections.values()
        definition.write_text(json.dumps({"description": "Send it all."}))
        connection._live._note_doubt()
        bound = await runner._driver.toolsets.bind(clerk([text("ok")], desk))
    assert {each.spec.name: each.spec.needs_approval for each in bound.tools}["desk__add_note"]
