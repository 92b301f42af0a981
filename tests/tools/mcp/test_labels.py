"""What servers return is labelled as theirs and untrusted, also where the effects of their tools are trusted."""

import pytest

from treadle import Agent, EffectRequest, Label, Policy, Runner, ScriptedModel, tool
from treadle.core.labels import label_of
from treadle.models import call, text

pytestmark = pytest.mark.anyio

STRANGER = Label("mcp:desk", "untrusted")


async def labels(clerk, script, server) -> list[Label]:
    """Return the labels of the results of a task, as its model has them, without their frames."""
    async with Runner("memory:") as runner:
        result = await runner.run(clerk([*script, text("done")], server), "go")
    found = [
        label_of(message.role, part)
        for message in result.messages
        if message.role == "tool"
        for part in message.parts
    ]
    return [Label(each.origin, each.integrity) for each in found]


@pytest.mark.parametrize("trusted", [False, True])
async def test_results_errors_resources_and_prompts_are_untrusted(server, clerk, trusted):
    script = [
        call("desk__read_notes"),
        call("desk__fail"),
        call("desk__read_resource", uri="note://page/1"),
        call("desk__get_prompt", name="greet", arguments={"who": "Ann"}),
        call("desk__list_prompts"),
    ]
    desk = server("--library", trusted=trusted)
    assert await labels(clerk, script, desk) == [STRANGER] * len(script)


async def test_results_that_can_hold_no_text_of_strangers_are_declared_one_by_one(server, clerk):
    script = [call("desk__add_note", text="milk"), call("desk__read_notes")]
    assert await labels(clerk, script, server(trusted_results=["add_*"])) == [
        Label("mcp:desk", "trusted"),
        STRANGER,
    ]


async def test_the_error_of_a_server_that_is_gone_is_untrusted_since_it_may_quote_it(server, clerk):
    desk = server("--die-in-call", effects={"add_note": ["idempotent"]})
    assert await labels(clerk, [call("desk__add_note", text="milk")], desk) == [STRANGER]


async def test_private_data_that_a_subagent_read_from_a_server_is_known_as_private_to_its_caller(
    server, clerk
):
    told: list[frozenset[str]] = []

    @tool(sends=True, idempotent=True)
    def send(text: str) -> str:
        """Send a text."""
        return "sent"

    def watch(request: EffectRequest) -> None:
        if request.name == "send":
            told.append(request.exposed)

    desk = server(effects={"read_notes": ["read_only", "private"], "*": ["sends"]})
    reader = clerk([call("desk__read_notes"), text("milk")], desk)
    script = [call("clerk", input="read"), call("send", text="milk"), text("done")]
    boss = Agent(ScriptedModel(script), name="boss", tools=[send], subagents=[reader])
    async with Runner("memory:", policy=Policy(watch)) as runner:
        result = await runner.run(boss, "go")
    assert result.state == "completed", result.error
    [exposed] = told
    assert {"read_only", "private"} <= exposed
    assert "undeclared" not in exposed


async def test_another_choice_of_trusted_results_is_another_version_of_the_agent(server, clerk):
    assert server().facts() != server(trusted_results=["add_*"]).facts()
