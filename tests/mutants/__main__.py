"""Makes small edits in the sources, one at a time, and tells which of them no test notices: `make mutants`.

    python -m tests.mutants [--seed N] [--count 400] [--only ROOM ...] [--budget SECONDS] [--out FILE]
                            [--again FILE] [--map FILE ...] [TEST ...]

A first run of all tests records which of them enter which function (`--map` names recordings to use instead). `--again`
runs the mutants of an earlier output, with the tests first that caught them, and tells of each that escapes now.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
from pathlib import Path
from typing import Any

from tests.mutants.edits import ROOMS, ROOT, Mutant, chosen
from tests.mutants.recording import record
from tests.mutants.running import Verdict, read_map, run, table


def read(path: Path) -> list[tuple[Mutant, Verdict]]:
    """Return the mutants of an output, with what became of them; the last line about a mutant counts."""
    verdicts: dict[str, tuple[Mutant, Verdict]] = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        row: dict[str, Any] = json.loads(line)
        mutant = Mutant(*(row[name] for name in ("module", "function", "kind", "text", "nth", "line")))
        verdicts[mutant.id] = (
            mutant,
            Verdict(*(row[name] for name in ("verdict", "test", "run", "of", "cpu"))),
        )
    return list(verdicts.values())


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants")
    parser.add_argument("--seed", type=int, default=None, help="chooses the mutants")
    parser.add_argument("--count", type=int, default=400, help="how many mutants")
    parser.add_argument("--only", nargs="+", choices=ROOMS, default=ROOMS, help="folders of src/treadle")
    parser.add_argument(
        "--budget", type=float, default=30.0, help="seconds of processor time for the tests of a mutant"
    )
    parser.add_argument(
        "--out", type=Path, default=ROOT / ".pytest_cache/mutants.jsonl", help="gets a line a mutant"
    )
    parser.add_argument("--again", type=Path, help="an earlier output, whose mutants run again")
    parser.add_argument(
        "--map", nargs="+", type=Path, default=(), help="earlier recordings of what tests enter"
    )
    parser.add_argument("tests", nargs="*", default=["tests"], help="tests, or folders of them")
    arguments = parser.parse_args()
    seed = random.randrange(2**31) if arguments.seed is None else arguments.seed
    arguments.out.parent.mkdir(exist_ok=True)
    maps = list(arguments.map)
    if not maps:
        maps = [arguments.out.with_suffix(".map")]
        if (child := os.fork()) == 0:
            record(maps[0], seed, arguments.tests)
            os._exit(0)
        os.waitpid(child, 0)
    before = (
        {mutant.id: (mutant, verdict) for mutant, verdict in read(arguments.again)} if arguments.again else {}
    )
    mutants = [mutant for mutant, _ in before.values()] or chosen(
        seed, arguments.count, tuple(arguments.only)
    )
    print(f"seed {seed}, {len(mutants)} mutants, into {arguments.out}", flush=True)
    done = {mutant.id for mutant, _ in read(arguments.out)}
    run(
        [mutant for mutant in mutants if mutant.id not in done],
        read_map(maps),
        arguments.out,
        seed=seed,
        budget=arguments.budget,
        folders=arguments.tests,
        likely={name: verdict.test for name, (_, verdict) in before.items() if verdict.test is not None},
    )
    now = read(arguments.out)
    print(table(now))
    for mutant, verdict in now:
        if verdict.verdict in ("survived", "no test"):
            print(f"{verdict.verdict}, {verdict.run} of {verdict.of} tests: {mutant.id}")
    escaped = [
        (mutant, before[mutant.id][1].test)
        for mutant, verdict in now
        if verdict.verdict in ("survived", "no test")
        and before.get(mutant.id, (mutant, verdict))[1].verdict in ("caught", "timed out")
    ]
    for mutant, test in escaped:
        print(f"no longer caught by {test}: {mutant.id}")
    return 1 if escaped else 0


if __name__ == "__main__":
    sys.exit(main())
