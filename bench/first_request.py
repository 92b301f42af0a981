"""What the first request of a process costs: time and CPU until it leaves, and how long it holds up the event loop.

    python -m bench.first_request [--against PATH/TO/OTHER/src] [--rounds N] [wire ...]

Each measurement is a process of its own, which imports Treadle first and then runs one task against a server on
loopback. With `--against`, processes on those sources take turns with processes on these.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

from treadle.testing.provider import ProviderServer, text

HERE = Path(__file__).parent.parent / "src"
WIRES = {"chat": "OpenAIChat", "responses": "OpenAI", "anthropic": "Anthropic", "google": "Google"}
CHILD = """
import asyncio, json, sys, time
from treadle import Agent, Runner, models

kind, url = sys.argv[1:]
model = getattr(models, kind)("gemini-3-x" if kind == "Google" else "x-1", base_url=url, api_key="k-0123456789")

async def main():
    longest, busiest = 0.0, 0.0
    async def tick():
        nonlocal longest, busiest
        while True:
            began, busy = time.perf_counter(), time.thread_time()
            await asyncio.sleep(0.002)
            longest = max(longest, time.perf_counter() - began - 0.002)
            busiest = max(busiest, time.thread_time() - busy)
    ticking = asyncio.create_task(tick())
    await asyncio.sleep(0.05)
    longest = busiest = 0.0
    cpu, began = time.process_time(), time.time()
    async with Runner("memory:") as runner:
        result = await runner.run(Agent(models.Retry(model)), "go")
    ticking.cancel()
    assert result.final_text == "Hello.", result
    print(json.dumps({"began": began, "cpu": cpu, "whole": time.time() - began, "all": time.process_time() - cpu,
                      "stall": longest, "busy": busiest}))

asyncio.run(main())
"""


def measured(wire, src):
    """What one process took, in seconds."""
    seen = {}

    def arrived(_request):
        seen["time"] = time.time()
        fields = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()
        seen["cpu"] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    with ProviderServer([text("Hello.")], on_request=arrived) as server:
        url = server.openai_base_url if wire in ("chat", "responses") else server.url
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, WIRES[wire], url],
            env={**os.environ, "PYTHONPATH": str(src)},
            stdout=subprocess.PIPE,
        )
        completed = json.loads(child.communicate()[0])
    return {
        "CPU until it leaves": seen["cpu"] - completed["cpu"],
        "time until it leaves": seen["time"] - completed["began"],
        "CPU of the run": completed["all"],
        "longest stall": completed["stall"],
        "longest stall, CPU": completed["busy"],
    }


def main():
    parser = argparse.ArgumentParser(prog="python -m bench.first_request")
    parser.add_argument("wires", nargs="*", default=list(WIRES))
    parser.add_argument("--against", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    sources = {"these": HERE} | ({"those": arguments.against} if arguments.against else {})
    for wire in arguments.wires:
        seconds = {name: [] for name in sources}
        for _ in range(arguments.rounds):
            for name, src in sources.items():
                seconds[name].append(measured(wire, src))
        for name, rounds in seconds.items():
            shown = ", ".join(
                f"{name} {median(sample[name] for sample in rounds):.3f} s" for name in rounds[0]
            )
            print(f"{wire:10} {name:6} {shown}", flush=True)


if __name__ == "__main__":
    main()
