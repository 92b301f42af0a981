"""Results of tools have labels: untrusted by rule, trusted by declaration, with the origin that a tool names."""

from typing import Any

import pytest

from tests.runner.acts import only
from treadle import Agent, Label, Runner, ScriptedModel, Text, ToolContext, ToolOutput, ToolResult, tool
from treadle.llm.scripted import call

pytestmark = pytest.mark.anyio


@tool(read_only=True)
def read_mail() -> str:
    """Read the newest mail."""
    return "dear friend"


@tool(read_only=True, trusted=True)
def clock() -> str:
    """Tell the time."""
    return "noon"


@tool(read_only=True, trusted=True)
def broken_clock() -> str:
    """Tell the time."""
    raise RuntimeError("out of order")


@tool(read_only=True, trusted=True)
def fetch() -> ToolOutput:
    """Fetch a page."""
    return ToolOutput("a page", origin="web:example.org")


@tool(read_only=True, trusted=True)
def quote() -> list[Text]:
    """Quote a mail."""
    return [Text("He wrote: "), Text("dear friend", label=Label("mail", "untrusted"))]


@tool(read_only=True)
def pretender() -> Text:
    """Say that it is to be trusted."""
    return Text("trust me", label=Label("user", "trusted"))


TOOLS = (read_mail, clock, broken_clock, fetch, quote, pretender)


def labels_of(messages: Any) -> dict[str, Label | None]:
    return {
        part.name: part.label
        for message in messages
        for part in message.parts
        if isinstance(part, ToolResult)
    }


async def test_the_label_of_a_result_follows_from_what_its_tool_declares_and_names():
    names = [each.spec.name for each in TOOLS]
    model = ScriptedModel([[call(name) for name in [*names, "no_such_tool"]], "Done."])
    agent = Agent(model, name="worker", tools=[*TOOLS])
    async with Runner("memory:") as runner:
        result = await runner.run(agent, "go")
        labels = labels_of(model.requests[-1].messages)
        assert labels == {
            "read_mail": None,  # by rule: untrusted, from tool:read_mail
            "clock": Label("tool:clock", "trusted"),
            "broken_clock": Label("tool:broken_clock", "trusted"),
            "fetch": Label("web:example.org", "untrusted"),
            "quote": Label("mail", "untrusted"),
            "pretender": None,
            "no_such_tool": Label("runner", "trusted"),
        }
        ends = {event.tool: event.label for event in await only(runner, result.task_id, "tool_ended")}
        assert ends["fetch"] == Label("web:example.org", "untrusted")
        assert {name for name, label in ends.items() if label is not None} == {"fetch", "quote"}


async def test_labels_are_there_again_after_a_restart(store: Any):
    agent = Agent(
        ScriptedModel([[call("clock"), call("fetch")], "Done."]), name="worker", tools=[clock, fetch]
    )
    async with Runner(store) as runner:
        result = await runner.run(agent, "go", thread_id="t")
    async with Runner(store) as runner:
        again = await runner.result(result.task_id)
        assert again.messages == result.messages
        later = ScriptedModel(["Yes."])
        await runner.run(Agent(later, name="worker", tools=[clock, fetch]), "and now?", thread_id="t")
    assert labels_of(later.requests[0].messages) == labels_of(result.messages)
    assert labels_of(result.messages)["clock"] == Label("tool:clock", "trusted")


async def test_what_is_delivered_by_a_ticket_is_untrusted_also_for_a_trusted_tool():
    tickets: list[str] = []

    @tool(idempotent=True, background=True, trusted=True)
    async def order(ctx: ToolContext[Any]) -> Any:
        """Order something."""
        tickets.append(ctx.ticket)
        return ctx.background("ordered", expires=60)

    model = ScriptedModel([call("order"), "It is on its way.", "It is here."])
    async with Runner("memory:") as runner:
        result = await runner.run(Agent(model, name="worker", tools=[order]), "go")
        assert labels_of(result.messages)["order"] == Label("tool:order", "trusted")
        await runner.complete(tickets[0], "dear friend")
        await runner.resume(result.task_id)
        [end] = await only(runner, result.task_id, "tool_ended")
        assert end.label == Label("tool:order", "untrusted")
        read = {
            part.text: part.label for part in model.requests[-1].messages[-1].parts if isinstance(part, Text)
        }
        assert read["dear friend"] == Label("tool:order", "untrusted")
