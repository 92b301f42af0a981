"""The default of `Policy.strict()`: verdicts on effects that no rule decides, by the declarations of their tools.

    class         declared                         clean context               after untrusted content
    execute       executes                         ask about every call        deny
    execute       executes, in a sandbox without   allow                       ask about every call
                  network
    spend         spends or destructive            ask about every call        ask about every call
    send          sends                            ask                         ask about every call; deny after a
                                                                               private result as well
    write         nothing of this, or nothing      ask                         ask
    write_local   a compensation (`undo=`), and    allow                       allow: it can be taken back
                  none of those above
    read_private  read_only and private            allow                       allow; the model has seen private data
    read          read_only                        allow                       allow

A tool of several classes has the strictest of their verdicts. Only a rule that names the tool allows a tool that spends
or is destructive. The model's exposure follows from the labels of content (`untrusted`). It follows also from the
declarations of the tools whose results it read (`exposed`). After untrusted content, a question names the origins, and
its rule has another id. So an earlier approval for later calls no longer holds.

After untrusted content, a person is asked about each new recipient of a tool that declares its `recipients`, not about
each call. An approval for the task holds while they are the same.
"""

from __future__ import annotations

from typing import Final, Literal

from treadle.core.tools import ToolSpec
from treadle.policy.verdicts import Allow, AskPerson, Deny, EffectRequest, PolicyVerdict, has_read, strictest

EffectKindOfTool = Literal["execute", "spend", "send", "write", "write_local", "read_private", "read"]
"""The classes of tools by their effect on the world, the gravest first."""

PREFIX: Final = "strict:"
"""The prefix of the ids of verdicts by the table."""

_ASKS: Final[dict[EffectKindOfTool, str]] = {
    "execute": "it executes code",
    "spend": "it spends money or cannot be taken back",
    "send": "it sends data out",
    "write": "it may change something",
}

UNTRUSTED: Final = "-untrusted"
"""The suffix of the ids of questions that are asked after untrusted content."""

CONFINED: Final = "sandbox"
"""The host of a tool that runs in a sandbox of the operating system, without network."""


def classes(spec: ToolSpec) -> list[EffectKindOfTool]:
    """Return the classes of a tool, by its declarations."""
    kinds: list[EffectKindOfTool] = []
    if spec.executes:
        kinds.append("execute")
    if spec.spends or spec.destructive:
        kinds.append("spend")
    if spec.sends:
        kinds.append("send")
    if spec.read_only:
        kinds.append("read_private" if spec.private else "read")
    elif not kinds:
        kinds.append("write_local" if spec.undoable and not spec.open_world else "write")
    return kinds


def strict_verdict(request: EffectRequest) -> PolicyVerdict | None:
    """Return the verdict of the table; None unless the effect is a call of a known tool."""
    spec = request.spec
    if spec is None or request.kind != "tool":
        return None
    return strictest(_verdict(kind, request) for kind in classes(spec))


def needs_its_name(spec: ToolSpec | None) -> bool:
    """Return whether only a rule with the tool's name, not a pattern, may allow its calls."""
    return spec is not None and "spend" in classes(spec)


def _verdict(kind: EffectKindOfTool, request: EffectRequest) -> PolicyVerdict:
    rule, untrusted, confined = f"{PREFIX}{kind}", request.untrusted, _is_confined(request.spec)
    if kind == "send" and untrusted and "private" in request.exposed:
        reason = f"{request.name} sends data out, and the model has seen private data"
        return Deny(rule, f"{reason}; {has_read(untrusted)}.")
    if kind == "execute" and untrusted and not confined:
        has_network = request.spec is not None and request.spec.host == f"{CONFINED} with network"
        where = "in a sandbox with network" if has_network else "outside of a sandbox"
        return Deny(rule, f"{request.name} executes code {where}; {has_read(untrusted)}.")
    reason = _ASKS.get(kind)
    if reason is None or (kind == "execute" and confined and not untrusted):
        return Allow(rule)
    if untrusted:
        rule, reason = rule + UNTRUSTED, f"{reason}; {has_read(untrusted)}"
    # An approval for later calls covers any arguments, even those that untrusted text asks for. If the tool names its
    # recipients, the approval can be limited to them.
    same = request.spec.recipients if request.spec is not None and kind == "send" and untrusted else ()
    every_call = kind in ("execute", "spend") or (kind == "send" and bool(untrusted) and not same)
    return AskPerson(rule, f"{request.name} needs a person: {reason}.", every_call=every_call, same=same)


def _is_confined(spec: ToolSpec | None) -> bool:
    return spec is not None and spec.host == CONFINED
