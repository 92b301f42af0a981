"""Hostile records through everything that reads data of others, in a process whose audit hook hears what they cause.

    python -m tests.attack.hostile_records FOLDER STORE FIRST STEP

The records hold pickles, constructors by name as the formats of other libraries have them, tags, numbers and nests that
are too large, repeated keys, and fields of other types in each kind of event. Each goes through an import, through a
store that already holds it, through policy files, lists of MCP servers, pyproject.toml and a provider's answer. The
program prints, as JSON, how many there were, what was heard, and each end that is not a clear error. Of what there is
for a loader it takes every STEP-th, from the FIRST on, and the wire format that is the FIRST-th; with a STEP of 1 all.
"""

import asyncio
import base64
import json
import logging
import pickle
import sys
import threading
import warnings
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from tests.attack.test_hostile_import import AGENT, CREATED
from tests.llm.wires import WHOLE, WIRES
from treadle import MCPServer, Policy, Runner
from treadle.cli import agents
from treadle.core import codec
from treadle.core.events import EVENTS
from treadle.core.journal import unfold
from treadle.errors import TreadleError
from treadle.ports import JournalEnd, Record, TaskRow
from treadle.testing.conformance.model import ask, request
from treadle.testing.provider import ProviderServer, call, raw, text
from treadle.transfer.export_format import FORMAT, ExportWriter

SECONDS = 60
"""Within which each loader has to be done with a record."""


class Exits:
    """What a pickle would do."""

    def __reduce__(self) -> Any:
        return (__import__, ("antigravity",))


PICKLED = pickle.dumps(Exits())


def nested(levels: int, inner: Any = 1) -> Any:
    for level in range(levels):
        inner = [inner] if level % 2 else {"a": inner}
    return inner


VALUES: list[Any] = [
    {"lc": 1, "type": "constructor", "id": ["os", "system"], "kwargs": {"command": "true"}},
    {"lc": 1, "type": "secret", "id": ["OPENAI_API_KEY"]},
    {"lc": 2, "type": "constructor", "id": ["antigravity"], "args": []},
    {"lc": 1, "type": "not_implemented", "id": ["builtins", "eval"], "repr": "eval('1')"},
    {"__reduce__": ["os.system", ["true"]]},
    {"__reduce_ex__": 4, "__class__": "os._wrap_close"},
    {"py/object": "os.system", "py/tuple": ["true"]},
    {"py/reduce": [{"py/type": "os.system"}, {"py/tuple": ["true"]}]},
    {"py/repr": "antigravity/antigravity.fly"},
    {"py/function": "antigravity.geohash"},
    {"py/module": "antigravity"},
    {"__import__": "antigravity"},
    {"__type__": "subprocess.Popen", "args": ["true"]},
    {"$type": "System.Diagnostics.Process, System", "StartInfo": {"FileName": "true"}},
    {"@type": "java.lang.Runtime"},
    {"class": "antigravity", "module": "antigravity", "name": "fly"},
    {"_target_": "os.system", "_args_": ["true"]},
    {"$ref": "file:///etc/passwd"},
    {"$id": "http://127.0.0.1:9/schema", "$schema": "file:///etc/shadow"},
    {"include": "/etc/passwd", "!include": "/etc/passwd"},
    {"__proto__": {"admin": True}, "constructor": {"prototype": {}}},
    {"__init__": {"__globals__": {"os": {}}}},
    {"k": "os.system", "p": "builtins.eval"},
    {"p": "antigravity.Text", "text": "1"},
    "!!python/object/apply:os.system ['true']",
    "!!python/name:antigravity.fly",
    "!!python/module:antigravity",
    "!ruby/object:Gem::Installer",
    "antigravity:fly",
    "call:antigravity:fly",
    "file:/etc/passwd",
    "file:///etc/passwd",
    "data:application/x-pickle;base64," + base64.b64encode(PICKLED).decode(),
    base64.b64encode(PICKLED).decode(),
    PICKLED.decode("latin-1"),
    "{{ ''.__class__.__mro__[1].__subclasses__() }} ${7*7} %(x)s {0.__class__.__init__.__globals__}",
    "${jndi:ldap://127.0.0.1:9/x} `true` $(true) ; true | true",
    "__import__('antigravity')",
    "'; DROP TABLE tasks; --",
    "../../../../etc/passwd\0.json",
    "\x1b]0;title\x07\x1b[2J\u202e\u200b\u2066",
    "x" * 1_000_000,
    "A\u0301" * 10_000,
    10**400,
    -(10**30),
    1e308,
    5e-324,
    -0.0,
    True,
    None,
    [],
    {},
    [[]] * 10_000,
    {str(number): number for number in range(10_000)},
    nested(150),
    nested(900),
    ["1e400", "NaN", "Infinity", float("nan"), float("inf")],
    {"": "", "\0": 1, " ": 2, "a.b": 3, "a\nb": 4},
]
"""What stands where other data is expected."""

RAW: list[bytes] = [
    b"",
    b"\0",
    b"\xff\xfe{\0}\0",
    b"\xef\xbb\xbf{}",
    b"\x80\x04\x95",
    PICKLED,
    b"\x1f\x8b\x08\0" + b"\0" * 50,
    b"PK\x03\x04" + b"\0" * 50,
    b"\x93NUMPY\x01\0",
    b"SQLite format 3\0",
    b"{",
    b"{}",
    b"[]",
    b"null",
    b"1e400",
    b"-" * 100,
    b"9" * 100_000,
    b"[" * 200_000,
    b'{"a":' * 100_000,
    b"[" * 900 + b"]" * 900,
    b'{"v":1,"v":2,"t":3,"e":[],"e":[{"k":"os.system"}]}',
    b'{"v":1e400,"t":5,"e":[]}',
    b'{"v":1,"t":1e400,"e":[]}',
    b'{"v":1,"t":5,"e":[NaN,Infinity]}',
    b'{"v":99,"t":5,"e":[]}',
    b'{"v":-1,"t":5,"e":[]}',
    b'{"v":true,"t":5,"e":{}}',
    b'{"v":1,"t":' + b"9" * 5_000 + b',"e":[]}',
    b'{"v":1,"t":5,"b":1,"e":[{"$":"deadbeef"}]}',
    b'{"v":1,"t":5,"e":["\\ud800"]}',
    b"--- !!python/object/apply:os.system ['true']\n",
    b"&a [*a, *a]\nlol: &b [*a,*a,*a,*a,*a,*a]\n",
    b'<?xml version="1.0"?><!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/passwd">]><x>&e;</x>',
    b"[[rule]]\n" * 5_000,
    b"a." * 3_000 + b"b = 1",
    b"x = " + b"[" * 5_000,
    b"x = " + b"9" * 10_000,
    b"\n".join(b"[a%d]" % number for number in range(3_000)),
    b'"\\u0000" = "\\U0010ffff"\n',
    b"import antigravity\n",
]
"""Bytes in place of a document."""


def documents() -> list[bytes]:
    """Return the records of journals: values in every place of a task's first event, and in each kind of event."""
    events: list[Any] = []
    for value in VALUES:
        events += [{**CREATED, "extra_state": value}, {**CREATED, "input": [value], "options": value}]
    for number, (kind, made) in enumerate(sorted(EVENTS.items())):
        fields = {name: VALUES[(number + place) % 40] for place, name in enumerate(made.__slots__)}
        events += [{"k": kind, **fields}, {"k": kind}]
    return [*[json.dumps({"v": 1, "t": 5, "e": [event]}).encode() for event in events], *RAW]


def row_of(name: str, data: bytes) -> tuple[TaskRow, Record]:
    digest = codec.chain(b"", data)
    end = JournalEnd(1, digest)
    row = TaskRow(name, "agent", f"talk-{name}", "interrupted", 1, None, None, 0, 1, {}, None, 1, end)
    return row, Record(1, 1, 1, data, digest)


# ------------------------------------------------------------------------------------------------ the hook

WATCHED = (
    *("import", "open", "exec", "compile", "code.__new__", "marshal.", "pickle.", "ctypes."),
    *("subprocess.", "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.spawn", "pty.", "webbrowser."),
    *("os.remove", "os.rename", "os.link", "os.symlink", "os.mkdir", "os.rmdir", "os.truncate", "shutil."),
    *("socket.connect", "urllib."),
)
heard: Counter[str] = Counter()
listening = threading.Event()
folder = Path()
allowed: set[tuple[str, int]] = set()
"""Where the scripted provider is."""


def hear(event: str, args: tuple[Any, ...]) -> None:
    if not listening.is_set() or not event.startswith(WATCHED):
        return
    if event == "open" and isinstance(args[0], (str, bytes)) and _is_inside(args[0]):
        return
    if event == "socket.connect" and args[1] in allowed:
        return  # the scripted provider
    if event in ("exec", "compile") and "Traceback" in repr(args):
        return
    heard[f"{event} {args!r:.120}"] += 1


def _is_inside(path: str | bytes) -> bool:
    return Path(path if isinstance(path, str) else path.decode()).absolute().is_relative_to(folder)


# --------------------------------------------------------------------------------------------- the loaders

problems: list[str] = []
part = slice(None)


def some(records: list[bytes]) -> list[tuple[int, bytes]]:
    """Return the records that are taken, with their numbers."""
    return [*enumerate(records)][part]


async def tried(place: str, number: int, work: Callable[[], Awaitable[Any]]) -> bool:
    """Run a loader on a record; it returns, or raises an error of ours that says something."""
    try:
        async with asyncio.timeout(SECONDS):
            await work()
    except TreadleError as error:
        if not str(error) or len(str(error)) > 20_000:
            problems.append(f"{place} {number}: says {len(str(error))} characters")
        return False
    except BaseException as error:  # noqa: BLE001  this is what is looked for
        problems.append(f"{place} {number}: {type(error).__name__}: {error!s:.200}")
        return False
    return True


async def journals(runner: Runner, records: list[bytes], name: str = "") -> None:
    """Read records from an export, and from the store itself."""
    for number, data in some(records):
        row, record = row_of(f"{name}imported-{number}", data)
        path = folder / "bad.jsonl"
        with path.open("wb") as out:
            writer = ExportWriter(out)
            writer.line({"treadle_export": FORMAT, "made": 1})
            writer.task(row, "interrupted", record.digest, b"")
            writer.record(record)
            writer.end(row)
            writer.close()
        await tried("import", number, partial(runner.import_tasks, path))
        row, record = row_of(f"{name}stored-{number}", data)
        await runner.store.restore(row, [record])
        for verb in (runner.get_task, runner.result, partial(_events, runner), runner.resume, runner.fork):
            place = getattr(verb, "__name__", "events")
            await tried(place, number, partial(verb, row.task_id))
    for number, data in some([*RAW, *[json.dumps(value).encode() for value in VALUES]]):
        (folder / "raw.jsonl").write_bytes(data)
        await tried("import of bytes", number, lambda: runner.import_tasks(folder / "raw.jsonl"))


async def _events(runner: Runner, name: str) -> None:
    for _, events in unfold(name, await runner.store.read(name)):
        repr(events)


async def files() -> None:
    """Read policies, lists of MCP servers and project files."""
    texts = [json.dumps(value) for value in VALUES]
    tables = [
        *[f'[[rule]]\nid = "x"\nverdict = "deny"\nwhen = {text}\n'.encode() for text in texts],
        *[f"default = {text}\n[[rule]]\nid = {text}\nverdict = {text}\n".encode() for text in texts],
    ]
    for number, data in some([*RAW, *tables]):
        path = folder / "policy.toml"
        path.write_bytes(data)
        await tried("policy", number, lambda path=path: _made(lambda: Policy.from_file(path)))
    servers = [
        *[f'{{"mcpServers": {text}}}'.encode() for text in texts],
        *[f'{{"mcpServers": {{"x": {text}}}}}'.encode() for text in texts],
        *[
            f'{{"mcpServers": {{"x": {{"command": {text}, "args": {text}, "env": {text}}}}}}}'.encode()
            for text in texts
        ],
        *[f'{{"mcpServers": {{"x": {{"url": {text}, "headers": {text}}}}}}}'.encode() for text in texts],
    ]
    for number, data in some([*RAW, *servers]):
        path = folder / ".mcp.json"
        path.write_bytes(data)
        await tried(".mcp.json", number, lambda path=path: _made(lambda: MCPServer.from_file(path)))
    projects = [
        *[f"[tool.treadle]\npolicy = {text}\n".encode() for text in texts],
        *[f"[tool.treadle]\nsecrets = {text}\n".encode() for text in texts if "call:" not in text],
        *[f"[tool.treadle]\nmcp_servers = {text}\n".encode() for text in texts],
    ]
    read = (lambda: agents.listed_policy(None), agents.listed_secrets, agents.project_with_servers)
    for number, data in some([*RAW, *projects]):
        (folder / "pyproject.toml").write_bytes(data)
        for work in read:
            await tried("pyproject.toml", number, lambda work=work: _made(work))


async def _made(make: Callable[[], Any]) -> None:
    make()


async def answers(models: list[Any], script: list[Any], count: int) -> None:
    """Read answers of a provider, on one wire format after the other."""
    for number in range(count):
        await tried("answer", number, lambda number=number: ask(models[number % len(models)], request()))
    assert not script


async def main(place: str) -> dict[str, Any]:
    records = documents()
    bodies = [body for _, body in some([*RAW, *[json.dumps(value).encode() for value in VALUES]])]
    script = [
        *[text("warm")] * (8 if part.step == 1 else 2),
        *[raw(body) for body in bodies],
        *[raw(b"data: " + body + b"\n\n", content_type="text/event-stream") for body in bodies],
        *[call("add", a=value, b=value) for value in VALUES[part] if not isinstance(value, float)],
    ]
    count = len(script) - (8 if part.step == 1 else 2)
    with ProviderServer(script) as server:
        allowed.add(("127.0.0.1", int(server.url.rpartition(":")[2])))
        # To import the package of a provider takes longer than a sample: that has one wire format.
        wires = [name for name in WIRES if part.step == 1 or name == [*WIRES][part.start % len(WIRES)]]
        models = [make(server) for name in wires for make in (WIRES[name], WHOLE[f"{name} whole"])]
        for model in models:
            await ask(model, request())
        async with Runner(place, agents=[AGENT]) as runner:
            await runner.run(AGENT, "go", task_id="good")
            before = await runner.store.read("good")
            # What is imported and compiled once, at the first success and the first error of each loader.
            for kind in EVENTS.values():
                codec._plan(kind)
                codec._plan(kind, True)
            codec._STRUCTS._learn(json.dumps({"e": [{"k": kind} for kind in EVENTS]}).encode())
            await journals(runner, [json.dumps({"v": 1, "t": 5, "e": [CREATED]}).encode(), b"x"] * 9, "warm-")
            await warm_files()
            problems.clear()
            listening.set()
            await journals(runner, records)
            await files()
            await answers(models, [], count)
            listening.clear()
            kept = await runner.store.read("good") == before
            report = await runner.verify("good")
    return {
        "records": len({sha256(data).digest() for _, data in some(records)}),
        "answers": count,
        "heard": dict(heard.most_common(40)),
        "problems": problems,
        "kept": kept and not report.findings,
    }


async def warm_files() -> None:
    json.loads(b"\xef\xbb\xbf{}")  # the codec of such bytes
    for name, data in (
        ("policy.toml", 'default = "deny"'),
        ("policy.toml", "x"),
        ("policy.toml", "[[rule]]"),
    ):
        (folder / name).write_text(data)
        with suppress(TreadleError):
            Policy.from_file(folder / name)
    for data in ('{"mcpServers": {"x": {"command": "true"}, "y": {"url": "http://x/"}}}', "x", "{}"):
        (folder / ".mcp.json").write_text(data)
        with suppress(TreadleError):
            MCPServer.from_file(folder / ".mcp.json")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    logging.disable()
    folder = Path(sys.argv[1]).absolute()
    import os

    os.chdir(folder)
    sys.addaudithook(hear)
    part = slice(int(sys.argv[3]), None, int(sys.argv[4]))
    print(json.dumps(asyncio.run(main(sys.argv[2]))))
