"""`doctor`: what this installation, this store and these agents look like, and what should be mended."""

from __future__ import annotations

import os
import platform
import stat
from dataclasses import field
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import typer

from treadle.agents.agent import Agent
from treadle.cli import agents
from treadle.cli.command import JsonOption, StoreOption, screen_of
from treadle.cli.screen import Screen, short
from treadle.core.data import mutable
from treadle.errors import StoreError
from treadle.llm.providers import installed
from treadle.llm.registry import default_model, local_ollama
from treadle.wiring import open_store

EXTRAS: Final = {
    "openai": ("pydantic_ai", "openai"),
    "anthropic": ("pydantic_ai", "anthropic"),
    "google": ("pydantic_ai", "google.genai"),
    "postgres": ("psycopg",),
    "index": ("numpy",),
    "testing": ("starlette", "uvicorn"),
}
"""What each extra brings: it is there when all of these can be imported."""

_LISTED: Final = 400
"""How many characters of an agent's tools a line shows."""

VARIABLES: Final = (
    "OPENAI_API_KEY",
    "OPENAI_BASE_URL",
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_BASE_URL",
    "GOOGLE_API_KEY",
    "GEMINI_API_KEY",
    "GOOGLE_GEMINI_BASE_URL",
    "TREADLE_STORE",
    "TREADLE_AGENTS",
)
"""Of these it is told whether they are set, never to what."""


@mutable
class Diagnosis:
    """What was found. `problems` need mending; `hints` would help."""

    versions: dict[str, str]
    store: dict[str, Any]
    extras: dict[str, bool]
    environment: dict[str, bool]
    model: str | None
    agents: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    hints: list[str] = field(default_factory=list[str])
    problems: list[str] = field(default_factory=list[str])


def doctor(ctx: typer.Context, store: StoreOption = None, json: JsonOption = False) -> int:
    """Look at versions, store, keys (names only) and agents, and say what should be mended; exits 1 if something is."""
    found = Diagnosis(
        versions=_versions(),
        store={},
        extras={name: all(map(installed, parts)) for name, parts in EXTRAS.items()},
        environment={name: bool(os.environ.get(name)) for name in VARIABLES},
        model=default_model() or next(iter(local_ollama()), None),
    )
    _look_at_store(found, store)
    _look_at_agents(found)
    if found.model is None:
        found.hints.append(
            "no model is at hand: set OPENAI_API_KEY, ANTHROPIC_API_KEY or GOOGLE_API_KEY, or start Ollama"
        )
    screen = screen_of(ctx)
    screen.document(found)
    _tell(screen, found)
    return 1 if found.problems else 0


def _versions() -> dict[str, str]:
    import apsw

    return {
        "treadle": version("treadle"),
        "python": platform.python_version(),
        "platform": platform.platform(terse=True),
        "sqlite": apsw.sqlite_lib_version(),
        "pydantic": version("pydantic"),
    }


# -------------------------------------------------------------------------------------------- store


def _look_at_store(found: Diagnosis, named: str | None) -> None:
    store = open_store(named)
    path = getattr(store, "path", None)
    found.store["url"] = store.url
    if store.url.startswith("postgresql:"):
        _look_into_server(found, named or os.environ["TREADLE_STORE"])
    if not isinstance(path, Path):
        return
    found.store["exists"] = path.exists()
    if not path.exists():
        return
    if not path.is_file():
        found.problems.append(f"{path} is not a file: choose another")
        return
    mode = stat.S_IMODE(path.stat().st_mode)
    found.store["mode"] = f"{mode:04o}"
    found.store["bytes"] = path.stat().st_size
    if mode & 0o077:
        found.problems.append(f"{path} may be read by others (mode {mode:04o}): chmod 600 it")
    _look_into(found, path)


def _look_into(found: Diagnosis, path: Path) -> None:
    import apsw

    from treadle.stores.sqlite.schema import APPLICATION_ID, check_not_newer, connect_reader, pragma

    try:
        connection = connect_reader(path)
        try:
            ours = pragma(connection, "application_id") == APPLICATION_ID
            found.store["journal_mode"] = pragma(connection, "journal_mode")
            found.store["integrity"] = pragma(connection, "integrity_check")
            if ours:
                check_not_newer(connection, path)
                found.store["tasks"] = connection.execute("SELECT count(*) FROM tasks").fetchone()[0]
        finally:
            connection.close()
    except (apsw.Error, StoreError) as error:
        found.problems.append(
            str(error) if isinstance(error, StoreError) else f"{path} cannot be read: {error}"
        )
        return
    if not ours:
        found.problems.append(f"{path} is not a Treadle store")
    elif found.store["integrity"] != "ok":
        found.problems.append(
            f"{path} is damaged: {found.store['integrity']}; `treadle verify` names the tasks"
        )
    elif found.store["journal_mode"] != "wal":
        found.hints.append(f"the journal mode of {path} is {found.store['journal_mode']}, not wal")


def _look_into_server(found: Diagnosis, named: str) -> None:
    from treadle.stores.postgres.schema import look

    try:
        found.store.update(look(named))
    except StoreError as error:
        found.problems.append(str(error))
        return
    for name, promise in (
        ("fsync", "power cut"),
        ("full_page_writes", "power cut"),
        ("synchronous_commit", "crash"),
    ):
        if found.store[name] == "off":
            found.problems.append(
                f"{name} is off on this server: a {promise} would lose what was acknowledged"
            )


# ------------------------------------------------------------------------------------------- agents


def _look_at_agents(found: Diagnosis) -> None:
    known = agents.known()
    found.problems += known.problems.values()
    for agent in known.agents.values():
        found.agents.append(_facts(agent))
        for tool in found.agents[-1]["undeclared_tools"]:
            found.hints.append(
                f"agent {agent.name}: tool {tool} does not declare its effects, so it counts as writing: if it only "
                "reads, @tool(read_only=True) lets it run again after a crash"
            )


def _facts(agent: Agent[Any]) -> dict[str, Any]:
    specs = [tool.spec for tool in agent.tools]
    return {
        "name": agent.name,
        "model": agent.model_name,
        "tools": [spec.name for spec in specs],
        "offer": None if agent.offer is None else _named(agent.offer),
        "undeclared_tools": [
            spec.name for spec in specs if not (spec.declared or spec.undoable or spec.reconcilable)
        ],
    }


def _named(offer: Any) -> str:
    return getattr(offer, "__qualname__", None) or repr(offer)


# --------------------------------------------------------------------------------------------- text


def _tell(screen: Screen, found: Diagnosis) -> None:
    screen.line(
        ("versions     ", "bold"), ", ".join(f"{name} {what}" for name, what in found.versions.items())
    )
    facts = {name: value for name, value in found.store.items() if name != "url"}
    told = ", ".join(f"{name} {value}" for name, value in facts.items())
    screen.line(("store        ", "bold"), f"{found.store['url']} ({told})" if told else found.store["url"])
    screen.line(("extras       ", "bold"), _there(found.extras))
    screen.line(("environment  ", "bold"), _there(found.environment))
    screen.line(("model        ", "bold"), found.model or "none")
    for agent in found.agents:
        tools = short(", ".join(agent["tools"]) or "no tools", _LISTED)
        offer = f" (offered by {agent['offer']})" if agent["offer"] else ""
        screen.line(("agent        ", "bold"), f"{agent['name']} on {agent['model']}: {tools}{offer}")
    for hint in found.hints:
        screen.line(("hint         ", "yellow"), hint)
    for problem in found.problems:
        screen.line(("problem      ", "red"), problem)
    if not found.problems:
        screen.line(("nothing needs mending", "green"))


def _there(names: dict[str, bool]) -> str:
    there = [name for name, is_there in names.items() if is_there]
    missing = [name for name, is_there in names.items() if not is_there]
    return f"{', '.join(there) or 'none'}" + (f" (not: {', '.join(missing)})" if missing else "")
