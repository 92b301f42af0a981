"""What a real collector receives over OTLP: spans and metrics, with names, attributes and parents."""

import asyncio
import os
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased, TraceIdRatioBased

from tests import forked
from tests.runner.acts import only
from tests.telemetry.collector import Collector, collecting
from treadle import Agent, Policy, Rule, Runner, ScriptedModel, ToolContext, tool
from treadle.llm.layers.fallback import Fallback
from treadle.llm.layers.retry import Retry
from treadle.llm.scripted import call, fail, text, turn
from treadle.telemetry import OpenTelemetry, TaskIds

pytestmark = pytest.mark.anyio

ERROR_OF = "error.type"


@pytest.fixture
def collector(monkeypatch):
    with collecting() as spans:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", spans.url)
        yield spans


@tool(read_only=True)
async def look(n: int) -> str:
    """Look."""
    await asyncio.sleep(0.02)
    return f"found violet {n}"


@tool(read_only=True)
async def broken(password: str) -> str:
    """Break."""
    raise OSError("the disk of mauve is full")


def worker(turns=None):
    model = ScriptedModel(
        turns
        or [
            [call("look", n=1), call("look", n=2), call("broken", password="hunter-2-hunter")],
            call("nobody", n=3),
            text("It is beige."),
        ],
        name="openai:gpt-5.4-mini",
    )
    return Agent(model, name="worker", tools=[look, broken], instructions="Be azure.")


async def observed(collector: Collector, **options):
    async with Runner("memory:", observers=[OpenTelemetry.over_otlp(**options)]) as runner:
        result = await runner.run(worker(), "What is indigo?")
    assert result.state == "completed"
    return result


async def test_a_task_is_a_trace_of_steps_models_and_tools_with_their_facts(collector):
    result = await observed(collector)
    task = collector.one("invoke_agent worker")
    assert task.parent == ""
    assert {span.trace for span in collector.spans} == {task.trace}
    assert task.attributes == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "worker",
        "gen_ai.conversation.id": result.thread_id,
        "gen_ai.usage.input_tokens": result.usage.input_tokens,
        "gen_ai.usage.output_tokens": result.usage.output_tokens,
        "treadle.task.id": result.task_id,
        "treadle.task.depth": 0,
        "treadle.task.epoch": 1,
        "treadle.task.state": "completed",
    }
    assert not task.error

    steps = collector.below(task)
    assert [(s.name, s.attributes["treadle.step.index"], s.error) for s in steps] == [
        ("step", 1, False),
        ("step", 2, False),
        ("step", 3, False),
    ]
    first, second, third = [sorted(collector.below(step), key=lambda s: s.start) for step in steps]
    assert sorted(s.name for s in first[1:]) == [
        "execute_tool broken",
        "execute_tool look",
        "execute_tool look",
    ]
    chat = first[0]
    assert chat.name == "chat gpt-5.4-mini"
    assert chat.kind == 3  # client
    assert chat.attributes == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.agent.name": "worker",
        "gen_ai.request.model": "gpt-5.4-mini",
        "gen_ai.response.finish_reasons": ["tool_calls"],
        "gen_ai.usage.input_tokens": 10,
        "gen_ai.usage.output_tokens": chat.attributes["gen_ai.usage.output_tokens"],
        "treadle.step.id": "s1",
        "treadle.attempt": 1,
        "treadle.cost": chat.attributes["treadle.cost"],  # in dollars, where the price is known
    }
    assert 0 < chat.attributes["treadle.cost"] < 0.01
    looks = [s for s in first if s.name == "execute_tool look"]
    assert {s.attributes["gen_ai.tool.call.id"] for s in looks} == {"s1-0", "s1-1"}
    assert all(s.end - s.start >= 15e6 for s in looks)
    assert all(task.start <= s.start <= s.end <= task.end for s in collector.spans)
    bad = next(s for s in first if s.name == "execute_tool broken")
    assert (bad.error, bad.attributes[ERROR_OF]) == (True, "error")
    unknown = next(s for s in second if s.name == "execute_tool nobody")
    assert (unknown.error, unknown.attributes[ERROR_OF], unknown.start) == (True, "invalid", unknown.end)
    assert [s.name for s in third] == ["chat gpt-5.4-mini"]


async def test_metrics_hold_tokens_durations_and_counts(collector):
    result = await observed(collector)
    tokens = collector.metrics["gen_ai.client.token.usage"]
    of_input = [point for point in tokens if point[0]["gen_ai.token.type"] == "input"]
    assert [(total, count) for _, total, count in of_input] == [(result.usage.input_tokens, 3)]
    assert of_input[0][0] == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-5.4-mini",
        "gen_ai.agent.name": "worker",
        "gen_ai.token.type": "input",
    }
    assert collector.metrics["gen_ai.client.operation.duration"][0][2] == 3
    assert collector.metrics["treadle.cost"][0][1] == pytest.approx(float(result.cost))
    calls = {
        (facts["gen_ai.tool.name"], facts["treadle.outcome"]): total
        for facts, total, _ in collector.metrics["treadle.tool.calls"]
    }
    # What a model made up is no name of a metric.
    assert calls == {("look", "ok"): 2, ("broken", "error"): 1, ("_OTHER", "invalid"): 1}
    (duration,) = [
        p for p in collector.metrics["treadle.tool.duration"] if p[0]["gen_ai.tool.name"] == "look"
    ]
    assert duration[2] == 2
    assert duration[1] >= 0.03
    assert [total for _, total, _ in collector.metrics["treadle.steps"]] == [3]
    assert collector.metrics["treadle.tasks"][0][0]["treadle.task.state"] == "completed"


WORDS = (b"violet", b"mauve", b"beige", b"azure", b"indigo")
PASSWORD = b"hunter-2-hunter"


async def test_content_is_exported_only_if_configured_and_secrets_never(collector):
    await observed(collector)
    assert [secret_word for secret_word in (*WORDS, PASSWORD) if secret_word in collector.raw] == []
    await observed(collector, content=True)
    assert [secret_word for secret_word in WORDS if secret_word not in collector.raw] == []
    assert PASSWORD not in collector.raw


async def test_every_attempt_of_a_request_is_a_span_and_failures_are_marked(collector):
    agent = worker([fail(503, message="down in magenta"), text("Fine.")])
    async with Runner("memory:", observers=[OpenTelemetry.over_otlp()]) as runner:
        first = await runner.run(agent, "Go.")
        assert (await runner.resume(first.task_id, agent=agent)).state == "completed"
    one, other = sorted(collector.named("chat gpt-5.4-mini"), key=lambda span: span.start)
    assert (one.error, one.attributes[ERROR_OF], one.attributes["http.response.status_code"]) == (
        True,
        first.error.kind,
        503,
    )
    assert not other.error
    assert [span.attributes["treadle.attempt"] for span in (one, other)] == [1, 2]
    failed, resumed = sorted(collector.named("invoke_agent worker"), key=lambda span: span.start)
    assert (failed.error, failed.attributes["treadle.task.state"]) == (True, "failed")
    assert not resumed.error
    assert resumed.trace != failed.trace
    assert resumed.links == [(failed.trace, failed.id)]
    assert "task_reopened" in resumed.events
    assert b"magenta" not in collector.raw


RESUMED = """
from tests.telemetry.test_otel import worker
from treadle import Runner
from treadle.telemetry import OpenTelemetry, TaskIds
with Runner("tasks.db", agents=[worker()], observers=[OpenTelemetry.over_otlp()]).sync as runner:
    assert runner.resume("task-1").state == "completed"
"""


async def test_a_task_resumed_in_another_process_is_linked_to_its_trace_there(collector, tmp_path):
    async with Runner(tmp_path / "tasks.db", observers=[OpenTelemetry.over_otlp()]) as runner:
        await runner.run_step(await runner.create_task(worker(), "Go.", task_id="task-1"))
    env = {**os.environ, "PYTHONPATH": str(Path.cwd())}
    forked.completed([sys.executable, "-c", RESUMED], cwd=tmp_path, env=env, check=True)
    drives = sorted(collector.named("invoke_agent worker"), key=lambda span: span.start)
    assert [span.attributes["treadle.task.state"] for span in drives] == ["created", "running", "completed"]
    for before, after in pairwise(drives):
        assert after.links == [(before.trace, before.id)]
    assert {span.attributes["treadle.task.id"] for span in drives} == {"task-1"}


async def test_a_drive_is_a_child_of_its_callers_span_and_user_spans_are_untouched():
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    async with Runner("memory:", observers=[OpenTelemetry(provider)]) as runner:
        with provider.get_tracer("theirs").start_as_current_span("a request") as user_span:
            await runner.run(worker(), "Go.")
        await runner.run(worker(), "Go.")
    drives = [span for span in exporter.get_finished_spans() if span.name == "invoke_agent worker"]
    assert drives[0].parent.span_id == user_span.get_span_context().span_id
    assert drives[1].parent is None
    provider.shutdown()


async def test_verdicts_are_events_of_the_drive_with_their_rules():
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    rules = [Rule("no-look", "deny", tool="look", reason="Of 'violet'."), Rule("models", "allow", model="*")]
    async with Runner("memory:", observers=[OpenTelemetry(provider)], policy=Policy(*rules)) as runner:
        await runner.run(worker([call("look", n=1), text("Done.")]), "Go.")
    (drive,) = [span for span in exporter.get_finished_spans() if span.name == "invoke_agent worker"]
    verdicts = [
        (event.name, event.attributes["treadle.verdict"], event.attributes["treadle.rule"])
        for event in drive.events
        if event.name in ("call_judged", "request_judged")
    ]
    assert verdicts == [
        ("request_judged", "allow", "models"),
        ("call_judged", "deny", "no-look"),
        ("request_judged", "allow", "models"),
    ]
    provider.shutdown()


async def test_an_interrupted_request_is_marked_and_no_span_stays_open(collector):
    model = ScriptedModel([turn("slow", delay=30)], name="openai:gpt-5.4-mini")
    observer = OpenTelemetry.over_otlp()
    async with Runner("memory:", observers=[observer]) as runner:
        handle = await runner.start(Agent(model, name="worker"), "Go.")
        async for event in handle.events():
            if event.kind == "model_started":
                break
        await handle.interrupt()
    chat = collector.one("chat gpt-5.4-mini")
    assert (chat.error, chat.attributes[ERROR_OF]) == (True, "interrupted")
    task = collector.one("invoke_agent worker")
    assert task.attributes["treadle.task.state"] == "interrupted"
    assert "interrupt_requested" in task.events
    assert collector.one("step").parent == task.id
    assert not observer._open


async def test_an_unreachable_collector_neither_fails_nor_delays_a_run(monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.2")
    async with asyncio.timeout(10):
        async with Runner("memory:", observers=[OpenTelemetry.over_otlp()]) as runner:
            assert (await runner.run(worker(), "Go.")).state == "completed"


async def test_retries_are_spans_of_one_step_with_the_wait_between(collector):
    model = ScriptedModel([fail(503), text("Fine.")], name="openai:gpt-5.4-mini")
    async with Runner("memory:", observers=[OpenTelemetry.over_otlp()]) as runner:
        result = await runner.run(Agent(Retry(model, base=0.05), name="worker"), "Go.")
    assert result.state == "completed"
    chats = sorted(collector.named("chat gpt-5.4-mini"), key=lambda span: span.start)
    assert [(s.attributes["treadle.attempt"], s.error) for s in chats] == [(1, True), (2, False)]
    assert {s.parent for s in chats} == {collector.one("step").id}
    assert chats[0].end <= chats[1].start
    counted = {facts.get(ERROR_OF): total for facts, total, _ in collector.metrics["treadle.model.calls"]}
    assert counted == {None: 1, chats[0].attributes[ERROR_OF]: 1}


async def test_a_subagents_span_is_a_child_of_its_calls_span(collector):
    finder = Agent(ScriptedModel([call("look", n=1), text("Here.")]), name="finder", tools=[look])
    boss = Agent(
        ScriptedModel([[call("finder", input="one"), call("finder", input="two")], text("Done.")]),
        name="boss",
        subagents=[finder],
    )
    async with Runner("memory:", observers=[OpenTelemetry.over_otlp()]) as runner:
        result = await runner.run(boss, "Go.")
    assert result.state == "completed"
    children = collector.named("invoke_agent finder")
    calls = {span.id: span for span in collector.named("execute_tool finder")}
    assert len(children) == len(calls) == 2
    for child in children:
        assert calls[child.parent].attributes["treadle.child.id"] == child.attributes["treadle.task.id"]
        assert child.attributes["treadle.task.depth"] == 1
    assert {span.trace for span in collector.spans} == {collector.one("invoke_agent boss").trace}


async def test_a_span_names_the_model_that_is_asked_of_several(collector):
    models = [ScriptedModel([fail(503)], name="acme:one"), ScriptedModel([text("Hello.")], name="other:two")]
    async with Runner("memory:", observers=[OpenTelemetry.over_otlp()]) as runner:
        result = await runner.run(Agent(Fallback(models), name="a"), "Hi")
    assert result.final_text == "Hello."
    first, second = collector.one("chat one"), collector.one("chat two")
    assert (first.attributes["gen_ai.provider.name"], first.attributes[ERROR_OF]) == ("acme", "overloaded")
    assert second.attributes["gen_ai.provider.name"] == "other"
    assert ERROR_OF not in second.attributes


# --------------------------------------------------------------------- spans that a tool opens itself


class Traced:
    """Spans in memory, of our observer and of the tools' own tracer; one provider for both."""

    def __init__(self, **options):
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(**options)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = self.provider.get_tracer("app")

    def spans(self, prefix):
        return [span for span in self.exporter.get_finished_spans() if span.name.startswith(prefix)]

    def tools(self):
        @tool(read_only=True)
        async def waits(n: int) -> int:
            """Open a span in the event loop."""
            with self.tracer.start_as_current_span(f"inside waits {n}"):
                await asyncio.sleep(0.001)
                with self.tracer.start_as_current_span("deep"):
                    return n

        @tool(read_only=True)
        def blocks(n: int) -> int:
            """Open a span in a thread."""
            with self.tracer.start_as_current_span(f"inside blocks {n}"):
                return n

        return [waits, blocks]

    async def run(self, *turns, **more):
        agent = Agent(ScriptedModel([*turns, text("Done.")]), name="worker", tools=self.tools(), **more)
        async with Runner("memory:", observers=[OpenTelemetry(self.provider)]) as runner:
            return await runner.run(agent, "Go")


@pytest.mark.parametrize("ids", [None, TaskIds()])
async def test_a_span_that_a_tool_opens_is_a_child_of_its_calls_span(ids):
    traced = Traced(id_generator=ids)
    calls = [call("waits", n=1), call("blocks", n=2), call("waits", n=3)]
    await traced.run(calls, call("blocks", n=4))
    by_call = {span.attributes["gen_ai.tool.call.id"]: span for span in traced.spans("execute_tool")}
    inside = {span.name.split()[-1]: span for span in traced.spans("inside")}
    for n, call_id in (("1", "s1-0"), ("2", "s1-1"), ("3", "s1-2"), ("4", "s2-0")):
        assert inside[n].parent.span_id == by_call[call_id].context.span_id, call_id
        assert inside[n].context.trace_id == by_call[call_id].context.trace_id
    assert {span.parent.span_id for span in traced.spans("deep")} <= {
        each.context.span_id for each in inside.values()
    }
    assert len({span.context.span_id for span in traced.exporter.get_finished_spans()}) == len(
        traced.exporter.get_finished_spans()
    )


async def test_all_of_it_stands_below_the_span_of_the_caller():
    traced = Traced()
    with traced.tracer.start_as_current_span("request") as request:
        await traced.run(call("waits", n=1))
        assert trace.get_current_span() is request
    spans = traced.exporter.get_finished_spans()
    assert {span.context.trace_id for span in spans} == {request.get_span_context().trace_id}
    (drive,) = traced.spans("invoke_agent")
    assert drive.parent.span_id == request.get_span_context().span_id


async def test_the_span_of_one_call_is_not_current_in_the_next_or_in_the_caller():
    traced = Traced()
    seen = []

    @tool(read_only=True)
    async def tells() -> None:
        """Tell which span is current."""
        seen.append(trace.get_current_span().get_span_context().span_id)

    agent = Agent(ScriptedModel([call("tells"), call("tells"), text("Done.")]), name="worker", tools=[tells])
    async with Runner("memory:", observers=[OpenTelemetry(traced.provider)]) as runner:
        await runner.run(agent, "Go")
    assert len(set(seen)) == 2
    assert not trace.get_current_span().get_span_context().is_valid
    assert set(seen) == {span.context.span_id for span in traced.spans("execute_tool")}


async def test_a_task_below_a_call_and_its_tools_stand_below_that_call():
    traced = Traced()
    scout = Agent(
        ScriptedModel([call("blocks", n=1), text("Seen.")]),
        name="scout",
        tools=traced.tools(),
        description="Look.",
    )
    await traced.run(call("scout", input="look"), subagents=[scout])
    spans = {span.context.span_id: span for span in traced.exporter.get_finished_spans()}
    (span,) = traced.spans("inside")
    names = []
    while span.parent is not None:
        span = spans[span.parent.span_id]
        names.append(span.name)
    wanted = [
        "execute_tool blocks",
        "step",
        "invoke_agent scout",
        "execute_tool scout",
        "step",
        "invoke_agent worker",
    ]
    assert names == wanted


@pytest.mark.parametrize("sampler", [ALWAYS_OFF, TraceIdRatioBased(0.0)])
async def test_the_spans_of_tools_are_left_out_with_a_trace_that_is_not_sampled(sampler):
    traced = Traced(sampler=ParentBased(sampler))
    await traced.run(call("waits", n=1), call("blocks", n=2))
    assert traced.exporter.get_finished_spans() == ()


async def test_an_observer_whose_enter_call_raises_hurts_no_call():
    class Hurts:
        def observe(self, notice):
            pass

        def enter_call(self, *_):
            raise RuntimeError("no")

    async with Runner("memory:", observers=[Hurts()]) as runner:
        result = await runner.run(worker(), "Go")
        assert result.state == "completed"
        assert runner.observers[0].errors > 0


async def test_a_question_ends_the_span_of_its_attempt_and_the_wait_for_the_answer_is_one(
    collector, tmp_path
):
    @tool(read_only=True)
    async def inquire(ctx: ToolContext) -> str:
        """Ask."""
        return await ctx.ask("secret words?")

    agent = Agent(ScriptedModel([call("inquire"), text("Done.")]), name="inquirer", tools=[inquire])
    async with Runner(tmp_path / "store.db", observers=[OpenTelemetry.over_otlp()]) as runner:
        task_id = (await runner.run(agent, "Go.")).task_id
        await runner.answer(task_id, value="secret answer")
        assert (await runner.resume(task_id, agent=agent)).state == "completed"
    attempts = [span for span in collector.spans if span.name == "execute_tool inquire"]
    told = {span.attributes["treadle.attempt"]: span.attributes["treadle.outcome"] for span in attempts}
    assert told == {1: "asked", 2: "ok"}
    (wait,) = [span for span in collector.spans if span.name == "wait_for_answer inquire"]
    assert wait.attributes["treadle.outcome"] == "answered"
    assert "secret" not in str([span.attributes for span in collector.spans])


async def test_a_sleep_and_work_in_the_background_end_the_span_of_their_attempt(collector):
    tickets = []

    @tool(background=True, idempotent=True)
    async def render(ctx: ToolContext):
        """Render."""
        tickets.append(ctx.ticket)
        await ctx.sleep(0.01)
        return ctx.background({"job": "secret words"})

    agent = Agent(
        ScriptedModel([call("render"), text("Begun."), text("Done.")]), name="films", tools=[render]
    )
    async with Runner("memory:", agents=[agent], observers=[OpenTelemetry.over_otlp()]) as runner:
        task_id = (await runner.run(agent, "Go.")).task_id
        await runner.complete(tickets[0], "secret film")
        assert (await runner.resume(task_id)).state == "completed"
    attempts = [span for span in collector.spans if span.name == "execute_tool render"]
    told = [span.attributes["treadle.outcome"] for span in attempts]
    assert told[:2] == ["sleeps", "deferred"]
    assert "secret" not in str([span.attributes for span in collector.spans])
    assert all(ticket not in str([span.attributes for span in collector.spans]) for ticket in tickets)


async def test_the_wait_for_a_person_is_a_span_from_question_to_answer_over_drives(collector, tmp_path):
    def pay(cents: int) -> str:
        """Pay."""
        return "paid"

    def payer():
        model = ScriptedModel([[call("pay", cents=1), call("pay", cents=2)], text("Done.")])
        return Agent(model, name="payer", tools=[tool(pay, needs_approval=True)])

    path = tmp_path / "store.db"
    async with Runner(path, observers=[OpenTelemetry.over_otlp()]) as runner:
        task_id = (await runner.run(payer(), "Pay.")).task_id
        asked = {event.call: event.time for event in await only(runner, task_id, "approval_requested")}
    await asyncio.sleep(0.05)
    async with Runner(path, observers=[OpenTelemetry.over_otlp()]) as runner:
        await runner.deny(task_id, "s1-1-ask1", reason="secret words")
        await runner.approve(task_id)
        assert (await runner.resume(task_id, agent=payer())).state == "completed"
    waits = [span for span in collector.spans if span.name == "wait_for_approval pay"]
    outcomes = {span.attributes["gen_ai.tool.call.id"]: span.attributes["treadle.outcome"] for span in waits}
    assert outcomes == {"s1-0": "given", "s1-1": "denied"}
    assert all(span.end - span.start >= 50_000_000 for span in waits), "the wait is longer than its drive"
    assert {span.start for span in waits} == {time * 1000 for time in asked.values()}
    points = {point[0]["treadle.outcome"]: point for point in collector.metrics["treadle.wait.duration"]}
    assert points.keys() == {"given", "denied"}
    assert "secret words" not in str([span.attributes for span in collector.spans])
