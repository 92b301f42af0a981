"""Requests that a server must survive: a `treadle serve` process under all that a stranger on the network may send.

    python -m tests.server.hostile [--requests 20000] [--half-open 300] [--slow 100] [--store sqlite|postgresql]
                                   [--health 0.2] [--seed N]

Half-open, slow-sending and slow-reading connections stay open throughout, and a process of its own asks `/health`
twenty times a second. Meanwhile these are sent: every operation with every kind of credentials and every method, from
strangers, from principals without its scope and from other tenants; hosts, origins and media types in all combinations;
bodies with changed bytes; requests made from the OpenAPI document; and pairs of requests for what another tenant has
and for what nobody has. The exit code is 1 if one of them

- was answered with 5xx, other than 503 where a limit was met,
- was served though its host, origin, media type, credentials or scope are refused,
- was told a byte of another tenant, whose words all hold a canary,
- changed what its author may not change: exports before and after are the same,
- or told what another tenant has from what is not there, by status, body or time,

or if `/health` took longer than it may.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import itertools
import json
import random
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
import requests
import schemathesis
from hypothesis import HealthCheck, given, seed, settings

from bench.load import lent
from tests.server.processes import WORKERS, ServerProcess
from tests.server.test_authorisation import BODIES, METHODS, NO_CREDENTIALS, QUERIES
from tests.server.test_guard import HOSTS, MEDIA, ORIGINS
from tests.server.test_hostile_requests import CASES, FULL, described, mutated
from treadle.server import ADMIN
from treadle.verbs.operation import Operation
from treadle.verbs.table import OPERATIONS

CANARY = "canary-5f2c1d"
SERVED = """
agents.append(Agent(Turns(1, 0.0), name="shop"))


def principal_of(connection):
    kind, _, token = connection.headers.get("authorization", "").partition(" ")
    name, _, rest = token.partition("/")
    tenant, slash, scopes = rest.partition("/")
    if kind != "Bearer" or not slash:
        return None
    return Principal(name, tenant=tenant, scopes=[each for each in scopes.split(",") if each])
"""
"""The token of a test says who its bearer is: so each request may have a principal of its own, below all limits."""

PROBE = """
import http.client, json, sys, time
host, took = sys.argv[1], []
print("probing", flush=True)
connection = http.client.HTTPConnection(host, timeout=30)
while not sys.stdin.closed:
    began = time.perf_counter()
    connection.request("GET", "/health")
    assert connection.getresponse().read()
    took.append(time.perf_counter() - began)
    time.sleep(0.05)
    import select
    if select.select([sys.stdin], [], [], 0)[0]:
        break
print(json.dumps(took))
"""
LIMITS = {"TooManyTasks", "Full", "StreamRefused"}
"""The problems of which a 503 is an answer like any other."""

ALL = ",".join(sorted(ADMIN - {"admin"}))
IDS = ("task", "thread_id", "artifact_id", "seq", "step", "grant_id", "name")


def token(tenant: str, scopes: str = ALL, name: str = "mallory") -> dict[str, str]:
    return {"Authorization": f"Bearer {name}-{next(_NUMBERS) // 20}/{tenant}/{scopes}"}


_NUMBERS = itertools.count()


def url(operation: Operation, task: str, thread: str) -> str:
    path = operation.path.replace("{task}", task).replace("{thread_id}", thread)
    for name in IDS[2:]:
        path = path.replace(f"{{{name}}}", "s1" if name == "step" else "1")
    return path + QUERIES.get(operation.name, "").replace("there", task)


class Attack:
    """What was sent to a server, and what it did wrong.

    Args:
        server: is attacked.
        seed: of what is chosen at random.
    """

    def __init__(self, server: ServerProcess, seed: int) -> None:
        self.server, self.seed = server, seed
        self.chance = random.Random(seed)
        self.faults: Counter[str] = Counter()
        self.sent: Counter[str] = Counter()
        self.codes: Counter[int] = Counter()
        self.closed: Counter[str] = Counter()
        many = httpx2.Limits(max_connections=16)
        self.client = httpx2.AsyncClient(base_url=server.url, timeout=60, limits=many)

    # ------------------------------------------------------------------------------------------ judging

    def judge(self, kind: str, what: str, status: int, body: bytes, allowed: Callable[[int], bool]) -> None:
        """Count an answer, and what is wrong with it."""
        self.sent[kind] += 1
        self.codes[status] += 1
        problem = b"".join(re.findall(rb'"urn:treadle:error:(\w+)"', body)).decode()
        if status >= 500 and not (status == 503 and problem in LIMITS):
            self.faults[f"{kind}: {what}: {status} {body[:200]!r}"] += 1
        elif not allowed(status):
            self.faults[f"{kind}: {what}: {status} is not what it should be: {body[:200]!r}"] += 1
        if CANARY.encode() in body:
            self.faults[f"{kind}: {what}: told of another tenant: {body[:200]!r}"] += 1

    async def send(
        self, kind: str, method: str, path: str, allowed: Callable[[int], bool], **given: Any
    ) -> None:
        """Send a request and judge its answer."""
        what = f"{method} {path} {given.get('headers')}"
        try:
            response = await self.client.request(method, path, **given)
        except httpx2.TransportError as error:
            self.faults[f"{kind}: {what}: {error!r}"] += 1
            return
        self.judge(kind, what, response.status_code, response.content, allowed)

    async def all_of(self, calls: Iterable[Any], count: int) -> None:
        """Make some of the calls, chosen at random, sixteen at a time."""
        chosen = list(calls)
        self.chance.shuffle(chosen)
        left: Iterator[Any] = iter(chosen[:count])

        async def go_on() -> None:
            for call in left:
                await call()

        await asyncio.gather(*[go_on() for _ in range(16)])

    # ---------------------------------------------------------------------------------------- attacking

    def matrix(self) -> Iterator[Any]:
        """Every operation, with every kind of credentials and every method."""
        own = {"kept": ("kept", "kept-thread"), "acme": ("foreign-task", "foreign-thread")}
        served = {(row.path, row.method) for row in OPERATIONS.values()}
        for row, method in itertools.product(OPERATIONS.values(), METHODS):
            meant = "GET" if method == "HEAD" else method
            fits = meant == row.method
            if row.access == "open" or row.streams or (not fits and (row.path, meant) in served):
                continue
            without: list[str] = sorted(ADMIN - {row.access, "admin"})
            refused = {403} if fits else {403, 404, 405}
            kinds: list[tuple[str, dict[str, str] | None, str, set[int]]] = [
                *[
                    (kind, headers, place, {401, 429})
                    for kind, headers in NO_CREDENTIALS.items()
                    for place in own
                ],
                ("another tenant", {"tenant": "evil"}, "acme", set()),
                ("no tenant", {"tenant": ""}, "acme", set()),
                ("a name below", {"tenant": ""}, "acme%1F", set()),
                ("the header of a tenant", {"tenant": "evil", "Treadle-Tenant": "acme"}, "acme", refused),
                ("the header without admin", {"tenant": "", "Treadle-Tenant": "acme"}, "acme", refused),
            ]
            if row.access != "any":
                kinds.append(
                    ("without the scope", {"tenant": "", "scopes": ",".join(without)}, "kept", refused)
                )
                kinds.append(("no scope", {"tenant": "", "scopes": ""}, "kept", refused))
            if row.name in (
                "prune",
                "create_task",
                "import_thread",
            ):  # what they may do in a tenant of their own
                kinds = [each for each in kinds if each[3]]
            for kind, author, place, codes in kinds:
                below = place.endswith("%1F")
                task, thread = own[place.removesuffix("%1F")]
                path = url(row, f"acme%1F{task}" if below else task, f"acme%1F{thread}" if below else thread)
                yield self._call(f"credentials: {kind}", row, method, path, author, codes, row.path)

    def _call(
        self,
        kind: str,
        row: Operation,
        method: str,
        path: str,
        given: dict[str, str] | None,
        codes: set[int],
        template: str,
    ) -> Callable[[], Any]:
        names_one = "{task}" in template or "{thread_id}" in template or row.name == "diff"

        def allowed(status: int) -> bool:
            if codes:
                return status in codes
            # The messages of a thread that is not there are none.
            return not names_one or not 200 <= status < 300 or row.name == "get_thread"

        def call() -> Any:
            headers = dict(given or {})
            if "tenant" in headers:
                headers |= token(headers.pop("tenant"), headers.pop("scopes", ALL))
            body = BODIES.get(row.name, {}) if method in ("POST", "PUT", "PATCH") else None
            return self.send(kind.partition(":")[0], method, path, allowed, json=body, headers=headers)

        return call

    def doors(self) -> Iterator[Any]:
        """Hosts, origins and media types in all combinations."""
        port = self.server.url.rpartition(":")[2]
        hosts = {
            **HOSTS,
            **dict.fromkeys(("agents.example", "AGENTS.example:443", "other.example:8443"), False),
        }
        for (host, known), origin, (media, is_json), path in itertools.product(
            hosts.items(), ORIGINS, MEDIA.items(), ("/v1/tasks/x/pause", "/v1/threads/x/compact")
        ):
            headers = {"Host": host.replace("8700", port), "Content-Type": media}
            if origin is not None:
                headers["Origin"] = f"http://{headers['Host'].lower()}" if origin == "own" else origin
            own = origin in (None, "own")
            expected = 421 if not known else 403 if not own else 415 if not is_json else 404

            def call(path: str = path, headers: Any = headers, expected: int = expected) -> Any:
                known = {expected, 400} if not headers["Host"] else {expected}
                return self.send(
                    "doors",
                    "POST",
                    path,
                    known.__contains__,
                    content=b"{}",
                    headers={**headers, **token("evil")},
                )

            yield call

    def bodies(self, count: int) -> Iterator[Any]:
        """Bodies with changed bytes, from a principal who may do everything in their own tenant."""
        rows = [row for row in OPERATIONS.values() if row.method == "POST"]
        for _ in range(count):
            row = self.chance.choice(rows)
            body = mutated(json.dumps(FULL.get(row.name, {"reason": "x"})).encode(), self.chance)
            path = url(row, self.chance.choice(("mine", "foreign-task")), "mine")

            def call(path: str = path, body: bytes = body) -> Any:
                headers = {**token("evil"), "Content-Type": "application/json", "Prefer": "wait=0"}
                return self.send("bodies", "POST", path, lambda _: True, content=body, headers=headers)

            yield call

    def document(self, count: int) -> None:
        """Requests made from the OpenAPI document, from such a principal; called in a thread."""
        each = max(1, count // len(CASES))
        for name, mode in self.chance.sample([case.values for case in CASES], min(count, len(CASES))):
            self._described(str(name), mode, each)

    def _described(self, name: str, mode: Any, examples: int) -> None:
        @seed(self.seed)
        @settings(
            max_examples=examples, suppress_health_check=list(HealthCheck), deadline=None, database=None
        )
        @given(case=described()[name].as_strategy(generation_mode=schemathesis.GenerationMode[mode]))
        def serve(case: Any) -> None:
            headers = {**token("evil"), "Prefer": "wait=0"}
            try:
                answer = case.call(
                    base_url=self.server.url, headers=headers, timeout=1 if "stream" in name else 30
                )
            except requests.exceptions.Timeout:
                if "stream" not in name:  # which is served for as long as its reader stays
                    self.faults[f"document: {name}: no answer within 30 s"] += 1
                return
            except requests.exceptions.RequestException as error:  # what it made cannot be sent
                self.sent[f"unsent: {type(error).__name__}"] += 1
                return
            if mode == "POSITIVE" or CANARY.encode() not in (answer.request.body or b""):
                self.judge("document", f"{name} {mode}", answer.status_code, answer.content, lambda _: True)

        serve()

    async def pairs(self, times: int) -> str:
        """Ask for what another tenant has and for what is not there, in turns; return how the times compare."""
        ratios: list[float] = []
        for row in OPERATIONS.values():
            if not ({"task", "thread_id"} & set(row.in_path)) or row.streams or row.name == "import_thread":
                continue
            places = {
                "foreign": ("foreign-task", "foreign-thread"),
                "absent": ("missing-task", "missing-thread"),
            }
            seconds: dict[str, list[float]] = {place: [] for place in places}
            told: dict[str, set[tuple[int, str]]] = {place: set() for place in places}
            for _ in range(times):
                for place, (task, thread) in self.chance.sample(list(places.items()), 2):
                    headers = {**token("evil"), "Prefer": "wait=0"}
                    body = BODIES.get(row.name, {}) if row.method == "POST" else None
                    began = time.perf_counter()
                    answer = await self.client.request(
                        row.method, url(row, task, thread), json=body, headers=headers
                    )
                    seconds[place].append(time.perf_counter() - began)
                    text = answer.text.replace(task, "TASK").replace(thread, "THREAD")
                    self.sent["pairs"] += 1
                    self.codes[answer.status_code] += 1
                    told[place].add((answer.status_code, re.sub(r'"instance":"\w+"', "", text)))
            if told["foreign"] != told["absent"]:
                self.faults[f"pairs: {row.name} tells what another tenant has: {told}"] += 1
            foreign, absent = (statistics.median(each) for each in seconds.values())
            ratios.append(foreign / absent)
            if times >= 20 and abs(foreign - absent) > max(absent / 2, 0.005):
                self.faults[f"pairs: {row.name}: {foreign:.4f} s for foreign, {absent:.4f} s for absent"] += 1
        overall = statistics.median(ratios)
        if times >= 20 and not 0.9 < overall < 1.1:
            self.faults[f"pairs: what another tenant has takes {overall:.2f} times as long"] += 1
        return (
            f"foreign to absent: {overall:.3f} times the median time, {min(ratios):.2f} to {max(ratios):.2f}"
        )

    # ------------------------------------------------------------------------------------ holding open

    async def hold_open(self, kind: str, head: bytes, drip: bytes) -> None:
        """Keep a connection open that sends a head and then a byte now and then, and reads one; open it again."""
        host, port = self.server.url.removeprefix("http://").split(":")
        while True:
            with suppress(OSError, asyncio.IncompleteReadError):
                opened = socket.socket()
                opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1_024)
                opened.setblocking(False)
                await asyncio.get_running_loop().sock_connect(opened, (host, int(port)))
                reader, writer = await asyncio.open_connection(sock=opened, limit=64)
                try:
                    writer.write(head)
                    while True:
                        await asyncio.sleep(1)
                        if drip:
                            writer.write(drip)
                            await writer.drain()
                        with suppress(TimeoutError):
                            async with asyncio.timeout(0.01):
                                await reader.readexactly(1)
                finally:
                    writer.close()
            self.closed[kind] += 1
            await asyncio.sleep(0.1)

    def held(self, half_open: int, slow: int) -> Iterator[Any]:
        """Yield what keeps connections open, to be cancelled in the end."""
        for number in range(half_open):
            heads = (b"", b"GET /v1/me HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ", b"POST ")
            yield self.hold_open("half-open", heads[number % 3], b"x" if number % 3 == 1 else b"")
        who = f"Host: 127.0.0.1\r\nAuthorization: Bearer slow-%d/evil/{ALL}\r\n"
        post = (
            f"POST /v1/tasks HTTP/1.1\r\n{who}Content-Type: application/json\r\nContent-Length: 999\r\n\r\n"
        )
        read = f"GET /v1/tasks/mine/events HTTP/1.1\r\n{who}Accept: text/event-stream\r\n\r\n"
        for number in range(slow):
            head = (post if number % 2 else read) % (number // 20)
            yield self.hold_open("slow", head.encode(), b" " if number % 2 else b"")


# --------------------------------------------------------------------------------------------- before and after


async def prepare(client: httpx2.AsyncClient) -> None:
    """Make what must not be read or changed, and what the attackers own."""
    for tenant, name in (("acme", "foreign-task"), ("", "kept"), ("evil", "mine")):
        secret = CANARY if tenant == "acme" else "plain"
        thread = "foreign-thread" if tenant == "acme" else f"{name}-thread"
        task = {
            "agent": "shop",
            "input": f"{secret} input",
            "task_id": name,
            "thread_id": thread,
            "run": True,
        }
        extra = {"labels": {"kind": secret}, "extra_state": {"said": secret}}
        headers = {**token(tenant, name="owner"), "Prefer": "wait=30"}
        made = await client.post("/v1/tasks", json={**task, **extra}, headers=headers)
        assert made.json()["state"] == "completed", made.text
        task = {"agent": "shop", "input": f"{secret} waits", "task_id": f"{name}-2"}
        (await client.post("/v1/tasks", json=task, headers=headers)).raise_for_status()


async def digest(client: httpx2.AsyncClient) -> str:
    """Return what tells the tasks and threads that no attacker may change from changed ones."""
    found = hashlib.sha256()
    for tenant, name in (("acme", "foreign-task"), ("", "kept")):
        thread = "foreign-thread" if tenant == "acme" else f"{name}-thread"
        paths = [
            f"/v1/tasks/{task}{rest}" for task in (name, f"{name}-2") for rest in ("", "/events", "/verify")
        ]
        paths += [f"/v1/threads/{thread}/messages", f"/v1/threads/{thread}", "/v1/grants"]
        paths += (
            ["/v1/tasks?limit=200"] if tenant == "acme" else []
        )  # attackers of no tenant make tasks there
        for path in paths:
            answer = await client.get(path, headers=token(tenant, name="owner"))
            assert answer.status_code == 200, (path, answer.text)
            found.update(answer.content)
    return found.hexdigest()


async def attack(given: argparse.Namespace, folder: Path, store: str) -> Attack:
    """Attack a server, and print what was measured."""
    (folder / "workers.py").write_text(WORKERS + SERVED)
    server = await asyncio.to_thread(ServerProcess(folder, store).begun)
    made = Attack(server, given.seed)
    try:
        await prepare(made.client)
        before = await digest(made.client)
        holding = [asyncio.ensure_future(each) for each in made.held(given.half_open, given.slow)]
        host = server.url.removeprefix("http://")
        probe = await asyncio.create_subprocess_exec(
            sys.executable, "-c", PROBE, host, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert probe.stdout is not None
        await probe.stdout.readline()
        began = time.monotonic()
        part = given.requests / 20_000
        for calls, count in ((made.matrix(), 10_000), (made.doors(), 2_000), (made.bodies(2_000), 2_000)):
            await made.all_of(calls, int(count * part))
            print(f"{sum(made.sent.values())} requests, {sum(made.faults.values())} faults", flush=True)
        compared = await made.pairs(max(1, int(22 * part)))
        missing = max(1, given.requests - sum(made.sent.values()))
        with ThreadPoolExecutor(1) as thread:
            await asyncio.get_running_loop().run_in_executor(thread, made.document, missing)
        await made.all_of(made.bodies(given.requests), given.requests - sum(made.sent.values()))
        seconds = time.monotonic() - began
        took = sorted(json.loads((await probe.communicate(b"\n"))[0]))
        for each in holding:
            each.cancel()
        await asyncio.gather(*holding, return_exceptions=True)
        if await digest(made.client) != before:
            made.faults["what no attacker may change has changed"] += 1
        logged = server.log.read_text()
        if "Traceback" in logged:
            made.faults[f"the server logged a fault: {logged[logged.index('Traceback') :][:2_000]}"] += 1
        middle, late, most = took[len(took) // 2], took[int(len(took) * 0.99)], took[-1]
        if most > given.health:
            made.faults[f"/health took up to {most:.3f} s"] += 1
        print(f"{given.store}: {sum(made.sent.values())} requests in {seconds:.0f} s; seed {given.seed}")
        print(f"  {dict(made.sent)}")
        print(f"  answers {dict(sorted(made.codes.items()))}")
        print(
            f"  {given.half_open} half-open and {given.slow} slow connections, opened again {dict(made.closed)} times"
        )
        print(
            f"  /health: {len(took)} times, p50 {middle * 1e3:.1f}, p99 {late * 1e3:.1f}, most {most * 1e3:.1f} ms"
        )
        print(f"  {compared}")
        print(f"  {sum(made.faults.values())} faults")
        for fault, times in made.faults.most_common(40):
            print(f"  {times} times {fault[:1_000]}")
    finally:
        await made.client.aclose()
        server.close()
    return made


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.server.hostile")
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--half-open", type=int, default=300)
    parser.add_argument("--slow", type=int, default=100)
    parser.add_argument("--store", default="sqlite", choices=("sqlite", "postgresql"))
    parser.add_argument("--health", type=float, default=0.2, help="seconds that /health may take")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=Path.cwd()) as folder, lent(given.store) as store:
        return 1 if asyncio.run(attack(given, Path(folder), store)).faults else 0


if __name__ == "__main__":
    sys.exit(main())
