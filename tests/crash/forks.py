"""Trials as forks of one warm process: importing everything for each would cost more than the trial itself.

The server forks before it has opened a store, started a thread or run an event loop, so a fork is what a fresh process
would be. It runs one trial at a time and says how each ended; the test that asks is another process.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


class ForkServer:
    """A warm process that runs jobs of this module in forks of itself."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.forks"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, job: str, *args: str, output: Path, env: dict[str, str], at: str | None = None) -> int:
        """Run a job and return its exit status, negative for the signal that killed it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        request = {"job": job, "args": args, "output": str(output), "env": env, "at": at}
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def close(self) -> None:
        """End the server."""
        with self._process:
            assert self._process.stdin is not None
            self._process.stdin.close()


def serve() -> None:
    """Fork for each line of standard input; write each fork's exit status."""
    # What all jobs need is imported once, here.
    from tests.crash import golden
    from treadle.cli import main

    assert golden.VARIANTS
    assert main.app
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            _be_the_job(request)
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


def _be_the_job(request: dict[str, Any]) -> None:
    """Run in the fork and end it, without what the server would do at its own end."""
    code = 70
    try:
        new = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        files = ((os.devnull, os.O_RDONLY), (request["output"], new), (f"{request['output']}.err", new))
        for target, (path, mode) in enumerate(files):
            os.dup2(os.open(path, mode, 0o600), target)
        os.environ.update(request["env"])
        code = JOBS[request["job"]](request["at"], *request["args"])
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:  # noqa: BLE001  a fork must not go on as the server
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _in_golden(job: str) -> Callable[..., int]:
    def run(at: str | None, store: str, variant: str) -> int:
        from tests.crash import golden
        from treadle.testing.crash import Crash

        golden.crash = Crash(at, os.environ["GOLDEN_PLACES"])
        asyncio.run(getattr(golden, job)(Path(store), variant))
        return 0

    return run


def _cli(at: str | None, *argv: str) -> int:
    """The command line, called as its entry point calls it."""
    from treadle.cli.main import main

    return main(argv)


JOBS: dict[str, Callable[..., int]] = {
    "cli": _cli,
    **{job: _in_golden(job) for job in ("script", "carry_on", "undo")},
}

if __name__ == "__main__":
    serve()
