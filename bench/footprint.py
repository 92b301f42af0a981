"""Prints how many KiB each of many concurrent runs adds at the peak: `python -m bench.footprint treadle 1000`."""

from __future__ import annotations

import asyncio
import gc
import sys
from pathlib import Path

from bench import references, subjects
from treadle import Runner


def peak(*, anew: bool = False) -> int:
    """Return the most memory this process held, in KiB; `anew`: what it holds now, and the peak is counted from here.

    Importing (and compiling what was imported) may have held more than the runs that are measured.
    """
    if anew:
        gc.collect()
        Path("/proc/self/clear_refs").write_text("5")
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1])
    raise RuntimeError("this system does not tell the peak of a process's memory")


async def main(subject: str, runs: int) -> None:
    async with Runner("memory:") as runner:
        agent = subjects.agent(subjects.Fake(4, delay=0.05))
        model = references.model(4, 0.05)
        make = {
            "bare": lambda: references.bare(model),
            "featured": lambda: references.featured(model),
            "treadle": lambda: subjects.run(runner, agent),
        }[subject]
        await asyncio.gather(*[make() for _ in range(3)])
        before = peak(anew=True)
        await asyncio.gather(*[make() for _ in range(runs)])
        print((peak() - before) / runs)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
