"""Errors of the user's code: what is logged of them, what the journal keeps, and what a failure is raised from."""

import asyncio
import copy
import logging
import pickle
import sys
import threading
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import AfterValidator

from treadle import (
    Agent,
    FailurePolicy,
    Handoff,
    Node,
    Pipeline,
    Policy,
    Rule,
    Runner,
    RunOptions,
    ScriptedModel,
    ToolContext,
    tool,
)
from treadle.core import tracebacks
from treadle.core.tracebacks import cause_of, hung_at, stack_of_coroutine, stack_of_thread
from treadle.engine import in_flight, user_errors
from treadle.engine.user_errors import kept
from treadle.errors import ContextFailed, StepFailed, StoredTraceback, TaskFailed, ToolError
from treadle.llm.scripted import call
from treadle.tools import Subprocess

pytestmark = pytest.mark.anyio

STRICT = RunOptions(on_failure=FailurePolicy(tool="fail"))


class Left(BaseException):
    """An error of the user's own that is no ordinary one."""


@tool(read_only=True)
def look(name: str) -> str:
    """Look."""
    return {"tea": "green"}[name]


def agent_of(work: Any = look, **arguments: Any) -> Agent[Any]:
    return Agent(ScriptedModel([call(work.spec.name, **arguments), "Done."]), name="shop", tools=[work])


async def test_a_failed_task_is_raised_from_the_error_itself() -> None:
    async with Runner("memory:") as runner:
        result = await runner.run(agent_of(name="cake"), "go", options=STRICT)
    with pytest.raises(TaskFailed) as failed:
        result.raise_for_state()
    cause = failed.value.__cause__
    assert isinstance(cause, KeyError)
    assert cause.__traceback__ is not None
    assert cause.__traceback__.tb_frame.f_code.co_name == "look"  # no frame of Treadle is above it


async def test_in_another_process_a_failed_task_is_raised_from_its_stored_traceback(tmp_path: Path) -> None:
    store = str(tmp_path / "journal.db")
    async with Runner(store) as runner:
        task_id = (await runner.run(agent_of(name="cake"), "go", options=STRICT)).task_id
    async with Runner(store) as runner:  # it knows what the journal has, and no more
        result = await runner.result(task_id)
    with pytest.raises(TaskFailed) as failed:
        result.raise_for_state()
    assert isinstance(failed.value.__cause__, StoredTraceback)
    assert "in look" in str(failed.value.__cause__)
    assert "KeyError: 'cake'" in failed.value.__cause__.text


async def test_a_failed_step_is_raised_from_the_error_itself() -> None:
    def broken(ctx: Any) -> None:
        raise LookupError("no such shelf")

    agent = Agent(ScriptedModel([]), worker=Pipeline([Node("only", broken)]))
    async with Runner("memory:") as runner:
        task = await runner.create_task(agent, "go")
        with pytest.raises(StepFailed) as failed:
            await runner.run_step(task)
    assert isinstance(failed.value.__cause__, LookupError)
    assert "in broken" in failed.value.error.traceback


async def test_an_error_that_names_a_secret_is_not_handed_on_itself(caplog: Any) -> None:
    @tool(read_only=True, secrets=("crm",))
    def leak(ctx: ToolContext[Any]) -> str:
        """Leak."""
        raise ValueError(f"refused: {ctx.secret('crm')}")

    async with Runner("memory:", secrets={"crm": lambda: "swordfish-77-of-doom"}) as runner:
        result = await runner.run(agent_of(leak), "go", options=STRICT)
    assert result.error is not None
    assert "refused: [secret]" in result.error.traceback
    cause = cause_of(result.error)
    assert isinstance(cause, StoredTraceback)
    assert "swordfish" not in caplog.text + str(cause)
    assert "in leak" in caplog.text


async def test_an_answer_of_a_tool_that_is_an_error_is_not_logged_as_one(caplog: Any) -> None:
    @tool(read_only=True)
    def refuse() -> str:
        """Refuse."""
        raise ToolError("ask for a smaller number")

    async with Runner("memory:") as runner:
        result = await runner.run(agent_of(refuse), "go")
    assert "user_code_raised" not in [getattr(record, "event", "") for record in caplog.records]
    assert result.tool_executions[0].error is not None
    assert "in refuse" in result.tool_executions[0].error.traceback


async def test_the_log_names_task_step_call_and_function(caplog: Any) -> None:
    caplog.set_level(logging.WARNING, "treadle.tasks")
    async with Runner("memory:") as runner:
        await runner.run(agent_of(name="cake"), "go", task_id="t1", options=STRICT)
    (record,) = [record for record in caplog.records if getattr(record, "event", "") == "user_code_raised"]
    assert record.getMessage() == "task t1 of shop, call s1-0: look raised an error"
    assert (record.task_id, record.step, record.call, record.function) == ("t1", "s1", "s1-0", "look")
    assert record.exc_info[0] is KeyError


async def test_an_undo_that_raises_tells_where() -> None:
    def put_back(done: Any, ctx: Any) -> None:
        raise OSError("the shelf is gone")

    @tool(undo=put_back)
    def take() -> str:
        """Take."""
        return "taken"

    async with Runner("memory:") as runner:
        result = await runner.run(agent_of(take), "go")
        report = await runner.undo_step(result.task_id, step="s1", force=True)
        events = [event async for event in runner.handle(result.task_id).events()]
    ends = [event.error for event in events if event.kind == "tool_ended" and event.outcome == "error"]
    assert [("in put_back" in error.traceback, error.message) for error in ends] == [
        (True, "OSError: the shelf is gone")
    ], report


async def test_only_the_last_errors_of_a_process_are_kept_as_they_are() -> None:
    def texts(count: int) -> list[str]:
        made: list[str] = []
        for number in range(count):
            try:
                raise ValueError(str(number))
            except ValueError as error:
                made.append(kept(error, None, function="a function"))
        return made

    first, *_, last = texts(tracebacks._RECENT.maxlen + 1)
    assert isinstance(user_errors.cause(first), StoredTraceback)
    assert isinstance(user_errors.cause(last), ValueError)
    assert type(pickle.loads(pickle.dumps(last))) is type(copy.deepcopy(last)) is str


def test_a_stored_traceback_can_be_pickled() -> None:
    error = pickle.loads(pickle.dumps(StoredTraceback("Traceback: lost")))
    assert (error.text, str(error)) == ("Traceback: lost", "\n\nTraceback: lost\n")


async def test_callbacks_that_raise_are_logged_with_the_users_frames_and_without_secrets(
    caplog: Any, monkeypatch: Any
) -> None:
    monkeypatch.setenv("SHOP_TOKEN", "tok-9f8e7d6c5b4a3210")

    class Watching:
        def observe(self, notice: Any) -> None:
            raise SystemExit("observing with tok-9f8e7d6c5b4a3210")

    asked = asyncio.Event()

    async def ask(runner: Any, pending: Any) -> None:
        asked.set()
        raise Left("asking with tok-9f8e7d6c5b4a3210")

    @tool(needs_approval=True)
    def pay() -> str:
        """Pay."""
        return "paid"

    settings: dict[str, Any] = {"observers": [Watching()], "on_pending": ask}
    async with Runner("memory:", secrets={"token": "env:SHOP_TOKEN"}, **settings) as runner:
        result = await runner.run(agent_of(pay), "go")
        await asked.wait()
    assert result.state == "waiting"
    records = {record.name: record for record in caplog.records if record.exc_info}
    assert records.keys() == {"treadle.observing", "treadle.pending"}
    assert "in observe" in caplog.text
    assert "in ask" in caplog.text
    assert "/src/treadle/" not in caplog.text
    assert "tok-9f8e" not in caplog.text


async def test_a_context_factory_that_raises_is_logged_and_is_the_cause(caplog: Any) -> None:
    def make(task: Any) -> Any:
        raise Left("no session")

    async with Runner("memory:", context_factory=make) as runner:
        with pytest.raises(ContextFailed) as failed:
            await runner.run(agent_of(name="tea"), "go")
    assert isinstance(failed.value.__cause__, Left)
    assert "in make" in caplog.text


async def test_instructions_that_raise_as_a_task_is_created_are_called_again_when_it_is_driven(
    caplog: Any,
) -> None:
    contexts: list[Any] = []

    def told(ctx: Any) -> str:
        contexts.append(ctx.context)
        raise LookupError("no such prompt")

    agent = Agent(ScriptedModel(["Done."]), name="shop", instructions=told)
    async with Runner("memory:") as runner:
        task = await runner.create_task(agent, "go", context="ann")
        assert task.state == "created"
        result = await runner.run(agent, "go", task_id=task.task_id, context="bob")
    assert contexts == ["ann", "bob"]
    assert result.error is not None
    assert (result.state, result.error.kind) == ("failed", "instructions")
    assert "in told" in result.error.traceback


def reconciled(lost: Any, ctx: Any) -> Any:
    raise Left("no ledger")


async def test_a_reconciliation_that_raises_tells_where(tmp_path: Path) -> None:
    @tool(reconcile=reconciled, timeout=1.0)
    async def pay() -> str:
        """Pay."""
        await asyncio.Event().wait()
        return "paid"

    async with Runner("memory:") as runner:
        result = await runner.run(agent_of(pay), "go", task_id="t1")
        events = [event async for event in runner.handle(result.task_id).events()]
    (unresolved,) = [event for event in events if event.kind == "outcome_unresolved"]
    assert unresolved.error is not None
    assert unresolved.error.message == "reconcile= of pay failed: the tool raised Left: no ledger"
    assert "in reconciled" in unresolved.error.traceback


async def test_a_filter_of_a_handoff_tells_where_it_raised() -> None:
    def seen(messages: Any) -> Any:
        raise LookupError("no such message")

    helper = Agent(ScriptedModel(["Done."]), name="helper")
    desk = Agent(
        ScriptedModel([call("transfer_to_helper")]), name="desk", handoffs=[Handoff(helper, filter=seen)]
    )
    async with Runner("memory:") as runner:
        result = await runner.run(desk, "go")
    assert result.error is not None
    assert result.state == "failed"
    assert "in seen" in result.error.traceback


@tool(read_only=True, host=Subprocess())
def hosted(name: str) -> str:
    """Look in a process of its own."""
    return {"tea": "green"}[name]


@pytest.mark.skipif(sys.platform != "linux", reason="processes of tools are for Linux")
async def test_a_tool_in_a_process_of_its_own_tells_where_it_raised(caplog: Any) -> None:
    agent = agent_of(hosted, name="cake")
    async with Runner("memory:") as runner:
        result = await runner.run(agent, "go", options=STRICT)
    assert result.error is not None
    assert "in hosted" in result.error.traceback, result.error
    assert "/src/treadle/" not in result.error.traceback
    assert isinstance(cause_of(result.error), StoredTraceback)
    assert "in hosted" in caplog.text


def dated(value: str) -> str:
    return {"2026": "now"}[value]


async def test_a_validator_of_arguments_that_raises_tells_where() -> None:
    @tool(read_only=True)
    def book(day: Annotated[str, AfterValidator(dated)]) -> str:
        """Book a day."""
        return day

    async with Runner("memory:") as runner:
        result = await runner.run(agent_of(book, day="1999"), "go")
    (execution,) = result.tool_executions
    assert execution.error is not None
    assert (result.state, execution.outcome) == ("completed", "invalid")
    assert "in dated" in execution.error.traceback


KEY = "\n".join("".join(chr(97 + (row * at + at) % 26) for at in range(60)) for row in range(1, 25))


def with_a_long_message() -> Exception:
    return ValueError(f"{'x' * 3_990}{KEY}{'y' * 9_000}")


def with_many_of_it() -> Exception:
    return ValueError(f"{KEY} " * 9)


def with_a_note() -> Exception:
    error = ValueError("refused")
    error.add_note(f"with the key\n{KEY}")
    return error


def at_the_root_of_many() -> Exception:
    error = ValueError(KEY)
    for number in range(80):
        outer = ValueError(number)
        outer.__cause__ = error
        error = outer
    return error


@pytest.mark.parametrize("made", [with_a_long_message, with_many_of_it, with_a_note, at_the_root_of_many])
async def test_a_secret_over_lines_or_beside_a_cut_was_logged_with_the_error(made: Any, caplog: Any) -> None:
    @tool(read_only=True, secrets=("crm",))
    def leak(ctx: ToolContext[Any]) -> str:
        """Leak."""
        ctx.secret("crm")
        raise made()

    async with Runner("memory:", secrets={"crm": lambda: KEY}) as runner:
        result = await runner.run(agent_of(leak), "go", options=STRICT)
    assert result.error is not None
    assert "in leak" in result.error.traceback
    assert isinstance(cause_of(result.error), StoredTraceback)
    seen = caplog.text + result.error.traceback
    assert [line for line in KEY.splitlines() if line in seen] == []


class LookedAt(Exception):
    """An error that raises another one when its text or an attribute is read."""

    def __init__(self, other: BaseException) -> None:
        super().__init__("looked at")
        self.other = other

    def __str__(self) -> str:
        raise self.other


class Delegating(LookedAt):
    def __getattr__(self, name: str) -> Any:
        raise self.other


@pytest.mark.parametrize("kind", [LookedAt, Delegating])
@pytest.mark.parametrize("other", [RuntimeError("again"), asyncio.CancelledError(), SystemExit(3)], ids=repr)
async def test_an_error_that_raised_when_it_was_looked_at_ended_the_run_or_hung_it(
    kind: Any, other: Any
) -> None:
    @tool(read_only=True)
    async def odd() -> str:
        """Odd."""
        raise kind(other)

    async with Runner("memory:") as runner:
        result = await asyncio.wait_for(runner.run(agent_of(odd), "go"), 60)
    assert result.state == "completed"
    (execution,) = result.tool_executions
    assert execution.outcome == "error"


async def test_an_error_with_notes_that_are_no_list_was_told_as_another_error() -> None:
    @tool(read_only=True)
    async def odd() -> str:
        """Odd."""
        error = ValueError("the shelf is empty")
        error.__notes__ = 5  # type: ignore[assignment]
        raise error

    async with Runner("memory:") as runner:
        result = await runner.run(agent_of(odd), "go", options=STRICT)
    assert result.error is not None
    assert "ValueError: the shelf is empty" in result.error.message


# ----------------------------------------------------------------------------------------- hanging


async def test_a_tool_that_hangs_in_a_thread_says_where(monkeypatch: Any, caplog: Any) -> None:
    monkeypatch.setattr(in_flight, "GRACE", 0.02)
    over = threading.Event()

    def deep_inside() -> None:
        over.wait(60)

    @tool(read_only=True, timeout=1.0)
    def work() -> None:
        """Work."""
        deep_inside()

    caplog.set_level(logging.WARNING, "treadle")
    try:
        async with Runner("memory:") as runner:
            result = await runner.run(agent_of(work), "go", options=STRICT)
    finally:
        over.set()
    (execution,) = result.tool_executions
    assert (result.state, execution.outcome) == ("failed", "timeout")
    assert "in work\n    deep_inside()" in execution.error.traceback
    assert "in deep_inside\n    over.wait(60)" in execution.error.traceback
    assert execution.error.traceback.endswith("\nTimeoutError: it was here when its time was up")
    (record,) = [each for each in caplog.records if getattr(each, "event", "") == "user_code_hung"]
    assert record.getMessage().endswith("call s1-0: work took too long")
    with pytest.raises(TaskFailed) as failed:
        result.raise_for_state()
    assert isinstance(failed.value.__cause__, StoredTraceback)


async def test_a_policy_function_that_hangs_in_a_thread_says_where() -> None:
    over = threading.Event()

    def judge(request: Any) -> None:
        over.wait(60)

    policy = Policy(Rule("gate", judge, tool="look"), deadline=1.0)
    try:
        async with Runner("memory:", policy=policy) as runner:
            result = await runner.run(agent_of(name="tea"), "go")
            events = [event async for event in runner.handle(result.task_id).events()]
    finally:
        over.set()
    (judged,) = [event for event in events if event.kind == "call_judged"]
    assert "in judge\n    over.wait(60)" in judged.traceback


async def test_where_code_hangs_no_secret_is_told(monkeypatch: Any) -> None:
    monkeypatch.setenv("SHOP_TOKEN", "tok-9f8e7d6c5b4a3210")

    @tool(read_only=True, timeout=1.0)
    async def work() -> None:
        """Work."""
        await asyncio.Event().wait() or "tok-9f8e7d6c5b4a3210"

    async with Runner("memory:", secrets={"token": "env:SHOP_TOKEN"}) as runner:
        result = await runner.run(agent_of(work), "go", options=STRICT)
    assert "tok-9f8e" not in str(result)
    assert "await asyncio.Event().wait() or" in result.error.traceback
    assert "tok-9f8e" not in result.error.traceback


async def test_a_call_that_is_stopped_by_a_cancel_says_nothing_of_where_it_was() -> None:
    begun = asyncio.Event()

    @tool(read_only=True)
    async def work() -> None:
        """Work."""
        begun.set()
        await asyncio.Event().wait()

    async with Runner("memory:") as runner:
        handle = await runner.start(agent_of(work), "go")
        await begun.wait()
        await handle.cancel()
        events = [event async for event in handle.events()]
    assert not any(getattr(getattr(event, "error", None), "traceback", "") for event in events)


def test_frames_without_code_of_the_user_say_nothing() -> None:
    assert hung_at([]) is None
    assert hung_at(stack_of_coroutine(None)) is None
    assert list(stack_of_thread(0)) == []
