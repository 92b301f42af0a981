"""`python -m bench.large_bodies`: requests of one tenant while a principal of another posts large bodies.

    python -m bench.large_bodies [--shape numbers|unknown|lists|parts|text] [--parallel 6] [--seconds 8]

A server with a store in a file runs in this process. Another process posts the bodies, without a pause.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import httpx2

from tests.client.served import served
from treadle import Agent, ScriptedModel
from treadle.server import ADMIN, Principal

SHAPES: dict[str, dict[str, Any]] = {
    "numbers": {"extra_state": {f"k{number}": number for number in range(65_000)}},
    "unknown": {"nothing": {f"k{number}": number for number in range(65_000)}},
    "lists": {"extra_state": {"lists": [[] for _ in range(49_000)]}},
    "parts": {"input": [{"type": "text", "text": "x"} for _ in range(20_000)]},
    "text": {"input": "x" * 900_000},
}


def by_token(connection: Any) -> Principal:
    """Know each principal by its tenant, which is its token."""
    return Principal("p", connection.headers["authorization"].removeprefix("Bearer "), scopes=ADMIN)


def client(url: str, tenant: str) -> httpx2.AsyncClient:
    headers = {"Authorization": f"Bearer {tenant}", "Content-Type": "application/json"}
    return httpx2.AsyncClient(base_url=url, headers=headers, timeout=60)


async def post(url: str, shape: str, parallel: int) -> None:
    """Post bodies until this process is terminated; print the statuses of the responses."""
    body = json.dumps({"agent": "a", "input": "hi", **SHAPES[shape]}).encode()
    statuses: Counter[int] = Counter()
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    async with client(url, "large") as http:

        async def go_on() -> None:
            while True:
                statuses[(await http.post("/v1/tasks", content=body)).status_code] += 1

        posting = [asyncio.ensure_future(go_on()) for _ in range(parallel)]
        await ended.wait()
        for each in posting:
            each.cancel()
    print(dict(statuses))


async def measure(url: str, seconds: float) -> list[float]:
    """Return how long requests of another tenant took, in milliseconds, sorted."""
    times: list[float] = []
    async with client(url, "small") as http:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            began = time.perf_counter()
            (await http.get("/v1/tasks?limit=5")).raise_for_status()
            times.append(1_000 * (time.perf_counter() - began))
            await asyncio.sleep(0.02)
    return sorted(times)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shape", choices=SHAPES, default="numbers")
    parser.add_argument("--parallel", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--post", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.post is not None:
        asyncio.run(post(given.post, given.shape, given.parallel))
        return
    agent = Agent(ScriptedModel(["hi"]), name="a")
    with (
        tempfile.TemporaryDirectory() as folder,
        served(agent, store=Path(folder) / "journal.db", auth=by_token) as url,
    ):
        options = ["--shape", given.shape, "--parallel", str(given.parallel), "--post", url]
        command = [sys.executable, "-m", "bench.large_bodies", *options]
        posting = (
            subprocess.Popen(command, stdout=subprocess.PIPE, text=True) if given.parallel else nullcontext()
        )
        with posting as process:
            if process is not None:
                time.sleep(2)  # it starts
            times = asyncio.run(measure(url, given.seconds))
            if process is not None:
                process.terminate()
                print(f"large: {(process.communicate()[0] or '').strip()}")
        p50, p99 = times[len(times) // 2], times[len(times) * 99 // 100]
        print(f"small: {len(times)} requests, p50 {p50:.0f} ms, p99 {p99:.0f} ms, max {times[-1]:.0f} ms")


if __name__ == "__main__":
    main()
