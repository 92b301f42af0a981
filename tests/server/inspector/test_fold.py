"""The page's fold gives the server's state after every event of every recorded journal."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.journals.fixed import SUFFIX
from tests.journals.stories import AGENTS
from tests.server.inspector.pages import NODE, command
from treadle import Runner
from treadle.results.wire import plain_wire

pytestmark = pytest.mark.anyio

JOURNALS = Path(__file__).parents[2] / "journals"
RECORDED = sorted(file for file in JOURNALS.glob("*/*") if file.suffix in (SUFFIX, ".jsonl"))


def said(task: Any, result: Any) -> dict[str, Any]:
    """Return what the server says of a task after an event."""
    usage = task["usage"]
    tokens = ("input_tokens", "output_tokens", "cached_tokens", "cache_write_tokens", "reasoning_tokens")
    same = (
        "state",
        "agent",
        "attempt",
        "steps",
        "forked_from",
        "forked_at",
        "parent",
        "head",
        "updated",
        "options",
        "input",
    )
    return {
        **{name: task[name] for name in same},
        "thread": task["thread_id"],
        "pending_count": task["pending"],
        "tokens": [usage[name] for name in tokens],
        "cost": usage["cost"],
        "unpriced": sorted(usage["unpriced"]),
        "model_calls": usage["model_calls"],
        "tool_calls": usage["tool_calls"],
        "final_text": result["final_text"],
        "output": result["output"],
        "error": result["error"] and result["error"]["message"],
        "reasons": result["degraded_reasons"],
        "stop_reason": result["stop_reason"],
        "ended_at": result["ended_at"],
        "pending": [
            [item["request_id"], item["kind"], item["tool"], shown_arguments(item), due(item)]
            for item in result["pending"]
        ],
        "calls": [
            [
                *[call[name] for name in ("call_id", "name", "arguments", "outcome", "output")],
                call["error"] and call["error"]["message"],
                call["attempt"],
                None if call["latency"] is None else round(call["latency"] * 1e6),
                call["agent"],
                call["rewritten"],
            ]
            for call in result["tool_executions"]
        ],
    }


def shown_arguments(item: Any) -> Any:
    """Return the arguments of a request; events do not show an answer that guardrails hold."""
    return None if item["tool"] == "the answer" else item["arguments"]


def due(item: Any) -> Any:
    """Return when a request ends by itself, for the kinds that the page counts down."""
    return item["expires"] if item["kind"] == "background" else item["due"]


async def journals() -> AsyncIterator[dict[str, Any]]:
    """Yield the recorded journals, each with the server's states."""
    for file in RECORDED:
        async with Runner("memory:", agents=AGENTS) as runner:
            await runner.import_tasks(file)
            task = await runner.get_task(file.stem)
            events = [event async for event in await runner.get_events(task)]
            states = [
                said(
                    plain_wire(await runner.get_task(task, at=event.seq)),
                    plain_wire(await runner.result(task, at=event.seq)),
                )
                for event in events
            ]
            yield {
                "name": f"{file.parent.name} {file.stem}",
                "events": [plain_wire(each) for each in events],
                "states": states,
            }


@pytest.mark.skipif(NODE is None, reason="node is not installed: the page's modules run in it")
async def test_the_fold_of_the_page_gives_the_state_of_the_server_after_every_event(tmp_path: Path) -> None:
    recorded = tmp_path / "journals.jsonl"
    with recorded.open("w") as file:
        async for journal in journals():
            file.write(json.dumps(journal) + "\n")
    check = command("check_fold.mjs", tmp_path, str(recorded))
    printed = json.loads((await anyio.run_process(check)).stdout)
    assert printed["wrong"] == []
    assert printed["prefixes"] > 1_000
