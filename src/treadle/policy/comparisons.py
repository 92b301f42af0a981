"""Comparisons: the conditions of rules, as a fixed list of operators on the values of a request. No expressions.

    when = { "arguments.amount" = { above = 100 }, "labels.tier" = "gold" }
             subject              operator  operand

A comparison is true, false or *unknown*. It is unknown for an argument that the call leaves out, or for a text compared
with a number. If a comparison is unknown, rules that restrict apply and rules that allow do not. So an odd value cannot
evade a rule.

For the same reason a list is compared item by item. A rule that restricts applies if any item matches, a rule that
allows only if every item does. Arguments are compared as the model wrote them. They are also compared as the tool
receives them, if that form is known.

An argument that the tool does not have makes the comparison false. Null, a label that is not set and a missing entry of
the state differ from every operand.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from treadle.core.data import frozen
from treadle.core.unknown_names import near_name
from treadle.policy.operators import OPERATORS, Known, Mistake
from treadle.policy.patterns import texts
from treadle.policy.subjects import (
    ABSENT,
    EFFECTS,
    LEFT_OUT,
    SUBJECTS,
    WITH_NAME,
    subject_values,
    taken_values,
)
from treadle.policy.verdicts import EffectRequest

LISTS: Final = ("untrusted", "effect", "exposed", "agent_path")
"""Subjects whose values are lists of texts."""


@frozen
class Comparison:
    """One condition of a rule.

    Args:
        subject: the value to compare, such as `arguments.amount`.
        operator: one of `OPERATORS`.
        operand: the value to compare it with.
    """

    subject: str
    operator: str
    operand: Any

    def __str__(self) -> str:
        return f"{self.subject} {OPERATORS[self.operator].says} {_shown(self.operand)}".rstrip()

    def holds(self, request: EffectRequest, *, restricts: bool) -> bool:
        """Return whether the condition holds for a request.

        Args:
            request: the effect that is judged.
            restricts: whether the rule denies, asks or replaces: then an unknown comparison counts as true.
        """
        outcomes = [
            outcome
            for value in subject_values(request, self.subject)
            for outcome in self._outcomes(value)
        ]  # fmt: skip
        truths = [restricts if outcome is None else outcome for outcome in outcomes]
        for value in taken_values(request, self.subject):
            # The form that the tool receives counts too if it can be compared. A Decimal, for example, is a text in
            # JSON.
            truths += [outcome for outcome in self._outcomes(value) if outcome is not None]
        return any(truths) if restricts else bool(truths) and all(truths)

    def _outcomes(self, value: Any) -> list[Known]:
        """Return the outcomes for a value, or for each item of a list."""
        operator, operand = OPERATORS[self.operator], self.operand
        if self.operator == "exists":
            return [(value is not ABSENT and value is not LEFT_OUT and value is not None) is operand]
        if value is ABSENT:
            return [False]
        if value is LEFT_OUT:
            return [None]
        whole = operator.whole_lists is True or (operator.whole_lists is None and isinstance(operand, list))
        values: list[Any] = cast("list[Any]", value) if isinstance(value, list) and not whole else [value]
        return [operator.outcome(each, operand) for each in values]


def conditions(when: Any) -> tuple[Comparison, ...]:
    """Return the comparisons of a rule's `when`.

    Args:
        when: by subject: the value that it must equal, a list of such values, or operands by operator.

    Raises:
        Mistake: it is none of these; the message names the mistake.
    """
    if not isinstance(when, Mapping):
        example = '{"arguments.amount" = {above = 100}}'
        raise Mistake(f"must be a table of comparisons such as {example}, not {when!r:.100}")
    return tuple([
        comparison
        for subject, condition in cast("Mapping[Any, Any]", when).items()
        for comparison in _comparisons_of(subject, condition)
    ])  # fmt: skip


def _comparisons_of(subject: Any, condition: Any) -> list[Comparison]:
    _check_subject(subject, condition)
    if not isinstance(condition, Mapping):
        operator = "in" if isinstance(condition, (list, tuple)) else "is"
        return [_comparison(subject, operator, condition)]
    operands = cast("Mapping[Any, Any]", condition)
    if not operands:
        raise Mistake(f"{subject!r} has no operand: write {{above = 100}}, or a value")
    return [_comparison(subject, operator, operand) for operator, operand in operands.items()]


def _check_subject(subject: Any, condition: Any) -> None:
    name, dot, path = str(subject).partition(".")
    if not isinstance(subject, str) or name not in SUBJECTS:
        if near := near_name(name, SUBJECTS):
            raise Mistake(f"cannot compare {subject!r}: did you mean {near + dot + path!r}?")
        argument = f'an argument is written "arguments.{path or name}"'
        raise Mistake(f"cannot compare {subject!r}: it may be about {', '.join(SUBJECTS)}; {argument}")
    if name in WITH_NAME and (not dot or not all(path.split("."))):
        names = [*cast("Mapping[Any, Any]", condition)] if isinstance(condition, Mapping) else ["NAME"]
        raise Mistake(f'{subject!r} needs a name: write "{name}.{names[0] if names else "NAME"}", in quotes')
    if name not in WITH_NAME and dot:
        raise Mistake(f"{name!r} has no parts, got {subject!r}")


def _comparison(subject: str, operator: Any, operand: Any) -> Comparison:
    if operator not in OPERATORS:
        near = near_name(str(operator), OPERATORS)
        listed = f"did you mean {near!r}?" if near else f"the comparisons are {', '.join(OPERATORS)}"
        raise Mistake(f"{subject!r} has no comparison {operator!r}: {listed}")
    try:
        OPERATORS[operator].check(operand)
    except Mistake as mistake:
        raise Mistake(f"{subject!r}: {operator} {mistake}") from None
    values: list[Any] = [*operand] if isinstance(operand, (list, tuple)) else [operand]
    if subject in LISTS and operator != "exists" and any(isinstance(value, bool) for value in values):
        raise Mistake(
            f"{subject!r} is a list of texts, never true or false: "
            f'write {{"{subject}": {{"exists": {values[0]}}}}}, in a file {{ exists = {_shown(values[0])} }}'
        )
    if subject in ("effect", "exposed"):
        for name in texts(operand):
            if operator != "matches" and operator != "not_matches" and name not in EFFECTS:
                near = near_name(name, EFFECTS)
                listed = f"did you mean {near!r}?" if near else f"it knows {', '.join(EFFECTS)}"
                raise Mistake(f"{subject!r} knows no {name!r}: {listed}")
    return Comparison(subject, operator, [*operand] if isinstance(operand, tuple) else operand)


def _shown(operand: Any) -> str:
    if isinstance(operand, list):
        return ", ".join([_shown(each) for each in cast("list[Any]", operand)])
    if isinstance(operand, bool):
        return "true" if operand else "false"
    return repr(operand) if isinstance(operand, str) else f"{operand}"
