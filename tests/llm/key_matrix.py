"""Every way in which a provider may send a key back, and every place in which it must not appear.

A case is a key, a wire format, the form the key has, and the place of the response it stands in. `make keys` runs
them all; `python -m tests.llm.key_matrix [number of keys]` says where it found what. What looks for keys here decodes
everything it reads, and shares nothing with the code that hides them.
"""

import asyncio
import base64
import html
import io
import json
import logging
import os
import re
import sys
import tempfile
import time
import traceback
from binascii import Error as NotBase64
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import product
from pathlib import Path
from threading import Thread
from urllib.parse import quote

from tests.telemetry.collector import collecting
from treadle import Agent, Runner
from treadle.core.messages import user
from treadle.core.model import ModelSettings
from treadle.models import Anthropic, Google, OpenAI, OpenAIChat
from treadle.telemetry import Console, JsonLines, OpenTelemetry
from treadle.testing.conformance.model import request
from treadle.testing.provider import ProviderServer, fail, raw, turn

WIRES = {"chat": OpenAIChat, "responses": OpenAI, "anthropic": Anthropic, "google": Google}
VARIABLES = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GOOGLE_API_KEY")
GIVEN = ("argument", "environment", "address", "header")
"""How a client gets its key: one way for each key, in turn."""

KEYS = [
    "sk-proj-Zk3Vb9QpLm7Tx2RwYc5NdHs8Jf4Gq6Ua1EoXi0Kt",
    "sk-ant-api03-Wq9Zx2Kv7Bn4Tm8Lp1Rs6Dy3Fg5Hj0Qc-AAx9",
    "AIzaSyD4x7Kq2Lm9Vb3Np8Rt5Wz1Yc6Hs0Jf4Gu",
    "gsk_x8Vm3Qz7Lp2Kd9Rt4Wn6Yb1Hc5Js0Fg",
    "hf_QwErTy12UiOp34AsDf56GhJk78ZxCv90",
    "a4f81c0de93b7752d6e0f19b3c8a54e77b2d",
    "K7vQ2mZ9xW4nR8tB3pL6yD1s",
    "7f3e9a1c-5b2d-4e8f-9a6c-1d0b7e4f2a93",
    "eyJhbGciOiJIUzI1NiJ9.eyJ1IjoiNDQ3MTk5In0.Qx8sV2kPz7mT4wR9",
    "p4ss/w0rd+with=signs/9876543210",
    "xoxb-81726354-Lk3Jh7Gf2Ds9Aq",
    "Zz9~Yy8!Xx7*Ww6(Vv5)Uu4'Tt3",
    "token.with.dots.4815162342.Lost",
    "UPPERCASEKEY0123456789ABCDEF",
    "lowercasekey9876543210fedcba",
    "q1:w2:e3:r4:t5:y6:u7:i8:o9",
    "rk_live_51Hq8Zv3Kx7Bn2Mw9Lp4T",
    "0x9fE3bA7c1D5f2B8e4A6c0D9e3F7b1A5c",
    "MzQ1Njc4OTAxMjM0NTY3ODkwYWJj",
    "S3cr3t%20key%2Fwith%3Dpercent7",
]

# --------------------------------------------------------------------------------------------------- cases


def escaped(key):
    return "".join(f"\\u{ord(char):04x}" for char in key)


def deep(key):
    value = {"key": key}
    for depth in range(30):
        value = {"detail": [depth, value]}
    return json.dumps(value)


FORMS = {
    "raw": lambda key: key,
    "newline": lambda key: f"{key[:9]}\n{key[9:]}",
    "CRLF": lambda key: "\r\n".join((key[:7], key[7:15], key[15:])),
    "base64": lambda key: base64.b64encode(f"key={key};".encode()).decode(),
    "hex": lambda key: key.encode().hex(),
    "URL": lambda key: "".join(f"%{byte:02x}" for byte in key.encode()),
    "JSON-escaped": escaped,
    "in HTML": lambda key: (
        f"<p>The key <b>{html.escape(key[:10])}</b><wbr>{html.escape(key[10:])} is wrong</p>"
    ),
    "in deep JSON": deep,
    "split over chunks": lambda key: key,
}
PLACES = ("error", "body", "header", "redirect")
STATUSES = (400, 401, 403, 404, 422)
REDIRECTS = (301, 302, 303, 307, 308)
HEADERS = (
    "x-request-id",
    "request-id",
    "www-authenticate",
    "retry-after",
    "x-ratelimit-reset",
    "server",
    "set-cookie",
)


@dataclass(frozen=True)
class Case:
    """One key, sent back in one form, in one place of a response, on one wire."""

    number: int
    key: str
    wire: str
    form: str
    place: str

    @property
    def name(self):
        return f"{self.wire} | {self.form} | {self.place} | key {KEYS.index(self.key)}"

    def item(self, elsewhere):
        """The provider's answer."""
        shown, at = FORMS[self.form](self.key), self.number
        options = {"split": 5} if self.form == "split over chunks" else {}
        sentence = f"Incorrect API key provided: {shown}. Find yours in the console."
        if self.place == "error":
            return fail(STATUSES[at % 5], sentence, code="invalid_api_key", **options)
        if self.place == "body":
            return self._body(shown, sentence, options)
        value = re.sub(r"\s+", " ", shown)
        if self.place == "header":
            headers = dict.fromkeys(HEADERS, value)
            status = 200 if at % 2 else STATUSES[at % 5]
            return raw("{}", status=status, headers=headers, **options)
        location = f"{elsewhere}/v1/{quote(value)}?key={quote(value)}"
        return raw(sentence, status=REDIRECTS[at % 5], headers={"location": location}, **options)

    def _body(self, shown, sentence, options):
        kind = self.number % 5
        if kind == 0:  # the answer of the model itself
            chunks = {"chunk_size": 5} if options else {}
            return turn(sentence, **chunks)
        if kind == 1:
            return raw(
                f"<html><title>{sentence}</title>{sentence}</html>",
                status=403,
                content_type="text/html",
                **options,
            )
        if kind == 2:
            return raw(sentence, status=502, content_type="text/plain", **options)
        if kind == 3:
            return raw(json.dumps({"why": {"it": sentence}}), status=422, **options)
        event = json.dumps(
            {"type": "error", "error": {"type": "api_error", "code": 500, "message": sentence}}
        )
        return raw(f"event: error\ndata: {event}\n\n", content_type="text/event-stream", **options)


def cases(keys=KEYS):
    """Every case of these keys."""
    every = product(keys, WIRES, FORMS, PLACES)
    return [Case(number, *case_fields) for number, case_fields in enumerate(every)]


def sample():
    """Each form in each place once, cycling through the wires and the ways to pass the key."""
    cases_found, wires = [], list(WIRES)
    for (at, form), (place_of_key, place) in product(enumerate(FORMS), enumerate(PLACES)):
        key = KEYS[(2 * at + at // 2 + place_of_key) % len(GIVEN)]
        cases_found.append(Case(len(cases_found), key, wires[(at + place_of_key) % len(wires)], form, place))
    return cases_found


# ------------------------------------------------------------------------------------------------ searching


OTHERS = bytes(code for code in range(256) if not chr(code).isalnum() or code > 127)


def bones(text):
    return text.encode("ascii", "ignore").lower().translate(None, OTHERS)


STEPS = (
    lambda text: re.sub(r"\\+u([0-9a-fA-F]{4})", lambda match: chr(int(match[1], 16)), text),
    lambda text: re.sub(r"\\+[nrt]", " ", text),
    lambda text: re.sub(r"%([0-9a-fA-F]{2})", lambda match: chr(int(match[1], 16)), text),
    html.unescape,
    lambda text: re.sub(r"<[^<>]*>", "", text),
)


def clean(text):
    """A text with all encodings undone, twice."""
    for step in STEPS * 2:
        text = step(text)
    return text


def uncoded(text):
    """A text with what looks like base64, from each of its beginnings, or like hexadecimal digits, decoded."""
    if re.search(r"[A-Za-z0-9+/=_-]{20}", text):
        for skip in range(4):
            yield re.sub(r"[A-Za-z0-9+/=_-]{20,}", lambda run, skip=skip: plain(run[0][skip:]), text)
    if re.search(r"(?:[0-9a-fA-F]{2}){10}", text):
        yield re.sub(r"(?:[0-9a-fA-F]{2}){10,}", lambda run: bytes.fromhex(run[0]).decode("latin-1"), text)


def plain(run):
    run = run.replace("-", "+").replace("_", "/").rstrip("=")
    try:
        return base64.b64decode(run[: len(run) // 4 * 4]).decode("latin-1")
    except NotBase64:
        return run


class Haystack:
    """A text, in every way it can be read."""

    def __init__(self, text):
        readings = {text, clean(text), *(step(text) for step in STEPS)}
        coded = {decoded for reading in (text, clean(text)) for decoded in uncoded(reading)}
        self._bones = {bones(reading) for reading in readings | coded | set(map(clean, coded))}

    def holds(self, key):
        wanted = [key, key.encode().hex()]
        for before in range(3):
            coded = base64.b64encode(b"?" * before + key.encode()).decode().rstrip("=")
            wanted.append(coded[4 if before else 0 : -2])
        return any(bones(form) in reading for form in wanted for reading in self._bones)


# -------------------------------------------------------------------------------------------------- another host


class Elsewhere:
    """A server on another host of this machine, which records its requests."""

    def __init__(self):
        self.requests = []

    @property
    def with_keys(self):
        return [
            request
            for request in self.requests
            if any(key in request or quote(key) in request for key in KEYS)
        ]


@contextmanager
def another_host():
    """A real server at 127.0.0.2, which is another host than 127.0.0.1."""
    other_host = Elsewhere()

    class Handler(BaseHTTPRequestHandler):
        def answer(self):
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            other_host.requests.append(f"{self.headers}\n{body.decode('latin-1')}")
            self.send_response(404)
            self.send_header("content-length", "0")
            self.end_headers()

        do_GET = do_POST = do_HEAD = do_PUT = answer  # noqa: N815  names of the library

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.2", 0), Handler)
    other_host.url = f"http://127.0.0.2:{server.server_address[1]}"
    thread = Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield other_host
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


# --------------------------------------------------------------------------------------------------- running


class Kept(logging.Handler):
    """All that is logged, as a file would have it."""

    def __init__(self):
        super().__init__(logging.DEBUG)
        self.lines = []
        self.setFormatter(logging.Formatter("%(name)s %(message)s"))

    def emit(self, record):
        self.lines.append(self.format(record))


@contextmanager
def everything_logged():
    root, kept = logging.getLogger(), Kept()
    level = root.level
    root.addHandler(kept)
    root.setLevel(logging.DEBUG)
    try:
        yield kept.lines
    finally:
        root.setLevel(level)
        root.removeHandler(kept)


def chain(error):
    """An error as a traceback and a debugger show it, with all its causes."""
    text = "".join(traceback.format_exception(error))
    for link in (error, error.__cause__, error.__context__):
        text += f"{link!r}\n{link}\n{getattr(link, 'body', '')}\n" if link is not None else ""
    return text


class Bench:
    """The servers, the runner and what is observed, for all cases of a run."""

    def __init__(self, server, elsewhere, runner, folder):
        self.server, self.elsewhere, self.runner, self.folder = server, elsewhere, runner, folder
        self._models = {}

    def model(self, case):
        secrets_given = GIVEN[KEYS.index(case.key) % len(GIVEN)]
        streams = case.number % 3 != 0
        is_known = (case.key, case.wire, streams)
        if is_known not in self._models:
            url = {"chat": self.server.openai_base_url, "responses": self.server.openai_base_url}.get(
                case.wire
            )
            url = url or self.server.url
            options = {"api_key": case.key if secrets_given == "argument" else "another-key-0123456789"}
            if secrets_given == "environment":
                options = {}
            if secrets_given == "address":
                url = url.replace("//", f"//me:{quote(case.key, safe='')}@")
            model = WIRES[case.wire](
                "gemini-3-x" if case.wire == "google" else "x-1", base_url=url, stream=streams, **options
            )
            extra = {"extra_headers": {"X-Api-Key": case.key}} if secrets_given == "header" else {}
            self._models[is_known] = Agent(model, name=case.wire, model_settings=ModelSettings(extra=extra))
        return self._models[is_known]


def number_of(request):
    return int(re.search(r"case (\d+)", json.dumps(request.messages))[1])


async def play(bench, case):
    """Run a case; return what the caller sees of it: events, deltas, results, errors."""
    agent = bench.model(case)
    seen = []
    async with bench.runner.run_stream(agent, f"case {case.number}", task_id=f"t{case.number}") as stream:
        seen += [repr(event) async for event in stream]
    # Markup between the parts of a key is removed from the answer as it is stored, not while it is streamed.
    streamed = case.form != "in HTML"
    deltas = streamed * "".join(re.findall(r"Delta\([^)]*?text='([^']*)'", "\n".join(seen)))
    result = stream.result
    seen += [repr(result), str(result.error), deltas, repr(agent), repr(agent.model)]
    try:
        result.raise_for_state()
    except Exception as error:  # noqa: BLE001  no exception may show a key
        seen.append(chain(error))

    try:
        asked_request = request(user(f"case {case.number}"), settings=agent.model_settings)
        seen += [repr(item) async for item in agent.model.stream(asked_request)]
    except Exception as error:  # noqa: BLE001  no exception may show a key
        seen.append(chain(error))
    return result, "\n".join(seen)


def cli(case, store):
    """The output of the command line for a case."""
    from treadle.cli.main import main

    out, err = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = io.StringIO(), io.StringIO()
    try:
        for arguments in (["show", f"t{case.number}"], ["show", f"t{case.number}", "--json"]):
            main([*arguments, "--store", str(store)])
        return sys.stdout.getvalue() + sys.stderr.getvalue()
    finally:
        sys.stdout, sys.stderr = out, err


def contents(folder, when):
    """All files with their bytes, the write-ahead log of the journal included."""
    return {path.name + when: path.read_bytes().decode("latin-1") for path in folder.iterdir()}


async def run(chosen, at_once=8):
    """Run cases; return where keys were found, as lines, and how many requests with a key another host got."""
    by_number = {case.number: case for case in chosen}
    leaks, counts = [], {}
    with (
        tempfile.TemporaryDirectory() as place,
        another_host() as elsewhere,
        collecting() as collector,
        everything_logged() as logged,
        ProviderServer(
            lambda request: by_number[number_of(request)].item(elsewhere.url), conversation=number_of
        ) as server,
        io.StringIO() as screen,
    ):
        folder = Path(place)
        os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = collector.url
        observers = [
            JsonLines(folder / "all.jsonl", content=True, deltas=True),
            Console(screen, content=True),
            OpenTelemetry.over_otlp(content=True),
        ]
        runner = Runner(folder / "journal.db", observers=observers)
        bench = Bench(server, elsewhere, runner, folder)
        gate = asyncio.Semaphore(at_once)

        async def one(case):
            async with gate:
                result, counts[case] = await play(bench, case)
                if case.place == "redirect":
                    arrived = sum(number_of(request) == case.number for request in server.requests)
                    if result.state != "failed" or arrived != 2:
                        leaks.append(
                            f"{case.name}: {result.state} after {arrived - 1} requests, not failed after 1"
                        )

        for key in dict.fromkeys(case.key for case in chosen):  # a key in the environment is there alone
            in_environment = GIVEN[KEYS.index(key) % len(GIVEN)] == "environment"
            kept = {name: os.environ.pop(name, None) for name in VARIABLES}
            os.environ.update(dict.fromkeys(VARIABLES, key) if in_environment else {})
            await asyncio.gather(*(one(case) for case in chosen if case.key == key))
            os.environ.update({name: value for name, value in kept.items() if value is not None})
            for name, value in kept.items():
                if value is None:
                    os.environ.pop(name, None)
        await runner.export_tasks(folder / "export.jsonl")
        files = contents(folder, "")
        await runner.aclose()
        files |= {name: text for name, text in contents(folder, " (closed)").items() if ".db" in name}
        files["console"], files["logs"] = screen.getvalue(), "\n".join(logged)
        files["OTLP"] = collector.raw.decode("latin-1")
        files["command line"] = await asyncio.to_thread(
            lambda: "".join(cli(case, folder / "journal.db") for case in chosen[:: max(1, len(chosen) // 4)])
        )
    for case, text in counts.items():
        if Haystack(text).holds(case.key):
            leaks.append(f"{case.name}: told to the caller")
    for name, text in files.items():
        pile = Haystack(text)
        leaks += [
            f"key {KEYS.index(key)}: in {name}" for key in {case.key for case in chosen} if pile.holds(key)
        ]
    return leaks, elsewhere


def main(arguments):
    """Run everything, or the cases of the first so many keys."""
    keys = KEYS[: int(arguments[0])] if arguments else KEYS
    began, wrong, sent = time.perf_counter(), Counter(), 0
    chosen = cases(keys)
    for first in range(0, len(keys), 2):  # a few keys at a time: what looks for them reads everything
        part = [case for case in chosen if case.key in keys[first : first + 2]]
        leaks, elsewhere = asyncio.run(run(part))
        sent += len(elsewhere.with_keys)
        for line in leaks:
            wrong[re.sub(r"key \d+", "a key", line)] += 1
        print(f"{min(first + 2, len(keys))} of {len(keys)} keys: {sum(wrong.values())} found", flush=True)
    for line, times in sorted(wrong.items()):
        print(f"{times:5} x {line}")
    print(
        f"{len(chosen)} cases, {sum(wrong.values())} findings, {sent} requests with a key to another host, "
        f"{time.perf_counter() - began:.0f} s"
    )
    return 1 if wrong or sent else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
