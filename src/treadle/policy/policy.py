"""`Policy`: rules, and how their verdicts combine.

    deny > replace > ask > allow > default

The strictest rule that applies decides; of equally strict rules, the first. All replacements that apply are made in
their order, each on the result of those before it. The effect is then judged again with the new arguments. One question
stands for all rules that ask, with the strictest of their terms. The default applies only if no rule does.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from itertools import islice, zip_longest
from typing import TYPE_CHECKING, Any, Final, Literal, cast, get_args

from treadle.core.data import frozen
from treadle.core.display import Displayed, Table, View
from treadle.core.refused_uses import can_be_called, no_function
from treadle.core.unknown_names import explains_arguments, explains_call, explains_names, near_name
from treadle.errors import ConfigurationError
from treadle.policy.comparisons import Comparison
from treadle.policy.composition import CompiledRule, effect_phrase, one_question, question, replacement
from treadle.policy.patterns import texts
from treadle.policy.rule import NAMES, Rule, RuleFunction
from treadle.policy.strict import UNTRUSTED, needs_its_name, strict_verdict
from treadle.policy.subjects import subject_values
from treadle.policy.verdicts import (
    DEADLINE,
    Allow,
    AskPerson,
    Deny,
    EffectKind,
    EffectRequest,
    PolicyFunction,
    PolicyVerdict,
    Replace,
    has_read,
    strictest,
)

if TYPE_CHECKING:
    from os import PathLike

Default = Literal["allow", "ask", "deny", "strict"]
"""The verdict on a call that no rule concerns."""

MOST_REMEMBERED: Final = 1024
"""The size of the cache of rules by effect name; it is bounded because models make names up."""

MOST_NEARLY: Final = 3
"""The most allow rules that an explanation names as not met."""

_FORCES: Final = ("deny", "replace", "function", "ask", "allow")
_DONE: Final = {"deny": "denied", "replace": "changed", "ask": "asked about", "allow": "allowed"}


@frozen
class Explanation:
    """The verdict of a policy on one effect, and why.

    Args:
        verdict: the verdict; None if no rule applies.
        rules: the ids of all rules that apply, in the order of the policy.
        text: the same in one sentence.
    """

    verdict: PolicyVerdict | None
    rules: tuple[str, ...]
    text: str


@explains_names("Policy")
@explains_arguments
class Policy(Displayed):
    """Rules that judge each effect before it starts: requests to models, calls of tools and agents, handoffs.

    A policy never changes. `print(policy)` lists its rules in the order of their force.

    Args:
        rules: `Rule(...)`, or functions of an `EffectRequest`, whose id is their name.
        default: the verdict on handoffs and on calls of tools and agents, if no rule decides: `allow`, `ask`, `deny` or
            `strict`. `strict` uses the tool's declarations. Requests to models are then allowed.
        deadline: seconds that each function may take. A function that raises or is late denies.

    Raises:
        ConfigurationError: an argument is not valid, or two rules have one id.
    """

    __slots__ = ("_compiled", "_concerned", "deadline", "default", "rules")

    def __init__(
        self, *rules: Rule | RuleFunction, default: Default = "allow", deadline: float = DEADLINE
    ) -> None:
        self.rules = tuple([_as_rule(rule) for rule in rules])
        self.default: Default = default
        self.deadline: float = deadline
        ids = [rule.id for rule in self.rules]
        for name in ids:
            if ids.count(name) > 1:
                raise ConfigurationError(
                    f"Policy: two rules have the id {name!r:.80}; the journal names rules by it"
                )
        if default not in get_args(Default):
            near = near_name(str(default), get_args(Default))
            advice = f"; did you mean {near!r}?" if near else ""
            raise ConfigurationError(
                f"Policy: default must be one of {', '.join(get_args(Default))}, got {default!r:.80}{advice}"
            )
        seconds: Any = deadline
        if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 < seconds < math.inf:
            raise ConfigurationError(
                f"Policy: deadline must be a number of seconds above 0, got {deadline!r:.80}"
            )
        self._compiled = tuple([CompiledRule(rule, rule.conditions()) for rule in self.rules])
        self._concerned: dict[tuple[EffectKind, str, str], tuple[CompiledRule, ...]] = {}

    @classmethod
    @explains_call
    def strict(cls, *rules: Rule | RuleFunction, deadline: float = DEADLINE) -> Policy:
        """Return a policy that asks before a tool changes anything, unless a rule allows it.

        Args:
            rules: decide before the defaults do.
            deadline: as for `Policy`.
        """
        return cls(*rules, default="strict", deadline=deadline)

    @classmethod
    def from_file(cls, path: str | PathLike[str], *functions: Rule | RuleFunction) -> Policy:
        """Return the policy of a TOML file.

        Args:
            path: a file of `[[rule]]` tables with the fields of `Rule`, preceded by `default` and `deadline`.
            functions: further rules, as a file cannot hold functions.

        Raises:
            ConfigurationError: the file cannot be read or has mistakes; lists each with its line, rule and field.
        """
        from treadle.policy.policy_file import read

        return read(path, lambda *rules, **settings: cls(*rules, *functions, **settings))

    @property
    def fingerprint(self) -> str:
        """A digest of the rules, the default and the deadline; functions count by their names."""
        facts = [
            [(each.name, _fingerprint_value(getattr(rule, each.name))) for each in fields(rule)]
            for rule in self.rules
        ]
        return hashlib.sha256(repr((facts, self.default, self.deadline)).encode()).hexdigest()[:16]

    # ------------------------------------------------------------------------------------- other rules

    def with_rules(self, *rules: Rule | RuleFunction) -> Policy:
        """Return a policy with further rules after these; a rule of the same id replaces the old one."""
        new = {rule.id: rule for rule in map(_as_rule, rules)}
        replaced = [new.pop(rule.id, rule) for rule in self.rules]
        return Policy(*replaced, *new.values(), default=self.default, deadline=self.deadline)

    def without(self, *ids: str) -> Policy:
        """Return a policy without the rules of these ids; raises `ConfigurationError` for an unknown id."""
        ids_present = [rule.id for rule in self.rules]
        for name in ids:
            if name not in ids_present:
                near = near_name(name, ids_present)
                raise ConfigurationError(
                    f"Policy: there is no rule {name!r}" + (f"; did you mean {near!r}?" if near else "")
                )
        remaining = [rule for rule in self.rules if rule.id not in ids]
        return Policy(*remaining, default=self.default, deadline=self.deadline)

    # -------------------------------------------------------------------------------------- judging

    def concerns(self, kind: EffectKind, name: str | None, agent: str) -> bool:
        """Return whether effects of an agent are judged at all. An effect without a judgement leaves no event.

        Without a name, return whether any effect of the kind is judged.
        """
        if self.default != "allow" and kind != "model":
            return True
        if name is None:
            return any(rule.concerns(kind, None, agent) for rule in self.rules)
        return bool(self._rules_for(kind, name, agent))

    def functions_for(self, request: EffectRequest) -> Sequence[PolicyFunction]:
        """Return the functions that judge an effect; none if a rule denies it already."""
        applying = self._applicable_rules(request)
        if any(rule.verdict == "deny" for rule in applying):
            return ()
        return tuple(
            [PolicyFunction(rule.id, rule.verdict) for rule in applying if can_be_called(rule.verdict)]
        )

    def judge(
        self, request: EffectRequest, answers: Iterable[PolicyVerdict | None] = ()
    ) -> PolicyVerdict | None:
        """Return the verdict on an effect; None if no rule applies and the default is to allow.

        Args:
            request: the effect.
            answers: the answers of its functions, in order.
        """
        return self._verdict(request, self._applicable_rules(request), answers)

    def explain(self, request: EffectRequest, answers: Iterable[PolicyVerdict | None] = ()) -> Explanation:
        """Return the verdict on an effect, all rules that apply, and why, in a sentence.

        Args:
            request: the effect.
            answers: the answers of its functions, in order.
        """
        applying = self._applicable_rules(request)
        verdict = self._verdict(request, applying, answers)
        holding = [rule.id for rule in applying if rule.verdict != "allow" or self._may_allow(rule, request)]
        return Explanation(verdict, tuple(holding), self._sentence(request, verdict))

    def _rules_for(self, kind: EffectKind, name: str, agent: str) -> tuple[CompiledRule, ...]:
        key = (kind, name, agent)
        rules = self._concerned.get(key)
        if rules is None:
            if len(self._concerned) >= MOST_REMEMBERED:
                self._concerned.clear()
            rules = tuple([each for each in self._compiled if each.rule.concerns(kind, name, agent)])
            self._concerned[key] = rules
        return rules

    def _applicable_rules(self, request: EffectRequest) -> list[Rule]:
        """Return the rules whose patterns and conditions hold, in their order."""
        concerning = self._rules_for(request.kind, request.name, request.agent)
        return [each.rule for each in concerning if each.applies(request)]

    def _verdict(
        self, request: EffectRequest, applying: list[Rule], answers: Iterable[PolicyVerdict | None]
    ) -> PolicyVerdict | None:
        denies = next((rule for rule in applying if rule.verdict == "deny"), None)
        if denies is not None:
            return Deny(denies.id, denies.reason or f"the policy does not allow {effect_phrase(request)}.")
        functions = (rule for rule in applying if can_be_called(rule.verdict))
        verdicts = [
            answer
            for answer, rule in zip_longest(answers, functions)
            if answer is not None
            and not (isinstance(answer, Allow) and rule is not None and not self._may_allow(rule, request))
        ]
        verdicts = [each for each in verdicts if not _replaces_nothing(each, request)]
        asks = [question(rule, request) for rule in applying if rule.verdict == "ask"]
        asks += [each for each in verdicts if isinstance(each, AskPerson)]
        others = [each for each in verdicts if not isinstance(each, AskPerson)]
        allows = next(
            (rule for rule in applying if rule.verdict == "allow" and self._may_allow(rule, request)), None
        )
        verdict = strictest([
            replacement(self._rules_for(request.kind, request.name, request.agent), request),
            *others,
            one_question(asks),
            Allow(allows.id, allows.reason) if allows is not None else None,
        ])  # fmt: skip
        return verdict or self._default_verdict(request)

    def _may_allow(self, rule: Rule, request: EffectRequest) -> bool:
        if self.default != "strict" or not needs_its_name(request.spec):
            return True
        return rule.tool is not None and request.name in texts(rule.tool)

    def _default_verdict(self, request: EffectRequest) -> PolicyVerdict | None:
        if self.default == "allow" or request.kind == "model":
            return None
        if self.default == "strict":
            return strict_verdict(request)
        if self.default == "deny":
            return Deny("default", "no rule of the policy allows it.")
        return AskPerson("default", "no rule of the policy allows it.")

    # -------------------------------------------------------------------------------------- showing

    def _sentence(self, request: EffectRequest, verdict: PolicyVerdict | None) -> str:
        if verdict is None:
            return f"{effect_phrase(request)} is allowed: no rule concerns it."
        decision = _DONE[_verdict_name(verdict)]
        because = verdict.reason.rstrip(".")
        rules = [each for each in self._compiled if each.rule.id in (verdict.rule or "").split("+")]
        causes = [cause for each in rules for cause in _causes(each, request)]
        by = f"by rule {verdict.rule}" if rules else "by default"
        where = f", as {' and '.join(causes)}" if causes else ""
        sentence = f"{effect_phrase(request)} is {decision} {by}{where}{f': {because}' if because else ''}"
        if isinstance(verdict, AskPerson) and request.untrusted and UNTRUSTED not in (verdict.rule or ""):
            sentence += f"; {has_read(request.untrusted)}"
        if not rules and isinstance(verdict, (AskPerson, Deny)):
            sentence += "".join(
                [f"; {missed}" for missed in islice(self._missed_allow_rules(request), MOST_NEARLY)]
            )
        return f"{sentence}."

    def _missed_allow_rules(self, request: EffectRequest) -> Iterator[str]:
        """Yield the reasons why the allow rules that concern an effect do not allow it."""
        for each in self._rules_for(request.kind, request.name, request.agent):
            if each.rule.verdict != "allow":
                continue
            missed = [
                _cause(condition, request)
                for condition in each.conditions
                if not condition.holds(request, restricts=False)
            ]
            if missed:
                yield f"rule {each.rule.id} would allow it where {' and '.join(missed)}"
            elif not self._may_allow(each.rule, request):
                yield (
                    f"rule {each.rule.id} does not allow it, as only a rule with the name {request.name}, and no "
                    f"pattern, allows a tool that spends or is destructive"
                )

    def __str__(self) -> str:
        lines = [(rule.force, rule.id, _rule_line(rule, self.default)) for rule in self._by_force()]
        lines.append(("default", "", f"{self.default}{_DEFAULT_SAYS[self.default]}"))
        widths = [max(len(line[column]) for line in lines) for column in (0, 1)]
        listed = [
            f"  {force:{widths[0]}}  {name:{widths[1]}}  {text}".rstrip() for force, name, text in lines
        ]
        count = "1 rule" if len(self.rules) == 1 else f"{len(self.rules)} rules"
        return "\n".join([f"Policy of {count}, the strongest first:", *listed])

    def _by_force(self) -> list[Rule]:
        return sorted(self.rules, key=lambda rule: _FORCES.index(rule.force))

    def _view(self) -> View:
        columns = ("verdict", "rule", "concerns", "reason")
        table = Table("rules", columns, self._by_force(), _row)
        facts = (
            ("default", self.default),
            ("deadline", self.deadline if self.deadline != DEADLINE else None),
        )
        return View(title="Policy", facts=facts, tables=(table,))


_DEFAULT_SAYS: Final[dict[str, str]] = {
    "allow": "",
    "ask": ": every other call",
    "deny": ": every other call",
    "strict": ": by the declarations of the tool",
}


def _fingerprint_value(value: Any) -> Any:
    """Return the value of a rule's field for the fingerprint of a policy."""
    if can_be_called(value):
        return [getattr(value, "__module__", ""), getattr(value, "__qualname__", type(value).__qualname__)]
    if isinstance(value, Mapping):
        return sorted((str(key), repr(item)) for key, item in cast("Mapping[Any, Any]", value).items())
    return repr(value)


def _as_rule(rule: Any) -> Rule:
    if isinstance(rule, Rule):
        return rule
    if isinstance(rule, Policy):
        raise ConfigurationError("Policy: pass the rules of a policy: Policy(*other.rules)")
    if isinstance(rule, (list, tuple)):
        raise ConfigurationError("Policy: rules are passed one by one: Policy(rule, other) or Policy(*rules)")
    if not can_be_called(rule) or isinstance(rule, type):
        raise ConfigurationError(
            f"Policy: a rule is Rule(...) or a function of an EffectRequest, got {no_function(rule)}"
        )
    return Rule(getattr(rule, "__name__", "").strip("<>"), cast("RuleFunction", rule))


def _replaces_nothing(verdict: PolicyVerdict, request: EffectRequest) -> bool:
    return isinstance(verdict, Replace) and verdict.arguments == request.arguments


def _verdict_name(verdict: PolicyVerdict) -> str:
    words: dict[type, str] = {Deny: "deny", Replace: "replace", AskPerson: "ask", Allow: "allow"}
    return words[type(verdict)]


def _causes(compiled: CompiledRule, request: EffectRequest) -> list[str]:
    """Return the conditions of a rule with the values that met them."""
    return [_cause(comparison, request) for comparison in compiled.conditions]


def _cause(comparison: Comparison, request: EffectRequest) -> str:
    values = ", ".join([f"{value!r:.60}" for value in subject_values(request, comparison.subject)])
    return f"{comparison} ({values})"


def _rule_line(rule: Rule, default: Default) -> str:
    reason = f'  "{rule.reason}"' if rule.reason else ""
    notes = [] if rule.enabled else ["not enabled"]
    if default == "strict" and rule.verdict == "allow" and _is_by_pattern(rule):
        notes.append("no tool that spends or is destructive: that needs the name of the tool")
    return f"{rule}{reason}" + (f"  ({'; '.join(notes)})" if notes else "")


def _is_by_pattern(rule: Rule) -> bool:
    """Return whether a rule concerns tools that it does not name."""
    if rule.tool is not None:
        return any(character in name for name in texts(rule.tool) for character in "*?[")
    return all(getattr(rule, field) is None for field in NAMES.values())


def _row(rule: Rule) -> tuple[Any, ...]:
    return rule.force if rule.enabled else f"{rule.force}, not enabled", rule.id, str(rule), rule.reason
