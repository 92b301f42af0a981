"""`Guardrail`: a function that checks the input, answers or tool results of an agent. Pure declarations.

    content --> every guardrail on it --> Allow or None | Rewrite | AskPerson | Deny; the strictest holds

The verdicts are those of a policy, and the strictest holds. From the strictest on, they are: refusal, rewrite,
question, permission. Rewritten content is judged again. A function that raises or is late refuses.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, Final, TypeAlias, cast, get_args

from treadle.core.data import frozen
from treadle.core.events import GuardedContent
from treadle.core.messages import Content, Json
from treadle.core.observation import READ_OUTPUT
from treadle.core.refused_uses import can_be_called, no_function
from treadle.core.unknown_names import explains_arguments
from treadle.errors import ConfigurationError
from treadle.policy.patterns import matches, texts
from treadle.policy.verdicts import DEADLINE, Allow, AskPerson, Deny

MAX_REWRITES: Final = 8
"""How often guardrails may rewrite one content; one more rewrite refuses it."""


@frozen
class Rewrite:
    """The content is replaced and judged again. It is a text, or JSON data for a typed answer or a result."""

    value: Json
    reason: str = ""


@frozen(kw_only=True)
class GuardrailRequest:
    """Content for a guardrail to check.

    Args:
        on: the kind of content: `input`, `output` or `result`.
        text: the content as text. For an answer that is being written, all of it so far.
        value: JSON data for a typed answer or a result, otherwise the text.
        part: the part of an answer: `text`, `answer` (typed), `reasoning` or `scratch`. Scratch is unreadable text of a
            text protocol.
        whole: whether it is complete; False for an answer that is being written.
        place: the id of the content in the journal, the same for each judgement.
        tool: the name of the tool, of a result.
        parts: the content parts of input, with images and files.
        task_id, thread_id, step: where it happens.
        agent: the agent of the task.
        agent_path: the agents on the path to the task, from that of the root task on.
        depth: how many tasks are above it.
        labels: of the task.
        state: the task's `extra_state`, not to be changed.
        context: the `context` that the caller of the run passed.
    """

    on: GuardedContent
    text: str
    value: Json = None
    part: str = "text"
    whole: bool = True
    place: str = ""
    tool: str = ""
    parts: tuple[Content, ...] = ()
    task_id: str = ""
    thread_id: str = ""
    step: str = ""
    agent: str = ""
    agent_path: tuple[str, ...] = ()
    depth: int = 0
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    state: Mapping[str, Json] = field(default_factory=dict[str, Json])
    context: Any = field(default=None, repr=False, compare=False)


GuardrailVerdict: TypeAlias = Allow | Rewrite | AskPerson | Deny
GuardrailFunction: TypeAlias = Callable[
    [GuardrailRequest], GuardrailVerdict | Awaitable[GuardrailVerdict | None] | None
]


@explains_arguments
class Guardrail:
    """A check of user input, of answers, or of tool results. Immutable.

    Args:
        function: takes a `GuardrailRequest` and returns `Allow` or None, `Rewrite`, `AskPerson` or `Deny`. An async
            function runs in the event loop, any other in a thread. One that raises, is late, or returns anything else
            refuses.
        on: the contents to check: `input`, `output`, `result`, or several of them.
        id: its name in the journal; by default that of the function.
        blocking: whether input must pass before it is sent to the model. By default the check runs beside the request,
            whose answer is held until the input has passed. A refusal cancels the request.
        piece: how many characters of an unfinished answer are checked and shown at a time. By default watchers see an
            answer only after all of it has passed.
        deadline: seconds that the function may take.
        agents: patterns of the names of agents to check, such as `desk*`.
        tools: patterns of the names of tools whose results it checks.

    Raises:
        ConfigurationError: an argument is not valid.
    """

    __slots__ = ("agents", "blocking", "deadline", "function", "id", "on", "piece", "tools")

    def __init__(
        self,
        function: GuardrailFunction,
        *,
        on: GuardedContent | Sequence[GuardedContent],
        id: str | None = None,
        blocking: bool = False,
        piece: int | None = None,
        deadline: float = DEADLINE,
        agents: str | Sequence[str] = "*",
        tools: str | Sequence[str] = "*",
    ) -> None:
        name: Any = getattr(function, "__name__", "") if id is None else id
        where = f"Guardrail {name!r}"
        if isinstance(function, type) or not can_be_called(function):
            raise ConfigurationError(
                f"{where}: it takes a function of a GuardrailRequest, got {no_function(function)}"
            )
        if not isinstance(name, str) or not name or name == "<lambda>":
            raise ConfigurationError(f"{where}: give it id=, by which the journal names it")
        contents = (on,) if isinstance(on, str) else tuple(on)
        unknown = [each for each in contents if each not in get_args(GuardedContent)]
        if unknown or not contents:
            allowed = ", ".join(get_args(GuardedContent))
            raise ConfigurationError(f"{where}: on must be one or several of {allowed}, got {on!r}")
        if piece is not None and (isinstance(piece, bool) or not isinstance(piece, int) or piece < 1):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(
                f"{where}: piece must be a number of characters from 1 up, got {piece!r}"
            )
        if piece is not None and "output" not in contents:
            raise ConfigurationError(f"{where}: piece is for checks on output")
        if blocking and "input" not in contents:
            raise ConfigurationError(f"{where}: blocking is for checks on input; others always come first")
        seconds: Any = deadline
        if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 < seconds < math.inf:
            raise ConfigurationError(
                f"{where}: deadline must be a number of seconds above 0, got {deadline!r}"
            )
        for field_name, patterns in (("agents", agents), ("tools", tools)):
            if not texts(patterns):
                raise ConfigurationError(
                    f"{where}: {field_name} must be a pattern or a list of them, got {patterns!r}"
                )
        values: dict[str, Any] = {
            "function": function,
            "on": contents,
            "id": name,
            "blocking": bool(blocking),
        }
        values |= {"piece": piece, "deadline": float(deadline), "agents": agents, "tools": tools}
        for slot, value in values.items():
            object.__setattr__(self, slot, value)

    function: GuardrailFunction
    on: tuple[GuardedContent, ...]
    id: str
    blocking: bool
    piece: int | None
    deadline: float
    agents: str | Sequence[str]
    tools: str | Sequence[str]

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"a Guardrail is immutable; make another one with {name}=...")

    def checks(self, guards: GuardedContent, tool: str = "") -> bool:
        """Return whether it checks a kind of content. For a result, return whether it checks that tool.

        `read_output` may return output of any tool, so every guardrail on results checks it.
        """
        if guards != "result" or tool == READ_OUTPUT:
            return guards in self.on
        return guards in self.on and matches(texts(self.tools), tool)

    def __repr__(self) -> str:
        return f"Guardrail({self.id!r}, on={', '.join(self.on)!r})"


def checked_guardrails(where: str, value: Any) -> tuple[Guardrail, ...]:
    """Return guardrails as a tuple. Raises `ConfigurationError` for other values and for two with one id."""
    if isinstance(value, (str, Guardrail)) or not isinstance(value, Sequence):
        raise ConfigurationError(f"{where} must be a list of Guardrail(...), got {value!r}")
    guardrails = tuple(cast("Sequence[Any]", value))
    for guardrail in guardrails:
        if not isinstance(guardrail, Guardrail):
            raise ConfigurationError(f"{where} must list Guardrail(function, on=...), got {guardrail!r}")
    ids = [guardrail.id for guardrail in guardrails]
    for name in ids:
        if ids.count(name) > 1:
            raise ConfigurationError(f"{where}: two have the id {name!r}; the journal names them by it")
    return guardrails


def guardrails_for(agent: str, guardrails: Sequence[Guardrail]) -> tuple[Guardrail, ...]:
    """Return the guardrails that hold for the tasks of an agent."""
    return tuple([each for each in guardrails if matches(texts(each.agents), agent)])
