"""Check the names in a policy against the tools: a rule with a misspelt name restricts nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from treadle.core.tools import ToolSpec
from treadle.core.unknown_names import near_name
from treadle.policy.patterns import matches, texts
from treadle.policy.policy import Policy
from treadle.policy.rule import Rule


def misfits(
    policy: Policy, tools: Mapping[str, ToolSpec], handoffs: Mapping[str, ToolSpec] | None = None
) -> list[str]:
    """Return the unknown names in the rules of a policy, one sentence each.

    Args:
        policy: the policy.
        tools: all tools that its rules may concern, by name, including those that call agents.
        handoffs: the tools that hand conversations over, by agent; None if they are not known.
    """
    return [
        f"rule {rule.id}: {text}"
        for rule in policy.rules
        if rule.enabled
        for text in _misfits(rule, tools, handoffs)
    ]


def _misfits(
    rule: Rule, tools: Mapping[str, ToolSpec], handoffs: Mapping[str, ToolSpec] | None
) -> Iterator[str]:
    for pattern in texts(rule.handoff or []) if handoffs is not None else ():
        if not any(matches([pattern], agent) for agent in handoffs or ()):
            near = _suggestion(pattern, list(handoffs or ()))
            yield f"no conversation is handed over to an agent called {pattern!r}{near}"
    if rule.handoff is not None and rule.tool is None and rule.subagent is None:
        return
    patterns = [*texts(rule.tool or []), *texts(rule.subagent or [])]
    for pattern in patterns:
        if not any(matches([pattern], name) for name in tools):
            yield f"no tool is called {pattern!r}{_suggestion(pattern, list(tools))}"
    concerned = [spec for name, spec in tools.items() if not patterns or matches(patterns, name)]
    argument_names = {name for spec in concerned for name in _arguments(spec)}
    subjects = [comparison.subject for comparison in rule.conditions()]
    named = [subject.split(".")[1] for subject in subjects if subject.startswith("arguments.")]
    for name in dict.fromkeys(
        [*named, *[path.split(".")[0] for path in rule.arguments], *_approver_argument(rule)]
    ):
        if concerned and name not in argument_names:
            yield f"no tool that it is about has an argument {name!r}{_suggestion(name, sorted(argument_names))}"


def _approver_argument(rule: Rule) -> list[str]:
    """Return the argument that an approver must fill in."""
    return [] if rule.argument is None else [rule.argument]


def _arguments(spec: ToolSpec) -> list[str]:
    parameters: Any = spec.parameters
    properties: Any = (
        cast("dict[str, Any]", parameters).get("properties") if isinstance(parameters, dict) else None
    )
    return list(cast("dict[str, Any]", properties)) if isinstance(properties, dict) else []


def _suggestion(name: str, candidates: list[str]) -> str:
    near = near_name(name, candidates)
    return f"; did you mean {near!r}?" if near else ""
