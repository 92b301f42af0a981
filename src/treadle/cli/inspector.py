"""`inspect`: the page that shows a store's tasks, in a browser; also `show --web`, which opens a task in it."""

from __future__ import annotations

import asyncio
import os
import sys
import webbrowser
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from treadle.agents.agent import Agent
from treadle.cli import agents
from treadle.cli.command import PolicyOption, Session, command, option, store_at
from treadle.cli.remote import token_for
from treadle.cli.running_server import RunningServer, running_server
from treadle.cli.serving import (
    PORT,
    AccessOptions,
    DriveOptions,
    ListenOptions,
    application,
    check_extra,
    serve_until_signal,
)
from treadle.ports import JournalStore
from treadle.results.tasks import page_address
from treadle.stores.private_files import private_token

TASKS: Final = "/#/"
"""The place of the list of tasks in the page."""

NO_AGENTS: Final = (
    "no agent: the page shows tasks and takes decisions; to run tasks too, name agents: "
    "treadle inspect module:agent"
)


@command
def inspect(
    session: Session,
    *,
    agent: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[MODULE:AGENT]...",
            help="The places to import agents from. Default: the project's list; none is needed to look.",
        ),
    ] = None,
    port: Annotated[
        int | None, option("N", f"The port to listen on. Default: {PORT}, or a free one if it is taken.")
    ] = None,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Print the link, and open no browser.")
    ] = False,
    no_drive: Annotated[
        bool, typer.Option("--no-drive", help="Drive no task: look, and leave tasks as they are.")
    ] = False,
    policy: PolicyOption = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document a line for each action.")
    ] = False,
) -> int:
    """Show the tasks of a store in a browser: look, decide, step, undo and fork, until Ctrl-C.

    If a server of this folder runs on the store, its page is opened.
    """
    check_extra("The inspector")
    driven = _agents(session, agent)
    store = store_at(session.screen, session.store, make=bool(driven) and session.store is None)
    server = running_server(store.url) if not agent and port is None else None
    if server is not None:
        return session.run(_show_running(session, server, TASKS, browser=not no_browser))
    return session.run(
        _serve(session, store, driven, port, browser=not no_browser, drive=not no_drive, policy=policy)
    )


async def show_task(session: Session, task_id: str) -> int:
    """Open a task in the page of a server that runs on the session's store; serve the page if there is none.

    With `--url` it is the page of that server.

    Args:
        session: the command.
        task_id: the task.
    """
    place = page_address("", task_id)
    if session.url is not None:
        return await _show_at(session, session.url, place)
    check_extra("The inspector")
    store = store_at(session.screen, session.store, make=False)
    server = running_server(store.url)
    if server is not None:
        return await _show_running(session, server, place, browser=True)
    return await _serve(session, store, _agents(session, None), None, place, browser=True, drive=False)


async def _show_at(session: Session, url: str, place: str) -> int:
    """Open a place in the page of the server at a URL; without its token the page asks for one."""
    link, token = f"{url.rstrip('/')}{place}", token_for(url)
    session.screen.document({"kind": "inspector", "url": link})
    session.screen.command("inspector ", link)
    await _open(f"{link}{_entry(token)}" if token else link)
    return 0


def _agents(session: Session, paths: Sequence[str] | None) -> tuple[Agent[Any], ...]:
    """Return the named agents, else the project's; those that cannot be imported are not needed to look."""
    if paths:
        return agents.named_agents(paths)
    listed = agents.listed_agents()
    for path, problem in listed.problems.items():
        session.screen.note(("note: ", "yellow"), f"{path}: {problem}")
    return tuple(listed.agents.values())


async def _serve(
    session: Session,
    store: JournalStore,
    driven: tuple[Agent[Any], ...],
    port: int | None,
    place: str = TASKS,
    *,
    browser: bool,
    drive: bool,
    policy: str | None = None,
) -> int:
    """Serve the page on loopback until a signal arrives."""
    listen, access = ListenOptions(port=PORT if port is None else port), AccessOptions()
    driving = DriveOptions(no_drive=not (driven and drive))
    api, token_file = application(store, driven, listen, access, driving, policy=policy, fork_models=True)

    async def listening(url: str) -> None:
        if not driven:
            session.screen.note((NO_AGENTS, "dim"))
        if browser and token_file is not None:
            await _open(_link(url, place, token_file))

    names = [each.name for each in driven]
    return await serve_until_signal(
        session.screen, api, listen, driving, token_file, names, any_port=port is None, listening=listening
    )


async def _show_running(session: Session, server: RunningServer, place: str, *, browser: bool) -> int:
    """Open the page of a server that runs already."""
    session.screen.document({"kind": "inspector", "url": f"{server.url}{place}"})
    session.screen.command("inspector ", f"{server.url}{place}")
    if not browser or not await _open(_link(server.url, place, Path(server.token_file))):
        session.screen.note((f"the token is in {server.token_file}", "dim"))
    return 0


def _link(url: str, place: str, token_file: Path) -> str:
    """Return a link that opens the page once."""
    return f"{url}{place}{_entry(private_token(token_file, 'start a server of your own'))}"


def _entry(token: str) -> str:
    """Return the end of a link that opens the page once."""
    from treadle.server.entrance import code_of

    return f"&code={code_of(token)}"


async def _open(link: str) -> bool:
    """Open a link in a browser, if this process has a screen; return whether one was started."""
    if not _has_screen():
        return False
    return await asyncio.to_thread(webbrowser.open, link)


def _has_screen() -> bool:
    """Return whether a browser would have a window; one of the terminal would take the terminal from the server."""
    if sys.platform.startswith(("win", "darwin")) or os.environ.get("BROWSER"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
