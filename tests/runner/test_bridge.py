"""The bridge from code without asyncio: from threads, from running event loops, and from several of them."""

import asyncio
import contextvars
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.cast import adder
from treadle import Agent, Runner, ScriptedModel, tool
from treadle.errors import TaskNotFound
from treadle.llm.scripted import call, fail


@pytest.mark.anyio
async def test_a_tool_may_run_another_agent_synchronously_even_from_async_code(runner: Runner) -> None:
    @tool
    async def nested() -> str:
        return runner.run_sync(adder(), "1 + 2?").final_text

    outer = Agent(ScriptedModel([call("nested"), "Done."]), name="outer", tools=[nested])
    result = await asyncio.to_thread(runner.run_sync, outer, "go")
    assert result.tool_executions[0].output == "3"


def test_many_threads_use_one_runner_at_once(store: Any) -> None:
    runner = Runner(store)
    agent = adder()
    with runner.sync, ThreadPoolExecutor(12) as threads:
        results = list(threads.map(lambda n: runner.run_sync(agent, f"task {n}"), range(48)))
    assert {result.state for result in results} == {"completed"}
    assert len({result.task_id for result in results}) == 48


def test_one_runner_in_several_event_loops_at_once(store: Any) -> None:
    runner = Runner(store)
    agent = adder()
    results: list[Any] = []

    def loop() -> None:
        async def some() -> None:
            results.extend(await asyncio.gather(*(runner.run(agent, "go") for _ in range(5))))

        asyncio.run(some())

    threads = [threading.Thread(target=loop) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert [result.state for result in results] == ["completed"] * 20
    runner.sync.close()


def test_one_runner_in_one_loop_after_the_other(store: Any) -> None:
    runner = Runner(store)
    agent = adder()
    for _ in range(3):
        assert asyncio.run(runner.run(agent, "go")).state == "completed"
    runner.sync.close()


def test_a_task_driven_in_one_loop_is_cancelled_from_another(store: Any) -> None:
    runner = Runner(store)
    entered = threading.Event()

    @tool(read_only=True)
    async def hang() -> None:
        entered.set()
        await asyncio.sleep(30)

    agent = Agent(ScriptedModel([call("hang"), "x"]), name="h", tools=[hang])
    with ThreadPoolExecutor(1) as thread:
        running = thread.submit(runner.run_sync, agent, "go", task_id="mine")
        assert entered.wait(5)
        assert asyncio.run(runner.cancel("mine")).state == "cancelled"
        assert running.result(5).state == "cancelled"
    runner.sync.close()


def test_errors_come_through_as_they_are(store: Any) -> None:
    with Runner(store).sync as sync:
        with pytest.raises(TaskNotFound):
            sync.get_task("nope")
        result = sync.run(Agent(ScriptedModel([fail(500)])), "go")
        assert result.state == "failed"


def test_context_variables_of_the_caller_reach_the_tools(store: Any) -> None:
    var: contextvars.ContextVar[str] = contextvars.ContextVar("var", default="none")

    @tool(read_only=True)
    async def look() -> str:
        return var.get()

    var.set("caller")
    with Runner(store).sync as sync:
        result = sync.run(Agent(ScriptedModel([call("look"), "x"]), tools=[look]), "go")
    assert result.tool_executions[0].output == "caller"
