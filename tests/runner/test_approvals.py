"""What one approval is; test_approvals_everywhere.py has what becomes of it in every worker."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from tests.runner.acts import both, journal, only
from treadle import (
    Agent,
    Limits,
    NextStep,
    Runner,
    RunOptions,
    ScriptedModel,
    StepContext,
    StepResult,
    tool,
)
from treadle.core import events as e
from treadle.core.data import frozen
from treadle.errors import (
    AlreadyDecided,
    ApproverRefused,
    ConfigurationError,
    TaskParked,
)
from treadle.llm.scripted import call, turn
from treadle.policy.verdicts import (
    AskPerson,
    Deny,
    EffectKind,
    EffectRequest,
    PolicyFunction,
    PolicyVerdict,
    Replace,
    strictest,
)
from treadle.testing import clock

pytestmark = pytest.mark.anyio


@frozen
class Rules:
    """A policy of a test: one rule, and functions."""

    rule: Callable[[EffectRequest], PolicyVerdict | None] = lambda _: None
    functions: tuple[PolicyFunction, ...] = ()
    deadline: float = 5.0

    def concerns(self, kind: EffectKind, name: str | None, agent: str) -> bool:
        return kind != "model"

    def functions_for(self, request: EffectRequest) -> tuple[PolicyFunction, ...]:
        return self.functions

    def judge(
        self, request: EffectRequest, answers: Iterable[PolicyVerdict | None] = ()
    ) -> PolicyVerdict | None:
        return strictest([self.rule(request), *answers])


class Bank:
    """The world outside: a file to which the tools write what they did, however often their process starts."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "bank"
        self.slow = asyncio.Event()

    @property
    def payments(self) -> list[str]:
        return self.path.read_text().splitlines() if self.path.exists() else []

    def pay(self, text: str) -> None:
        with self.path.open("a") as book:
            book.write(f"{text}\n")

    def refund(self, **options: Any) -> Any:
        def refund(order: str, amount: int) -> str:
            """Pay money back."""
            self.pay(f"{order} {amount}")
            return f"refunded {amount} for {order}"

        return tool(refund, **cast("Any", {"needs_approval": True, **options}))

    def desk(self, *script: Any, **more: Any) -> Agent[Any]:
        tools = more.pop("tools", None) or [self.refund()]
        script = script or (call("refund", order="a", amount=5), "Done.")
        return Agent(ScriptedModel(list(script)), name="desk", tools=tools, **more)


@pytest.fixture
def bank(tmp_path: Path) -> Bank:
    return Bank(tmp_path)


async def streamed(runner: Runner, agent: Agent[Any]) -> Any:
    async with runner.run_stream(agent, "Go.") as stream:
        async for _ in stream:
            pass
    return stream.result


# -------------------------------------------------------------------------------- asking and answering


async def test_a_call_waits_for_its_approval_and_then_runs_once(runner: Runner, bank: Bank) -> None:
    preview = bank.refund(preview=lambda order, amount: f"pays {amount} to the customer of {order}")
    agent = bank.desk(tools=[preview])
    result = await runner.run(agent, "Go.")
    assert (result.state, bank.payments) == ("waiting", [])
    (pending,) = result.pending
    assert (pending.kind, pending.request_id, pending.tool) == ("approval", "s1-0-ask1", "refund")
    assert (pending.arguments, pending.rule) == ({"order": "a", "amount": 5}, "needs_approval")
    assert pending.preview == "pays 5 to the customer of a"
    assert pending.expires is not None
    await runner.handle(result.task_id).approve(by="ann")
    result = await runner.resume(result.task_id)
    assert (result.state, result.final_text, bank.payments) == ("completed", "Done.", ["a 5"])
    (given,) = await only(runner, result.task_id, "approval_given")
    assert (given.by, given.scope, given.arguments) == ("ann", "once", None)


async def test_a_denied_call_never_runs_and_the_model_reads_why(runner: Runner, bank: Bank) -> None:
    agent = bank.desk()
    result = await runner.run(agent, "Go.")
    await runner.deny(result.task_id, reason="too much", by="ann")
    result = await runner.resume(result.task_id)
    (execution,) = result.tool_executions
    assert (result.state, execution.outcome, bank.payments) == ("completed", "denied", [])
    assert execution.error is not None
    assert execution.error.message == "refund was not run: the approver denied it: too much."


async def test_two_people_who_decide_at_once_get_one_verdict(runner: Runner, bank: Bank) -> None:
    result = await runner.run(bank.desk(), "Go.")
    request = result.pending[0].request_id
    outcomes = await asyncio.gather(
        runner.approve(result.task_id, request), runner.deny(result.task_id, request), return_exceptions=True
    )
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["AlreadyDecided", "NoneType"]
    await runner.resume(result.task_id)
    assert bank.payments == (["a 5"] if outcomes[0] is None else [])


# ---------------------------------------------------------------------------------- what it is bound to


async def test_an_approver_edits_the_arguments_which_are_checked_and_both_are_journalled(
    runner: Runner, bank: Bank
) -> None:
    result = await runner.run(bank.desk(), "Go.")
    with pytest.raises(ConfigurationError, match="approve: arguments do not fit the tool refund"):
        await runner.approve(result.task_id, arguments={"order": "a", "amount": "much"})
    edited: dict[str, Any] = {"order": "a", "amount": 4}
    await runner.approve(result.task_id, arguments=edited, by="ann")
    await runner.approve(result.task_id, "s1-0-ask1", arguments=edited)
    with pytest.raises(AlreadyDecided):
        await runner.approve(result.task_id, "s1-0-ask1")
    assert (await runner.resume(result.task_id)).state == "completed"
    (given,) = await only(runner, result.task_id, "approval_given")
    assert (given.arguments, given.previous) == (edited, {"order": "a", "amount": 5})
    assert bank.payments == ["a 4"]


async def test_a_policy_denies_arguments_that_an_approver_wrote(store: Any, bank: Bank) -> None:
    def rule(request: EffectRequest) -> PolicyVerdict:
        much = request.arguments["amount"] > 100
        return Deny("limit", "more than 100") if much else AskPerson("refunds")

    async with Runner(store, policy=Rules(rule)) as runner:
        result = await runner.run(bank.desk(tools=[bank.refund(needs_approval=False)]), "Go.")
        await runner.approve(result.task_id, arguments={"order": "a", "amount": 1_000})
        result = await runner.resume(result.task_id)
    assert [execution.outcome for execution in result.tool_executions] == ["denied"]
    assert bank.payments == []


# ------------------------------------------------------------------------------------------- several


async def test_a_batch_of_which_one_waits_gives_all_the_others_their_results(
    runner: Runner, bank: Bank
) -> None:
    @tool
    async def good() -> str:
        """Work."""
        bank.pay("good")
        return "fine"

    @tool(name="raises")
    async def raising() -> str:
        """Raise."""
        raise ValueError("broken")

    @tool
    async def slow() -> str:
        """Work slowly."""
        await asyncio.sleep(0.05)
        bank.pay("slow")
        return "at last"

    calls = both(call("good"), call("raises"), call("refund", order="a", amount=5), call("slow"))
    agent = bank.desk(calls, "Done.", tools=[good, raising, bank.refund(), slow])
    result = await streamed(runner, agent)
    outcomes = [execution.outcome for execution in result.tool_executions]
    assert (result.state, outcomes) == ("waiting", ["ok", "error", None, "ok"])
    assert sorted(bank.payments) == ["good", "slow"]
    await runner.approve(result.task_id)
    result = await runner.resume(result.task_id)
    assert [execution.outcome for execution in result.tool_executions] == ["ok", "error", "ok", "ok"]
    assert sorted(bank.payments) == ["a 5", "good", "slow"]


async def test_a_call_that_is_approved_while_others_run_starts_at_once(runner: Runner, bank: Bank) -> None:
    @tool
    async def slow() -> str:
        """Work until the other call has paid."""
        async with asyncio.timeout(10):
            while not bank.payments:  # noqa: ASYNC110  the ledger is a file
                await asyncio.sleep(0.01)
        return "seen"

    agent = bank.desk(
        both(call("refund", order="a", amount=5), call("slow")), "Done.", tools=[bank.refund(), slow]
    )
    handle = await runner.start(agent, "Go.")
    async for event in handle.events():
        if event.kind == "approval_requested":
            await handle.approve()
    result = await handle.result()
    assert [execution.outcome for execution in result.tool_executions] == ["ok", "ok"]


async def test_an_approval_for_the_task_holds_for_later_calls_of_the_tool(runner: Runner, bank: Bank) -> None:
    other = tool(bank.refund(), name="other")
    calls = [call("refund", order=name, amount=5) for name in "abc"]
    agent = bank.desk(*calls, call("other", order="d", amount=5), "Done.", tools=[bank.refund(), other])
    result = await runner.run(agent, "Go.")
    await runner.approve(result.task_id, scope="task", by="ann")
    result = await runner.resume(result.task_id)
    assert ([item.tool for item in result.pending], bank.payments) == (["other"], ["a 5", "b 5", "c 5"])
    judged = await only(runner, result.task_id, "call_judged")
    assert [event.reason for event in judged] == ["approved for the task by ann with s1-0-ask1"] * 2
    fork = await runner.fork(result.task_id, at="s1", agent=agent)
    assert (await runner.resume(fork)).state == "waiting"  # a fork inherits no approvals


async def test_a_denial_can_cancel_the_task_with_it(runner: Runner, bank: Bank) -> None:
    agent = bank.desk([call("refund", order="a", amount=5), call("refund", order="b", amount=6)], "Done.")
    result = await runner.run(agent, "Go.")
    await runner.deny(result.task_id, "s1-1-ask1", reason="fraud", stop=True, by="ann")
    after = await runner.result(result.task_id)
    assert (after.state, bank.payments) == ("cancelled", [])
    kinds = [event.kind for event in await journal(runner, result.task_id)]
    at = kinds.index("approval_denied")
    assert kinds[at + 1] == "cancel_requested", "in one transaction: no crash parts them"
    (denied,) = await only(runner, result.task_id, "approval_denied")
    assert (denied.stop, denied.by, denied.reason) == (True, "ann", "fraud")
    requested = (await only(runner, result.task_id, "cancel_requested"))[0]
    assert (requested.by, requested.reason) == ("ann", "refund was denied: fraud")
    await runner.deny(result.task_id, "s1-1-ask1", stop=True)  # a second click


async def test_a_denial_of_what_a_subagent_asks_for_cancels_the_task_that_is_named(
    runner: Runner, bank: Bank
) -> None:
    boss = Agent(
        ScriptedModel([call("desk", input="refund"), "All done."]), name="boss", subagents=[bank.desk()]
    )
    result = await runner.run(boss, "Go.")
    await runner.deny(result.task_id, stop=True)
    page = await runner.list_tasks()
    assert {item.state for item in page.items} == {"cancelled"}
    assert len(page.items) == 2
    assert bank.payments == []


# -------------------------------------------------------------------------------------------- expiry


def test_a_resume_expires_all_requests_that_are_overdue_not_only_the_first_two(bank: Bank) -> None:
    async def work() -> Any:
        agent = bank.desk(turn("", [call("refund", order=order, amount=5) for order in "abcd"]), "Done.")
        async with clock.runner(agents=[agent]) as runner:
            task = (await runner.run(agent, "Go.", options=RunOptions(approval_expires=100))).task_id
            await asyncio.sleep(1_000)
            return await runner.resume(task)

    result = clock.run(work())
    assert (result.state, result.pending) == ("completed", ())
    assert [execution.outcome for execution in result.tool_executions] == ["denied"] * 4
    assert bank.payments == []


def test_a_request_expires_while_other_calls_run(bank: Bank) -> None:
    @tool
    async def slow() -> str:
        """Work for a day."""
        await asyncio.sleep(86_400)
        return "done"

    async def work() -> Any:
        calls = both(call("refund", order="a", amount=5), call("slow"))
        async with clock.runner() as runner:
            agent = bank.desk(calls, "Done.", tools=[bank.refund(), slow])
            result = await runner.run(agent, "Go.", options=RunOptions(approval_expires=3_600))
            ended = [event async for event in runner.handle(result.task_id).events()]
        return result, [event.kind for event in ended]

    result, kinds = clock.run(work())
    assert [execution.outcome for execution in result.tool_executions] == ["denied", "ok"]
    assert kinds.index("approval_expired") < kinds.index("tool_ended")


def test_an_approval_that_was_recorded_in_time_holds_when_it_is_read_late(tmp_path: Path, bank: Bank) -> None:
    async def work() -> None:
        async with clock.runner(
            tmp_path / "store.db", options=RunOptions(approval_expires=3_600), agents=[bank.desk()]
        ) as runner:
            result = await runner.run(bank.desk(), "Go.")
            await asyncio.sleep(3_000)
            await runner.approve(result.task_id)
            await asyncio.sleep(10_000)
            assert (await runner.resume(result.task_id)).state == "completed"

    clock.run(work())
    assert bank.payments == ["a 5"]


# ------------------------------------------------------------------------------------- other commands


async def test_a_task_with_an_open_request_is_paused_undone_and_cancelled(runner: Runner, bank: Bank) -> None:
    agent = bank.desk()
    result = await runner.run(agent, "Go.")
    assert (await runner.pause(result.task_id)).state == "paused"
    await runner.approve(result.task_id)
    assert bank.payments == []
    undone = await runner.undo_step(result.task_id, to=0)
    assert undone.complete
    result = await runner.resume(result.task_id)
    assert ([item.request_id for item in result.pending], bank.payments) == (["s1b1-0-ask1"], [])
    assert (await runner.cancel(result.task_id)).state == "cancelled"
    assert ((await runner.list_pending()).items, bank.payments) == ((), [])


async def test_a_stepper_is_told_of_the_request_and_steps_on_after_the_approval(
    runner: Runner, bank: Bank
) -> None:
    task = await runner.create_task(bank.desk(), "Go.")
    with pytest.raises(TaskParked) as parked:
        await runner.run_step(task)
    assert [item.kind for item in parked.value.pending] == ["approval"]
    await runner.approve(task)
    assert (await runner.run_step(task)).tool_executions[0].outcome == "ok"
    assert bank.payments == ["a 5"]


async def test_a_fork_at_an_open_request_asks_for_itself(runner: Runner, bank: Bank) -> None:
    agent = bank.desk()
    result = await runner.run(agent, "Go.")
    asked = next(
        event for event in await journal(runner, result.task_id) if event.kind == "approval_requested"
    )
    fork = await runner.fork(result.task_id, at=asked.seq)
    await runner.approve(result.task_id)
    assert (await runner.resume(result.task_id)).state == "completed"
    forked = await runner.resume(fork)
    assert ([item.request_id for item in forked.pending], bank.payments) == (["s1-0-ask2"], ["a 5"])


async def test_requests_are_listed_of_all_tasks_of_a_thread_and_of_a_task(runner: Runner, bank: Bank) -> None:
    first = await runner.run(bank.desk(), "Go.", thread_id="talk")
    second = await runner.run(bank.desk(), "Go.")
    assert {item.task_id for item in await runner.list_pending()} == {first.task_id, second.task_id}
    assert [item.task_id for item in await runner.list_pending(thread_id="talk")] == [first.task_id]
    assert [item.task_id for item in await runner.list_pending(second.task_id)] == [second.task_id]
    (listed,) = (await runner.handle(first.task_id).list_pending()).items
    assert (replace(listed, head=0),) == first.pending


async def test_a_headless_run_denies_what_needs_an_approval(runner: Runner, bank: Bank) -> None:
    result = await runner.run(bank.desk(), "Go.", options=RunOptions(interaction="headless"))
    (execution,) = result.tool_executions
    assert (result.state, execution.outcome, bank.payments) == ("completed", "denied", [])
    assert execution.error is not None
    assert "the run is headless" in execution.error.message


async def test_a_descendants_request_is_decided_at_every_ancestor(runner: Runner, bank: Bank) -> None:
    below = bank.desk()
    middle = Agent(ScriptedModel([call("desk", input="refund"), "ok"]), name="middle", subagents=[below])
    top = Agent(ScriptedModel([call("middle", input="refund"), "End."]), name="top", subagents=[middle])
    result = await runner.run(top, "Go.")
    assert (result.state, result.pending[0].kind) == ("waiting", "subagent")
    (pending,) = await runner.list_pending(result.task_id)
    assert pending.task_id == f"{result.task_id}.s1-0.s1-0"
    await runner.handle(result.task_id).approve(pending.request_id)
    result = await runner.resume(result.task_id)
    assert (result.state, result.final_text, bank.payments) == ("completed", "End.", ["a 5"])


# -------------------------------------------------------------------------------------------- policies


async def test_the_function_of_a_tool_says_which_calls_need_an_approval(runner: Runner, bank: Bank) -> None:
    async def large(amount: int) -> bool:
        await asyncio.sleep(0)
        return amount > 10

    calls = both(call("refund", order="a", amount=5), call("refund", order="b", amount=50))
    result = await runner.run(bank.desk(calls, "Done.", tools=[bank.refund(needs_approval=large)]), "Go.")
    assert [item.arguments["order"] for item in result.pending] == ["b"]
    assert bank.payments == ["a 5"]


def boom(**_: Any) -> bool:
    raise RuntimeError("boom")


@pytest.mark.parametrize("broken", [boom, lambda: "yes"], ids=["raises", "returns a text"])
async def test_a_tool_whose_function_fails_is_denied(runner: Runner, bank: Bank, broken: Any) -> None:
    result = await runner.run(bank.desk(tools=[bank.refund(needs_approval=broken)]), "Go.")
    assert ([each.outcome for each in result.tool_executions], bank.payments) == (["denied"], [])


def late_in_a_thread(_: EffectRequest) -> PolicyVerdict | None:
    import time

    time.sleep(0.2)
    return None


async def never(_: EffectRequest) -> PolicyVerdict | None:
    await asyncio.sleep(60)
    return None


@pytest.mark.parametrize(
    "function",
    [boom, never, late_in_a_thread, lambda _: "allow"],
    ids=["raises", "hangs", "hangs in a thread", "returns a text"],
)
async def test_a_policy_function_that_fails_denies(bank: Bank, function: Any) -> None:
    policy = Rules(functions=(PolicyFunction("gate", function),), deadline=0.05)
    async with Runner("memory:", policy=policy) as runner:
        result = await runner.run(bank.desk(tools=[bank.refund(needs_approval=False)]), "Go.")
        (judged,) = await only(runner, result.task_id, "call_judged")
    assert (judged.verdict, judged.rule, bank.payments) == ("deny", "gate", [])


async def test_replaced_arguments_are_judged_and_journalled(bank: Bank) -> None:
    def cap(request: EffectRequest) -> PolicyVerdict | None:
        if request.arguments["amount"] > 10:
            return Replace({**request.arguments, "amount": 10}, "cap", "at most 10")
        return None

    async with Runner("memory:", policy=Rules(cap)) as runner:
        result = await runner.run(bank.desk(call("refund", order="a", amount=50), "Done."), "Go.")
        assert result.pending[0].arguments == {"order": "a", "amount": 10}
        replaced = (await only(runner, result.task_id, "call_judged"))[0]
        assert (replaced.rule, replaced.previous, replaced.arguments) == (
            "cap",
            {"order": "a", "amount": 50},
            {"order": "a", "amount": 10},
        )
        await runner.approve(result.task_id)
        await runner.resume(result.task_id)
    assert bank.payments == ["a 10"]


async def test_a_policy_that_replaces_forever_denies(bank: Bank) -> None:
    def grow(request: EffectRequest) -> PolicyVerdict:
        return Replace({**request.arguments, "amount": request.arguments["amount"] + 1}, "grow")

    async with Runner("memory:", policy=Rules(grow)) as runner:
        result = await runner.run(bank.desk(tools=[bank.refund(needs_approval=False)]), "Go.")
    assert ([each.outcome for each in result.tool_executions], bank.payments) == (["denied"], [])


async def test_a_child_is_judged_by_the_policies_of_the_runner_and_of_its_parent(bank: Bank) -> None:
    seen: list[tuple[str, str, tuple[str, ...]]] = []

    def watch(name: str) -> Rules:
        def rule(request: EffectRequest) -> PolicyVerdict | None:
            seen.append((name, request.kind, request.agent_path))
            return Deny("no refunds") if name == "top" and request.name == "refund" else None

        return Rules(rule)

    below = bank.desk(tools=[bank.refund(needs_approval=False)])
    script = [call("desk", input="refund"), "End."]
    top = Agent(ScriptedModel(script), name="top", subagents=[below], policy=watch("top"))
    async with Runner("memory:", policy=watch("runner")) as runner:
        result = await runner.run(top, "Go.")
    assert (result.final_text, bank.payments) == ("End.", [])
    assert seen == [
        ("runner", "subagent", ("top",)),
        ("top", "subagent", ("top",)),
        ("runner", "tool", ("top", "desk")),
        ("top", "tool", ("top", "desk")),
    ]


async def test_only_those_decide_whom_the_policy_lets_decide(bank: Bank) -> None:
    def rule(request: EffectRequest) -> PolicyVerdict:
        return AskPerson("four eyes", approvers=("ann", "bob"), excluded=("bob",))

    async with Runner("memory:", policy=Rules(rule)) as runner:
        result = await runner.run(bank.desk(), "Go.")
        for name in (None, "bob", "eve"):
            with pytest.raises(ApproverRefused, match="may not decide"):
                await runner.approve(result.task_id, by=name)
        await runner.approve(result.task_id, by="ann")
        assert (await runner.resume(result.task_id)).state == "completed"
    assert bank.payments == ["a 5"]


# --------------------------------------------------------------------------------------------- workers


async def test_parallel_steps_go_on_while_the_call_of_one_waits(store: Any, bank: Bank) -> None:
    async def start(ctx: StepContext) -> StepResult:
        plans = [NextStep("pay"), NextStep("work"), NextStep("end", after=("pay", "work"))]
        return StepResult(next_steps=plans)

    async def worker(ctx: StepContext) -> StepResult:
        if ctx.name == "start":
            return await start(ctx)
        if ctx.name == "pay":
            return StepResult(await ctx.call_tool("refund", {"order": "a", "amount": 5}))
        if ctx.name == "work":
            await asyncio.sleep(0.2)
            bank.pay("worked")
        return StepResult(ctx.name, is_last=ctx.name == "end")

    agent = bank.desk("unused", worker=worker)
    async with Runner(store, agents=[agent]) as runner:
        result = await runner.run(agent, "Go.")
        assert ([item.tool for item in result.pending], bank.payments) == (["refund"], ["worked"])
        await runner.approve(result.task_id)
        assert (await runner.resume(result.task_id)).state == "completed"
    assert bank.payments == ["worked", "a 5"]


async def test_an_adopter_goes_on_as_soon_as_another_process_decided(store: Any, bank: Bank) -> None:
    agent = bank.desk()
    below = bank.desk().replace(name="below")
    above = Agent(ScriptedModel([call("below", input="refund"), "End."]), name="above", subagents=[below])
    async with Runner(store, agents=[agent, above], adopt=True) as driver:
        own = await driver.run(agent, "Go.")
        parent = await driver.run(above, "Go.")
        async with Runner(store) as other:
            for item in await other.list_pending():
                await other.approve(item.task_id, by="ann")
        async with asyncio.timeout(10):
            for task in (own.task_id, parent.task_id):
                while (await driver.get_task(task)).state != "completed":  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
    assert bank.payments == ["a 5", "a 5"]


def test_a_child_whose_request_expires_goes_on_with_its_parent(tmp_path: Path, bank: Bank) -> None:
    async def work() -> None:
        below = bank.desk()
        above = Agent(ScriptedModel([call("desk", input="refund"), "End."]), name="above", subagents=[below])
        options = RunOptions(approval_expires=3_600)
        async with clock.runner(tmp_path / "store.db", options=options, agents=[above]) as runner:
            result = await runner.run(above, "Go.", task_id="parent")
            assert result.state == "waiting"
        await asyncio.sleep(4_000)
        async with clock.runner(tmp_path / "store.db", agents=[above], adopt=True) as runner:
            while (await runner.get_task("parent")).state != "completed":  # noqa: ASYNC110
                await asyncio.sleep(0.1)
            assert [each.outcome for each in (await runner.result("parent")).tool_executions] == [
                "ok",
                "denied",
            ]

    clock.run(work())
    assert bank.payments == []


async def test_a_limit_closes_an_open_request(runner: Runner, bank: Bank) -> None:
    calls = both(call("refund", order="a", amount=5), call("refund", order="b", amount=5))
    agent = bank.desk(calls, "Done.", limits=Limits(tool_calls=1))
    result = await runner.run(agent, "Go.")
    assert [item.arguments["order"] for item in result.pending] == ["a"]
    await runner.approve(result.task_id)
    await runner.resume(result.task_id)
    assert bank.payments == ["a 5"]


async def test_the_events_of_a_request_name_their_tool(runner: Runner, bank: Bank) -> None:
    result = await runner.run(bank.desk(), "Go.")
    await runner.approve(result.task_id)
    events = [event for event in await journal(runner, result.task_id) if isinstance(event, e.CallOccurrence)]
    assert {event.tool for event in events} == {"refund"}
