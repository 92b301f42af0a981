"""The faults of a tool on every host: what becomes of the call, of its siblings, of the event loop, and what is left.

python -m tests.tools.hosts.fault_matrix     every case, and the delays of a heartbeat of 10 ms for each host
"""

import asyncio
import sys
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from tests.runner.acts import journal
from tests.tools.hosts import faults
from treadle import Agent, MCPServer, Runner, ScriptedModel, tool
from treadle.core import events as e
from treadle.engine.abandoned import still_running
from treadle.models import call, text
from treadle.tools import Subprocess, abandoned
from treadle.tools.threads import at_work

HOST: Final = Subprocess(spare=False)
SERVER: Final = Path(__file__).with_name("fault_server.py")

HOSTS: Final = ("async", "thread", "subprocess", "MCP stdio", "MCP http")

OK, ERROR, TIMEOUT, ABANDONED = "ok", "error", "timeout", "abandoned"
UNSTOPPABLE: Final = ("never_returns", "sleeps_on", "spins", "returns_after_its_end")
"""What goes on in a thread after its end is recorded."""

ENDLESS: Final = (*UNSTOPPABLE, "yields_for_ever", "returns_late")
"""What has to be stopped by its timeout; other calls have all the time that a busy machine may need."""

SHARED: Final = "returns_200_megabytes"
"""What holds the interpreter, in a thread too, while Python fills so many bytes."""

# What becomes of a call that only reads, on the hosts in their order. None: the fault does not exist there, or is the
# documented exception: what runs in this process can end it, hold its event loop, and change its environment. A thread
# that ends within the grace of a cancelled call tells what it did, so that is known.
EXPECTED: Final[dict[str, tuple[str | None, ...]]] = {
    "raises_exception": (ERROR, ERROR, ERROR, ERROR, ERROR),
    "raises_base_exception": (ERROR, ERROR, ERROR, ERROR, ERROR),
    "raises_system_exit": (ERROR, ERROR, ERROR, ERROR, ERROR),
    "raises_keyboard_interrupt": (ERROR, ERROR, ERROR, ERROR, ERROR),
    "raises_cancelled": (ERROR, ERROR, ERROR, ERROR, ERROR),
    "raises_generator_exit": (ERROR, ERROR, ERROR, ERROR, ERROR),
    "never_returns": (TIMEOUT, TIMEOUT, TIMEOUT, TIMEOUT, TIMEOUT),
    "sleeps_on": (ABANDONED, TIMEOUT, TIMEOUT, TIMEOUT, TIMEOUT),
    "spins": (None, TIMEOUT, TIMEOUT, TIMEOUT, TIMEOUT),
    "leaves_a_grandchild": (None, None, OK, OK, None),
    "exits": (None, None, ERROR, ERROR, ERROR),
    "crashes": (None, None, ERROR, ERROR, ERROR),
    "returns_200_megabytes": (ERROR, ERROR, ERROR, ERROR, ERROR),
    "yields_for_ever": (TIMEOUT, TIMEOUT, TIMEOUT, None, None),
    "returns_an_object": (ERROR, ERROR, ERROR, ERROR, ERROR),
    "returns_itself": (ERROR, ERROR, ERROR, ERROR, ERROR),
    "returns_nan": (ERROR, ERROR, ERROR, OK, OK),
    "returns_bytes": (OK, OK, OK, ERROR, ERROR),
    "returns_a_deep_nest": (ERROR, ERROR, ERROR, ERROR, ERROR),
    "writes_to_stdout": (OK, OK, OK, OK, OK),
    "prints_200_megabytes": (None, None, OK, ERROR, None),
    "changes_the_process": (None, None, OK, OK, OK),
    "raises_in_repr": (ERROR, ERROR, ERROR, ERROR, ERROR),
    "returns_what_raises_in_repr": (ERROR, ERROR, ERROR, ERROR, ERROR),
    "returns_late": (TIMEOUT, OK, TIMEOUT, TIMEOUT, TIMEOUT),
    "returns_after_its_end": (ABANDONED, TIMEOUT, TIMEOUT, None, None),
}

CASES: Final = [
    (fault, host)
    for fault, expected in EXPECTED.items()
    for host, each in zip(HOSTS, expected, strict=True)
    if each
]


def expected_of(fault: str, host: str) -> str | None:
    """Return what should become of the call."""
    return EXPECTED[fault][HOSTS.index(host)]


@dataclass
class Report:
    """What was seen of one case."""

    outcome: str | None
    message: str
    sibling: str | None
    ends: list[int]
    seconds: float
    grown: int
    left: dict[str, Any]
    listed: list[str]
    delays: list[float] = field(repr=False, default_factory=list)


_warm: Final[set[str]] = set()


async def report_of(fault: str, host: str) -> Report:
    """Run a call with a fault beside one without, and return what was seen."""
    faults.RELEASE.clear()
    if host not in _warm:
        _warm.add(host)
        await _once("raises_exception", host)  # what a process keeps from its first call on is no leak
    before = belongings()
    delays: list[float] = []
    heart = asyncio.create_task(beat(delays))
    began = time.monotonic()
    try:
        result, events, grown, listed = await _once(fault, host)
        seconds = time.monotonic() - began
        await asyncio.sleep(0.02)
    finally:
        heart.cancel()
        faults.RELEASE.set()
    bad, good = result.tool_executions
    ends = [
        sum(1 for event in events if isinstance(event, e.ToolEnded) and event.call == each.call_id)
        for each in (bad, good)
    ]
    message = bad.error.message if bad.error is not None else ""
    for work in still_running():  # else the next case would keep it from ending
        await asyncio.to_thread(until_gone, work)
    left = await leftovers(before)
    return Report(bad.outcome, message, good.outcome, ends, seconds, grown, left, listed, delays)


async def _once(fault: str, host: str) -> tuple[Any, list[Any], int, list[str]]:
    """Run the task; return its result, its events, how many came after its end, and the threads that are abandoned."""
    async with declared(fault, host) as (tools, names), Runner("memory:") as runner:
        script = [[call(names[0]), call(names[1])], text("Done.")]
        agent = Agent(ScriptedModel(script), name="desk", tools=tools)
        result = await runner.run(agent, "Go.")
        events = await journal(runner, result.task_id)
        listed = [each.tool for each in abandoned()]
        if fault == "returns_late":
            await asyncio.sleep(faults.LATE)
        elif fault == "returns_after_its_end":
            faults.RELEASE.set()
            await asyncio.sleep(0.2)
        later = await journal(runner, result.task_id)
        return result, events, len(later) - len(events), listed


@asynccontextmanager
async def declared(fault: str, host: str) -> AsyncIterator[tuple[list[Any], tuple[str, str]]]:
    """Yield the tools of a host, and the names of the faulty one and of its sibling."""
    timeout = faults.TIMEOUT if fault in ENDLESS else 30
    options: dict[str, Any] = {"read_only": True, "timeout": timeout}
    if host.startswith("MCP"):
        with TemporaryDirectory() as pins:
            async with server(host) as target:
                reads = dict.fromkeys((fault, "fine"), ("read_only",))
                times = {"start_timeout": 30.0, "call_timeout": 2.0 if fault in ENDLESS else 30.0}
                mcp = MCPServer("bad", **target, effects=reads, only=(fault,), pins=pins, **times)
                yield [mcp, tool(fine, read_only=True)], (f"bad__{fault}", "fine")
        return
    fn = faults.FAULTS[fault]
    if host == "async":
        fn = faults.IN_THE_LOOP.get(fault) or faults.as_async(fn)
    elif host == "subprocess":
        options["host"] = HOST
    yield [tool(fn, **options), tool(fine, read_only=True)], (fn.__name__, "fine")


@asynccontextmanager
async def server(host: str) -> AsyncIterator[dict[str, Any]]:
    """Yield how the fault server is reached."""
    if host == "MCP stdio":
        yield {"command": sys.executable, "args": [str(SERVER)]}
        return
    null, pipe = asyncio.subprocess.DEVNULL, asyncio.subprocess.PIPE
    command = (sys.executable, str(SERVER), "--http")
    process = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=null)
    assert process.stdout is not None
    try:
        yield {"url": f"http://127.0.0.1:{int(await process.stdout.readline())}/mcp"}
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def fine() -> str:
    """Do what a tool should."""
    await asyncio.sleep(0.05)
    return "fine"


async def beat(delays: list[float]) -> None:
    """Note by how much a heartbeat of 10 ms is late."""
    while True:
        began = time.perf_counter()
        await asyncio.sleep(0.01)
        delays.append(time.perf_counter() - began - 0.01)


# ------------------------------------------------------------------------------------------- what is left


def belongings() -> dict[str, int]:
    """Return how many processes, descriptors and busy threads this process has."""
    children = 0
    for thread in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # it has ended
            children += len((thread / "children").read_text().split())
    return {
        "processes": children,
        "descriptors": len(list(Path("/proc/self/fd").iterdir())),
        "threads": busy_threads(),
    }


def busy_threads() -> int:
    """Return how many threads there are, but for those that wait for work."""
    idle = ("treadle-tools", "asyncio_", "ThreadPoolExecutor")
    return at_work() + sum(1 for thread in threading.enumerate() if not thread.name.startswith(idle))


def until_gone(work: Any) -> None:
    """Wait until an abandoned call has ended."""
    while work in still_running():
        time.sleep(0.01)


async def leftovers(before: dict[str, int]) -> dict[str, Any]:
    """Return what is left of more than there was, 2 seconds after the end at the latest."""
    until = time.monotonic() + 2.0
    while True:
        now = belongings()
        more = {name: now[name] - count for name, count in before.items() if now[name] > count}
        if not more or time.monotonic() > until:
            return more
        await asyncio.sleep(0.02)


def percentile(values: list[float], share: float) -> float:
    """Return the value below which a share of the values is."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


async def main() -> int:
    """Run every case, print what was seen, and return how many were wrong."""
    wrong, delays = 0, {host: list[float]() for host in HOSTS}
    for fault, host in CASES:
        report = await report_of(fault, host)
        problem = problem_of(report, fault, host)
        wrong += problem is not None
        delays[host] += report.delays
        print(
            f"{fault:30} {host:11} {report.outcome:10} {report.seconds:5.2f} s  {problem or ''}", flush=True
        )
    for host, values in delays.items():
        p99, most = percentile(values, 0.99) * 1e3, max(values) * 1e3
        print(
            f"{host:11} heartbeats {len(values):5}, late by: p50 {percentile(values, 0.5) * 1e3:.1f} ms, ",
            end="",
        )
        print(f"p99 {p99:.1f} ms, max {most:.1f} ms")
    print(f"{len(CASES)} cases, {wrong} wrong")
    return wrong


def problem_of(report: Report, fault: str, host: str) -> str | None:
    """Return what is wrong with a case; None if nothing is."""
    expected = expected_of(fault, host)
    if report.outcome != expected:
        return f"outcome {report.outcome}, expected {expected}: {report.message[:200]}"
    if report.sibling != "ok":
        return f"its sibling: {report.sibling}"
    if report.ends != [1, 1]:
        return f"ends: {report.ends}"
    if report.grown:
        return f"{report.grown} events after the end"
    if report.left:
        return f"left behind: {report.left}"
    if fault in UNSTOPPABLE and host == "thread" and fault not in report.listed:
        return "the thread that goes on is not listed"
    if host != "async" and max(report.delays) > 0.5 and (fault, host) != (SHARED, "thread"):
        return f"the event loop was held for {max(report.delays):.2f} s"
    return None


if __name__ == "__main__":
    sys.exit(min(1, asyncio.run(main())))
