"""Middleware around tools: its order, what it may change, and how calls end for all that it does."""

import asyncio
import json
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cast import last
from tests.runner.acts import journal, only, until
from treadle import (
    Agent,
    Allow,
    Deny,
    NextLayer,
    Policy,
    Rule,
    Runner,
    RunOptions,
    ScriptedModel,
    ToolContext,
    ToolInvocation,
    ToolOutput,
    tool,
)
from treadle.core import events as e
from treadle.core.messages import Json
from treadle.engine import in_flight
from treadle.errors import ConfigurationError
from treadle.llm.scripted import call, turn
from treadle.tools import timed

pytestmark = pytest.mark.anyio

ran: list[Any] = []


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    ran.clear()


@tool(read_only=True)
async def look(query: str = "x") -> str:
    """Look something up."""
    ran.append(query)
    return f"found {query}"


@tool
async def pay(amount: int) -> str:
    """Pay an amount."""
    ran.append(amount)
    return f"paid {amount}"


def agent_with(*tools: Any, script: Any = None, **options: Any) -> Agent[Any]:
    script = [call(tools[0].spec.name), "Done."] if script is None else script
    return Agent(ScriptedModel(list(script)), name="desk", tools=list(tools), **options)


def around(name: str, calls: list[str]) -> Any:
    async def layer(call: ToolInvocation, next: NextLayer) -> ToolOutput:
        calls.append(f"> {name}")
        try:
            return await next(call)
        finally:
            calls.append(f"< {name}")

    layer.__name__ = name
    return layer


def rewriting(**changes: Json) -> Any:
    async def rewrites(call: ToolInvocation, next: NextLayer) -> ToolOutput:
        return await next(call.with_arguments({**call.arguments, **changes}))

    return rewrites


async def only_call(runner: Runner, agent: Agent[Any], **options: Any) -> Any:
    """Run the agent, and return its one call."""
    result = await runner.run(agent, "Go.", **options)
    assert result.state == "completed", result.error
    (execution,) = result.tool_executions
    return execution


# ------------------------------------------------------------------------------------------- order


async def test_the_runner_is_outside_then_the_agent_then_the_tool() -> None:
    calls: list[str] = []
    inner = tool(look, middleware=[around("tool 1", calls), around("tool 2", calls)])
    agent = agent_with(inner, middleware=[around("agent", calls)])
    async with Runner("memory:", middleware=[around("runner", calls)]) as runner:
        assert (await only_call(runner, agent)).output == "found x"
        assert runner.middleware_of(agent) == {
            "look": ("runner (runner)", "agent (agent)", "tool 1 (tool)", "tool 2 (tool)")
        }
    names = ["runner", "agent", "tool 1", "tool 2"]
    assert calls == [f"> {name}" for name in names] + [f"< {name}" for name in reversed(names)]


async def test_a_tool_without_middleware_is_left_out_of_the_order_and_runs_as_ever() -> None:
    wrapped = tool(look, middleware=[around("own", [])])
    agent = agent_with(pay, wrapped, script=[call("pay", amount=3), "Done."])
    async with Runner("memory:") as runner:
        assert runner.middleware_of(agent) == {"look": ("own (tool)",)}
        assert (await only_call(runner, agent)).output == "paid 3"


async def test_a_middleware_sees_the_call_as_its_tool_is_told_of_it() -> None:
    seen: list[ToolInvocation] = []

    async def looks(call: ToolInvocation, next: NextLayer) -> ToolOutput:
        seen.append(call)
        return await next(call)

    agent = agent_with(look, script=[call("look", query="y"), "Done."], middleware=[looks])
    async with Runner("memory:") as runner:
        result = await runner.run(agent, "Go.", context={"user": 7})
    (one,) = seen
    assert (one.name, one.arguments, one.effect, one.attempt) == ("look", {"query": "y"}, "read", 1)
    assert (one.context.task_id, one.context.call_id) == (result.task_id, "s1-0")
    assert (one.context.context, one.key) == ({"user": 7}, one.context.idempotency_key)
    assert len(one.definition()) == 64


class Counter:
    """Counts calls."""

    def __init__(self) -> None:
        self.count = 0

    async def __call__(self, call: ToolInvocation, next: NextLayer) -> ToolOutput:
        self.count += 1
        return await next(call)


async def test_an_object_may_be_middleware() -> None:
    counter = Counter()
    async with Runner("memory:", middleware=[counter]) as runner:
        await only_call(runner, agent_with(look))
        assert runner.middleware_of(agent_with(look)) == {"look": ("Counter (runner)",)}
    assert counter.count == 1


def sync_middleware(call: Any, next: Any) -> Any:
    return next(call)


async def one_argument(call: Any) -> Any:
    return call


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (sync_middleware, "must be a list"),
        ([sync_middleware], "must hold async functions"),
        ([Counter], "must hold async functions"),
        ([one_argument], "one_argument must take two arguments"),
        ("timing", "must be a list"),
    ],
)
def test_what_is_no_middleware_is_refused_where_it_is_declared(value: Any, says: str) -> None:
    with pytest.raises(ConfigurationError, match=f"Runner: middleware.*{says}"):
        Runner("memory:", middleware=value)
    with pytest.raises(ConfigurationError, match=f"Agent 'desk': middleware.*{says}"):
        agent_with(look, middleware=value)
    with pytest.raises(ConfigurationError, match=f"tool 'look': middleware.*{says}"):
        tool(look, middleware=value)


# ----------------------------------------------------------------------------------------- results


async def test_a_rewritten_result_is_all_that_is_journalled_and_seen() -> None:
    async def redacts(call: ToolInvocation, next: NextLayer) -> ToolOutput:
        result = await next(call)
        return ToolOutput(str(result.output).replace("NL-91-4711", "[number]"))

    @tool(read_only=True)
    def account() -> str:
        """Return an account."""
        return "account NL-91-4711"

    agent = agent_with(account, middleware=[redacts])
    async with Runner("memory:") as runner:
        result = await runner.run(agent, "Go.")
        events = await journal(runner, result.task_id)
    assert result.tool_executions[0].output == "account [number]"
    assert "NL-91-4711" not in repr(events) + repr(result.messages)


async def test_a_middleware_may_answer_without_the_tool_and_the_event_says_so() -> None:
    async def answers(call: ToolInvocation, next: NextLayer) -> ToolOutput:
        return ToolOutput("from elsewhere")

    agent = agent_with(pay, script=[call("pay", amount=1), "Done."], middleware=[around("out", []), answers])
    async with Runner("memory:") as runner:
        result = await runner.run(agent, "Go.")
        (ended,) = await only(runner, result.task_id, "tool_ended")
        assert (ended.output, ended.outcome, ran) == ("from elsewhere", "ok", [])
        assert ended.report is not None
        assert ended.report.answered_by == "answers"
        # The tool did not run, so there is nothing that an undo could not take back.
        report = await runner.undo_step(result.task_id, to=0)
        assert [each.verdict for each in report.calls] == ["nothing_to_compensate"]


async def test_what_middleware_notes_stands_on_the_end_of_the_call() -> None:
    async def notes(call: ToolInvocation, next: NextLayer) -> ToolOutput:
        call.note("region", {"name": "eu"})
        return await next(call)

    async with Runner("memory:", middleware=[notes]) as runner:
        result = await runner.run(agent_with(look), "Go.")
        (ended,) = await only(runner, result.task_id, "tool_ended")
    assert ended.report == e.CallReport(None, {"region": {"name": "eu"}})
    assert ended.format == 5


async def test_a_failure_that_a_middleware_turns_into_a_result_stays_on_record() -> None:
    async def forgives(call: ToolInvocation, next: NextLayer) -> ToolOutput:
        try:
            return await next(call)
        except ValueError:
            return ToolOutput("nothing found")

    @tool(read_only=True)
    def broken() -> str:
        """Fail."""
        raise ValueError("no such index")

    async with Runner("memory:", middleware=[forgives]) as runner:
        result = await runner.run(agent_with(broken), "Go.")
        (ended,) = await only(runner, result.task_id, "tool_ended")
    assert (ended.outcome, ended.output) == ("ok", "nothing found")
    assert ended.report == e.CallReport(None, {"replaced_error": "ValueError: no such index"})


# --------------------------------------------------------------------------------------- arguments


async def test_rewritten_arguments_are_checked_and_both_versions_are_on_record() -> None:
    agent = agent_with(pay, script=[call("pay", amount=500), "Done."], middleware=[rewriting(amount=100)])
    async with Runner("memory:") as runner:
        result = await runner.run(agent, "Go.")
        events = await journal(runner, result.task_id)
    (rewritten,) = [each for each in events if isinstance(each, e.ArgumentsRewritten)]
    assert ran == [100]
    assert result.tool_executions[0].arguments == {"amount": 500}
    assert result.tool_executions[0].rewritten == {"amount": 100}
    assert (rewritten.call, rewritten.arguments, rewritten.by) == ("s1-0", {"amount": 100}, ("rewrites",))
    named = [each.kind for each in events]
    assert named.index("tool_started") < named.index("arguments_rewritten") < named.index("tool_ended")


async def test_arguments_changed_in_place_count_as_rewritten() -> None:
    async def changes(call: ToolInvocation, next: NextLayer) -> ToolOutput:
        call.arguments["amount"] = 7
        return await next(call)

    agent = agent_with(pay, script=[call("pay", amount=500), "Done."], middleware=[changes])
    async with Runner("memory:") as runner:
        assert (await only_call(runner, agent)).rewritten == {"amount": 7}
    assert ran == [7]


@pytest.mark.parametrize("amount", ["a lot", None, object(), {1: 2}])
async def test_rewritten_arguments_that_do_not_fit_never_reach_the_tool(amount: Any) -> None:
    agent = agent_with(pay, script=[call("pay", amount=500), "Done."], middleware=[rewriting(amount=amount)])
    async with Runner("memory:") as runner:
        execution = await only_call(runner, agent)
    assert (execution.outcome, ran) == ("error", [])
    assert "pay was not run: the arguments that its middleware rewrites wrote do not fit" in (
        execution.error.message
    )


async def test_the_rewritten_arguments_are_those_that_undo_is_given() -> None:
    undone: list[Any] = []

    @tool(undo=lambda call, ctx: undone.append(call.arguments))
    def move(amount: int) -> str:
        """Move an amount."""
        return "moved"

    agent = agent_with(move, script=[call("move", amount=500), "Done."], middleware=[rewriting(amount=100)])
    async with Runner("memory:") as runner:
        result = await runner.run(agent, "Go.")
        await runner.undo_step(result.task_id, to=0)
    assert undone == [{"amount": 100}]


@pytest.mark.parametrize("amount", [5, 5_000])
async def test_what_a_person_approved_runs_only_if_middleware_leaves_it_alone(amount: int) -> None:
    guarded = tool(pay, needs_approval=True)
    agent = agent_with(
        guarded, script=[call("pay", amount=5), "Done."], middleware=[rewriting(amount=amount)]
    )
    async with Runner("memory:") as runner:
        task = (await runner.run(agent, "Go.")).task_id
        await runner.approve(task, by="alice")
        result = await runner.resume(task)
    (execution,) = result.tool_executions
    assert (result.state, execution.outcome, ran) == (
        "completed",
        *(("ok", [5]) if amount == 5 else ("error", [])),
    )
    assert amount == 5 or "a person approved others (alice)" in execution.error.message


@pytest.mark.parametrize(("amount", "runs"), [(50, True), (500, False)])
async def test_a_policy_judges_rewritten_arguments_too(amount: int, runs: bool) -> None:
    def judge(request: Any) -> Any:
        return Allow() if request.arguments["amount"] <= 100 else Deny(reason="too much")

    policy = Policy(Rule("amounts", judge, tool="pay"))
    agent = agent_with(pay, script=[call("pay", amount=1), "Done."], middleware=[rewriting(amount=amount)])
    async with Runner("memory:", policy=policy) as runner:
        execution = await only_call(runner, agent)
    assert ran == ([50] if runs else [])
    if not runs:
        assert "its middleware rewrites changed its arguments, and too much" in execution.error.message


# --------------------------------------------------------------------------------- what goes wrong


async def raises_before(call: ToolInvocation, next: NextLayer) -> ToolOutput:
    raise ValueError("no connection")


async def raises_after(call: ToolInvocation, next: NextLayer) -> ToolOutput:
    await next(call)
    raise ValueError("no connection")


async def calls_twice(call: ToolInvocation, next: NextLayer) -> ToolOutput:
    await next(call)
    return await next(call)


async def returns_nothing(call: ToolInvocation, next: NextLayer) -> Any:
    await next(call)


async def passes_nothing(call: ToolInvocation, next: Any) -> ToolOutput:
    return await next(None)


async def exits_before(call: ToolInvocation, next: NextLayer) -> ToolOutput:
    raise SystemExit(2)


async def exits_after(call: ToolInvocation, next: NextLayer) -> ToolOutput:
    await next(call)
    raise SystemExit(2)


async def exits_in_a_thread(call: ToolInvocation, next: NextLayer) -> ToolOutput:
    return await asyncio.to_thread(sys.exit, 2)


@pytest.mark.parametrize(
    ("middleware", "runs", "says"),
    [
        (raises_before, 0, "ValueError: no connection\n(raised by the middleware raises_before before the tool ran)"),
        (raises_after, 1, "(raised by the middleware raises_after after the tool had run: its result is withheld)"),
        (calls_twice, 1, "the middleware calls_twice called next twice"),
        (returns_nothing, 1, "the middleware returns_nothing of tool 'pay' returned a NoneType, not a ToolOutput"),
        (passes_nothing, 0, "called next with a NoneType"),
        (exits_before, 0, "raised SystemExit: 2\n(raised by the middleware exits_before before the tool ran"),
        (exits_after, 1, "raised SystemExit: 2\n(raised by the middleware exits_after after the tool had run"),
        (exits_in_a_thread, 0, "raised SystemExit: 2\n(raised by the middleware exits_in_a_thread before the tool ran"),
    ],
)  # fmt: skip
async def test_a_middleware_that_breaks_the_rules_fails_its_call_alone(
    middleware: Any, runs: int, says: str
) -> None:
    free = tool(look, name="free")
    script = [turn(calls=[call("pay", amount=1), call("free")]), "Done."]
    agent = agent_with(tool(pay, middleware=[timed(), middleware]), free, script=script)
    async with Runner("memory:") as runner:
        result = await runner.run(agent, "Go.")
    failed, other = result.tool_executions
    assert (result.state, failed.outcome, other.outcome) == ("completed", "error", "ok")
    assert ran.count(1) == runs
    assert says in failed.error.message


async def answers_nan(call: ToolInvocation, next: NextLayer) -> ToolOutput:
    await next(call)
    return ToolOutput(float("nan"))


async def names_nan_as_a_source(call: ToolInvocation, next: NextLayer) -> ToolOutput:
    await next(call)
    return ToolOutput("found", sources=[{"score": float("nan")}])


async def notes_nan(call: ToolInvocation, next: NextLayer) -> ToolOutput:
    call.note("score", float("nan"))
    return await next(call)


async def notes_under_a_number(call: ToolInvocation, next: NextLayer) -> ToolOutput:
    call.note(17, "x")  # type: ignore[arg-type]
    return await next(call)


@pytest.mark.parametrize(
    ("middleware", "says"),
    [
        (answers_nan, "the tool's output is a number that JSON cannot hold"),
        (names_nan_as_a_source, "a source must be JSON data: it is a number that JSON cannot hold"),
        (notes_nan, "it is a number that JSON cannot hold"),
        (notes_under_a_number, "the name of a note must be a text, got 17"),
    ],
)
async def test_what_a_middleware_gives_and_no_export_can_hold_is_refused(
    tmp_path: Path, middleware: Any, says: str
) -> None:
    async with Runner(f"sqlite:///{tmp_path}/tasks.db") as runner:
        result = await runner.run(agent_with(tool(look, middleware=[middleware])), "Go.")
        await runner.export_tasks(tmp_path / "tasks.jsonl", result.task_id)
    (execution,) = result.tool_executions
    assert (execution.outcome, says in execution.error.message) == ("error", True)
    for line in (tmp_path / "tasks.jsonl").read_text().splitlines():
        json.loads(line, parse_constant=pytest.fail)


async def test_the_error_of_a_tool_passes_through_as_it_is() -> None:
    @tool
    def broken() -> str:
        """Fail."""
        raise ValueError("no such account")

    async with Runner("memory:", middleware=[around("a", []), around("b", [])]) as runner:
        execution = await only_call(runner, agent_with(broken))
    assert execution.error.message == "ValueError: no such account"


async def test_next_cannot_be_called_once_the_call_is_over() -> None:
    kept: list[Any] = []

    async def keeps(call: ToolInvocation, next: NextLayer) -> ToolOutput:
        kept.append((call, next))
        return ToolOutput("early")

    async with Runner("memory:", middleware=[keeps]) as runner:
        await only_call(runner, agent_with(look))
    ((late, next_layer),) = kept
    with pytest.raises(Exception, match="called next after its call had ended"):
        await next_layer(late)
    assert ran == []


@pytest.mark.parametrize("effect", ["write", "idempotent", "read"])
async def test_a_tool_left_running_by_a_middleware_is_stopped_and_its_outcome_is_not_taken_for_known(
    effect: str,
) -> None:
    stopped = asyncio.Event()

    async def slow() -> str:
        """Be slow."""
        try:
            await asyncio.sleep(60)
        finally:
            stopped.set()
        return "late"

    async def leaves(call: ToolInvocation, next: NextLayer) -> ToolOutput:
        running = asyncio.ensure_future(next(call))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not running.done()
        return ToolOutput("early")

    made = tool(slow, middleware=[leaves], read_only=effect == "read", idempotent=effect == "idempotent")
    async with Runner("memory:", options=RunOptions(on_unknown_outcome="tell_model")) as runner:
        execution = await only_call(runner, agent_with(made))
    assert stopped.is_set()
    assert execution.outcome == ("ok" if effect == "read" else "unknown")


@pytest.mark.parametrize("read_only", [False, True])
async def test_a_time_limit_of_a_middleware_answers_for_a_read_and_leaves_the_outcome_of_a_write_unknown(
    read_only: bool,
) -> None:
    @tool(read_only=read_only)
    async def slow() -> str:
        """Be slow."""
        await asyncio.sleep(60)
        return "late"

    async def limits(call: ToolInvocation, next: NextLayer) -> ToolOutput:
        try:
            return await asyncio.wait_for(next(call), 0.01)
        except TimeoutError:
            return ToolOutput("it took too long")

    async with Runner("memory:", middleware=[limits]) as runner:
        result = await runner.run(agent_with(slow), "Go.")
    if read_only:
        assert result.tool_executions[0].output == "it took too long"
    else:
        assert (result.state, [item.kind for item in result.pending]) == ("waiting", ["settlement"])


async def hangs_before(call: ToolInvocation, next: NextLayer) -> ToolOutput:
    await asyncio.sleep(60)
    return await next(call)


async def hangs_after(call: ToolInvocation, next: NextLayer) -> ToolOutput:
    result = await next(call)
    await asyncio.sleep(60)
    return result


@pytest.mark.parametrize(
    ("middleware", "outcome", "runs"), [(hangs_before, "error", 0), (hangs_after, "unknown", 1)]
)
async def test_the_timeout_of_the_tool_covers_a_middleware_that_hangs(
    middleware: Any, outcome: str, runs: int
) -> None:
    limited = tool(pay, timeout=0.05, middleware=[middleware])
    agent = agent_with(limited, script=[call("pay", amount=1), "Done."])
    async with Runner("memory:", options=RunOptions(on_unknown_outcome="tell_model")) as runner:
        execution = await only_call(runner, agent)
    assert (execution.outcome, len(ran)) == (outcome, runs)
    assert "took longer than 0.05 s" in execution.error.message


async def test_a_cancellation_passes_through_and_a_middleware_cannot_turn_it_into_a_result() -> None:
    entered = asyncio.Event()

    @tool
    async def slow() -> str:
        """Be slow."""
        entered.set()
        await asyncio.sleep(60)
        return "late"

    async def swallows(call: ToolInvocation, next: NextLayer) -> ToolOutput:
        try:
            return await next(call)
        except BaseException:  # noqa: BLE001  what is tested
            return ToolOutput("as if nothing had happened")

    async with Runner("memory:", middleware=[swallows]) as runner:
        handle = await runner.start(agent_with(slow), "Go.")
        await entered.wait()
        await handle.cancel()
        result = await handle.result()
    assert (result.state, result.tool_executions[0].outcome) == ("cancelled", "unknown")


async def test_a_call_interrupted_before_its_tool_was_reached_did_not_happen() -> None:
    waits = asyncio.Event()

    async def queues(call: ToolInvocation, next: NextLayer) -> ToolOutput:
        waits.set()
        await asyncio.sleep(0 if len(ran) else 60)
        return await next(call)

    agent = agent_with(pay, script=[call("pay", amount=1), "Done."], middleware=[queues])
    async with Runner("memory:", agents=[agent]) as runner:
        handle = await runner.start(agent, "Go.")
        await waits.wait()
        await handle.interrupt()
        assert (await handle.result()).state == "interrupted"
        ran.append("again")
        result = await runner.resume(handle.task_id)
    assert (result.state, ran) == ("completed", ["again", 1])


async def test_a_middleware_that_ignores_its_cancellation_is_given_up_and_starts_no_tool_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(in_flight, "GRACE", 0.02)
    monkeypatch.setattr(in_flight, "INSIST", 0.02)
    entered, ends = asyncio.Event(), asyncio.Event()
    later: list[BaseException] = []

    async def stubborn(call: ToolInvocation, next: NextLayer) -> ToolOutput:
        entered.set()
        while not ends.is_set():
            try:
                await ends.wait()
            except asyncio.CancelledError:
                continue
        try:
            return await next(call)
        except BaseException as error:
            later.append(error)
            raise

    agent = agent_with(pay, script=[call("pay", amount=1), "Done."], middleware=[stubborn])
    async with Runner("memory:") as runner:
        handle = await runner.start(agent, "Go.")
        await entered.wait()
        await handle.cancel()
        result = await handle.result()
        assert [each.name for each in runner.abandoned] == ["pay"]
        ends.set()
        await until(lambda: not runner.abandoned)
    (execution,) = result.tool_executions
    assert (result.state, execution.outcome, ran) == ("cancelled", "error", [])
    assert "did not stop, and had not called the tool" in execution.error.message
    assert [type(error) for error in later] == [asyncio.CancelledError]


class Stops(BaseException):
    """What ends an attempt without being an error."""


async def test_what_ends_an_attempt_passes_through_a_middleware_that_catches_everything() -> None:
    from treadle.agents.middleware import Layer
    from treadle.engine.middleware import Execution

    async def swallows(call: ToolInvocation, next: NextLayer) -> ToolOutput:
        try:
            return await next(call)
        except BaseException:  # noqa: BLE001  what is tested
            return ToolOutput("as if nothing had happened")

    async def asks(call: ToolInvocation, names: Any) -> ToolOutput:
        raise Stops

    ctx: ToolContext[Any] = ToolContext("t", "t", "s1", "s1-0", "key", "desk", 1, None)
    layers = [Layer(swallows, "runner"), Layer(swallows, "tool")]
    with pytest.raises(Stops):
        await Execution(layers, asks).run(ToolInvocation(look, {}, ctx, lambda: ""))


# -------------------------------------------------------------------------------- kinds of functions


@tool
def in_thread(query: str) -> str:
    """Run in a thread."""
    ran.append(threading.current_thread() is threading.main_thread())
    return query


@tool
def generator(query: str) -> Iterator[str]:
    """Yield progress."""
    yield query[:1]
    yield query


@tool
async def async_generator(query: str) -> AsyncIterator[str]:
    """Yield progress."""
    yield query[:1]
    yield query


@pytest.mark.parametrize("kind", [in_thread, generator, async_generator], ids=lambda each: each.spec.name)
async def test_every_kind_of_function_passes_through_with_its_progress(kind: Any) -> None:
    async def shouts(call: ToolInvocation, next: NextLayer) -> ToolOutput:
        return await next(call.with_progress(lambda value: str(value).upper()))

    agent = agent_with(kind, script=[call(kind.spec.name, query="abc"), "Done."], middleware=[shouts])
    async with Runner("memory:") as runner, runner.run_stream(agent, "Go.") as stream:
        progress = [event.value async for event in stream if isinstance(event, e.ToolProgress)]
        result = stream.result
    assert result.tool_executions[0].output == "abc"
    if kind is not in_thread:
        assert progress == ["A", "ABC"]
    else:
        assert ran == [False]


async def test_a_retried_call_goes_through_its_middleware_once_for_each_attempt() -> None:
    calls: list[str] = []
    fails = iter([True, False])

    @tool(read_only=True, retries=1)
    async def flaky() -> str:
        """Fail once."""
        if next(fails):
            raise ValueError("busy")
        return "ok"

    async with Runner("memory:", middleware=[around("a", calls)]) as runner:
        assert (await only_call(runner, agent_with(flaky))).output == "ok"
    assert calls == ["> a", "< a"] * 2


async def test_steps_that_are_functions_call_tools_through_middleware() -> None:
    async def step(ctx: Any) -> Any:
        return last(await ctx.call_tool("look", {"query": "z"}))

    calls: list[str] = []
    agent = agent_with(look, worker=step, script=[], middleware=[around("a", calls)])
    async with Runner("memory:") as runner:
        result = await runner.run(agent, "Go.")
    assert (result.output, calls) == ("found z", ["> a", "< a"])
