"""One trial: run the golden task until it is killed, bring it to its end by the command line alone, audit both."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.crash import golden
from tests.crash.invariants import Journal, KilledProcess, audit, expected_answer
from treadle.testing.crash import places_in
from treadle.testing.crash.fork_server import KILLED, ForkServer
from treadle.testing.ledger import Ledger

ROOT = Path(__file__).parents[2]
COMPLETED, WAITING = 0, 4
MAX_COMMANDS = 12
"""How many commands a recovery may take; the longest needs seven."""


@dataclass
class Trial:
    """The folder of a trial, and what its killed processes left."""

    path: Path
    variant: str
    server: ForkServer
    real: bool = False
    """whether commands run in fresh processes instead of forks"""

    commands: list[str] = field(default_factory=list)
    kills: list[KilledProcess] = field(default_factory=list)

    @property
    def store(self) -> str:
        return str(self.path / "journal.db")

    @property
    def ledger(self) -> Ledger:
        return Ledger(self.path / "ledger")

    @property
    def places(self) -> list[str]:
        return places_in(self.path / "places")[0]

    @property
    def output(self) -> str:
        return (self.path / "output").read_text()

    @property
    def trouble(self) -> str:
        return self.output + (self.path / "output.err").read_text()

    @property
    def acknowledged(self) -> list[list[Any]]:
        path = self.path / "acks"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    @property
    def environment(self) -> dict[str, str]:
        files = {"GOLDEN_LEDGER": "ledger", "GOLDEN_ACKS": "acks", "GOLDEN_PLACES": "places"}
        return {key: str(self.path / file) for key, file in files.items()}

    def job(self, name: str, *args: str, at: str | None = None) -> int:
        environment = {**self.environment, "TREADLE_CRASH_AT": at or ""}
        return self.server.run(
            f"tests.crash.golden:{name}", *args, output=self.path / "output", env=environment
        )

    def copy(self, path: Path) -> Trial:
        """Return an independent copy of this trial."""
        shutil.copytree(self.path, path, dirs_exist_ok=True)
        return replace(self, path=path, commands=[], kills=list(self.kills))

    def kill_at(self, job: str, at: str) -> KilledProcess:
        """Run a job that is killed at a place, and record what it left."""
        status = self.job(job, self.store, self.variant, at=at)
        assert status == KILLED, f"{job} was not killed at {at!r} but ended with {status}: {self.trouble}"
        assert at in self.places
        ledger = self.ledger.entries()
        killed = KilledProcess(Journal.read(self.store, ledger), self.acknowledged, len(ledger))
        self.kills.append(killed)
        return killed

    def broken(self) -> list[str]:
        """Bring the killed task to its end and return every promise that did not hold."""
        last = self.kills[-1]
        if not last.journal.events:
            # Killed before there was a task: none was acknowledged, and no tool may have run for it.
            return [f"lost: {last.acknowledged}"] if last.acknowledged or last.entries else []
        document = self.recover()
        ledger = self.ledger.entries()
        end = Journal.read(self.store, ledger)
        broken = audit(self.kills, end, ledger, self.variant)
        if document["final_text"] != expected_answer(end):
            broken.append(f"answer: {document['final_text']!r}")
        return broken

    # -------------------------------------------------------------------------------------- recovery

    def command(self, *argv: str) -> int:
        """Call the command line with the task and its store."""
        self.commands.append(argv[0])
        verb, *arguments = argv
        words = [verb, golden.TASK, *arguments, "--store", self.store, "--json"]
        if not self.real:
            return self.server.run(
                "tests.crash.golden:cli", *words, output=self.path / "output", env=self.environment
            )
        with (self.path / "output").open("w") as output, (self.path / "output.err").open("w") as errors:
            command = [sys.executable, "-m", "treadle", *words]
            env = {**os.environ, **self.environment}
            return subprocess.run(
                command, cwd=ROOT, env=env, stdout=output, stderr=errors, check=False
            ).returncode

    def with_agent(self, verb: str) -> int:
        return self.command(verb, "--agent", f"tests.crash.golden:{self.variant}")

    def recover(self) -> dict[str, Any]:
        """Bring the task to its end by commands: resume it, finish an undo that it names, settle its open calls."""
        for _ in range(MAX_COMMANDS):
            status = self.with_agent("resume")
            document = json.loads(self.output)
            if status == COMPLETED:
                return document
            if status == WAITING:
                self.settle(document["pending"])
            elif document["error"]["type"] == "urn:treadle:error:UndoUnfinished":
                self.finish_undo()
            else:
                raise AssertionError(f"resume ended with {status}: {self.trouble}")
        raise AssertionError(f"not at its end after {self.commands}: {self.trouble}")

    def finish_undo(self) -> None:
        status = self.with_agent("undo")
        if status != COMPLETED:
            assert status == WAITING, self.trouble
            self.command("show")
            self.settle(json.loads(self.output)["result"]["pending"])

    def settle(self, pending: Sequence[dict[str, Any]]) -> None:
        """Settle each call by what the ledger says."""
        assert pending, self.trouble
        for request in pending:
            request_id = request["request_id"]
            self.ledger.note("settled by hand", call=request_id)
            happened = self.ledger.happened(request["idempotency_key"])
            output = json.dumps(golden.OUTPUTS[request["tool"]])
            verdict = ["--happened", output] if happened else ["--not-happened"]
            assert self.command("settle", request_id, *verdict) == COMPLETED, self.trouble


class Trials:
    """Makes trials of one variant, each in its own folder."""

    def __init__(self, root: Path, variant: str, server: ForkServer) -> None:
        self.root, self.variant, self.server = root, variant, server
        self.count = 0

    def folder(self) -> Path:
        """Return a new folder."""
        self.count += 1
        path = self.root / str(self.count)
        path.mkdir()
        return path

    def new(self, *, real: bool = False) -> Trial:
        return Trial(self.folder(), self.variant, self.server, real)

    def places(self) -> list[str]:
        """Return the places that the golden task passes when nothing kills it."""
        trial = self.new()
        assert trial.job("script", trial.store, trial.variant) == 0, trial.trouble
        return trial.places
