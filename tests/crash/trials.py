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
from tests.crash.invariants import Death, Journal, audit, expected_answer
from treadle.testing.crash import places_in
from treadle.testing.crash.fork_server import KILLED, ForkServer
from treadle.testing.ledger import Ledger

ROOT = Path(__file__).parents[2]
COMPLETED, WAITING = 0, 4
PATIENCE = 12
"""How many commands a recovery may take; the longest needs seven."""


@dataclass
class Trial:
    """A folder with all that a trial leaves behind, and what was seen of it."""

    place: Path
    variant: str
    server: ForkServer
    real: bool = False
    """whether commands are processes of their own, and not forks that call what those would call"""

    commands: list[str] = field(default_factory=list)
    deaths: list[Death] = field(default_factory=list)

    @property
    def store(self) -> str:
        return str(self.place / "journal.db")

    @property
    def ledger(self) -> Ledger:
        return Ledger(self.place / "ledger")

    @property
    def places(self) -> list[str]:
        return places_in(self.place / "places")[0]

    @property
    def output(self) -> str:
        return (self.place / "output").read_text()

    @property
    def trouble(self) -> str:
        return self.output + (self.place / "output.err").read_text()

    @property
    def acknowledged(self) -> list[list[Any]]:
        path = self.place / "acks"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    @property
    def environment(self) -> dict[str, str]:
        files = {"GOLDEN_LEDGER": "ledger", "GOLDEN_ACKS": "acks", "GOLDEN_PLACES": "places"}
        return {key: str(self.place / file) for key, file in files.items()}

    def job(self, name: str, *args: str, at: str | None = None) -> int:
        environment = {**self.environment, "TREADLE_CRASH_AT": at or ""}
        return self.server.run(
            f"tests.crash.golden:{name}", *args, output=self.place / "output", env=environment
        )

    def copy(self, place: Path) -> Trial:
        """Return a trial that stands where this one does, and goes on by itself."""
        shutil.copytree(self.place, place, dirs_exist_ok=True)
        return replace(self, place=place, commands=[], deaths=list(self.deaths))

    def dies(self, job: str, at: str) -> Death:
        """Run a job that is killed at a place, and take down what it left."""
        status = self.job(job, self.store, self.variant, at=at)
        assert status == KILLED, f"{job} was not killed at {at!r} but ended with {status}: {self.trouble}"
        assert at in self.places
        ledger = self.ledger.entries()
        death = Death(Journal.read(self.store, ledger), self.acknowledged, len(ledger))
        self.deaths.append(death)
        return death

    def broken(self) -> list[str]:
        """Bring the killed task to its end and return every promise that did not hold."""
        last = self.deaths[-1]
        if not last.journal.events:
            # Killed before there was a task: nobody was told of one, and nothing may have been done for it.
            return [f"lost: {last.acknowledged}"] if last.acknowledged or last.entries else []
        said = self.recover()
        ledger = self.ledger.entries()
        end = Journal.read(self.store, ledger)
        broken = audit(self.deaths, end, ledger, self.variant)
        if said["final_text"] != expected_answer(end):
            broken.append(f"answer: {said['final_text']!r}")
        return broken

    # -------------------------------------------------------------------------------------- recovery

    def command(self, *argv: str) -> int:
        """Call the command line with the task and its store."""
        self.commands.append(argv[0])
        verb, *rest = argv
        words = [verb, golden.TASK, *rest, "--store", self.store, "--json"]
        if not self.real:
            return self.server.run(
                "tests.crash.golden:cli", *words, output=self.place / "output", env=self.environment
            )
        with (self.place / "output").open("w") as output, (self.place / "output.err").open("w") as errors:
            command = [sys.executable, "-m", "treadle", *words]
            env = {**os.environ, **self.environment}
            return subprocess.run(
                command, cwd=ROOT, env=env, stdout=output, stderr=errors, check=False
            ).returncode

    def with_agent(self, verb: str) -> int:
        return self.command(verb, "--agent", f"tests.crash.golden:{self.variant}")

    def recover(self) -> dict[str, Any]:
        """Bring the task to its end as a person would: resume; finish an undo it names; settle what it asks."""
        for _ in range(PATIENCE):
            status = self.with_agent("resume")
            said = json.loads(self.output)
            if status == COMPLETED:
                return said
            if status == WAITING:
                self.settle(said["pending"])
            elif said["error"]["type"] == "UndoUnfinished":
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
        """Say of each call what the ledger knows."""
        assert pending, self.trouble
        for request in pending:
            asked = request["request_id"]
            self.ledger.note("settled by hand", call=asked)
            happened = self.ledger.happened(request["idempotency_key"])
            output = json.dumps(golden.OUTPUTS[request["tool"]])
            verdict = ["--happened", output] if happened else ["--not-happened"]
            assert self.command("settle", asked, *verdict) == COMPLETED, self.trouble


class Trials:
    """Makes trials of one variant, each in a folder of its own."""

    def __init__(self, root: Path, variant: str, server: ForkServer) -> None:
        self.root, self.variant, self.server = root, variant, server
        self.count = 0

    def folder(self) -> Path:
        """Return a new folder."""
        self.count += 1
        place = self.root / str(self.count)
        place.mkdir()
        return place

    def new(self, *, real: bool = False) -> Trial:
        return Trial(self.folder(), self.variant, self.server, real)

    def places(self) -> list[str]:
        """Return the places that the golden task passes when nothing kills it."""
        trial = self.new()
        assert trial.job("script", trial.store, trial.variant) == 0, trial.trouble
        return trial.places
