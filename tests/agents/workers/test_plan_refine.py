"""Plans of sub-tasks that run beside each other, and are refined."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest
from pydantic import BaseModel

from tests.property.mortal import MortalStore, next_life
from tests.runner.acts import assert_well_formed, only
from tests.runner.planned import World, a_plan, an_answer, sub, two_plans
from treadle import Agent, Limits, PlanRefine, RequestContext, Runner, RunOptions, RunResult, ScriptedModel
from treadle.core.events import Delta, Event
from treadle.errors import ConfigurationError, StoreError, TreadleError
from treadle.llm.scripted import call, text, turn
from treadle.replay.recording import assert_same_journal, journal_of
from treadle.stores.memory import MemoryStore
from treadle.testing.audit import Evidence, audit_store

pytestmark = pytest.mark.anyio

BOOKED = '; before that it called book({"n": 2}) -> booked 2'
NOT_RUN = "it was not run, for it waits for 1.fail, which did not end well"


@pytest.fixture
async def runner() -> AsyncIterator[Runner]:
    async with Runner("memory:", options=RunOptions(on_unknown_outcome="tell_model")) as runner:
        yield runner


async def audited(world: World, runner: Runner, *, ended: bool = True) -> None:
    """Nothing of what the auditor knows to look for is wrong."""
    requests: dict[str, list[Any]] = {}
    for request in world.asked:
        requests.setdefault(request.task_id, []).append(list(request.messages))
    evidence = Evidence(ledger=world.ledger, requests=requests, ended=ended)
    assert await audit_store(runner.store, evidence) == []


async def steps(runner: Runner, task_id: str) -> dict[str, str]:
    return {out.step.name: out.step.status for out in await runner.get_completed_steps(task_id)}


async def outputs(runner: Runner, task_id: str) -> dict[str, Any]:
    return {out.step.name: out.output for out in await runner.get_completed_steps(task_id)}


# --------------------------------------------------------------------------------------------- plans


async def test_a_plan_runs_by_its_dependencies_and_is_refined_by_its_results(
    runner: Runner,
) -> None:
    world = two_plans()
    result = await runner.run(world.agent, "go")
    assert (result.state, result.final_text, result.error) == ("completed", "All is booked.", None)
    assert await steps(runner, result.task_id) == {
        "plan": "completed",
        "1.look": "completed",
        "1.book": "completed",
        "1.fail": "failed",
        "1.sum": "skipped",
        "refine-1": "completed",
        "2.fail": "completed",
        "2.sum": "completed",
        "refine-2": "completed",
    }
    made = await outputs(runner, result.task_id)
    assert made["refine-1"] == {
        "plan": 2,
        "sub_tasks": [
            {"id": "2.fail", "task": "do fail", "after": ["1.book"]},
            {"id": "2.sum", "task": "do sum", "after": ["1.look", "2.fail"]},
        ],
        "added": ["2.fail", "2.sum"],
        "kept": ["1.look", "1.book"],
        "dropped": ["1.fail", "1.sum"],
    }
    assert len(world.starts()) == len(set(world.starts())) == 3
    [refinement] = [
        last for request in world.asked if "Plan 2 has run" in (last := request.messages[-1].text)
    ]
    for name in ("1.look", "1.book", "2.fail", "2.sum"):
        assert f"{name}: do {name[2:]}\nResult: " in refinement, "results of older plans too"
    await audited(world, runner)


async def test_a_diamond_is_run_by_its_dependencies_and_each_sees_what_it_waited_for(runner: Runner) -> None:
    world = World([a_plan(sub("a"), sub("b", "a"), sub("c", "a"), sub("d", "b", "c")), an_answer("Done.")])
    result = await runner.run(world.agent, "go")
    assert (result.state, result.final_text, result.steps) == ("completed", "Done.", 6)
    seen = {name: world.asked_in(name)[0].messages[0].text for name in ("1.a", "1.b", "1.c", "1.d")}
    prompts = {
        name: [other for other in seen if f"Result of {other}:\n{other} is done" in seen[name]]
        for name in seen
    }
    assert prompts == {"1.a": [], "1.b": ["1.a"], "1.c": ["1.a"], "1.d": ["1.b", "1.c"]}
    assert all(message.startswith("The whole task:\ngo") for message in seen.values())


async def test_sub_tasks_of_a_wave_run_beside_each_other(runner: Runner) -> None:
    inside, both = set[str](), asyncio.Event()

    async def meanwhile(name: str) -> None:
        inside.add(name)
        if inside >= {"1.a", "1.b"}:
            both.set()
        await both.wait()

    world = World([a_plan(sub("a"), sub("b")), an_answer("Done.")], meanwhile=meanwhile)
    async with asyncio.timeout(10):
        assert (await runner.run(world.agent, "go")).state == "completed"


async def test_a_sub_task_does_not_wait_for_those_it_does_not_need(runner: Runner) -> None:
    second = asyncio.Event()

    async def meanwhile(name: str) -> None:
        if name == "1.slow":
            await second.wait()
        if name == "1.b":
            second.set()

    world = World([a_plan(sub("slow"), sub("a"), sub("b", "a")), an_answer("Done.")], meanwhile=meanwhile)
    async with asyncio.timeout(10):
        assert (await runner.run(world.agent, "go")).state == "completed"


async def test_a_planning_request_describes_the_tools_and_a_working_request_offers_them(
    runner: Runner,
) -> None:
    world = World([a_plan(sub("a")), an_answer("Done.")])
    await runner.run(world.agent, "go")
    for request in world.planning:
        assert list(request.tools) == []
        assert "- book: Book." in request.instructions
        assert request.instructions.endswith("Be brief.")
    (worked,) = world.asked_in("1.a")
    assert [spec.name for spec in worked.tools] == ["look", "book", "break_"]
    assert worked.instructions.endswith("Be brief.")


async def test_a_selector_chooses_the_tools_of_each_sub_task_by_its_text(runner: Runner) -> None:
    def offer(ctx: RequestContext[Any]) -> list[str]:
        return ["look" if "do look" in ctx.messages[0].text else "book"]

    world = World([a_plan(sub("look"), sub("book")), an_answer("Done.")], settings={"offer": offer})
    assert (await runner.run(world.agent, "go")).state == "completed"
    assert [[spec.name for spec in world.asked_in(name)[0].tools] for name in ("1.look", "1.book")] == [
        ["look"],
        ["book"],
    ]


async def test_a_task_for_which_nothing_has_to_be_done_is_answered_at_once(runner: Runner) -> None:
    world = World([an_answer("Hello.")])
    result = await runner.run(world.agent, "hi")
    assert (result.state, result.final_text, result.usage.model_calls) == ("completed", "Hello.", 1)


async def test_the_thread_keeps_input_and_answer_and_the_next_plan_sees_them(
    runner: Runner,
) -> None:
    first = await runner.run(two_plans().agent, "go", thread_id="talk")
    world = World([an_answer("As I said.")])
    second = await runner.run(world.agent, "again", thread_id="talk")
    assert [message.text for message in first.messages] == ["go", "All is booked."]
    assert [message.text for message in second.messages] == ["again", "As I said."]
    assert [message.text for message in world.asked[0].messages] == ["go", "All is booked.", "again"]


async def test_a_message_sent_meanwhile_is_in_the_refinement_of_the_plan(runner: Runner) -> None:
    world = World([a_plan(sub("a")), an_answer("Done.")])
    task = await runner.create_task(world.agent, "go")
    await runner.run_step(task)
    await runner.run_step(task, input="and be quick")
    result = await runner.resume(task)
    assert result.state == "completed"
    said = [message.text for message in world.planning[-1].messages]
    assert said[:2] == ["go", "and be quick"]
    assert said[2].startswith("Plan 1 has run")
    assert [message.text for message in result.messages] == ["go", "and be quick", "Done."]


@pytest.mark.parametrize("kind", ["free", "stepped", "ready steps"])
async def test_stepping_gives_the_result_of_a_free_run(runner: Runner, kind: str) -> None:
    free, world = await runner.run(two_plans().agent, "go"), two_plans()
    task = await runner.create_task(world.agent, "go")
    if kind == "free":
        await runner.resume(task)
    while kind == "stepped" and not (await runner.run_step(task)).is_last:
        pass
    while kind == "ready steps" and not any(out.is_last for out in await runner.run_ready_steps(task)):
        pass
    result = await runner.finalize(task)
    assert (result.state, result.output, result.messages) == (free.state, free.output, free.messages)
    assert await outputs(runner, task.task_id) == await outputs(runner, free.task_id)
    if kind == "free":
        journals = [await journal_of(runner.store, found.task_id) for found in (free, result)]
        assert_same_journal(*journals)
    await audited(world, runner)


async def test_plan_and_refinement_are_seen_by_watchers_as_steps_that_name_what_follows(
    runner: Runner,
) -> None:
    async with runner.run_stream(two_plans().agent, "go") as stream:
        seen = [event async for event in stream]
    planned = {
        event.output["plan"]: [step.name for step in event.next]
        for event in seen
        if getattr(event, "kind", "") == "step_completed" and event.next
    }
    assert planned == {
        1: ["1.look", "1.book", "1.fail", "1.sum", "refine-1"],
        2: ["2.fail", "2.sum", "refine-2"],
    }


async def test_deltas_name_the_step_they_belong_to(runner: Runner) -> None:
    world = World([a_plan(sub("a"), sub("b")), an_answer("Done.")])
    async with runner.run_stream(world.agent, "go") as stream:
        seen = [event async for event in stream]
    names = {
        out.step.step_id: out.step.name for out in await runner.get_completed_steps(stream.result.task_id)
    }
    texts: dict[str, str] = {}
    for event in seen:
        if isinstance(event, Delta) and event.is_text:
            texts[names[event.step]] = texts.get(names[event.step], "") + event.text
    assert texts == {
        "plan": world.plans[0],
        "1.a": "1.a is done",
        "1.b": "1.b is done",
        "refine-1": world.plans[1],
    }


async def test_usage_is_the_sum_over_plans_and_sub_tasks(runner: Runner) -> None:
    world = two_plans()
    used = (await runner.run(world.agent, "go")).usage
    answered = len(world.asked) - 1
    assert (used.model_calls, used.tool_calls) == (len(world.asked), 5)
    assert (used.input_tokens, used.output_tokens) == (answered * 100, answered * 7)
    assert (used.cached_tokens, used.reasoning_tokens) == (answered * 30, answered * 2)


# -------------------------------------------------------------------------------------- wrong plans


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ("I would look first.", "there is no JSON object"),
        (a_plan(sub("a", "b"), sub("b", "a")), "wait for each other"),
        (a_plan(sub("a", "missing")), "'a' waits for 'missing', and there is no such sub-task"),
        (a_plan(sub("a"), sub("a")), "two sub-tasks have the id 'a'"),
        (a_plan(sub("")), 'a sub-task has no "id" that is text'),
        (a_plan(), "must be a list of at least one sub-task"),
    ],
)
async def test_a_wrong_plan_is_sent_back_with_the_reason_and_not_run(
    runner: Runner, wrong: str, why: str
) -> None:
    world = World([[wrong, a_plan(sub("first"))], [wrong, an_answer("Done.")]])
    result = await runner.run(world.agent, "go")
    assert (result.state, result.final_text, result.steps) == ("completed", "Done.", 3)
    corrected = [list(request.messages)[-2:] for request in world.planning if len(request.messages) > 2]
    assert len(corrected) == 2
    for plan, correction in corrected:
        assert (plan.role, plan.text) == ("assistant", wrong)
        assert (correction.role, why in correction.text) == ("user", True)
        assert correction.text.startswith("Nothing was done: ")


async def test_a_plan_that_is_never_right_fails_with_the_reason_and_a_resume_gives_it_as_many_tries(
    runner: Runner,
) -> None:
    wrong = a_plan(sub("a", "b"))
    world = World([[wrong, wrong, wrong, a_plan(sub("a"))], an_answer("Done.")])
    result = await runner.run(world.agent, "go")
    assert (result.state, result.error.source, result.error.kind) == ("failed", "model", "unparsable")
    assert result.error.message == (
        "3 answers of the model in a row could not be used, at last because the sub-task 'a' waits for 'b', and there "
        "is no such sub-task"
    )
    assert (len(world.asked), result.messages[1:]) == (3, ())
    again = await runner.resume(result.task_id, agent=world.agent)
    assert (again.state, again.final_text) == ("completed", "Done.")
    assert len(world.planning) == 5
    await audited(world, runner)


@pytest.mark.parametrize("most", [1, 2])
async def test_the_number_of_wrong_plans_is_bounded_by_the_setting(runner: Runner, most: int) -> None:
    world = World(["no", "no"], worker=PlanRefine(max_parse_errors=most))
    result = await runner.run(world.agent, "go")
    assert (result.state, len(world.asked)) == ("failed", most)


async def test_an_answer_of_another_type_is_sent_back(runner: Runner) -> None:
    class City(BaseModel):
        name: str
        people: int

    right = {"name": "Oslo", "people": 700_000}
    world = World(
        [a_plan(sub("a")), [an_answer({"name": "Oslo"}), an_answer(right)]], settings={"output_type": City}
    )
    result = await runner.run(world.agent, "go")
    assert (result.state, result.output) == ("completed", City(name="Oslo", people=700_000))
    assert '"people"' in world.asked[0].instructions
    assert "people" in world.asked[-1].messages[-1].text


@pytest.mark.parametrize(
    ("output_type", "answer"), [(int, 0), (bool, False), (list[int], []), (int | None, None), (str, "")]
)
async def test_falsy_answers_are_answers(runner: Runner, output_type: Any, answer: Any) -> None:
    world = World([a_plan(sub("a")), an_answer(answer)], settings={"output_type": output_type})
    result = await runner.run(world.agent, "go")
    assert (result.state, result.output) == ("completed", answer)


async def test_an_answer_that_is_not_text_is_json_where_text_is_wanted(runner: Runner) -> None:
    result = await runner.run(World([an_answer({"oslo": 1})]).agent, "go")
    assert (result.output, result.final_text) == ('{"oslo": 1}', '{"oslo": 1}')


@pytest.mark.parametrize("most", [0, 1, 2])
async def test_refinements_are_bounded_and_at_the_last_the_model_has_to_answer(
    runner: Runner, most: int
) -> None:
    more = [a_plan(sub("a", task=f"try {n}")) for n in range(most + 1)]
    world = World([*more, [a_plan(sub("b")), an_answer("Done.")]], worker=PlanRefine(max_refinements=most))
    result = await runner.run(world.agent, "go")
    assert (result.state, result.final_text, result.steps) == ("completed", "Done.", 2 * most + 3)
    last = world.planning[-1].messages
    assert "No further plan is possible" in last[-3].text
    assert "no further plan is possible, so write the answer" in last[-1].text
    assert all("No further plan" not in request.messages[-1].text for request in world.planning[:-2])


# ---------------------------------------------------------------------------------------- sub-tasks


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (RuntimeError("down"), "down"),
        (turn("half of", finish="length"), "cut off at the longest length"),
        (turn(""), "answered with nothing"),
        (turn("No.", finish="refusal"), "the model refused"),
        (turn("No.", finish="content_filter"), "the provider filtered the answer"),
        (call("look", n=1), "it came to no result in 4 answers"),
    ],
)
async def test_a_failed_sub_task_is_in_the_refinement_and_the_task_continues(
    runner: Runner, said: Any, why: str
) -> None:
    world = World([a_plan(sub("a"), sub("b")), an_answer("Done.")], works={"1.a": [said]})
    agent = world.agent.replace(worker=PlanRefine(max_turns=4))
    result = await runner.run(agent, "go")
    assert (result.state, result.final_text, result.degraded_reasons) == ("completed", "Done.", ())
    assert await steps(runner, result.task_id) == {
        "plan": "completed",
        "1.a": "failed",
        "1.b": "completed",
        "refine-1": "completed",
    }
    assert why in world.planning[-1].messages[-1].text


async def test_those_that_wait_for_a_failed_sub_task_are_not_run(runner: Runner) -> None:
    world = two_plans()
    result = await runner.run(world.agent, "go")
    assert world.asked_in("1.sum") == []
    failed = [event.error.message for event in await only(runner, result.task_id, "step_failed")]
    skipped = [event.reason for event in await only(runner, result.task_id, "step_skipped")]
    assert (failed, skipped) == ([f"RuntimeError: out of luck{BOOKED}"], [NOT_RUN])
    assert f"1.sum: do sum\nIt did not end well: {NOT_RUN}" in world.planning[1].messages[-1].text
    assert f"1.sum: do sum\nIt did not end well: {NOT_RUN}" in world.planning[2].messages[-1].text


async def test_a_refinement_sees_the_calls_that_a_failed_sub_task_made(runner: Runner) -> None:
    works: dict[str, Any] = {"1.a": [call("look", n=1) + call("book", n=1), call("book", n=2)]}
    world = World([a_plan(sub("a")), an_answer("Booked twice.")], works=works, worker=PlanRefine(max_turns=2))
    await runner.run(world.agent, "go")
    assert world.planning[-1].messages[-1].text.splitlines()[3] == (
        "It did not end well: it came to no result in 2 answers of the model; before that it called "
        'book({"n": 1}) -> booked 1, book({"n": 2}) -> booked 2'
    )


async def test_every_refinement_sees_the_failures_of_all_earlier_plans(runner: Runner) -> None:
    works: dict[str, Any] = {"1.a": [RuntimeError("first")], "2.a": [RuntimeError("second")]}
    world = World([a_plan(sub("a")), a_plan(sub("a")), an_answer("It cannot be done.")], works=works)
    await runner.run(world.agent, "go")
    message = world.planning[-1].messages[-1].text
    assert "1.a: do a\nIt did not end well: RuntimeError: first" in message
    assert "2.a: do a\nIt did not end well: RuntimeError: second" in message


async def test_a_tool_that_fails_or_is_called_wrongly_is_the_sub_tasks_own_affair(runner: Runner) -> None:
    works = {"1.a": [call("break_") + call("missing") + call("look", n="x"), text("I could not.")]}
    world = World([a_plan(sub("a")), an_answer("Done.")], works=works)
    result = await runner.run(world.agent, "go")
    assert result.state == "completed"
    assert [run.outcome for run in result.tool_executions] == ["error", "invalid", "invalid"]
    last = world.asked_in("1.a")[-1].messages
    assert [message.role for message in last] == ["user", "assistant", "tool"]
    assert "RuntimeError: broken" in str(last[-1])
    assert "Result: I could not." in world.planning[-1].messages[-1].text
    for request in world.asked:
        assert_well_formed(request.messages)


async def test_pictures_of_the_task_are_in_planning_and_working_requests(runner: Runner) -> None:
    from treadle import Image

    world = World([a_plan(sub("a")), an_answer("A cat.")])
    await runner.run(world.agent, ["What is this?", Image(data=b"\x89PNG\r\n\x1a\n", media_type="image/png")])
    for request in world.asked:
        kinds = [type(part).__name__ for message in request.messages for part in message.parts]
        assert "Image" in kinds


# ------------------------------------------------------------------------------ what the engine keeps


async def drive(world: World, store: Any, task_id: str) -> RunResult | None:
    """Begin or resume the task in one process; return None if the process crashes."""
    options = RunOptions(on_unknown_outcome="tell_model")
    with suppress(StoreError):
        async with Runner(store, options=options, agents=[world.agent]) as runner:
            return await runner.run(world.agent, "go", task_id=task_id)
    return None


async def lived_through(**mortal: Any) -> tuple[World, RunResult | None, RunResult]:
    """Begin a task in a process that crashes at the named point, end it in another one, and audit the store."""
    world, life = two_plans(), MortalStore(MemoryStore())
    await life.real.open()
    world.life, world.dies_at = life, mortal.pop("dies_at", None)
    for name, value in mortal.items():
        setattr(life, name, value)
    first = await drive(world, life, "t1")
    second = await next_life(life, None)
    world.life = world.dies_at = None
    result = await drive(world, second, "t1")
    assert result is not None
    async with Runner(second.real) as reader:
        await audited(world, reader)
    return world, first, result


def assert_ended_well(world: World, result: RunResult) -> None:
    assert (result.state, result.final_text) == ("completed", "All is booked.")
    assert len(world.starts()) == len(set(world.starts()))
    assert [message.text for message in result.messages] == ["go", "All is booked."]


def places(keys: list[str]) -> list[str]:
    """Return the calls that were started, without the part of their keys that is random."""
    return sorted([key.rpartition("/")[2] for key in keys])


async def test_after_a_crash_in_the_second_plan_no_ended_call_runs_again() -> None:
    whole, _, _ = await lived_through()
    inside = next(n for n, request in enumerate(whole.asked) if request in whole.asked_in("2.sum"))
    reached = inside + len([entry for entry in whole.ledger if entry.phase == "start"])
    world, first, result = await lived_through(dies_at=reached)
    assert first is None
    assert_ended_well(world, result)
    assert places(world.starts()) == places(whole.starts())
    assert places(world.starts("read")) == places(whole.starts("read"))
    assert [len(world.asked_in(name)) for name in ("1.look", "1.book", "2.fail", "2.sum")] == [2, 2, 2, 2]
    assert len(world.planning) == 3


@pytest.mark.parametrize("full", [False, pytest.param(True, marks=pytest.mark.full)])
async def test_a_crash_at_any_commit_and_in_any_call_leaves_a_task_that_ends_as_it_would(full: bool) -> None:
    whole, _, _ = await lived_through()
    for at in range(0, whole.reached, 1 if full else 3):
        world, first, result = await lived_through(dies_at=at)
        assert first is None
        assert_ended_well(world, result)
    for after_writing in (False, True):
        at, first = 0, None
        while first is None:
            world, first, result = await lived_through(commits_left=at, dies_after_writing=after_writing)
            assert_ended_well(world, result)
            at += 1 if full else 3
        assert at > 10


@pytest.mark.parametrize("full", [False, pytest.param(True, marks=pytest.mark.full)])
async def test_a_cancel_at_any_event_ends_the_task(runner: Runner, full: bool) -> None:
    states: set[str] = set()
    place = events = 0
    while events >= place:
        world, events, place = two_plans(), 0, place + (1 if full else 7)
        handle = await runner.start(world.agent, "go")
        async for event in handle.events():
            events += isinstance(event, Event)
            if events > place:
                with suppress(TreadleError):
                    await handle.cancel()
                break
        result = await handle.result()
        states.add(result.state)
        assert result.state in ("cancelled", "completed")
        assert_well_formed(result.messages)
    assert states == {"cancelled", "completed"}
    await audited(world, runner)


async def test_a_limit_on_model_calls_of_any_size_is_kept(runner: Runner) -> None:
    needed = len((await lived_through())[0].asked)
    for on_limit, ended in (("final_answer", "degraded"), ("fail", "failed"), ("pause", "paused")):
        for calls in range(needed + 2):
            world = two_plans()
            options: Any = RunOptions(limits=Limits(model_calls=calls), on_limit=on_limit)
            result = await runner.run(world.agent, "go", options=options)
            assert len(world.asked) == result.usage.model_calls <= calls
            assert result.state == ("completed" if calls >= needed else ended)
            if ended == "paused" and result.state == "paused":
                more = RunOptions(limits=Limits(model_calls=needed))
                result = await runner.resume(result.task_id, agent=world.agent, options=more)
                assert (result.state, len(world.asked)) == ("completed", needed)
                assert_ended_well(world, result)


async def test_limits_on_steps_tools_and_tokens_are_kept(runner: Runner) -> None:
    for limits in (Limits(steps=5), Limits(tool_calls=2), Limits(tokens=500)):
        result = await runner.run(two_plans().agent, "go", options=RunOptions(limits=limits))
        begun = [run for run in result.tool_executions if run.outcome not in ("refused", None)]
        assert len(begun) <= (limits.tool_calls or 5)
        if limits.tool_calls is None:
            assert (result.state, result.error) == ("degraded", None)


async def test_a_refinement_that_is_undone_is_made_again_and_what_ended_before_stays(runner: Runner) -> None:
    world = two_plans()
    first = await runner.run(world.agent, "go")
    report = await runner.undo_step(first.task_id, to=5)
    assert [(call.tool, call.verdict) for call in report.calls] == [("book", "compensated")]
    again = await runner.resume(first.task_id, agent=world.agent)
    assert (again.state, again.messages) == ("completed", first.messages)
    assert len(world.asked_in("1.book")) == 2
    assert len(world.asked_in("2.fail")) == 4
    assert await steps(runner, first.task_id) == await steps(
        runner, (await runner.run(two_plans().agent, "go")).task_id
    )
    await audited(world, runner)


async def test_a_fork_after_the_first_plan_has_run_refines_it_for_itself(runner: Runner) -> None:
    world = two_plans()
    parent = await runner.run(world.agent, "go")
    done = await runner.get_completed_steps(parent.task_id)
    at = next(out.step.step_id for out in done if out.step.name == "1.sum")
    fork = await runner.fork(parent.task_id, at=at)
    result = await runner.resume(fork, agent=world.agent)
    assert (result.state, result.messages) == ("completed", parent.messages)
    assert len(world.asked_in("1.book")) == 2
    assert len(world.asked_in("2.fail")) == 4
    assert (await runner.get_task(parent.task_id)).state == "completed"
    await audited(world, runner)


async def test_many_tasks_share_one_agent(runner: Runner) -> None:
    world = two_plans()
    done = await asyncio.gather(*[runner.run(world.agent, f"go {n}") for n in range(10)])
    assert {result.final_text for result in done} == {"All is booked."}
    assert [result.messages[0].text for result in done] == [f"go {n}" for n in range(10)]
    await audited(world, runner)


# -------------------------------------------------------------------------------------- declaration


@pytest.mark.parametrize("name", ["max_refinements", "max_sub_tasks", "max_turns", "max_parse_errors"])
def test_a_wrong_number_is_refused_by_name(name: str) -> None:
    wrong: list[Any] = [-1, True, 1.5, "3", None]
    for value in wrong:
        with pytest.raises(ConfigurationError, match=f"PlanRefine: {name} must be a whole number from"):
            PlanRefine(**{name: value})


def test_plan_refine_is_named_or_constructed_and_its_settings_are_part_of_the_version() -> None:
    model = ScriptedModel([])
    named, made = Agent(model, worker="plan_refine"), Agent(model, worker=PlanRefine())
    other = Agent(model, worker=PlanRefine(max_turns=3))
    assert named.fingerprint == made.fingerprint
    assert len({named.fingerprint, other.fingerprint, Agent(model).fingerprint}) == 3
    assert named.replace(name="x").worker == "plan_refine"
    assert "max_turns=3" in repr(PlanRefine(max_turns=3))
    with pytest.raises(ConfigurationError, match="plan_refine"):
        Agent(model, worker="plan-refine")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="worker must be"):
        Agent(model, worker=PlanRefine)  # type: ignore[arg-type]
