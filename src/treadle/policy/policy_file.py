"""Read policies from TOML files, and report every mistake at once, with line, rule and field."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable
from dataclasses import fields
from os import PathLike
from pathlib import Path
from typing import Any, Final, TypeVar, cast

from treadle.core.unknown_names import near_name
from treadle.errors import ConfigurationError
from treadle.policy.rule import Rule

P = TypeVar("P")

_TOP: Final = ("rule", "default", "deadline")
_FIELDS: Final = tuple([item.name for item in fields(Rule)])
_HEADER: Final = re.compile(r"^[ \t]*\[\[[ \t]*[\"']?rule[\"']?[ \t]*\]\]", re.MULTILINE)


def read(path: str | PathLike[str], make: Callable[..., P]) -> P:
    """Return the policy of a file.

    Args:
        path: the path of the file.
        make: builds the policy from its rules and its settings, which are passed by name.

    Raises:
        ConfigurationError: the file cannot be read or has mistakes; the message lists all of them.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
        document = tomllib.loads(text)
    except OSError as error:
        raise ConfigurationError(f"policy {path!s:.500} cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"policy {path} is not valid TOML: {error}") from error
    lines = [text.count("\n", 0, match.start()) + 1 for match in _HEADER.finditer(text)]
    mistakes = [_unknown_field(name, _TOP, "the file") for name in document if name not in _TOP]
    tables: Any = document.get("rule", [])
    rules = list[Rule]()
    if not isinstance(tables, list) or not all(isinstance(each, dict) for each in cast("list[Any]", tables)):
        mistakes.append("rules are written as [[rule]], with two brackets")
        tables = []
    tables = cast("list[dict[str, Any]]", tables)
    first_places = dict[str, str]()
    for number, table in enumerate(tables):
        where = f"line {lines[number]}" if len(lines) == len(tables) else f"[[rule]] number {number + 1}"
        rule_mistakes = _mistakes_of(table, rules)
        name = table.get("id")
        if isinstance(name, str) and first_places.setdefault(name, where) != where:
            rule_mistakes.append(f"rule {name!r:.80}: id: the rule of {first_places[name]} has it too")
        mistakes += [f"{where}: {mistake}" for mistake in rule_mistakes]
    settings = {name: document[name] for name in ("default", "deadline") if name in document}
    if not mistakes:
        try:
            return make(*rules, **settings)
        except ConfigurationError as error:
            mistakes.append(str(error).removeprefix("Policy: "))
    raise ConfigurationError(_listed(path, mistakes))


def _mistakes_of(table: dict[str, Any], rules: list[Rule]) -> list[str]:
    """Return the mistakes in the table of a rule; append the rule to `rules` if there are none."""
    rule = f"rule {table['id']!r:.80}" if "id" in table else "a rule without id"
    unknown = [name for name in table if name not in _FIELDS]
    mistakes = [_unknown_field(name, _FIELDS, rule) for name in unknown]
    mistakes += [f"{rule}: {name}: is missing" for name in ("id", "verdict") if name not in table]
    known_fields = {name: value for name, value in table.items() if name in _FIELDS}
    try:
        values: dict[str, Any] = {"id": "without-id", "verdict": "deny", **known_fields}
        made = Rule(**values)
    except ConfigurationError as error:
        return [*mistakes, *str(error).split("\n")]
    if not mistakes:
        rules.append(made)
    return mistakes


def _unknown_field(name: str, fields: Iterable[str], where: str) -> str:
    near = _FORMER.get(name) or near_name(name, fields)
    advice = f"did you mean {near!r}?" if near else f"it may have {', '.join(fields)}"
    return f"{where}: has no field {name!r:.80}: {advice}"


_FORMER: Final = {
    "action": "verdict",
    "effect": "verdict",
    "decision": "verdict",
    "tools": "tool",
    "tool_name": "tool",
    "tool_pattern": "tool",
    "subagent_name": "subagent",
    "condition": "when",
    "conditions": "when",
    "if": "when",
    "message": "reason",
    "description": "reason",
    "timeout": "expires",
    "timeout_s": "expires",
    "rules": "rule",
    "updated_tool_args": "arguments",
    "rewrite": "arguments",
}
"""Field names in other rules engines, with ours."""


def _listed(path: str | PathLike[str], mistakes: list[str]) -> str:
    if len(mistakes) == 1:
        return f"policy {path}: {mistakes[0]}"
    listed = [f"  {mistake}" for mistake in mistakes[:_SHOWN]]
    more = [f"  and {len(mistakes) - _SHOWN} more"] if len(mistakes) > _SHOWN else []
    return "\n".join([f"policy {path} has {len(mistakes)} mistakes:", *listed, *more])


_SHOWN: Final = 100
"""How many mistakes of a file are reported at once."""
