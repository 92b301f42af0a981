"""Runs that ask a person on the terminal of their process."""

from pathlib import Path
from typing import Any

import pytest

from tests.cli.terminal import Terminal
from treadle import Agent, Runner, RunOptions, ScriptedModel, tool
from treadle.errors import ConfigurationError
from treadle.llm.scripted import call, text

PROGRAM = """
import asyncio, sys
from treadle import Agent, Runner, RunOptions, ScriptedModel, tool
from treadle.llm.scripted import call, text

paid = []

@tool(needs_approval=True)
def pay(amount: int) -> str:
    paid.append(amount)
    return "paid"

calls = [call("pay", amount=5), call("pay", amount=6), call("pay", amount=7)]
payer = Agent(ScriptedModel([calls, text("Done.")]), name="payer", tools=[pay])
options = RunOptions(interaction="interactive")

def tell(result):
    print(result.state, sorted(paid), [call.outcome for call in result.tool_executions])

async def work():
    async with Runner("store.db", options=options) as runner:
        tell(await runner.run(payer, "go", task_id="task"))

def work_without_asyncio():
    with Runner("store.db", options=options).sync as runner:
        tell(runner.run(payer, "go", task_id="task"))

asyncio.run(work()) if sys.argv[1] == "async" else work_without_asyncio()
"""
QUESTION = "may it run? [y/n/e, ? lists all, Enter: later]"


def terminal(folder: Path, how: str = "async", **more: Any) -> Terminal:
    (folder / "program.py").write_text(PROGRAM)
    return Terminal(folder, how, program=["program.py"], **more)


@pytest.mark.parametrize("how", ["async", pytest.param("sync", marks=pytest.mark.full)])
def test_a_run_asks_at_its_terminal_one_question_after_the_other(tmp_path: Path, how: str) -> None:
    with terminal(tmp_path, how, color=False) as screen:
        screen.wait_for('pay({"amount":5})')
        screen.wait_for_prompt(QUESTION)
        screen.press("e\r")
        screen.wait_for('now: {"amount":5}')
        screen.wait_for_prompt("its arguments, as JSON:")
        screen.press('{"amount": "x"}\r')
        screen.wait_for("an integer, got 'x'")
        screen.wait_for('now: {"amount": "x"}')
        screen.wait_for_prompt("its arguments, as JSON:")
        screen.press('{"amount": 4}\r')
        screen.wait_for('pay({"amount":6})')
        screen.wait_for_prompt(QUESTION)
        screen.press("y\ry\r")  # the second answer comes before its question
        screen.wait_for('pay({"amount":7})')
        screen.wait_for_prompt(QUESTION)
        screen.press("n not that\r")
        assert "completed [4, 6] ['ok', 'ok', 'denied']" in screen.finished()


@pytest.mark.full
def test_what_is_left_open_waits_for_another_process(tmp_path: Path) -> None:
    with terminal(tmp_path) as screen:
        for amount in (5, 6, 7):
            screen.wait_for(f'pay({{"amount":{amount}}})')
            screen.wait_for_prompt(QUESTION)
            screen.press("\r" if amount < 7 else "\x04")
        assert "waiting [] [None, None, None]" in screen.finished()
    with Runner(tmp_path / "store.db").sync as runner:
        assert [item.request_id for item in runner.list_pending("task")] == [f"s1-{n}-ask1" for n in range(3)]


@pytest.mark.full
def test_ctrl_c_at_a_question_interrupts_the_run(tmp_path: Path) -> None:
    with terminal(tmp_path) as screen:
        screen.wait_for_prompt(QUESTION)
        screen.press("\x03")
        screen.finished()
        assert screen.process.returncode != 0
    with Runner(tmp_path / "store.db").sync as runner:
        assert runner.get_task("task").state == "interrupted"


@pytest.mark.anyio
async def test_without_a_terminal_such_a_run_is_refused_before_it_begins(tmp_path: Path) -> None:
    @tool(needs_approval=True)
    def pay(amount: int) -> str:
        """Pay."""
        return "paid"

    payer: Agent[Any] = Agent(
        ScriptedModel([call("pay", amount=5), text("Done.")] * 2), name="payer", tools=[pay]
    )
    options = RunOptions(interaction="interactive")
    async with Runner("memory:", agents=[payer]) as runner:
        with pytest.raises(ConfigurationError, match="interaction='interactive' asks on the terminal"):
            await runner.run(payer, "go", options=options)
        assert (await runner.list_tasks()).items == ()
        waiting = await runner.run(payer, "go")
        with pytest.raises(ConfigurationError, match="interaction='interactive'"):
            await runner.resume(waiting.task_id, options=options)
        assert (await runner.result(waiting.task_id)).state == "waiting"
