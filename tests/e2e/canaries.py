"""Twenty secrets, each in a place of its own where a task may leak it, and all sinks that are searched for them.

The keys, their forms and the search are those of `tests/llm/key_matrix.py`. A form is one fault: the provider sends its
key back in that form, in an error and in a streamed answer, and each tool writes its secret in that form.
"""

import asyncio
import io
import json
import logging
import os
import sys
import tempfile
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from tests.llm.key_matrix import FORMS, KEYS, Haystack, contents, everything_logged
from tests.telemetry.collector import collecting
from treadle import Agent, File, NextLayer, Runner, RunOptions, ToolContext, ToolInvocation, ToolOutput, tool
from treadle.core.model import ModelSettings
from treadle.models import OpenAIChat
from treadle.ports import Notice
from treadle.telemetry import Console, JsonLines, OpenTelemetry
from treadle.testing.provider import ProviderServer, call, fail, turn

OF_PROVIDER = ("argument", "variable", "header", "address", "database")
"""Where a key of this process lies: as an argument of the model, in the environment, ..."""

OF_TOOLS = (
    *(
        "output",
        "name",
        "observation",
        "display",
        "source",
        "artifact",
        "binary",
        "state",
        "error",
        "progress",
    ),
    *("note", "kept", "preview", "question", "log"),
)
"""By which way a tool gives away the secret that it was given."""

CANARIES = dict(zip((*OF_PROVIDER, *OF_TOOLS), KEYS, strict=True))


def leaking(way: str, write: Any) -> Any:
    """A tool that asks for its secret, and gives it away."""

    def given(ctx: ToolContext[Any]) -> str:
        return f"here: {write(ctx.secret(way))} ."

    def show(ctx: ToolContext[Any]) -> str:
        return given(ctx) if way == "preview" else "a call"

    @tool(name=f"leak_{way}", idempotent=True, secrets=(way,), needs_approval=way == "preview", preview=show)
    async def leak(ctx: ToolContext[Any]) -> Any:
        """Give a secret away."""
        text = given(ctx)
        match way:
            case "output":
                return {"deep": [{"text": text}]}
            case "name":
                return {text: 1}
            case "observation":
                return ToolOutput(None, observation=["see", text])
            case "display":
                return ToolOutput(None, display=text)
            case "source":
                return ToolOutput(None, sources=[{"title": text}])
            case "artifact":
                return ToolOutput(
                    None, artifacts=[File(data=text.encode(), name="a.txt", media_type="text/plain")]
                )
            case "binary":
                data = b"\xff\xfe\x00" + text.encode()
                return ToolOutput(None, artifacts=[File(data=data, name="a.bin", media_type="application/x")])
            case "state":
                ctx.state["note"] = [text]
            case "error":
                raise ConnectionError(text)
            case "progress":
                for at in range(0, len(text), 10):
                    ctx.progress(text[at : at + 10])
            case "kept":
                return await ctx.once("value", lambda: text)
            case "question":
                return await ctx.ask(f"Is it {text}?", bool)
            case "log":
                logging.getLogger("httpx").warning("GET https://crm/?q=%s", text)
            case _:
                pass
        return "done"

    return leak


def noting(write: Any) -> Any:
    async def notes(call: ToolInvocation, next: NextLayer) -> ToolOutput:
        if call.name == "leak_note":
            call.note("seen", write(call.context.secret("note")))
        return await next(call)

    return notes


class Listener:
    """Keeps all events and deltas, and the texts that come in pieces as a whole.

    Markup between the parts of a key is removed from an answer as it is stored, not while it is streamed.
    """

    deltas = True

    def __init__(self, *, with_text: bool) -> None:
        self.with_text = with_text
        self.events: list[str] = []
        self.texts: list[str] = []
        self.progress: list[str] = []

    def observe(self, notice: Notice) -> None:
        event: Any = notice.event
        if event.kind == "delta" and not self.with_text:
            return
        self.events.append(repr(event))
        if event.kind == "delta":
            self.texts.append(event.text)
        elif event.kind == "tool_progress":
            self.progress.append(str(event.value))


@contextmanager
def environment(**values: str):
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def command_line(store: Path, task: str) -> str:
    """All that the command line prints of a task."""
    from treadle.cli.main import main

    out, err = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = io.StringIO(), io.StringIO()
    try:
        for command in (["show", task], ["pending"], ["tasks"], ["doctor"]):
            main([*command, "--store", str(store)])
            main([*command, "--store", str(store), "--json"])
        return sys.stdout.getvalue() + sys.stderr.getvalue()
    finally:
        sys.stdout, sys.stderr = out, err


def agent_at(server: ProviderServer, write: Any) -> Agent[Any]:
    url = server.openai_base_url.replace("//", f"//me:{CANARIES['address']}@")
    model = OpenAIChat("x-1", base_url=url, api_key=CANARIES["argument"])
    settings = ModelSettings(extra={"extra_headers": {"X-Api-Key": CANARIES["header"]}})
    tools = [leaking(way, write) for way in OF_TOOLS]

    @tool(read_only=True)
    def dump() -> dict[str, str]:
        """Show what this process knows."""
        return {name: write(CANARIES[name]) for name in OF_PROVIDER}

    return Agent(
        model, name="golden", tools=[*tools, dump], model_settings=settings, middleware=[noting(write)]
    )


async def leaks_of(form: str) -> list[str]:
    """Run the golden task and the fault of a form; return which canaries were found, and where."""
    write = FORMS[form]
    echo = " and ".join(write(CANARIES[name]) for name in OF_PROVIDER)
    calls = [call(f"leak_{way}") for way in OF_TOOLS] + [call("dump")]
    error = fail(401, f"Incorrect API key provided: {echo}.", **({"split": 5} if "split" in form else {}))
    answer = turn(f"The keys: {echo}.", chunk_size=5)

    def answered(request: Any) -> Any:
        said = json.dumps(request.messages)
        return error if "Once more" in said else answer if '"role": "tool"' in said else turn(*calls)

    with (
        tempfile.TemporaryDirectory() as place,
        collecting() as collector,
        everything_logged() as logged,
        ProviderServer(answered) as server,
        io.StringIO() as screen,
        environment(
            OTEL_EXPORTER_OTLP_ENDPOINT=collector.url,
            ANTHROPIC_API_KEY=CANARIES["variable"],
            DATABASE_URL=f"postgresql://me:{CANARIES['database']}@db/x",
            **{f"CANARY_{way.upper()}": CANARIES[way] for way in OF_TOOLS[::2]},
        ),
    ):
        folder, seen = Path(place), list[str]()
        store = folder / "journal.db"
        sources: dict[str, Any] = {way: partial(CANARIES.__getitem__, way) for way in OF_TOOLS[1::2]}
        sources |= {way: f"env:CANARY_{way.upper()}" for way in OF_TOOLS[::2]}
        listener = Listener(with_text=form != "in HTML")
        observers = [
            listener,
            JsonLines(folder / "all.jsonl", content=True, deltas=True),
            Console(screen, content=True),
            OpenTelemetry.over_otlp(content=True),
        ]
        agent, options = agent_at(server, write), RunOptions(tool_output_max_chars=500)
        runner = Runner(store, secrets=sources, observers=observers, agents=[agent], options=options)
        waiting = await runner.run(agent, "Go.", task_id="golden")
        assert waiting.state == "waiting", waiting.error
        seen.append(await asyncio.to_thread(command_line, store, "golden"))
        for item in await runner.list_pending():
            seen.append(repr(item))
            if item.kind == "question":
                await runner.answer("golden", item.request_id, value=True)
            else:
                await runner.approve("golden", item.request_id)
        result = await runner.resume("golden")
        assert result.state == "completed", result.error
        outcomes = {each.name: each.outcome for each in result.tool_executions}
        assert outcomes.pop("leak_error") == "error"
        assert set(outcomes.values()) == {"ok"}, outcomes
        seen += [repr(result), repr(result.extra_state), *map(repr, result.artifacts)]
        for artifact in result.artifacts:
            data = (await runner.get_artifact("golden", artifact.artifact_id)).data or b""
            seen.append(data.decode("latin-1"))
        failed = await runner.run(agent, "Once more.")
        assert failed.state == "failed"
        seen += [repr(failed), str(failed.error)]
        await runner.export_tasks(folder / "export.jsonl")
        files = contents(folder, "")
        await runner.aclose()
        files |= {name: text for name, text in contents(folder, " (closed)").items() if ".db" in name}
        if form == "in HTML":
            files.pop("all.jsonl")  # it has the deltas, too
        seen += [*listener.events, "".join(listener.texts), "".join(listener.progress)]
        seen.append(await asyncio.to_thread(command_line, store, "golden"))
        files |= {"console": screen.getvalue(), "logs": "\n".join(logged), "caller": "\n".join(seen)}
        files["OTLP"] = collector.raw.decode("latin-1")
    return [
        f"{way} in {name}"
        for name, text in files.items()
        for pile in [Haystack(text)]
        for way, key in CANARIES.items()
        if pile.holds(key)
    ]
