"""`python -m bench.serve`: requests a second, lag of streams and time of the processor for each watcher, over HTTP.

    python -m bench.serve [--store sqlite|postgresql] [--watchers 1000] [--driven 100] [--seconds 8]
                          [--only requests,one,many,elsewhere,slow,dropped]

A `treadle serve` process serves and drives; this process is the client, on the same cores. Of each request the time
until its response is there is measured; of each event the time from its own time until its frame is in the client.
The figures in the last column are what is demanded on two cores, client included.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import quantiles
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

from bench.load import lent

TIME = re.compile(rb'"seq":(\d+),"time":(\d+)')
ENDED = b"event: task_ended"
TICKS = os.sysconf("SC_CLK_TCK")


class Server:
    """A server process; `url` is where it listens."""

    def __init__(self, store: str, *options: str) -> None:
        command = [
            sys.executable,
            "-m",
            "treadle",
            "serve",
            "bench.serve_agents:agents",
            "--port",
            "0",
            "--json",
        ]
        self.process = subprocess.Popen(
            [*command, "--auth", "bench.serve_agents:who", "--store", store, *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=Path(__file__).parents[1],
        )
        assert self.process.stdout is not None
        self.url = json.loads(self.process.stdout.readline())["url"]
        self.address = (str(urlsplit(self.url).hostname), int(urlsplit(self.url).port or 0))
        # What it prints later is read and dropped: a full pipe would stop it.
        Thread(target=self.process.stdout.read, daemon=True).start()

    def spent(self) -> float:
        """Return the seconds of processor that the process has used."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def footprint(self) -> tuple[int, int]:
        """Return the open descriptors of the process, and its KiB in memory."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        resident = int(re.findall(r"VmRSS:\s+(\d+)", status)[0])
        return len([*Path(f"/proc/{self.process.pid}/fd").iterdir()]), resident

    def close(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.process.kill()


@contextmanager
def serving(store: str, *options: str) -> Iterator[Server]:
    server = Server(store, *options)
    try:
        yield server
    finally:
        server.close()


class Connection:
    """One connection that is kept open, for requests one after the other."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        if self._streams is None:
            self._streams = await asyncio.open_connection(*self._address, limit=1 << 24)
        reader, writer = self._streams
        data = b"" if body is None else json.dumps(body).encode()
        named = {"Authorization": f"Bearer p{random.randrange(1 << 40)}", **headers}
        if data:
            named["Content-Type"] = "application/json"
        lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in named.items())
        head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(data)}\r\n{lines}\r\n"
        writer.write(head.encode() + data)
        answer = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = int(re.findall(r"(?i)content-length: (\d+)", answer)[0])
        text = await reader.readexactly(length)
        return int(answer.split()[1]), json.loads(text) if text[:1] in (b"{", b"[") else text


class Watch:
    """What the watchers of a run note together: the lags of events from when all of them had begun to read."""

    def __init__(self, watchers: int) -> None:
        self.lags: list[float] = []
        self.since = float("inf")
        self._to_begin = watchers

    def begins(self) -> None:
        self._to_begin -= 1
        if not self._to_begin:
            self.since = time.time()


class Watcher(asyncio.Protocol):
    """Reads one stream to the end of its task, and notes how late each event is."""

    def __init__(self, path: str, watch: Watch, slow: bool) -> None:
        self.path, self.watch, self.slow = path, watch, slow
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.seen = 0
        self._rest = b""
        self._has_begun = False

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        head = f"GET {self.path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\n"
        transport.write(f"{head}Authorization: Bearer w{id(self)}\r\n\r\n".encode())
        if self.slow:
            transport.pause_reading()
            self._read_a_byte()

    def _read_a_byte(self) -> None:
        sock = self.transport.get_extra_info("socket")
        with suppress(OSError):
            os.read(sock.fileno(), 1)
        if not self.transport.is_closing():
            asyncio.get_running_loop().call_later(1.0, self._read_a_byte)

    def data_received(self, data: bytes) -> None:
        now = time.time()
        data = self._rest + data
        end = data.rfind(b"\n\n") + 2
        if not self._has_begun and end > 1 and not self.slow:
            self._has_begun = True
            self.watch.begins()
        for _, moment in TIME.findall(data, 0, end):
            self.seen += 1
            if int(moment) / 1e6 > self.watch.since:
                self.watch.lags.append(now - int(moment) / 1e6)
        self._rest = data[end:]
        if ENDED in data and not self.ended.done():
            self.ended.set_result(None)
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_result(None)


def at(values: Sequence[float], percent: int) -> float:
    """Return a percentile of values, in milliseconds."""
    if len(values) < 2:
        return 1e3 * values[0] if values else 0.0
    return 1e3 * quantiles(values, n=100, method="inclusive")[percent - 1]


def told(what: str, figures: str, demanded: str) -> None:
    print(f"{what:<52} {figures:<58} {demanded}", flush=True)


async def start_tasks(server: Server, agent: str, count: int) -> list[str]:
    connection = Connection(server.address)
    tasks: list[str] = []
    for _ in range(count):
        status, made = await connection.ask(
            "POST", "/v1/tasks", {"agent": agent, "input": "Go.", "run": True}
        )
        assert status == 201, made
        tasks.append(made["task_id"])
    return tasks


async def finished(server: Server, tasks: Sequence[str]) -> None:
    connection = Connection(server.address)
    for task in tasks:
        while (await connection.ask("GET", f"/v1/tasks/{task}/result", Prefer="wait=30"))[0] == 202:
            pass


async def cancel(server: Server, tasks: Sequence[str]) -> None:
    connection = Connection(server.address)
    for task in tasks:
        await connection.ask("POST", f"/v1/tasks/{task}/cancel", {}, Prefer="wait=20")


async def requests(server: Server, driven: int, seconds: float) -> None:
    """Measure requests while tasks are driven: at a steady pace first, then as many as four clients can send."""
    tasks = await start_tasks(server, "load", driven)
    await asyncio.sleep(1.0)
    quick = (await start_tasks(server, "quick", 1))[0]
    await finished(server, [quick])
    kinds: dict[str, tuple[str, str, Any, str]] = {
        "POST": ("POST", "/v1/tasks", {"agent": "quick", "input": "Go."}, "p99 <= 50 ms (prototype 35-38)"),
        "GET": ("GET", f"/v1/tasks/{quick}", None, "p99 <= 30 ms (prototype 18-30)"),
        "health": ("GET", "/health", None, "p99 <= 10 ms"),
    }

    async def steadily(kind: str, times: list[float]) -> None:
        method, path, body, _ = kinds[kind]
        connection, until = Connection(server.address), time.perf_counter() + seconds
        while time.perf_counter() < until:
            began = time.perf_counter()
            status, _ = await connection.ask(method, path, body)
            assert status < 300, status
            times.append(time.perf_counter() - began)
            await asyncio.sleep(0.05)

    times: dict[str, list[float]] = {kind: [] for kind in kinds}
    await asyncio.gather(*[steadily(kind, times[kind]) for kind in kinds])
    for kind, (*_, demanded) in kinds.items():
        figures = (
            f"p50 {at(times[kind], 50):.1f} ms, p99 {at(times[kind], 99):.1f} ms, n = {len(times[kind])}"
        )
        told(f"{kind}, {driven} tasks driven", figures, demanded)

    async def as_quickly(kind: str) -> int:
        method, path, body, _ = kinds[kind]
        connection, until, count = Connection(server.address), time.perf_counter() + seconds / 2, 0
        while time.perf_counter() < until:
            await connection.ask(method, path, body)
            count += 1
        return count

    for kind in kinds:
        counts = await asyncio.gather(*[as_quickly(kind) for _ in range(4)])
        told(f"{kind}, 4 clients, {driven} tasks driven", f"{sum(counts) / (seconds / 2):,.0f} a second", "")
    await cancel(server, tasks)


async def watched(
    server: Server, front: Server, agent: str, tasks: int, watchers: int, slow: int = 0
) -> tuple[float, list[float], float, int]:
    """Run tasks under watch; return the seconds of the longest, the lags, seconds of processor, and events seen."""
    gc.collect()
    loop = asyncio.get_running_loop()
    spent, began, watch = front.spent(), time.perf_counter(), Watch(watchers - slow)
    started = await start_tasks(server, agent, tasks)
    made: list[Watcher] = []
    for number in range(watchers):
        path = f"/v1/tasks/{started[number % tasks]}/events"
        watcher = Watcher(path, watch, number < slow)
        made.append(watcher)
        await loop.create_connection(lambda watcher=watcher: watcher, *front.address)
    opened = time.perf_counter() - began
    await finished(server, started)
    seconds = time.perf_counter() - began
    if watchers:
        await asyncio.wait([watcher.ended for watcher in made[slow:]], timeout=60)
    for watcher in made:
        watcher.transport.abort()
    seen = sum(watcher.seen for watcher in made)
    assert all(watcher.seen > 50 for watcher in made[slow:]), sorted(watcher.seen for watcher in made)[:5]
    print(f"{'':<4}opened {watchers} streams within {opened:.1f} s", flush=True) if watchers else None
    return seconds, watch.lags, front.spent() - spent, seen


def report(
    what: str, result: tuple[float, list[float], float, int], plain: float, watchers: int, demanded: str
) -> None:
    seconds, lags, spent, seen = result
    figures = (
        f"lag p50 {at(lags, 50):.0f} ms, p99 {at(lags, 99):.0f} ms; run {seconds / plain:.2f}x unwatched"
    )
    told(what, figures, demanded)
    each = f"{1e3 * spent / max(watchers, 1):.1f} ms a watcher, {1e6 * spent / max(seen, 1):.0f} us an event"
    told("", f"server {spent:.1f} s of processor, {each}", "")


async def dropped(server: Server, count: int) -> None:
    """Open streams and drop them, and look what is left."""
    (task,) = await start_tasks(server, "quick", 1)
    await finished(server, [task])

    async def open_and_drop(times: int) -> None:
        for _ in range(times):
            reader, writer = await asyncio.open_connection(*server.address)
            head = f"GET /v1/tasks/{task}/events HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\n"
            writer.write(f"{head}Authorization: Bearer d{random.randrange(1 << 40)}\r\n\r\n".encode())
            await reader.read(100)
            writer.transport.abort()

    await asyncio.gather(*[open_and_drop(25) for _ in range(20)])
    await asyncio.sleep(4.0)
    before = server.footprint()
    await asyncio.gather(*[open_and_drop(count // 20) for _ in range(20)])
    await asyncio.sleep(4.0)
    after = server.footprint()
    streams = (await Connection(server.address).ask("GET", "/metrics"))[1]
    left = int(re.findall(rb"^treadle_streams (\d+)", streams, re.MULTILINE)[0])
    figures = f"{after[0] - before[0]:+d} descriptors, {(after[1] - before[1]) / 1024:+.1f} MiB, {left} streams left"
    told(f"{count:,} streams opened and dropped", figures, "none")


async def measure(arguments: argparse.Namespace, url: str, only: set[str]) -> None:
    n, driven = arguments.watchers, arguments.driven
    with serving(url, "--at-most", "500") as server:
        if "requests" in only:
            await requests(server, driven, arguments.seconds)
        if only & {"one", "elsewhere", "slow"}:
            plain = min([(await watched(server, server, "watched", 1, 0))[0] for _ in range(2)])
            told("a run of 20 steps, unwatched", f"{plain:.1f} s", "")
        if "one" in only:
            result = await watched(server, server, "watched", 1, n)
            report(
                f"{n} watchers of it", result, plain, n, "lag p99 <= 500 ms, run <= 1.6x (prototype 5.9 s)"
            )
        if "slow" in only:
            result = await watched(server, server, "watched", 1, 100, slow=20)
            report("100 watchers, 20 of them a byte a second", result, plain, 100, "run <= 1.05x")
        if "many" in only:
            several = (await watched(server, server, "slow", 100, 0))[0]
            told("100 runs of 20 slow steps, unwatched", f"{several:.1f} s", "")
            result = await watched(server, server, "slow", 100, n)
            report(f"{n} watchers of 100 runs", result, several, n, "lag p99 <= 500 ms, run <= 1.6x")
        if "elsewhere" in only:
            with serving(url, "--no-drive") as front:
                result = await watched(server, front, "watched", 1, n)
                report(
                    f"{n} watchers at another process",
                    result,
                    plain,
                    n,
                    "lag p99 <= 1 s (prototype 1.0, 0.9)",
                )
        if "dropped" in only:
            await dropped(server, arguments.drops)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.serve")
    parser.add_argument("--store", default="sqlite")
    parser.add_argument("--watchers", type=int, default=1_000)
    parser.add_argument("--driven", type=int, default=100)
    parser.add_argument("--drops", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=8.0, help="for how long requests are sent at a pace")
    parser.add_argument("--only", default="requests,one,slow,many,elsewhere,dropped")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=Path.cwd()), lent(arguments.store) as url:
        asyncio.run(measure(arguments, url, set(arguments.only.split(","))))
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    return 0


if __name__ == "__main__":
    sys.exit(main())
