"""A whole answer that was a JSON call of the agent's own tool ended the task as completed, and nothing said so."""

import logging
from typing import Any

import pytest

from treadle import Agent, Guardrail, Runner, ScriptedModel, events, tool
from treadle.cli.main import main

pytestmark = pytest.mark.anyio

CALL = '{"name": "multiply", "arguments": {"a": 1, "b": 3}}'

ran: list[int] = []


@tool(read_only=True)
def multiply(a: int, b: int) -> int:
    """Multiply."""
    ran.append(a * b)
    return a * b


def desk(*answers: Any, **settings: Any) -> Agent[Any]:
    return Agent(ScriptedModel([*answers]), name="desk", tools=[multiply], **settings)


async def test_it_is_said_in_result_journal_and_log(store: Any, caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.WARNING, logger="treadle.tasks"):
        async with Runner(store) as runner:
            result = await runner.run(desk(CALL), "1 * 3?")
            log = (await runner.get_events(result.task_id)).items
            again = await runner.result(result.task_id)
    assert (result.state, result.final_text, ran) == ("completed", CALL, [])
    (warning,) = result.warnings
    assert "multiply" in warning
    assert 'worker="react"' in warning
    assert "--jinja" in warning
    assert again.warnings == result.warnings
    assert [it.text_calls for it in log if isinstance(it, events.ModelReturned)] == [("multiply",)]
    (record,) = [it for it in caplog.records if getattr(it, "event", "") == "text_calls"]
    assert warning in record.getMessage()
    assert "reads like a call" in repr(result)


async def test_show_says_it(tmp_path: Any, capsys: pytest.CaptureFixture[str]):
    store = str(tmp_path / "journal.db")
    async with Runner(store) as runner:
        result = await runner.run(desk(CALL), "1 * 3?")
    import asyncio

    await asyncio.to_thread(main, ["show", result.task_id, "--store", store])
    assert "reads like a call of multiply" in capsys.readouterr().out.replace("\n", " ")


@pytest.mark.parametrize(
    "answer",
    ["It is 3.", '{"a": 1}', '{"name": "divide", "arguments": {}}', CALL[:-1], f"Look: {CALL}"],
)
async def test_other_answers_are_not_warned_about(answer: str):
    async with Runner("memory:") as runner:
        result = await runner.run(desk(answer), "1 * 3?")
    assert (result.final_text, result.warnings) == (answer, ())


async def test_an_answer_that_a_guardrail_let_pass_is_told_too():
    rail = Guardrail(lambda request: None, on="output", id="fine")
    async with Runner("memory:", guardrails=[rail]) as runner:
        result = await runner.run(desk(CALL), "1 * 3?")
    assert len(result.warnings) == 1


async def test_a_later_answer_lifts_the_warning_of_the_result():
    async with Runner("memory:") as runner:
        first = await runner.run(desk(CALL), "1 * 3?", thread_id="talk")
        second = await runner.run(desk("It is 3."), "Again", thread_id="talk")
    assert (len(first.warnings), second.warnings) == (1, ())
