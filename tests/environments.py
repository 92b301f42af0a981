"""The README's two commands on fresh clones, in each environment that a fresh machine may have (`make environments`).

    python -m tests.environments [--only NAME]... [--times N] [-k EXPRESSION] [--keep] [TEST...]

Each environment gets a clone of the last commit in a folder of its own and runs the README's first command and its test
command there, unchanged; with `--times`, that many clones one by one. `-k` and paths of tests are handed to pytest, for
a quick look at a part. Prints a table, and the end of what a failed command said; ends with 1 if one failed.
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from shlex import join

from tests.docs.blocks import blocks

ROOT = Path(__file__).parents[1]
LONGEST_SECONDS = 1_800
ORDINARY = "nobody"
NOT_FRESH = re.compile(r"VIRTUAL_ENV|PYTHON\w*|PYTEST\w*|COVERAGE\w*|TREADLE\w*|UV_PROJECT\w*")


@dataclass(frozen=True)
class Environment:
    """What is special about a machine.

    `before` is a line of shell before each command. A `busy` machine runs an endless loop on each core meanwhile.
    """

    name: str
    before: str = ""
    variables: Mapping[str, str] = field(default_factory=dict[str, str])
    own_home: bool = False
    closed: bool = False
    ordinary_user: bool = False
    busy: bool = False

    @property
    def unavailable(self) -> str:
        """Why it cannot be tried here; nothing if it can."""
        if self.closed and os.geteuid() != 0:
            return "only root can be in a folder that is closed to the user it runs PostgreSQL as"
        if self.ordinary_user and os.geteuid() == 0 and _python_of_all() is None:
            return f"{ORDINARY} can run no Python 3.11 or later here that makes virtual environments"
        return ""


ENVIRONMENTS = {
    environment.name: environment
    for environment in (
        Environment("closed-folder", closed=True),
        Environment("ordinary-user", ordinary_user=True, own_home=True),
        Environment("sigint-ignored", before="trap '' INT HUP"),
        Environment("stdin-closed", before="exec 0<&-"),
        Environment("dumb-terminal", variables={"TERM": "dumb"}, own_home=True),
        Environment("empty-home", own_home=True),
        Environment("busy-machine", busy=True),
    )
}


@dataclass(frozen=True)
class Outcome:
    """What became of one command."""

    code: int | None
    seconds: float
    last_line: str

    def __str__(self) -> str:
        verdict = {None: "timed out", 0: "ok"}.get(self.code, f"FAILED with {self.code}")
        return f"{verdict}, {self.seconds:.0f} s: {self.last_line}"


def commands() -> list[str]:
    """Return the README's first command and its test command."""
    commands_found = [block.code for block in blocks(ROOT / "README.md") if block.language == "sh"][:2]
    assert "treadle demo" in commands_found[0], commands_found
    assert "pytest" in commands_found[1], commands_found
    return commands_found


def tried(environment: Environment, folder: Path, arguments: Namespace) -> list[Outcome]:
    """Run the commands in a fresh clone under `place`; the second only if the first ended well."""
    folder.mkdir(mode=0o700 if environment.closed else 0o755)
    home = folder / "home"
    home.mkdir()
    subprocess.run(["git", "clone", "-q", "--no-hardlinks", ROOT, folder / "clone"], check=True)
    variables = {name: value for name, value in os.environ.items() if not NOT_FRESH.fullmatch(name)}
    variables |= environment.variables
    user: int | None = None
    if environment.own_home:
        variables["HOME"] = str(home)
        variables = {name: value for name, value in variables.items() if not name.startswith("XDG_")}
    if environment.ordinary_user and os.geteuid() == 0:
        user = pwd.getpwnam(ORDINARY).pw_uid
        variables |= {
            "PATH": _path_of_all(),
            "USER": ORDINARY,
            "LOGNAME": ORDINARY,
            "TMPDIR": str(folder / "tmp"),
        }
        (folder / "tmp").mkdir()
        for part in (folder, *folder.rglob("*")):
            os.chown(part, user, -1, follow_symlinks=False)
    first, tests = commands()
    tests = f"{tests.rstrip()} {join(_for_pytest(arguments))}"
    outcomes: list[Outcome] = []
    for number, command in enumerate((first, tests), 1):
        log = folder / f"log-{number}"
        with _busy_loops(os.cpu_count() or 1 if environment.busy else 0):
            outcomes.append(_ran(f"{environment.before}\n{command}", folder / "clone", log, variables, user))
        print(f"{environment.name}: {outcomes[-1]}", flush=True)
        if outcomes[-1].code != 0:
            print("\n".join(log.read_text(errors="replace").splitlines()[-40:]), flush=True)
            break
    return outcomes


def _ran(command: str, folder: Path, log: Path, variables: Mapping[str, str], user: int | None) -> Outcome:
    began = time.monotonic()
    with log.open("wb") as output:
        try:
            code: int | None = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", command],
                cwd=folder,
                env=dict(variables),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                timeout=LONGEST_SECONDS,
                check=False,
                **(
                    {}
                    if user is None
                    else {"user": user, "group": pwd.getpwuid(user).pw_gid, "extra_groups": []}
                ),
            ).returncode
        except subprocess.TimeoutExpired:
            code = None
    lines = log.read_text(errors="replace").strip().splitlines()
    return Outcome(code, time.monotonic() - began, lines[-1].strip() if lines else "")


@contextmanager
def _busy_loops(count: int) -> Generator[None, None, None]:
    """Run endless loops beside what runs inside, each in a process that competes for a core."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def _for_pytest(arguments: Namespace) -> list[str]:
    return [*(("-k", arguments.k) if arguments.k else ()), *arguments.tests]


def _path_of_all() -> str:
    """Return the part of PATH whose folders every user can enter."""
    folders = [Path(folder) for folder in os.environ.get("PATH", os.defpath).split(os.pathsep) if folder]
    return os.pathsep.join(
        str(folder)
        for folder in folders
        if folder.is_dir()
        and all(part.stat().st_mode & 1 for part in (folder.resolve(), *folder.resolve().parents))
    )


def _python_of_all() -> str | None:
    """Return a Python for the ordinary user."""
    python = shutil.which("python3", path=_path_of_all())
    if python is None:
        return None
    check = "import sys, ensurepip; sys.exit(sys.version_info < (3, 11))"
    return (
        python if subprocess.run([python, "-c", check], check=False, user=ORDINARY).returncode == 0 else None
    )


def main() -> int:
    parser = ArgumentParser(prog="python -m tests.environments")
    parser.add_argument(
        "--only", action="append", choices=list(ENVIRONMENTS), help="may be given several times"
    )
    parser.add_argument(
        "--times", type=int, default=1, help="how many fresh clones each environment gets, one by one"
    )
    parser.add_argument("-k", help="which tests to run, as for pytest; default: all")
    parser.add_argument("--keep", action="store_true", help="leave the clones and what the commands said")
    parser.add_argument("tests", nargs="*", help="files of tests to run; default: all")
    arguments = parser.parse_args()
    scratch = Path(tempfile.mkdtemp(prefix="treadle-environments-"))
    scratch.chmod(0o755)
    rows: list[tuple[str, list[str]]] = []
    failed = False
    try:
        for name in [name for name in arguments.only or ENVIRONMENTS for _ in range(arguments.times)]:
            environment = ENVIRONMENTS[name]
            if environment.unavailable:
                rows.append((name, [f"skipped: {environment.unavailable}"]))
                continue
            outcomes = tried(environment, scratch / name, arguments)
            rows.append((name, [str(outcome) for outcome in outcomes]))
            failed |= any(outcome.code != 0 for outcome in outcomes)
            if not arguments.keep:
                shutil.rmtree(scratch / name)
    finally:
        if arguments.keep:
            print(f"kept: {scratch}")
        else:
            shutil.rmtree(scratch, ignore_errors=True)
    for name, told in rows:
        for number, line in enumerate(told):
            print(f"{name if not number else '':15} {line}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
