"""`runner.policy = Policy(...)` was kept as an attribute that nothing looked at: what it denied ran."""

import asyncio
from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest

from treadle import (
    Agent,
    Client,
    Policy,
    Rule,
    Runner,
    RunOptions,
    ScriptedModel,
    ToolContext,
    events,
    tool,
)
from treadle.errors import ConfigurationError, TreadleError
from treadle.models import call, text

pytestmark = pytest.mark.anyio

NO_SAVING = Policy(Rule("no-saving", "deny", tool="save", reason="Not today."))


class Desk:
    """An agent that saves as often as it is told, and what it saved."""

    def __init__(self, *, calls: int = 1, name: str = "desk") -> None:
        self.saved: list[int] = []

        @tool
        def save(n: int) -> str:
            """Save a number."""
            self.saved.append(n)
            return "saved"

        answers = [call("save", n=number) for number in range(calls)]
        self.agent = Agent(ScriptedModel([*answers, text("Done.")]), name=name, tools=[save])


def judgements(log: Sequence[events.Event]) -> list[tuple[str, str | None, str]]:
    return [(it.verdict, it.rule, it.policy) for it in log if isinstance(it, events.CallJudged)]


# ------------------------------------------------------------------------------------------ assignment


def on_each() -> dict[str, Any]:
    runner, agent = Runner("memory:"), Agent(ScriptedModel(["Hello."]))
    return {
        "Runner": runner,
        "runner.sync": runner.sync,
        "handle": runner.handle("t"),
        "sync handle": runner.sync.handle("t"),
        "Client": Client("http://127.0.0.1:1"),
        "stream": runner.run_stream(agent, "Hello"),
        "sync stream": runner.sync.run_stream(agent, "Hello"),
    }


OPTIONS = ("policy", "options", "limits", "agents", "store", "observers", "guardrails", "anything_else")


def test_an_option_cannot_be_set_on_what_would_not_look_at_it():
    for (kind, thing), name in product(on_each().items(), OPTIONS):
        with pytest.raises(AttributeError, match=rf"{kind}\.{name} cannot be set: ") as refusal:
            setattr(thing, name, object())
        assert isinstance(refusal.value, TreadleError)
        assert name not in vars(thing)


def test_the_error_says_how_a_policy_is_set():
    with pytest.raises(AttributeError, match=r"runner\.set_policy\(policy\).*Runner\(policy=policy\)"):
        Runner("memory:").policy = NO_SAVING  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]


def test_an_option_of_the_constructor_is_named_as_one():
    with pytest.raises(AttributeError, match=r"write Runner\(guardrails=\.\.\.\)"):
        Runner("memory:").guardrails = ()  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]


def test_a_class_of_ones_own_has_attributes_of_its_own_but_no_policy():
    class Shop(Runner):
        till: int

        def __init__(self) -> None:
            super().__init__("memory:")
            self.till, self.drawer = 1, 2

    shop = Shop()
    assert (shop.till, shop.drawer) == (1, 2)
    with pytest.raises(AttributeError, match="set_policy"):
        shop.policy = NO_SAVING  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]


# ------------------------------------------------------------------------------------------ set_policy


async def test_a_policy_that_is_set_judges_later_tasks(store: Any):
    desk = Desk()
    async with Runner(store) as runner:
        runner.set_policy(NO_SAVING)
        result = await runner.run(desk.agent, "Save")
        assert desk.saved == []
        assert judgements((await runner.get_events(result.task_id)).items) == [
            ("deny", "no-saving", NO_SAVING.fingerprint)
        ]


async def test_none_sets_back_the_policy_that_the_runner_was_made_with(store: Any):
    desk, other = Desk(name="desk"), Desk(name="other")
    async with Runner(store, policy=NO_SAVING) as runner:
        runner.set_policy(Policy())
        await runner.run(desk.agent, "Save")
        runner.set_policy(None)
        result = await runner.run(other.agent, "Save")
        assert (desk.saved, other.saved) == ([0], [])
        assert judgements((await runner.get_events(result.task_id)).items) == [("deny", "no-saving", "")]


async def test_runners_of_its_tenants_share_it_and_cannot_set_it(store: Any):
    desk = Desk()
    async with Runner(store) as runner:
        tenant = runner.scoped(tenant="ann")
        with pytest.raises(ConfigurationError, match="scoped from"):
            tenant.set_policy(NO_SAVING)
        runner.set_policy(NO_SAVING)
        await tenant.run(desk.agent, "Save")
    assert desk.saved == []


async def test_what_is_no_policy_is_refused():
    with pytest.raises(ConfigurationError, match="set_policy: policy must be a policy"):
        Runner("memory:").set_policy("deny")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigurationError, match="processes that drive"):
        Client("http://127.0.0.1:1").set_policy(NO_SAVING)


def gated(desk: Desk, *, tenant: str = "") -> tuple[Agent[None], asyncio.Event, asyncio.Event]:
    """Return an agent that is in a call of `wait` before it saves, with what tells that it is, and what ends it."""
    waits, go_on = asyncio.Event(), asyncio.Event()

    @tool(read_only=True)
    async def wait() -> str:
        """Wait."""
        waits.set()
        await go_on.wait()
        return "waited"

    (save,) = desk.agent.tools
    model = ScriptedModel([call("wait"), call("save", n=1), text("Done.")])
    return Agent(model, name="slow", tools=[wait, save]), waits, go_on


@pytest.mark.parametrize("tenant", ["", "ann"])
@pytest.mark.parametrize("first", [None, Policy(Rule("fine", "allow", tool="*"))])
async def test_it_judges_the_next_call_of_a_task_under_way(store: Any, tenant: str, first: Policy | None):
    desk = Desk()
    agent, waits, go_on = gated(desk)
    async with Runner(store, policy=first) as whole:
        runner = whole.scoped(tenant=tenant) if tenant else whole
        handle = await runner.start(agent, "Save", options=RunOptions(labels={"of": "ann"}))
        await waits.wait()
        whole.set_policy(Policy(Rule("ann", "deny", tool="save", when={"labels.of": "ann"})))
        go_on.set()
        result = await handle.result()
        assert (result.state, desk.saved) == ("completed", [])
        assert [
            rule for _, rule, policy in judgements((await runner.get_events(result.task_id)).items) if policy
        ] == ["ann"]


async def test_a_policy_that_is_set_lifts_what_the_one_before_denied_in_a_task_under_way(store: Any):
    desk = Desk()
    agent, waits, go_on = gated(desk)
    async with Runner(store, policy=NO_SAVING) as runner:
        handle = await runner.start(agent, "Save")
        await waits.wait()
        runner.set_policy(Policy())
        go_on.set()
        await handle.result()
    assert desk.saved == [1]


async def test_it_judges_the_tasks_of_subagents_that_are_under_way_as_well(store: Any):
    desk = Desk()
    agent, waits, go_on = gated(desk)
    chief = Agent(
        ScriptedModel([call("slow", input="Save"), text("Done.")]),
        name="chief",
        subagents=[agent],
    )
    async with Runner(store, policy=Policy(Rule("fine", "allow", tool="*"))) as runner:
        handle = await runner.start(chief, "Save")
        await waits.wait()
        runner.set_policy(NO_SAVING)
        go_on.set()
        await handle.result()
    assert desk.saved == []


async def test_it_judges_requests_to_models_of_tasks_under_way(store: Any):
    desk = Desk()
    agent, waits, go_on = gated(desk)
    policy = Policy(Rule("no-model", "deny", model="*"))
    async with Runner(store) as runner:
        handle = await runner.start(agent, "Save")
        await waits.wait()
        runner.set_policy(policy)
        go_on.set()
        result = await handle.result()
        log = (await runner.get_events(result.task_id)).items
        judged = [it for it in log if isinstance(it, events.RequestJudged)]
        assert [(it.verdict, it.rule, it.policy) for it in judged] == [
            ("deny", "no-model", policy.fingerprint)
        ]
    assert desk.saved == []


async def test_a_call_that_a_set_policy_asks_about_names_it(store: Any):
    desk = Desk()
    policy = Policy(Rule("ask", "ask", tool="save"))
    async with Runner(store, agents=[desk.agent]) as runner:
        runner.set_policy(policy)
        result = await runner.run(desk.agent, "Save")
        asked = [
            it
            for it in (await runner.get_events(result.task_id)).items
            if isinstance(it, events.ApprovalRequested)
        ]
        assert [it.policy for it in asked] == [policy.fingerprint]


async def test_a_tool_may_set_the_policy_that_judges_the_next_call(store: Any):
    desk = Desk()
    runner = Runner(store)

    @tool(read_only=True)
    def lock(ctx: ToolContext) -> str:
        """Lock."""
        runner.set_policy(NO_SAVING)
        return "locked"

    (save,) = desk.agent.tools
    model = ScriptedModel([call("save", n=1), call("lock"), call("save", n=2), text("Done.")])
    async with runner:
        await runner.run(Agent(model, name="locker", tools=[lock, save]), "Save")
    assert desk.saved == [1]


def test_equal_rules_have_one_fingerprint_and_others_another():
    def rules(reason: str) -> Policy:
        return Policy(Rule("a", "deny", tool="save", when={"arguments.n": {"above": 1}}, reason=reason))

    assert rules("x").fingerprint == rules("x").fingerprint
    assert len({rules("x").fingerprint, rules("y").fingerprint, Policy.strict().fingerprint}) == 3
