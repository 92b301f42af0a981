"""The registry of a runner's agents by name and version, with their models and runtimes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, cast

from treadle.agents.agent import NO_MODEL, Agent
from treadle.agents.middleware import Layer, ToolMiddleware, layers_of
from treadle.core.events import AgentOverride
from treadle.core.messages import Json
from treadle.core.model import ModelAnswer, ModelDelta, ModelRequest
from treadle.core.observation import READ_OUTPUT
from treadle.core.redaction import named_secrets
from treadle.core.state import TaskState
from treadle.core.team import Team
from treadle.drivers import arguments
from treadle.engine.effect_context import AgentRuntime
from treadle.engine.metering import Pricing, check_prices
from treadle.engine.options import Breakpoint, RunOptions, from_json, limits_of, rules_for, was_raised
from treadle.engine.output_reader import OUTPUT_READER
from treadle.engine.vault import NO_VAULT, Vault
from treadle.errors import AgentUnknown, ConfigurationError, ModelError, TaskConflict, VersionRefused
from treadle.policy.limits import Limits
from treadle.ports import Model, Tool, has_part, model_names, model_secrets, until_loaded
from treadle.results.caller_tools import AnsweredTool, names_of

if TYPE_CHECKING:
    from treadle.agents.handoff import Filter
    from treadle.agents.output import OutputType
    from treadle.engine.typed_answers import TypedAnswers

MAX_VERSIONS: Final = 256
"""Maximum number of agents in a registry; each version of a name counts."""

UNKNOWN_HERE: Final = "which this process was not given"
"""Part of the errors about an unknown agent, before the advice."""


class _NoModel:
    """The model of a step function without one. Each request fails with the text `missing`."""

    name = ""

    def __init__(self, missing: str) -> None:
        self._missing = missing

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelDelta | ModelAnswer]:
        """Raise `ModelError`."""
        raise ModelError(self._missing, kind="invalid_request")
        yield  # an async generator has one


class AgentRegistry:
    """Finds the agents of tasks.

    Args:
        resolve_model: returns the model of a name.
        price: the prices of models.
        middleware: the runner's.
        vault: receives the keys of the models.
        model: the default for agents that name none; None if there is none.
    """

    def __init__(
        self,
        resolve_model: Callable[[str | Model], Model],
        price: Pricing,
        middleware: tuple[ToolMiddleware, ...] = (),
        vault: Vault = NO_VAULT,
        model: str | Model | None = None,
    ) -> None:
        self._default_model = model
        self._resolve_model = resolve_model
        self._price = price
        self._middleware = middleware
        self._vault = vault
        self._agents: dict[str, Agent[Any]] = {}
        self._versions: OrderedDict[str, Agent[Any]] = OrderedDict()
        self._overrides: OrderedDict[tuple[Agent[Any], AgentOverride], Agent[Any]] = OrderedDict()
        self._models: dict[str, Model] = {}
        self._with_caller_tools: OrderedDict[Agent[Any], tuple[Json, Agent[Any]]] = OrderedDict()
        self._runtimes: OrderedDict[tuple[Agent[Any], Agent[Any]], tuple[Json, AgentRuntime]] = OrderedDict()

    def register(self, agent: Agent[Any]) -> None:
        """Register an agent by its name, and the agents it can reach whose names are free."""
        arguments.agent("agent", agent)
        self._agents[agent.name] = agent
        for other in _targets_of(agent) if agent.handoffs_by_tool else agent.subagents_by_tool.values():
            if not isinstance(other, str) and other.name not in self._agents:
                self.register(other)
        version = agent.fingerprint
        self._versions[version] = agent
        self._versions.move_to_end(version)
        if len(self._versions) > MAX_VERSIONS:
            self._versions.popitem(last=False)

    def registered(self) -> list[Agent[Any]]:
        """Return the newest version of each registered agent, by name."""
        return [self._agents[name] for name in sorted(self._agents)]

    def has(self, name: str) -> bool:
        return name in self._agents

    def with_task(self, state: TaskState, agent: Agent[Any], offered: Agent[Any] | None = None) -> Agent[Any]:
        """Return the present agent of a task, in the offered version, else in the task's own version.

        Agents of one name may differ from task to task, for instance in a fork and its parent. Raises `AgentUnknown`
        after a handoff to an agent that is not registered.

        Args:
            state: the state of the task.
            agent: the registered agent that the task was created for.
            offered: the caller's agent for it, if any.
        """
        if state.team is not None and state.agent != agent.name:
            agent = self._find_reachable(state, agent, state.agent)
            offered = agent if offered is not None else None
        return self._with_override(state, offered or self._versions.get(state.fingerprint, agent))

    def _with_override(self, state: TaskState, agent: Agent[Any]) -> Agent[Any]:
        """Return an agent with the overrides of a fork that concern it."""
        override = state.override
        if override is None or override.agent != agent.name:
            return agent
        overridden = self._overrides.get((agent, override))
        if overridden is None:
            overridden = agent.with_override(override.instructions, override.model)
            self._overrides[agent, override] = overridden
            if len(self._overrides) > MAX_VERSIONS:
                self._overrides.popitem(last=False)
        return overridden

    def check_caller_tools(self, agent: Agent[Any] | str, options: RunOptions) -> None:
        """Raise `ConfigurationError` if a caller's tool has the name of a tool of an agent or of one it hands over to.

        An agent that is named but not registered is checked by its driver instead.
        """
        first = self.found(agent) if options.caller_tools else None
        team = [] if first is None else [first]
        for member in team:
            with_caller_tools(member, options)
            targets = [
                cast("Agent[Any] | str", handoff.agent) for handoff in member.handoffs_by_tool.values()
            ]
            members = [self.found(target) for target in targets]
            team += [other for other in members if other is not None and other not in team]

    def with_caller_tools(self, state: TaskState, agent: Agent[Any]) -> Agent[Any]:
        """Return an agent with the caller's tools, if the task's options declare any.

        Raises `ConfigurationError` if a tool of the agent has the name of one of them.
        """
        if not names_of(state.options):
            return agent
        cached = self._with_caller_tools.get(agent)
        if cached is None or cached[0] != state.options:
            cached = state.options, with_caller_tools(agent, from_json(state.options))
            self._with_caller_tools[agent] = cached
            if len(self._with_caller_tools) > MAX_VERSIONS:
                self._with_caller_tools.popitem(last=False)
        return cached[1]

    def member(self, state: TaskState, agent: Agent[Any], name: str) -> Agent[Any]:
        """Return a former or present agent of a task's conversation; raise `AgentUnknown`.

        Args:
            state: the state of the task.
            agent: an agent of the task; agents that it can reach precede others of the same name.
            name: the name of the wanted agent; the version that the task knows precedes others.
        """
        version = state.versions.get(name)
        version_agent = self._versions.get(version.fingerprint) if version is not None else None
        member = (
            version_agent
            if version_agent is not None and version_agent.name == name
            else self._find_reachable(state, agent, name)
        )
        return self._with_override(state, member)

    def _find_reachable(self, state: TaskState, agent: Agent[Any], name: str) -> Agent[Any]:
        reachable = (each for each in self.reachable(agent) if each.name == name)
        member = next(reachable, None) or self._agents.get(name)
        if member is None:
            raise AgentUnknown(
                f"task {state.task_id} was handed over to or by agent {name!r}, {UNKNOWN_HERE}: "
                f"list it under handoffs= of agent {agent.name!r}, or make the runner with Runner(agents=[...])"
            )
        return member

    def creator_of(self, state: TaskState, agent: Agent[Any]) -> Agent[Any]:
        """Return the agent that a task was created for; `agent` is its present one."""
        if state.team is None or state.created_for == agent.name:
            return agent
        return self.member(state, agent, state.created_for)

    def filters_of(self, state: TaskState, team: Team, agent: Agent[Any]) -> tuple[Filter, ...]:
        """Return the filters of the handoff to a task's present agent.

        Raises `AgentUnknown` or `VersionRefused` if they are not known.
        """
        if not team.tool:
            return ()
        previous = self.member(state, agent, team.previous)
        handoff = previous.handoffs_by_tool.get(team.tool)
        if handoff is None:
            raise VersionRefused(
                f"task {state.task_id} came to agent {team.agent!r} by the handoff {team.tool} of agent "
                f"{team.previous!r}, which no longer has that handoff: "
                "undo the handoff, or fork the task with agent=",
                task_id=state.task_id,
            )
        return handoff.filters

    def reviewer_of(self, state: TaskState) -> Agent[Any] | None:
        """Return a task's agent if its worker reviews the answer before the task ends."""
        agent = self._agents.get(state.agent)
        if agent is None or agent.custom_worker is None or not agent.custom_worker.finalizes_answers:
            return None
        return self._versions.get(state.fingerprint, agent)

    def typed_of(self, agent: Agent[Any]) -> TypedAnswers | None:
        """Return the request and parser of an agent's typed answers; None for text."""
        if agent.typed is None:
            return None
        from treadle.engine.typed_answers import typed_answers

        return typed_answers(agent, agent.typed, self._model_in_dialect(agent))

    def typed_named(self, name: str) -> TypedAnswers | None:
        """Return the request and parser of the agent of this name; None for text or an unknown agent."""
        agent = self._agents.get(name)
        return self.typed_of(agent) if agent is not None else None

    def output_type_of(self, state: TaskState) -> OutputType | None:
        """Return the type of a task's output, if its agent is registered and has an output type."""
        agent = self._versions.get(state.fingerprint) or self._agents.get(state.agent)
        return agent.typed if agent is not None else None

    def limits_of(self, state: TaskState) -> Limits:
        """Return the limits of a task, defaults included; those of its agent only if the agent is registered."""
        agent, options = self._versions.get(state.fingerprint) or self._agents.get(state.agent), state.options
        stored = from_json(options)
        limits = stored.limits or Limits()
        if agent is not None:
            limits = limits_of(agent, stored, raised=was_raised(options))
        return limits.with_defaults()

    def of(self, name: str, offered: Agent[Any] | None, task_id: str) -> Agent[Any]:
        """Return the agent of a task: the offered one, else the registered one.

        Raises `AgentUnknown` or `TaskConflict`.
        """
        if offered is not None:
            self.register(offered)
            if offered.name != name:
                message = (
                    f"task {task_id} belongs to agent {name!r}, got agent {offered.name!r}: "
                    "fork it to change its agent"
                )
                raise TaskConflict(message, task_id=task_id, field="agent")
            return offered
        agent = self._agents.get(name)
        if agent is None:
            raise AgentUnknown(
                f"task {task_id} belongs to agent {name!r}, {UNKNOWN_HERE}: pass agent=..., or make the runner "
                "with Runner(agents=[...]); on the command line use --agent module:agent, `agents` under "
                "[tool.treadle] in pyproject.toml, or TREADLE_AGENTS"
            )
        return agent

    def named(self, name: str, caller: Agent[Any]) -> Agent[Any]:
        """Return an agent that another agent may call by its name; raise `AgentUnknown`."""
        agent = self._agents.get(name)
        if agent is None:
            raise AgentUnknown(
                f"agent {caller.name!r} may call the agent {name!r}, {UNKNOWN_HERE}: make the runner "
                "with Runner(agents=[...]), or give the agent itself in subagents="
            )
        return agent

    def model_of(self, agent: Agent[Any]) -> Model:
        """Return the agent's model, else the runner's; a name is resolved once.

        Raises `ConfigurationError` if there is neither. A step function may ask no model, so its requests fail instead.
        """
        model = self._default_model if agent.model == NO_MODEL else agent.model
        if model is None:
            missing = (
                f"agent {agent.name!r} names no model, and the runner has none: write Agent('provider:model', ...), or "
                "make the runner with Runner(model='provider:model')"
            )
            if agent.function_worker is not None and not agent.function_worker.needs_model:
                return _NoModel(missing)
            raise ConfigurationError(missing)
        return self.model_named(model) if isinstance(model, str) else self._resolve_model(model)

    def model_name_of(self, agent: Agent[Any]) -> str:
        """Return the name of the model that an agent is driven with; empty if there is none."""
        model = self._default_model if agent.model == NO_MODEL else agent.model
        return "" if model is None else str(model) if isinstance(model, str) else model.name

    def model_named(self, name: str) -> Model:
        """Return the model of a name such as `provider:model`, resolved once; raise `ModelUnknown`."""
        model = self._models.get(name)
        if model is None:
            model = self._models[name] = self._resolve_model(name)
        return model

    def preload(self, agent: Agent[Any]) -> None:
        """Start loading the packages of the agent's model while its task is created."""
        with suppress(ConfigurationError):  # the error is raised where the model is needed
            model = self.model_of(agent)
            if has_part(model, "preload"):
                model.preload()

    async def check_prices(
        self, agent: Agent[Any], state: TaskState, options: RunOptions | None = None
    ) -> None:
        """Raise `PriceUnknown` if a task, under the options of a resume, has a cost limit that cannot be enforced."""
        limits, stored = options.limits if options is not None else None, state.options
        if limits is None:
            limits = limits_of(agent, from_json(stored), raised=was_raised(stored))
        breakpoints = (options.break_on if options is not None else None) or from_json(stored).break_on
        await self.check_limits(agent, limits, state, breakpoints)

    async def check_limits(
        self,
        agent: Agent[Any],
        limits: Limits,
        state: TaskState | None = None,
        breakpoints: Sequence[Breakpoint] | None = None,
    ) -> None:
        """Raise `PriceUnknown` for a limit or breakpoint on cost if a model of the task has no known price.

        A limit on time counts from here on, so the packages of all models of the task are loaded first.
        """
        if limits.seconds is not None:
            for each in self.reachable(agent):
                await until_loaded(self.model_of(each))
        if limits.cost is not None or (breakpoints and any(each.cost is not None for each in breakpoints)):
            models = [
                name for each in self.reachable(agent) for name in model_names(self.model_of(each)) if name
            ]
            await check_prices(self._price, dict.fromkeys(models), state)

    def reachable(self, agent: Agent[Any]) -> list[Agent[Any]]:
        """Return an agent and all registered agents that it may call or hand over to, directly or indirectly."""
        reachable = [agent]
        for caller in reachable:
            called = [self.found(other) for other in _targets_of(caller)]
            reachable += [other for other in called if other is not None and other not in reachable]
        return reachable

    def found(self, subagent: Agent[Any] | str) -> Agent[Any] | None:
        """Return an agent that another agent may call; None if it is named but not registered."""
        return self._agents.get(subagent) if isinstance(subagent, str) else subagent

    def _model_in_dialect(self, agent: Agent[Any]) -> Model:
        """Return the agent's model, wrapped in a `DialectModel` if the agent has a dialect."""
        model = self.model_of(agent)
        if agent.dialect is None:
            return model
        from treadle.agents.dialects.dialect import DialectModel

        return DialectModel(model, agent.dialect)

    def layers_of(self, agent: Agent[Any]) -> dict[str, tuple[Layer, ...]]:
        """Return the middleware of each tool of an agent that has any, the outermost first."""
        layers = {tool.spec.name: layers_of(tool, self._middleware, agent.middleware) for tool in agent.tools}
        return {name: each for name, each in layers.items() if each}

    def runtime_for(self, state: TaskState, agent: Agent[Any]) -> AgentRuntime:
        """Return the runtime of an agent for a drive under the task's options."""
        creator = agent if state.team is None else self.creator_of(state, agent)
        cached = self._runtimes.get((agent, creator))
        if cached is not None and cached[0] == state.options:
            return cached[1]
        if keys := model_secrets(self.model_of(agent)) | named_secrets(agent.model_settings.extra):
            self._vault.learn(keys)
        options = from_json(state.options)
        rules = rules_for(agent, options, raised=was_raised(state.options), besides=creator.limits)
        if agent.model == NO_MODEL:
            rules = replace(rules, model=self.model_name_of(agent))
        tools: dict[str, Tool] = {tool.spec.name: tool for tool in agent.tools}
        if tools:
            tools.setdefault(READ_OUTPUT, OUTPUT_READER)
        typed = self.typed_of(agent)
        if agent.custom_worker is not None:
            typed = None  # its answers are checked when its last step returns them
        if typed is not None and typed.mode == "tool":
            rules = replace(rules, asks_by_tool=True)
        final = (typed.tool,) if typed is not None and typed.tool is not None else ()
        specs = tuple([tool.spec for tool in agent.tools]) + final
        limit = options.tool_output_max_chars or 8_000
        tell_steps = rules.limits.allowed_steps if options.tell_steps_left else None
        runtime = AgentRuntime(
            agent,
            options,
            rules,
            self._model_in_dialect(agent),
            tools,
            specs,
            limit,
            tell_steps,
            agent.model_settings
            if options.model_settings is None
            else options.model_settings.over(agent.model_settings),
            typed,
            final,
            self.layers_of(agent) or None,
            {spec.name: spec.defined_by for spec in specs if spec.defined_by} or None,
        )
        self._runtimes[agent, creator] = state.options, runtime
        if len(self._runtimes) > MAX_VERSIONS:
            self._runtimes.popitem(last=False)
        return runtime


def _targets_of(agent: Agent[Any]) -> list[Agent[Any] | str]:
    """Return the agents that an agent may call or hand over to, some of them by name."""
    # A handoff refers to its agent by a protocol that only agents implement.
    targets = [cast("Agent[Any] | str", handoff.agent) for handoff in agent.handoffs_by_tool.values()]
    return [*agent.subagents_by_tool.values(), *targets]


def with_caller_tools(agent: Agent[Any], options: RunOptions) -> Agent[Any]:
    """Return an agent with the caller's tools from options; its version stays the same.

    Raises:
        ConfigurationError: a tool of the agent has the name of one of them.
    """
    tools = [AnsweredTool(tool) for tool in options.caller_tools or ()]
    taken = {tool.spec.name for tool in agent.tools}
    for tool in tools:
        if tool.spec.name in taken:
            raise ConfigurationError(
                f"RunOptions.caller_tools: agent {agent.name!r} has a tool {tool.spec.name!r} of its own; rename one"
            )
    return agent.with_listed(tools) if tools else agent
