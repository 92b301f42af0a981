"""`Rule`: one rule of a policy, as data or as a function."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, fields
from typing import Any, Final, Literal, TypeAlias, cast, get_args

from treadle.core.codec import exact_copy
from treadle.core.data import frozen
from treadle.core.messages import Json
from treadle.core.refused_uses import can_be_called, no_function
from treadle.core.unknown_names import explains_arguments, near_name
from treadle.errors import ConfigurationError
from treadle.policy.comparisons import Comparison, conditions
from treadle.policy.operators import Mistake
from treadle.policy.patterns import matches, texts
from treadle.policy.verdicts import EffectKind, EffectRequest, PolicyAnswer

RuleVerdict = Literal["deny", "replace", "ask", "allow"]
"""The verdicts of rules, the strictest first."""

RuleFunction: TypeAlias = Callable[[EffectRequest], PolicyAnswer]
"""A rule as a function: its verdict, or None if it does not apply; it may be async."""

Patterns: TypeAlias = str | Sequence[str]
"""A name or a pattern such as `send_*`, or a list of them."""

NAMES: Final[dict[EffectKind, str]] = {
    "tool": "tool",
    "model": "model",
    "subagent": "subagent",
    "handoff": "handoff",
}
"""The field that names effects of a kind."""

ONLY_FOR: Final[dict[str, RuleVerdict]] = {
    "expires": "ask",
    "approvers": "ask",
    "excluded": "ask",
    "argument": "ask",
    "every_call": "ask",
    "same": "ask",
    "arguments": "replace",
}
"""Fields that belong to one verdict."""

_ID: Final = re.compile(r"[\w.-]{1,100}")


@frozen
@explains_arguments
class Rule:
    """A rule: the effects that it concerns, and its verdict on them.

    Without `tool`, `model`, `subagent` and `handoff` it concerns every effect. Fields that take a pattern also take a
    list of patterns: `*` matches any text, `?` any character.

    Args:
        id: names the rule in the journal, in messages and in reports; unique in its policy.
        verdict: `deny`, `replace` the arguments, `ask` a person, `allow`, or a function of an `EffectRequest`. The
            function returns `Allow`, `Deny`, `AskPerson` or `Replace`, or None if it does not apply. It may be async.
        tool: the names of tools, or of agents that are called as tools.
        model: the names of models, as `provider:model`, for requests to them.
        subagent: the names of the tools that call agents.
        handoff: the names of agents that a conversation moves to.
        agent: the names of the agents that act.
        when: conditions, all of which must hold. Maps a subject such as `arguments.amount` to a value, a list of
            values, or operands by operator such as `{"above": 100}`.
        reason: a sentence for the model or the approver.
        expires: of `ask`: seconds until the request is denied unanswered.
        approvers: of `ask`: the names that may decide.
        excluded: of `ask`: names that may not decide. `labels.NAME` is the value of a label, such as the requester.
        argument: of `ask`: the argument that the approver must fill in. `answer` fills it in too.
        every_call: of `ask`: ask about every call; an approval for later calls does not count.
        same: of `ask`: names of arguments, or paths as in `message.to`. An approval for the task covers only calls in
            which these are the same. Name all arguments that decide where data goes.
        arguments: of `replace`: the new values, by name, or by path as in `order.total`.
        enabled: False leaves the rule out.

    Raises:
        ConfigurationError: a field is not valid; the message names the rule, the field and the fix.
    """

    id: str
    verdict: RuleVerdict | RuleFunction
    tool: Patterns | None = field(default=None, kw_only=True)
    model: Patterns | None = field(default=None, kw_only=True)
    subagent: Patterns | None = field(default=None, kw_only=True)
    handoff: Patterns | None = field(default=None, kw_only=True)
    agent: Patterns | None = field(default=None, kw_only=True)
    when: Mapping[str, Any] = field(default_factory=dict[str, Any], kw_only=True)
    reason: str = field(default="", kw_only=True)
    expires: float | None = field(default=None, kw_only=True)
    approvers: Sequence[str] = field(default=(), kw_only=True)
    excluded: Sequence[str] = field(default=(), kw_only=True)
    argument: str | None = field(default=None, kw_only=True)
    every_call: bool = field(default=False, kw_only=True)
    same: Sequence[str] = field(default=(), kw_only=True)
    arguments: Mapping[str, Json] = field(default_factory=dict[str, Json], kw_only=True)
    enabled: bool = field(default=True, kw_only=True)

    def __post_init__(self) -> None:
        mistakes = [f"{mistake.field}: {mistake}" for mistake in _mistakes(self)]
        if mistakes:
            raise ConfigurationError(f"rule {self.id!r:.80}: {'; '.join(mistakes)}")

    @property
    def force(self) -> RuleVerdict | Literal["function"]:
        """The verdict of the rule; `function` if a function decides."""
        return "function" if can_be_called(self.verdict) else self.verdict

    def concerns(self, kind: EffectKind, name: str | None, agent: str) -> bool:
        """Return whether the rule concerns an agent's effects of this name; without a name, any of the kind."""
        if not self.enabled or (self.verdict == "replace" and kind == "model"):
            return False
        if self.agent is not None and not matches(self.agent, agent):
            return False
        named = {each: getattr(self, each) for each in NAMES.values()}
        if not any(patterns is not None for patterns in named.values()):
            return True
        if name is None:
            return named[NAMES[kind]] is not None or (kind == "subagent" and named["tool"] is not None)
        if kind == "subagent" and named["tool"] is not None and matches(named["tool"], name):
            return True
        patterns = named[NAMES[kind]]
        return patterns is not None and matches(patterns, name)

    def conditions(self) -> tuple[Comparison, ...]:
        """Return the comparisons of `when`."""
        return conditions(self.when)

    def __str__(self) -> str:
        named = [
            f"{name} {', '.join(texts(patterns))}"
            for name in (*NAMES.values(), "agent")
            if (patterns := getattr(self, name)) is not None
        ]
        where = " and ".join(str(comparison) for comparison in self.conditions())
        effects = " of ".join(named) if named else "every effect"
        changes = ", ".join([f"{name} = {value!r}" for name, value in self.arguments.items()])
        return f"{effects}{f' when {where}' if where else ''}{f': {changes}' if changes else ''}"


def _mistakes(rule: Rule) -> Iterator[Mistake]:
    unchecked: Any = rule
    if not isinstance(unchecked.id, str) or not _ID.fullmatch(rule.id) or rule.id == "default":
        yield Mistake(
            "must be 1 to 100 letters, digits, '_', '-' or '.', and not 'default'; it is journalled", "id"
        )
    verdict: Any = rule.verdict
    allowed = get_args(RuleVerdict)
    if not can_be_called(verdict) and verdict not in allowed:
        near = near_name(verdict, allowed) if isinstance(verdict, str) else None
        advice = f"; did you mean {near!r}?" if near else ""
        yield Mistake(
            f"must be one of {', '.join(allowed)}, or a function, got {no_function(verdict)}{advice}",
            "verdict",
        )
    for name in (*NAMES.values(), "agent"):
        if unchecked.__getattribute__(name) is not None and not texts(getattr(rule, name)):
            yield Mistake(
                f"must be a name, a pattern or a list of them, got {getattr(rule, name)!r:.80}", name
            )
    try:
        rule.conditions()
    except Mistake as mistake:
        yield mistake
    for name in ("approvers", "excluded", "same"):
        value: Any = getattr(rule, name)
        if not isinstance(value, (list, tuple)) or (value and not texts(value)):
            yield Mistake(f"must be a list of names, got {value!r:.80}", name)
    if not isinstance(unchecked.reason, str):
        yield Mistake(f"must be a text, got {rule.reason!r:.80}", "reason")
    if unchecked.argument is not None and not (isinstance(unchecked.argument, str) and rule.argument):
        yield Mistake(f"must be the name of an argument, got {rule.argument!r:.80}", "argument")
    if rule.same and rule.every_call:
        yield Mistake("has no place beside every_call, which lets no approval hold for later calls", "same")
    for name in ("enabled", "every_call"):
        if not isinstance(getattr(unchecked, name), bool):
            yield Mistake(f"must be true or false, got {getattr(unchecked, name)!r:.80}", name)
    expires: Any = rule.expires
    is_number = isinstance(expires, (int, float)) and not isinstance(expires, bool)
    if expires is not None and not (is_number and math.isfinite(expires) and expires > 0):
        yield Mistake(f"must be a number of seconds above 0, got {expires!r:.80}", "expires")
    if can_be_called(verdict) or verdict in allowed:
        yield from _misplaced(rule)


def _misplaced(rule: Rule) -> Iterator[Mistake]:
    """Yield the fields that do not belong to a rule's verdict, and the mistakes in its replaced arguments."""
    defaults = {item.name: item.default for item in fields(Rule)}
    for name, verdict in ONLY_FOR.items():
        value: Any = getattr(rule, name)
        if rule.verdict != verdict and (value if name == "arguments" else value != defaults[name]):
            yield Mistake(f"belongs to the verdict {verdict!r}, and this rule's is {rule.force!r}", name)
    if rule.verdict != "replace":
        return
    arguments: Any = rule.arguments
    if not isinstance(arguments, Mapping) or not arguments:
        yield Mistake("must name the new values, as in {amount = 100}", "arguments")
        return
    for name, value in cast("Mapping[Any, Any]", arguments).items():
        if not isinstance(name, str) or not all(name.split(".")):
            yield Mistake(f"{name!r} is not the name of an argument", "arguments")
            continue
        try:
            exact_copy(value)
        except ValueError as error:
            yield Mistake(f"{name!r} {error}", "arguments")
    if rule.model is not None:
        yield Mistake("has no arguments that could be replaced", "model")
