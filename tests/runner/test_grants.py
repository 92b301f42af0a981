"""Approvals that hold for later calls: in a thread, or always, until they are revoked."""

from pathlib import Path
from typing import Any

import pytest

from tests.runner.acts import only
from treadle import Agent, Policy, Rule, Runner, RunOptions, ScriptedModel, tool
from treadle.errors import ApproverRefused, ConfigurationError, GrantNotFound
from treadle.llm.scripted import call, text
from treadle.policy.verdicts import AskPerson, EffectRequest
from treadle.replay import record, replay
from treadle.testing.audit import audit_store

pytestmark = pytest.mark.anyio

CAP = Rule("cap", "ask", tool="refund", when={"arguments.cents": {"above": 100}}, reason="It is much.")


class Desk:
    """Agents whose tool pays into a list, with a runner on a store that may be opened again."""

    def __init__(self, store: str) -> None:
        self.store = store
        self.paid: list[str] = []

    def agent(
        self, cents: int = 500, *, tag: str = "", policy: Policy | None = None, above: bool = False
    ) -> Any:
        def refund(order: str, cents: int) -> str:
            """Pay money back."""
            self.paid.append(f"{order} {cents}")
            return f"done{tag}"

        description = f"Pay money back{tag}."
        model = ScriptedModel([call("refund", order="17", cents=cents), text("Done.")])
        desk: Agent[Any] = Agent(
            model, name="desk", tools=[tool(refund, description=description)], policy=policy
        )
        if not above:
            return desk
        return Agent(
            ScriptedModel([call("desk", input="refund"), text("All done.")]), name="boss", subagents=[desk]
        )

    def runner(self, *rules: Rule, **more: Any) -> Runner:
        return Runner(self.store, policy=Policy(*(rules or (CAP,))), **more)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.full)])
def desk(request: pytest.FixtureRequest, tmp_path: Path) -> Desk:
    if request.param == "sqlite":
        return Desk(str(tmp_path / "store.db"))
    server = request.getfixturevalue("postgres")
    return Desk(server.in_schema(f"g{abs(hash(str(tmp_path))):x}"[:20]))


async def test_an_approval_for_always_holds_in_other_tasks_and_processes_until_it_is_revoked(
    desk: Desk,
) -> None:
    async with desk.runner() as runner:
        first = await runner.run(desk.agent(), "Go.", task_id="first")
        await runner.approve("first", scope="always", by="ann")
        await runner.approve("first", "s1-0-ask1", scope="always", by="ann")  # a second click
        await runner.resume("first", agent=desk.agent())
        assert first.state == "waiting"
    async with desk.runner() as runner:
        (grant,) = await runner.list_grants()
        assert (grant.tool, grant.rule, grant.thread_id, grant.by) == ("refund", "cap", None, "ann")
        assert (grant.task_id, grant.request_id, grant.revoked) == ("first", "s1-0-ask1", None)
        second = await runner.run(desk.agent(9_000), "Go.", task_id="second")
        assert (second.state, desk.paid) == ("completed", ["17 500", "17 9000"])
        (judged,) = await only(runner, "second", "call_judged")
        assert (judged.verdict, judged.rule, judged.grant) == ("allow", "cap", grant.grant_id)
        assert judged.reason == f"approved for all tasks by ann with {grant.grant_id}"
        await runner.revoke(grant.grant_id, by="bob")
        await runner.revoke(grant.grant_id, by="eve")
        assert await runner.list_grants() == ()
        (revoked,) = await runner.list_grants(revoked=True)
        assert (revoked.revoked_by, revoked.revoked is not None) == ("bob", True)
        assert (await runner.run(desk.agent(), "Go.")).state == "waiting"
        with pytest.raises(GrantNotFound, match="g-none"):
            await runner.revoke("g-none")
        assert await audit_store(runner.store) == []


async def test_an_approval_for_a_thread_holds_in_its_conversation_alone_and_goes_with_it(desk: Desk) -> None:
    async with desk.runner() as runner:
        first = await runner.run(desk.agent(above=True), "Go.", thread_id="talk")
        await runner.approve(first.task_id, scope="thread")
        assert (await runner.resume(first.task_id, agent=desk.agent(above=True))).state == "completed"
        (grant,) = await runner.list_grants(thread_id="talk")
        assert grant.thread_id == "talk", "that of the conversation, not that of the subagent"
        assert (await runner.run(desk.agent(above=True), "Go.", thread_id="talk")).state == "completed"
        assert (await runner.run(desk.agent(), "Go.", thread_id="talk")).state == "completed"
        assert (await runner.run(desk.agent(), "Go.", thread_id="other")).state == "waiting"
        assert await runner.list_grants(thread_id="other") == ()
        await runner.delete_thread("talk")
        assert await runner.list_grants() == ()
        assert (await runner.run(desk.agent(), "Go.", thread_id="talk")).state == "waiting"


async def test_a_grant_covers_no_other_tool_no_other_rule_and_no_denial(desk: Desk) -> None:
    async with desk.runner() as runner:
        first = await runner.run(desk.agent(), "Go.")
        await runner.approve(first.task_id, scope="always")
        await runner.resume(first.task_id, agent=desk.agent())
        assert (await runner.run(desk.agent(tag=" twice"), "Go.")).state == "waiting", "the tool has changed"
    also = Rule("spends", "ask", tool="refund")
    async with desk.runner(CAP, also) as runner:
        asked = await runner.run(desk.agent(), "Go.")
        assert [item.rule for item in asked.pending] == ["cap+spends"]
    async with desk.runner(also) as runner:
        assert (await runner.run(desk.agent(), "Go.")).state == "waiting"
    async with desk.runner(CAP, Rule("no", "deny", tool="refund")) as runner:
        denied = await runner.run(desk.agent(), "Go.")
        assert [execution.outcome for execution in denied.tool_executions] == ["denied"]
    async with desk.runner(options=RunOptions(interaction="headless")) as runner:
        done = await runner.run(desk.agent(), "Go.")
        assert [execution.outcome for execution in done.tool_executions] == ["ok"], "no person is needed"


async def test_a_grant_lifts_nothing_that_its_approver_may_not_decide(desk: Desk) -> None:
    fair = Rule("fair", "ask", tool="refund", excluded=["labels.user"])
    async with desk.runner(fair) as runner:
        by_bob = await runner.run(desk.agent(), "Go.", options=RunOptions(labels={"user": "bob"}))
        with pytest.raises(ApproverRefused):
            await runner.approve(by_bob.task_id, scope="always", by="bob")
        with pytest.raises(ApproverRefused):
            await runner.approve(by_bob.task_id, scope="always")
        await runner.approve(by_bob.task_id, scope="always", by="ann")
        await runner.resume(by_bob.task_id, agent=desk.agent())
        again = await runner.run(desk.agent(), "Go.", options=RunOptions(labels={"user": "bob"}))
        assert again.state == "completed"
        by_ann = await runner.run(desk.agent(), "Go.", options=RunOptions(labels={"user": "ann"}))
        assert by_ann.state == "waiting", "ann would have approved what she asked for"


async def test_the_terms_of_all_policies_hold_that_ask(desk: Desk) -> None:
    """A runner's policy and an agent's both asked, and only the terms of the first held."""
    own = Policy(Rule("own", "ask", tool="refund", approvers=["ann"], expires=60))
    async with desk.runner() as runner:
        asked = await runner.run(desk.agent(policy=own), "Go.")
        (item,) = asked.pending
        assert item.rule == "cap+own"
        with pytest.raises(ApproverRefused):
            await runner.approve(asked.task_id, by="bob")
        await runner.approve(asked.task_id, by="ann")


async def test_an_approver_writes_the_argument_that_a_rule_wants(desk: Desk) -> None:
    wants = Rule("why", "ask", tool="refund", argument="order", reason="Which order is it really?")
    async with desk.runner(wants) as runner:
        asked = await runner.run(desk.agent(), "Go.")
        assert asked.pending[0].argument == "order"
        for arguments in (None, {"cents": 5}):
            with pytest.raises(ConfigurationError, match="asks for the argument 'order'"):
                await runner.approve(asked.task_id, arguments=arguments)
        with pytest.raises(ConfigurationError, match="covers one call"):
            await runner.approve(asked.task_id, arguments={"order": "1", "cents": 5}, scope="always")
        with pytest.raises(ConfigurationError, match="order: should be"):
            await runner.answer(asked.task_id, value=18)
        await runner.answer(asked.task_id, value="18", by="ann")
        assert (await runner.resume(asked.task_id, agent=desk.agent())).state == "completed"
        assert desk.paid == ["18 500"]
        assert (await runner.run(desk.agent(), "Go.")).state == "waiting"


async def test_an_answer_that_was_an_approval_was_refused_when_it_was_repeated(desk: Desk) -> None:
    wants = Rule("why", "ask", tool="refund", argument="order")
    async with desk.runner(wants) as runner:
        task_id = (await runner.run(desk.agent(), "Go.")).task_id
        for request_id in (None, "s1-0-ask1", None):
            await runner.answer(task_id, request_id, value="18", by="ann", command_id="of-ann")
        with pytest.raises(ConfigurationError, match="belongs to another command"):
            await runner.answer(task_id, value="19", by="ann", command_id="of-ann")
        assert (await runner.resume(task_id, agent=desk.agent())).state == "completed"
        await runner.answer(task_id, value="18", by="ann", command_id="of-ann")
        assert desk.paid == ["18 500"]


async def test_two_rules_that_want_two_arguments_of_one_approver_deny(desk: Desk) -> None:
    first = Rule("first", "ask", tool="refund", argument="order")
    second = Rule("second", "ask", tool="refund", argument="cents")
    async with desk.runner(first, second) as runner:
        denied = await runner.run(desk.agent(), "Go.")
        assert [execution.outcome for execution in denied.tool_executions] == ["denied"]
        error = denied.tool_executions[0].error
        assert error is not None
        assert "rules first+second want several arguments of one approver: order, cents" in error.message
    with pytest.raises(ConfigurationError, match="argument"):
        Rule("wrong", "deny", argument="order")


async def test_an_approval_that_names_no_rule_cannot_stand(desk: Desk) -> None:
    class Asks:
        deadline = 1.0

        def concerns(self, kind: str, name: str | None, agent: str) -> bool:
            return kind == "tool"

        def functions_for(self, request: EffectRequest) -> tuple[()]:
            return ()

        def judge(self, request: EffectRequest, answers: Any = ()) -> AskPerson:
            return AskPerson()

    async with Runner(desk.store, policy=Asks()) as runner:
        asked = await runner.run(desk.agent(), "Go.")
        with pytest.raises(ConfigurationError, match="s1-0-ask1 names no rule"):
            await runner.approve(asked.task_id, scope="always")
        await runner.approve(asked.task_id, scope="task")


async def test_a_rule_that_asks_about_every_call_is_answered_by_no_earlier_approval(desk: Desk) -> None:
    every = Rule("cap", "ask", tool="refund", when={"arguments.cents": {"above": 100}}, every_call=True)
    async with desk.runner() as runner:
        first = await runner.run(desk.agent(), "Go.")
        await runner.approve(first.task_id, scope="always")
        await runner.resume(first.task_id, agent=desk.agent())
    async with desk.runner(every) as runner:
        second = await runner.run(desk.agent(), "Go.", task_id="second")
        assert (second.state, second.pending[0].every_call, len(desk.paid)) == ("waiting", True, 1)
        for scope in ("task", "thread", "always"):
            with pytest.raises(ConfigurationError, match=r"rule cap asks about every call.*scope='once'"):
                await runner.approve("second", scope=scope)
        await runner.approve("second")
        await runner.resume("second", agent=desk.agent())
        assert len(desk.paid) == 2
        report = await replay(await record(runner, "second"), desk.agent())
        assert report.drifts == (), report


async def test_a_replay_repeats_what_a_grant_let_start(desk: Desk) -> None:
    async with desk.runner() as runner:
        first = await runner.run(desk.agent(), "Go.")
        await runner.approve(first.task_id, scope="always")
        await runner.resume(first.task_id, agent=desk.agent())
        second = await runner.run(desk.agent(), "Go.")
        for task_id in (first.task_id, second.task_id):
            report = await replay(await record(runner, task_id), desk.agent())
            assert report.drifts == (), report
