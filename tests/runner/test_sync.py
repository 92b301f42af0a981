"""The same verbs without asyncio: inside a running loop, from several threads, and one runner in several loops."""

import asyncio
import contextvars
import inspect
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from treadle import Agent, Runner, ScriptedModel, tool
from treadle.errors import TaskNotFound, TaskParked
from treadle.llm.scripted import call, fail, text


@tool(read_only=True)
def add(a: int, b: int) -> int:
    return a + b


def adder(*script: Any) -> Agent[Any]:
    turns = list(script) or [call("add", a=1, b=2), "3"]
    return Agent(ScriptedModel(turns), name="adder", tools=[add])


def test_a_whole_life_of_a_task_without_asyncio(store: Any) -> None:
    runner = Runner(store)
    with runner.sync as sync:
        agent = adder()
        task = sync.create_task(agent, "1 + 2?", thread_id="t")
        assert sync.get_task(task).state == "created"
        first = sync.run_step(task)
        assert not first.is_last
        assert [step.step_id for step in sync.get_upcoming_steps(task)] == ["s2"]
        assert sync.undo_step(task).complete
        assert [sync.run_step(task).is_last for _ in range(2)] == [False, True]
        assert len(sync.get_completed_steps(task)) == 2
        result = sync.finalize(task)
        assert result.final_text == "3"
        assert sync.get_thread("t")[-1].text == "3"
        fork = sync.fork(task, at=1)
        assert sync.resume(fork).final_text == "3"
        assert sync.diff(task, fork).a == task.task_id
        assert {item.task_id for item in sync.list_tasks().items} == {task.task_id, fork.task_id}
        assert sync.verify(task).events > 5
        sync.delete_task(fork)
        with pytest.raises(TaskNotFound):
            sync.get_task(fork)
        with pytest.raises(TaskParked):
            sync.run_step(sync.pause(sync.create_task(agent, "x")).task_id)


def test_every_verb_of_the_runner_has_one_of_the_same_name_and_arguments() -> None:
    runner = Runner("memory:")
    verbs = {
        name
        for name, member in inspect.getmembers(type(runner))
        if not name.startswith("_") and (callable(member) or hasattr(member, "__get__"))
    }
    internal = {
        "hold",
        "at_rest",
        "stopped",
        "typed_of",
        "store",
        "aclose",
        "run_sync",
        "enter",
        "abandoned",
        "observers",
    }
    missing = [name for name in verbs - internal if not hasattr(runner.sync, name)]
    assert missing == []
    for name in verbs - internal - {"handle"}:
        theirs = inspect.signature(getattr(type(runner), name)).parameters
        ours = inspect.signature(getattr(type(runner.sync), name)).parameters
        assert list(ours) == list(theirs), name


def test_streams_and_handles_without_asyncio(store: Any) -> None:
    runner = Runner(store)
    with runner.sync as sync:
        with sync.run_stream(adder(), "1 + 2?") as stream:
            seen = [event.kind for event in stream]
        assert stream.result.final_text == "3"
        assert seen[0] == "task_created"
        assert seen[-1] == "task_ended"
        handle = sync.start(adder(), "1 + 2?")
        assert handle.result().final_text == "3"


@pytest.mark.anyio
async def test_run_sync_works_inside_a_running_loop(store: Any) -> None:
    runner = Runner(store)
    assert runner.run_sync(adder(), "1 + 2?").final_text == "3"
    assert (await runner.run(adder(), "1 + 2?")).final_text == "3"
    await runner.aclose()


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


def test_steering_and_stopping_without_asyncio(store: Any) -> None:
    slow = Agent(ScriptedModel([text("later", delay=30), "x"]), name="slow")
    with Runner(store, agents=[slow]).sync as sync:
        handle = sync.start(slow, "go")
        sync.send(handle.task_id, "hurry")
        assert sync.interrupt(handle.task_id).state == "interrupted"
        assert sync.cancel(handle.task_id).state == "cancelled"


def test_context_variables_of_the_caller_reach_the_tools(store: Any) -> None:
    var: contextvars.ContextVar[str] = contextvars.ContextVar("var", default="none")

    @tool(read_only=True)
    async def look() -> str:
        return var.get()

    var.set("caller")
    with Runner(store).sync as sync:
        result = sync.run(Agent(ScriptedModel([call("look"), "x"]), tools=[look]), "go")
    assert result.tool_executions[0].output == "caller"
