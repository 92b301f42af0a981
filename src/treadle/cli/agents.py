"""Where a command finds the code of an agent. Only places a person names are imported, never what a journal holds."""

from __future__ import annotations

import os
import sys
import tomllib
from dataclasses import field
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any, Final, cast

from treadle.agents.agent import Agent
from treadle.core.data import mutable
from treadle.errors import AgentUnknown, ConfigurationError
from treadle.llm.default_layers import resolve
from treadle.llm.registry import default_model, local_ollama

ASSISTANT: Final = "assistant"
"""Name of the agent that `treadle run INPUT` runs."""
DEMO: Final = "treadle-demo"

WAYS: Final = (
    'give --agent module:agent, or list it in pyproject.toml as `agents = ["module:agent"]` under [tool.treadle], or '
    "in TREADLE_AGENTS (comma-separated)"
)


@mutable
class Known:
    """The agents that the project lists, and which places could not be read, with the reason."""

    agents: dict[str, Agent[Any]] = field(default_factory=dict[str, Agent[Any]])
    problems: dict[str, str] = field(default_factory=dict[str, str])


def known() -> Known:
    """Import the agents listed in pyproject.toml, else in TREADLE_AGENTS."""
    found = Known()
    for place in listed_places():
        try:
            for agent in at_place(place):
                found.agents.setdefault(agent.name, agent)
        except ConfigurationError as error:
            found.problems[place] = str(error)
    return found


def listed_places() -> list[str]:
    """Return the places, `module:agent` each, that pyproject.toml (found upward) or TREADLE_AGENTS lists."""
    for folder in (Path.cwd(), *Path.cwd().parents):
        project = folder / "pyproject.toml"
        if project.is_file():
            places = _listed_in(project)
            if places:
                _importable(folder)
                return places
            break
    places = [place.strip() for place in os.environ.get("TREADLE_AGENTS", "").split(",")]
    return [place for place in places if place]


def _listed_in(project: Path) -> list[str]:
    try:
        document = tomllib.loads(project.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{project} cannot be read: {error}") from error
    places: Any = document.get("tool", {}).get("treadle", {}).get("agents", [])
    if not isinstance(places, list) or not all(isinstance(p, str) for p in cast("list[Any]", places)):
        raise ConfigurationError(f"{project}: [tool.treadle] agents must be a list of texts `module:agent`")
    return cast("list[str]", places)


def _importable(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def at_place(place: str) -> list[Agent[Any]]:
    """Return the agents that `module:name` holds: an agent, or several in a list.

    Raises:
        ConfigurationError: there is no such module or name, it cannot be imported, or it is no agent.
    """
    module, colon, name = place.partition(":")
    if not colon or not module or not name:
        raise ConfigurationError(f"{place!r} does not say where an agent is: write module:agent")
    _importable(Path.cwd())
    try:
        value: Any = import_module(module)
        for part in name.split("."):
            value = getattr(value, part)
    except Exception as error:  # whatever the user's own module raises
        raise ConfigurationError(f"{place} cannot be imported: {type(error).__name__}: {error}") from error
    found: list[Any] = [value] if not isinstance(value, (list, tuple)) else [*cast("list[Any]", value)]
    if not found or not all(isinstance(agent, Agent) for agent in found):
        raise ConfigurationError(f"{place} is no Agent, but {value!r}")
    return found


def to_run(word: str | None, option: str | None, model: str | None) -> Agent[Any]:
    """Return the agent to begin a task with.

    Args:
        word: AGENT as given: `module:agent` or the name of a known agent.
        option: what `--agent` names, in the same words.
        model: what `--model` names; it takes the place of the agent's own.

    Raises:
        AgentUnknown: no known agent has this name.
        ConfigurationError: the place named holds no agent, or there is no model to use.
    """
    if word is not None and option is not None:
        raise ConfigurationError("give the agent once: as AGENT, or with --agent")
    named = word or option
    if named is None:
        return assistant(model)
    agent = _named(named, model)
    if agent is None:
        raise AgentUnknown(_unknown(named))
    return _on(agent, model)


def of_task(name: str, option: str | None, model: str | None, used: str | None) -> Agent[Any] | None:
    """Return the agent of a task by the name that the task keeps, or None if this process does not know it.

    Args:
        name: the agent's name.
        option: what `--agent` names: `module:agent`, or the name of a known agent.
        model: what `--model` names.
        used: the model that the plain assistant goes on with.
    """
    agent = _named(option, model or used) if option else of_name(name, model or used)
    if agent is None and option:
        raise AgentUnknown(_unknown(option))
    return agent if agent is None else _on(agent, model)


def _named(word: str, model: str | None) -> Agent[Any] | None:
    return _one_at(word) if ":" in word else of_name(word, model)


def _on(agent: Agent[Any], model: str | None) -> Agent[Any]:
    return agent if model is None or agent.model_name == model else agent.replace(model=model)


def of_name(name: str, model: str | None) -> Agent[Any] | None:
    """Return a known agent: listed by the project, the demo's, or the plain assistant on a model."""
    listed = known().agents.get(name)
    if listed is not None:
        return listed
    if name == DEMO:
        return _demo_agent()
    return assistant(model) if name == ASSISTANT else None


def _demo_agent() -> Agent[Any] | None:
    try:
        module = import_module("treadle.cli.demo_agent")
    except ModuleNotFoundError:
        return None
    return getattr(module, "AGENT", None)


def _one_at(place: str) -> Agent[Any]:
    agents = at_place(place)
    if len(agents) > 1:
        names = ", ".join(agent.name for agent in agents)
        raise ConfigurationError(f"{place} holds several agents ({names}): name one of them")
    return agents[0]


def _unknown(name: str) -> str:
    found = known()
    near = get_close_matches(name, found.agents, n=1)
    names = ", ".join(sorted(found.agents)) or "none"
    hint = f"did you mean {near[0]!r}? " if near else f"known here: {names}; "
    broken = "".join(f"; {problem}" for problem in list(found.problems.values())[:1])
    return f"no agent is called {name!r}: {hint}{WAYS}{broken}"


def assistant(model: str | None) -> Agent[Any]:
    """Return the plain assistant on the model named, else on one that is at hand."""
    return Agent(model or model_at_hand(), name=ASSISTANT, instructions="You are a helpful assistant.")


def model_at_hand() -> str:
    """Return a model that can be used here: one whose key is in the environment, else a local Ollama's first.

    Raises:
        ConfigurationError: there is none; the text says how to get one.
    """
    found = default_model() or next(iter(local_ollama()), None)
    if found is None:
        raise ConfigurationError(
            "there is no model to use: set OPENAI_API_KEY, ANTHROPIC_API_KEY or GOOGLE_API_KEY, or start Ollama, or "
            "name a model with --model provider:name; `treadle demo` needs none"
        )
    return found


def check_model(agent: Agent[Any]) -> None:
    """Raise `ModelUnknown` or `MissingExtra` now, before a task is made for an agent whose model cannot be used."""
    resolve(agent.model)
