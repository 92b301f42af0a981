"""Find an agent's code. Imports only modules that a person names, never a name from a journal."""

from __future__ import annotations

import os
import sys
import tomllib
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import field
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from traceback import FrameSummary, extract_tb
from typing import TYPE_CHECKING, Any, Final, cast

from treadle.agents.agent import Agent
from treadle.agents.middleware import ToolMiddleware, checked_middleware
from treadle.core.data import mutable
from treadle.core.observation import ERROR_CHARS, whole_error_text
from treadle.core.redaction import environment_secrets, hide_named, secrets_of
from treadle.core.refused_uses import can_be_called, no_function
from treadle.core.tools import ToolSpec
from treadle.core.unknown_names import near_name
from treadle.drivers.owned_tasks import BEING_IMPORTED
from treadle.drivers.user_context import checked_factory
from treadle.engine.vault import SecretSource, checked_sources
from treadle.errors import AgentUnknown, ConfigurationError
from treadle.llm.default_layers import resolve
from treadle.llm.registry import default_model, local_ollama
from treadle.results.tasks import Task

if TYPE_CHECKING:
    from treadle.policy.policy import Policy

ASSISTANT: Final = "assistant"
"""The name of the agent that `treadle run INPUT` runs."""
DEMO: Final = "treadle-demo"
"""The name of the agent of `treadle demo`."""
_SETTINGS: Final = ("agents", "context_factory", "mcp_servers", "middleware", "policy", "sandbox", "secrets")
"""The keys of [tool.treadle] in pyproject.toml."""

LISTING: Final = (
    'list it in pyproject.toml as `agents = ["module:agent"]` under [tool.treadle], or '
    "in TREADLE_AGENTS (comma-separated)"
)
WAYS: Final = f"give --agent module:agent, or {LISTING}"


@mutable
class ListedAgents:
    """The project's agents by name, and the import errors by place."""

    agents: dict[str, Agent[Any]] = field(default_factory=dict[str, Agent[Any]])
    problems: dict[str, str] = field(default_factory=dict[str, str])


def listed_agents() -> ListedAgents:
    """Import the agents listed in pyproject.toml, else in TREADLE_AGENTS."""
    listed = ListedAgents()
    for path in listed_paths():
        try:
            for agent in agents_at(path):
                listed.agents.setdefault(agent.name, agent)
        except ConfigurationError as error:
            listed.problems[path] = str(error)
    return listed


def known_specs(listed: Iterable[Agent[Any]]) -> dict[str, ToolSpec] | None:
    """Return the tools of agents by name, including the known tools of their toolsets.

    None if a toolset was never listed, since then any name may belong to a tool.
    """
    specs: dict[str, ToolSpec] = {}
    for agent in listed:
        specs |= {tool.spec.name: tool.spec for tool in agent.tools}
        for toolset in agent.toolsets:
            toolset_specs = toolset.known_specs()
            if toolset_specs is None:
                return None
            specs |= {spec.name: spec for spec in toolset_specs}
    return specs


def listed_paths() -> list[str]:
    """Return the places, each `module:agent`, in pyproject.toml (searched upward) or TREADLE_AGENTS."""
    project = _project()
    if project is not None:
        paths: Any = _settings_in(project).get("agents", [])
        if not isinstance(paths, list) or not all(isinstance(p, str) for p in cast("list[Any]", paths)):
            raise ConfigurationError(
                f"{project}: [tool.treadle] agents must be a list of texts `module:agent`"
            )
        if paths:
            _add_to_path(project.parent)
            return cast("list[str]", paths)
    paths = [path.strip() for path in os.environ.get("TREADLE_AGENTS", "").split(",")]
    return [path for path in paths if path]


def project_with_servers() -> Path | None:
    """Return the nearest pyproject.toml, if it lists MCP servers."""
    project = _project()
    return project if project is not None and "mcp_servers" in _settings_in(project) else None


def _project() -> Path | None:
    """Return the nearest pyproject.toml, searched upward as far as permitted."""
    paths = (folder / "pyproject.toml" for folder in (Path.cwd(), *Path.cwd().parents))
    for path in paths:
        with suppress(PermissionError):
            if path.is_file():
                return path
    return None


def _settings_in(project: Path) -> dict[str, Any]:
    try:
        document = tomllib.loads(project.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigurationError(f"{project} cannot be read: {error}") from error
    settings: Any = document.get("tool", {}).get("treadle", {})
    if not isinstance(settings, dict):
        raise ConfigurationError(f"{project}: tool.treadle must be a table, got {settings!r:.200}")
    for name in cast("dict[str, Any]", settings):
        if name not in _SETTINGS:
            near = near_name(name, _SETTINGS)
            hint = f"did you mean {near!r}?" if near else f"the settings are {', '.join(_SETTINGS)}"
            raise ConfigurationError(f"{project}: [tool.treadle] has no setting {name!r:.80}; {hint}")
    return cast("dict[str, Any]", settings)


def listed_context_factory() -> Callable[[Task[Any]], Any] | None:
    """Return the function that makes the contexts of tasks, from pyproject.toml, else from TREADLE_CONTEXT_FACTORY.

    None if neither names a function.

    Raises:
        ConfigurationError: the function does not exist or cannot be called with a task.
    """
    project = _project()
    path: Any = _settings_in(project).get("context_factory") if project is not None else None
    if path is not None and project is not None:
        _add_to_path(project.parent)
    path = path or os.environ.get("TREADLE_CONTEXT_FACTORY")
    if not path:
        return None
    if not isinstance(path, str):
        raise ConfigurationError(
            f"[tool.treadle] context_factory must be a text `module:function`, got {path!r}"
        )
    factory = value_at(path, "a context factory", "module:function")
    if factory is None:
        raise ConfigurationError(f"{path} is None instead of a function that makes a context from a task")
    return checked_factory(factory)


def listed_policy(option: str | None) -> Policy | None:
    """Return the policy of the file in `--policy`, else pyproject.toml, else TREADLE_POLICY; None without one.

    Args:
        option: the value of `--policy`.

    Raises:
        ConfigurationError: the file cannot be read, or is not valid.
    """
    path = policy_file(option)
    if path is None:
        return None
    from treadle.policy.policy import Policy

    return Policy.from_file(path)


def policy_file(option: str | None) -> Path | None:
    """Return the policy's path: the option, else from pyproject.toml, else from TREADLE_POLICY; None without one.

    Raises:
        ConfigurationError: the setting in pyproject.toml is not a path.
    """
    project = _project()
    setting: Any = _settings_in(project).get("policy") if project is not None else None
    if setting is not None and (not isinstance(setting, str) or not setting):
        raise ConfigurationError(
            f"{project}: [tool.treadle] policy must be the path of a file, got {setting!r:.200}"
        )
    path = option or (setting and project and project.parent / setting) or os.environ.get("TREADLE_POLICY")
    return Path(path) if path else None


def listed_secrets() -> dict[str, SecretSource]:
    """Return the sources of secrets by name: from `[tool.treadle.secrets]` in pyproject.toml, else TREADLE_SECRETS.

    A source is `env:NAME`, `file:PATH` (in pyproject.toml, relative to its folder) or `call:module:function`.
    TREADLE_SECRETS lists them as `name=source`, separated by commas.

    Raises:
        ConfigurationError: a source is not valid, or a function cannot be imported. The error shows no source.
    """
    project = _project()
    setting: Any = _settings_in(project).get("secrets") if project is not None else None
    label, folder = f"{project}: [tool.treadle.secrets]", project.parent if project is not None else Path()
    if not setting:
        pairs = [part.partition("=") for part in os.environ.get("TREADLE_SECRETS", "").split(",") if part]
        setting = {name.strip(): source.strip() for name, _, source in pairs}
        label, folder = "TREADLE_SECRETS", Path()
    if not isinstance(setting, dict):
        raise ConfigurationError(f"{label} must be a table of sources such as crm = 'env:CRM_TOKEN'")
    sources: dict[str, Any] = {}
    for name, source in cast("dict[str, Any]", setting).items():
        kind, _, location = source.partition(":") if isinstance(source, str) else ("", "", "")
        if kind == "call":
            _add_to_path(folder.absolute())
            source = value_at(location, "a secret", "module:function")
        sources[name] = folder / location if kind == "file" and location else source
    checked_sources(label, sources)
    return sources


def listed_middleware() -> tuple[ToolMiddleware, ...]:
    """Return the middleware listed under [tool.treadle], each as `module:name`, the first outermost.

    Raises:
        ConfigurationError: an entry cannot be imported, or is not middleware.
    """
    project = _project()
    paths: Any = _settings_in(project).get("middleware", []) if project is not None else []
    if not isinstance(paths, list) or not all(isinstance(path, str) for path in cast("list[Any]", paths)):
        raise ConfigurationError(
            f"{project}: [tool.treadle] middleware must be a list of texts `module:name`"
        )
    if project is not None and paths:
        _add_to_path(project.parent)
    middleware = [value_at(path, "middleware", "module:name") for path in cast("list[str]", paths)]
    return checked_middleware("[tool.treadle] middleware", middleware)


def _add_to_path(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def agents_at(path: str) -> list[Agent[Any]]:
    """Return the agent, or the list of agents, at `module:name`.

    Raises:
        ConfigurationError: the place does not exist, cannot be imported, or is not an agent.
    """
    value = value_at(path, "an agent", "module:agent")
    agents: list[Any] = [value] if not isinstance(value, (list, tuple)) else [*cast("list[Any]", value)]
    if not agents or not all(isinstance(agent, Agent) for agent in agents):
        module, _, name = path.partition(":")
        advice = _call(name) if can_be_called(cast("object", value)) else _agents_in(module)
        raise ConfigurationError(f"{path} is not an Agent, but {value!r:.200}{advice}")
    return agents


def named_agents(paths: Sequence[str], ways: str = WAYS) -> tuple[Agent[Any], ...]:
    """Return the agents at these places; without places, the project's.

    Args:
        paths: the places, each as `module:agent`.
        ways: advice for the error: the ways to name an agent.

    Raises:
        ConfigurationError: there is none, or one cannot be imported.
    """
    if paths:
        return tuple([agent for path in paths for agent in agents_at(path)])
    listed = listed_agents()
    if not listed.agents:
        problems = "".join(f"; {path}: {problem}" for path, problem in listed.problems.items())
        raise ConfigurationError(f"there is no agent to drive tasks with: {ways}{problems}")
    return tuple(listed.agents.values())


def callable_at(path: str, description: str) -> Callable[..., Any]:
    """Return the callable at `module:callable`.

    Args:
        path: the place.
        description: the needed callable, for messages, such as `a function that returns the principal of a request`.

    Raises:
        ConfigurationError: the place does not exist, cannot be imported, or is not callable.
    """
    value = value_at(path, description, "module:callable")
    if not can_be_called(value):
        raise ConfigurationError(f"{path} is not {description}, but {no_function(value)}")
    return value


def value_at(path: str, description: str, form: str) -> Any:
    """Import the value at a place, such as `module:agent`.

    Args:
        path: the place.
        description: the needed value, for messages, such as `an agent`.
        form: the form of a place, for messages.

    Raises:
        ConfigurationError: the place does not exist, or cannot be imported.
    """
    module, colon, name = path.partition(":")
    if not colon or not module or not name:
        raise ConfigurationError(f"{path!r} does not say where {description} is: write {form}")
    if module.endswith(".py"):  # an import would first run the file as a module
        module_path = f"{module[:-3].replace('/', '.')}:{name}"
        raise ConfigurationError(f"{path} cannot be imported: write the module without .py: {module_path}")
    _add_to_path(Path.cwd())
    BEING_IMPORTED.append(module)
    try:
        value: Any = import_module(module)
        for part in name.split("."):
            value = getattr(value, part)
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:  # any error of the user's module, including SystemExit
        advice = _advice(module, name, error)
        raise ConfigurationError(
            f"{path} cannot be imported: {error_without_secrets(error)}{advice}"
        ) from error
    finally:
        BEING_IMPORTED.pop()
    return value


def error_without_secrets(error: BaseException) -> str:
    """Return the text of an error in the user's code, with secrets masked before the text is cut."""
    environment = secrets_of(frozenset(environment_secrets(os.environ)))
    return hide_named(environment.hide_and_cut(hide_named(whole_error_text(error)), ERROR_CHARS))


def without_secrets(text: str) -> str:
    """Return a text with secrets of the environment and named keys masked."""
    return hide_named(secrets_of(frozenset(environment_secrets(os.environ))).hide(text, deep=True))


def _advice(module: str, name: str, error: BaseException) -> str:
    """Return advice on an import error of `name` in `module`, if its cause is visible."""
    if isinstance(error, ModuleNotFoundError) and (error.name or "") in (module, module.partition(".")[0]):
        return f"; Python searches {Path.cwd()} and the installed packages"
    if isinstance(error, AttributeError) and module in sys.modules:
        return _agents_in(module)
    return next((f" ({Path(frame.filename).name}, line {frame.lineno})" for frame in _frames_of(error)), "")


def _frames_of(error: BaseException) -> list[FrameSummary]:
    """Return an error's frames outside of Treadle, imports and event loops, the innermost first."""
    ours = str(Path(__file__).parents[1])
    frames = [
        frame for frame in extract_tb(error.__traceback__) if not frame.filename.startswith((ours, "<"))
    ]
    machinery = ("importlib", "asyncio", "futures")
    return [frame for frame in reversed(frames) if Path(frame.filename).parent.name not in machinery]


def _agents_in(module: str) -> str:
    names = [
        f"{module}:{name}" for name, value in vars(sys.modules[module]).items() if isinstance(value, Agent)
    ]
    return f"; the agents of the module: {', '.join(names)}" if names else f"; {module} holds no agent"


def _call(name: str) -> str:
    return f"; this is a function that makes an agent: write agent = {name}() in the module, and name that"


def to_run(name: str | None, option: str | None, model: str | None) -> Agent[Any]:
    """Return the agent for a new task.

    Args:
        name: the argument AGENT: `module:agent`, or the name of a listed agent.
        option: the value of `--agent`, in the same forms.
        model: the value of `--model`, used instead of the agent's model.

    Raises:
        AgentUnknown: no listed agent has this name.
        ConfigurationError: the place has no agent, or there is no model to use.
    """
    if name is not None and option is not None:
        raise ConfigurationError("give the agent once: as AGENT, or with --agent")
    chosen = name or option
    if chosen is None:
        return assistant(model)
    agent = _find(chosen, model)
    if agent is None:
        raise AgentUnknown(_unknown(chosen))
    return _with_model(agent, model)


def of_task(name: str, option: str | None, model: str | None, used_model: str | None) -> Agent[Any] | None:
    """Return the agent of a task; None if its code is not available here.

    Args:
        name: the agent's name in the task.
        option: the value of `--agent`: `module:agent`, or the name of a listed agent.
        model: the value of `--model`.
        used_model: the model with which the plain assistant continues.
    """
    agent = _find(option, model or used_model) if option else of_name(name, model or used_model)
    if agent is None and option:
        raise AgentUnknown(_unknown(option))
    return agent if agent is None else _with_model(agent, model)


def at_or_named(place: str) -> list[Agent[Any]]:
    """Return the agents for `--agent`: those at `module:name`, or the one with that name.

    Raises:
        AgentUnknown: no listed agent has this name.
        ConfigurationError: the place has no agent.
    """
    if ":" in place:
        return agents_at(place)
    agent = of_name(place, None)
    if agent is None:
        raise AgentUnknown(_unknown(place))
    return [agent]


def _find(name: str, model: str | None) -> Agent[Any] | None:
    return _only_agent_at(name) if ":" in name else of_name(name, model)


def _with_model(agent: Agent[Any], model: str | None) -> Agent[Any]:
    if model is None and not agent.model:
        worker = agent.function_worker
        model = usable_model() if worker is None or worker.needs_model else available_model()
    return agent if model is None or agent.model_name == model else agent.replace(model=model)


def may_be_found(name: str) -> bool:
    """Return whether a command may find an agent by its name, without importing code."""
    return name in (DEMO, ASSISTANT) or bool(listed_paths())


def of_name(name: str, model: str | None) -> Agent[Any] | None:
    """Return an agent by its name: the project's, the demo's, or the plain assistant on a model."""
    agent = listed_agents().agents.get(name)
    if agent is not None:
        return agent
    if name == DEMO:
        return _only_agent_at("treadle.cli.demo_agent:AGENT")
    return assistant(model) if name == ASSISTANT else None


def _only_agent_at(path: str) -> Agent[Any]:
    agents = agents_at(path)
    if len(agents) > 1:
        names = ", ".join(agent.name for agent in agents)
        raise ConfigurationError(f"{path} holds several agents ({names}): name one of them")
    return agents[0]


def _unknown(name: str) -> str:
    listed = listed_agents()
    closest = get_close_matches(name, listed.agents, n=1)
    names = ", ".join(sorted(listed.agents)) or "none"
    if module := _place_of_module(name):
        return f"no agent is called {name!r}: write {module}, the module and the name of the agent in it"
    hint = f"did you mean {closest[0]!r}? " if closest else f"known here: {names}; "
    broken = "".join(f"; {problem}" for problem in list(listed.problems.values())[:1])
    return f"no agent is called {name!r}: {hint}{WAYS}{broken}"


def _place_of_module(name: str) -> str | None:
    """Return `module:agent` if a name is a module or a file in the working directory, else None."""
    path = name.removesuffix(".py").replace("/", ".").removeprefix(".")
    parent, _, last = path.rpartition(".")
    for module, agent in ((path, "AGENT"), (parent, last)):
        place = Path(*module.split(".")) if module else None
        if place is not None and (place.with_suffix(".py").is_file() or (place / "__init__.py").is_file()):
            return f"{module}:{agent}"
    return None


def assistant(model: str | None) -> Agent[Any]:
    """Return the plain assistant on a model; by default on one that is usable here."""
    return Agent(model or usable_model(), name=ASSISTANT, instructions="You are a helpful assistant.")


def usable_model() -> str:
    """Return the name of a model that is usable here.

    Raises:
        ConfigurationError: there is none; the error explains the set-up.
    """
    model = available_model()
    if model is None:
        raise ConfigurationError(
            "there is no model to use: set OPENAI_API_KEY, ANTHROPIC_API_KEY or GOOGLE_API_KEY, or start Ollama, or "
            "name a model with --model provider:name; `treadle demo` needs none"
        )
    return model


def available_model() -> str | None:
    """Return a model with a key in the environment, else the first model of a local Ollama, else None."""
    return default_model() or next(iter(local_ollama()), None)


def check_model(agent: Agent[Any]) -> None:
    """Raise `ModelUnknown` or `MissingExtra` if an agent's model is not usable, before its task is created."""
    if agent.model:
        resolve(agent.model)


def declared_tools(listed: Iterable[Agent[Any]]) -> tuple[dict[str, ToolSpec], dict[str, ToolSpec]]:
    """Return the tools of agents by name, and handoff tools by the names of the next agents.

    Both are empty if a toolset was never listed, since then any name may belong to a tool.
    """
    tools, handoffs = dict[str, ToolSpec](), dict[str, ToolSpec]()
    listed = [*listed]
    if known_specs(listed) is None:
        return tools, handoffs
    for agent in listed:
        tools |= {spec.name: spec for toolset in agent.toolsets for spec in toolset.known_specs() or ()}
        for tool in agent.tools:
            handoff = agent.handoffs_by_tool.get(tool.spec.name)
            if handoff is None:
                tools[tool.spec.name] = tool.spec
            else:
                handoffs[handoff.agent_name] = tool.spec
    return tools, handoffs
