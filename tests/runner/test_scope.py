"""A scoped runner acts for one principal, and keeps the options of its calls under a ceiling."""

import inspect
from dataclasses import fields
from typing import Any

import pytest

from tests.cast import add, adder, calculator, sayer
from treadle import Agent, Breakpoint, FailurePolicy, Limits, ModelSettings, Runner, RunOptions, ScriptedModel
from treadle.engine.options import from_json
from treadle.errors import ConfigurationError
from treadle.llm.scripted import call, text
from treadle.runner.scope import both, changed_options, fork_options, new_task_options
from treadle.runner.views import driver_of

pytestmark = pytest.mark.anyio


async def kinds_by(runner: Runner, task_id: str) -> dict[str, Any]:
    """Return who each event with a `by` names, by its kind."""
    events = [event async for event in runner.handle(task_id).events()]
    return {event.kind: vars_of["by"] for event in events if "by" in (vars_of := fields_of(event))}


def fields_of(event: Any) -> dict[str, Any]:
    return {field.name: getattr(event, field.name) for field in fields(event)}


async def options_of(runner: Runner, task_id: str) -> RunOptions:
    return from_json((await driver_of(runner).cache.load(task_id)).state.options)


async def test_each_command_of_a_scoped_runner_records_for_whom_it_acts(store: Any) -> None:
    async with Runner(store, agents=[adder()]) as runner:
        anns = runner.scoped(by="ann")
        task = await anns.create_task(adder(), "1 + 2?")
        await anns.pause(task)
        await anns.handle(task.task_id).send("quickly")
        await anns.resume(task)
        await anns.undo_step(task, to=0)
        by = await kinds_by(runner, task.task_id)
        for kind in ("pause_requested", "input_received", "resumed", "task_reopened", "undo_requested"):
            assert by[kind] == "ann"


async def test_a_caller_cannot_act_for_another_principal(store: Any) -> None:
    async with Runner(store) as runner:
        anns = runner.scoped(by="ann")
        task = await anns.create_task(adder(), "1 + 2?")
        with pytest.raises(
            ConfigurationError, match="pause: by must be 'ann', for which this runner acts, got 'bob'"
        ):
            await anns.pause(task, by="bob")
        with pytest.raises(ConfigurationError, match="by must be 'ann'"):
            await anns.handle(task.task_id).cancel(by="bob")
        with pytest.raises(ConfigurationError, match="scoped: this runner acts for 'ann'"):
            anns.scoped(by="bob")
        assert (await anns.pause(task, by="ann")).state == "paused"


async def test_new_tasks_and_resumes_stay_under_the_ceiling(store: Any) -> None:
    ceiling = RunOptions(limits=Limits(tool_calls=5), max_parallel_tools=2, interaction="headless")
    async with Runner(store, options=RunOptions(limits=Limits(tokens=10_000))) as runner:
        limited = runner.scoped(options=ceiling)
        asked = RunOptions(
            limits=Limits(tool_calls=50, steps=7), max_parallel_tools=10, interaction="external"
        )
        for given in (None, asked):
            task = await limited.create_task(adder(), "1 + 2?", options=given)
            kept = await options_of(runner, task.task_id)
            assert kept.limits is not None
            assert (kept.limits.tool_calls, kept.limits.tokens) == (5, 10_000)
            assert kept.limits.steps == (7 if given else None)
            assert (kept.max_parallel_tools, kept.interaction) == (2, "headless")
        result = await limited.resume(
            task, agent=adder(), options=RunOptions(limits=Limits(tool_calls=99), max_parallel_tools=9)
        )
        kept = await options_of(runner, result.task_id)
        assert kept.limits is not None
        assert (kept.limits.tool_calls, kept.max_parallel_tools) == (5, 2)


async def test_a_fork_stays_under_the_ceiling_though_its_task_had_none(store: Any) -> None:
    async with Runner(store) as runner:
        result = await runner.run(adder(), "1 + 2?", options=RunOptions(labels={"team": "a", "for": "bob"}))
        ceiling = RunOptions(limits=Limits(model_calls=1), labels={"for": "ann"})
        fork = await runner.scoped(options=ceiling).fork(result.task_id, at=1)
        kept = await options_of(runner, fork.task_id)
        assert kept.limits == Limits(model_calls=1)
        (row,) = (await runner.list_tasks(labels={"for": "ann"})).items
        assert (row.task_id, row.labels) == (fork.task_id, {"team": "a", "for": "ann"})


async def test_a_fork_of_a_child_is_under_the_ceiling_of_the_task_above_it(store: Any) -> None:
    child = Agent(ScriptedModel([call("add", a=1, b=2), "3"]), name="child", tools=[add])
    boss = Agent(ScriptedModel([call("child", input="1 + 2?"), "3"]), name="boss", subagents=[child])
    ceiling = RunOptions(
        limits=Limits(steps=5),
        model_settings=ModelSettings(max_tokens=10),
        break_on=[Breakpoint(tool="pay")],
        max_parallel_tools=2,
        labels={"for": "ann"},
    )
    async with Runner(store, agents=[boss, child]) as runner:
        anns = runner.scoped(by="ann", options=ceiling)
        task = (await anns.run(boss, "Go")).task_id
        (below,) = (await runner.list_tasks(parent=task)).items
        assert below.labels == {"for": "ann"}
        fork = await anns.fork(below.task_id, at=1)
        kept = await options_of(runner, fork.task_id)
        assert (kept.limits, kept.max_parallel_tools) == (Limits(steps=5), 2)
        assert kept.model_settings == ModelSettings(max_tokens=10)
        assert kept.break_on == (Breakpoint(tool="pay"),)
        assert fork.labels == {"for": "ann"}
        again = await anns.fork(fork.task_id)
        assert await options_of(runner, again.task_id) == kept


async def test_a_run_of_a_known_task_under_a_ceiling_does_not_loosen_its_limits(store: Any) -> None:
    async with Runner(store) as runner:
        strict = RunOptions(limits=Limits(steps=3))
        task = await runner.create_task(sayer(), "Hi", task_id="known", options=strict)
        limited = runner.scoped(options=RunOptions(limits=Limits(steps=100)))
        for options in (None, RunOptions(limits=Limits(steps=50))):
            await limited.run(sayer(), "Hi", task_id="known", options=options)
            assert (await options_of(runner, task.task_id)).limits == Limits(steps=3)


async def test_a_compaction_stays_under_the_ceiling(store: Any) -> None:
    async with Runner(store, agents=[sayer()]) as runner:
        for _ in range(3):
            await runner.run(sayer(), "hi", thread_id="talk")
        limited = runner.scoped(options=RunOptions(limits=Limits(tokens=77)))
        await limited.compact_thread("talk", keep=1, agent=sayer("A summary.", name="summary"))
        (summary,) = (await runner.list_tasks(agent="summary")).items
        assert (await options_of(runner, summary.task_id)).limits == Limits(tokens=77)


async def test_streams_and_synchronous_verbs_are_in_the_scope_too() -> None:
    with Runner("memory:", agents=[calculator()]).sync as sync:
        anns = sync.scoped(by="ann", options=RunOptions(limits=Limits(steps=2)))
        with anns.run_stream(calculator(), "1 + 2?") as stream:
            seen = [event.kind for event in stream]
        assert "limit_reached" in seen
        assert stream.result.state == "degraded"
        assert anns.pause(anns.create_task(calculator(), "x")).state == "paused"


async def test_a_scoped_runner_is_as_long_open_as_the_runner_it_was_made_of(store: Any) -> None:
    slow = Agent(ScriptedModel([text("later", delay=30)]), name="slow")
    async with Runner(store, agents=[slow]) as runner:
        async with runner.scoped(by="ann") as anns:
            handle = await anns.start(slow, "go")
        assert (await runner.get_task(handle.task_id)).state == "running"
        with pytest.raises(ConfigurationError, match="begin_adopting: call it on the runner"):
            anns.begin_adopting()
        with pytest.raises(ConfigurationError, match="drain: call it on the runner"):
            await anns.drain()
        assert (await anns.interrupt(handle.task_id)).state == "interrupted"
        assert (await anns.run(sayer(), "hi")).final_text == "Hello."


async def test_a_scope_within_a_scope_is_narrower() -> None:
    runner = Runner("memory:")
    inner = runner.scoped(options=RunOptions(limits=Limits(steps=5, tokens=100))).scoped(
        by="ann", options=RunOptions(limits=Limits(steps=9, cost=1))
    )
    task = await inner.create_task(adder(), "1 + 2?")
    assert (await options_of(runner, task.task_id)).limits == Limits(steps=5, tokens=100, cost=1)
    assert (await inner.pause(task)).state == "paused"
    assert (await kinds_by(runner, task.task_id))["pause_requested"] == "ann"


def test_by_and_options_are_given_by_name_in_every_verb() -> None:
    for name, member in inspect.getmembers(Runner("memory:"), inspect.ismethod):
        if name.startswith("_"):
            continue
        for parameter in inspect.signature(member).parameters.values():
            if parameter.name in ("by", "options"):
                assert parameter.kind is parameter.KEYWORD_ONLY, f"{name}({parameter.name}=)"


async def test_an_argument_by_that_names_no_caller_is_left_to_the_caller(store: Any) -> None:
    async with Runner(store) as runner:
        ann = runner.scoped(by="ann")
        assert (await ann.usage(by="day")).by == "day"
        assert (await ann.usage()).by == "agent"


# --------------------- options under a ceiling: of two numbers the smaller counts, and no default is raised


NOTHING = RunOptions()


def test_of_two_numbers_the_smaller_counts_and_all_else_is_as_the_ceiling_says() -> None:
    ceiling = RunOptions(
        context_tokens=4_000,
        on_unknown_outcome="wait",
        on_failure=FailurePolicy(tool="fail"),
        model_settings=ModelSettings(max_tokens=100, temperature=0.0),
        break_on=[Breakpoint(tool="pay")],
        labels={"team": "a"},
    )
    asked = RunOptions(
        context_tokens=9_000,
        on_unknown_outcome="tell_model",
        on_failure=FailurePolicy(tool="continue"),
        model_settings=ModelSettings(max_tokens=10, temperature=1.0),
        break_on=[Breakpoint(after_step=1)],
        labels={"team": "b", "run": "7"},
        keep_in_thread="always",
    )
    assert both(asked, ceiling) == RunOptions(
        context_tokens=4_000,
        on_unknown_outcome="wait",
        on_failure=FailurePolicy(tool="fail"),
        model_settings=ModelSettings(max_tokens=10, temperature=0.0),
        break_on=(Breakpoint(tool="pay"), Breakpoint(after_step=1)),
        labels={"team": "a", "run": "7"},
        keep_in_thread="always",
    )


@pytest.mark.parametrize(
    ("agent", "asked", "ceiling", "steps"),
    [
        (None, None, 500, None),
        (None, None, 100, 100),
        (None, 300, 500, 300),
        (None, 900, 500, 500),
        (300, None, 500, 500),
        (900, None, 500, 500),
        (50, 900, 500, 500),
    ],
)
def test_a_ceiling_above_a_default_does_not_raise_it(
    agent: int | None, asked: int | None, ceiling: int, steps: int | None
) -> None:
    options = new_task_options(
        RunOptions(limits=Limits(steps=asked)) if asked else NOTHING,
        RunOptions(limits=Limits(steps=ceiling), max_parallel_tools=100, max_parallel_steps=3),
        Limits(steps=agent),
    )
    assert options.limits is not None
    assert options.limits.steps == steps
    assert (options.max_parallel_tools, options.max_parallel_steps) == (None, 3)


def test_a_ceiling_without_a_limit_on_repeats_leaves_the_default() -> None:
    ceiling = RunOptions(limits=Limits(repeats=0))
    assert new_task_options(NOTHING, ceiling, Limits()).limits == Limits()
    asked = RunOptions(limits=Limits(repeats=0))
    assert new_task_options(asked, RunOptions(limits=Limits(repeats=3)), Limits()).limits == Limits(repeats=3)


def test_what_a_resume_leaves_open_stays_as_the_task_has_it() -> None:
    ceiling = RunOptions(limits=Limits(steps=5), max_parallel_tools=8, interaction="headless")
    assert changed_options(RunOptions(keep_in_thread="always"), ceiling) == RunOptions(
        keep_in_thread="always"
    )
    changed = changed_options(RunOptions(limits=Limits(tokens=10), interaction="external"), ceiling)
    assert changed == RunOptions(limits=Limits(tokens=10, steps=5), interaction="headless")


def test_a_fork_is_under_its_ceiling_and_keeps_what_its_task_has() -> None:
    ceiling = RunOptions(limits=Limits(steps=5), max_parallel_tools=8, max_parallel_steps=100)
    assert fork_options(None, NOTHING, ceiling) == RunOptions(limits=Limits(steps=5), max_parallel_tools=8)
    asked = RunOptions(limits=Limits(steps=3), max_parallel_tools=9)
    assert fork_options(asked, NOTHING, ceiling) == RunOptions(limits=Limits(steps=3), max_parallel_tools=8)
    stored = RunOptions(limits=Limits(tokens=9), max_parallel_tools=2, tell_steps_left=True)
    assert fork_options(None, stored, ceiling) == RunOptions(
        limits=Limits(steps=5, tokens=9), max_parallel_tools=2, tell_steps_left=True
    )


def test_a_breakpoint_of_a_ceiling_is_kept_once() -> None:
    ceiling = RunOptions(break_on=[Breakpoint(tool="pay")])
    stored = RunOptions(break_on=[Breakpoint(tool="pay"), Breakpoint(after_step=1)])
    assert fork_options(None, stored, ceiling) == RunOptions(
        break_on=(Breakpoint(tool="pay"), Breakpoint(after_step=1))
    )
