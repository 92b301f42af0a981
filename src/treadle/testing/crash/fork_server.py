"""A warm process that runs jobs in forks of itself, since imports would take longer than most jobs.

The server forks before it has opened a store or started a thread, so a fork is like a new process. It runs one job at a
time for another process and answers with its exit status. POSIX only.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from treadle.errors import ConfigurationError

KILLED = -9
"""The exit status of a process that SIGKILL ended."""


class ForkServer:
    """A process that has imported modules and runs jobs in forks of itself.

    Args:
        imports: modules to import before it forks: `module`, or `module:function` to also call the function. They must
            not start threads.
        cwd: its working directory, also on the import path; by default that of this process.
    """

    def __init__(self, *imports: str, cwd: str | os.PathLike[str] | None = None) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "treadle.testing.crash.fork_server", *imports],
            cwd=cwd,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, ["", *sys.path]))},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._cwd = Path(cwd or ".").absolute()
        self._is_ready = False

    def run(
        self, job: str, *args: Any, output: str | os.PathLike[str], env: dict[str, str] | None = None
    ) -> int:
        """Run a job and return its exit status; a negative one is the signal that killed it.

        Args:
            job: `module:function`; the function returns the exit status, None for 0.
            args: the function's arguments, JSON data.
            output: the file for its standard output; its standard error goes to the file with `.err` appended.
            env: variables added to its environment.

        Raises:
            ConfigurationError: one of `imports` cannot be imported.
        """
        assert self._process.stdin is not None
        if not self._is_ready:
            self._wait_until_ready()
        request = {"job": job, "args": args, "output": os.fspath(output), "env": env or {}}
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return int(self._answer(job))

    def _wait_until_ready(self) -> None:
        problem = json.loads(self._answer("jobs"))
        if problem is not None:
            raise ConfigurationError(f"in {self._cwd}: {problem}")
        self._is_ready = True

    def _answer(self, job: str) -> str:
        assert self._process.stdout is not None
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"the server that should run {job} ended with {self._process.wait()}")
        return answer

    def close(self) -> None:
        """End the server."""
        with self._process:
            assert self._process.stdin is not None
            self._process.stdin.close()


def serve(imports: Sequence[str]) -> None:
    """Write the problem of the imports, or null, then fork for each line of input and write the fork's exit status."""
    problem = next(filter(None, map(_imported, imports)), None)
    sys.stdout.write(json.dumps(problem) + "\n")
    sys.stdout.flush()
    gc.collect()
    gc.freeze()  # without it garbage collection would copy pages in each fork
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            _run_job(request)
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


def _imported(item: str) -> str | None:
    """Import `module`, or import and call `module:function`; return the problem, or None."""
    module, _, name = item.partition(":")
    try:
        imported = import_module(module)
        if name:
            getattr(imported, name)()
    except Exception as error:  # noqa: BLE001  the caller gets any error that the module raises
        return f"{item} cannot be imported: {type(error).__name__}: {error}"
    return None


def _run_job(request: dict[str, Any]) -> None:
    """Run a job in the fork and exit, without the server's exit handlers."""
    code = 70
    try:
        new = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        files = ((os.devnull, os.O_RDONLY), (request["output"], new), (f"{request['output']}.err", new))
        for target, (path, mode) in enumerate(files):
            os.dup2(os.open(path, mode, 0o600), target)
        os.environ.update(request["env"])
        module, _, name = request["job"].partition(":")
        code = getattr(import_module(module), name)(*request["args"]) or 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:  # noqa: BLE001  a fork must not go on as the server
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def output_of(output: str | os.PathLike[str]) -> str:
    """Return a job's standard output and standard error."""
    return Path(output).read_text() + Path(f"{os.fspath(output)}.err").read_text()


if __name__ == "__main__":
    serve(sys.argv[1:])
