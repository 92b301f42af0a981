"""Results, tasks, steps and pages show themselves: short in a REPL, as tables in a notebook."""

from typing import Any

import pytest
from pydantic import BaseModel

from tests.cast import adder
from treadle import (
    Agent,
    Breakpoint,
    Limits,
    ModelSettings,
    Runner,
    RunOptions,
    RunResult,
    ScriptedModel,
    Task,
    tool,
)
from treadle.core.display import Displayed
from treadle.models import call, text

pytestmark = pytest.mark.anyio

LONG = "word " * 5_000


@tool(read_only=True)
def look(what: str) -> str:
    """Look."""
    return LONG if what == "long" else f"<b>{what}</b>"


def looker() -> Agent[Any]:
    turns = [call("look", what="long"), call("look", what="<script>"), text(LONG)]
    return Agent(ScriptedModel(turns), name="looker", tools=[look])


@pytest.fixture
async def shown(store: Any) -> dict[str, Any]:
    async with Runner(store) as runner:
        result = await runner.run(looker(), LONG, thread_id="talk")
        created = await runner.create_task(looker(), "<i>Hi</i>")
        return {
            "RunResult": result,
            "Task": await runner.get_task(result.task_id),
            "TaskUsage": result.usage,
            "TaskStepOutput": await runner.get_step(result.task_id, 1),
            "StepOutputs": await runner.get_completed_steps(result.task_id),
            "EventPage": await runner.get_events(result.task_id),
            "StepPage": await runner.get_steps(result.task_id),
            "PastRequest": await runner.get_request(result.task_id, 1),
            "Lineage": await runner.get_lineage(result.task_id),
            "UsageReport": await runner.usage(),
            "StepInfo": (await runner.get_upcoming_steps(created))[0],
            "ToolExecution": result.tool_executions[0],
            "TaskPage": await runner.list_tasks(),
            "TaskSummary": (await runner.list_tasks()).items[0],
            "PendingPage": await runner.list_pending(),
            "ThreadPage": await runner.list_threads(),
            "ThreadMessages": await runner.get_thread("talk"),
            "Difference": await runner.diff(result.task_id, created),
        }


async def test_everything_shows_itself_on_one_short_line(shown: dict[str, Any]) -> None:
    for name, each in shown.items():
        assert repr(each).startswith(f"{name}("), name
        assert "\n" not in repr(each)
        assert len(repr(each)) < 600, name
        assert isinstance(each, Displayed)


async def test_everything_shows_itself_as_escaped_html(shown: dict[str, Any]) -> None:
    for name, each in shown.items():
        html = each._repr_html_()
        assert name in html
        assert "<script" not in html
        assert len(html) < 100_000, name
    assert "&lt;i&gt;Hi&lt;/i&gt;" in shown["StepInfo"]._repr_html_()


async def test_the_html_of_a_result_has_its_answer_its_calls_and_its_messages(shown: dict[str, Any]) -> None:
    html = shown["RunResult"]._repr_html_()
    for part in (
        "completed",
        "look",
        "s1-0",
        "s2-0",
        "messages",
        "word word",
        "&lt;b&gt;&lt;script&gt;&lt;/b&gt;",
    ):
        assert part in html, part


async def test_the_html_of_steps_unfolds_their_calls(shown: dict[str, Any]) -> None:
    html = shown["StepOutputs"]._repr_html_()
    assert html.count("<tr>") >= 1 + 3 + 2 * 2, "a head, three steps, and a table of calls in two of them"


async def test_a_result_is_equal_by_what_it_holds_and_not_by_what_it_shows(store: Any) -> None:
    async with Runner(store) as runner:
        result = await runner.run(adder(), "1 + 2?")
        assert result == await runner.result(result.task_id)
        assert isinstance(result, RunResult)
        assert isinstance(await runner.get_task(result.task_id), Task)


# ------------------------------------------------------------------------------------------------ pages


async def test_an_async_for_over_a_page_goes_over_all_later_pages(store: Any) -> None:
    async with Runner(store) as runner:
        made = [(await runner.create_task(adder(), "1 + 2?")).task_id for _ in range(7)]
        page = await runner.list_tasks(limit=3, agent="adder")
        assert [task.task_id for task in page] == made[:3:-1]
        assert [task.task_id async for task in page] == made[::-1]
        assert page.cursor is not None
        assert [task.task_id async for task in await runner.list_tasks(cursor=page.cursor)] == made[3::-1]


def test_a_plain_for_over_a_page_of_sync_goes_over_all_later_pages(store: Any) -> None:
    with Runner(store).sync as sync:
        made = [sync.create_task(adder(), "1 + 2?").task_id for _ in range(5)]
        page = sync.list_tasks(limit=2)
        assert len(page.items) == 2
        assert [task.task_id for task in page] == made[::-1]
        threads = [sync.run(adder(), "1 + 2?", thread_id=name).thread_id for name in ("a", "b", "c")]
        assert [thread.thread_id for thread in sync.list_threads(limit=1)] == threads


async def test_outputs_of_a_type_show_themselves_too(store: Any) -> None:
    class City(BaseModel):
        name: str

    agent = Agent(ScriptedModel([call("final_answer", name="Oslo")]), name="geo", output_type=City)
    async with Runner(store, agents=[agent]) as runner:
        task = await runner.create_task(agent, "Where?")
        step = await runner.run_step(task)
        for shown in (step, await runner.get_completed_steps(task), await runner.finalize(task)):
            assert "Oslo" in shown._repr_html_()
        assert "Oslo" in str(step)
        assert "Oslo" in repr(step)


# ------------------------------------------------------------------------------------------------ options


def test_options_show_only_what_was_set() -> None:
    assert repr(RunOptions()) == "RunOptions()"
    options = RunOptions(
        limits=Limits(steps=3, cost=0.5),
        on_limit="pause",
        break_on=[Breakpoint(tool="pay"), Breakpoint(after_step=0)],
        model_settings=ModelSettings(temperature=0, extra={"seed": 7}),
        tell_steps_left=False,
        labels={"team": "blue"},
    )
    assert eval(repr(options)) == options
    assert "None" not in repr(options)


async def test_the_runner_of_sync_names_its_store(store: Any) -> None:
    runner = Runner(store)
    assert repr(runner.sync) == f"{runner!r}.sync" == f"Runner({runner.store.url!r}).sync"
