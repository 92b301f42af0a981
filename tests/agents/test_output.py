"""Types of answers: which types an agent accepts, and that a value of any of them survives the journal."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.runner.typed_cases import CASES, City, Point, every_mode, same, scripted
from treadle import Agent, Runner, tool
from treadle.errors import ConfigurationError
from treadle.models import call
from treadle.stores.memory import MemoryStore


@pytest.fixture
def store() -> MemoryStore:
    """The journal holds a typed answer as plain data, so one store shows it; crashes are tried on SQLite."""
    return MemoryStore()


@pytest.mark.sampled(40)
@every_mode
@pytest.mark.parametrize("name", CASES)
@pytest.mark.anyio
async def test_an_answer_of_every_type_survives_the_journal(name: str, mode: Any) -> None:
    kind, right, meant, wrong = CASES[name]
    store = MemoryStore()
    agent = scripted(kind, mode, wrong, call("look", where="map"), right)
    async with Runner(store) as runner:
        result = await runner.run(agent, "Which?")
    assert (result.state, result.error, result.steps, result.degraded_reasons) == ("completed", None, 3, ())
    assert [run.name for run in result.tool_executions] == ["look"]
    assert (result.usage.tool_calls, result.usage.model_calls) == (1, 3)
    assert same(result.output, meant)
    async with Runner(store, agents=[agent]) as another:
        assert same((await another.result(result.task_id)).output, meant)
    async with Runner(store) as stranger:
        seen = await stranger.result(result.task_id)
        assert json.loads(json.dumps(seen.output)) == seen.output


@pytest.mark.anyio
async def test_an_answer_of_another_type_is_returned_as_its_json_data(tmp_path: Path) -> None:
    store = tmp_path / "journal.db"
    async with Runner(store) as runner:
        task = (await runner.run(scripted(Point, "prompt", {"x": 1}), "Where?")).task_id
    async with Runner(store, agents=[scripted(City, "prompt", {})]) as later:
        assert (await later.result(task)).output == {"x": 1.0, "y": 0.0}


def test_an_output_type_without_a_schema_is_refused_by_the_agent() -> None:
    class Opaque:
        pass

    @tool(return_direct=True, read_only=True)
    def reply() -> str:
        """Reply."""
        return ""

    refused: list[tuple[dict[str, Any], str]] = [
        ({"output_type": Opaque}, "output_type"),
        ({"output_mode": "best"}, "output_mode"),
        ({"output_retries": -1}, "output_retries"),
        ({"output_retries": True}, "output_retries"),
        ({"output_type": int, "tools": [reply]}, "return_direct"),
    ]
    for wrong, named in refused:
        with pytest.raises(ConfigurationError, match=named):
            Agent("openai:gpt-5.4-mini", **wrong)


def test_the_fingerprint_covers_the_schema_of_the_output_type() -> None:
    @dataclass
    class Other:
        x: float

    plain, point, other = (Agent("openai:m", output_type=kind).fingerprint for kind in (str, Point, Other))
    assert len({plain, point, other}) == 3
    assert plain == Agent("openai:m").fingerprint


def test_the_schema_of_an_agent_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = scripted(Point, "prompt", {"x": 1}, {"x": 1}, {"x": 1})
    from pydantic import TypeAdapter

    monkeypatch.setattr(TypeAdapter, "json_schema", None)
    runner = Runner("memory:")
    for _ in range(2):
        assert runner.run_sync(agent, "Where?").output == Point(1.0)
