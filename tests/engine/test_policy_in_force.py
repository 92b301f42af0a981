"""The policy of a runner, and what a drive judges under it."""

from tests.cast import save
from treadle import Agent, Policy, Rule, ScriptedModel
from treadle.agents.decide.rules import Rules
from treadle.engine.policy_in_force import PolicyInForce, RunnerPolicy, judges_of, under_judges

MODEL = ScriptedModel(["x"])
AGENT = Agent(MODEL, name="desk", tools=[save])
CALLS, REQUESTS = Policy(Rule("s", "deny", tool="save")), Policy(Rule("m", "deny", model="*"))


def test_a_policy_that_is_set_is_named_and_none_sets_the_first_one_back():
    policy = RunnerPolicy(CALLS)
    assert policy.in_force == PolicyInForce((CALLS,), "")
    policy.set(REQUESTS)
    assert policy.in_force == PolicyInForce((REQUESTS,), REQUESTS.fingerprint)
    policy.set(None)
    assert policy.in_force == PolicyInForce((CALLS,), "")


def test_a_judge_without_a_fingerprint_is_named_by_its_class():
    class Strict:
        deadline = 1.0
        concerns = functions_for = judge = None

    policy = RunnerPolicy()
    policy.set(Strict())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert policy.in_force.name.endswith("Strict")


def test_a_policy_of_runner_and_agent_judges_once():
    assert judges_of(PolicyInForce((CALLS,)), (CALLS, REQUESTS)) == (CALLS, REQUESTS)
    assert judges_of(PolicyInForce(), (REQUESTS,)) == (REQUESTS,)


def test_rules_have_what_the_policies_of_now_judge_and_not_what_others_did():
    calls = under_judges(Rules(), AGENT, MODEL, (CALLS,), gated=False)
    assert (calls.judged, calls.gated, calls.judges_requests) == (frozenset({"save"}), True, False)
    requests = under_judges(calls, AGENT, MODEL, (REQUESTS,), gated=False)
    assert (requests.judged, requests.gated, requests.judges_requests) == (frozenset(), True, True)
    none = under_judges(requests, AGENT, MODEL, (), gated=False)
    assert (none.judged, none.gated, none.judges_requests) == (frozenset(), False, False)
    assert under_judges(none, AGENT, MODEL, (), gated=False) is none
