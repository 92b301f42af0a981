"""`replay`: run a recorded task again as a regression test, or write it as a test."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from shlex import quote
from typing import Annotated, Any

import typer

from treadle.agents.agent import Agent
from treadle.cli import agents
from treadle.cli.command import AgentOption, Session, command
from treadle.cli.filters import find_task
from treadle.cli.screen import Screen
from treadle.core.events import TaskCreated
from treadle.core.messages import Json
from treadle.errors import AgentUnknown, ConfigurationError
from treadle.replay import Recording, ReplayReport, load, record, save
from treadle.replay import replay as run_again


@command
async def replay(
    session: Session,
    task: Annotated[
        str, typer.Argument(metavar="TASK|FILE", help="A task of the store, or the file of a recording.")
    ],
    agent: AgentOption = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="FOLDER", help="Write a test to this folder, with the recording beside it."
        ),
    ] = None,
    run_tools: Annotated[
        bool, typer.Option("--run-tools", help="Run the tools instead of returning recorded results.")
    ] = False,
) -> int:
    """Run a recorded task again with its recorded answers and results. Exit with 1 if anything differs."""
    file = Path(task)
    if file.suffix == ".jsonl" and file.is_file():  # noqa: ASYNC240  one look, before anything runs
        if out is not None:
            raise ConfigurationError(f"--out writes a task of the store as a test; {file} is one already")
        recording = await load(file)
        first = recording.events[0]
        chosen = _agent(first.agent if isinstance(first, TaskCreated) else "", task, agent)
        return _print_report(session.screen, await run_again(recording, chosen, run_tools=run_tools), ())
    async with session.runner() as runner:
        row = await find_task(runner, task)
        chosen = _agent(row.agent, task, agent)
        recording = await record(runner, row.task_id, chosen)
        files: tuple[Path, ...] = ()
        if out is not None:
            files = _files(out, chosen, recording)
            await save(runner, recording, files[1])
            _write_test(files[0], chosen, recording, agent)
    return _print_report(session.screen, await run_again(recording, chosen, run_tools=run_tools), files)


def _print_report(screen: Screen, report: ReplayReport, files: tuple[Path, ...]) -> int:
    drifts: list[Json] = [
        {"kind": d.kind, "where": d.where, "what": d.what, "recorded": d.recorded, "now": d.now}
        for d in report.drifts
    ]
    screen.document(
        {
            "task_id": report.task_id,
            "agent": report.agent,
            "ok": report.ok,
            "steps": report.steps,
            "requests": report.requests,
            "calls": report.calls,
            "drifts": drifts,
            "written": [str(path) for path in files],
        }
    )
    screen.line(("✓ " if report.ok else "✗ ", "green" if report.ok else "red"), str(report))
    for path in files:
        screen.line(("wrote ", "dim"), str(path))
    return 0 if report.ok else 1


def _agent(name: str, task: str, option: str | None) -> Agent[Any]:
    agent = agents.of_task(name, option, None, None)
    if agent is None:
        raise AgentUnknown(
            f"a replay runs the code of agent {name!r}, which is not known here: write "
            f"`treadle replay {quote(task)} --agent MODULE:AGENT`, or {agents.LISTING}"
        )
    return agent


# ---------------------------------------------------------------------------------------------- the test


def _files(folder: Path, agent: Agent[Any], recording: Recording) -> tuple[Path, Path]:
    """Return the paths of the test and of its recording."""
    folder.mkdir(parents=True, exist_ok=True)
    name = re.sub(r"\W", "_", f"{agent.name}_{recording.task_id[-12:]}")
    return folder / f"test_replay_{name}.py", folder / f"{name}.jsonl"


def _write_test(path: Path, agent: Agent[Any], recording: Recording, option: str | None) -> None:
    module, _, name = _path_of(agent, option).partition(":")
    alias = "" if name == "agent" else " as agent"
    import_line = (
        f"from {module} import {name}{alias}"
        if "." not in name
        else f"import {module}\n\nagent = {module}.{name}"
    )
    recording_name = path.with_name(path.stem.removeprefix("test_replay_") + ".jsonl").name
    path.write_text(
        f'"""Task {recording.task_id} of {agent.name}, as it was recorded: made by `treadle replay`."""\n\n'
        "from pathlib import Path\n\n"
        f"{import_line}\n\n"
        "from treadle.replay import assert_replays\n\n\n"
        f"def {path.stem}():\n"
        f'    assert_replays(Path(__file__).with_name("{recording_name}"), agent)\n',
        encoding="utf-8",
    )


def _path_of(agent: Agent[Any], option: str | None) -> str:
    """Return `module:name` of an agent, from `--agent` or from the project's list."""
    paths = [option] if option is not None and ":" in option else agents.listed_paths()
    for path in paths:
        module, _, name = path.partition(":")
        if agent not in agents.agents_at(path):
            continue
        if agents.agents_at(path) == [agent]:
            return path
        names = [key for key, value in vars(import_module(module)).items() if value is agent]
        return f"{module}:{names[0] if names else name}"
    raise ConfigurationError(f"to write a test that imports {agent.name}, {agents.WAYS}")
