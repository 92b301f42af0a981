"""Runs the tests of each mutant in a fork that has collected all tests, until the first one fails."""

from __future__ import annotations

import ast
import ctypes
import gc
import importlib
import io
import json
import os
import resource
import select
import shutil
import signal
import tempfile
import time
import types
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.mutants import sources
from tests.mutants.edits import ROOMS, ROOT, Mutant, modules, mutated
from tests.mutants.recording import cpu, environment, options

SUBREAPER = 36
"""The option of prctl with which a process becomes the parent of what its descendants leave behind."""
PATIENCE = 20.0
"""Seconds that a test may take, beside ten times what it took in the recording."""

SERVER = 3.0
"""Seconds of processor time that the start of a PostgreSQL server takes, in each fork."""


@dataclass(frozen=True)
class Known:
    """What a recording tells of a test: its costs in seconds, and the places of the functions that it enters."""

    cpu: float
    wall: float
    entered: frozenset[int]


@dataclass(frozen=True)
class Verdict:
    """How a mutant fared: `caught`, `timed out`, `survived`, or `no test` enters its function."""

    verdict: str
    test: str | None = None
    run: int = 0
    of: int = 0
    cpu: float = 0.0


def read_map(paths: Sequence[Path]) -> dict[str, Known]:
    """Return what recordings tell of the tests that passed in them."""
    known: dict[str, Known] = {}
    for path in paths:
        for line in path.read_text().splitlines():
            row = json.loads(line)
            if row["passed"]:
                known[row["test"]] = Known(row["cpu"], row["wall"], frozenset(row["entered"]))
    return known


def live_functions() -> dict[str, list[types.FunctionType]]:
    """Return the functions of the sources that are in memory, by file: all modules of the rooms are imported."""
    names = [module for room in ROOMS for module in modules(room)]
    files = {importlib.import_module(name).__file__ for name in names}
    found: defaultdict[str, list[types.FunctionType]] = defaultdict(list)
    for value in gc.get_objects():
        if isinstance(value, types.FunctionType) and value.__code__.co_filename in files:
            found[value.__code__.co_filename].append(value)
    return found


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield constant
            yield from _codes(constant)


def replacements(
    mutant: Mutant, functions: dict[str, list[types.FunctionType]]
) -> list[tuple[types.FunctionType, types.CodeType]]:
    """Return the functions in memory whose code a mutant changes, with the code that it gives them."""
    tree = mutated(mutant)
    if tree is None:
        return []
    compiled = compile(tree, str(mutant.path), "exec", dont_inherit=True)
    codes = {(code.co_qualname, code.co_firstlineno): code for code in _codes(compiled)}
    changed: list[tuple[types.FunctionType, types.CodeType]] = []
    for function in functions[str(mutant.path)]:
        old = function.__code__
        new = codes.get((old.co_qualname, old.co_firstlineno))
        if (
            new is not None
            and new != old
            and new.co_freevars == old.co_freevars
            and old.co_name != "<lambda>"
        ):
            changed.append((function, new))
    return changed


def entrances(mutant: Mutant) -> list[str]:
    """Return the functions whose tests count for a mutant: of a cached one all of the module, as few tests enter it."""
    functions = dict(sources.functions(ast.parse(mutant.path.read_bytes())))
    function = functions.get(mutant.function)
    if function is None or not any("cache" in ast.unparse(each) for each in function.decorator_list):
        return [mutant.function]
    return list(functions)


def order(mutant: Mutant, tests: dict[str, Known]) -> list[str]:
    """Return the tests that enter the function of a mutant, the likeliest to notice it first."""
    entered = {sources.place(mutant.module, name) for name in entrances(mutant)}
    files: defaultdict[str, list[str]] = defaultdict(list)
    for name, known in tests.items():
        if not entered.isdisjoint(known.entered):
            files[name.split("::")[0]].append(name)
    *folders, module = mutant.module.split(".")[1:]
    folder = "/".join(["tests", *folders]) + "/"

    def nearness(file: str) -> tuple[int, float]:
        mean = sum(tests[name].cpu for name in files[file]) / len(files[file])
        if file == f"{folder}test_{module}.py":
            return 0, mean
        if file.startswith(folder):
            return 1, mean
        return 2 if file.startswith(("tests/core/", "tests/engine/", f"tests/{mutant.room}/")) else 3, mean

    ordered: list[str] = []
    for file in sorted(files, key=nearness):
        ordered += sorted(files[file], key=lambda name: tests[name].cpu)
    return ordered


class Mutants:
    """A plugin of pytest that runs mutants instead of the tests that were collected."""

    def __init__(
        self,
        mutants: Sequence[Mutant],
        tests: dict[str, Known],
        out: Path,
        budget: float,
        likely: dict[str, str],
    ) -> None:
        self._mutants, self._tests, self._out, self._budget, self._likely = (
            mutants,
            tests,
            out,
            budget,
            likely,
        )
        self._trusted: dict[str, bool] = {}
        self._say = os.fdopen(os.dup(1), "w", buffering=1)
        self.verdicts: list[tuple[Mutant, Verdict]] = []

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self) -> None:
        from hypothesis import Phase, settings  # pytest prepares it before anyone imports it

        settings.register_profile(
            "mutants", settings.get_profile("ci"), database=None, phases=(Phase.explicit, Phase.generate)
        )
        settings.load_profile("mutants")

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self) -> None:
        self._functions = live_functions()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)
        self._session = session
        self._items = {item.nodeid: item for item in session.items}
        self._tests = {name: known for name, known in self._tests.items() if name in self._items}
        with self._out.open("a") as out:
            for mutant in self._mutants:
                verdict = self.judge(mutant)
                self.verdicts.append((mutant, verdict))
                print(
                    json.dumps({**asdict(mutant), "id": mutant.id, **asdict(verdict)}), file=out, flush=True
                )
                print(f"{verdict.verdict:9} {verdict.cpu:5.1f} s  {mutant.id[:150]}", file=self._say)
        return True

    def judge(self, mutant: Mutant) -> Verdict:
        """Run the tests of a mutant; a test counts only if it passes without the mutant in the same circumstances."""
        changed = replacements(mutant, self._functions)
        if not changed:
            return Verdict("unusable")
        spent = 0.0
        while True:
            names = [name for name in order(mutant, self._tests) if self._trusted.get(name, True)]
            likely = self._likely.get(mutant.id)
            if likely in self._items and self._trusted.get(likely, True):
                names = [likely, *(name for name in names if name != likely)]
            names.sort(key=self._needs_a_server)
            if not names:
                return Verdict("no test")
            verdict = self._in_a_fork(names, mutant, changed)
            verdict = replace(verdict, cpu=round(spent + verdict.cpu, 2))
            if verdict.test is None or self._passes(verdict.test):
                return verdict
            spent = verdict.cpu

    def _needs_a_server(self, name: str) -> bool:
        """Whether a test costs seconds more than the recording says: each fork starts a server of its own."""
        return any("postgres" in fixture for fixture in self._items[name].fixturenames)  # type: ignore[attr-defined]

    def _passes(self, name: str) -> bool:
        if name not in self._trusted:
            self._trusted[name] = self._in_a_fork([name], None, []).verdict == "survived"
        return self._trusted[name]

    def _in_a_fork(
        self,
        names: list[str],
        mutant: Mutant | None,
        changed: list[tuple[types.FunctionType, types.CodeType]],
    ) -> Verdict:
        folder = Path(tempfile.mkdtemp(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None))
        used = cpu()
        receiving, sending = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.close(receiving)
                self._run(names, mutant, changed, folder, sending)
            finally:
                os._exit(0)
        os.close(sending)
        at, verdict, run = -1, "timed out", 0
        with os.fdopen(receiving, "rb", buffering=0) as lines:
            while select.select([lines], [], [], self._patience(names[at] if at >= 0 else None))[0]:
                line = lines.readline().split()
                if not line:
                    break  # it died
                if line[0] == b"ended":
                    verdict, at = "survived", -1
                    break
                if line[0] == b"failed":
                    verdict = "caught"
                    break
                at, run = int(line[1]), run + 1
        _end(child)
        shutil.rmtree(folder, ignore_errors=True)
        return Verdict(verdict, names[at] if at >= 0 else None, run, len(names), cpu() - used)

    def _patience(self, name: str | None) -> float:
        known = self._tests.get(name or "")
        return PATIENCE + (10 * known.wall if known else 10)

    def _run(
        self,
        names: list[str],
        mutant: Mutant | None,
        changed: list[tuple[types.FunctionType, types.CodeType]],
        folder: Path,
        sending: int,
    ) -> None:
        os.setsid()
        seconds = int(self._budget) * 2 + 30
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        config = self._session.config
        config.pluginmanager.get_plugin("terminalreporter")._tw._file = io.StringIO()
        factory: Any = config._tmp_path_factory  # type: ignore[attr-defined]
        factory._basetemp = folder
        if mutant is not None:
            environment(sources.MUTANT, mutant.id)
        for function, code in changed:
            function.__code__ = code
        tests = [name for name in names if self._cost(name) <= self._budget]
        for at, name in enumerate(tests):
            if at and cpu() + self._cost(name) > self._budget:
                continue
            os.write(sending, f"test {names.index(name)}\n".encode())
            following = self._items[tests[at + 1]] if at + 1 < len(tests) else None
            item = self._items[name]
            self._session._setupstate.teardown_exact(
                item
            )  # of a test that was to be followed by one left out
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if self._session.testsfailed:
                os.write(sending, b"failed\n")
                break
        else:
            os.write(sending, b"ended\n")
        self._session._setupstate.teardown_exact(None)

    def _cost(self, name: str) -> float:
        known = self._tests[name].cpu if name in self._tests else 0.0
        return known + (SERVER if self._needs_a_server(name) else 0)


def _end(child: int) -> None:
    """Wait for a fork, a little, and end it and all processes that it left."""
    until = time.monotonic() + 5
    while (
        time.monotonic() < until and os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
    ):
        time.sleep(0.005)
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    with suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    while left := Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
        for process in map(int, left):
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)


def table(verdicts: Sequence[tuple[Mutant, Verdict]]) -> str:
    """Return the counts of each room, and the share that was caught or timed out."""
    columns = ("caught", "timed out", "survived", "no test")
    lines = [f"{'room':8} mutants " + " ".join(f"{name:>9}" for name in columns) + "  found"]
    usable = [(mutant, verdict) for mutant, verdict in verdicts if verdict.verdict != "unusable"]
    for room in (*ROOMS, "all"):
        counts = Counter(v.verdict for mutant, v in usable if room in (mutant.room, "all"))
        if whole := counts.total():
            found = (counts["caught"] + counts["timed out"]) / whole
            numbers = " ".join(f"{counts[name]:9}" for name in columns)
            lines.append(f"{room:8} {whole:7} {numbers}  {found:5.1%}")
    return "\n".join(lines)


def run(
    mutants: Sequence[Mutant],
    tests: dict[str, Known],
    out: Path,
    *,
    seed: int,
    budget: float,
    likely: dict[str, str],
    folders: Sequence[str] = ("tests",),
) -> list[tuple[Mutant, Verdict]]:
    """Run all mutants, write a line about each, and return what became of them."""
    os.chdir(ROOT)
    plugin = Mutants(mutants, tests, out, budget, likely)
    pytest.main([*options(seed), "--tb=native", *folders], plugins=[plugin])
    return plugin.verdicts
