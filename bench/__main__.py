"""`python -m bench`: what Treadle costs beside loops written by hand, measured in one interleaved run.

Figures of a shared machine are noisy: every sampler runs once a round in shuffled order, what is printed is the median,
and a ratio is the median of the ratios within rounds. Trust factors of 1.5 and more.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import platform
import random
import tempfile
import time
from pathlib import Path
from statistics import median

from bench.rows import BenchFolder, Row, all_rows, document


async def measure(rows: list[Row], rounds: int, seed: int) -> None:
    chance = random.Random(seed)
    for number in range(rounds):
        order = [row for row in rows if number < (row.rounds or rounds)]
        chance.shuffle(order)
        for row in order:
            names = list(row.samplers)
            chance.shuffle(names)
            for name in names:
                gc.collect()
                row.samples.setdefault(name, []).append(await row.samplers[name]())


def ratio(row: Row) -> float:
    own, reference = row.samples["treadle"], row.samples[row.reference]
    return median(a / b for a, b in zip(own, reference, strict=True))


def line(row: Row) -> list[str]:
    value, beside = median(row.samples["treadle"]), median(row.samples[row.reference])
    times = ratio(row)
    if row.limit is None:
        target, met = "", ""
    elif row.absolute:
        target, met = f"<= {row.limit:g} {row.unit}", "yes" if value <= row.limit else "NO"
    else:
        target, met = f"<= {row.limit:g} x {row.reference}", "yes" if times <= row.limit else "NO"
    other_names = ", ".join(
        f"{name} {_figure(median(values))}"
        for name, values in row.samples.items()
        if name not in ("treadle", row.reference)
    )
    reference = f"{row.reference} {_figure(beside)}" + (f" ({other_names})" if other_names else "")
    return [row.key, row.what, f"{_figure(value)} {row.unit}", reference, f"{times:.2f}", target, met]


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def table(rows: list[Row]) -> str:
    lines = [
        ["row", "workload", "treadle", "reference", "ratio", "target", "met"],
        *[line(row) for row in rows],
    ]
    widths = [max(len(cells[column]) for cells in lines) for column in range(len(lines[0]))]
    return "\n".join(
        "  ".join(c.ljust(w) for c, w in zip(cells, widths, strict=True)).rstrip() for cells in lines
    )


async def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="fewer rounds, 200 concurrent runs, no 5,000-step run"
    )
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--rows", help="only these rows, such as 1,3w,10")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help="write every sample here")
    arguments = parser.parse_args()
    rounds = arguments.rounds or (3 if arguments.quick else 7)
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=Path.cwd()) as folder:
        rows = await all_rows(BenchFolder(Path(folder)), quick=arguments.quick)
        if arguments.rows:
            rows = [row for row in rows if row.key.split()[0] in arguments.rows.split(",")]
        await measure(rows, rounds, arguments.seed)
    print(table(rows))
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    print(
        f"\n{rounds} rounds in {time.perf_counter() - begin:.0f} s; Python {platform.python_version()}, "
        f"{os.cpu_count()} cores, load {load}"
    )
    if arguments.json:
        arguments.json.write_text(document(rows))


asyncio.run(main())
