"""The spending of tasks and of each agent that took part."""

from decimal import Decimal

from treadle import Agent, Runner, ScriptedModel
from treadle.llm.scripted import call
from treadle.results.usage import TaskUsage, spending_facts


def test_the_usage_of_a_task_is_the_sum_of_those_of_its_agents() -> None:
    leaf = Agent(ScriptedModel(["a rose"]), name="leaf")
    root = Agent(ScriptedModel([call("leaf", input="go"), "a poem"]), name="root", subagents=[leaf])
    usage = Runner("memory:").sync.run(root, "Go.").usage
    assert {name: each.model_calls for name, each in usage.per_agent.items()} == {"root": 2, "leaf": 1}
    assert usage.total_tokens == sum(each.total_tokens for each in usage.per_agent.values())
    assert (usage.model_calls, usage.tool_calls) == (3, 1)


def test_a_cost_is_shown_if_a_model_was_called() -> None:
    assert spending_facts(TaskUsage()) == (("tokens", 0), ("cost", ""))
    [tokens, (name, cost)] = spending_facts(TaskUsage(3, 4, model_calls=1, cost=Decimal("0.5")))
    assert (tokens, name) == (("tokens", 7), "cost")
    assert "0.5" in cost
