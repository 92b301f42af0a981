"""Events as lines for people."""

from treadle import Agent, Runner, ScriptedModel, StepContext, StepResult, tool
from treadle.cli.screen import Screen
from treadle.cli.timeline import Timeline
from treadle.core.events import (
    ArgumentsRewritten,
    CallReport,
    Failure,
    InputReceived,
    ModelFailed,
    ModelReturned,
    ModelStarted,
    StateChange,
    StateOverwritten,
    ToolEnded,
    ToolStarted,
)
from treadle.core.ids import undo_id
from treadle.core.labels import Label
from treadle.core.messages import Message, Text, ToolCall
from treadle.core.model import Usage
from treadle.core.observation import observation
from treadle.models import call


def test_the_result_of_an_earlier_call_is_shown_with_the_name_of_its_tool(capsys):
    timeline = Timeline(Screen(json=False))
    message = Message("assistant", (ToolCall("s1-0", "add", {"a": 1, "b": 2}),))
    timeline.learn_calls([ModelReturned("s1", message, "tool_calls", Usage())])
    timeline.show(ToolEnded("s1", "s1-0", "ok", 3))
    assert "add: 3" in capsys.readouterr().out


def test_each_request_is_shown_with_the_model_that_was_asked(capsys):
    timeline = Timeline(Screen(json=False))
    answer = Message("assistant", (Text("Hello."),))
    for event in (
        ModelStarted("s1", "a:one"),
        ModelFailed("s1", Failure("model", "overloaded", "busy", None, 503, None, "a:one"), retry_at=0),
        ModelStarted("s1", "b:two", 2),
        ModelReturned("s1", answer, "stop", Usage(1, 2)),
    ):
        timeline.show(event)
    shown = capsys.readouterr().out
    assert "a:one failed: overloaded: busy" in shown
    assert "retried with b:two (attempt 2)" in shown
    assert "b:two · 0 ms" in shown


def test_what_a_call_changed_in_the_state_stands_under_its_result(capsys):
    timeline = Timeline(Screen(json=False))
    message = Message("assistant", (ToolCall("s1-0", "put", {}), ToolCall("s1-1", "put", {})))
    timeline.learn_calls([ModelReturned("s1", message, "tool_calls", Usage())])
    timeline.show(
        ToolEnded("s1", "s1-0", "ok", "put", changes=StateChange({"n": 1, "cart": ["tea"]}, ("old",)))
    )
    timeline.show(ToolEnded("s1", "s1-1", "ok", "put", changes=StateChange({}, ("n",))))
    timeline.show(StateOverwritten("s1", "s1-1", "s1-0", ("n",)))
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if "ctx.state" in line] == [
        '    ctx.state: n=1, cart=["tea"], old removed',
        "    ctx.state: n removed",
        "  ! ctx.state: n of put (s1-0) overwritten by put (s1-1), a parallel call",
    ]


def test_a_state_of_thousands_of_keys_takes_few_lines(capsys):
    values = {f"key {number}": "x" * 1_000 for number in range(2_000)}
    Timeline(Screen(json=False)).show(ToolEnded("s1", "s1-0", "ok", "put", changes=StateChange(values)))
    assert len(capsys.readouterr().out) < 1_000


def test_what_middleware_did_stands_with_its_call(capsys):
    timeline = Timeline(Screen(json=False))
    message = Message("assistant", (ToolCall("s1-0", "pay", {"amount": 500}), ToolCall("s1-1", "look", {})))
    timeline.learn_calls([ModelReturned("s1", message, "tool_calls", Usage())])
    timeline.show(ArgumentsRewritten("s1", "s1-0", 1, {"amount": 100}, ("cap", "round")))
    timeline.show(ToolEnded("s1", "s1-1", "ok", "x", report=CallReport("cached", {"cached": {"seconds": 2}})))
    shown = capsys.readouterr().out
    assert "pay (s1-0) runs as (amount=100)" in shown
    assert "by middleware cap, round" in shown
    assert "answered by the middleware cached" in shown


def test_where_a_function_ran_stands_under_the_end_of_its_call(capsys):
    timeline = Timeline(Screen(json=False))
    for number, outcome in enumerate(("ok", "error", "unknown")):
        timeline.show(ToolStarted("s1", f"s1-{number}", host="subprocess"))
        timeline.show(ToolEnded("s1", f"s1-{number}", outcome))
    timeline.show(ToolStarted("s1", "s1-3"))
    timeline.show(ToolEnded("s1", "s1-3", "ok"))
    timeline.show(ToolStarted("s1", "s1-4", host="subprocess"))
    timeline.show(ToolEnded("s1", "s1-4", "error", report=CallReport(ran=False)))
    assert capsys.readouterr().out.count("    ran in: subprocess\n") == 3


def test_each_result_of_a_tool_that_ran_is_shown_with_its_label(capsys):
    timeline = Timeline(Screen(json=False))
    calls = ["read_mail", "clock", "fetch", "broken", "absent", "undone"]
    made = tuple([ToolCall(f"s1-{at}", name, {}) for at, name in enumerate(calls)])
    timeline.learn_calls([ModelReturned("s1", Message("assistant", made), "tool_calls", Usage())])
    for call_id in ("s1-0", "s1-2", "s1-3", "s1-5"):
        timeline.show(ToolStarted("s1", call_id))
    timeline.show(ToolStarted("s1", "s1-1", label=Label("tool:clock", "trusted")))
    timeline.show(ToolStarted("s1", undo_id("s1-5"), undoes="s1-5"))
    failure = Failure("tool", "ValueError", "no")
    for event in (
        ToolEnded("s1", "s1-0", "ok", "hello · trusted, from developer"),
        ToolEnded("s1", "s1-1", "ok", "noon"),
        ToolEnded("s1", "s1-2", "ok", "page", label=Label("web:example.org", "untrusted")),
        ToolEnded("s1", "s1-3", "error", error=failure),
        ToolEnded("s1", "s1-4", "refused", error=failure),
        ToolEnded("s1", undo_id("s1-5"), "ok", "taken back"),
        InputReceived((Text("a webhook"),), observation=True),
    ):
        timeline.show(event)
    lines = capsys.readouterr().out.splitlines()
    ends = [line for line in lines if line.startswith(("  ←", "  ✗", "    untrusted"))]
    assert [line.rpartition(" · ")[2] if " · " in line else line for line in ends] == [
        "untrusted, from tool:read_mail",
        "trusted, from tool:clock",
        "untrusted, from web:example.org",
        "untrusted, from tool:broken",
        "  ✗ absent (refused): no  s1-4",
        "  ← undone: taken back  s1-5-undo",
        "    untrusted, from observation",
    ]


def test_a_cut_result_is_shown_with_how_much_of_it_the_model_saw(capsys):
    timeline = Timeline(Screen(json=False))
    for reads_on in (False, True):
        shown = observation("x" * 9_000, call_id="s1-0", limit=1_000, reads_on=reads_on)
        timeline.show(ToolEnded("s1", "s1-0", "ok", "x" * 9_000, shown, cut=True))
    assert capsys.readouterr().out.count("the model saw 1,000 of 9,000 characters") == 2


def test_a_failed_attempt_and_a_cancel_were_told_twice_or_wrongly(treadle, project):
    attempts = []

    @tool(read_only=True, retries=1)
    def flaky() -> str:
        """Fail once."""
        attempts.append(1)
        if len(attempts) == 1:
            raise ValueError("boom")
        return "ok"

    agent = Agent(ScriptedModel([call("flaky"), "Done."]), name="clerk", tools=[flaky])
    with Runner(str(project / "tries.db")).sync as runner:
        runner.run(agent, "Go.", task_id="tried")
        runner.create_task(agent, "Go.", task_id="stopped")
        runner.cancel("stopped", reason="wrong", by="ann")
    shown = treadle("show", "tried", "--store", "tries.db").out
    assert "flaky failed in attempt 1: ValueError: boom" in shown
    assert "was stopped" not in shown
    shown = treadle("show", "stopped", "--store", "tries.db").out
    assert "cancel requested  by ann: wrong" in shown
    assert "cancelled: cancelled" not in shown


def test_a_repeated_call_of_a_function_was_shown_under_its_id(treadle, project):
    sold_out = [True]

    @tool
    def book(what: str) -> str:
        """Book."""
        if sold_out:
            raise ValueError("sold out")
        return what

    async def trip(ctx: StepContext) -> StepResult:
        return StepResult(await ctx.call_tool("book", {"what": "car"}), is_last=True)

    agent = Agent(name="trip", worker=trip, tools=[book])
    with Runner(str(project / "trips.db")).sync as runner:
        assert runner.run(agent, "Go.", task_id="trip").state == "failed"
        sold_out.clear()
        assert runner.resume("trip").state == "completed"
    shown = treadle("show", "trip", "--store", "trips.db").out
    assert "book: car  s1-c1r2" in shown
    assert "untrusted, from tool:book" in shown
