"""`python -m bench.budget`: what work costs, in counts that do not depend on the machine, beside `bench/budget.toml`.

`calls` (of functions, in Python and in C) and `bytecodes` are counted on the version of Python that the file names;
with `--instructions` callgrind counts the processor's instructions too, with the build of Python that it names. A count
more than 2 % above its budget fails. `--write` lowers figures and raises none: to raise one, edit the file and
give the reason beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from bench.counted import IMPORTS

REPOSITORY: Final = Path(__file__).parents[1]
FILE: Final = Path(__file__).with_suffix(".toml")
TOLERANCE: Final = 1.02
KEPT: Final = ("PATH", "HOME", "TMPDIR", "LD_LIBRARY_PATH")
"""Variables of the environment that the counting process gets: others may change how Python runs."""

COUNTS: Final = ("calls", "bytecodes", "modules")

Budget = dict[str, dict[str, Any]]


def read(file: Path = FILE) -> tuple[dict[str, str], Budget]:
    """Return with what the budget was taken, and the budget of each subject."""
    document = tomllib.loads(file.read_text())
    return document.pop("taken"), document


def mismatch(taken: dict[str, str]) -> str | None:
    """Return why bytecodes are not comparable here; None if they are."""
    here = ".".join(platform.python_version_tuple()[:2])
    if platform.python_implementation() != "CPython" or here != taken["python"]:
        name = f"{platform.python_implementation()} {here}"
        return f"bytecodes and calls were counted on CPython {taken['python']}, and this is {name}"
    return None


def build() -> str:
    """Return what the number of instructions depends on."""
    return f"CPython {platform.python_version()}, {platform.python_compiler()}, {platform.machine()}"


def _environment() -> dict[str, str]:
    kept = {name: os.environ[name] for name in KEPT if name in os.environ}
    return {**kept, "PYTHONHASHSEED": "0"}


def _run(how: str, *subjects: str, before: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Return what a process printed that counts subjects, each in a fork: others before it would change some counts."""
    command = [*before, sys.executable, "-m", "bench.counted", how, *subjects]
    done = subprocess.run(
        command, cwd=REPOSITORY, env=_environment(), capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def bytecodes(subjects: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return calls and bytecodes of each subject, with those of each function."""
    together = [name for name in subjects if name not in IMPORTS]
    counted = dict(zip(together, _run("bytecodes", *together) if together else (), strict=True))
    return {name: counted[name] if name in counted else _run("bytecodes", name)[0] for name in subjects}


def instructions(subject: str) -> int:
    """Return the instructions of a subject, counted by callgrind; compiled modules have to be there."""
    with tempfile.TemporaryDirectory(prefix="treadle-callgrind-") as folder:
        out = Path(folder) / "out"
        options = ("--tool=callgrind", "--dump-before=getppid", f"--callgrind-out-file={out}")
        runs: int = _run("instructions", subject, before=("valgrind", *options))[0]["runs"]
        return round(_total(out.with_suffix(".2")) / runs)  # the first dump holds what ran before


def _total(dump: Path) -> int:
    found = re.search(r"^totals: (\d+)", dump.read_text(), re.MULTILINE)
    assert found, dump
    return int(found[1])


# ----------------------------------------------------------------------------------------------------- comparison


def compared(budget: Budget, now: Budget) -> Iterator[tuple[str, str, int, int, float]]:
    """Yield the subject, the count, its budget, what it is now, and the ratio."""
    for subject, counts in now.items():
        for name, value in counts.items():
            allowed = budget[subject].get(name)
            if allowed:
                yield subject, name, allowed, value, value / allowed


def table(budget: Budget, now: Budget) -> str:
    """Return a line for each count."""
    lines = [("work", "count", "budget", "now", "ratio", "")]
    for subject, name, allowed, value, ratio in compared(budget, now):
        said = "TOO MANY" if ratio > TOLERANCE else ""
        lines.append((budget[subject]["work"], name, f"{allowed:,}", f"{value:,}", f"{ratio:.3f}", said))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    right = (False, False, True, True, True, False)
    return "\n".join(
        "  ".join(
            cell.rjust(width) if is_figure else cell.ljust(width)
            for cell, width, is_figure in zip(line, widths, right, strict=True)
        ).rstrip()
        for line in lines
    )


def lowered(text: str, now: Budget) -> str:
    """Return the text of the budget with the figures that are lower now; comments stay."""
    lines: list[str] = []
    subject = ""
    for line in text.splitlines(keepends=True):
        written = line
        if header := re.match(r"\[(\w+)\]", line):
            subject = header[1]
        elif figure := re.match(r"(\w+) = ([\d_]+)", line):
            value = now.get(subject, {}).get(figure[1])
            if value is not None and value < int(figure[2]):
                written = f"{figure[1]} = {value:_}{line[figure.end() :]}"
        lines.append(written)
    return "".join(lines)


def functions(counted: dict[str, Any], other: dict[str, Any] | None, top: int) -> str:
    """Return the functions that take most bytecodes; with another count, those that differ most from it."""
    now: dict[str, list[float]] = counted["functions"]
    before: dict[str, list[float]] = other["functions"] if other else {}
    none = [0.0, 0.0, 0.0]
    rows = [(now.get(name, none), before.get(name, none), name) for name in {**now, **before}]
    rows.sort(key=lambda row: -abs(row[0][2] - row[1][2]))
    lines = ["   bytecodes   difference     calls   C calls  function"]
    lines += [
        f"{new[2]:12,.0f} {new[2] - old[2]:+12,.0f} {new[0]:9,.1f} {new[1]:9,.1f}  {name}"
        for new, old, name in rows[:top]
    ]
    return "\n".join(lines)


def main() -> int:
    """Count, print, and return the exit status."""
    taken, budget = read()
    parser = argparse.ArgumentParser(
        prog="python -m bench.budget", description=__doc__.replace("%", "%%") if __doc__ else None
    )
    parser.add_argument("subjects", nargs="*", metavar="SUBJECT", help=f"one of {', '.join(budget)}")
    parser.add_argument("--instructions", action="store_true", help="count instructions too; needs valgrind")
    parser.add_argument("--write", action="store_true", help="lower the figures of the file")
    parser.add_argument("--functions", type=int, metavar="N", help="list the N costliest functions")
    parser.add_argument("--json", type=Path, help="write the counts of all functions here")
    parser.add_argument("--against", type=Path, help="list differences from such a file, with --functions")
    arguments = parser.parse_args()
    subjects: list[str] = arguments.subjects or list(budget)
    if unknown := set(subjects) - set(budget):
        parser.error(f"no such subject: {', '.join(sorted(unknown))}")
    if arguments.instructions and not shutil.which("valgrind"):
        parser.error("--instructions needs valgrind, which is not installed")
    counted = bytecodes(subjects)
    now: Budget = {
        name: {key: counts[key] for key in COUNTS if key in counts} for name, counts in counted.items()
    }
    if reason := mismatch(taken):
        print(f"not compared: {reason}")
        now = {name: {} for name in now}
    if arguments.instructions and build() != taken["build"]:
        print(f"instructions not compared: they were counted on {taken['build']}, and this is {build()}")
    elif arguments.instructions:
        for name in subjects:
            now[name]["instructions"] = instructions(name)
    print(table(budget, now))
    if arguments.json:
        arguments.json.write_text(json.dumps(counted))
    if arguments.functions:
        others = json.loads(arguments.against.read_text()) if arguments.against else {}
        for name, counts in counted.items():
            print(f"\n{name}\n{functions(counts, others.get(name), arguments.functions)}")
    if arguments.write:
        FILE.write_text(lowered(FILE.read_text(), now))
    return int(any(ratio > TOLERANCE for *_, ratio in compared(budget, now)))


if __name__ == "__main__":
    sys.exit(main())
