"""Requests to models under a policy: allowed, denied, asked about, in every worker; nothing goes out before."""

import asyncio
from typing import Any

import pytest

from tests.agents.stories import state_after
from treadle import (
    Agent,
    Allow,
    AskPerson,
    Deny,
    EffectRequest,
    FailurePolicy,
    NextStep,
    Policy,
    Replace,
    Rule,
    Runner,
    RunOptions,
    ScriptedModel,
    StepContext,
    StepResult,
    tool,
)
from treadle.core.effects import JudgeRequest
from treadle.engine.request_judging import RequestJudgementInFlight
from treadle.errors import ModelError
from treadle.events import Failure, ModelFailed, ModelStarted, RequestJudged, StepStarted
from treadle.llm.scripted import call, fail
from treadle.models import Fallback
from treadle.policy.verdicts import PolicyVerdict

pytestmark = pytest.mark.anyio


@tool(read_only=True)
def look(name: str) -> str:
    """Look."""
    return name


def agent_of(*script: Any, **more: Any) -> Agent[Any]:
    return Agent(ScriptedModel(list(script)), name="desk", tools=[look], **more)


async def events_of(runner: Runner, task_id: str) -> list[Any]:
    return [event async for event in runner.handle(task_id).events()]


def failure_of(result: Any) -> Failure:
    assert result.error is not None, result
    return result.error


def judgements(events: list[Any]) -> list[tuple[str, str | None]]:
    return [(event.verdict, event.rule) for event in events if isinstance(event, RequestJudged)]


async def test_each_question_is_judged_before_it_goes_out() -> None:
    agent = agent_of(call("look", name="x"), "Done.")
    policy = Policy(
        Rule("second", "allow", model="scripted", when={"model_calls": {"above": 0}}, reason="Once more.")
    )
    async with Runner("memory:", policy=policy) as runner:
        result = await runner.run(agent, "Go.")
        events = await events_of(runner, result.task_id)
    assert result.state == "completed"
    assert judgements(events) == [("allow", None), ("allow", "second")]
    kinds = [event.kind for event in events if event.kind in ("request_judged", "model_started")]
    assert kinds == ["request_judged", "model_started"] * 2


async def test_a_policy_on_tools_leaves_requests_alone() -> None:
    async with Runner("memory:", policy=Policy(Rule("no", "deny", tool="bash"), default="ask")) as runner:
        result = await runner.run(agent_of("Done."), "Go.")
        assert judgements(await events_of(runner, result.task_id)) == []


async def test_a_denied_request_fails_the_step_with_the_rule_and_nothing_is_sent() -> None:
    model = ScriptedModel(["never"])
    agent = Agent(model, name="desk")
    policy = Policy(Rule("no-models", "deny", model="*", reason="This office is closed."))
    async with Runner("memory:", policy=policy) as runner:
        result = await runner.run(agent, "Go.")
        events = await events_of(runner, result.task_id)
    assert (result.state, failure_of(result).kind, failure_of(result).retryable) == (
        "failed",
        "denied",
        False,
    )
    assert (
        failure_of(result).message
        == "a request to scripted was denied by rule no-models: This office is closed."
    )
    assert (model.requests, result.usage.model_calls) == ([], 0)
    assert judgements(events) == [("deny", "no-models")]


@pytest.mark.parametrize(
    ("policy", "state"), [("fail", "failed"), ("degrade", "degraded"), ("pause", "paused")]
)
async def test_the_failure_policy_says_what_a_denied_request_does_to_the_task(
    policy: Any, state: str
) -> None:
    options = RunOptions(on_failure=FailurePolicy(model=policy))
    async with Runner("memory:", policy=Policy(Rule("no", "deny", model="*"))) as runner:
        assert (await runner.run(agent_of("never"), "Go.", options=options)).state == state


async def test_a_request_that_is_asked_about_waits_for_a_resume_also_in_another_process(store: Any) -> None:
    policy = Policy(
        Rule("costly", "ask", model="*", when={"tool_calls": 1}, reason="The second one is dear.")
    )
    agent = agent_of(call("look", name="x"), "Done.")
    async with Runner(store, agents=[agent], policy=policy) as runner:
        result = await runner.run(agent, "Go.")
    assert (result.state, result.steps) == ("paused", 1)
    async with Runner(store, agents=[agent], policy=policy) as runner:
        (waits,) = (await runner.result(result.task_id)).pending
        assert (waits.kind, waits.request_id) == ("request", "s2")
        assert (
            waits.text == "a request to scripted waits for a person by rule costly: The second one is dear."
        )
        again = await runner.resume(result.task_id)
        assert (again.state, again.final_text) == ("completed", "Done.")
        assert judgements(await events_of(runner, result.task_id)) == [("allow", None), ("ask", "costly")]


async def test_a_headless_run_is_denied_what_a_person_would_be_asked() -> None:
    policy = Policy(Rule("costly", "ask", model="*", reason="It is dear."))
    async with Runner("memory:", policy=policy) as runner:
        result = await runner.run(agent_of("never"), "Go.", options=RunOptions(interaction="headless"))
    assert failure_of(result).message.endswith("it needs a person, and the run is headless: It is dear.")


@pytest.mark.parametrize("terms", [{"approvers": ["ann"]}, {"excluded": ["bob"]}, {"expires": 5}])
async def test_terms_that_a_resume_cannot_keep_deny(terms: dict[str, Any]) -> None:
    async with Runner("memory:", policy=Policy(Rule("terms", "ask", model="*", **terms))) as runner:
        result = await runner.run(agent_of("never"), "Go.")
    assert (result.state, "terms for approvers" in failure_of(result).message) == ("failed", True)


async def slow(request: EffectRequest) -> PolicyVerdict | None:
    await asyncio.sleep(0.05)
    return Allow("slow", "at last")


def raising(request: EffectRequest) -> PolicyVerdict | None:
    raise KeyError("gone")


@pytest.mark.parametrize(
    ("function", "state", "rule"),
    [
        (slow, "completed", "slow"),
        (raising, "failed", "raising"),
        (lambda request: Replace({"x": 1}, "changes"), "failed", "changes"),
        (lambda request: Deny("no", "No."), "failed", "no"),
        (lambda request: AskPerson("ask", "Hm."), "paused", "ask"),
        (lambda request: None, "completed", None),
    ],
)
async def test_functions_judge_requests_and_the_request_waits_for_them(
    function: Any, state: str, rule: str | None
) -> None:
    rule_of = Rule("f" if function.__name__ == "<lambda>" else function.__name__, function, model="*")
    async with Runner("memory:", policy=Policy(rule_of, deadline=60)) as runner:
        result = await runner.run(agent_of("Done."), "Go.")
        events = await events_of(runner, result.task_id)
    assert (result.state, judgements(events)[0][1]) == (state, rule)
    started = next((event for event in events if isinstance(event, ModelStarted)), None)
    judged = next(event for event in events if isinstance(event, RequestJudged))
    assert started is None or judged.seq < started.seq
    if function is slow:
        assert started is not None
        assert started.time - next(event for event in events if event.kind == "step_started").time >= 45_000


async def test_a_function_that_is_late_denies() -> None:
    async with Runner("memory:", policy=Policy(Rule("slow", slow, model="*"), deadline=0.02)) as runner:
        result = await runner.run(agent_of("never"), "Go.")
    assert "rule slow: the policy function failed: it took longer than 0.02 s" in failure_of(result).message


async def test_of_several_models_each_is_judged_before_it_is_asked() -> None:
    first, second = ScriptedModel([fail(500)], name="one"), ScriptedModel(["never"], name="two")
    agent = Agent(Fallback([first, second]), name="desk")
    async with Runner("memory:", policy=Policy(Rule("no-two", "deny", model="two"))) as runner:
        result = await runner.run(agent, "Go.")
        events = await events_of(runner, result.task_id)
    assert judgements(events) == [("allow", None), ("deny", "no-two")]
    assert (result.state, failure_of(result).kind, second.requests) == ("failed", "denied", [])
    assert [event.error.kind for event in events if isinstance(event, ModelFailed)] == ["server", "denied"]


async def test_the_policy_of_an_agent_counts_beside_that_of_the_runner() -> None:
    strict = agent_of("never", policy=Policy(Rule("own", "deny", model="*", reason="Not me.")))
    async with Runner("memory:", policy=Policy(Rule("all", "allow", model="*"))) as runner:
        result = await runner.run(strict, "Go.")
    assert "by rule own: Not me." in failure_of(result).message


async def test_children_inherit_the_policy_on_models() -> None:
    helper = Agent(ScriptedModel(["never"]), name="helper")
    boss = Agent(
        ScriptedModel([call("helper", input="Help."), "Done without."]), name="boss", subagents=[helper]
    )
    policy = Policy(Rule("no-helper", "deny", model="*", agent="helper", reason="It rests."))
    async with Runner("memory:", policy=policy) as runner:
        result = await runner.run(boss, "Go.")
    (execution,) = result.tool_executions
    assert (result.state, "by rule no-helper: It rests." in str(execution.error)) == ("completed", True)


class Twice:
    """A worker whose one step asks two questions beside the conversation."""

    def initialize_step(self, task: Any) -> NextStep:
        return NextStep("twice")

    async def run_step(self, ctx: StepContext[Any]) -> StepResult:
        first = await ctx.call_model("First?", key="one")
        try:
            await ctx.call_model("Second?", key="two")
        except ModelError as error:
            return StepResult(f"{first.message.text}; {error.kind}: {error}", is_last=True)
        return StepResult("both", is_last=True)

    def finalize_task(self, task: Any, output: Any) -> None:
        return None


@pytest.mark.parametrize("verdict", ["deny", "ask"])
async def test_requests_of_step_functions_are_judged_one_by_one(verdict: Any) -> None:
    agent = Agent(ScriptedModel(["1", "2"]), name="steps", worker=Twice())
    policy = Policy(
        Rule("once", verdict, model="*", when={"model_calls": {"at_least": 1}}, reason="One is enough.")
    )
    async with Runner("memory:", policy=policy) as runner:
        result = await runner.run(agent, "Go.")
        if verdict == "deny":
            assert (
                result.final_text
                == "1; denied: a request to scripted was denied by rule once: One is enough."
            )
        else:
            assert (result.state, [waits.request_id for waits in result.pending]) == ("paused", ["s1-m2"])
            assert (await runner.resume(result.task_id)).final_text == "both"


@pytest.mark.parametrize("stop", ["pausing", "interrupting", "cancelling"])
def test_a_judgement_that_ends_after_a_stop_starts_no_request(stop: str) -> None:
    state = state_after(StepStarted("s1", 1))
    assert state.step is not None
    effect: Any = JudgeRequest("s1-judge", state.step, state.step.model_call)
    unused: Any = None
    judgement = RequestJudgementInFlight(effect, unused, unused)
    assert not judgement.is_overtaken(state)
    setattr(state, stop, True)
    assert judgement.is_overtaken(state), "the request is judged when the task goes on"
