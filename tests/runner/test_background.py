"""Calls in the background: each result is delivered once, beside all that happens to the task meanwhile."""

import asyncio
from pathlib import Path
from typing import Any, Literal

import pytest

from tests.runner.acts import journal
from treadle import (
    Agent,
    Node,
    NodeContext,
    Pipeline,
    Runner,
    RunOptions,
    ScriptedModel,
    StepContext,
    StepResult,
    ToolContext,
    tool,
)
from treadle.core import events as e
from treadle.core.messages import Json
from treadle.errors import (
    AlreadyDecided,
    ConfigurationError,
    ForkPointBusy,
    IrreversibleStep,
    TicketClosed,
    TicketNotFound,
    ToolError,
)
from treadle.llm.scripted import call, text
from treadle.testing import clock
from treadle.testing.audit import audit_store

pytestmark = pytest.mark.anyio

AtEnd = Literal["wait", "suspend", "detach", "cancel"]


class Farm:
    """A service outside that does the work: it is handed tickets, and takes orders back."""

    def __init__(self) -> None:
        self.tickets: list[str] = []
        self.withdrawn: list[Json] = []

    def agent(self, *script: Any, expires: float = 3_600.0, **options: Any) -> Agent[Any]:
        """Return an agent that lets the farm render two films, unless the script is another."""
        options = options or {"idempotent": True}

        @tool(background=True, **options)
        async def render(title: str, ctx: ToolContext[Any]) -> Any:
            """Render a film."""
            self.tickets.append(ctx.ticket)
            return ctx.background({"job": title}, expires=expires)

        two = [call("render", title="a"), call("render", title="b")]
        model = ScriptedModel(list(script) or [two, text("started"), text("both are there")])
        return Agent(model, name="films", tools=[render])


def inputs(agent: Agent[Any]) -> list[str]:
    """Return the text of the last message of each request that the agent's model got."""
    model: Any = agent.model
    return ["".join(getattr(part, "text", "") for part in r.messages[-1].parts) for r in model.requests]


# ------------------------------------------------------------------------------------- the end of a run


async def test_a_run_is_suspended_until_all_that_is_in_the_background_has_ended() -> None:
    farm = Farm()
    agent = farm.agent()
    async with Runner("memory:", agents=[agent]) as runner:
        result = await runner.run(agent, "two films")
        assert (result.state, result.final_text) == ("waiting", "started")
        assert [(each.kind, each.request_id, each.details) for each in result.pending] == [
            ("background", "s1-0", {"job": "a"}),
            ("background", "s1-1", {"job": "b"}),
        ]
        await runner.complete(farm.tickets[1], "film b", by="farm")
        assert (await runner.resume(result.task_id)).state == "waiting"
        await runner.complete(farm.tickets[0], "film a")
        result = await runner.resume(result.task_id)
        assert (result.state, result.final_text, result.pending) == ("completed", "both are there", ())
        assert [(each.outcome, each.output) for each in result.tool_executions] == [
            ("ok", "film a"),
            ("ok", "film b"),
        ]
        assert len(inputs(agent)) == 3
        assert inputs(agent)[2].count("film a") == 1
        assert await audit_store(runner.store) == []


async def test_open_tickets_are_listed_until_they_are_completed(store: Any) -> None:
    farm = Farm()
    agent = farm.agent()
    boss = Agent(ScriptedModel([call("films", input="go"), "Done."]), name="boss", subagents=[agent])
    async with Runner(store) as runner:
        task = (await runner.run(boss, "two films")).task_id
        items = (await runner.list_pending()).items
        assert [(item.kind, item.request_id, item.path) for item in items] == [
            ("background", "s1-0", ("boss", "films")),
            ("background", "s1-1", ("boss", "films")),
        ]
        assert (await runner.list_pending(task)).items == items
        counts = {item.agent: item.pending for item in await runner.list_tasks()}
        assert counts == {"boss": 0, "films": 2}
        await runner.complete(farm.tickets[0], "film a")
        await runner.resume(task)
        assert [item.request_id for item in await runner.list_pending()] == ["s1-1"]
        await runner.complete(farm.tickets[1], "film b")
        assert (await runner.resume(task)).state == "completed"
        assert (await runner.list_pending()).items == ()


async def test_tickets_of_a_task_that_ended_are_listed_with_it_alone() -> None:
    farm = Farm()
    agent = farm.agent([call("render", title="a")], text("started"))
    async with Runner("memory:", agents=[agent]) as runner:
        task = (await runner.run(agent, "a film", options=RunOptions(at_end="detach"))).task_id
        assert (await runner.list_pending()).items == ()
        assert [item.kind for item in await runner.list_pending(task)] == ["background"]
        (listed,) = (await runner.list_tasks()).items
        assert listed.pending == 0


async def test_with_wait_the_run_stays_until_they_have_ended() -> None:
    farm = Farm()
    agent = farm.agent()
    async with Runner("memory:", agents=[agent]) as runner, Runner("memory:") as _:
        seen: list[str] = []
        async with runner.run_stream(agent, "two films", options=RunOptions(at_end="wait")) as stream:
            async for event in stream:
                seen.append(getattr(event, "kind", ""))
                if isinstance(event, e.StepCompleted) and event.last and len(farm.tickets) == 2:
                    for ticket in farm.tickets:
                        await runner.complete(ticket, "film")
        assert stream.result is not None
        assert (stream.result.state, stream.result.final_text) == ("completed", "both are there")
        assert seen.count("ticket_completed") == 2


async def test_with_wait_the_expiry_of_a_ticket_lets_the_run_go_on() -> None:
    farm = Farm()
    agent = farm.agent()

    async def story() -> None:
        async with clock.runner(agents=[agent]) as runner:
            result = await runner.run(agent, "two films", options=RunOptions(at_end="wait"))
            assert (result.state, result.final_text) == ("completed", "both are there")
            assert {each.outcome for each in result.tool_executions} == {"unknown"}
            assert "was not completed before its ticket expired" in inputs(agent)[2]

    await asyncio.to_thread(clock.run, story())


async def test_with_detach_the_task_ends_and_keeps_what_comes_later() -> None:
    farm = Farm()
    agent = farm.agent()
    async with Runner("memory:", agents=[agent]) as runner:
        result = await runner.run(agent, "two films", thread_id="films", options=RunOptions(at_end="detach"))
        assert (result.state, result.final_text, len(result.pending)) == ("completed", "started", 2)
        said = list(await runner.get_thread("films"))
        await runner.complete(farm.tickets[0], "film a")
        await runner.fail(farm.tickets[1], "no film")
        kept = await runner.result(result.task_id)
        assert (kept.state, kept.final_text, kept.pending) == ("completed", "started", ())
        assert [(each.outcome, each.output) for each in kept.tool_executions] == [
            ("ok", "film a"),
            ("error", {"job": "b"}),
        ]
        assert [event.kind for event in await journal(runner, result.task_id)][-5:] == [
            *("task_ended", "ticket_completed", "tool_ended", "ticket_failed", "tool_ended")
        ]
        assert list(await runner.get_thread("films")) == said
        assert (await runner.list_tasks()).items[0].state == "completed"
        assert await audit_store(runner.store) == []
        assert (await runner.verify(result.task_id)).tasks[0].findings == ()


async def test_a_task_that_ended_with_detach_is_forked_with_the_results_that_have_come() -> None:
    farm = Farm()
    two = [call("render", title="a"), call("render", title="b")]
    agent = farm.agent(two, text("started"), text("one is there"))
    async with Runner("memory:", agents=[agent]) as runner:
        task = (await runner.run(agent, "two films", options=RunOptions(at_end="detach"))).task_id
        await runner.complete(farm.tickets[0], "film a")
        fork = await runner.fork(task)
        result = await runner.resume(fork)
        assert (result.state, result.final_text, result.pending) == ("completed", "one is there", ())
        assert [(each.outcome, each.output) for each in result.tool_executions] == [
            ("ok", "film a"),
            ("unknown", {"job": "b"}),
        ]
        assert "that is work for the task" in result.tool_executions[1].error.message
        assert inputs(agent)[2].count("film a") == 1
        with pytest.raises(TicketNotFound):
            await runner.handle(fork).complete(farm.tickets[1], "film b")
        await runner.complete(farm.tickets[1], "film b")
        kept = await runner.result(task)
        assert [each.output for each in kept.tool_executions] == ["film a", "film b"]
        assert await audit_store(runner.store) == []
        for each in (task, fork):
            assert (await runner.verify(each)).tasks[0].findings == ()


async def test_a_task_that_ended_with_detach_is_forked_at_the_step_of_its_calls() -> None:
    farm = Farm()
    agent = farm.agent([call("render", title="a")], text("started"), read_only=True)
    async with Runner("memory:", agents=[agent]) as runner:
        task = (await runner.run(agent, "a film", options=RunOptions(at_end="detach"))).task_id
        fork = await runner.fork(task, at="s1", input="Do not wait.", task_id="other")
        assert (
            await runner.fork(task, at="s1", input="Do not wait.", task_id="other")
        ).task_id == fork.task_id
        result = await runner.resume(fork)
        assert (result.state, [each.outcome for each in result.tool_executions]) == (
            "completed",
            ["cancelled"],
        )
        await runner.fail(farm.tickets[0], "no film")
        late = await runner.resume(await runner.fork(task))
        assert [each.outcome for each in late.tool_executions] == ["error"]
        with pytest.raises(ForkPointBusy):
            await runner.fork(task, replace={"s1-0": "another film"})
        assert await audit_store(runner.store) == []


async def test_with_cancel_the_tickets_are_cancelled_as_the_task_ends() -> None:
    farm = Farm()
    agent = farm.agent()
    async with Runner("memory:", agents=[agent]) as runner:
        result = await runner.run(agent, "two films", options=RunOptions(at_end="cancel"))
        assert (result.state, result.final_text, result.pending) == ("completed", "started", ())
        with pytest.raises(TicketClosed, match="it ended as unknown"):
            await runner.complete(farm.tickets[0], "film a")
        assert await audit_store(runner.store) == []


async def test_options_of_a_resume_decide_what_becomes_of_open_tickets() -> None:
    farm = Farm()
    agent = farm.agent()
    async with Runner("memory:", agents=[agent]) as runner:
        task = (await runner.run(agent, "two films")).task_id
        result = await runner.resume(task, options=RunOptions(at_end="detach"))
        assert (result.state, result.final_text) == ("completed", "started")


async def test_a_stepper_finalizes_once_the_tickets_are_in() -> None:
    farm = Farm()
    agent = farm.agent()
    async with Runner("memory:", agents=[agent]) as runner:
        task = await runner.create_task(agent, "two films")
        first, second = await runner.run_step(task), await runner.run_step(task)
        assert (first.is_last, second.is_last, second.output) == (False, True, "started")
        assert (await runner.finalize(task)).state == "waiting"
        for ticket in farm.tickets:
            await runner.complete(ticket, "film")
        third = await runner.run_step(task)
        assert (third.is_last, third.output) == (True, "both are there")
        assert (await runner.finalize(task)).state == "completed"


async def test_a_message_before_the_tickets_are_in_is_answered_with_what_there_is() -> None:
    farm = Farm()
    two = [call("render", title="a"), call("render", title="b")]
    agent = farm.agent(two, text("started"), text("one is there"), text("both are there"))
    async with Runner("memory:", agents=[agent]) as runner:
        task = (await runner.run(agent, "two films")).task_id
        await runner.complete(farm.tickets[0], "film a")
        await runner.send(task, "And?")
        assert (await runner.resume(task)).state == "waiting"
        assert "film a" in str(agent.model.requests[2].messages)  # type: ignore[union-attr]
        await runner.complete(farm.tickets[1], "film b")
        assert (await runner.resume(task)).final_text == "both are there"
        assert str(agent.model.requests[3].messages).count("film a") == 1  # type: ignore[union-attr]


# ------------------------------------------------------------------------------------- who holds a ticket


async def test_the_same_completion_again_changes_nothing_and_another_is_refused() -> None:
    farm = Farm()
    agent = farm.agent()
    async with Runner("memory:", agents=[agent]) as runner:
        task = (await runner.run(agent, "two films")).task_id
        await runner.complete(farm.tickets[0], {"file": "a"})
        before = await journal(runner, task)
        await runner.complete(farm.tickets[0], {"file": "a"})
        for late in (
            runner.complete(farm.tickets[0], {"file": "b"}),
            runner.fail(farm.tickets[0], "no"),
        ):
            with pytest.raises(AlreadyDecided, match="differently"):
                await late
        with pytest.raises(TicketClosed):
            await runner.progress(farm.tickets[0], "more")
        assert await journal(runner, task) == before
        await runner.fail(farm.tickets[1], "no film")
        await runner.fail(farm.tickets[1], "no film")
        with pytest.raises(AlreadyDecided):
            await runner.fail(farm.tickets[1], "no light")


async def test_a_forged_ticket_is_refused() -> None:
    farm = Farm()
    agent = farm.agent()
    async with Runner("memory:", agents=[agent]) as runner:
        task = (await runner.run(agent, "two films")).task_id
        before, ticket = await journal(runner, task), farm.tickets[0]
        of_another_secret, of_another_task, of_no_task = "x" + ticket, ticket + "x", ticket.partition(".")[0]
        for forged in (of_another_secret, of_another_task, of_no_task, "s1-0", "", None):
            with pytest.raises(TicketNotFound):
                await runner.complete(forged, "film")  # type: ignore[arg-type]
        assert await journal(runner, task) == before


async def test_a_ticket_is_of_no_other_task_and_not_of_its_fork() -> None:
    farm = Farm()
    agent = farm.agent([call("render", title="a")], text("started"), text("there"), text("again"))
    async with Runner("memory:", agents=[agent]) as runner:
        task = (await runner.run(agent, "a film")).task_id
        other = await runner.create_task(agent, "else")
        with pytest.raises(TicketNotFound, match="nor of a task below it"):
            await runner.handle(other.task_id).complete(farm.tickets[0], "film")
        with pytest.raises(ForkPointBusy):
            await runner.fork(task)
        await runner.handle(task).complete(farm.tickets[0], "film")
        await runner.resume(task)
        fork = await runner.fork(task)
        with pytest.raises(TicketNotFound):
            await runner.handle(fork.task_id).complete(farm.tickets[0], "film")


async def test_neither_the_store_nor_the_result_holds_a_ticket(tmp_path: Path) -> None:
    farm = Farm()

    @tool(background=True, idempotent=True)
    async def leak(ctx: ToolContext[Any]) -> Any:
        """Fail with the ticket in the error."""
        farm.tickets.append(ctx.ticket)
        raise RuntimeError(f"the farm refused {ctx.ticket}")

    model = ScriptedModel([call("render", title="a"), call("leak"), text("started"), text("there")])
    agent = Agent(model, name="films", tools=[*farm.agent().tools, leak])
    async with Runner(tmp_path / "journal.db", agents=[agent]) as runner:
        result = await runner.run(agent, "a film")
        await runner.complete(farm.tickets[0], "film")
        result = await runner.resume(result.task_id)
        assert result.state == "completed"
        assert "[ticket]" in str(result.messages)
        told = repr(result) + repr(await journal(runner, result.task_id))
    files = b"".join([path.read_bytes() for path in tmp_path.iterdir()])  # noqa: ASYNC240  nothing else runs
    for ticket in farm.tickets:
        secret = ticket.partition(".")[0]
        assert secret not in told
        assert secret.encode() not in files


async def test_a_value_that_is_no_json_data_was_taken_for_a_fault_of_the_store(tmp_path: Path) -> None:
    too_deep: Any = []
    for _ in range(3_000):
        too_deep = [too_deep]
    values: list[Any] = [
        b"x",
        b"\xff",
        {"a": b"x"},
        {1, 2},
        {None: 1},
        float("nan"),
        "\ud800",
        object(),
        too_deep,
    ]
    for store in ("memory:", tmp_path / "tasks.db"):
        farm = Farm()
        agent = farm.agent()
        async with Runner(store, agents=[agent]) as runner:
            await runner.run(agent, "two films")
            for verb in (runner.progress, runner.complete):
                for value in values:
                    with pytest.raises(
                        ConfigurationError, match=r"value (must be JSON data|cannot be stored)"
                    ):
                        await verb(farm.tickets[0], value)
            with pytest.raises(ConfigurationError, match="error must be a text"):
                await runner.fail(farm.tickets[0], b"x")  # type: ignore[arg-type]


async def test_progress_is_told_and_shown_until_the_call_ends() -> None:
    farm = Farm()
    agent = farm.agent()
    async with Runner("memory:", agents=[agent]) as runner:
        task = (await runner.run(agent, "two films")).task_id
        await runner.progress(farm.tickets[0], {"percent": 40}, by="farm")
        pending = (await runner.result(task)).pending
        assert [each.progress for each in pending] == [{"percent": 40}, None]
        told = [event for event in await journal(runner, task) if isinstance(event, e.TicketProgressed)]
        assert [(event.value, event.by, event.tool) for event in told] == [
            ({"percent": 40}, "farm", "render")
        ]


# ------------------------------------------------------------------------------------------- the tool


async def test_a_call_that_is_completed_before_its_tool_returns_ends_once_it_has() -> None:
    farm, returned = Farm(), asyncio.Event()

    @tool(background=True)
    async def render(ctx: ToolContext[Any]) -> Any:
        """Render a film."""
        await runner.complete(ctx.ticket, "film")
        returned.set()
        return ctx.background()

    model = ScriptedModel([call("render"), text("there")])
    agent = Agent(model, name="films", tools=[render])
    async with Runner("memory:", agents=[agent]) as runner:
        result = await runner.run(agent, "a film")
        assert (result.state, result.tool_executions[0].output) == ("completed", "film")
        assert [event.kind for event in await journal(runner, result.task_id)][4:9] == [
            *("ticket_issued", "tool_started", "ticket_completed", "call_deferred", "tool_ended")
        ]
    assert returned.is_set()
    assert farm.tickets == []


async def test_a_tool_that_fails_after_its_work_was_completed_brings_the_result() -> None:
    @tool(background=True)
    async def render(ctx: ToolContext[Any]) -> Any:
        """Render a film."""
        await runner.complete(ctx.ticket, "film")
        raise RuntimeError("the connection broke")

    agent = Agent(ScriptedModel([call("render"), text("there")]), name="films", tools=[render])
    async with Runner("memory:", agents=[agent]) as runner:
        result = await runner.run(agent, "a film")
        assert (result.state, [each.output for each in result.tool_executions]) == ("completed", ["film"])
        assert await audit_store(runner.store) == []


@pytest.mark.parametrize("kind", ["blocking", "generator", "async generator"])
async def test_any_kind_of_tool_may_leave_work_in_the_background(kind: str) -> None:
    tickets: list[str] = []

    @tool(name="render", background=True)
    def blocking(ctx: ToolContext[Any]) -> Any:
        """Render a film."""
        tickets.append(ctx.ticket)
        return ctx.background()

    @tool(name="render", background=True)
    def generator(ctx: ToolContext[Any]) -> Any:
        """Render a film."""
        yield "submitting"
        tickets.append(ctx.ticket)
        return ctx.background()

    @tool(name="render", background=True)
    async def async_generator(ctx: ToolContext[Any]) -> Any:
        """Render a film."""
        yield "submitting"
        tickets.append(ctx.ticket)
        yield ctx.background()

    render: Any = {"blocking": blocking, "generator": generator, "async generator": async_generator}[kind]
    agent = Agent(
        ScriptedModel([call("render"), text("started"), text("there")]), name="films", tools=[render]
    )
    async with Runner("memory:", agents=[agent]) as runner:
        task = (await runner.run(agent, "a film")).task_id
        await runner.complete(tickets[0], "film")
        assert (await runner.resume(task)).final_text == "there"


async def test_a_tool_that_does_not_declare_it_has_no_ticket() -> None:
    @tool
    async def render(ctx: ToolContext[Any]) -> Any:
        """Render a film."""
        return ctx.background()

    agent = Agent(ScriptedModel([call("render"), text("no")]), name="films", tools=[render])
    async with Runner("memory:", agents=[agent]) as runner:
        result = await runner.run(agent, "a film")
    error = result.tool_executions[0].error
    assert error is not None
    assert "declare the tool with @tool(background=True)" in error.message


@pytest.mark.parametrize("expires", [0, -1, 1e11, "soon"])
def test_an_expiry_that_cannot_be_is_refused(expires: Any) -> None:
    ctx = ToolContext("t", "th", "s1", "s1-0", "key", "films", 1, None, issued="ticket.t")
    with pytest.raises(ToolError, match="expires must be a number of seconds above 0"):
        ctx.background(expires=expires)


async def test_what_a_tool_wrote_to_the_state_is_there_while_its_work_goes_on() -> None:
    tickets: list[str] = []

    @tool(background=True)
    async def render(ctx: ToolContext[Any]) -> Any:
        """Render a film."""
        ctx.state["films"] = 1
        tickets.append(ctx.ticket)
        return ctx.background()

    agent = Agent(
        ScriptedModel([call("render"), text("started"), text("there")]), name="films", tools=[render]
    )
    async with Runner("memory:", agents=[agent]) as runner:
        task = await runner.run(agent, "a film")
        assert (await runner.get_task(task.task_id)).extra_state == {"films": 1}
        assert await audit_store(runner.store) == []


# ------------------------------------------------------------------------------- cancel, undo, expiry


async def test_a_cancelled_task_refuses_late_completions() -> None:
    farm = Farm()
    agent = farm.agent()
    async with Runner("memory:", agents=[agent]) as runner:
        task = (await runner.run(agent, "two films")).task_id
        assert (await runner.cancel(task)).state == "cancelled"
        before = await journal(runner, task)
        with pytest.raises(TicketClosed):
            await runner.complete(farm.tickets[0], "film")
        assert await journal(runner, task) == before
        assert await audit_store(runner.store) == []


async def test_an_undo_takes_an_open_call_back_by_its_compensation() -> None:
    farm, withdrawn = Farm(), list[Json]()

    async def withdraw(made: Any, ctx: ToolContext[Any]) -> None:
        withdrawn.append(made.output)

    agent = farm.agent([call("render", title="a")], text("started"), text("again"), undo=withdraw)
    async with Runner("memory:", agents=[agent]) as runner:
        task = (await runner.run(agent, "a film")).task_id
        report = await runner.undo_step(task, to=0)
        assert (withdrawn, [each.verdict for each in report.calls]) == ([{"job": "a"}], ["compensated"])
        with pytest.raises(TicketClosed):
            await runner.complete(farm.tickets[0], "film")
        assert await audit_store(runner.store) == []


async def test_an_undo_refuses_an_open_call_without_a_compensation() -> None:
    farm = Farm()
    agent = farm.agent([call("render", title="a")], text("started"), read_only=False)
    async with Runner("memory:", agents=[agent]) as runner:
        task = (await runner.run(agent, "a film")).task_id
        with pytest.raises(IrreversibleStep):
            await runner.undo_step(task, to=0)
        assert (await runner.undo_step(task, to=0, force=True)).complete
        with pytest.raises(TicketClosed):
            await runner.complete(farm.tickets[0], "film")


async def test_an_undo_of_a_later_step_leaves_the_ticket_open_and_its_result_is_read_again() -> None:
    farm = Farm()
    agent = farm.agent([call("render", title="a")], text("started"), text("there"), text("there once more"))
    async with Runner("memory:", agents=[agent]) as runner:
        task = (await runner.run(agent, "a film")).task_id
        await runner.complete(farm.tickets[0], "film a")
        assert (await runner.resume(task)).final_text == "there"
        await runner.undo_step(task, to=2)
        result = await runner.resume(task)
        assert (result.state, str(result.messages).count("film a")) == ("completed", 1)
        assert await audit_store(runner.store) == []


async def test_a_ticket_expires_while_no_process_runs() -> None:
    farm = Farm()
    agent = farm.agent(expires=86_400)

    async def story() -> None:
        async with clock.runner(agents=[agent]) as runner:
            task = (await runner.run(agent, "two films")).task_id
            await runner.complete(farm.tickets[0], "film a")
            await asyncio.sleep(90_000)
            with pytest.raises(TicketClosed, match="expired"):
                await runner.complete(farm.tickets[1], "film b")
            result = await runner.resume(task)
            assert (result.state, [each.outcome for each in result.tool_executions]) == (
                "completed",
                ["ok", "unknown"],
            )

    await asyncio.to_thread(clock.run, story())


async def test_a_resume_expires_all_tickets_that_are_overdue_not_only_the_first() -> None:
    farm = Farm()
    agent = farm.agent(expires=100)

    async def story() -> None:
        async with clock.runner(agents=[agent]) as runner:
            task = (await runner.run(agent, "two films")).task_id
            await asyncio.sleep(1_000)
            result = await runner.resume(task)
            assert (result.state, result.pending) == ("completed", ())
            assert [each.outcome for each in result.tool_executions] == ["unknown", "unknown"]

    await asyncio.to_thread(clock.run, story())


async def test_an_adopter_goes_on_at_the_expiry_and_at_the_last_completion() -> None:
    farm = Farm()
    agent = farm.agent(expires=60)

    async def story() -> None:
        async with clock.runner(agents=[agent], adopt=True) as runner:
            handle = await runner.start(agent, "two films")
            assert (await handle.result()).state == "waiting"
            await runner.complete(farm.tickets[0], "film a")
            await asyncio.sleep(70)
            result = await runner.result(handle.task_id)
            assert (result.state, result.final_text) == ("completed", "both are there")
            farm.tickets.clear()
            handle = await runner.start(agent, "two films again")
            assert (await handle.result()).state == "waiting"
            for ticket in farm.tickets:
                await runner.complete(ticket, "film")
            await asyncio.sleep(10)
            assert (await runner.result(handle.task_id)).state == "completed"

    await asyncio.to_thread(clock.run, story())


# ------------------------------------------------------------------------------------- other workers


async def test_a_step_function_gets_the_result_where_it_called() -> None:
    farm, entered = Farm(), list[str]()

    async def work(ctx: StepContext[Any]) -> Any:
        entered.append(ctx.name)
        film = await ctx.call_tool("render", {"title": "a"})
        return StepResult(f"got {film}", is_last=True)

    agent = Agent(ScriptedModel([]), worker=work, name="films", tools=farm.agent().tools)
    async with Runner("memory:", agents=[agent]) as runner:
        for at_end in ("suspend", "detach", "cancel"):
            farm.tickets.clear()
            result = await runner.run(agent, f"a film, {at_end}", options=RunOptions(at_end=at_end))
            assert (result.state, [each.kind for each in result.pending]) == ("waiting", ["background"])
            await runner.complete(farm.tickets[0], "film a")
            result = await runner.resume(result.task_id)
            assert (result.state, result.final_text) == ("completed", "got film a")
        assert await audit_store(runner.store) == []


async def test_a_subagents_ticket_is_completed_at_its_own_task_and_its_parent_goes_on() -> None:
    farm = Farm()
    below = farm.agent([call("render", title="a")], text("started"), text("the film is there"))
    above = Agent(
        ScriptedModel([call("films", input="a film"), text("all is there")]), name="boss", subagents=[below]
    )
    async with Runner("memory:", agents=[above]) as runner:
        result = await runner.run(above, "a film")
        assert (result.state, [each.kind for each in result.pending]) == ("waiting", ["subagent"])
        await runner.handle(result.task_id).complete(farm.tickets[0], "film a")
        result = await runner.resume(result.task_id)
        assert (result.state, result.final_text) == ("completed", "all is there")
        assert await audit_store(runner.store) == []


@pytest.mark.parametrize("worker", ["react", "planner"])
async def test_a_worker_that_speaks_text_reads_the_result_when_it_comes(worker: Any) -> None:
    farm = Farm()
    script = {
        "react": [
            'Action: render\nAction Input: {"title": "a"}',
            "Answer: started",
            "Answer: the film is there",
        ],
        "planner": [
            '{"thought": "", "name": "render", "arguments": {"title": "a"}}',
            '{"thought": "", "name": "finish", "arguments": {"answer": "started"}}',
            '{"thought": "", "name": "finish", "arguments": {"answer": "the film is there"}}',
        ],
    }[worker]
    agent = Agent(ScriptedModel(list(script)), name="films", tools=farm.agent().tools, worker=worker)
    async with Runner("memory:", agents=[agent]) as runner:
        result = await runner.run(agent, "a film")
        assert (result.state, result.final_text) == ("waiting", "started")
        await runner.complete(farm.tickets[0], "film a")
        result = await runner.resume(result.task_id)
        assert (result.state, result.final_text) == ("completed", "the film is there")
        assert inputs(agent)[2].count("film a") == 1
        assert await audit_store(runner.store) == []


async def test_a_node_of_a_pipeline_waits_for_its_tool_and_others_go_on() -> None:
    farm, log = Farm(), list[str]()

    async def poster(ctx: NodeContext[Any]) -> str:
        log.append("poster")
        return "poster"

    async def both(ctx: NodeContext[Any]) -> str:
        return f"{ctx.results['film']} and {ctx.results['poster']}"

    nodes = [
        Node("film", "render", input={"title": "a"}),
        Node("poster", poster),
        Node("both", both, after=["film", "poster"]),
    ]
    agent = Agent(ScriptedModel([]), name="films", tools=farm.agent().tools, worker=Pipeline(nodes))
    async with Runner("memory:", agents=[agent]) as runner:
        result = await runner.run(agent, "a film")
        assert (result.state, log) == ("waiting", ["poster"])
        await runner.complete(farm.tickets[0], "film a")
        result = await runner.resume(result.task_id)
        assert (result.state, result.final_text, log) == ("completed", "film a and poster", ["poster"])
        assert await audit_store(runner.store) == []


def hanging_up(runner: Runner, told: list[asyncio.Task[Any]], ticks: int) -> Agent[Any]:
    """Return an agent whose tool has its call completed, and fails so many turns of the event loop later."""

    @tool(background=True)
    async def render(ctx: ToolContext[Any]) -> Any:
        """Render a film."""
        told.append(asyncio.create_task(runner.complete(ctx.ticket, "the film")))
        for _ in range(ticks):
            await asyncio.sleep(0)
        raise ToolError("the farm hung up")

    return Agent(ScriptedModel([call("render"), text("Done.")]), tools=[render])


async def test_a_completion_holds_against_a_tool_that_fails_at_the_same_moment() -> None:
    """The error of the tool was recorded after the completion, and the result that was acknowledged was lost."""
    held = 0
    for ticks in range(40):
        told: list[asyncio.Task[Any]] = []
        async with Runner("memory:") as runner:
            result = await runner.run(hanging_up(runner, told, ticks), "go")
            (refused,) = await asyncio.gather(*told, return_exceptions=True)
            (execution,) = result.tool_executions
            assert (execution.outcome == "ok") == (refused is None), (ticks, execution.outcome, refused)
            held += refused is None
            assert await audit_store(runner.store) == []
    assert held
