"""`replay`: a journalled task as a regression test: run again with what was recorded, and written as a test."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from treadle.agents.agent import Agent
from treadle.cli import agents
from treadle.cli.command import JsonOption, StoreOption, in_loop, row_named, runner_on
from treadle.cli.run import AgentOption
from treadle.cli.screen import Screen
from treadle.core.events import TaskCreated
from treadle.core.messages import Json
from treadle.errors import AgentUnknown, ConfigurationError
from treadle.testing.replay import Recording, ReplayReport, load, record, save
from treadle.testing.replay import replay as replayed


def replay(
    ctx: typer.Context,
    task: Annotated[
        str, typer.Argument(metavar="TASK|FILE", help="A task of the store, or the file of a recording.")
    ],
    agent: AgentOption = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="FOLDER", help="Write a test there, with the recording beside it."
        ),
    ] = None,
    run_tools: Annotated[
        bool, typer.Option("--run-tools", help="Run the tools, instead of returning what was recorded.")
    ] = False,
    store: StoreOption = None,
    json: JsonOption = False,
) -> int:
    """Run a recorded task again, with its recorded answers and results, and say what is not as it was; exits 1 then."""

    async def work(screen: Screen) -> int:
        file = Path(task)
        if file.suffix == ".jsonl" and file.is_file():  # noqa: ASYNC240  one look, before anything runs
            if out is not None:
                raise ConfigurationError(f"--out writes a task of the store as a test; {file} is one already")
            recording = await load(file)
            known = _agent_of(recording, agent)
            return _told(screen, await replayed(recording, known, run_tools=run_tools), ())
        async with runner_on(store) as runner:
            row = await row_named(runner, task)
            known = _named(row.agent, agent)
            recording = await record(runner, row.task_id, known)
            written: tuple[Path, ...] = ()
            if out is not None:
                written = _files(out, known, recording)
                await save(runner, recording, written[1])
                _write_test(written[0], known, recording, agent)
        return _told(screen, await replayed(recording, known, run_tools=run_tools), written)

    return in_loop(ctx, work)


def _told(screen: Screen, report: ReplayReport, written: tuple[Path, ...]) -> int:
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
            "written": [str(path) for path in written],
        }
    )
    screen.line(("✓ " if report.ok else "✗ ", "green" if report.ok else "red"), str(report))
    for path in written:
        screen.line(("wrote ", "dim"), str(path))
    return 0 if report.ok else 1


def _agent_of(recording: Recording, option: str | None) -> Agent[Any]:
    first = recording.events[0]
    return _named(first.agent if isinstance(first, TaskCreated) else "", option)


def _named(name: str, option: str | None) -> Agent[Any]:
    known = agents.of_task(name, option, None, None)
    if known is None:
        raise AgentUnknown(f"no agent is called {name!r}: {agents.WAYS}")
    return known


# ---------------------------------------------------------------------------------------------- the test


def _files(folder: Path, agent: Agent[Any], recording: Recording) -> tuple[Path, Path]:
    """Return where the test goes, and where its recording."""
    folder.mkdir(parents=True, exist_ok=True)
    name = re.sub(r"\W", "_", f"{agent.name}_{recording.task_id[-12:]}")
    return folder / f"test_replay_{name}.py", folder / f"{name}.jsonl"


def _write_test(path: Path, agent: Agent[Any], recording: Recording, option: str | None) -> None:
    place = _place_of(agent, option)
    module, _, name = place.partition(":")
    alias = "" if name == "agent" else " as agent"
    got = (
        f"from {module} import {name}{alias}"
        if "." not in name
        else f"import {module}\n\nagent = {module}.{name}"
    )
    recorded = path.with_name(path.stem.removeprefix("test_replay_") + ".jsonl").name
    path.write_text(
        f'"""Task {recording.task_id} of {agent.name}, as it was recorded: made by `treadle replay`."""\n\n'
        "from pathlib import Path\n\n"
        f"{got}\n\n"
        "from treadle.testing.replay import assert_replays\n\n\n"
        f"def {path.stem}():\n"
        f'    assert_replays(Path(__file__).with_name("{recorded}"), agent)\n',
        encoding="utf-8",
    )


def _place_of(agent: Agent[Any], option: str | None) -> str:
    """Return `module:name` of an agent, from where a person said that agents are."""
    places = [option] if option is not None and ":" in option else agents.listed_places()
    for place in places:
        module, _, name = place.partition(":")
        if agent not in agents.at_place(place):
            continue
        if agents.at_place(place) == [agent]:
            return place
        found = [key for key, value in vars(import_module(module)).items() if value is agent]
        return f"{module}:{found[0] if found else name}"
    raise ConfigurationError(f"to write a test that imports {agent.name}, {agents.WAYS}")
