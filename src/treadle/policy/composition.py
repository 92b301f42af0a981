"""Combine rules: several replacements into one, several questions into one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, cast

from treadle.core.data import frozen
from treadle.core.messages import Json, copied
from treadle.policy.comparisons import Comparison
from treadle.policy.rule import Rule
from treadle.policy.verdicts import AskPerson, Deny, EffectRequest, PolicyVerdict, Replace, strictest


@frozen
class CompiledRule:
    """A rule with its comparisons."""

    rule: Rule
    conditions: tuple[Comparison, ...]

    def applies(self, request: EffectRequest) -> bool:
        """Return whether all conditions hold for a request that the rule concerns."""
        restricts = self.rule.verdict != "allow"
        return all(comparison.holds(request, restricts=restricts) for comparison in self.conditions)


def replacement(rules: Iterable[CompiledRule], request: EffectRequest) -> Replace | None:
    """Return all replacements that apply as one; None if nothing changes.

    Each is made on the result of those before it.

    Args:
        rules: those that concern the effect.
        request: the effect.
    """
    present, replacing = request, list[Rule]()
    for each in rules:
        if each.rule.verdict != "replace" or not each.applies(present):
            continue
        arguments: dict[str, Json] = copied(present.arguments)
        for path, value in each.rule.arguments.items():
            _put(arguments, path.split("."), copied(value), _parameters(request))
        if arguments != present.arguments:
            replacing.append(each.rule)
            present = replace(present, arguments=arguments, taken=None)
    if present.arguments == request.arguments:
        return None
    reasons = [rule.reason for rule in replacing if rule.reason]
    return Replace(present.arguments, "+".join([rule.id for rule in replacing]), " ".join(reasons))


def _parameters(request: EffectRequest) -> dict[str, Json] | None:
    """Return the declared parameters of the tool of a request, or None if they are not known."""
    properties: Any = request.spec.parameters.get("properties") if request.spec is not None else None
    return cast("dict[str, Json]", properties) if isinstance(properties, dict) else None


def _put(arguments: dict[str, Any], path: list[str], value: Json, declared: dict[str, Json] | None) -> None:
    """Set a value at a path; skip an argument that the tool does not have."""
    name = path[0]
    if name not in arguments and declared is not None and name not in declared:
        return
    if len(path) == 1:
        arguments[name] = value
        return
    inner: Any = arguments.get(name)
    if not isinstance(inner, dict):
        inner = arguments[name] = dict[str, Any]()
    _put(cast("dict[str, Any]", inner), path[1:], value, None)


def question(rule: Rule, request: EffectRequest) -> PolicyVerdict:
    """Return the question of a rule.

    If the rule excludes the name in a label that the task lacks, return a refusal.
    """
    excluded = list[str]()
    for name in rule.excluded:
        label = name.removeprefix("labels.")
        if label == name:
            excluded.append(name)
        elif label in request.labels:
            excluded.append(request.labels[label])
        else:
            text = f"rule {rule.id} excludes the name in label {label!r}, and the task has no such label."
            return Deny(rule.id, text)
    reason = rule.reason or f"the policy asks about {effect_phrase(request)}."
    return AskPerson(
        rule.id,
        reason,
        rule.expires,
        tuple(rule.approvers),
        tuple(excluded),
        rule.argument,
        rule.every_call,
        tuple(rule.same),
    )


def one_question(asks: Sequence[PolicyVerdict]) -> PolicyVerdict | None:
    """Return one question for all that ask, with the shortest expiry and the approvers that all of them accept."""
    if len(asks) < 2 or not all(isinstance(ask, AskPerson) for ask in asks):
        return strictest(asks)
    questions = [ask for ask in asks if isinstance(ask, AskPerson)]
    rule = "+".join([ask.rule for ask in questions if ask.rule])
    named = [ask.approvers for ask in questions if ask.approvers]
    approvers = [name for name in named[0] if all(name in names for names in named)] if named else []
    excluded = dict.fromkeys([name for ask in questions for name in ask.excluded])
    if named and not [name for name in approvers if name not in excluded]:
        return Deny(rule, f"rules {rule} accept no approver in common.")
    written = dict.fromkeys([ask.argument for ask in questions if ask.argument])
    if len(written) > 1:
        return Deny(rule, f"rules {rule} want several arguments of one approver: {', '.join(written)}.")
    reasons = dict.fromkeys([ask.reason for ask in questions if ask.reason])
    expires = min([ask.expires for ask in questions if ask.expires is not None], default=None)
    return AskPerson(
        rule,
        " ".join(reasons),
        expires,
        tuple(approvers),
        tuple(excluded),
        next(iter(written), None),
        any(ask.every_call for ask in questions),
        tuple(dict.fromkeys([name for ask in questions for name in ask.same])),
    )


def effect_phrase(request: EffectRequest) -> str:
    """Return a noun phrase for the effect, as the object of a sentence."""
    match request.kind:
        case "model":
            return f"a request to {request.name}"
        case "handoff":
            return f"a handoff to {request.name}"
        case _:
            return f"a call of {request.name}"
