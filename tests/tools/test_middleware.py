"""Ready-made middleware: cached results, timed calls, redacted results."""

from typing import Any

import pytest

from tests.runner.acts import journal
from treadle import Agent, File, Runner, ScriptedModel, ToolContext, ToolInvocation, ToolOutput, tool
from treadle.core import events as e
from treadle.errors import ConfigurationError
from treadle.llm.scripted import call, turn
from treadle.tools import cached, redacted, timed

pytestmark = pytest.mark.anyio

ran: list[Any] = []


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    ran.clear()


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@tool(read_only=True)
def look(query: str) -> dict[str, str]:
    """Look something up."""
    ran.append(query)
    return {"found": query}


@tool
def save(query: str) -> str:
    """Save something."""
    ran.append(query)
    return "saved"


@tool(read_only=True)
def mine(ctx: ToolContext[Any]) -> str:
    """Return what is the user's."""
    ran.append(ctx.context)
    return f"of {ctx.context}"


def calling(*calls: Any, tools: Any) -> Agent[Any]:
    return Agent(ScriptedModel([*calls, "Done."]), name="desk", tools=tools)


async def ends(runner: Runner, agent: Agent[Any], **options: Any) -> list[e.ToolEnded]:
    result = await runner.run(agent, "Go.", **options)
    assert result.state == "completed", result.error
    return [each for each in await journal(runner, result.task_id) if isinstance(each, e.ToolEnded)]


# ------------------------------------------------------------------------------------------- cached


async def test_a_result_is_repeated_and_the_event_says_so() -> None:
    clock = Clock()
    async with Runner("memory:", middleware=[cached(ttl=60, clock=clock)]) as runner:
        agent = calling(call("look", query="x"), call("look", query="y"), tools=[look])
        await ends(runner, agent)
        clock.now = 2.5
        again = agent.replace(model=ScriptedModel([call("look", query="x"), "Done."]))
        (end,) = await ends(runner, again)
    assert ran == ["x", "y"]
    assert end.output == {"found": "x"}
    assert end.report == e.CallReport("cached", {"cached": {"seconds": 2.5}})


async def test_a_result_is_repeated_for_its_time_alone() -> None:
    clock = Clock()
    async with Runner("memory:", middleware=[cached(ttl=60, clock=clock)]) as runner:
        for clock.now in (0.0, 59.9, 60.0, 61.0):
            await ends(runner, calling(call("look", query="x"), tools=[look]))
    assert ran == ["x", "x"]


async def test_the_result_not_used_for_longest_makes_room() -> None:
    async with Runner("memory:", middleware=[cached(ttl=60, entries=2)]) as runner:
        for query in "abacab":
            await ends(runner, calling(call("look", query=query), tools=[look]))
    assert ran == ["a", "b", "c", "b"]


async def test_a_tool_that_may_write_is_never_cached() -> None:
    async with Runner("memory:", middleware=[cached(ttl=60)]) as runner:
        for _ in range(2):
            (end,) = await ends(runner, calling(call("save", query="x"), tools=[save]))
            assert end.report is None
    assert ran == ["x", "x"]


async def test_a_tool_that_takes_a_context_is_cached_only_by_what_it_depends_on() -> None:
    async with Runner("memory:", middleware=[cached(ttl=60)]) as runner:
        for user in ("ann", "ann"):
            await ends(runner, calling(call("mine"), tools=[mine]), context=user)
    assert ran == ["ann", "ann"]
    ran.clear()
    by_user = cached(ttl=60, by=lambda call: call.context.context)
    async with Runner("memory:", middleware=[by_user]) as runner:
        outputs = [
            (await ends(runner, calling(call("mine"), tools=[mine]), context=user))[0].output
            for user in ("ann", "ben", "ann", "ben")
        ]
    assert (ran, outputs) == (["ann", "ben"], ["of ann", "of ben", "of ann", "of ben"])


async def test_methods_of_two_objects_are_not_taken_for_one_tool() -> None:
    class Shelf:
        def __init__(self, name: str) -> None:
            self.name = name

        def find(self) -> str:
            """Find."""
            return self.name

    async with Runner("memory:", middleware=[cached(ttl=60)]) as runner:
        outputs = [
            (await ends(runner, calling(call("find"), tools=[tool(Shelf(name).find, read_only=True)])))[
                0
            ].output
            for name in "ab"
        ]
    assert outputs == ["a", "b"]


async def test_a_failure_is_not_cached_and_a_cached_result_cannot_be_changed() -> None:
    fails = iter([True, False, False])

    @tool(read_only=True)
    def flaky() -> list[int]:
        """Fail once."""
        if next(fails):
            raise ValueError("busy")
        return [1]

    results: list[Any] = []
    async with Runner("memory:", middleware=[cached(ttl=60)]) as runner:
        for _ in range(3):
            (end,) = await ends(runner, calling(call("flaky"), tools=[flaky]))
            results.append(end.output)
            if end.output is not None:
                end.output.append(2)
    assert results == [None, [1, 2], [1, 2]]
    assert results[1] is not results[2]


@pytest.mark.parametrize(
    "options", [{"ttl": 0}, {"ttl": -1}, {"ttl": True}, {"ttl": "x"}, {"ttl": 1, "entries": 0}]
)
def test_a_cache_without_a_time_or_a_place_is_refused(options: Any) -> None:
    with pytest.raises(ConfigurationError, match="cached: "):
        cached(**options)


# -------------------------------------------------------------------------------------------- timed


async def test_the_time_of_a_call_is_noted_and_reported_also_if_it_fails() -> None:
    clock, reports = Clock(), list[tuple[str, float]]()

    @tool
    def slow() -> None:
        """Be slow, and fail."""
        clock.now += 1.5
        raise ValueError("no")

    def report(call: ToolInvocation, seconds: float) -> None:
        reports.append((call.name, seconds))

    async with Runner("memory:", middleware=[timed(report, clock=clock)]) as runner:
        (end,) = await ends(runner, calling(call("slow"), tools=[slow]))
    assert reports == [("slow", 1.5)]
    assert (end.outcome, end.report) == ("error", e.CallReport(None, {"timed": {"seconds": 1.5}}))


# ----------------------------------------------------------------------------------------- redacted

PERSON = "ann@example.org, card 4111 1111 1111 1111, IBAN DE89 3704 0044 0532 0130 00, call +49 30 1234567"


async def test_personal_data_is_redacted_in_every_part_of_a_result() -> None:
    @tool(read_only=True)
    def person() -> ToolOutput:
        """Return a person."""
        return ToolOutput(
            {"who": [PERSON], "ann@example.org": 1},
            observation=["see", PERSON],
            display=PERSON,
            sources=[{"by": PERSON}],
            artifacts=[File(data=PERSON.encode(), name="a.txt", media_type="text/plain")],
        )

    async with Runner("memory:", middleware=[redacted("email", "card", "iban", "phone")]) as runner:
        (end,) = await ends(runner, calling(call("person"), tools=[person]))
    clean = "[redacted], card [redacted], IBAN [redacted], call [redacted]"
    assert end.output == {"who": [clean], "[redacted]": 1}
    assert (end.display, end.sources, end.artifacts[0].data) == (clean, ({"by": clean},), clean.encode())
    assert end.report == e.CallReport(None, {"redacted": 21})
    assert "ann@" not in repr(end)


async def test_errors_and_progress_are_redacted_too() -> None:
    @tool(read_only=True)
    async def person() -> Any:
        """Tell of a person."""
        yield {"to": "ann@example.org"}
        raise LookupError("no ann@example.org")

    async with Runner("memory:", middleware=[redacted("email", by="***")]) as runner:
        async with runner.run_stream(calling(call("person"), tools=[person]), "Go.") as stream:
            progress = [event.value async for event in stream if isinstance(event, e.ToolProgress)]
        (execution,) = stream.result.tool_executions
    assert progress == [{"to": "***"}]
    assert execution.error.message.startswith("LookupError: no ***")
    assert "ann@" not in repr(stream.result)


async def test_half_an_address_was_left_in_an_error_that_was_cut_before_it_was_redacted() -> None:
    @tool(read_only=True)
    def person() -> None:
        """Fail."""
        raise LookupError(f"{'. ' * 490}ann@example.org{' .' * 900}")

    async with Runner("memory:", middleware=[redacted("email", by="***")]) as runner:
        (end,) = await ends(runner, calling(call("person"), tools=[person]))
    assert end.error
    assert "characters cut" in end.error.message
    assert "ann@" not in end.error.message


async def test_an_error_without_personal_data_stays_as_it_is() -> None:
    @tool(read_only=True)
    def person() -> None:
        """Fail."""
        raise LookupError("no such person")

    async with Runner("memory:", middleware=[redacted(r"\d{3}")]) as runner:
        (end,) = await ends(runner, calling(call("person"), tools=[person]))
    assert (end.error and end.error.message, end.report) == ("LookupError: no such person", None)


def test_patterns_are_regular_expressions() -> None:
    for patterns in ((), ("(",), (7,)):
        with pytest.raises(ConfigurationError, match="redacted: "):
            redacted(*patterns)  # type: ignore[arg-type]


async def test_the_order_tells_what_the_cache_holds() -> None:
    """A cache inside of a redaction holds what is not redacted yet; one outside holds what is."""
    inside, outside = cached(ttl=60), cached(ttl=60)

    @tool(read_only=True, middleware=[outside, redacted("email"), inside])
    def person() -> str:
        """Return a person."""
        return "ann@example.org"

    async with Runner("memory:") as runner:
        script = turn(calls=[call("person")])
        (first,) = await ends(runner, calling(script, tools=[person]))
        (second,) = await ends(runner, calling(script, tools=[person]))
        order = runner.middleware_of(calling(tools=[person]))
    assert first.output == second.output == "[redacted]"
    assert second.report is not None
    assert second.report.notes.keys() == {"cached"}
    assert order == {"person": ("cached (tool)", "redacted (tool)", "cached (tool)")}
