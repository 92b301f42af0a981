"""Labels: the origin of a piece of content, and whether it is trusted.

A label has the origin and the integrity of content. It is stored only if it differs from the default for the role,
which `label_of` returns. By default, messages of the caller and instructions of the developer are trusted, and tool
results are not. So content of older journals has a label as well.

    role of the message    origin          integrity
    system                 developer       trusted
    user                   user            trusted
    tool                   tool:<name>     untrusted
    assistant              model           untrusted once the task has read something untrusted

Other origins are `mcp:<server>`, `web:<host>`, `subagent:<agent>`, `memory`, `observation`, and any word of a caller or
tool. `runner` is the origin of Treadle's own text instead of a result. A label cannot make untrusted content trusted:
every part of untrusted content is untrusted (`inside`). Only a tool that is declared as `trusted`, or as a sanitiser,
returns trusted content.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any, Final, Literal

from treadle.core.data import frozen, set_field
from treadle.core.lazy_pattern import lazy_pattern
from treadle.errors import ConfigurationError

Integrity = Literal["trusted", "untrusted"]

ORIGIN_CHARS: Final = 80
"""The most characters of an origin."""

_NOT_IN_ORIGIN: Final = lazy_pattern(r"[^\w.:/@+-]")


@frozen
class Label:
    """The origin of content, and whether it is trusted.

    Args:
        origin: for example `user`, `tool:read_mail`, `mcp:files`, `web:example.org`, `subagent:reader`, or any word.
        integrity: `trusted`, or `untrusted`: a stranger may have written it.
        frame: the nonce of the frame around the content in a conversation. It does not describe the content, and equal
            labels may have different nonces.

    Models and approvers read origins in Treadle's own sentences, and a stranger may have chosen one. So all characters
    but letters, digits and `_.:/@+-` become `_`, and the text after the 80th character is dropped.

    Raises:
        ConfigurationError: the origin is not a text or empty, or the integrity is unknown.
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
            set_field(self, "origin", origin)


DEVELOPER: Final = Label("developer", "trusted")
USER: Final = Label("user", "trusted")
RUNNER: Final = Label("runner", "trusted")
"""The label of Treadle's own text instead of a result: that a call did not run, and why."""

OBSERVATION: Final = Label("observation", "untrusted")
"""The label of a caller's observation without a label."""

MODEL: Final = Label("model", "trusted")
TAINTED_MODEL: Final = Label("model", "untrusted")
"""The label of a model's text after it has read untrusted content."""


def label_of(role: str, part: Any, *, tainted: bool = False) -> Label:
    """Return the label of a part of a message: its own, or the default for its role.

    Args:
        role: the role of the message.
        part: the part of the message. For the parts of a result see `inside`.
        tainted: whether the model that wrote an assistant's message had read untrusted content.
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
    """Return the label of content within other content. A part is never more trusted than the whole."""
    if own is None or (outer.integrity == "untrusted" and own.integrity == "trusted"):
        return outer
    return own


def untrusted_origin(label: Label | None) -> str | None:
    """Return the origin of content with an untrusted label, or None for any other."""
    return label.origin if label is not None and label.integrity != "trusted" else None
