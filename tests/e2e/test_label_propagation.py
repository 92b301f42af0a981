"""What a model has read counts for all that follows from it, whichever way it goes; and nothing else does."""

import asyncio
from typing import Any, Literal, cast

import pytest
from pydantic import BaseModel

from tests.runner.acts import only
from treadle import (
    Agent,
    EffectRequest,
    Handoff,
    Label,
    LastMessages,
    Message,
    ModelRequest,
    NextStep,
    Policy,
    Runner,
    RunOptions,
    ScriptedModel,
    StepContext,
    StepResult,
    Subagent,
    Text,
    ToolCall,
    ToolContext,
    ToolResult,
    tool,
    untrusted,
)
from treadle.errors import ConfigurationError
from treadle.llm.scripted import call
from treadle.results.wire import to_wire

pytestmark = pytest.mark.anyio

READ = ("tool:read_mail",)


@tool(read_only=True)
def read_mail() -> str:
    """Read the newest mail."""
    return "dear friend"


@tool(read_only=True, private=True, trusted=True)
def balance() -> int:
    """Tell the balance."""
    return 42


@tool(idempotent=True, trusted=True)
def note(line: str) -> str:
    """Write a line down."""
    return "noted"


NOTE = call("note", line="x")


class Watch:
    """Notes what a policy is told that the model has read, for each call of `note`."""

    def __init__(self) -> None:
        self.untrusted: list[tuple[str, ...]] = []
        self.exposed: list[frozenset[str]] = []

        def watch(request: EffectRequest) -> None:
            if request.name == "note":
                self.untrusted.append(request.untrusted)
                self.exposed.append(request.exposed)

        self.policy = Policy(watch)


def desk(*turns: Any, name: str = "desk", **options: Any) -> Agent[Any]:
    tools = options.pop("tools", [read_mail, balance, note])
    return Agent(ScriptedModel(list(turns)), name=name, tools=tools, **options)


def obeying(name: str = "desk", **options: Any) -> Agent[Any]:
    """Return an agent whose model calls the tool that the newest message of the user names, or else answers."""

    def answer(request: ModelRequest) -> Any:
        asked = [message.text for message in request.messages if message.role == "user"][-1]
        newest = request.messages[-1]
        if newest.role == "tool" or asked not in ("read_mail", "balance", "note"):
            return "Done."
        return NOTE if asked == "note" else call(asked)

    return Agent(ScriptedModel(answer), name=name, tools=[read_mail, balance, note], **options)


def stepping(name: str = "desk") -> Agent[Any]:
    """Return an agent whose model calls the tool that the newest message of the user names, and never answers."""

    def answer(request: ModelRequest) -> Any:
        asked = [message.text for message in request.messages if message.role == "user"][-1]
        return NOTE if asked == "note" else call(asked)

    return Agent(ScriptedModel(answer), name=name, tools=[read_mail, balance, note])


# ----------------------------------------------------------------------------------- within a task


async def test_a_clean_task_has_read_nothing_untrusted():
    watch = Watch()
    async with Runner("memory:", policy=watch.policy) as runner:
        result = await runner.run(desk(call("balance"), NOTE, "Done."), "go")
    assert watch.untrusted == [()]
    assert result.untrusted == ()


async def test_a_result_names_what_its_task_read_and_what_the_task_before_it_in_the_thread_had_read():
    async with Runner("memory:") as runner:
        mail = ["Summarise:", untrusted("dear friend", origin="mail")]
        first = await runner.run(desk(call("read_mail"), "Done."), mail, thread_id="t")
        second = await runner.run(desk("Done."), "And?", thread_id="t")
        again = await runner.handle(second.task_id).result()
    assert first.untrusted == ("mail", "tool:read_mail")
    assert second.untrusted == again.untrusted == first.untrusted
    assert cast("Any", to_wire(first))["untrusted"] == ["mail", "tool:read_mail"]


@pytest.mark.parametrize("role", ["user", "observation", "system"])
async def test_input_and_later_messages_count_once_they_are_read(
    role: Literal["user", "observation", "system"],
):
    watch = Watch()
    async with Runner("memory:", policy=watch.policy) as runner:
        mail = ["Summarise:", untrusted("dear friend", origin="mail")]
        task = await runner.create_task(desk(NOTE, NOTE, "Done."), mail)
        await runner.run_step(task)
        await runner.send(task, [untrusted("<html>", origin="web:a.example")], role=role)
        await runner.run_step(task)
    assert watch.untrusted == [("mail",), ("mail", "web:a.example")]


async def test_an_observation_without_a_label_is_untrusted():
    watch = Watch()
    async with Runner("memory:", policy=watch.policy) as runner:
        task = await runner.create_task(desk(NOTE, "Done."), "go")
        await runner.send(task, "it rains", role="observation")
        await runner.run_step(task)
    assert watch.untrusted == [("observation",)]


async def test_an_undo_takes_a_label_back_and_a_fork_keeps_those_of_its_branch(store: Any):
    watch = Watch()
    async with Runner(store, policy=watch.policy) as runner:
        task = await runner.create_task(stepping(), "balance")
        await runner.run_step(task)
        await runner.run_step(task, input="read_mail")
        tainted = await runner.fork(task)
        await runner.run_step(task, input="note")
        await runner.undo_step(task, to=1, force=True)
        clean = await runner.fork(task)
        await runner.run_step(task, input="note")
    assert watch.untrusted == [READ, ()]
    async with Runner(store, policy=watch.policy, agents=[stepping()]) as runner:  # after a restart
        for each in (tainted, clean, task):
            await runner.run_step(each.task_id, input="note")
    assert watch.untrusted[2:] == [READ, (), ()]


async def test_steps_beside_each_other_count_for_the_whole_task():
    watch = Watch()
    has_read, has_written = asyncio.Event(), asyncio.Event()

    async def worker(ctx: StepContext) -> Any:
        if ctx.name == "start":
            return StepResult(next_steps=(NextStep("reads"), NextStep("writes")))
        if ctx.name == "reads":
            await ctx.call_tool("read_mail")
            has_read.set()
            await has_written.wait()
            return StepResult("read")
        await has_read.wait()
        await ctx.call_tool("note", {"line": "x"})
        has_written.set()
        return StepResult("written", is_last=True)

    async with Runner("memory:", policy=watch.policy) as runner:
        result = await runner.run(desk(worker=worker), "go")
    assert result.state == "completed", result.error
    assert watch.untrusted == [READ]


async def test_what_a_function_shows_a_model_beside_the_conversation_counts():
    watch = Watch()

    async def worker(ctx: StepContext) -> Any:
        if ctx.name == "start":
            await ctx.call_model([Message("user", (untrusted("dear friend", origin="mail"),))])
            return StepResult(next_steps=(NextStep("writes"),))
        await ctx.call_tool("note", {"line": "x"})
        return StepResult("written", is_last=True)

    async with Runner("memory:", policy=watch.policy) as runner:
        result = await runner.run(desk("A mail.", worker=worker), "go")
    assert result.state == "completed", result.error
    assert watch.untrusted == [("mail",)]


async def test_a_window_of_the_conversation_hides_nothing_from_the_policy():
    watch = Watch()
    options = RunOptions(context_tokens=1_000)
    async with Runner("memory:", policy=watch.policy, options=options) as runner:
        await runner.run(obeying(), "read_mail", thread_id="t")
        for _ in range(12):
            await runner.run(obeying(), "word " * 60, thread_id="t")
        agent = obeying()
        await runner.run(agent, "note", thread_id="t")
        model: Any = agent.model
        assert not any(
            isinstance(p, ToolResult) and p.name == "read_mail"
            for m in model.requests[0].messages
            for p in m.parts
        )
    assert watch.untrusted == [READ]


# ------------------------------------------------------------------------- tasks that feed each other


async def test_the_thread_of_a_task_counts_also_after_a_summary_and_a_deletion(store: Any):
    watch = Watch()
    async with Runner(store, policy=watch.policy) as runner:
        first = await runner.run(obeying(), "read_mail", thread_id="t")
        await runner.run(obeying(), "note", thread_id="t")
        await runner.delete_task(first.task_id)
        await runner.run(obeying(), "note", thread_id="t")
        await runner.run(obeying(), "balance", thread_id="clean")
        await runner.run(obeying(), "note", thread_id="clean")
    assert watch.untrusted == [READ, READ, ()]
    async with Runner(store, policy=watch.policy) as runner:  # with an empty cache
        await runner.run(obeying(), "note", thread_id="t")
        for thread in ("t", "clean"):
            summary = desk("What was said.", name="summary", tools=[])
            report = await runner.compact_thread(thread, keep=0, agent=summary)
            assert report.complete
            agent = obeying()
            await runner.run(agent, "note", thread_id=thread)
            model: Any = agent.model
            [part, *_] = model.requests[0].messages[0].parts
            integrity = "untrusted" if thread == "t" else "trusted"
            assert (part.label.origin, part.label.integrity) == ("memory", integrity)
            assert bool(part.label.frame) is (thread == "t")
    assert watch.untrusted[3:] == [READ, READ, ()]


async def test_a_fork_into_another_thread_and_the_tasks_after_it_keep_labels():
    watch = Watch()
    async with Runner("memory:", policy=watch.policy) as runner:
        first = await runner.run(obeying(), "read_mail", thread_id="t")
        second = await runner.run(obeying(), "balance", thread_id="t")
        fork = await runner.fork(second.task_id, thread_id="other", input="note")
        await runner.resume(fork)
        await runner.run(obeying(), "note", thread_id="other")
        assert first.state == second.state == "completed"
    assert watch.untrusted == [READ, READ]


async def test_imported_messages_bring_their_labels(tmp_path: Any):
    watch = Watch()
    messages = [
        Message("user", (Text("what is new?"),)),
        Message("assistant", (ToolCall("c1", "fetch", {}),)),
        Message("tool", (ToolResult("c1", "fetch", (Text("a page"),)),)),
        Message("assistant", (Text("Nothing."),)),
    ]
    async with Runner("memory:", policy=watch.policy) as runner:
        await runner.import_thread("t", messages)
        await runner.import_thread("u", [Message("user", (untrusted("dear friend", origin="mail"),))])
        await runner.import_thread("v", [messages[0], messages[3]])
        for thread in ("t", "u", "v"):
            await runner.run(obeying(), "note", thread_id=thread)
    assert watch.untrusted == [("tool:fetch",), ("mail",), ()]


async def test_an_export_carries_what_a_task_took_over(tmp_path: Any):
    watch = Watch()
    async with Runner("memory:") as runner:
        await runner.run(obeying(), "read_mail", thread_id="t")
        last = await runner.run(obeying(), "balance", thread_id="t")
        await runner.export_tasks(tmp_path / "tasks.jsonl", last.task_id)
    async with Runner("memory:", policy=watch.policy) as runner:
        await runner.import_tasks(tmp_path / "tasks.jsonl")
        await runner.run(obeying(), "note", thread_id="t")
    assert watch.untrusted == [READ]


# --------------------------------------------------------------------------------- agents and agents


async def test_a_child_counts_what_its_parent_had_read_and_tells_what_it_read():
    watch = Watch()
    writer = desk(NOTE, "Written.", name="writer")
    reader = desk(call("read_mail"), call("balance"), "A mail.", name="reader")
    clean = desk("Nothing.", name="clean")
    turns = [
        call("writer", input="write"),
        call("clean", input="think"),
        NOTE,
        call("reader", input="read"),
        call("writer", input="write"),
        NOTE,
        "Done.",
    ]
    async with Runner("memory:", policy=watch.policy) as runner:
        result = await runner.run(desk(*turns, subagents=[writer, reader, clean]), "go")
        ends = {event.call: event for event in await only(runner, result.task_id, "tool_ended")}
        assert ends["s1-0"].label == Label("subagent:writer", "trusted")
        assert ends["s2-0"].label == Label("subagent:clean", "trusted")
        assert ends["s4-0"].label == Label("subagent:reader", "untrusted")
        assert "private" in ends["s4-0"].exposed
        [created] = await only(runner, f"{result.task_id}.s5-0", "task_created")
        assert created.untrusted == ("subagent:reader",)
        fork = await runner.fork(
            f"{result.task_id}.s5-0", at="s1", agent=obeying(name="writer"), input="note"
        )
        await runner.resume(fork)
    read = ("subagent:reader",)
    assert watch.untrusted == [(), (), read, (*read, "subagent:writer"), read]
    assert ["private" in each for each in watch.exposed] == [False, False, True, True, True]


async def test_a_handoff_with_a_filter_hides_nothing_from_the_policy():
    watch = Watch()
    writer = desk(NOTE, "Written.", name="writer")
    first = desk(
        call("read_mail"),
        call("transfer_to_writer"),
        handoffs=[Handoff(writer, filter=LastMessages(1))],
    )
    async with Runner("memory:", policy=watch.policy) as runner:
        result = await runner.run(first, "go")
    assert (result.state, result.agent) == ("completed", "writer")
    assert watch.untrusted == [READ]


async def test_a_handoff_itself_is_nothing_untrusted():
    watch = Watch()
    writer = desk(NOTE, "Written.", name="writer")
    async with Runner("memory:", policy=watch.policy) as runner:
        await runner.run(desk(call("transfer_to_writer"), handoffs=[writer]), "go")
    assert watch.untrusted == [()]


async def test_state_that_was_written_after_untrusted_content_is_read_by_tasks_that_know_it():
    watch = Watch()

    @tool(idempotent=True, trusted=True)
    def remember(ctx: ToolContext[Any]) -> str:
        """Remember the mail."""
        ctx.state["mail"] = "dear friend"
        return "remembered"

    writer = desk(NOTE, "Written.", name="writer")
    agent = desk(
        [call("read_mail"), call("remember")],
        call("writer", input="write"),
        "Done.",
        tools=[read_mail, remember],
        subagents=[Subagent(writer, state=("mail",))],
    )
    async with Runner("memory:", policy=watch.policy) as runner:
        await runner.run(agent, "go")
    assert watch.untrusted == [READ]


# -------------------------------------------------------------------------------------- sanitisers


class Spam(BaseModel):
    spam: bool
    kind: Literal["offer", "phishing", "none"]


async def test_the_answer_of_a_sanitiser_is_trusted_and_its_failure_is_not():
    watch = Watch()
    good = desk(
        call("read_mail"),
        '{"spam": true, "kind": "offer"}',
        name="reader",
        output_type=Spam,
        output_mode="prompt",
    )
    bad = desk(
        call("read_mail"),
        "dear friend",
        "dear",
        "friend",
        "!",
        name="lost",
        output_type=Spam,
        output_mode="prompt",
    )
    turns = [call("reader", input="read"), NOTE, call("lost", input="read"), NOTE, "Done."]
    subagents = [Subagent(good, sanitises=True), Subagent(bad, sanitises=True)]
    async with Runner("memory:", policy=watch.policy) as runner:
        result = await runner.run(desk(*turns, subagents=subagents), "go")
        ends = {event.call: event for event in await only(runner, result.task_id, "tool_ended")}
    assert (ends["s1-0"].output, ends["s1-0"].label) == (
        {"spam": True, "kind": "offer"},
        Label("subagent:reader", "trusted"),
    )
    assert ends["s3-0"].label == Label("subagent:lost", "untrusted")
    assert watch.untrusted == [(), ("subagent:lost",)]


class Free(BaseModel):
    spam: bool
    why: list[str]


@pytest.mark.parametrize(
    ("output_type", "says"),
    [
        (str, "needs an agent with an output_type"),
        (Free, r"answer\.why\[\] of its output_type may hold free text"),
        (dict[str, int], "answer of its output_type may hold free text"),
        (Any, "may hold free text"),
    ],
)
def test_a_sanitiser_whose_answers_hold_free_text_is_refused(output_type: Any, says: str):
    reader: Agent[Any] = Agent(ScriptedModel(["x"]), name="reader", output_type=output_type)
    with pytest.raises(ConfigurationError, match=says):
        Subagent(reader, sanitises=True)


def test_a_sanitiser_is_no_agent_that_is_only_known_by_name():
    with pytest.raises(ConfigurationError, match="sanitises=True needs an agent with an output_type"):
        Subagent("reader", sanitises=True)


# ---------------------------------------------------------------------------------------- approvals


async def test_a_request_for_approval_keeps_the_origins(store: Any):
    @tool(sends=True)
    def send_mail(text: str) -> str:
        """Send a mail."""
        return "sent"

    turns = [call("read_mail"), call("send_mail", text="x"), "Done."]
    async with Runner(store, policy=Policy.strict()) as runner:
        result = await runner.run(desk(*turns, tools=[read_mail, send_mail]), "go")
        [pending] = result.pending
    assert pending.untrusted == READ
    assert pending.rule == "strict:send-untrusted"
    assert pending.reason == (
        "send_mail needs a person: it sends data out; the model has read untrusted content from tool:read_mail."
    )
    async with Runner(store) as runner:
        [pending] = await runner.list_pending(result.task_id)
        assert pending.untrusted == READ


async def test_an_approval_given_before_untrusted_content_does_not_hold_after_it():
    @tool(sends=True, trusted=True)
    def send_mail(text: str) -> str:
        """Send a mail."""
        return "sent"

    send = call("send_mail", text="x")
    turns = [send, send, call("read_mail"), send, send, "Done."]
    async with Runner("memory:", policy=Policy.strict()) as runner:
        result = await runner.run(desk(*turns, tools=[read_mail, send_mail]), "go")
        asked: list[Any] = []
        while result.state == "waiting":
            [pending] = result.pending
            asked.append(pending)
            await runner.approve(result.task_id, scope="once" if pending.every_call else "task")
            result = await runner.resume(result.task_id)
    assert [each.rule for each in asked] == ["strict:send", *["strict:send-untrusted"] * 2]
    assert result.state == "completed"


async def test_without_a_policy_every_call_is_allowed():
    async with Runner("memory:") as runner:
        result = await runner.run(desk(call("read_mail"), NOTE, "Done."), "go")
    assert [each.outcome for each in result.tool_executions] == ["ok", "ok"]


async def test_what_a_step_read_counts_after_it_ended_later_than_a_step_beside_it():
    may_read = asyncio.Event()

    async def worker(ctx: StepContext) -> Any:
        match ctx.name:
            case "start":
                slow, quick = NextStep("slow"), NextStep("quick")
                end = NextStep("end", after=("slow", "after quick"))
                return StepResult(next_steps=[slow, quick, NextStep("after quick", after=("quick",)), end])
            case "slow":
                await may_read.wait()
                await ctx.call_tool("read_mail", {})
            case "after quick":
                await ctx.call_tool("note", {"line": "x"})
                may_read.set()
            case "end":
                await ctx.call_tool("note", {"line": "x"})
                return StepResult("done", is_last=True)
            case _:
                pass
        return StepResult()

    watch = Watch()
    async with Runner("memory:", policy=watch.policy) as runner:
        result = await runner.run(desk(worker=worker), "go")
    assert result.state == "completed", result.error
    assert watch.untrusted == [(), READ]
    assert ["read_only" in exposed for exposed in watch.exposed] == [False, True]
