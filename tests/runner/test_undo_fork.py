"""Forks share a prefix by reference, run nothing of it again, and go their own way."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.cast import Ledger, calculator, sayer
from tests.runner.acts import (
    assert_well_formed,
    both,
    journal,
    only,
    roles_and_texts,
    step_to_answer,
    stepped,
)
from treadle import (
    Agent,
    Breakpoint,
    FailurePolicy,
    Limits,
    Runner,
    RunOptions,
    ScriptedModel,
    ToolContext,
    ToolOutput,
    tool,
)
from treadle.errors import (
    CallNotFound,
    ConfigurationError,
    ForkPointBusy,
    StepNotFound,
    TaskConflict,
    TaskNotFound,
)
from treadle.llm.scripted import call, fail

pytestmark = pytest.mark.anyio


async def test_a_fork_begins_after_the_last_completed_step(runner: Runner) -> None:
    agent = calculator()
    task = await runner.create_task(agent, "?")
    await runner.run_step(task)
    await runner.run_step(task)
    fork = await runner.fork(task)
    assert (fork.state, fork.driven, fork.steps, fork.forked_from) == ("created", False, 2, task.task_id)
    assert fork.task_id != task.task_id
    assert fork.thread_id != task.thread_id
    request_count = len(agent.model.requests)
    result = await runner.resume(fork)
    assert result.final_text == "405"
    assert len(agent.model.requests) == request_count + 1, "nothing before its point is run again"
    assert_well_formed(agent.model.requests[-1].messages)


async def test_a_fork_at_a_step_begins_just_after_it(runner: Runner) -> None:
    result = await stepped(runner, calculator(), "?")
    fork = await runner.fork(result.task_id, at="s1")
    assert fork.steps == 1
    (upcoming,) = await runner.get_upcoming_steps(fork)
    assert upcoming.step_id == "s2"
    assert (await runner.run_step(fork)).tool_executions[0].output == 405


async def test_a_fork_at_a_sequence_number_begins_just_after_that_event(runner: Runner) -> None:
    result = await stepped(runner, calculator(), "?")
    events = await journal(runner, result.task_id)
    for event in events[:-1]:
        if event.kind in ("model_started", "tool_started"):
            with pytest.raises(ForkPointBusy, match=f"at event {event.seq}"):
                await runner.fork(result.task_id, at=event.seq)
            continue
        fork = await runner.fork(result.task_id, at=event.seq)
        assert fork.forked_at == event.seq
        assert [e.kind for e in await journal(runner, fork)] == [
            *[e.kind for e in events[: event.seq]],
            "task_forked",
        ]
        assert (await runner.resume(fork)).final_text == "405"
    assert await journal(runner, result.task_id) == events


async def test_a_fork_of_a_completed_task_at_its_end_has_its_answer(runner: Runner) -> None:
    result = await stepped(runner, calculator(), "?")
    fork = await runner.fork(result.task_id)
    again = await runner.resume(fork)
    assert (again.state, again.final_text) == ("completed", "405")


async def test_a_fork_with_input_goes_on_from_a_finished_answer(runner: Runner) -> None:
    agent = sayer("Hi.", "Hi Ann.")
    result = await runner.run(agent, "Hello")
    fork = await runner.fork(result.task_id, input="I am Ann.")
    out = await runner.run_step(fork)
    assert (out.step.step_id, out.output) == ("s2", "Hi Ann.")
    assert roles_and_texts(agent.model.requests[-1].messages) == [
        ("user", "Hello"),
        ("assistant", "Hi."),
        ("user", "I am Ann."),
    ]


async def test_a_fork_of_a_task_that_never_ran_starts_from_its_input(runner: Runner) -> None:
    task = await runner.create_task(sayer("Hi."), "Hello")
    fork = await runner.fork(task)
    assert (await runner.resume(fork)).final_text == "Hi."
    assert (await runner.get_task(task)).state == "created"


async def test_a_fork_may_have_another_agent_model_and_prompt(runner: Runner) -> None:
    task = await runner.create_task(calculator(instructions="Be precise."), "?")
    await runner.run_step(task)
    other = Agent(ScriptedModel(["unused", "about 400"]), name="rough", instructions="Be quick.")
    fork = await runner.fork(task, agent=other)
    assert fork.agent == "rough"
    result = await runner.resume(fork)
    assert result.final_text == "about 400"
    request = other.model.requests[-1]
    assert request.instructions == "Be quick."
    assert roles_and_texts(request.messages)[-1] == ("tool", "363")
    assert (await runner.get_task(task)).agent == "math"
    assert result.usage.per_agent.keys() == {"rough"}


async def test_a_fork_and_its_parent_each_keep_their_version_of_an_agent_of_one_name(runner: Runner) -> None:
    before = calculator(instructions="Be precise.")
    task = await runner.create_task(before, "?")
    await runner.run_step(task)
    after = calculator(instructions="Be quick.")
    fork = await runner.fork(task, agent=after)
    await runner.resume(task)
    await runner.resume(fork)
    assert {request.instructions for request in before.model.requests} == {"Be precise."}
    assert {request.instructions for request in after.model.requests} == {"Be quick."}
    assert await only(runner, task, "version_changed") == []


async def test_a_fork_does_not_go_back_before_its_point(runner: Runner) -> None:
    task = await runner.run(Ledger().agent(call("look"), "Hm.", "Well."), "?")
    assert (await runner.get_task(task.task_id)).forked_at is None
    fork = await runner.fork(task.task_id, at="s1")
    await runner.run_step(fork)
    with pytest.raises(StepNotFound, match="step 1 was taken over"):
        await runner.undo_step(fork, to=0)


async def test_a_fork_after_its_parents_end_is_in_its_first_attempt_and_in_no_thread_yet(
    runner: Runner,
) -> None:
    agent = Agent(ScriptedModel([fail(400), "Hello.", "Again."]), name="a")
    failed = await runner.run(agent, "?")
    task = await runner.resume(failed.task_id, agent=agent)
    assert (task.state, task.attempt) == ("completed", 2)
    fork = await runner.fork(task.task_id, at=(await runner.get_task(task.task_id)).head, input="And?")
    assert fork.attempt == 1
    assert (await runner.verify()).findings == ()
    assert (await runner.resume(fork)).final_text == "Again."
    assert len(await runner.get_thread(fork.thread_id)) == 4


async def test_a_fork_of_a_summary_task_has_messages_of_its_own(runner: Runner) -> None:
    await runner.run(sayer("One."), "?", thread_id="talk")
    made = await runner.compact_thread("talk", keep=0, model=ScriptedModel(["A summary."]))
    agent = Agent(ScriptedModel(["A summary.", "Words."]), name="speaker")
    fork = await runner.fork(made.tasks[0], input="And?", agent=agent)
    assert (await runner.resume(fork)).state == "completed"
    assert [message.text for message in await runner.get_thread(fork.thread_id)][-1] == "Words."


async def test_the_step_that_a_parent_began_is_not_the_forks_to_take_back(runner: Runner) -> None:
    ledger = Ledger()
    agent = ledger.agent(call("book", what="1"), call("book", what="2"), "done")
    task = await runner.create_task(agent, "?")
    await runner.run_step(task)
    (ended,) = await only(runner, task, "tool_ended")
    fork = await runner.fork(task, at=ended.seq)
    with pytest.raises(StepNotFound, match="step 1 was taken over"):
        await runner.undo_step(fork)
    await runner.run_step(fork)
    with pytest.raises(StepNotFound, match="step 1 was taken over"):
        await runner.undo_step(fork)
    await runner.run_step(fork)
    await runner.undo_step(fork)
    assert ledger.entries == ["book 1", "book 2", "unbook 2 (2 booked)"]
    assert (await runner.get_task(fork)).steps == 1
    assert (await step_to_answer(runner, fork))[-1].output == "done"
    assert_well_formed(agent.model.requests[-1].messages)


async def test_a_result_can_be_replaced_and_its_siblings_keep_theirs(runner: Runner) -> None:
    agent = calculator(both(call("add", a=1, b=1), call("multiply", a=2, b=3)), "done")
    result = await runner.run(agent, "?")
    fork = await runner.fork(result.task_id, replace={"s1-1": 7})
    assert fork.steps == 1
    await runner.resume(fork)
    assert roles_and_texts(agent.model.requests[-1].messages)[-1] == ("tool", "2 7")
    assert [run.output for run in (await runner.result(fork)).tool_executions] == [2, 7]
    assert [run.output for run in (await runner.result(result.task_id)).tool_executions] == [2, 6]
    (replaced,) = await only(runner, fork, "result_replaced")
    assert (replaced.call, replaced.output, replaced.previous) == ("s1-1", 7, 6)


async def test_a_replaced_result_makes_the_rest_of_its_step_run_again(runner: Runner) -> None:
    @tool(read_only=True)
    async def look(where: str) -> ToolOutput:
        if where == "up":
            raise ValueError("too dark")
        return ToolOutput("a dog", display="A dog!")

    shown = tool(read_only=True, return_direct=True, name="show")(look.function)
    degrades = RunOptions(on_failure=FailurePolicy(tool="degrade"))
    cut = RunOptions(limits=Limits(steps=1))
    seen = ScriptedModel(
        lambda request: (
            call("look", where="down") if request.tools else roles_and_texts(request.messages)[-1][1]
        )
    )
    for agent, options, was, is_now in (
        (
            Agent(ScriptedModel([call("show", where="down")]), tools=[shown]),
            None,
            "A dog!",
            "completed a cat",
        ),
        (Agent(seen, tools=[look]), cut, "a dog", "degraded a cat"),
        (
            Agent(ScriptedModel([call("look", where="up"), "So."]), tools=[look]),
            degrades,
            "So.",
            "completed So.",
        ),
    ):
        result = await runner.run(agent, "?", options=options)
        assert result.final_text == was
        fork = await runner.fork(result.task_id, replace={"s1-0": "a cat"})
        again = await runner.resume(fork, agent=agent)
        assert f"{again.state} {again.final_text}" == is_now
        assert_well_formed(again.messages)
        assert (again.steps, again.tool_executions[0].display) == (result.steps, None)


async def test_a_failed_call_whose_result_is_replaced_has_not_failed_in_the_fork(runner: Runner) -> None:
    @tool(read_only=True)
    async def look() -> str:
        raise ValueError("too dark")

    agent = Agent(ScriptedModel([call("look"), "Done."]), name="looker", tools=[look])
    result = await runner.run(agent, "?")
    fork = await runner.fork(result.task_id, replace={"s1-0": "a cat"})
    (replaced,) = (await runner.result(fork)).tool_executions
    assert (replaced.outcome, replaced.output, replaced.error) == ("ok", "a cat", None)
    (failed,) = (await runner.result(result.task_id)).tool_executions
    assert failed.outcome == "error"


@pytest.mark.parametrize(
    ("how", "error", "reason"),
    [
        ({"at": "s9"}, StepNotFound, "no completed step 's9'"),
        ({"at": 0}, StepNotFound, "has events 1 to"),
        ({"at": 10_000}, StepNotFound, "has events 1 to"),
        ({"at": True}, ConfigurationError, "at must be a step id or the sequence number"),
        ({"replace": {"s9-0": 1}}, CallNotFound, "no finished call 's9-0'"),
        ({"replace": {"s1-0": 1}, "at": "s2"}, ConfigurationError, "at='s2' is another place; leave at= out"),
        ({"replace": {"s1-0": 1}, "at": 3}, ConfigurationError, "forks at the end of s1, event"),
        ({"replace": {"s1-0": 1, "s2-0": 2}}, ConfigurationError, "one completed step"),
        ({"input": ""}, ConfigurationError, "input"),
    ],
    ids=repr,
)
async def test_an_unknown_fork_point_is_named(runner: Runner, how: Any, error: Any, reason: str) -> None:
    result = await runner.run(calculator(), "?")
    with pytest.raises(error, match=reason):
        await runner.fork(result.task_id, **how)
    assert len((await runner.list_tasks()).items) == 1


async def test_a_fork_in_the_middle_of_a_batch_is_busy_until_it_is_at_rest(runner: Runner) -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    @tool(read_only=True)
    async def wait(n: int) -> int:
        """Wait."""
        if n == 2:
            begun.set()
            await go.wait()
        return n

    agent = Agent(ScriptedModel([both(call("wait", n=1), call("wait", n=2)), "done"]), tools=[wait])
    handle = await runner.start(agent, "?")
    await begun.wait()
    async for event in handle.events(deltas=False):
        if event.kind == "tool_ended":
            break
    head = (await runner.get_task(handle.task_id)).head
    with pytest.raises(ForkPointBusy):
        await runner.fork(handle.task_id, at=head)
    fork = await runner.fork(handle.task_id)
    assert fork.steps == 0, "the last completed step: there is none"
    go.set()
    await handle.result()
    events = await journal(runner, handle.task_id)
    first_end = next(event for event in events if event.kind == "tool_ended")
    with pytest.raises(ForkPointBusy):
        await runner.fork(handle.task_id, at=first_end.seq)


async def test_a_fork_of_a_fork_shares_what_both_share(runner: Runner) -> None:
    agent = calculator()
    task = await runner.create_task(agent, "?")
    await runner.run_step(task)
    fork = await runner.fork(task)
    await runner.run_step(fork)
    second = await runner.fork(fork)
    assert (second.steps, second.forked_from) == (2, fork.task_id)
    assert (await runner.resume(second)).final_text == "405"
    assert len(agent.model.requests) == 3
    early = await runner.fork(second, at="s1")
    assert (await runner.resume(early)).final_text == "405"
    for each in (task, fork, second, early):
        report = await runner.verify(each)
        assert (report.findings, report.events) == ((), len(await journal(runner, each)))


async def test_the_parent_of_a_fork_is_untouched_goes_on_and_can_be_deleted(runner: Runner) -> None:
    agent = calculator()
    task = await runner.create_task(agent, "?")
    await runner.run_step(task)
    before = await journal(runner, task)
    fork = await runner.fork(task)
    assert await journal(runner, task) == before
    assert (await runner.resume(task)).final_text == "405"
    await runner.delete_task(task)
    with pytest.raises(TaskNotFound):
        await runner.get_task(task)
    assert (await runner.resume(fork)).final_text == "405"
    assert (await runner.get_task(fork)).forked_from == task.task_id
    second = await runner.fork(fork, at="s1")
    await runner.delete_task(fork)
    assert (await runner.resume(second)).final_text == "405"
    await runner.delete_task(second)
    assert (await runner.list_tasks()).items == ()


async def test_a_fork_inherits_no_request_to_its_parent(runner: Runner) -> None:
    agent = calculator()
    task = await runner.create_task(agent, "?")
    await runner.run_step(task)
    await runner.pause(task, reason="lunch")
    assert (await runner.resume(await runner.fork(task))).state == "completed"
    await runner.cancel(task)
    fork = await runner.fork(task)
    assert fork.state == "created"
    assert (await runner.resume(fork)).state == "completed"


async def test_a_fork_at_an_event_after_its_parents_end_is_not_ended(runner: Runner) -> None:
    result = await runner.run(calculator(limits=Limits(steps=1)), "?")
    assert result.state == "degraded"
    head = (await runner.get_task(result.task_id)).head
    fork = await runner.fork(result.task_id, at=head, options=RunOptions(limits=Limits(steps=9)))
    assert fork.state == "created"


async def test_a_fork_keeps_labels_and_options_and_may_have_other_options(runner: Runner) -> None:
    options = RunOptions(limits=Limits(steps=1), labels={"team": "blue"})
    task = await runner.create_task(calculator(), "?", options=options)
    fork = await runner.fork(task)
    assert fork.labels == {"team": "blue"}
    assert (await runner.resume(fork)).state == "degraded"
    free = await runner.fork(task, options=RunOptions(on_limit="fail"))
    assert (await runner.resume(free)).state == "failed"


async def test_idempotency_keys_of_a_fork_are_its_own(runner: Runner) -> None:
    keys: list[str] = []

    @tool(idempotent=True)
    async def put(ctx: ToolContext) -> None:
        """Put."""
        keys.append(ctx.idempotency_key)

    agent = Agent(ScriptedModel([call("put"), call("put"), "done"]), tools=[put])
    task = await runner.create_task(agent, "?")
    await runner.run_step(task)
    fork = await runner.fork(task)
    await runner.run_step(task)
    await runner.run_step(fork)
    assert keys == [f"{task}/s1-0", f"{task}/s2-0", f"{fork}/s2-0"]


async def test_an_undo_does_not_go_past_the_point_of_the_fork(runner: Runner) -> None:
    ledger = Ledger()
    task = await runner.create_task(ledger.agent(call("book", what="1"), call("book", what="2"), "done"), "?")
    await runner.run_step(task)
    fork = await runner.fork(task)
    with pytest.raises(StepNotFound, match=f"step 1 was taken over from task {task.task_id}"):
        await runner.undo_step(fork)
    await runner.run_step(fork)
    with pytest.raises(StepNotFound, match="no step to take back"):
        await runner.undo_step(fork, to=0)
    report = await runner.undo_step(fork, to=1)
    assert [undone.call for undone in report.calls] == ["s2-0"]
    assert ledger.entries == ["book 1", "book 2", "unbook 2 (2 booked)"]
    assert (await step_to_answer(runner, fork))[-1].output == "done"


async def test_the_undo_of_a_fork_at_an_event_restores_its_pending_messages(runner: Runner) -> None:
    agent = sayer("first", "second")
    task = await runner.create_task(agent, "Hello")
    await runner.send(task, "I am Ann.")
    fork = await runner.fork(task, at=2)
    await runner.run_step(fork)
    await runner.undo_step(fork, to=0)
    (upcoming,) = await runner.get_upcoming_steps(fork)
    assert [part.text for part in upcoming.input] == ["Hello", "I am Ann."]


async def test_the_undo_of_a_fork_restores_its_input(runner: Runner) -> None:
    task = await runner.create_task(sayer("first", "second"), "Hello")
    await runner.run_step(task)
    fork = await runner.fork(task, input="I am Ann.")
    await runner.run_step(fork)
    await runner.undo_step(fork, to=1)
    (upcoming,) = await runner.get_upcoming_steps(fork)
    assert [part.text for part in upcoming.input] == ["I am Ann."]


async def test_a_fork_in_a_paused_batch_runs_its_calls_for_itself(runner: Runner) -> None:
    ledger = Ledger()
    options = RunOptions(break_on=[Breakpoint(before_tool="book")])
    task = await runner.create_task(ledger.agent(call("book", what="1"), "done"), "?", options=options)
    assert (await runner.resume(task)).state == "paused"
    asked = await only(runner, task, "model_returned")
    fork = await runner.fork(task, at=asked[0].seq)
    assert (await runner.resume(fork)).final_text == "done"
    assert ledger.entries == ["book 1"]
    assert (await runner.get_task(task)).state == "paused"


async def test_a_fork_adds_its_messages_to_the_thread_in_its_argument(runner: Runner) -> None:
    await runner.run(sayer("Hi."), "Hello", thread_id="talk")
    task = await runner.create_task(sayer("first", "second"), "?", thread_id="other")
    await runner.run_step(task)
    fork = await runner.fork(task, input="And?", thread_id="talk")
    assert fork.thread_id == "talk"
    assert (await runner.resume(fork)).state == "completed"
    assert roles_and_texts(await runner.get_thread("talk")) == [
        ("user", "Hello"),
        ("assistant", "Hi."),
        ("user", "And?"),
        ("assistant", "second"),
    ]
    assert await runner.get_thread("other") == ()


async def test_a_fork_in_a_thread_of_its_own_brings_its_whole_conversation(runner: Runner) -> None:
    await runner.run(sayer("Hi."), "Hello", thread_id="talk")
    task = await runner.create_task(calculator(), "?", thread_id="talk")
    await runner.run_step(task)
    fork = await runner.fork(task)
    result = await runner.resume(fork)
    thread = await runner.get_thread(result.thread_id)
    assert roles_and_texts(thread)[:3] == [("user", "Hello"), ("assistant", "Hi."), ("user", "?")]
    assert_well_formed(thread)
    agent = sayer("You asked it.")
    await runner.run(agent, "What did I ask?", thread_id=result.thread_id)
    assert roles_and_texts(agent.model.requests[0].messages)[:-1] == roles_and_texts(thread)
    assert_well_formed(agent.model.requests[0].messages)


async def test_a_fork_writes_the_same_however_long_its_parent_is(tmp_path: Path) -> None:
    import apsw

    sizes = []
    for steps in (3, 60):
        path = tmp_path / f"{steps}.db"
        agent = calculator(*[call("add", a=n, b=n) for n in range(steps)], "done")
        async with Runner(path) as runner:
            result = await runner.run(agent, "x" * 500)
            before = rows(apsw, path)
            await runner.fork(result.task_id, at=f"s{steps // 2}")
            after = rows(apsw, path)
        added = {name: (after[name][0] - n, after[name][1] - size) for name, (n, size) in before.items()}
        sizes.append(added)
    assert sizes[0].keys() == sizes[1].keys()
    for name, (count, size) in sizes[0].items():
        assert sizes[1][name][0] == count, name
        assert abs(sizes[1][name][1] - size) <= 16, f"{name}: only numbers may be a little longer"
    assert sum(count for count, _ in sizes[0].values()) <= 3


def rows(apsw: Any, path: Path) -> dict[str, tuple[int, int]]:
    """Of each table how many rows it has and how many bytes they hold, seen by another connection."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    written: dict[str, tuple[int, int]] = {}
    names = [name for (name,) in connection.execute("select name from sqlite_master where type = 'table'")]
    for name in names:
        columns = [row[1] for row in connection.execute(f"pragma table_info({name})")]
        size = " + ".join(f"coalesce(length({column}), 0)" for column in columns)
        ((count, total),) = list(connection.execute(f"select count(*), coalesce(sum({size}), 0) from {name}"))
        written[name] = (count, total)
    connection.close()
    return written


# ------------------------------------------------------------------------------------------------- diff


async def test_a_diff_names_the_first_step_that_differs_with_both_values(runner: Runner) -> None:
    agent = calculator()
    task = await runner.create_task(agent, "?")
    await runner.run_step(task)
    slip = calculator("unused", call("add", a=363, b=43), "406", instructions="Slip once.")
    fork = await runner.fork(task, agent=slip)
    await runner.resume(task)
    await runner.resume(fork)
    diff = await runner.diff(task, fork)
    assert (diff.same, diff.index, diff.field) == (False, 2, "calls")
    assert diff.value_a == [("add", {"a": 363, "b": 42})]
    assert diff.value_b == [("add", {"a": 363, "b": 43})]
    assert diff.step_a is not None
    assert diff.step_b is not None
    assert (diff.step_a.step.step_id, diff.step_b.step.step_id) == ("s2", "s2")
    assert diff.shared_events == fork.forked_at


async def test_a_diff_of_a_replaced_result_shows_it(runner: Runner) -> None:
    result = await runner.run(calculator(), "?")
    fork = await runner.fork(result.task_id, replace={"s1-0": 364})
    diff = await runner.diff(result.task_id, fork)
    assert (diff.index, diff.field, diff.value_a, diff.value_b) == (1, "output of s1-0", 363, 364)


async def test_a_diff_of_relatives_knows_the_steps_that_ran_once(runner: Runner) -> None:
    result = await runner.run(calculator(), "?")
    fork = await runner.fork(result.task_id, at="s1", input="And?")
    of_fork = await runner.fork(fork, input="And then?")
    diff = await runner.diff(result.task_id, of_fork)
    assert diff.shared_events == fork.forked_at
    assert [(step.a, step.b, step.shared) for step in diff.steps][:2] == [
        ("s1", "s1", True),
        ("s2", None, False),
    ]
    await runner.delete_task(fork)
    assert (await runner.diff(result.task_id, of_fork)).shared_events == fork.forked_at


async def test_a_place_may_be_named_beside_a_replaced_result_if_it_is_the_end_of_its_step(
    runner: Runner,
) -> None:
    result = await runner.run(calculator(), "?")
    first = await runner.fork(result.task_id, replace={"s1-0": 1})
    for at in ("s1", first.forked_at):
        fork = await runner.fork(result.task_id, replace={"s1-0": 1}, at=at, task_id=f"fork-{at}")
        assert fork.forked_at == first.forked_at
        again = await runner.fork(result.task_id, replace={"s1-0": 1}, at=at, task_id=f"fork-{at}")
        assert again.task_id == fork.task_id
    with pytest.raises(TaskConflict, match="another at"):
        await runner.fork(result.task_id, replace={"s1-0": 1}, at="s2", task_id="fork-s1")


async def test_a_diff_of_equal_tasks_is_empty(runner: Runner) -> None:
    one = await runner.run(calculator(), "?")
    other = await runner.run(calculator(), "?")
    assert (await runner.diff(one.task_id, other.task_id)).same
    assert (await runner.diff(one.task_id, one.task_id)).same


async def test_a_diff_with_a_shorter_task_names_the_missing_step(runner: Runner) -> None:
    task = await runner.create_task(calculator(), "?")
    await runner.run_step(task)
    other = await runner.run(calculator(), "?")
    diff = await runner.diff(task, other.task_id)
    assert (diff.index, diff.field, diff.value_a, diff.value_b) == (2, "step", None, "s2")


async def test_a_fork_of_a_task_in_its_first_step_begins_before_that_step(runner: Runner) -> None:
    options = RunOptions(break_on=[Breakpoint(before_tool="*")])
    task = await runner.create_task(calculator(), "?", options=options)
    assert (await runner.resume(task)).state == "paused"
    fork = await runner.fork(task)
    assert (fork.forked_at, fork.steps) == (1, 0)
    (upcoming,) = await runner.get_upcoming_steps(fork)
    assert upcoming.input == task.input


async def test_no_fork_begins_in_the_midst_of_an_undo(runner: Runner) -> None:
    ledger = Ledger(lambda entry: entry.startswith("unbook"))
    task = await runner.create_task(ledger.agent(call("book", what="a"), "done"), "?")
    await runner.run_step(task)
    assert not (await runner.undo_step(task)).complete
    (undo_request,) = await only(runner, task, "undo_requested")
    with pytest.raises(ForkPointBusy, match="undo"):
        await runner.fork(task, at=undo_request.seq)
    assert (await runner.fork(task, at="s1")).steps == 1


async def test_a_failure_that_was_tolerated_can_be_replaced_in_a_fork(runner: Runner) -> None:
    @tool
    async def look() -> str:
        raise ValueError("broken")

    agent = Agent(ScriptedModel([call("look"), "so"]), tools=[look])
    options = RunOptions(on_failure=FailurePolicy(tool="degrade"))
    parent = await runner.run(agent, "go", options=options)
    fork = await runner.fork(parent.task_id, replace={"s1-0": "seen"})
    assert (parent.state, (await runner.resume(fork)).state) == ("degraded", "completed")
