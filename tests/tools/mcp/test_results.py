"""Resources and prompts of servers, as tools that only read."""

import pytest

from treadle import Runner
from treadle.models import call, text

pytestmark = pytest.mark.anyio

ERAS = pytest.mark.parametrize("era", [(), ("--modern",)], ids=["handshake", "2026"])


@ERAS
async def test_models_list_and_read_resources_and_prompts(server, clerk, era):
    script = [
        call("desk__list_resources"),
        call("desk__read_resource", uri="note://page/1"),
        call("desk__list_prompts"),
        call("desk__get_prompt", name="greet", arguments={"who": "Ann"}),
        call("desk__get_prompt", name="greet", arguments={"who": 3}),
        text("done"),
    ]
    async with Runner("memory:") as runner:
        result = await runner.run(clerk(script, server("--library", *era)), "go")
    listed, page, prompts, prompt, wrong = result.tool_executions
    assert listed.output == [
        {"name": "page 1", "uri": "note://page/1", "mime_type": "text/plain"},
        {"name": "pages", "uri_template": "note://page/{n}"},
    ]
    assert page.output == "what stands in note://page/1"
    assert prompts.output == [
        {"name": "greet", "description": "Greets.", "arguments": [{"name": "who", "required": True}]}
    ]
    assert prompt.output["messages"] == [{"role": "user", "content": "Hello Ann"}]
    assert "arguments must be an object of texts" in wrong.error.message


READING = {f"desk__{name}" for name in ("list_resources", "read_resource", "list_prompts", "get_prompt")}


@pytest.mark.parametrize(
    ("args", "options", "expected"),
    [
        (["--library"], {}, READING),
        (["--library"], {"prompts": False}, {"desk__list_resources", "desk__read_resource"}),
        (["--library"], {"resources": False}, {"desk__list_prompts", "desk__get_prompt"}),
        ([], {}, set()),
    ],
)
async def test_they_only_read_and_are_there_if_the_server_has_them_and_they_are_wanted(
    server, clerk, args, options, expected
):
    async with Runner("memory:") as runner:
        bound = await runner._driver.toolsets.bind(clerk([text("ok")], server(*args, **options)))
    specs = {each.spec.name: each.spec for each in bound.tools}
    assert READING & set(specs) == expected
    assert {specs[name].effect for name in expected} <= {"read"}
