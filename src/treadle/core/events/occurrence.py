"""The bases of events and deltas: origin, description, and the drivers that may handle them."""

from __future__ import annotations

import re
from dataclasses import MISSING, field, fields
from typing import Any, ClassVar, Final, Literal, Self

from treadle.core.data import frozen, mutable
from treadle.core.display import LINE, Displayed, View, one_line
from treadle.core.messages import Json
from treadle.core.unknown_names import explains_names
from treadle.errors import PASSING

__all__ = [
    "CallOccurrence",
    "Event",
    "EventOrigin",
    "Failure",
    "StateChange",
]

StopReason = Literal["crash", "interrupted", "timeout", "abandoned", "error", "parked"]
JOURNAL_FORMAT: Final = 5
"""The newest journal format that this version knows. It can drive tasks over all events of that format.

A release that adds a kind of event raises it, and the class has it in `since`. A driver that does not know the kind
leaves the task alone, since the event may forbid the driver's next action.
"""


@frozen
class Failure:
    """An error in its journal form: its kind, its message and its source.

    `model` is the model that failed, as `provider:model`, if any. For content that a guardrail refused, `kind` is
    `input`, `output` or `result`, and `rule` is the id of the guardrail. `by` is the name of the person that it asked,
    if that person refused. `traceback` is that of an error in the user's own code. It is for people, and no model sees
    it.
    """

    source: Literal["model", "tool", "agent", "subagent", "limit", "worker", "store", "guardrail"]
    kind: str
    message: str
    call: str | None = None
    status: int | None = None
    retry_after: float | None = None
    model: str = ""
    rule: str | None = None
    by: str | None = None
    traceback: str = ""

    @property
    def provider(self) -> str:
        """The provider of the model that failed, empty if there is none."""
        return self.model.partition(":")[0]

    @property
    def retryable(self) -> bool:
        """Whether the same request may succeed later, since a provider was busy, broken, or not reached."""
        return self.source == "model" and self.kind in PASSING


@frozen
class StateChange:
    """A call's changes of the task's `extra_state`: keys with their new values, and removed keys."""

    values: dict[str, Json] = field(default_factory=dict[str, Json])
    removed: tuple[str, ...] = ()


@frozen
class EventOrigin:
    """The origin of an event: its task, and the agents on the path to that, from the root task's agent on."""

    task_id: str
    agent_path: tuple[str, ...]


class Occurrence(Displayed):
    """The base of events and deltas, with the facts that are not stored with their fields.

    After `explain_names`, unknown attributes raise an error with advice.
    """

    __slots__ = ("in_doubt", "origin", "tool_name")

    kind: ClassVar[str]
    says: ClassVar[str] = ""
    """the description, with `{it.field}` for each field"""

    origin: EventOrigin
    """set when the event is handed out"""

    tool_name: str
    """for events of a call: set when they are applied to the state or read from the journal"""

    in_doubt: bool
    """for stops of a call: whether its outcome is not known; set as `tool_name` is"""

    @property
    def agent_path(self) -> tuple[str, ...]:
        """The agents on the path to the task, from the root's to its own. Empty if it was not handed out."""
        return path_of(self)

    @property
    def description(self) -> str:
        """The description in one plain line, without messages, arguments, results or texts of errors."""
        text = self.says.format(it=self) if self.says else self.kind.replace("_", " ")
        line = one_line(text, 200)
        return line if line.isprintable() else "".join([sign if sign.isprintable() else "�" for sign in line])

    def __str__(self) -> str:
        return self.description

    def __reduce__(self) -> tuple[Any, ...]:
        values = [getattr(self, item.name) for item in fields(self)]  # pyright: ignore[reportArgumentType]
        return _restored, (type(self), values, [getattr(self, name, None) for name in Occurrence.__slots__])

    def __copy__(self) -> Self:
        restore, values = self.__reduce__()
        return restore(*values)

    def _shown(self) -> list[tuple[str, Any]]:
        """Return the fields that differ from their defaults, by name."""
        set_fields: list[tuple[str, Any]] = []
        for item in fields(self):  # pyright: ignore[reportArgumentType]  all that derive from it are data classes
            value: Any = getattr(self, item.name)
            default = item.default_factory() if item.default_factory is not MISSING else item.default
            if item.repr and value != default:
                set_fields.append((item.name, value))
        return set_fields

    def _view(self) -> View:
        shown = [(name, value) for name, value in self._shown() if name not in ("seq", "time", "after")]
        short = [each for each in shown if len(repr(each[1])) <= LINE]
        return View(
            title=type(self).__name__,
            name=str(getattr(self, "seq", "")),
            facts=tuple(short),
            text=self.description,
            values=tuple([each for each in shown if each not in short]),
        )

    def __repr__(self) -> str:
        shown = [f"{name}={one_line(repr(value))}" for name, value in self._shown()]
        return f"{type(self).__name__}({', '.join(shown)})"


def _restored(cls: Any, values: list[Any], beside: list[Any]) -> Any:
    """Return an event or delta with the values of its fields and of its further attributes."""
    names = [item.name for item in fields(cls)]
    event = cls(**dict(zip(names, values, strict=True)))
    for name, value in zip(Occurrence.__slots__, beside, strict=True):
        if value is not None:
            setattr(event, name, value)
    return event


def explain_names() -> None:
    """Make events explain unknown attributes from now on. Call it before a program gets events or their classes.

    Python then reads every attribute of an event more slowly, and a step reads more than a hundred. Processes whose
    programs do not inspect events avoid that cost.
    """
    if "__getattr__" not in vars(Occurrence):
        explains_names("event")(Occurrence)


def path_of(occurrence: Occurrence) -> tuple[str, ...]:
    """Return the agents on the path to an occurrence, empty if it was not handed out."""
    origin: EventOrigin | None = getattr(occurrence, "origin", None)
    return origin.agent_path if origin is not None else ()


class OfTask(Occurrence):
    """An occurrence in the task that hands it out."""

    __slots__ = ()

    @property
    def task_id(self) -> str:
        """The task of the event, empty if it was not handed out."""
        origin: EventOrigin | None = getattr(self, "origin", None)
        return origin.task_id if origin is not None else ""


class CallOccurrence(OfTask):
    """An occurrence of a call: `tool` is the name of the called tool."""

    __slots__ = ()

    call: str

    @property
    def tool(self) -> str:
        """The name of the called tool, empty if the event was neither handed out nor applied."""
        return getattr(self, "tool_name", "")


@mutable
class Event(OfTask):
    """The envelope of every event.

    A kind that was added later has its journal format in `since`, or is `ignorable`. A driver that does not know an
    ignorable kind decides correctly without it. The documents of a kind are marked accordingly.
    """

    kind: ClassVar[str] = ""
    since: ClassVar[int] = 1
    ignorable: ClassVar[bool] = False
    format: ClassVar[int] = 1
    """the journal format that a driver must know to drive a task over this event"""

    seq: int = field(default=0, kw_only=True, compare=False)
    time: int = field(default=0, kw_only=True, compare=False)

    def __init_subclass__(cls) -> None:
        cls.kind = re.sub(r"(?<!^)([A-Z])", r"_\1", cls.__name__).lower()
        if "format" not in cls.__dict__:
            cls.format = 1 if cls.ignorable else cls.since


class CommandEvent(Event):
    """The base of an event that a command becomes. The class describes the command.

    The data of its inbox item are the fields of the event, by their names. Its rule is in `RULES` of `control` or in
    `fold`. Without a rule, the event is a record that changes nothing.
    """

    command: ClassVar[str] = ""
    """the kind of the inbox item"""

    while_cancelling: ClassVar[bool] = False
    """whether a task that is being cancelled accepts the command"""


class IllegalEvent(ValueError):
    """An event that cannot follow the events before it."""


def _changes_format(event: Any) -> int:
    """Return the journal format of an event that may change the state. Older drivers would ignore the change."""
    return 1 if event.changes is None else 3


format_of_changes: Any = property(_changes_format)


def _command_format(event: Any) -> int:
    """Return the journal format of an event that may name a command. Older versions cannot read the name."""
    return 1 if event.inbox is None else 5


format_of_commands: Any = property(_command_format)
