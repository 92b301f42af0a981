"""The default of `Policy.strict()`: what happens to effects that no rule decides, by what their tools declare.

class          declared                                  verdict
execute        executes                                  ask about every call; deny after a result from the open world
spend          spends or destructive                     ask about every call; only a rule that names the tool allows it
send           sends                                     ask; deny after a private result
write          nothing of this, or nothing at all        ask
write_local    a compensation (`undo=`), and none above  allow: it can be taken back
read_private   read_only and private                     allow; later sends are denied
read           read_only                                 allow

A tool of several classes has the strictest of their verdicts. What a model has seen is known by the tools whose results
it read (`exposed`). Texts have no labels of their own yet: input, files and answers of subagents count as trusted.
"""

from __future__ import annotations

from typing import Final, Literal

from treadle.core.tools import ToolSpec
from treadle.policy.verdicts import Allow, AskPerson, Deny, EffectRequest, PolicyVerdict, strictest

EffectKindOfTool = Literal["execute", "spend", "send", "write", "write_local", "read_private", "read"]
"""What a tool does to the world, the gravest first."""

PREFIX: Final = "strict:"
"""What the ids of verdicts by the table begin with."""

_ASKS: Final[dict[EffectKindOfTool, str]] = {
    "execute": "it executes code",
    "spend": "it spends money or cannot be taken back",
    "send": "it sends data out",
    "write": "it may change something",
}

OUTSIDE: Final = frozenset(("open_world", "undeclared"))
"""Declared effects of tools whose results may hold what a stranger wrote."""


def classes(spec: ToolSpec) -> list[EffectKindOfTool]:
    """Return the classes of a tool, by what it declares."""
    found: list[EffectKindOfTool] = []
    if spec.executes:
        found.append("execute")
    if spec.spends or spec.destructive:
        found.append("spend")
    if spec.sends:
        found.append("send")
    if spec.read_only:
        found.append("read_private" if spec.private else "read")
    elif not found:
        found.append("write_local" if spec.undoable and not spec.open_world else "write")
    return found


def strict_verdict(request: EffectRequest) -> PolicyVerdict | None:
    """Return the verdict of the table; None for an effect that is no call of a known tool."""
    spec = request.spec
    if spec is None or request.kind != "tool":
        return None
    return strictest(_verdict(kind, request) for kind in classes(spec))


def needs_its_name(spec: ToolSpec | None) -> bool:
    """Return whether only a rule that names the tool may allow a call: no pattern does."""
    return spec is not None and "spend" in classes(spec)


def _verdict(kind: EffectKindOfTool, request: EffectRequest) -> PolicyVerdict:
    rule = f"{PREFIX}{kind}"
    if kind == "send" and "private" in request.exposed:
        return Deny(rule, f"{request.name} sends data out, and the model has seen private data.")
    if kind == "execute" and request.exposed & OUTSIDE:
        return Deny(rule, f"{request.name} executes code, and the model has seen data from outside.")
    why = _ASKS.get(kind)
    if why is None:
        return Allow(rule)
    return AskPerson(rule, f"{request.name} needs a person: {why}.", every_call=kind in ("execute", "spend"))
