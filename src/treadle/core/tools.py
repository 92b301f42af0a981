"""Tools as the core knows them: specification, declared effects, and verdicts on a lost call."""

from __future__ import annotations

from dataclasses import field
from typing import Final, Literal, TypeAlias

from treadle.core.data import frozen
from treadle.core.labels import Label
from treadle.core.messages import Json

LOADING: Final = "TREADLE_LOADING_TOOLS"
"""An environment variable that is set while a tool's process loads a module or script. Tasks must not run then."""

EffectClass = Literal["read", "idempotent", "write", "agent"]
"""The effect of a second start: none, the same again, or harm. Undeclared tools are `write`.

The call of an agent is a task with its own journal, which a second start continues.
"""


def _no_parameters() -> Json:
    return {"type": "object", "properties": {}}


@frozen(kw_only=True)
class ToolSpec:
    """A tool as the model and the core see it.

    Args:
        name: unique among an agent's tools. At most 64 letters, digits, `_` and `-`.
        description: the description for the model.
        parameters: JSON schema of the arguments, an object.
        read_only: changes nothing anywhere.
        idempotent: a second call with the same idempotency key changes nothing further.
        destructive, open_world, sends, spends, executes, private: further declared effects, for policy.
        recipients: names of all arguments that decide where it sends data. While they are the same, an approval can
            cover a task.
        return_direct: a successful result is the task's answer.
        timeout: seconds for a call, for its `undo=` and for its `reconcile=`, each. None: no limit.
        retries: the number of retries of a failed call of a read-only or idempotent tool.
        undoable: it has `undo=`.
        reconcilable: it has `reconcile=`.
        needs_approval: a person may have to approve a call before it starts.
        previews: it can show an approver the effect of a call in advance.
        background: it may return with work left in the background, which ends the call by its ticket.
        secrets: names of the secrets that it may ask for.
        trusted: its results are the developer's own, such as a time or a sum, without text of strangers. Results of
            other tools are untrusted.
        origin: the origin of its results, such as `mcp:files`. Empty: `tool:<name>`.
        defined_by: the author of its name, description and schema, such as `mcp:files`. Empty: the developer. A request
            that offers a stranger's tool counts as one that read untrusted content.
        declared: whether the author declared its effects.
        host: the kind of process that its function runs in, such as `subprocess`. None: this process.
    """

    name: str
    description: str = ""
    parameters: Json = field(default_factory=_no_parameters)
    read_only: bool = False
    idempotent: bool = False
    destructive: bool = False
    open_world: bool = False
    sends: bool = False
    spends: bool = False
    executes: bool = False
    private: bool = False
    return_direct: bool = False
    timeout: float | None = None
    retries: int = 0
    undoable: bool = False
    reconcilable: bool = False
    needs_approval: bool = False
    previews: bool = False
    background: bool = False
    declared: bool = False
    secrets: tuple[str, ...] = ()
    recipients: tuple[str, ...] = ()
    trusted: bool = False
    origin: str = ""
    defined_by: str = ""
    host: str | None = None

    @property
    def label(self) -> Label | None:
        """The label of its results, or None for the default of tools: untrusted, from `tool:<name>`."""
        if not self.trusted and not self.origin:
            return None
        return Label(self.origin or f"tool:{self.name}", "trusted" if self.trusted else "untrusted")

    @property
    def effect(self) -> EffectClass:
        """The effect of a second start."""
        if self.read_only:
            return "read"
        return "idempotent" if self.idempotent else "write"

    @property
    def is_repeatable(self) -> bool:
        """Whether a failed call may be repeated."""
        return self.effect != "write"


@frozen
class Happened:
    """The call with unknown outcome did take effect. `output` is the result that it would have returned."""

    output: Json = None


@frozen
class NotHappened:
    """The call with unknown outcome took no effect, so it may start now."""


@frozen
class Unknown:
    """It cannot be determined whether the call took effect."""


Verdict: TypeAlias = Happened | NotHappened | Unknown
