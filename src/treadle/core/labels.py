"""Labels: where a piece of content comes from, and whether it is trusted.

A label says the origin of a content and its integrity. It is stored only where it differs from the rule by role, which
`label_of` holds: the caller's messages and the developer's instructions are trusted, what a tool returns is not. So
content of older journals has a label as well.

    role of the message    origin          integrity
    system                 developer       trusted
    user                   user            trusted
    tool                   tool:<name>     untrusted
    assistant              model           untrusted once the task has read something untrusted

Other origins are `mcp:<server>`, `web:<host>`, `subagent:<agent>`, `memory`, `observation`, `runner` (what Treadle says
itself in the place of a result), and any word of a caller or a tool. No label makes untrusted content trusted: in
something untrusted every part is untrusted (`inside`). Only a tool that is declared as `trusted`, or as a sanitiser,
returns trusted content.
"""

from __future__ import annotations

import re
from dataclasses import field
from typing import Any, Final, Literal

from treadle.core.data import frozen
from treadle.errors import ConfigurationError

Integrity = Literal["trusted", "untrusted"]

ORIGIN_CHARS: Final = 80
"""How many characters an origin may have."""

_NOT_IN_ORIGIN: Final = re.compile(r"[^\w.:/@+-]")


@frozen
class Label:
    """Where a content comes from, and whether it is trusted.

    Args:
        origin: such as `user`, `tool:read_mail`, `mcp:files`, `web:example.org`, `subagent:reader`, or any word.
        integrity: `trusted`, or `untrusted`: a stranger may have written it.
        frame: the nonce of the frame in which a model is shown the content, once it is part of a conversation; it tells
            nothing of the content, and equal labels may have different ones.

    Origins are said to models and to approvers in sentences of Treadle's own, and a stranger may have chosen one. So
    other characters than letters, digits and `_.:/@+-` become `_`, and what is behind the 80th is left out.

    Raises:
        ConfigurationError: the origin is no text or empty, or the integrity is none of the two.
    """

    origin: str
    integrity: Integrity
    frame: str | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if type(self.origin) is not str or not self.origin:
            raise ConfigurationError(f"Label: origin must be text, such as 'mail', got {self.origin!r:.80}")
        if self.integrity not in ("trusted", "untrusted"):
            raise ConfigurationError(
                f"Label: integrity must be 'trusted' or 'untrusted', got {self.integrity!r:.80}"
            )
        if self.frame is not None and type(self.frame) is not str:
            raise ConfigurationError(f"Label: frame is made by Treadle, got {self.frame!r:.80}")
        if len(self.origin) > ORIGIN_CHARS or _NOT_IN_ORIGIN.search(self.origin):
            origin = _NOT_IN_ORIGIN.sub("_", self.origin[:ORIGIN_CHARS])
            object.__setattr__(self, "origin", origin)


DEVELOPER: Final = Label("developer", "trusted")
USER: Final = Label("user", "trusted")
RUNNER: Final = Label("runner", "trusted")
"""Of what Treadle itself says in the place of a result: that a call did not run, and why."""

OBSERVATION: Final = Label("observation", "untrusted")
"""Of what a caller sends as an observation and does not label."""

MODEL: Final = Label("model", "trusted")
TAINTED_MODEL: Final = Label("model", "untrusted")
"""Of what a model writes that has read something untrusted."""


def label_of(role: str, part: Any, *, tainted: bool = False) -> Label:
    """Return the label of a part of a message: its own, or that which its role implies.

    Args:
        role: of the message.
        part: of the message; for the parts of a result see `inside`.
        tainted: whether the model that wrote an assistant's message had read something untrusted.
    """
    own: Label | None = getattr(part, "label", None)
    if own is not None:
        return own
    match role:
        case "tool":
            return Label(f"tool:{part.name}", "untrusted")
        case "assistant":
            return TAINTED_MODEL if tainted else MODEL
        case "system":
            return DEVELOPER
        case _:
            return USER


def inside(outer: Label, own: Label | None) -> Label:
    """Return the label of a content within another one: no part is more trusted than the whole."""
    if own is None or (outer.integrity == "untrusted" and own.integrity == "trusted"):
        return outer
    return own


def untrusted_origin(label: Label | None) -> str | None:
    """Return the origin of a content that a label of its own says to be untrusted; None for any other."""
    return label.origin if label is not None and label.integrity != "trusted" else None
