"""The policy of a runner, which can be replaced while its tasks run, and the rules of a drive under it.

    runner.set_policy(policy) --> RunnerPolicy.in_force --> every drive: which calls have to be judged
                                                        --> every judgement: by whom, and its name in the journal

A judgement reads the policy when it begins. A drive is woken, so that it judges calls that the old policy ignored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from treadle.agents.agent import Agent
from treadle.agents.decide.rules import Rules
from treadle.core.data import frozen
from treadle.policy.verdicts import EffectKind, Judge
from treadle.ports import Model


@frozen
class PolicyInForce:
    """The current policy of a runner.

    Args:
        judges: the policy; empty for none.
        name: its name in the journal. Empty: the policy from the runner's creation.
    """

    judges: tuple[Judge, ...] = ()
    name: str = ""


class RunnerPolicy:
    """The policy of a runner, initially that from its creation. All its tenants share it."""

    __slots__ = ("_first", "in_force")

    def __init__(self, policy: Judge | None = None) -> None:
        self._first = PolicyInForce((policy,) if policy is not None else ())
        self.in_force = self._first

    def set(self, policy: Judge | None) -> None:
        """Judge by another policy from now on. None restores the policy from the runner's creation."""
        self.in_force = self._first if policy is None else PolicyInForce((policy,), _name_of(policy))


NO_POLICY: Final = RunnerPolicy()
"""The policy of a runner without one."""


def _name_of(policy: Any) -> str:
    """Return the fingerprint of a policy, or the class name of a judge of another class."""
    return getattr(policy, "fingerprint", None) or type(policy).__qualname__


def judges_of(in_force: PolicyInForce, of_agents: tuple[Judge, ...]) -> tuple[Judge, ...]:
    """Return the policies of a task: the runner's, its agent's, and those of the agents above it."""
    if not in_force.judges:
        return of_agents
    return (*in_force.judges, *[judge for judge in of_agents if judge not in in_force.judges])


def under_judges(
    rules: Rules, agent: Agent[Any], model: Model, judges: Sequence[Judge], *, gated: bool
) -> Rules:
    """Return the rules of a drive with the subjects of these policies instead of those in `rules`.

    Args:
        rules: the rules of the drive.
        agent: the agent of the task.
        model: the agent's model.
        judges: the policies of the task.
        gated: whether calls may need a judgement without a policy.
    """
    if not judges and not rules.judged and not rules.judges_requests:
        return rules
    judged, requests = _judged_tools(agent, judges), _judges_requests(agent, model, judges)
    return replace(rules, judged=judged, gated=bool(judged) or requests or gated, judges_requests=requests)


def _judged_tools(agent: Agent[Any], judges: Sequence[Judge]) -> frozenset[str]:
    """Return the names of an agent's tools whose calls some policy judges."""
    kinds: dict[str, EffectKind] = {
        tool.spec.name: "subagent" if tool.spec.name in agent.subagents_by_tool else "tool"
        for tool in agent.tools
        if tool.spec.name not in agent.handoffs_by_tool
    }
    judged = {
        name
        for name, kind in kinds.items()
        if any(judge.concerns(kind, name, agent.name) for judge in judges)
    }
    for name, handoff in agent.handoffs_by_tool.items():
        if any(judge.concerns("handoff", handoff.agent_name, agent.name) for judge in judges):
            judged.add(name)
    return frozenset(judged)


def _judges_requests(agent: Agent[Any], model: Model, judges: Sequence[Judge]) -> bool:
    """Return whether some policy judges requests to an agent's model, or to any of its models."""
    name = None if hasattr(model, "choose") else model.name
    return any(judge.concerns("model", name, agent.name) for judge in judges)
