"""`Agent`: a declaration of a model, instructions and tools. Immutable data without run state, shared by any tasks."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from inspect import signature
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Final,
    Generic,
    Literal,
    TypedDict,
    Unpack,
    cast,
    get_args,
    overload,
)

from treadle.agents.context import (
    ContextNeed,
    RequestContext,
    RunContext,
    is_checkable,
    is_type,
    type_named_by,
)
from treadle.agents.middleware import ToolMiddleware, checked_middleware
from treadle.agents.worker_choice import resolve_worker
from treadle.core.codec import exact_copy, flaw
from treadle.core.events import Join
from treadle.core.messages import Json
from treadle.core.model import ModelSettings
from treadle.core.observation import READ_OUTPUT
from treadle.core.refused_uses import can_be_called, no_function, refuses
from treadle.core.unknown_names import ExplainsNames, Listed, explains_arguments, explains_names, near_name
from treadle.errors import ConfigurationError
from treadle.policy.limits import Limits
from treadle.policy.verdicts import Judge, checked_judge
from treadle.ports import (
    ContextT,
    ContextT_contra,
    Model,
    OutputT,
    OutputT_co,
    PydanticAIClient,
    Tool,
    Toolset,
)

if TYPE_CHECKING:
    from treadle.agents.dialects.dialect import Dialect
    from treadle.agents.handoff import Handoff
    from treadle.agents.output import OutputType
    from treadle.agents.routing import Router
    from treadle.agents.subagent import Subagent
    from treadle.agents.tool_selection import ToolSelector
    from treadle.agents.worker_choice import WorkerChoice
    from treadle.agents.workers.worker import Decider, FunctionWorker
    from treadle.policy.guardrails import Guardrail

    class Arguments(TypedDict, Generic[ContextT], total=False):
        """The arguments of `Agent` that do not name the types of its context and its output."""

        name: str
        description: str
        instructions: Instructions[ContextT] | Path
        tools: Sequence[Tool[ContextT] | Toolset]
        subagents: Sequence[Agent[ContextT, Any] | Subagent | str]
        join: Join
        handoffs: Sequence[Agent[ContextT, Any] | Handoff[Any] | str]
        router: Router[ContextT] | None
        offer: ToolSelector[ContextT] | None
        output_mode: OutputMode
        output_retries: int
        worker: WorkerChoice[ContextT]
        limits: Limits | None
        policy: Judge | None
        middleware: Sequence[ToolMiddleware]
        guardrails: Sequence[Guardrail]
        model_settings: ModelSettings | None
        metadata: Json

    class Changes(Arguments[Any], total=False):
        """The arguments of `Agent.replace` that do not change the types of an agent."""

        model: str | Model | PydanticAIClient | None


OutputMode = Literal["auto", "native", "tool", "prompt"]
"""The ways to ask a model for a typed answer: the provider's structured output, a tool, or the prompt."""

Instructions = str | Callable[[RunContext[ContextT]], str | Awaitable[str]]
"""Text, or a function that returns it: called once per task, before its first request."""

_UNSTATED: Any = None
"""The default of `context_type=`: of type Any, so that type checkers infer Any if nothing else names the context."""

_DERIVED: Final = (
    "_fingerprint",
    "_typed",
    "context_needs",
    "custom_worker",
    "dialect",
    "subagent_terms",
    "handoffs_by_tool",
    "subagents_by_tool",
    "toolsets",
)
"""The fields of an agent that are computed from the others."""


@explains_arguments
@refuses(
    call="a runner runs agents: `await runner.run(agent, text)`, or `runner.run_sync(agent, text)` without asyncio"
)
@explains_names("Agent")
class Agent(Generic[ContextT_contra, OutputT_co], metaclass=ExplainsNames):
    """A model, instructions and tools under a name, which a runner runs.

    `Agent[Context, Output]` names the types of its context and its answer. Functions and tools take the context. Type
    checkers infer both from `context_type=`, the tools and `output_type=`.

    Args:
        model: `provider:model`, a `Model` object, or an instance of a model class of pydantic-ai. The default is the
            model of the runner, `Runner(model=)`.
        name: stored with each task; a process finds the agent of a task by it.
        instructions: text, the `Path` of a text file, or a function of `RunContext`, sync or async. A file is read when
            the agent is made; a function is called once per task.
        description: the purpose of the agent, for the models of agents that may call it.
        tools: functions decorated with `@tool`. Their names must differ. An `MCPServer` adds all tools that it lists.
        subagents: agents that this one may call. Each is offered to the model as a tool of the same name, which takes
            a text. A call runs as a task of its own below this one; its answer is the call's result. A name refers to
            the agent that the runner knows by it, so an agent may call itself. `Subagent(agent, timeout=...)` sets
            the terms of its calls.
        join: how many of the subagents called in one answer must answer before the step continues. `all` is the
            default. With `any` or `Quorum(n)` the others are then stopped, and failures of a few do not count. With
            `optional` all have to end, and no failure counts.
        handoffs: agents that a conversation may move to, in the same task. Each is an `Agent`, the name of one that the
            runner knows, or `Handoff(...)` with its terms. The model moves the conversation by calling `transfer_to_`
            and the name. The next step then belongs to that agent, with its own model, tools, instructions and output
            type.
        router: a function of `RequestContext`, sync or async, that chooses how each step continues. It is called before
            the step's first request. It returns `Route(subagent, input=...)`, several of these, an agent to hand over
            to, or None to call the model. Its choice is journalled, and it is not called again.
        offer: selects the tools of each request: a `ToolIndex`, or a function of `RequestContext` that returns tools or
            their names. It is called once for each request, in the event loop. None offers all tools.
        context_type: the type of the `context` of the agent's tasks. It is checked before any request is sent. So are
            the types that its functions and tools name, as in `ToolContext[Session]`.
        output_type: the type of the answer, any that pydantic supports, unions included. `str` leaves it text.
        output_mode: how the model is asked for it. `native` is the provider's structured output, `tool` is a call, and
            `prompt` is instructions. `auto` takes the mode that the model supports best.
        output_retries: how many wrong answers in a row are sent back to the model before the step fails.
        worker: the kind of reasoning. The default is `function_calling`. For models without tool calls: `react`,
            `planner`, `React(...)`, `Planner(...)` or another `Dialect`. For sub-tasks that run in parallel:
            `plan_refine` or `PlanRefine(...)`. Or a custom worker: a function of `StepContext` that returns a
            `StepResult`, an `AgentWorker`, or `Decider(decide)`.
        limits: hard limits of each task.
        policy: judges each tool call before it starts, beside the policy of the runner. The stricter verdict holds. It
            also applies to the agents that this one calls.
        middleware: async functions `(call, next)` around each call that its model makes, the first outermost. They run
            inside the runner's middleware and outside the tool's.
        guardrails: check user messages, answers and tool results, beside the guardrails of the runner.
        model_settings: sent with each request.
        metadata: JSON data for the application; Treadle does not read it.

    Raises:
        ConfigurationError: a value is not valid; the message names the field.
    """

    __slots__ = (
        "_fingerprint",
        "_typed",
        "context_needs",
        "context_type",
        "custom_worker",
        "description",
        "dialect",
        "guardrails",
        "handoffs",
        "handoffs_by_tool",
        "instructions",
        "join",
        "limits",
        "metadata",
        "middleware",
        "model",
        "model_settings",
        "name",
        "offer",
        "output_mode",
        "output_retries",
        "output_type",
        "policy",
        "router",
        "subagent_terms",
        "subagents",
        "subagents_by_tool",
        "tools",
        "toolsets",
        "worker",
    )

    model: str | Model
    name: str
    instructions: Instructions[Any]
    description: str
    tools: tuple[Tool, ...]
    """all tools that its model may call, also those that call subagents or hand over.

    Once a drive has begun, those that `toolsets` list too.
    """

    toolsets: tuple[Toolset, ...]
    """the toolsets, which list further tools when a drive begins"""

    subagents: tuple[Agent[Any] | Subagent | str, ...]
    subagents_by_tool: Mapping[str, Agent[Any] | str]
    """the subagents by the names of the tools that call them"""

    subagent_terms: Mapping[str, Subagent]
    """the terms of subagents that have their own, by the names of these tools"""

    join: Join
    handoffs: tuple[Agent[Any] | Handoff[Any] | str, ...]
    handoffs_by_tool: Mapping[str, Handoff[Any]]
    """the handoffs by the names of the tools that move a conversation"""

    router: Router[Any] | None
    offer: ToolSelector[Any] | None
    context_type: Any
    """the required type of the context; None if only the agent's functions and tools name one"""

    context_needs: tuple[ContextNeed, ...]
    """the required types of the context, of the agent, its tools and its functions"""

    output_type: Any
    output_mode: OutputMode
    output_retries: int
    worker: WorkerChoice[Any]
    dialect: Dialect | None
    """the text protocol between the agent and its model; None for the provider's tool calls"""

    custom_worker: FunctionWorker | Decider | None
    """the worker of an agent whose worker is custom or `plan_refine`; None for the other workers"""

    limits: Limits
    policy: Judge | None
    middleware: tuple[ToolMiddleware, ...]
    guardrails: tuple[Guardrail, ...]
    model_settings: ModelSettings
    metadata: Json
    _fingerprint: str
    _typed: OutputType[OutputT_co] | None

    @overload
    def __init__(
        self: Agent[ContextT, str],
        model: str | Model | PydanticAIClient | None = ...,
        *,
        context_type: type[ContextT] | None = _UNSTATED,
        **others: Unpack[Arguments[ContextT]],
    ) -> None: ...
    @overload
    def __init__(
        self: Agent[ContextT, OutputT],
        model: str | Model | PydanticAIClient | None = ...,
        *,
        context_type: type[ContextT] | None = _UNSTATED,
        output_type: type[OutputT],
        **others: Unpack[Arguments[ContextT]],
    ) -> None: ...
    @overload
    def __init__(
        self: Agent[ContextT, Any],
        model: str | Model | PydanticAIClient | None = ...,
        *,
        context_type: type[ContextT] | None = _UNSTATED,
        output_type: Any,
        **others: Unpack[Arguments[ContextT]],
    ) -> None: ...
    def __init__(
        self,
        model: str | Model | PydanticAIClient | None = None,
        *,
        name: str = "agent",
        description: str = "",
        instructions: Instructions[Any] | Path = "",
        tools: Sequence[Tool[Any] | Toolset] = (),
        subagents: Sequence[Agent[Any] | Subagent | str] = (),
        join: Join = "all",
        handoffs: Sequence[Agent[Any] | Handoff[Any] | str] = (),
        router: Router[Any] | None = None,
        offer: ToolSelector[Any] | None = None,
        context_type: type[Any] | None = None,
        output_type: Any = str,
        output_mode: OutputMode = "auto",
        output_retries: int = 2,
        worker: WorkerChoice[Any] = "function_calling",
        limits: Limits | None = None,
        policy: Judge | None = None,
        middleware: Sequence[ToolMiddleware] = (),
        guardrails: Sequence[Guardrail] = (),
        model_settings: ModelSettings | None = None,
        metadata: Json = None,
    ) -> None:
        instructions = _checked_instructions(name, instructions)
        single_tools, toolsets = _checked_tools(name, tools)
        checked_tools, subagents_by_tool, subagent_terms = _with_subagents(name, single_tools, subagents)
        checked_tools, handoffs_by_tool = _with_handoffs(name, checked_tools, handoffs)
        values: dict[str, Any] = {
            "name": _checked_name(name),
            "model": _checked_model(name, model),
            "instructions": instructions,
            "description": _checked_description(name, description),
            "tools": Listed(checked_tools),
            "toolsets": toolsets,
            "subagents": tuple(subagents),
            "subagents_by_tool": subagents_by_tool,
            "subagent_terms": subagent_terms,
            "join": join if join == "all" else _checked_join(name, join),
            "handoffs": tuple(handoffs),
            "handoffs_by_tool": handoffs_by_tool,
            "router": router,
            "offer": None if offer is None else _checked_offer(name, offer, checked_tools),
            "context_type": context_type,
            "output_type": output_type,
            "output_mode": _checked_mode(name, output_mode),
            "output_retries": _checked_retries(name, output_retries),
            "worker": worker,
            "limits": _checked(name, "limits", limits, Limits),
            "policy": checked_judge(f"Agent {name!r}: policy", policy),
            "middleware": checked_middleware(f"Agent {name!r}: middleware", middleware) if middleware else (),
            "guardrails": _checked_guardrails(name, guardrails) if guardrails != () else (),
            "model_settings": _checked_settings(name, model_settings, checked_tools, toolsets),
            "metadata": None if metadata is None else _checked_metadata(name, metadata),
            "_fingerprint": "",
            "_typed": None if output_type is str else _output(name, output_type),
        }
        if output_type is not str:
            _check_no_direct_result(name, checked_tools)
        try:
            values["dialect"], values["custom_worker"] = resolve_worker(
                worker, values["model"], checked_tools
            )
        except ConfigurationError as error:
            raise ConfigurationError(f"Agent {name!r}: {error}") from None
        _check_team(name, router, values)
        values["context_needs"] = _context_needs(name, context_type, values)
        for field, value in values.items():
            object.__setattr__(self, field, value)

    if not TYPE_CHECKING:

        def __class_getitem__(cls, types: Any) -> Any:
            """Also accept `Agent[Context]`, whose other type is Any for type checkers."""
            return super().__class_getitem__(types if isinstance(types, tuple) else (types, Any))

    @property
    def function_worker(self) -> FunctionWorker | None:
        """The worker whose functions are the steps of the agent's tasks; None if they are not functions."""
        worker = self.custom_worker
        return cast("FunctionWorker", worker) if worker is not None and worker.runs_functions else None

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"an Agent is immutable; make another one with agent.replace({name}=...)")

    @overload
    def replace(
        self, *, context_type: type[ContextT], output_type: type[OutputT], **changes: Unpack[Changes]
    ) -> Agent[ContextT, OutputT]: ...
    @overload
    def replace(
        self, *, output_type: type[OutputT], **changes: Unpack[Changes]
    ) -> Agent[ContextT_contra, OutputT]: ...
    @overload
    def replace(self, *, output_type: Any, **changes: Unpack[Changes]) -> Agent[ContextT_contra, Any]: ...
    @overload
    def replace(
        self, *, context_type: type[ContextT], **changes: Unpack[Changes]
    ) -> Agent[ContextT, OutputT_co]: ...
    @overload
    def replace(self, **changes: Unpack[Changes]) -> Agent[ContextT_contra, OutputT_co]: ...
    def replace(self, **changes: Any) -> Agent[Any, Any]:
        """Return a copy of this agent with some arguments of the constructor changed."""
        arguments = {field: getattr(self, field) for field in self.__slots__ if field not in _DERIVED}
        arguments["tools"] = [*self._single_tools(), *self.toolsets]
        unknown = set(changes) - set(arguments)
        if unknown:
            raise ConfigurationError(f"Agent.replace: there is no argument {min(unknown)!r}")
        return Agent(**{**arguments, **changes})

    def with_listed(self, tools: Sequence[Tool]) -> Agent[ContextT_contra, OutputT_co]:
        """Return this agent with the tools that its toolsets list now, as the same version of the agent."""
        listed = self.replace(tools=[*self._single_tools(), *tools])
        object.__setattr__(listed, "toolsets", self.toolsets)
        object.__setattr__(listed, "_fingerprint", self.fingerprint)
        return listed

    def with_override(
        self, instructions: str | None, model: str | None
    ) -> Agent[ContextT_contra, OutputT_co]:
        """Return this agent with instructions or a model of a task, as the same version of the agent."""
        changes: Changes = {}
        if instructions is not None:
            changes["instructions"] = instructions
        if model is not None:
            changes["model"] = model
        overridden = self.replace(**changes)
        object.__setattr__(overridden, "_fingerprint", self.fingerprint)
        return overridden

    def _single_tools(self) -> list[Tool]:
        derived = {*self.subagents_by_tool, *self.handoffs_by_tool}
        return [tool for tool in self.tools if tool.spec.name not in derived]

    @property
    def model_name(self) -> str:
        """The model as `provider:model`; empty if the agent names none."""
        return str(self.model) if isinstance(self.model, str) else self.model.name

    @property
    def typed(self) -> OutputType[OutputT_co] | None:
        """The type of typed answers; None for text."""
        return self._typed

    @property
    def fingerprint(self) -> str:
        """A digest of the name, model, instructions, worker, tools, their schemas and the output schema.

        Policy, guardrails, middleware and limits are left out. They apply to each call when it is made, even in tasks
        that began with others. Their decisions are in the journal.
        """
        if not self._fingerprint:
            from pydantic_core import to_json

            written = self.instructions
            instructions = written if isinstance(written, str) else _name_of(written)
            specs = [
                [spec.name, spec.description, spec.parameters, spec.effect, spec.return_direct]
                for spec in (tool.spec for tool in self.tools)
            ]
            described = self.dialect or self.custom_worker
            worker = self.worker if described is None else described.facts()
            output = [self._typed.schema] if self._typed is not None else []
            offer = [] if self.offer is None else [{"offer": _offer_facts(self.offer)}]
            handoffs = [{"handoffs": _handoff_facts(self.handoffs_by_tool)}] if self.handoffs_by_tool else []
            if self.router is not None:
                handoffs.append({"router": _name_of(self.router)})
            sets = [{"toolsets": [each.facts() for each in self.toolsets]}] if self.toolsets else []
            further = [*output, *offer, *handoffs, *sets]
            facts = to_json([self.name, self.model_name, instructions, worker, specs, *further])
            object.__setattr__(self, "_fingerprint", hashlib.sha256(facts).hexdigest()[:16])
        return self._fingerprint

    def __repr__(self) -> str:
        sets = [f"{each.name}__*" for each in self.toolsets]
        tools = ", ".join([*(tool.spec.name for tool in self.tools), *sets])
        return f"Agent({self.model_name!r}, name={self.name!r}, tools=[{tools}])"


_NO_HANDOFFS: Final = (
    "takes a worker whose steps are the answers of its model (function_calling, react, planner); this one "
    "ends its steps itself, and may call subagents="
)


def _accept(_name: str) -> None: ...


def _unchanged(model: Any) -> Any:
    return model


@refuses(call="instructions are an argument, text or a function of RunContext: `Agent(instructions=...)`")
class InstructionsText(str):
    """Instructions as text. Pydantic AI has a decorator of this name, so a call raises advice."""

    __slots__ = ()


class ModelText(str):
    """The name of a model, `provider:model`; its `repr` is that of the model with its layers."""

    __slots__ = ()

    show: ClassVar[Callable[[str], str]] = str.__repr__
    """Return the `repr` of a name; set by `treadle.model_names`."""

    check: ClassVar[Callable[[str], None]] = _accept
    """Raise `ConfigurationError` for a name without a model; set by `treadle.model_names`."""

    adapt: ClassVar[Callable[[Any], Any]] = _unchanged
    """Return a model object of pydantic-ai as a `Model`; set by `treadle.model_names`."""

    def __repr__(self) -> str:
        return type(self).show(str(self)) if self else "''"


NO_MODEL: Final = ModelText("")
"""The model of an agent that names none; the runner's model replaces it."""


def _checked_name(name: Any) -> str:
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", name):
        raise ConfigurationError(
            f"Agent name must be 1 to 64 letters, digits, '_', '-' or '.', first a letter or digit, got {name!r}"
        )
    return name


def _name_of(function: Any) -> str:
    """Return the name of a function, of the function in a `partial`, or of the class of a callable object."""
    inner = getattr(function, "func", function)
    return getattr(inner, "__qualname__", type(inner).__qualname__)


def _checked_instructions(name: str, instructions: Any) -> Instructions[Any]:
    """Return instructions as text or a function; raises `ConfigurationError` for anything else."""
    if isinstance(instructions, Path):
        instructions = _read(name, instructions)
    if isinstance(instructions, str):
        if (beyond := flaw(instructions)) is not None:
            raise ConfigurationError(f"Agent {name!r}: instructions cannot be stored: they are {beyond}")
        return InstructionsText(instructions)
    if not can_be_called(instructions):
        raise ConfigurationError(
            f"Agent {name!r}: instructions must be text or a function, got {no_function(instructions)}"
        )
    _check_takes_context(name, instructions)
    return cast("Instructions[Any]", instructions)


def _checked_description(name: str, description: Any) -> str:
    if not isinstance(description, str):
        raise ConfigurationError(f"Agent {name!r}: description must be text, got {description!r}")
    return description


def _read(name: str, path: Path) -> str:
    """Return the instructions in a file, without white space around them."""
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else error.strerror
        raise ConfigurationError(f"Agent {name!r}: instructions: {path} cannot be read: {why}") from None
    if not text:
        raise ConfigurationError(f"Agent {name!r}: instructions: {path} is empty")
    return text


def _check_takes_context(name: str, instructions: Callable[..., Any]) -> None:
    try:
        signature(instructions).bind(None)
    except TypeError:
        raise ConfigurationError(
            f"Agent {name!r}: instructions must be a function of one argument, the RunContext"
        ) from None
    except ValueError:
        return  # a function of C, whose signature is unknown


def _checked_model(name: str, model: Any) -> str | Model:
    if model is None or (isinstance(model, ModelText) and not model):
        return NO_MODEL
    return checked_model(f"Agent {name!r}: model", model)


def checked_model(where: str, model: Any) -> str | Model:
    """Return the name of a model, or a model; raises `ConfigurationError` for anything else.

    Args:
        where: the argument and its owner, for the error.
        model: the argument.
    """
    if isinstance(model, str):
        if not model or model != model.strip():
            raise ConfigurationError(f"{where} must be like 'openai:gpt-5.4-mini', got {model!r}")
        try:
            ModelText.check(model)
        except ConfigurationError as error:
            raise type(error)(f"{where.removesuffix(': model')}: {error}") from None
        return ModelText(model)
    if not isinstance(model, type) and "pydantic_ai" in _packages(model) and hasattr(model, "request_stream"):
        model = ModelText.adapt(model)
    if isinstance(model, type) or not isinstance(model, Model):
        advice = ""
        if isinstance(model, (list, tuple)):
            advice = "; of several models, write Fallback([...]) (from treadle.models)"
        elif isinstance(model, type):
            advice = f"; make an object of the class: {model.__name__}(...)"
        raise ConfigurationError(
            f"{where} must be text like 'openai:gpt-5.4-mini', or an object with `name` and "
            f"`stream(request)`, got {model!r:.200}{advice}"
        )
    return model


def _checked_tools(name: str, tools: Any) -> tuple[tuple[Tool, ...], tuple[Toolset, ...]]:
    if isinstance(tools, (str, bytes)) or not isinstance(tools, Sequence):
        raise ConfigurationError(f"Agent {name!r}: tools must be a list, got {tools!r}")
    checked: dict[str, Tool] = {}
    toolsets: dict[str, Toolset] = {}
    for index, tool in enumerate(cast("Sequence[Any]", tools)):
        if isinstance(tool, Tool):
            if tool.spec.name in checked:
                twice = tool.spec.name
                raise ConfigurationError(
                    f"Agent {name!r}: two tools are named {twice!r}; give one `@tool(name=...)`"
                )
            checked[tool.spec.name] = tool
        elif isinstance(tool, Toolset) and not isinstance(tool, type):
            if tool.name in toolsets:
                raise ConfigurationError(f"Agent {name!r}: two toolsets are named {tool.name!r}; rename one")
            toolsets[tool.name] = tool
        else:
            raise ConfigurationError(f"Agent {name!r}: tools[{index}] is {_no_tool(tool)}")
    return tuple(checked.values()), tuple(toolsets.values())


_ADAPTERS: Final = {
    "langchain_core": ("LangChain", "*langchain_tools(...)"),
    "llama_index": ("LlamaIndex", "*llamaindex_tools(...)"),
    "pydantic_ai": ("Pydantic AI", "PydanticAIToolset(...)"),
}
"""The adapters that turn objects of other libraries into tools, by their packages."""


def _packages(value: Any) -> set[str]:
    """Return the packages that define the class of an object and its base classes."""
    return {kind.__module__.partition(".")[0] for kind in type(value).__mro__}


def _no_tool(value: Any) -> str:
    """Return a description of a value that is not a tool, with the advice for it."""
    packages = _packages(value)
    for package, (library, example) in _ADAPTERS.items():
        if package in packages:
            return f"a {type(value).__name__} of {library}; write {example} (from treadle.tools)"
    if type(value).__name__ == "CallerTool":
        return f"{value!r:.80}; the caller of a task runs it: RunOptions(caller_tools=[...])"
    if isinstance(value, Agent):
        return f"{value!r}; list it under subagents=[...]"
    if isinstance(value, (list, tuple)):
        return "a list of tools; write * before it: tools=[*..., other]"
    if isinstance(value, type):
        return f"the class {value.__name__!r}; a tool is a function decorated with @tool, or a method of an object"
    if can_be_called(value):
        description = f"the plain function {value.__name__!r}" if hasattr(value, "__name__") else repr(value)
        return f"{description}; decorate it with @tool, which also declares its effects"
    return f"{value!r:.80}; list the function itself, decorated with @tool, without calling it"


def _check_no_direct_result(name: str, tools: Sequence[Tool]) -> None:
    """Raise `ConfigurationError` for a tool whose direct result would not have the output type."""
    direct = next((tool.spec.name for tool in tools if tool.spec.return_direct), None)
    if direct is not None:
        raise ConfigurationError(
            f"Agent {name!r}: the tool {direct!r} has return_direct=, but its result is not of the output type: "
            "remove return_direct= or output_type="
        )


def _with_subagents(
    name: str, tools: tuple[Tool, ...], subagents: Any
) -> tuple[tuple[Tool, ...], dict[str, Agent[Any] | str], dict[str, Subagent]]:
    """Return an agent's tools with those that call subagents, and these agents and their terms by tool name."""
    if not subagents:
        return tools, {}, {}
    from treadle.agents.subagent import Subagent, SubagentTool

    if isinstance(subagents, (str, bytes)) or not isinstance(subagents, Sequence):
        raise ConfigurationError(f"Agent {name!r}: subagents must be a list, got {subagents!r}")
    by_name: dict[str, Tool] = {tool.spec.name: tool for tool in tools}
    by_tool: dict[str, Agent[Any] | str] = {}
    terms_by_tool: dict[str, Subagent] = {}
    for index, subagent in enumerate(cast("Sequence[Any]", subagents)):
        terms = subagent if isinstance(subagent, Subagent) else None
        agent: Any = subagent if terms is None else terms.agent
        if not isinstance(agent, (Agent, str)) or not agent:
            raise ConfigurationError(
                f"Agent {name!r}: subagents[{index}] must be an Agent, or the name of one, got {agent!r}; "
                "functions are listed under tools=[...]"
            )
        called = (agent, "") if isinstance(agent, str) else (agent.name, agent.description)
        tool = SubagentTool(*called, terms)
        if tool.spec.name in by_name:
            raise ConfigurationError(
                f"Agent {name!r}: its subagent {tool.agent_name!r} has the name of another of its tools"
            )
        by_name[tool.spec.name], by_tool[tool.spec.name] = tool, agent
        if terms is not None:
            terms_by_tool[tool.spec.name] = terms
    return tuple(by_name.values()), by_tool, terms_by_tool


def _checked_join(name: str, join: Any) -> Join:
    """Return how many subagents an agent waits for; raises `ConfigurationError`."""
    is_number = isinstance(join, int) and not isinstance(join, bool) and join > 0
    if join not in ("any", "optional") and not is_number:
        raise ConfigurationError(
            f"Agent {name!r}: join must be 'all', 'any', 'optional' or Quorum(n), got {join!r}"
        )
    return join


def _with_handoffs(
    name: str, tools: tuple[Tool, ...], handoffs: Any
) -> tuple[tuple[Tool, ...], dict[str, Handoff[Any]]]:
    """Return an agent's tools with those that hand over, and the handoffs by tool name."""
    if isinstance(handoffs, (list, tuple)) and not handoffs:
        return tools, {}
    from treadle.agents.handoff import Handoff, HandoffTool, check_takes_over

    if isinstance(handoffs, (str, bytes)) or not isinstance(handoffs, Sequence):
        raise ConfigurationError(f"Agent {name!r}: handoffs must be a list, got {handoffs!r}")
    by_name: dict[str, Tool] = {tool.spec.name: tool for tool in tools}
    by_tool: dict[str, Handoff[Any]] = {}
    for index, item in enumerate(cast("Sequence[Any]", handoffs)):
        if not isinstance(item, (Handoff, Agent, str)) or not item:
            raise ConfigurationError(
                f"Agent {name!r}: handoffs[{index}] must be an Agent, the name of one, or Handoff(...), got {item!r}"
            )
        named = cast("Agent[Any] | Handoff[Any] | str", item)
        handoff = named if isinstance(named, Handoff) else Handoff(named)
        if handoff.agent_name == name:
            raise ConfigurationError(f"Agent {name!r}: handoffs[{index}] is the agent itself")
        if not isinstance(handoff.agent, str):
            check_takes_over(handoff.agent)
        tool = HandoffTool(handoff)
        if tool.spec.name in by_name:
            raise ConfigurationError(
                f"Agent {name!r}: its handoff to {handoff.agent_name!r} has the name of another of its tools, "
                f"{tool.spec.name!r}; give it one with Handoff(..., name=...)"
            )
        by_name[tool.spec.name], by_tool[tool.spec.name] = tool, handoff
    return tuple(by_name.values()), by_tool


def _check_team(name: str, router: Any, values: Mapping[str, Any]) -> None:
    """Raise `ConfigurationError` if the worker of an agent can neither hand over nor be routed."""
    if router is None and not values["handoffs"]:
        return
    if values["custom_worker"] is not None:
        field = "handoffs=" if router is None else "router="
        raise ConfigurationError(f"Agent {name!r}: {field} {_NO_HANDOFFS}")
    if router is not None:
        from treadle.agents.routing import checked_router

        try:
            checked_router(router, reaches_agents=bool(values["subagents"] or values["handoffs"]))
        except ConfigurationError as error:
            raise ConfigurationError(f"Agent {name!r}: {error}") from None


def _handoff_facts(handoffs: Mapping[str, Handoff[Any]]) -> Json:
    from treadle.agents.handoff import facts

    return facts(handoffs)


def _context_needs(name: str, context_type: Any, values: Mapping[str, Any]) -> tuple[ContextNeed, ...]:
    """Return the required types of the context in an agent with these fields."""
    if context_type is not None and not is_type(context_type):
        type_name = type(context_type).__name__
        raise ConfigurationError(
            f"Agent {name!r}: context_type must be a class, got an object of type {type_name}"
        )
    needs = [ContextNeed("it", context_type)] if context_type is not None else []
    if not isinstance(values["instructions"], str):
        function = type_named_by(values["instructions"], RunContext)
        needs.append(ContextNeed("the function of its instructions", function))
    needs += [
        ContextNeed(f"its tool {tool.spec.name!r}", getattr(tool, "context_type", None))
        for tool in values["tools"]
    ]
    if values["offer"] is not None:
        needs.append(ContextNeed("its offer=", type_named_by(values["offer"], RequestContext)))
    if values["custom_worker"] is not None:
        needs += values["custom_worker"].context_needs
    return tuple([need for need in needs if need.type is not None and is_checkable(need.type)])


def _checked_guardrails(name: str, guardrails: Any) -> tuple[Guardrail, ...]:
    from treadle.policy.guardrails import checked_guardrails

    return checked_guardrails(f"Agent {name!r}: guardrails", guardrails)


def _checked_offer(name: str, offer: Any, tools: tuple[Tool, ...]) -> ToolSelector[Any]:
    from treadle.agents.tool_selection import checked_tool_selector

    try:
        return checked_tool_selector(offer, tools)
    except ConfigurationError as error:
        raise ConfigurationError(f"Agent {name!r}: {error}") from None


def _offer_facts(offer: ToolSelector[Any]) -> Json:
    from treadle.agents.tool_selection import facts

    return facts(offer)


def _output(name: str, output_type: Any) -> OutputType[Any]:
    from treadle.agents.output import OutputType

    return OutputType(name, output_type)


def _checked_mode(name: str, mode: Any) -> OutputMode:
    if mode not in get_args(OutputMode):
        raise ConfigurationError(
            f"Agent {name!r}: output_mode must be one of {', '.join(get_args(OutputMode))}, got {mode!r}"
        )
    return mode


def _checked_metadata(name: str, metadata: Any) -> Json:
    try:
        exact_copy(metadata)
    except ValueError as error:
        raise ConfigurationError(f"Agent {name!r}: metadata {error}, got {metadata!r:.200}") from None
    return metadata


def _checked_settings(
    name: str, settings: Any, tools: Sequence[Tool], toolsets: Sequence[Toolset]
) -> ModelSettings:
    checked: ModelSettings = _checked(name, "model_settings", settings, ModelSettings)
    if checked.tool_choice is not None and not toolsets:  # the tools of toolsets are not known yet
        _check_tool_choice(name, checked.tool_choice, tools)
    return checked


def _check_tool_choice(name: str, choice: str, tools: Sequence[Tool]) -> None:
    """Raise `ConfigurationError` unless a choice is a keyword or names an offered tool."""
    names = [tool.spec.name for tool in tools]
    if choice in ("auto", "none", "required", "final_answer", READ_OUTPUT) or choice in names:
        return
    near = near_name(choice, [*names, "auto", "none", "required"])
    advice = (
        f"; did you mean {near!r}?" if near else f"; it has {', '.join(names)}" if names else "; it has none"
    )
    raise ConfigurationError(
        f"Agent {name!r}: model_settings: tool_choice must be 'auto', 'none', 'required' or the name of one of its "
        f"tools, got {choice!r:.80}{advice}"
    )


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
