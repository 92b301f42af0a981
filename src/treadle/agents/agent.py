"""`Agent`: a declaration of what should run. Immutable data, no run state, shared by any number of tasks."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, Literal, TypeAlias, cast, get_args

from treadle.core.codec import flaw
from treadle.core.data import frozen
from treadle.core.messages import Content, Json
from treadle.core.model import ModelSettings
from treadle.core.tools import ToolSpec
from treadle.errors import ConfigurationError
from treadle.policy.limits import Limits
from treadle.ports import C, Model, Tool

if TYPE_CHECKING:
    from treadle.agents.dialects.dialect import Dialect
    from treadle.agents.output import OutputType
    from treadle.agents.subagent import SubagentTool
    from treadle.agents.tool_selection import ToolSelector
    from treadle.agents.workers.step_context import StepContext
    from treadle.agents.workers.worker import AgentWorker, Decider, FunctionWorker, StepResult

    StepFunction: TypeAlias = Callable[[StepContext[Any]], StepResult | Awaitable[StepResult]]
    Worker: TypeAlias = "WorkerName | Dialect | StepFunction | AgentWorker | Decider"

WorkerName = Literal["function_calling", "react", "planner", "plan_refine"]
OutputMode = Literal["auto", "native", "tool", "prompt"]
"""How a model is asked for a typed answer: by the provider's own structured output, by a tool, or in words."""


@frozen
class RunContext(Generic[C]):
    """What instructions given as a function may look at: called once per task, before its first request."""

    task_id: str
    thread_id: str
    input: tuple[Content, ...]
    context: C


_WORKED_OUT: Final = ("_fingerprint", "_typed", "agent_tools", "dialect", "custom_worker")
"""The fields of an agent that follow from the others."""

Instructions = str | Callable[[RunContext[Any]], str]


class Agent(Generic[C]):
    """What should run: a model, instructions and tools under a name.

    Args:
        model: `provider:model`, or a `Model` object.
        name: stored with each task; how a process finds the agent again.
        instructions: text, or a function of `RunContext` called once per task.
        description: what it is for, in words for the models of agents that may call it.
        tools: functions decorated with `@tool`; their names must differ.
        subagents: agents that it may call, each offered to its model as a tool named after it: called with a text, it
            runs as a task of its own, below this one, and its answer is the call's result. The name of an agent stands
            for one that the runner knows: so an agent may call itself.
        offer: which of them each request offers: a `ToolIndex`, or a function of `RequestContext` that returns tools
            or their names; None offers all. Called once for each request, in the event loop.
        output_type: what the answer has to be: any type that pydantic supports, also a union; `str` leaves it text.
        output_mode: how the model is asked for it: `native` (the provider's structured output), `tool` (a call) or
            `prompt` (in words); `auto` is what the model says it does best.
        output_retries: how many wrong answers in a row are sent back before the step fails.
        worker: the kind of reasoning: `function_calling`, or for models that call no tools of their own accord
            `react` or `planner`; or `React(...)`, `Planner(...)` or another `Dialect`; `plan_refine` or
            `PlanRefine(...)` for sub-tasks beside each other. Or a worker of your own: a function of `StepContext`
            that returns a `StepResult`, an `AgentWorker`, or `Decider(decide)`.
        limits: hard limits of each task.
        model_settings: sent with each request.
        metadata: JSON data of yours, kept here and never looked at.

    Raises:
        ConfigurationError: a value is not valid; the text names the field.
    """

    __slots__ = (
        "_fingerprint",
        "_typed",
        "agent_tools",
        "custom_worker",
        "description",
        "dialect",
        "instructions",
        "limits",
        "metadata",
        "model",
        "model_settings",
        "name",
        "offer",
        "output_mode",
        "output_retries",
        "output_type",
        "subagents",
        "tools",
        "worker",
    )

    model: str | Model
    name: str
    instructions: Instructions
    description: str
    tools: tuple[Tool, ...]
    """all that its model may call, its subagents included"""

    subagents: tuple[Agent[Any] | str, ...]
    agent_tools: frozenset[str]
    """the names of those tools that are agents"""

    offer: ToolSelector | None
    output_type: Any
    output_mode: OutputMode
    output_retries: int
    worker: Worker
    dialect: Dialect | None
    """how the agent speaks with its model; None: by the provider's own tool calls"""

    custom_worker: FunctionWorker | Decider | None
    """how a custom worker, or `plan_refine`, is driven; None for the other built-in kinds"""

    limits: Limits
    model_settings: ModelSettings
    metadata: Json
    _fingerprint: str
    _typed: OutputType | None

    def __init__(
        self,
        model: str | Model,
        *,
        name: str = "agent",
        description: str = "",
        instructions: Instructions = "",
        tools: Sequence[Any] = (),
        subagents: Sequence[Agent[Any] | str] = (),
        offer: ToolSelector | None = None,
        output_type: Any = str,
        output_mode: OutputMode = "auto",
        output_retries: int = 2,
        worker: Worker = "function_calling",
        limits: Limits | None = None,
        model_settings: ModelSettings | None = None,
        metadata: Json = None,
    ) -> None:
        if not isinstance(instructions, str) and not callable(instructions):
            raise ConfigurationError(
                f"Agent {name!r}: instructions must be text or a function, got {instructions!r}"
            )
        if isinstance(instructions, str) and (beyond := flaw(instructions)) is not None:
            raise ConfigurationError(f"Agent {name!r}: instructions cannot be stored: they are {beyond}")
        if not isinstance(description, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(f"Agent {name!r}: description must be text, got {description!r}")
        own_tools = _checked_tools(name, tools)
        checked_tools = _with_agents(name, own_tools, subagents) if subagents else own_tools
        values: dict[str, Any] = {
            "name": _checked_name(name),
            "model": _checked_model(name, model),
            "instructions": instructions,
            "description": description,
            "tools": checked_tools,
            "subagents": tuple(subagents),
            "agent_tools": frozenset([tool.spec.name for tool in checked_tools[len(own_tools) :]]),
            "offer": None if offer is None else _offer(name, offer, checked_tools),
            "output_type": output_type,
            "output_mode": _checked_mode(name, output_mode),
            "output_retries": _checked_retries(name, output_retries),
            "worker": worker,
            "dialect": _dialect(name, worker, checked_tools),
            "custom_worker": None,
            "limits": _checked(name, "limits", limits, Limits),
            "model_settings": _checked(name, "model_settings", model_settings, ModelSettings),
            "metadata": metadata,
            "_fingerprint": "",
            "_typed": None if output_type is str else _output(name, output_type),
        }
        direct = next((tool.spec.name for tool in values["tools"] if tool.spec.return_direct), None)
        if direct is not None and output_type is not str:
            raise ConfigurationError(
                f"Agent {name!r}: the result of the tool {direct!r} would be the answer, of whatever type it is: give "
                "up its return_direct=, or output_type="
            )
        if worker != "function_calling" and values["dialect"] is None:
            from treadle.agents.workers.worker import worker_for

            values["custom_worker"] = worker_for(name, worker, values["model"], checked_tools)
        for field, value in values.items():
            object.__setattr__(self, field, value)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"an Agent is immutable; make another one with agent.replace({name}=...)")

    def replace(self, **changes: Any) -> Agent[C]:
        """Return an agent like this one with some arguments of the constructor changed."""
        kept = {field: getattr(self, field) for field in self.__slots__ if field not in _WORKED_OUT}
        kept["tools"] = [tool for tool in self.tools if tool.spec.name not in self.agent_tools]
        unknown = set(changes) - set(kept)
        if unknown:
            raise ConfigurationError(f"Agent.replace: there is no argument {min(unknown)!r}")
        return Agent(**{**kept, **changes})

    def agent_tool(self, name: str) -> SubagentTool:
        """Return the tool of this name, which is an agent."""
        return cast("SubagentTool", next(tool for tool in self.tools if tool.spec.name == name))

    @property
    def model_name(self) -> str:
        """The model as `provider:model`."""
        return str(self.model) if isinstance(self.model, str) else self.model.name

    @property
    def typed(self) -> OutputType | None:
        """How answers are checked; None when they are text."""
        return self._typed

    @property
    def fingerprint(self) -> str:
        """A digest of name, model, instructions, worker, tools, their schemas and that of the output."""
        if not self._fingerprint:
            from pydantic_core import to_json

            told = self.instructions if isinstance(self.instructions, str) else self.instructions.__qualname__
            specs = [_spec_facts(tool.spec) for tool in self.tools]
            spoken = self.dialect or self.custom_worker
            worker = self.worker if spoken is None else spoken.facts()
            output = [self._typed.schema] if self._typed is not None else []
            offer = [] if self.offer is None else [{"offer": _offer_facts(self.offer)}]
            facts = to_json([self.name, self.model_name, told, worker, specs, *output, *offer])
            object.__setattr__(self, "_fingerprint", hashlib.sha256(facts).hexdigest()[:16])
        return self._fingerprint

    def __repr__(self) -> str:
        tools = ", ".join(tool.spec.name for tool in self.tools)
        return f"Agent({self.model_name!r}, name={self.name!r}, tools=[{tools}])"


class ModelText(str):
    """A model given as text, `provider:model`; its `repr` is that of the model it stands for, with its layers."""

    __slots__ = ()

    show: ClassVar[Callable[[str], str]] = str.__repr__
    """how it is shown: set by whoever knows what text stands for"""

    def __repr__(self) -> str:
        return type(self).show(str(self))


def _spec_facts(spec: ToolSpec) -> list[Any]:
    return [spec.name, spec.description, spec.parameters, spec.effect, spec.return_direct]


def _dialect(name: str, worker: Any, tools: Sequence[Tool]) -> Dialect | None:
    """Return the dialect that a worker is; None if it is none."""
    if worker == "function_calling":
        return None
    from treadle.agents.dialects.dialect import Dialect

    dialect: Any = worker
    if worker == "react":
        from treadle.agents.dialects.react import React

        dialect = React()
    elif worker == "planner":
        from treadle.agents.dialects.planner import Planner

        dialect = Planner()
    if isinstance(dialect, type) or not isinstance(dialect, Dialect):
        return None
    try:
        dialect.check([tool.spec.name for tool in tools])
    except ConfigurationError as error:
        raise ConfigurationError(f"Agent {name!r}: {error}") from None
    return dialect


def _checked_name(name: Any) -> str:
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", name):
        raise ConfigurationError(
            f"Agent name must be 1 to 64 letters, digits, '_', '-' or '.', first a letter or digit, got {name!r}"
        )
    return name


def _checked_model(name: str, model: Any) -> str | Model:
    if isinstance(model, str):
        if not model or model != model.strip():
            raise ConfigurationError(
                f"Agent {name!r}: model must be like 'openai:gpt-5.4-mini', got {model!r}"
            )
        return ModelText(model)
    if isinstance(model, type) or not isinstance(model, Model):
        raise ConfigurationError(
            f"Agent {name!r}: model must be text like 'openai:gpt-5.4-mini', or an object with `name` and "
            f"`stream(request)`, got {model!r}"
        )
    return model


def _checked_tools(name: str, tools: Any) -> tuple[Tool, ...]:
    if isinstance(tools, (str, bytes)) or not isinstance(tools, Sequence):
        raise ConfigurationError(f"Agent {name!r}: tools must be a list, got {tools!r}")
    checked: dict[str, Tool] = {}
    for index, tool in enumerate(cast("Sequence[Any]", tools)):
        if not isinstance(tool, Tool):
            what = f"the plain function {tool.__name__!r}" if hasattr(tool, "__name__") else repr(tool)
            raise ConfigurationError(
                f"Agent {name!r}: tools[{index}] is {what}; decorate it with @tool, which also declares its effects"
            )
        if tool.spec.name in checked:
            twice = tool.spec.name
            raise ConfigurationError(
                f"Agent {name!r}: two tools are named {twice!r}; give one `@tool(name=...)`"
            )
        checked[tool.spec.name] = tool
    return tuple(checked.values())


def _with_agents(name: str, tools: tuple[Tool, ...], subagents: Any) -> tuple[Tool, ...]:
    from treadle.agents.subagent import with_agents

    return with_agents(name, tools, subagents)


def _offer(name: str, offer: Any, tools: tuple[Tool, ...]) -> ToolSelector:
    from treadle.agents.tool_selection import checked_tool_selector

    try:
        return checked_tool_selector(offer, tools)
    except ConfigurationError as error:
        raise ConfigurationError(f"Agent {name!r}: {error}") from None


def _offer_facts(offer: ToolSelector) -> Json:
    from treadle.agents.tool_selection import facts

    return facts(offer)


def _output(name: str, output_type: Any) -> OutputType:
    from treadle.agents.output import OutputType

    return OutputType(name, output_type)


def _checked_mode(name: str, mode: Any) -> OutputMode:
    if mode not in get_args(OutputMode):
        raise ConfigurationError(
            f"Agent {name!r}: output_mode must be one of {', '.join(get_args(OutputMode))}, got {mode!r}"
        )
    return mode


def _checked_retries(name: str, retries: Any) -> int:
    if isinstance(retries, bool) or not isinstance(retries, int) or retries < 0:
        raise ConfigurationError(
            f"Agent {name!r}: output_retries must be a whole number from 0 up, got {retries!r}"
        )
    return retries


def _checked(name: str, field: str, value: Any, cls: type) -> Any:
    if value is None:
        return cls()
    if not isinstance(value, cls):
        raise ConfigurationError(f"Agent {name!r}: {field} must be {cls.__name__}(...), got {value!r}")
    return value
