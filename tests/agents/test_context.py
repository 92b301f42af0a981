"""The contexts that tools and functions of instructions are passed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    NewType,
    Protocol,
    TypedDict,
    TypeVar,
    runtime_checkable,
)

import pytest

from tests.cast import calculator, sayer
from tests.runner.acts import kinds, only, step_to_answer
from treadle import (
    Agent,
    Node,
    NodeContext,
    Pipeline,
    RequestContext,
    RunContext,
    Runner,
    ScriptedModel,
    StepContext,
    StepResult,
    ToolContext,
    tool,
)
from treadle.agents.context import fits, is_checkable, type_name, type_named_by
from treadle.errors import ConfigurationError
from treadle.llm.scripted import call

pytestmark = pytest.mark.anyio

SECRET = "the-context-never-lies-on-disk"


def database_bytes(folder: Path) -> bytes:
    """All that a closed store left on disk."""
    return b"".join(path.read_bytes() for path in folder.glob("journal.db*"))


@tool(read_only=True)
async def whoami(ctx: ToolContext[Any]) -> str:
    """Tell who asks."""
    return f"user {len(ctx.context['secret'])}"


def asker(**more: Any) -> Agent[Any]:
    return Agent(ScriptedModel([call("whoami"), "done"]), name="asker", tools=[whoami], **more)


async def test_the_context_reaches_tools_and_never_the_model_or_the_disk(tmp_path: Path) -> None:
    agent = asker(instructions=lambda ctx: f"Serve {len(ctx.context['secret'])}.")
    context = {"secret": SECRET}
    async with Runner(tmp_path / "journal.db") as runner:
        result = await runner.run(agent, "?", context=context)
        task = await runner.create_task(agent, "?")
        await runner.run_step(task, context=context)
        async with runner.stream_step(task, context=context) as stream:
            async for _ in stream:
                pass
        await runner.finalize(task)
        await runner.fork(task)
        await runner.undo_step(task, to=0, context=context)
    assert result.tool_executions[0].output == f"user {len(SECRET)}"
    assert SECRET not in repr([(r.messages, r.instructions, r.settings) for r in agent.model.requests])
    assert SECRET.encode() not in database_bytes(tmp_path)


async def test_each_drive_takes_its_own_context(runner: Runner) -> None:
    task = await runner.create_task(asker(), "?")
    out = await runner.run_step(task, context={"secret": "abc"})
    assert out.tool_executions[0].output == "user 3"
    await runner.undo_step(task)
    result = await runner.resume(task, context={"secret": "abcde"})
    assert result.tool_executions[0].output == "user 5"


async def test_a_factory_makes_the_context_of_drives_that_are_given_none(store: Any) -> None:
    async with Runner(store, context_factory=lambda task: {"secret": "1234"}) as runner:
        result = await runner.run(asker(), "?")
        assert result.tool_executions[0].output == "user 4"
        with_context = await runner.run(asker(), "?", context={"secret": ""})
        assert with_context.tool_executions[0].output == "user 0"


async def test_instructions_of_a_function_are_worked_out_once_per_task(store: Any) -> None:
    contexts: list[Any] = []

    def instructions_of(ctx: Any) -> str:
        contexts.append((ctx.task_id, ctx.thread_id, ctx.input[0].text, ctx.context))
        return f"Version {len(contexts)}."

    agent = calculator(instructions=instructions_of)
    async with Runner(store) as runner:
        task = await runner.create_task(agent, "?", thread_id="talk")
        assert contexts == []
        await runner.run_step(task, context="c")
        assert contexts == [(task.task_id, "talk", "?", "c")]
    async with Runner(store, agents=[agent]) as runner:
        await step_to_answer(runner, task)
        (told_once,) = await only(runner, task, "instructions_set")
    assert told_once.text == "Version 1."
    assert {request.instructions for request in agent.model.requests} == {"Version 1."}
    assert len(contexts) == 1


async def test_instructions_are_worked_out_at_once_for_a_task_created_with_a_context(runner: Runner) -> None:
    agent = sayer(instructions=lambda ctx: f"Serve {ctx.context}.")
    task = await runner.create_task(agent, "?", context="Ann")
    assert task.state == "created"
    assert await kinds(runner, task) == ["task_created", "instructions_set"]
    await runner.run_step(task, context="Bob")
    assert agent.model.requests[0].instructions == "Serve Ann."


async def test_instructions_that_are_not_text_fail_the_task(runner: Runner) -> None:
    task = await runner.create_task(sayer(instructions=lambda ctx: 42), "?")
    step = await runner.run_step(task)
    assert (step.state, step.error and step.error.message) == (
        "failed",
        "the instructions function of sayer must return text, and returned 'int'",
    )
    assert (await runner.get_task(task)).driven is False


async def test_an_error_in_instructions_fails_the_task_and_a_resume_calls_them_again(runner: Runner) -> None:
    asked = 0

    def broken(ctx: Any) -> str:
        nonlocal asked
        asked += 1
        if asked == 1:
            raise LookupError("no such prompt")
        return "Be brief."

    task = await runner.create_task(sayer(instructions=broken), "?")
    failed = await runner.resume(task)
    assert failed.error is not None
    assert (failed.state, failed.error.source, failed.error.kind) == ("failed", "agent", "instructions")
    assert "LookupError: no such prompt" in failed.error.traceback
    assert (await runner.resume(task)).state == "completed"
    assert asked == 2


# -------------------------------------- which type of context a function names, and which objects are of it


if TYPE_CHECKING:
    from decimal import Decimal as OnlyForCheckers

T = TypeVar("T")
MODEL = "openai:gpt-5.4-mini"


@dataclass
class Session:
    user: str


class Admin(Session):
    pass


class Row(TypedDict):
    user: str


class Named(Protocol):
    user: str


@runtime_checkable
class Closing(Protocol):
    def close(self) -> None: ...


UserId = NewType("UserId", int)


@pytest.mark.parametrize(
    ("context", "expected", "is_fit"),
    [
        (Session("a"), Session, True),
        (Admin("a"), Session, True),
        (Session("a"), Admin, False),
        (None, Session, False),
        (3, Session, False),
        (None, Session | None, True),
        (3, None | Session, False),
        (3, Session | int, True),
        (3, Annotated[Session, "a note"], False),
        ({"user": "a"}, dict[str, str], True),
        (["a"], dict[str, str], False),
        ({"user": "a"}, Row, True),
        (3, Row, False),
        (3, UserId, True),
        ("3", UserId, False),
        (3, float, True),
        ("3", float, False),
        (3.5, int, False),
        (3, Named, True),
        (3, Closing, False),
        (3, Any, True),
        (None, Any, True),
        (None, object, True),
        (3, T, True),
        (None, None, True),
    ],
)
def test_an_object_is_of_a_type_or_not(context: Any, expected: Any, is_fit: bool):
    assert fits(context, expected) is is_fit


@pytest.mark.parametrize("expected", [Any, object, T, None, Session | None, Named])
def test_a_type_that_any_object_or_none_is_of_needs_no_check(expected: Any):
    assert not is_checkable(expected)


def plain(ctx: RunContext[Session]) -> str:
    return ""


def optional(ctx: RunContext[Session] | None) -> str:
    return ""


def bare(ctx: RunContext) -> str:
    return ""


def other(ctx: ToolContext[Session]) -> str:
    return ""


def unknown(ctx: RunContext[OnlyForCheckers]) -> str:
    return ""


class Callable_:
    def __call__(self, ctx: RunContext[Session]) -> str:
        return ""


@pytest.mark.parametrize(
    ("function", "named"),
    [
        (plain, Session),
        (optional, Session),
        (Callable_(), Session),
        (bare, None),
        (other, None),
        (unknown, None),
        (lambda ctx: "", None),
        (str, None),
    ],
)
def test_a_function_names_the_type_of_its_context(function: Callable[..., Any], named: Any):
    assert type_named_by(function, RunContext) is named


def test_a_function_may_name_a_class_of_the_function_around_it():
    class Local:
        pass

    def instructions(ctx: RunContext[Local]) -> str:
        return Local.__name__

    assert type_named_by(instructions, RunContext) is Local


def test_types_are_named_for_people():
    assert type_name(Session) == "Session"
    assert type_name(dict[str, int]) == "dict[str, int]"


# ------------------------------------------------------------------------------------------ of an agent


@tool
def name_of_user(ctx: ToolContext[Session]) -> str:
    return ctx.context.user


@tool
def late(name: str, ctx: ToolContext[Session] | None = None) -> str:
    return name


@tool
def plainly(ctx: ToolContext, name: str) -> str:
    return name


def offer(ctx: RequestContext[Session]) -> list[str]:
    return ["name_of_user"]


async def step(ctx: StepContext[Session]) -> StepResult:
    return StepResult("done", is_last=True)


def node(ctx: NodeContext[Session]) -> str:
    return ""


@pytest.mark.parametrize(
    ("arguments", "needs"),
    [
        ({}, []),
        ({"tools": [plainly]}, []),
        ({"context_type": object}, []),
        ({"context_type": Session}, [("it", Session)]),
        (
            {"tools": [name_of_user, late]},
            [("its tool 'name_of_user'", Session), ("its tool 'late'", Session)],
        ),
        ({"instructions": plain}, [("the function of its instructions", Session)]),
        ({"tools": [plainly], "offer": offer}, [("its offer=", Session)]),
        ({"worker": step}, [("its worker", Session)]),
        ({"worker": Pipeline([Node("first", node)])}, [("its node 'first'", Session)]),
    ],
)
def test_an_agent_knows_what_needs_a_context_of_which_type(arguments: Any, needs: Any):
    agent = Agent(MODEL, **arguments)
    assert [(need.source, need.type) for need in agent.context_needs] == needs
    assert agent.replace(name="other").context_needs == agent.context_needs


def test_the_type_of_a_context_is_no_part_of_the_version_of_an_agent():
    assert Agent(MODEL, context_type=Session).fingerprint == Agent(MODEL).fingerprint


def test_an_object_in_place_of_the_type_of_the_context_is_named():
    with pytest.raises(
        ConfigurationError, match=r"'agent': context_type must be a class, got an object of type Session"
    ):
        Agent(MODEL, context_type=Session("secret"))  # pyright: ignore[reportArgumentType]
