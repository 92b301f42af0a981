"""`doctor`: check the installation, the store and the agents, and report problems."""

from __future__ import annotations

import asyncio
import os
import platform
import stat
from dataclasses import field
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from treadle.agents.agent import Agent
from treadle.agents.middleware import ToolMiddleware, layers_of
from treadle.cli import agents
from treadle.cli.command import Session, command
from treadle.cli.screen import Screen, short, some
from treadle.core.data import mutable
from treadle.engine.vault import Vault, checked_sources
from treadle.errors import ConfigurationError, SecretUnavailable, StoreError
from treadle.llm.other_providers import OTHER_PROVIDERS
from treadle.llm.providers import PROVIDERS, installed
from treadle.policy.fitting import misfits
from treadle.ports import JournalStore
from treadle.tools.hosts.sandbox import WAYS, Sandbox, lacking
from treadle.transfer.verifying import Finding, thread_findings
from treadle.wiring import open_store

EXTRAS: Final = {
    **{
        model.extra: ("pydantic_ai", *model.packages)
        for model in (*OTHER_PROVIDERS.values(), *PROVIDERS.values())
        if model.packages
    },
    "chat": ("prompt_toolkit",),
    "postgres": ("psycopg",),
    "index": ("numpy",),
    "http": ("httpx2",),
    "client": ("httpx2",),
    "server": ("starlette", "uvicorn"),
    "mcp": ("mcp",),
    "openapi": ("httpx2", "yaml"),
    "otel": ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http"),
    "testing": ("starlette", "uvicorn"),
}
"""The packages of each extra; an extra is installed if all of them can be imported."""

_FINDINGS: Final = 5
"""Maximum number of lost members of threads that are named."""

_LISTED: Final = 400
"""Maximum number of characters of an agent's tools in a line."""

VARIABLES: Final = (
    *dict.fromkeys(
        name for model in PROVIDERS.values() for name in (*model.key_variables, model.url_variable)
    ),
    "TREADLE_STORE",
    "TREADLE_AGENTS",
    "TREADLE_CONTEXT_FACTORY",
    "TREADLE_POLICY",
    "TREADLE_SECRETS",
)
"""Variables that are reported as set or not set, never by value."""


@mutable
class Diagnosis:
    """The report of `doctor`. Problems need a fix; hints are optional."""

    versions: dict[str, str]
    store: dict[str, Any]
    extras: dict[str, bool]
    environment: dict[str, bool]
    model: str | None
    sandboxes: dict[str, str | None]
    """the parts that this machine lacks for each sandbox mechanism; None if it is complete"""

    agents: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    policy: str | None = None
    """the project's policy, in short"""

    secrets: dict[str, str] = field(default_factory=dict[str, str])
    """the source of each secret of the project, and whether it is set; never its value"""

    hints: list[str] = field(default_factory=list[str])
    problems: list[str] = field(default_factory=list[str])


@command
def doctor(session: Session) -> int:
    """Check versions, store, names of keys, and agents. Exit with 1 if there is a problem to fix."""
    diagnosis = Diagnosis(
        versions=_versions(),
        store={},
        extras={name: all(map(installed, parts)) for name, parts in EXTRAS.items()},
        environment={name: bool(os.environ.get(name)) for name in VARIABLES},
        model=agents.available_model(),
        sandboxes={way: lacking(way) for way in WAYS},
    )
    _check_store(diagnosis, session.store)
    listed = _check_agents(diagnosis)
    _check_sandboxes(diagnosis, listed)
    _check_policy(diagnosis, listed)
    _check_secrets(diagnosis, listed)
    if diagnosis.model is None:
        diagnosis.hints.append(
            "no model can be used: set OPENAI_API_KEY, ANTHROPIC_API_KEY or GOOGLE_API_KEY, or start Ollama"
        )
    session.screen.document(diagnosis)
    _print(session.screen, diagnosis)
    return 1 if diagnosis.problems else 0


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


def _check_store(diagnosis: Diagnosis, store_option: str | None) -> None:
    store = open_store(store_option)
    path = getattr(store, "path", None)
    diagnosis.store["url"] = store.url
    if store.url.startswith("postgresql:"):
        _check_server(diagnosis, store_option or os.environ["TREADLE_STORE"])
        if diagnosis.store.get("exists") and not diagnosis.store["older"]:
            _check_threads(diagnosis, store)
    if not isinstance(path, Path):
        return
    diagnosis.store["exists"] = path.exists()
    if not path.exists():
        return
    if not path.is_file():
        diagnosis.problems.append(f"{path} is not a file: choose another")
        return
    mode = stat.S_IMODE(path.stat().st_mode)
    diagnosis.store["mode"] = f"{mode:04o}"
    diagnosis.store["bytes"] = path.stat().st_size
    if mode & 0o077:
        diagnosis.problems.append(f"{path} may be read by others (mode {mode:04o}): chmod 600 it")
    if _check_file(diagnosis, path):
        _check_threads(diagnosis, store)


def _check_threads(diagnosis: Diagnosis, store: JournalStore) -> None:
    """Report threads that have lost tasks or messages, since an import would refuse their backup."""

    async def findings() -> list[Finding]:
        async with store.snapshot() as reader:
            return await thread_findings(reader)

    try:
        lost = asyncio.run(findings())
    except StoreError as error:
        diagnosis.problems.append(str(error))
        return
    diagnosis.problems += [f"{finding}; `treadle verify` has details" for finding in lost[:_FINDINGS]]
    if len(lost) > _FINDINGS:
        diagnosis.problems.append(
            f"{len(lost) - _FINDINGS} more threads have lost a task: `treadle verify` names them"
        )


def _check_file(diagnosis: Diagnosis, path: Path) -> bool:
    """Check a file without changing it; return whether it is an intact store of this version."""
    import apsw

    from treadle.stores.sqlite.schema import (
        APPLICATION_ID,
        check_not_newer,
        connect_reader,
        is_older,
        pragma,
    )

    older = False
    try:
        connection = connect_reader(path)
        try:
            is_ours = pragma(connection, "application_id") == APPLICATION_ID
            diagnosis.store["journal_mode"] = pragma(connection, "journal_mode")
            diagnosis.store["integrity"] = pragma(connection, "integrity_check")
            if is_ours:
                check_not_newer(connection, path)
                older = is_older(connection)
                diagnosis.store["tasks"] = connection.execute("SELECT count(*) FROM tasks").fetchone()[0]
        finally:
            connection.close()
    except (apsw.Error, StoreError) as error:
        diagnosis.problems.append(
            str(error) if isinstance(error, StoreError) else f"{path} cannot be read: {error}"
        )
        return False
    if not is_ours:
        diagnosis.problems.append(f"{path} is not a Treadle store")
    elif diagnosis.store["integrity"] != "ok":
        diagnosis.problems.append(
            f"{path} is damaged: {diagnosis.store['integrity']}; `treadle verify` names the tasks"
        )
    elif diagnosis.store["journal_mode"] != "wal":
        diagnosis.hints.append(f"the journal mode of {path} is {diagnosis.store['journal_mode']}, not wal")
    return is_ours and diagnosis.store["integrity"] == "ok" and not older


def _check_server(diagnosis: Diagnosis, url: str) -> None:
    from treadle.stores.postgres.schema import look

    try:
        diagnosis.store.update(look(url))
    except StoreError as error:
        diagnosis.problems.append(str(error))
        return
    for name, promise in (
        ("fsync", "power cut"),
        ("full_page_writes", "power cut"),
        ("synchronous_commit", "crash"),
    ):
        if diagnosis.store[name] == "off":
            diagnosis.problems.append(
                f"{name} is off on this server: a {promise} would lose acknowledged commits"
            )


# ------------------------------------------------------------------------------------------- agents


def _check_agents(diagnosis: Diagnosis) -> list[Agent[Any]]:
    """Report the project's agents, and return them."""
    listed = agents.listed_agents()
    diagnosis.problems += listed.problems.values()
    middleware: tuple[ToolMiddleware, ...] = ()
    try:
        middleware = agents.listed_middleware()
    except ConfigurationError as error:
        diagnosis.problems.append(str(error))
    for agent in listed.agents.values():
        diagnosis.agents.append(_facts(agent, middleware))
        for tool in diagnosis.agents[-1]["undeclared_tools"]:
            diagnosis.hints.append(
                f"agent {agent.name}: tool {tool} does not declare its effects, so it counts as writing. If it only "
                "reads, @tool(read_only=True) lets it run again after a crash"
            )
    return list(listed.agents.values())


def _check_policy(diagnosis: Diagnosis, listed: list[Agent[Any]]) -> None:
    """Report the project's policy, and its rules that match no tool of the agents."""
    try:
        policy = agents.listed_policy(None)
    except ConfigurationError as error:
        diagnosis.problems.append(str(error))
        return
    if policy is None:
        return
    diagnosis.policy = f"{some(len(policy.rules), 'rule')}, default {policy.default}"
    tools, handoffs = agents.declared_tools(listed)
    if tools or handoffs:
        diagnosis.hints += [f"policy: {misfit}" for misfit in misfits(policy, tools, handoffs)]


def _check_sandboxes(diagnosis: Diagnosis, listed: list[Agent[Any]]) -> None:
    """Report tools whose sandbox this machine cannot provide."""
    for agent in listed:
        for tool in agent.tools:
            host: Any = getattr(tool, "options", {}).get("host")
            if isinstance(host, Sandbox) and host.problem is not None:
                diagnosis.problems.append(f"agent {agent.name}: tool {tool.spec.name}: {host.problem}")


def _check_secrets(diagnosis: Diagnosis, listed: list[Agent[Any]]) -> None:
    """Report the sources of the project's secrets, and declared secrets without a readable source."""
    try:
        sources = checked_sources("secrets", agents.listed_secrets())
    except ConfigurationError as error:
        diagnosis.problems.append(str(error))
        return
    vault = Vault(sources)
    for name, source in vault.where().items():
        if source.startswith("the function "):
            diagnosis.secrets[name] = source  # the function may ask a server
            continue
        try:
            vault.reveal(name, "doctor", (name,))
            diagnosis.secrets[name] = source
        except SecretUnavailable as error:
            diagnosis.secrets[name] = f"{source}: not there"
            diagnosis.hints.append(str(error))
    for agent in listed:
        for tool in agent.tools:
            diagnosis.hints += [
                f"agent {agent.name}: tool {tool.spec.name} declares the secret {name!r}, which has no source: "
                f"list it under [tool.treadle.secrets], as {name} = 'env:NAME'"
                for name in tool.spec.secrets
                if name not in sources
            ]


def _facts(agent: Agent[Any], middleware: tuple[ToolMiddleware, ...]) -> dict[str, Any]:
    specs, offer = [tool.spec for tool in agent.tools], agent.offer
    return {
        "name": agent.name,
        "model": agent.model_name,
        "tools": [spec.name for spec in specs],
        "middleware": {
            tool.spec.name: [str(layer) for layer in layers]
            for tool in agent.tools
            if (layers := layers_of(tool, middleware, agent.middleware))
        },
        "toolsets": [each.name for each in agent.toolsets],
        "offer": None if offer is None else getattr(offer, "__qualname__", None) or repr(offer),
        "undeclared_tools": [
            spec.name for spec in specs if not (spec.declared or spec.undoable or spec.reconcilable)
        ],
    }


# --------------------------------------------------------------------------------------------- text


def _print(screen: Screen, diagnosis: Diagnosis) -> None:
    def line(name: str, text: str, style: str = "bold") -> None:
        screen.line((f"{name:<13}", style), text)

    line("versions", ", ".join(f"{name} {version}" for name, version in diagnosis.versions.items()))
    line("store", diagnosis.store["url"])
    for fact in _store_facts(diagnosis.store):
        line("", fact)
    for name, names in (("extras", diagnosis.extras), ("environment", diagnosis.environment)):
        present = [part for part, is_present in names.items() if is_present]
        missing = [part for part, is_present in names.items() if not is_present]
        line(name, ", ".join(present) or "none")
        if missing:
            screen.line((f"{'':<13}not: {', '.join(missing)}", "dim"))
    line("model", diagnosis.model or "none")
    line("sandboxes", ", ".join(way for way, lack in diagnosis.sandboxes.items() if lack is None) or "none")
    for way, lack in diagnosis.sandboxes.items():
        if lack is not None:
            screen.line((f"{'':<13}not: {way}, which lacks {lack}", "dim"))
    for agent in diagnosis.agents:
        tools = short(", ".join(agent["tools"]) or "no tools", _LISTED)
        offer = f" (offered by {agent['offer']})" if agent["offer"] else ""
        sets = "".join(f", {name}__*" for name in agent["toolsets"])
        line("agent", f"{agent['name']} on {agent['model']}: {tools}{sets}{offer}")
        for tool, layers in agent["middleware"].items():
            line("", f"{tool}: {' > '.join(layers)} > {tool}")
    if diagnosis.policy is not None:
        line("policy", diagnosis.policy)
    for name, source in diagnosis.secrets.items():
        line("secret", f"{name}: {source}")
    for hint in diagnosis.hints:
        line("hint", hint, "yellow")
    for problem in diagnosis.problems:
        line("problem", problem, "red")
    if not diagnosis.problems:
        screen.line(("nothing needs fixing", "green"))


def _store_facts(store: dict[str, Any]) -> list[str]:
    """Return the findings about a store, as sentences and readable settings."""
    if not store.get("exists", True):
        return ["does not exist yet: the first `treadle run` creates it"]
    facts: list[str] = []
    if "tasks" in store:
        facts.append(some(store["tasks"], "task"))
    if "bytes" in store:
        facts.append(f"{_size(store['bytes'])}, readable by {_readers(store['mode'])} (mode {store['mode']})")
    if "integrity" in store:
        facts.append(
            "its pages are whole" if store["integrity"] == "ok" else f"damaged: {store['integrity']}"
        )
    described_keys = ("url", "exists", "tasks", "bytes", "mode", "integrity")
    settings = [f"{name} {value}" for name, value in store.items() if name not in described_keys]
    return [*facts, ", ".join(settings)] if settings else facts


def _readers(mode: str) -> str:
    return "others too" if int(mode, 8) & 0o077 else "its owner alone"


def _size(size: int) -> str:
    amount, units = float(size), ["bytes", "kB", "MB", "GB"]
    while amount >= 1_000 and len(units) > 1:
        amount, units = amount / 1_000, units[1:]
    return f"{amount:.0f} {units[0]}" if amount >= 10 or units[0] == "bytes" else f"{amount:.1f} {units[0]}"
