"""The base of commands: the session, the shared options, and the function that typer calls.

A command is a function of a `Session` and its own arguments. `command` adds the shared options.
"""

from __future__ import annotations

import asyncio
import json as json_format
import os
import re
import shlex
import shutil
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, Final, get_type_hints

import typer

from treadle.agents.agent import Agent
from treadle.cli.agents import listed_context_factory, listed_middleware, listed_policy, listed_secrets
from treadle.cli.screen import Screen
from treadle.core.messages import Json
from treadle.errors import ConfigurationError, NotFound
from treadle.llm.registry import default_model
from treadle.ports import JournalStore, Observer
from treadle.results.pending import Pending
from treadle.results.problem_documents import error_to_wire
from treadle.runner.handle import RunHandle
from treadle.runner.runner import TaskRunner
from treadle.stores.private_files import PRIVATE_FOLDER
from treadle.wiring import Runner, open_store

CODES: Final = {
    "completed": 0,
    "failed": 1,
    "degraded": 3,
    "waiting": 4,
    "paused": 5,
    "interrupted": 6,
    "cancelled": 7,
}
"""Exit codes by state; a task between two steps has exit code 0."""
USAGE: Final = 2
OUR_BUG: Final = 70


def option(metavar: str, text: str, **others: Any) -> Any:
    """Return an option with a value; it is named after its parameter.

    Args:
        metavar: the name of its value in the help.
        text: its help.
        **others: further arguments of `typer.Option`.
    """
    return typer.Option(metavar=metavar, help=text, **others)


StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store", help="Path or URL of the store. Default: TREADLE_STORE, else .treadle/journal.db."
    ),
]
UrlOption = Annotated[
    str | None,
    typer.Option(
        "--url",
        metavar="URL",
        help="Use the server at this address instead of a store. Its token: TREADLE_TOKEN, else that of "
        ".treadle/server-token for a server of this machine.",
    ),
]
TenantOption = Annotated[
    str | None,
    typer.Option("--tenant", metavar="NAME", help="The tenant of the tasks, in a store of several tenants."),
]
JsonOption = Annotated[
    bool,
    typer.Option("--json", help="Print one JSON document on standard output, and text on standard error."),
]
AgentOption = Annotated[
    str | None, typer.Option("--agent", metavar="MODULE:AGENT", help="The place to import the agent from.")
]
ModelOption = Annotated[
    str | None,
    typer.Option("--model", metavar="PROVIDER:NAME", help="Use this model instead of the agent's."),
]
ByOption = Annotated[str | None, typer.Option("--by", help="Your name, to be recorded with the task.")]


PolicyOption = Annotated[
    str | None,
    typer.Option(
        "--policy", metavar="FILE", help="Judge each call by the policy of this file, before it starts."
    ),
]


AT_THE_STORE: Final = frozenset(
    {
        *("chat.chat", "doctor.doctor", "drive.drive", "inspector.inspect"),
        *("maintenance.export", "maintenance.import_"),
        *(
            "mcp.list_servers",
            "mcp.approve",
            "mcp_serving.serve",
            "policy.show",
            "policy.judge_past",
            "replay.replay",
            "serving.serve",
        ),
        "threads.compact",
    }
)
"""The commands that need the store or code of agents, and so have no `--url`."""

OF_ALL_TENANTS: Final = frozenset(
    (
        *("doctor.doctor", "drive.drive", "inspector.inspect", "serving.serve", "policy.show"),
        *("mcp.list_servers", "mcp.approve"),
    )
)
"""The commands for a whole store or for none, which have no `--tenant`."""


class Session:
    """One invocation of a command.

    Args:
        screen: prints the output of the command.
        store: the value of `--store`, or None.
        url: the value of `--url`, or None.
        tenant: the value of `--tenant`, or None.
    """

    def __init__(
        self, screen: Screen, store: str | None, url: str | None = None, tenant: str | None = None
    ) -> None:
        if store is not None and url is not None:
            raise ConfigurationError("give --store or --url, not both: a server has its own store")
        self.screen = screen
        self.store = store
        self.url = url
        self.tenant = tenant
        self.policy: str | None = None
        """the value of `--policy`, which a command that continues a task must repeat"""

    def runner(
        self,
        agents: tuple[Agent[Any], ...] = (),
        *,
        make: bool = False,
        drives: bool = False,
        observers: tuple[Observer, ...] = (),
        policy: str | None = None,
        on_pending: Callable[[Pending, RunHandle[Any]], Awaitable[object]] | None = None,
    ) -> AbstractAsyncContextManager[TaskRunner]:
        """Open a runner on the store, or a client of the server of `--url`, for the duration of a block.

        It works in the tenant of `--tenant`. The arguments apply only to a runner.

        Args:
            agents: agents whose code this process has.
            make: create the store if it does not exist.
            drives: the command drives tasks, whose contexts the project's function makes.
            observers: observers of the runner's tasks.
            policy: the policy's file, instead of the project's, for a command that drives tasks.
            on_pending: called with requests for approval of the runner's tasks.

        Raises:
            NotFound: the store does not exist, and `make` is false or its folder is missing.
            ConfigurationError: the context function cannot be imported, or the policy, the middleware or the sources of
                secrets are not valid.
        """
        if self.url is not None:
            from treadle.cli.remote import client_of

            client = client_of(self.url)
            return client if self.tenant is None else client.scoped(tenant=self.tenant)
        store = store_at(self.screen, self.store, make=make)
        factory = listed_context_factory() if drives else None
        judge = listed_policy(policy) if drives else None
        self.policy = policy
        runner = Runner(
            store,
            agents=agents,
            observers=observers,
            context_factory=factory,
            policy=judge,
            middleware=listed_middleware() if drives else (),
            secrets=(listed_secrets() or None) if drives else None,
            on_pending=on_pending,
            model=default_model() if drives else None,
        )
        return runner if self.tenant is None else _in_tenant(runner, self.tenant)

    def run(self, work: Coroutine[Any, Any, int]) -> int:
        """Run a coroutine in an event loop and return its exit code. Ctrl-C ends it unless it handles Ctrl-C."""
        try:
            return asyncio.run(work)
        except KeyboardInterrupt:
            return interrupted(self.screen)

    def command_line(self, *arguments: str, **options: str | None) -> str:
        """Return a command for a person to type, on the same store."""
        return command_line(*arguments, store=self.store, url=self.url, tenant=self.tenant, **options)


def store_at(
    screen: Screen, option: str | None, *, make: bool = True, lease: float | None = None
) -> JournalStore:
    """Return the store of `--store` or TREADLE_STORE, else the project's; it is opened at first use.

    A new file is made only in an existing folder, and a note reports it. Only `.treadle` is made as a folder. Any
    other missing folder is a mistake in the path, and would lead to an empty store.

    Args:
        screen: prints the note.
        option: the value of `--store`, or None.
        make: create the store if it does not exist.
        lease: the duration of its leases, in seconds; None for that in its URL.

    Raises:
        NotFound: the store does not exist, and `make` is false or its folder is missing.
    """
    store = open_store(option, lease_seconds=lease)
    path = getattr(store, "path", None)
    if not isinstance(path, Path) or path.exists():
        return store
    if not make:
        raise NotFound(
            f"there is no store at {path}: `treadle run` and `treadle serve` create one, --store names another one"
        )
    folder, setting = path.parent, "--store" if option is not None else "TREADLE_STORE"
    if not folder.exists() and not (folder.name == PRIVATE_FOLDER and folder.parent.exists()):
        raise NotFound(
            f"there is no folder {folder} for a store {path.name}: correct the path of {setting}, or make the folder "
            f"first: mkdir -p {shlex.quote(str(folder))}"
        )
    if option is not None or os.environ.get("TREADLE_STORE"):
        screen.note(("note: ", "yellow"), f"there was no store at {path}: a new one is made")
    return store


@asynccontextmanager
async def _in_tenant(runner: Runner, tenant: str) -> AsyncGenerator[Runner]:
    """Open a runner for the duration of a block, and work in a tenant."""
    scoped = runner.scoped(tenant=tenant)
    async with runner:
        yield scoped


def command(function: Callable[..., int | Coroutine[Any, Any, int]]) -> Callable[..., int]:
    """Return the function that typer calls for a command.

    It takes the command's parameters, then `--store`, `--url`, `--tenant` and `--json` if the command supports them
    and does not declare them itself. A dataclass parameter is replaced by one option for each of its fields. A
    coroutine function runs in an event loop.
    """
    parameters: list[Parameter] = []
    groups: dict[str, type] = {}
    for parameter in [*signature(function, eval_str=True).parameters.values()][1:]:
        if is_dataclass(parameter.annotation) and isinstance(parameter.annotation, type):
            groups[parameter.name] = parameter.annotation
            types = get_type_hints(parameter.annotation, include_extras=True)
            parameters += [_keyword(f.name, types[f.name], f.default) for f in fields(parameter.annotation)]
        else:
            parameters.append(_keyword(parameter.name, parameter.annotation, parameter.default))
    declared = {parameter.name for parameter in parameters}
    name = f"{function.__module__.rpartition('.')[2]}.{function.__name__}"
    shared = [_keyword("store", StoreOption, None)]
    if name not in AT_THE_STORE:
        shared.append(_keyword("url", UrlOption, None))
    if name not in OF_ALL_TENANTS:
        shared.append(_keyword("tenant", TenantOption, None))
    shared.append(_keyword("json", JsonOption, False))
    parameters += [parameter for parameter in shared if parameter.name not in declared]

    @wraps(function)
    def invoke(ctx: typer.Context, **arguments: Any) -> int:
        session = Session(ctx.obj, arguments["store"], arguments.get("url"), arguments.get("tenant"))
        for name, group in groups.items():
            arguments[name] = group(**{field.name: arguments.pop(field.name) for field in fields(group)})
        for parameter in shared:
            if parameter.name not in declared:
                del arguments[parameter.name]
        ended = function(session, **arguments)
        return ended if isinstance(ended, int) else session.run(ended)

    parameters.insert(0, _keyword("ctx", typer.Context, Parameter.empty))
    invoke.__signature__ = Signature(parameters)  # pyright: ignore[reportAttributeAccessIssue]
    invoke.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return invoke


def _keyword(name: str, annotation: Any, default: Any) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def interrupted(screen: Screen) -> int:
    """Print that Ctrl-C ended a command, and return the exit code."""
    screen.document({"error": error_to_wire(KeyboardInterrupt("interrupted"))})
    screen.note(("interrupted", "yellow"))
    return CODES["interrupted"]


# ------------------------------------------------------------------------------ arguments and commands


def text_argument(text: str) -> str:
    """Return a TEXT or INPUT argument; for `-`, the text of standard input.

    Raises:
        ConfigurationError: standard input is not text.
    """
    if text != "-":
        return text
    try:
        return sys.stdin.read()
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"standard input is not text: {error}") from None


def json_argument(text: str, option: str) -> Json:
    """Return the value of a JSON argument; raise a `ConfigurationError` that shows how to quote text."""
    try:
        return json_format.loads(text)
    except ValueError:
        raise ConfigurationError(
            f"{option}: {text!r} is not JSON; text needs quotes of its own: {json_format.dumps(text)!r}"
        ) from None


def command_line(*arguments: str, store: str | None = None, **options: str | None) -> str:
    """Return a command for a person to type, without the password of a store's URL."""
    if store is not None:
        store = re.sub(r"(?<=://)([^:/@]*):[^@]*@|(?<=[?&])password=[^&]*&?", _user_only, store)
    values = {"store": store, **options}.items()
    flags = [flag for name, value in values if value is not None for flag in (f"--{name}", value)]
    return shlex.join([_program(), *arguments, *flags])


def _user_only(match: re.Match[str]) -> str:
    return "" if match[1] is None else f"{match[1]}@"


def _program() -> str:
    """Return the name to type for this program, or its path if it is not on PATH."""
    called = Path(sys.argv[0])
    if called.name != "treadle" or shutil.which("treadle") is not None:
        return "treadle"
    shortest = os.path.relpath(called)
    return str(called.absolute()) if shortest.startswith(os.pardir) else shortest
