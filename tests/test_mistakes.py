"""What people try who come from other libraries, or guess, and what they are told: what is wrong and what to write.

One table: a name, what is done, the class of the error, and what its message has to say. Each message was read and
graded by hand once. `test_misuse.py` has the mistakes of people who know the names.
"""

import traceback
from collections.abc import Awaitable, Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import treadle
from tests.cast import add, calculator, sayer
from treadle import (
    Agent,
    AgentWorker,
    Breakpoint,
    FailurePolicy,
    Image,
    Limits,
    Message,
    ModelSettings,
    Node,
    Pipeline,
    RunContext,
    Runner,
    RunOptions,
    ScriptedModel,
    Text,
    ToolContext,
    tool,
)
from treadle import errors as err
from treadle.models import Fallback, OpenAI, Retry
from treadle.ports import Notice


@dataclass
class Scene:
    """What a mistake has at hand: a runner, a task that ended, its result, and a task that was only created."""

    runner: Any
    folder: Path
    result: Any
    task: Any
    patch: pytest.MonkeyPatch

    @property
    def agent(self) -> Any:
        return sayer()

    @property
    def sync(self) -> Any:
        return self.runner.sync


TABLE: list[Any] = []


def mistake(name: str, what: Callable[[Scene], Any], error: type[Exception], *says: str) -> None:
    async def done(scene: Scene) -> None:
        made = what(scene)
        if hasattr(made, "__await__"):
            await made

    TABLE.append(pytest.param(done, error, says, id=name))


def attempt(name: str, error: type[Exception], *says: str) -> Callable[[Any], Any]:
    def enter(what: Callable[[Scene], Awaitable[Any]]) -> Any:
        TABLE.append(pytest.param(what, error, says, id=name))
        return what

    return enter


# ------------------------------------------------------------------------- methods of other systems' agents

mistake(
    "agent.run", lambda s: s.agent.run("hi"), AttributeError, "Agent has no 'run'", "await runner.run(agent, "
)
mistake("agent.run_sync", lambda s: s.agent.run_sync("hi"), AttributeError, "runner.run_sync(agent, ")
mistake("agent.run_stream", lambda s: s.agent.run_stream("hi"), AttributeError, "runner.run_stream(agent, ")
mistake("agent.iter", lambda s: s.agent.iter("hi"), AttributeError, "runner.run_step(")
mistake("agent.chat", lambda s: s.agent.chat("hi"), AttributeError, "runner.run_sync(agent, ", "thread_id=")
mistake("agent.achat", lambda s: s.agent.achat("hi"), AttributeError, "await runner.run(agent, ")
mistake("agent.query", lambda s: s.agent.query("hi"), AttributeError, "runner.run_sync(agent, ")
mistake("agent.invoke", lambda s: s.agent.invoke({"messages": []}), AttributeError, "runner.run_sync(agent, ")
mistake("agent.ainvoke", lambda s: s.agent.ainvoke({}), AttributeError, "await runner.run(agent, ")
mistake("agent.stream", lambda s: s.agent.stream({}), AttributeError, "runner.run_stream(agent, ")
mistake("agent.call", lambda s: s.agent.call("hi"), AttributeError, "runner.run_sync(agent, ")
mistake("agent.tool", lambda s: s.agent.tool(len), AttributeError, "@tool", "Agent(tools=[...])")
mistake("agent.tool_plain", lambda s: s.agent.tool_plain(len), AttributeError, "Agent(tools=[...])")
mistake("agent.system_prompt", lambda s: s.agent.system_prompt(len), AttributeError, "Agent(instructions=")
mistake("agent.output_validator", lambda s: s.agent.output_validator(len), AttributeError, "output_type=")
mistake("agent.override", lambda s: s.agent.override(model="test"), AttributeError, "agent.replace(model=")
mistake("agent.clone", lambda s: s.agent.clone(name="b"), AttributeError, "agent.replace(")
mistake("agent.as_tool", lambda s: s.agent.as_tool(), AttributeError, "Agent(subagents=[agent])")
mistake(
    "agent.create_task", lambda s: s.agent.create_task("hi"), AttributeError, "runner.create_task(agent, "
)
mistake("agent.reset", lambda s: s.agent.reset(), AttributeError, "runner.delete_thread(")
mistake("agent.memory", lambda s: s.agent.memory, AttributeError, "thread_id=", "runner.get_thread(")
mistake("agent.to_web", lambda s: s.agent.to_web(), AttributeError, "treadle run")
mistake("agent.llm", lambda s: s.agent.llm, AttributeError, "agent.model")
mistake("a name misspelt on an agent", lambda s: s.agent.intructions, AttributeError, "'instructions'")
mistake("a name no system has", lambda s: s.agent.frobnicate, AttributeError, "Agent", "'frobnicate'")

# -------------------------------------------------------------------------------- arguments of an agent

_M = "openai:gpt-5.4-mini"
mistake("Agent(llm=)", lambda s: Agent(llm=_M), err.WrongArguments, "Agent has no argument 'llm'", "model=")
mistake(
    "Agent(system_prompt=)", lambda s: Agent(_M, system_prompt="Hi."), err.WrongArguments, "instructions="
)
mistake("Agent(prompt=)", lambda s: Agent(_M, prompt="Hi."), err.WrongArguments, "instructions=")
mistake("Agent(deps_type=)", lambda s: Agent(_M, deps_type=int), err.WrongArguments, "context_type=")
mistake("Agent(managed_agents=)", lambda s: Agent(_M, managed_agents=[]), err.WrongArguments, "subagents=")
mistake("Agent(result_type=)", lambda s: Agent(_M, result_type=int), err.WrongArguments, "output_type=")
mistake(
    "Agent(response_format=)", lambda s: Agent(_M, response_format=int), err.WrongArguments, "output_type="
)
mistake(
    "Agent(retries=)", lambda s: Agent(_M, retries=3), err.WrongArguments, "output_retries=", "@tool(retries="
)
mistake("Agent(max_steps=)", lambda s: Agent(_M, max_steps=3), err.WrongArguments, "limits=Limits(steps=")
mistake(
    "Agent(max_iterations=)",
    lambda s: Agent(_M, max_iterations=3),
    err.WrongArguments,
    "limits=Limits(steps=",
)
mistake("Agent(memory=)", lambda s: Agent(_M, memory=[]), err.WrongArguments, "thread_id=")
mistake(
    "Agent(verbose=)", lambda s: Agent(_M, verbose=True), err.WrongArguments, "Runner(observers=['console'])"
)
mistake(
    "Agent(temperature=)",
    lambda s: Agent(_M, temperature=0),
    err.WrongArguments,
    "ModelSettings(temperature=",
)
mistake("Agent(toolsets=)", lambda s: Agent(_M, toolsets=[]), err.WrongArguments, "tools=")
mistake(
    "treadle.langchain_tools", lambda s: treadle.langchain_tools, AttributeError, "from treadle.tools import"
)
mistake("Agent(mcp_servers=)", lambda s: Agent(_M, mcp_servers=[]), err.WrongArguments, "tools=", "@tool")
mistake(
    "Agent(input_guardrails=)", lambda s: Agent(_M, input_guardrails=[]), err.WrongArguments, "guardrails"
)
mistake(
    "Agent(context=)", lambda s: Agent(_M, context=3), err.WrongArguments, "runner.run(agent, input, context="
)
mistake("Agent(checkpointer=)", lambda s: Agent(_M, checkpointer=3), err.WrongArguments, "Runner(store")
mistake(
    "Agent(name, instructions)",
    lambda s: Agent(_M, "Be nice."),
    err.WrongArguments,
    "'Be nice.' is one too many by position",
    "instructions=",
)
mistake("Agent(tool=)", lambda s: Agent(_M, tool=add), err.WrongArguments, "tools=")
mistake(
    "a name with a space",
    lambda s: sayer(name="Math Tutor"),
    err.ConfigurationError,
    "'Math Tutor'",
    "letters",
)
mistake(
    "a model class", lambda s: Agent(treadle.models.OpenAI), err.ConfigurationError, "model must be", "class"
)
mistake("a list of models", lambda s: Agent([_M, _M]), err.ConfigurationError, "Fallback(")
mistake(
    "instructions as a list", lambda s: Agent(_M, instructions=["a", "b"]), err.ConfigurationError, "text"
)
mistake(
    "settings as a dict",
    lambda s: Agent(_M, model_settings={"temperature": 0}),
    err.ConfigurationError,
    "ModelSettings(",
)
mistake("worker misspelt", lambda s: Agent(_M, worker="ReAct"), err.ConfigurationError, "'react'")
mistake(
    "subagents of functions",
    lambda s: Agent(_M, subagents=[add]),
    err.ConfigurationError,
    "subagents[0]",
    "tools=",
)
mistake(
    "an agent among the tools",
    lambda s: Agent(_M, tools=[sayer()]),
    err.ConfigurationError,
    "tools[0]",
    "subagents=",
)
mistake(
    "the result of a call as a tool",
    lambda s: Agent(_M, tools=["5"]),
    err.ConfigurationError,
    "tools[0]",
    "'5'",
    "without calling it",
)
mistake(
    "None as a tool",
    lambda s: Agent(_M, tools=[None]),
    err.ConfigurationError,
    "tools[0]",
    "None",
    "without calling it",
)


@attempt("a coroutine as a tool", err.ConfigurationError, "tools[0]", "without calling it")
async def _(s: Scene) -> None:
    with closing(add(1, 2)) as called:
        Agent(_M, tools=[called])


mistake(
    "a class as a tool", lambda s: Agent(_M, tools=[dict]), err.ConfigurationError, "tools[0]", "class 'dict'"
)
mistake(
    "tools by name", lambda s: Agent(_M, tools={"add": add}), err.ConfigurationError, "tools must be a list"
)
mistake(
    "a schema as a tool",
    lambda s: Agent(_M, tools=[{"type": "function"}]),
    err.ConfigurationError,
    "tools[0]",
    "@tool",
)
mistake(
    "a list of types",
    lambda s: sayer(output_type=[int, str]),
    err.ConfigurationError,
    "output_type",
    "int | str",
)
mistake(
    "a type by name",
    lambda s: sayer(output_type="City"),
    err.ConfigurationError,
    "output_type",
    "City",
    "type itself",
)
mistake(
    "an instance as a type",
    lambda s: sayer(output_type=Text("x")),
    err.ConfigurationError,
    "output_type",
    "type",
)
mistake(
    "a schema as a type",
    lambda s: sayer(output_type={"type": "object"}),
    err.ConfigurationError,
    "output_type",
    "type",
)
mistake(
    "an output mode of JSON", lambda s: sayer(output_mode="json"), err.ConfigurationError, "native", "'json'"
)

# ------------------------------------------------------------------------------------ import statements

mistake(
    "importing function_tool",
    lambda s: _imports("function_tool"),
    ImportError,
    "treadle has no 'function_tool'",
    "tool",
)
mistake("importing AgentRunner", lambda s: _imports("AgentRunner"), ImportError, "Runner")
mistake("importing UsageLimits", lambda s: _imports("UsageLimits"), ImportError, "Limits")
mistake("importing ModelRetry", lambda s: _imports("ModelRetry"), ImportError, "ToolError")
mistake("importing a name misspelt", lambda s: _imports("RunOption"), ImportError, "'RunOptions'")
mistake("treadle.Memory", lambda s: treadle.Memory, AttributeError, "thread_id=")


def _imports(name: str) -> None:
    exec(f"from treadle import {name}")


# -------------------------------------------------------------------------------------------- a runner

mistake("Runner(agent)", lambda s: Runner(s.agent), err.ConfigurationError, "Runner(agents=[agent])")
mistake("Runner(agent=)", lambda s: Runner(agent=s.agent), err.WrongArguments, "agents=")
mistake(
    "Runner(max_steps=)", lambda s: Runner(max_steps=3), err.WrongArguments, "RunOptions(limits=Limits(steps="
)
mistake("Runner(checkpointer=)", lambda s: Runner(checkpointer="x"), err.WrongArguments, "store")
mistake("Runner(db_url=)", lambda s: Runner(db_url="x"), err.WrongArguments, "store")
mistake("Runner(callbacks=)", lambda s: Runner(callbacks=[]), err.WrongArguments, "observers=")
mistake(
    "Runner(telemetry=)", lambda s: Runner(telemetry="console"), err.WrongArguments, "observers=['console']"
)
mistake("Runner(context=)", lambda s: Runner(context=3), err.WrongArguments, "context_factory=")
mistake(
    "Runner(limits=)", lambda s: Runner(limits=Limits()), err.WrongArguments, "options=RunOptions(limits="
)
mistake("Runner(memory=)", lambda s: Runner(memory=[]), err.WrongArguments, "thread_id=")
mistake(
    "runner.invoke",
    lambda s: s.runner.invoke("hi"),
    AttributeError,
    "Runner has no 'invoke'",
    "runner.run_sync(",
)
mistake("runner.ainvoke", lambda s: s.runner.ainvoke("hi"), AttributeError, "await runner.run(")
mistake("runner.chat", lambda s: s.runner.chat("hi"), AttributeError, "run_sync(", "thread_id=")
mistake("runner.achat", lambda s: s.runner.achat("hi"), AttributeError, "await runner.run(")
mistake("runner.stream", lambda s: s.runner.stream("hi"), AttributeError, "run_stream(")
mistake("runner.run_streamed", lambda s: s.runner.run_streamed(s.agent, "hi"), AttributeError, "run_stream(")
mistake(
    "runner.finalize_response", lambda s: s.runner.finalize_response("x"), AttributeError, "finalize(task)"
)
mistake("runner.arun_step", lambda s: s.runner.arun_step("x"), AttributeError, "await runner.run_step(task)")
mistake(
    "runner.run_steps_in_queue", lambda s: s.runner.run_steps_in_queue("x"), AttributeError, "run_ready_steps"
)
mistake(
    "runner.get_completed_tasks",
    lambda s: s.runner.get_completed_tasks(),
    AttributeError,
    "list_tasks(state=",
)
mistake("runner.get_task_output", lambda s: s.runner.get_task_output("x"), AttributeError, "result(task)")
mistake("runner.run_handle", lambda s: s.runner.run_handle("x"), AttributeError, "start(agent, ")
mistake("runner.acall", lambda s: s.runner.acall(prompt_kwargs={}), AttributeError, "await runner.run(")
mistake("runner.get_state", lambda s: s.runner.get_state({}), AttributeError, "get_task(task)")
mistake("runner.update_state", lambda s: s.runner.update_state({}), AttributeError, "fork(", "edit_call")
mistake(
    "runner.get_state_history",
    lambda s: s.runner.get_state_history({}),
    AttributeError,
    "get_completed_steps",
)
mistake(
    "runner.close", lambda s: s.runner.close(), AttributeError, "await runner.aclose()", "runner.sync.close()"
)
mistake("runner.sync.aclose", lambda s: s.sync.aclose(), AttributeError, "runner.sync.close()")
mistake("runner.undo", lambda s: s.runner.undo("x"), AttributeError, "undo_step(task)")
mistake("runner.wait", lambda s: s.runner.wait("x"), AttributeError, "handle(task).result()")
mistake("runner.is_cancelled", lambda s: s.runner.is_cancelled(), AttributeError, "result.state")
mistake(
    "runner.register_cancel_callback",
    lambda s: s.runner.register_cancel_callback(print),
    AttributeError,
    "observers=",
)
mistake(
    "runner.set_permission_manager",
    lambda s: s.runner.set_permission_manager(None),
    AttributeError,
    "@tool(needs_approval=True)",
)
mistake(
    "runner.sync.chat",
    lambda s: s.sync.chat("hi"),
    AttributeError,
    "runner.sync has no 'chat'",
    "runner.sync.run(agent, ",
)
mistake(
    "runner.sync.run_sync",
    lambda s: s.sync.run_sync(s.agent, "hi"),
    AttributeError,
    "runner.sync.run(agent, ",
)
mistake("a verb misspelt", lambda s: s.runner.creat_task(s.agent, "hi"), AttributeError, "'create_task'")
mistake(
    "with runner",
    lambda s: _enters(s.runner),
    err.MisusedVerb,
    "Runner has no plain `with`",
    "async with",
    "with runner.sync",
)
mistake(
    "run_sync on the class", lambda s: Runner.run_sync(s.agent, "hi"), err.MisusedVerb, "Runner().run_sync("
)


def _enters(manager: Any) -> None:
    with manager:
        pass


# --------------------------------------------------------------------------------- arguments of a verb

mistake(
    "run(max_turns=)",
    lambda s: s.runner.run(s.agent, "?", max_turns=3),
    err.WrongArguments,
    "run has no argument 'max_turns'",
    "options=RunOptions(limits=Limits(steps=",
)
mistake(
    "sync.run(max_turns=)",
    lambda s: s.sync.run(s.agent, "?", max_turns=3),
    err.WrongArguments,
    "run has no argument 'max_turns'",
    "options=RunOptions(limits=Limits(steps=",
)
mistake(
    "run_sync(max_turns=)",
    lambda s: s.runner.run_sync(s.agent, "?", max_turns=3),
    err.WrongArguments,
    "run_sync has no argument 'max_turns'",
    "Limits(steps=",
)
mistake(
    "run_stream(max_turns=)",
    lambda s: s.runner.run_stream(s.agent, "?", max_turns=3),
    err.WrongArguments,
    "Limits(steps=",
)
mistake("run(deps=)", lambda s: s.runner.run(s.agent, "?", deps=3), err.WrongArguments, "context=")
mistake("run(ctx=)", lambda s: s.runner.run(s.agent, "?", ctx=3), err.WrongArguments, "context=")
mistake(
    "run(usage_limits=)", lambda s: s.runner.run(s.agent, "?", usage_limits=3), err.WrongArguments, "Limits("
)
mistake(
    "run(message_history=)",
    lambda s: s.runner.run(s.agent, "?", message_history=[]),
    err.WrongArguments,
    "thread_id=",
    "import_thread",
)
mistake(
    "run(chat_history=)",
    lambda s: s.runner.run(s.agent, "?", chat_history=[]),
    err.WrongArguments,
    "thread_id=",
)
mistake("run(session=)", lambda s: s.runner.run(s.agent, "?", session="x"), err.WrongArguments, "thread_id=")
mistake(
    "run(session_id=)", lambda s: s.runner.run(s.agent, "?", session_id="x"), err.WrongArguments, "thread_id="
)
mistake(
    "run(config=)",
    lambda s: s.runner.run(s.agent, "?", config={}),
    err.WrongArguments,
    "thread_id=",
    "options=",
)
mistake(
    "run(run_config=)",
    lambda s: s.runner.run(s.agent, "?", run_config={}),
    err.WrongArguments,
    "options=RunOptions(",
)
mistake(
    "run(model=)", lambda s: s.runner.run(s.agent, "?", model=_M), err.WrongArguments, "agent.replace(model="
)
mistake("run(stream=)", lambda s: s.runner.run(s.agent, "?", stream=True), err.WrongArguments, "run_stream")
mistake("run(hooks=)", lambda s: s.runner.run(s.agent, "?", hooks=3), err.WrongArguments, "observers=")
mistake(
    "run(labels=)",
    lambda s: s.runner.run(s.agent, "?", labels={}),
    err.WrongArguments,
    "options=RunOptions(labels=",
)
mistake(
    "run(limits=)",
    lambda s: s.runner.run(s.agent, "?", limits=3),
    err.WrongArguments,
    "options=RunOptions(limits=",
)
mistake(
    "run(timeout=)", lambda s: s.runner.run(s.agent, "?", timeout=3), err.WrongArguments, "Limits(seconds="
)
mistake(
    "run(output_type=)",
    lambda s: s.runner.run(s.agent, "?", output_type=int),
    err.WrongArguments,
    "agent.replace(output_type=",
)
mistake("run(user_prompt=)", lambda s: s.runner.run(s.agent, user_prompt="?"), err.WrongArguments, "input=")
mistake("run(message=)", lambda s: s.runner.run(s.agent, message="?"), err.WrongArguments, "input=")
mistake("run(id=)", lambda s: s.runner.run(s.agent, "?", id="x"), err.WrongArguments, "task_id=")
mistake(
    "run(thred_id=)", lambda s: s.runner.run(s.agent, "?", thred_id="x"), err.WrongArguments, "'thread_id'"
)
mistake(
    "run without an input",
    lambda s: s.runner.run(s.agent),
    err.WrongArguments,
    "run needs input",
    "runner.run(agent, input",
)
mistake("sync.run without an input", lambda s: s.sync.run(s.agent), err.WrongArguments, "run needs input")
mistake(
    "run with only text",
    lambda s: s.runner.run("hi"),
    err.ConfigurationError,
    "must be an Agent",
    "run(agent, input)",
)
mistake(
    "run with both swapped",
    lambda s: s.runner.run("hi", s.agent),
    err.ConfigurationError,
    "must be an Agent, got 'hi'",
    "the agent comes first",
)
mistake(
    "run with a third argument",
    lambda s: s.runner.run(s.agent, "hi", "talk"),
    err.WrongArguments,
    "'talk'",
    "one too many by position",
    "thread_id=",
)
mistake("run with a class", lambda s: s.runner.run(Agent, "hi"), err.ConfigurationError, "Agent", "class")
mistake(
    "run with role messages",
    lambda s: s.runner.run(s.agent, [{"role": "user", "content": "hi"}]),
    err.ConfigurationError,
    "input",
    "text",
    "import_thread",
)


@attempt("run with a coroutine as input", err.ConfigurationError, "input", "await")
async def _(s: Scene) -> None:
    with closing(s.runner.run(s.agent, "hi")) as called:
        await s.runner.run(s.agent, called)


mistake(
    "run with a result as input",
    lambda s: s.runner.run(s.agent, s.result),
    err.ConfigurationError,
    "input",
    "final_text",
)
mistake(
    "resume with an agent", lambda s: s.runner.resume(s.agent), err.ConfigurationError, "a Task or its id"
)
mistake(
    "resume with an agent second",
    lambda s: s.runner.resume(s.task, s.agent),
    err.WrongArguments,
    "by name",
    "agent=",
)
mistake(
    "undo with a number second", lambda s: s.runner.undo_step(s.task, 1), err.WrongArguments, "by name", "to="
)
mistake("fork with a number second", lambda s: s.runner.fork(s.task, 3), err.WrongArguments, "by name", "at=")
mistake(
    "a step of an agent",
    lambda s: s.runner.run_step(s.agent, "hi"),
    err.ConfigurationError,
    "Task or its id",
    "create_task(agent, input)",
)
mistake(
    "a task that was not awaited",
    lambda s: s.runner.run_step(s.runner.create_task(s.agent, "hi")),
    err.MisusedVerb,
    "await runner.create_task(",
)
mistake(
    "a handle as a task",
    lambda s: s.runner.run_step(s.runner.handle("x")),
    err.ConfigurationError,
    "RunHandle",
    "task_id",
)
mistake(
    "a list of tasks as a task",
    lambda s: s.runner.get_task([s.task]),
    err.ConfigurationError,
    "Task or its id",
)
mistake(
    "send with both swapped",
    lambda s: s.runner.send("hello", s.task),
    err.ConfigurationError,
    "the task comes first",
)
mistake(
    "settle with True", lambda s: s.runner.settle(s.task, "s1-0", True), err.ConfigurationError, "Happened("
)
mistake(
    "a task by its thread", lambda s: s.runner.get_task(s.result.thread_id), err.TaskNotFound, "is a thread"
)
mistake(
    "a thread by its task",
    lambda s: s.runner.get_thread(s.result.task_id),
    err.ThreadNotFound,
    "is a task",
    "thread",
)
mistake(
    "create_task(limits=)",
    lambda s: s.runner.create_task(s.agent, "?", limits=3),
    err.WrongArguments,
    "options=RunOptions(limits=",
)
mistake("list_tasks(status=)", lambda s: s.runner.list_tasks(status="failed"), err.WrongArguments, "state=")
mistake("prune(days=)", lambda s: s.runner.prune(days=3), err.WrongArguments, "older_than", "timedelta")
mistake(
    "handle.result(timeout=)",
    lambda s: s.runner.handle(s.task).result(timeout=3),
    err.WrongArguments,
    "result has no argument 'timeout'",
    "asyncio.timeout(",
)
mistake("handle.stop", lambda s: s.runner.handle(s.task).stop(), AttributeError, "cancel()")
mistake(
    "handle.await_result",
    lambda s: s.runner.handle(s.task).await_result(),
    AttributeError,
    "await handle.result()",
)
mistake("handle.status", lambda s: s.runner.handle(s.task).status, AttributeError, "runner.get_task(")

# ------------------------------------------------------------------------------- await, with and for

mistake(
    "run_step without await",
    lambda s: s.runner.run_step(s.task).output,
    err.MisusedVerb,
    "await runner.run_step(",
)
mistake(
    "start without await",
    lambda s: s.runner.start(s.agent, "?").task_id,
    err.MisusedVerb,
    "await runner.start(",
)
mistake(
    "a result of a handle without await",
    lambda s: s.runner.handle(s.task).result().output,
    err.MisusedVerb,
    "await handle.result(",
)
mistake(
    "a task without await in a condition",
    lambda s: s.runner.list_tasks()["x"],
    err.MisusedVerb,
    "await runner.list_tasks(",
)
mistake(
    "awaiting a stream",
    lambda s: s.runner.run_stream(s.agent, "?"),
    err.MisusedVerb,
    "async with",
    "run_stream",
)


@attempt("async with run", err.MisusedVerb, "run_stream", "await runner.run(")
async def _(s: Scene) -> None:
    async with s.runner.run(s.agent, "?"):
        pass


@attempt("with a stream", err.MisusedVerb, "async with", "runner.sync.run_stream(")
async def _(s: Scene) -> None:
    with s.runner.run_stream(s.agent, "?"):
        pass


@attempt("for over a stream", err.MisusedVerb, "async for", "runner.sync.run_stream(")
async def _(s: Scene) -> None:
    for _ in s.runner.run_stream(s.agent, "?"):
        pass


@attempt("async for over a sync stream", err.MisusedVerb, "for event in", "runner.run_stream(")
async def _(s: Scene) -> None:
    async for _ in s.sync.run_stream(s.agent, "?"):
        pass


@attempt("async with runner.sync", err.MisusedVerb, "with runner.sync", "async with runner")
async def _(s: Scene) -> None:
    async with s.sync:
        pass


@attempt("for over events of a handle", err.MisusedVerb, "async for", "runner.sync.handle(")
async def _(s: Scene) -> None:
    for _ in s.runner.handle(s.result.task_id).events():
        pass


@attempt("a stream that is not opened", err.TaskUnfinished, "async with")
async def _(s: Scene) -> None:
    async for _ in s.runner.run_stream(s.agent, "?"):
        pass


@attempt("the output of a stream that was not opened", err.TaskUnfinished, "async with")
async def _(s: Scene) -> None:
    _ = s.runner.run_stream(s.agent, "?").result


@attempt("stream_text of a stream", AttributeError, "stream.partials()")
async def _(s: Scene) -> None:
    async with s.runner.run_stream(s.agent, "?") as stream:
        stream.stream_text()


@attempt("stream_events of a stream", AttributeError, "async for event in stream")
async def _(s: Scene) -> None:
    async with s.runner.run_stream(s.agent, "?") as stream:
        stream.stream_events()


@attempt("the result attributes of a stream", AttributeError, "stream.result")
async def _(s: Scene) -> None:
    async with s.runner.run_stream(s.agent, "?") as stream:
        _ = stream.final_output


# --------------------------------------------------------------------------------------------- results

mistake(
    "result.final_output",
    lambda s: s.result.final_output,
    AttributeError,
    "RunResult has no 'final_output'",
    "result.output",
    "result.final_text",
)
mistake("task.pending", lambda s: s.task.pending, AttributeError, "(await runner.result(task)).pending")
mistake("result.data", lambda s: s.result.data, AttributeError, "result.output")
mistake("result.text", lambda s: s.result.text, AttributeError, "result.final_text")
mistake("result.content", lambda s: s.result.content, AttributeError, "result.final_text")
mistake("result.response", lambda s: s.result.response, AttributeError, "result.final_text")
mistake(
    "result.all_messages", lambda s: s.result.all_messages(), AttributeError, "result.messages", "get_thread("
)
mistake("result.new_messages", lambda s: s.result.new_messages(), AttributeError, "result.messages")
mistake("result.to_input_list", lambda s: s.result.to_input_list(), AttributeError, "thread_id=")
mistake("result.new_items", lambda s: s.result.new_items, AttributeError, "result.messages")
mistake("result.last_agent", lambda s: s.result.last_agent, AttributeError, "subagent_executions")
mistake("result.interruptions", lambda s: s.result.interruptions, AttributeError, "result.pending")
mistake("result.step_history", lambda s: s.result.step_history, AttributeError, "get_completed_steps(")
mistake("result.run_id", lambda s: s.result.run_id, AttributeError, "result.task_id")
mistake("result.status", lambda s: s.result.status, AttributeError, "result.state")
mistake("result.success", lambda s: s.result.success, AttributeError, "result.state")
mistake("result.tool_calls", lambda s: s.result.tool_calls, AttributeError, "result.tool_executions")
mistake("result.source_nodes", lambda s: s.result.source_nodes, AttributeError, "result.sources")
mistake("result.usage_aggregate", lambda s: s.result.usage_aggregate, AttributeError, "result.usage")
mistake("result['messages']", lambda s: s.result["messages"], TypeError, ".messages")
mistake(
    "result.model_dump",
    lambda s: s.result.model_dump(),
    AttributeError,
    "RunResult has no 'model_dump'",
    "dataclasses.asdict(result)",
)
mistake("task.id", lambda s: s.task.id, AttributeError, "task.task_id")
mistake("task.status", lambda s: s.task.status, AttributeError, "task.state")
mistake("task.output", lambda s: s.task.output, AttributeError, "runner.result(task)")
mistake("task.run", lambda s: s.task.run(), AttributeError, "runner.resume(task)", "runner.run_step(task)")
mistake("usage.total", lambda s: s.result.usage.total, AttributeError, "total_tokens")
mistake("usage.prompt_tokens", lambda s: s.result.usage.prompt_tokens, AttributeError, "input_tokens")
mistake("usage.requests", lambda s: s.result.usage.requests, AttributeError, "model_calls")
mistake("execution.tool_name", lambda s: s.result.tool_executions[0].tool_name, AttributeError, ".name")
mistake("execution.success", lambda s: s.result.tool_executions[0].success, AttributeError, "outcome == 'ok'")
mistake("execution.result", lambda s: s.result.tool_executions[0].result, AttributeError, ".output")
mistake(
    "execution.latency_ms",
    lambda s: s.result.tool_executions[0].latency_ms,
    AttributeError,
    ".latency",
    "seconds",
)
mistake(
    "message.content", lambda s: s.result.messages[0].content, AttributeError, "message.text", "message.parts"
)
mistake("message['role']", lambda s: s.result.messages[0]["role"], TypeError, ".role")


@attempt("out.response of a step", AttributeError, "out.output")
async def _(s: Scene) -> None:
    _ = (await s.runner.run_step(s.task)).response


@attempt("out.done of a step", AttributeError, "is_last")
async def _(s: Scene) -> None:
    _ = (await s.runner.run_step(s.task)).done


# --------------------------------------------------------------------------------------------- contexts


def _tool_context() -> Any:
    return ToolContext("t", "th", "s1", "s1-0", "key", "agent", 1, None)


mistake(
    "ctx.deps in a tool",
    lambda s: _tool_context().deps,
    AttributeError,
    "ToolContext has no 'deps'",
    "ctx.context",
)
mistake("ctx.run_id in a tool", lambda s: _tool_context().run_id, AttributeError, "ctx.task_id")
mistake("ctx.tool_call_id in a tool", lambda s: _tool_context().tool_call_id, AttributeError, "ctx.call_id")
mistake(
    "ctx.report_progress in a tool",
    lambda s: _tool_context().report_progress(1),
    AttributeError,
    "ctx.progress(",
)
mistake("ctx.retry in a tool", lambda s: _tool_context().retry, AttributeError, "ctx.attempt")
mistake(
    "ctx.deps in instructions",
    lambda s: s.runner.run_sync(sayer(instructions=lambda ctx: ctx.deps), "?").raise_for_state(),
    err.TaskFailed,
    "RunContext has no 'deps'",
    "ctx.context",
)

# ----------------------------------------------------------------------------------------------- tools


def plain(x: int) -> int:
    """Return x."""
    return x


mistake("@tool('name')", lambda s: tool("search"), err.ToolDefinitionError, "'search'", "name=")
mistake("@tool of a class", lambda s: tool(dict), err.ToolDefinitionError, "class dict")
mistake(
    "@tool of a result",
    lambda s: tool(plain(3)),
    err.ToolDefinitionError,
    "int",
    "type int",
    "without calling it",
)
mistake("@tool(strict=)", lambda s: tool(strict=True)(plain), err.ToolDefinitionError, "'plain'", "strict")
mistake("@tool(name_override=)", lambda s: tool(name_override="x")(plain), err.ToolDefinitionError, "name=")
mistake(
    "@tool(requires_approval=)",
    lambda s: tool(requires_approval=True)(plain),
    err.ToolDefinitionError,
    "write needs_approval=True",
)
mistake("@tool(args_schema=)", lambda s: tool(args_schema=dict)(plain), err.ToolDefinitionError, "annotat")
mistake("@tool(max_retries=)", lambda s: tool(max_retries=2)(plain), err.ToolDefinitionError, "retries=")
mistake(
    "@tool(description=3)",
    lambda s: tool(description=3)(plain),
    err.ToolDefinitionError,
    "description",
    "text",
)
mistake(
    "@tool(timeout='5s')", lambda s: tool(timeout="5s")(plain), err.ToolDefinitionError, "timeout", "seconds"
)
mistake(
    "@tool with *args",
    lambda s: tool(lambda *args: 1, name="x"),
    err.ToolDefinitionError,
    "'*args'",
    "one by one",
)
mistake(
    "@tool with RunContext",
    lambda s: tool(_wants_run_context),
    err.ToolDefinitionError,
    "'ctx'",
    "ToolContext",
)
mistake(
    "@tool with a class of one's own",
    lambda s: tool(_wants_socket),
    err.ToolDefinitionError,
    "'where'",
    "_Socket",
    "ToolContext.context",
)
mistake("@tool of a static method", lambda s: tool(staticmethod(print)), err.ToolDefinitionError, "print")
mistake(
    "tool.invoke",
    lambda s: add.invoke({"a": 1}),
    AttributeError,
    "tool has no 'invoke'",
    "call the function itself",
)
mistake("tool.description", lambda s: add.description, AttributeError, ".spec.description")
mistake("tool.args_schema", lambda s: add.args_schema, AttributeError, ".spec.parameters")


def _wants_run_context(ctx: RunContext[int], a: int) -> int:
    return a


class _Socket:
    pass


def _wants_socket(where: _Socket) -> int:
    return 1


# ----------------------------------------------------------------------------------- limits and options

mistake(
    "Limits(max_steps=)",
    lambda s: Limits(max_steps=3),
    err.WrongArguments,
    "Limits has no argument 'max_steps'",
    "steps=",
)
mistake("Limits(turns=)", lambda s: Limits(turns=3), err.WrongArguments, "steps=")
mistake("Limits(timeout=)", lambda s: Limits(timeout=3), err.WrongArguments, "seconds=")
mistake("Limits(max_tokens=)", lambda s: Limits(max_tokens=3), err.WrongArguments, "tokens=")
mistake("Limits(request_limit=)", lambda s: Limits(request_limit=3), err.WrongArguments, "model_calls=")
mistake("Limits(max_total_cost_usd=)", lambda s: Limits(max_total_cost_usd=3), err.WrongArguments, "cost=")
mistake("Limits(5)", lambda s: Limits(5), err.WrongArguments, "all by name", "steps=")
mistake("Limits(steps='10')", lambda s: Limits(steps="10"), err.ConfigurationError, "Limits.steps", "'10'")
mistake("Limits(steps=0.5)", lambda s: Limits(steps=0.5), err.ConfigurationError, "whole number")
mistake(
    "RunOptions(max_turns=)", lambda s: RunOptions(max_turns=3), err.WrongArguments, "limits=Limits(steps="
)
mistake("RunOptions(steps=)", lambda s: RunOptions(steps=3), err.WrongArguments, "limits=Limits(steps=")
mistake(
    "RunOptions(thread_id=)",
    lambda s: RunOptions(thread_id="x"),
    err.WrongArguments,
    "runner.run(agent, input, thread_id=",
)
mistake(
    "RunOptions(context=)",
    lambda s: RunOptions(context=3),
    err.WrongArguments,
    "runner.run(agent, input, context=",
)
mistake("RunOptions(tags=)", lambda s: RunOptions(tags=["x"]), err.WrongArguments, "labels=")
mistake("RunOptions(limits=10)", lambda s: RunOptions(limits=10), err.ConfigurationError, "Limits(")
mistake(
    "RunOptions(labels=text)",
    lambda s: RunOptions(labels="x"),
    err.ConfigurationError,
    "labels",
    "text to text",
)
mistake(
    "RunOptions(on_limit='stop')", lambda s: RunOptions(on_limit="stop"), err.ConfigurationError, "'pause'"
)
mistake(
    "RunOptions(on_failure='fail')",
    lambda s: RunOptions(on_failure="fail"),
    err.ConfigurationError,
    "FailurePolicy(",
)
mistake("FailurePolicy(tools=)", lambda s: FailurePolicy(tools="fail"), err.WrongArguments, "'tool'")
mistake("Breakpoint(tool)", lambda s: Breakpoint("pay"), err.WrongArguments, "all by name", "before_tool=")
mistake("Breakpoint(tool_name=)", lambda s: Breakpoint(tool_name="pay"), err.WrongArguments, "before_tool=")
mistake(
    "ModelSettings(max_output_tokens=)",
    lambda s: ModelSettings(max_output_tokens=3),
    err.WrongArguments,
    "max_tokens=",
)
mistake("ModelSettings(top_p=)", lambda s: ModelSettings(top_p=0.5), err.WrongArguments, "extra={'top_p': ")
mistake(
    "Image(path)", lambda s: s.runner.run(s.agent, [Image("a.png")]), err.WrongArguments, "a.png", "path="
)

# ----------------------------------------------------------------------------------------------- stores

mistake("redis", lambda s: Runner("redis://localhost"), err.ConfigurationError, "redis", "postgresql://")
mistake(
    "SQLAlchemy's scheme", lambda s: Runner("sqlite+aiosqlite:///j.db"), err.ConfigurationError, "sqlite:///"
)
mistake(
    "SQLAlchemy's other scheme",
    lambda s: Runner("postgresql+psycopg://h/x"),
    err.ConfigurationError,
    "postgresql://",
)
mistake("no slashes", lambda s: Runner("postgresql:localhost/x"), err.ConfigurationError, "postgresql://")
mistake("sqlite's :memory:", lambda s: Runner(":memory:"), err.ConfigurationError, "memory:")
mistake(
    "sqlite's :memory: as a URL", lambda s: Runner("sqlite:///:memory:"), err.ConfigurationError, "memory:"
)
mistake("no path", lambda s: Runner("sqlite:///"), err.ConfigurationError, "path")
mistake(
    "a query of another library",
    lambda s: Runner("sqlite:///x.db?timeout=5"),
    err.ConfigurationError,
    "?lease=SECONDS",
    "timeout",
)
mistake("a connection as a store", lambda s: Runner(object()), err.ConfigurationError, "a path, a URL")

# ----------------------------------------------------------------------------------------------- models

mistake(
    "a model with a slash",
    lambda s: s.runner.run(Agent("openai/gpt-5"), "?"),
    err.ModelUnknown,
    "openai:gpt-5",
)
mistake(
    "instructions as a model",
    lambda s: s.runner.run(Agent("You are helpful."), "?"),
    err.ModelUnknown,
    "provider:model",
)
mistake(
    "a provider without a model", lambda s: s.runner.run(Agent("openai:"), "?"), err.ModelUnknown, "openai:"
)
mistake(
    "a provider in capitals",
    lambda s: s.runner.run(Agent("OpenAI:gpt-5"), "?"),
    err.ModelUnknown,
    "openai:gpt-5",
)
mistake(
    "a provider misspelt",
    lambda s: s.runner.run(Agent("antropic:claude"), "?"),
    err.ModelUnknown,
    "anthropic:claude",
)
mistake("an SDK's client", lambda s: Agent(_Client()), err.ConfigurationError, "_Client", "model must be")


class _Client:
    chat = None


@attempt("no key", err.TaskFailed, "OPENAI_API_KEY")
async def _(s: Scene) -> None:
    s.patch.delenv("OPENAI_API_KEY", raising=False)
    (await s.runner.run(Agent(_M), "?")).raise_for_state()


mistake(
    "instructions without a parameter",
    lambda s: s.runner.run(sayer(instructions=lambda: "x"), "?"),
    err.ConfigurationError,
    "instructions",
    "RunContext",
)
mistake(
    "instructions that return nothing",
    lambda s: s.runner.run_sync(sayer(instructions=lambda ctx: None), "?").raise_for_state(),
    err.TaskFailed,
    "instructions",
    "text",
    "None",
)

# ----------------------------------------------------------------------------- the context of a run


@dataclass
class _Deps:
    user: str


@tool(read_only=True)
def who(ctx: ToolContext[_Deps]) -> str:
    """Say who asks."""
    return ctx.context.user


mistake(
    "no context",
    lambda s: s.runner.run(sayer(tools=[who]), "?"),
    err.ConfigurationError,
    "its tool 'who' needs a context of type _Deps, and the call has none",
    "pass context=",
)
mistake(
    "a context of another type",
    lambda s: s.runner.run(sayer(tools=[who]), "?", context="Ada"),
    err.ConfigurationError,
    "its tool 'who' needs a context of type _Deps",
    "of type str: pass an object of that type",
)
mistake(
    "the class as a context",
    lambda s: s.sync.run(sayer(tools=[who]), "?", context=_Deps),
    err.ConfigurationError,
    "needs a context of type _Deps",
    "of type type: pass an object of that type",
)
mistake(
    "no context for the type of an agent",
    lambda s: s.runner.run_sync(sayer(context_type=_Deps), "?"),
    err.ConfigurationError,
    "needs a context of type _Deps",
    "pass context=",
)
mistake(
    "an object as the type of a context",
    lambda s: sayer(context_type=_Deps("Ada")),
    err.ConfigurationError,
    "context_type must be a class",
    "_Deps",
)
mistake(
    "a factory of contexts without a parameter",
    lambda s: Runner("memory:", context_factory=lambda: _Deps("Ada")),
    err.ConfigurationError,
    "context_factory is called with the task",
    "lambda task: ...",
)

# ------------------------------------------------------------------------------- providers and layers

_OWN = "gpt-5.4-mini"
mistake(
    "OpenAI(model=)",
    lambda s: OpenAI(model=_OWN),
    err.WrongArguments,
    "OpenAI has no argument 'model'",
    "first",
)
mistake("OpenAI(temperature=)", lambda s: OpenAI(_OWN, temperature=0), err.WrongArguments, "ModelSettings(")
mistake("OpenAI(apikey=)", lambda s: OpenAI(_OWN, apikey="x"), err.WrongArguments, "api_key=")
mistake("OpenAI(timeout=)", lambda s: OpenAI(_OWN, timeout=3), err.WrongArguments, "Timeout(model, total=")
mistake("OpenAI()", lambda s: OpenAI(), err.WrongArguments, "OpenAI needs name", "OpenAI('")
mistake(
    "the provider in the name",
    lambda s: OpenAI(_M),
    err.ConfigurationError,
    "the model alone, 'gpt-5.4-mini'",
)
mistake(
    "an address without a scheme",
    lambda s: OpenAI(_OWN, base_url="127.0.0.1:4010"),
    err.ConfigurationError,
    "base_url '127.0.0.1:4010' must begin with http:// or https://",
    "did you mean http://127.0.0.1:4010?",
)
mistake("Fallback(a, b)", lambda s: Fallback(_M, _M), err.WrongArguments, "Fallback([first, second])")
mistake("Fallback of one", lambda s: Fallback([_M]), err.ConfigurationError, "list of at least two")
mistake("Retry(retries=)", lambda s: Retry(_M, retries=3), err.WrongArguments, "attempts=")
mistake("Retry(3)", lambda s: Retry(3), err.ModelUnknown, "Retry: a model is a name", "not 3")
mistake(
    "a script of one text", lambda s: ScriptedModel("Hi."), err.ConfigurationError, "list of turns", "['Hi.']"
)
mistake(
    "settings of words",
    lambda s: ModelSettings(temperature="hot"),
    err.ConfigurationError,
    "temperature",
    "'hot'",
)
mistake("a setting misspelt", lambda s: ModelSettings(temprature=1), err.WrongArguments, "'temperature'")
mistake(
    "importing OpenAIModel",
    lambda s: exec("from treadle.models import OpenAIModel"),
    ImportError,
    "treadle.models has no 'OpenAIModel'",
    "from treadle.models import OpenAI`",
)
mistake(
    "importing Logfire", lambda s: exec("from treadle.telemetry import Logfire"), ImportError, "OpenTelemetry"
)


@attempt("no server", err.TaskFailed, "no connection to http://127.0.0.1:9/v1")
async def _(s: Scene) -> None:
    model = Retry(OpenAI(_OWN, base_url="http://127.0.0.1:9/v1", api_key="x"), attempts=1)
    (await s.runner.run(Agent(model), "?")).raise_for_state()


# -------------------------------------------------------------------------- lists, threads and events

mistake(
    "page[0]", lambda s: s.sync.list_tasks()[0], TypeError, "page has attributes, not items", "page.items[0]"
)
mistake("page.tasks", lambda s: s.sync.list_tasks().tasks, AttributeError, "page.items")
mistake("thread.messages", lambda s: s.sync.get_thread("t").messages, AttributeError, "iterate over it")
mistake(
    "importing dicts",
    lambda s: s.sync.import_thread("t", [{"role": "user", "content": "hi"}]),
    err.ConfigurationError,
    "import_thread: message 0 is no Message",
    "Message('user', (Text('...'),))",
)
mistake(
    "importing a message of text",
    lambda s: s.sync.import_thread("t", [Message("user", "hi")]),
    err.ConfigurationError,
    "message 0: parts must be a tuple",
    "Text(",
)
mistake(
    "tasks since yesterday",
    lambda s: s.runner.list_tasks(since="yesterday"),
    err.ConfigurationError,
    "datetime",
)
mistake(
    "tasks of a label",
    lambda s: s.runner.list_tasks(labels="x"),
    err.ConfigurationError,
    "labels must map text",
)
mistake(
    "one observer",
    lambda s: Runner("memory:", observers=print),
    err.ConfigurationError,
    "observers=[function]",
)
mistake(
    "an observer by name",
    lambda s: Runner(observers=["stdout"]),
    err.ConfigurationError,
    "takes console, jsonl:PATH or otel",
)
mistake("event.type", lambda s: _event(s).type, AttributeError, "event has no 'type'", "event.kind")
mistake("event.message", lambda s: _event(s).message, AttributeError, "event.description")
mistake("event.run_id", lambda s: _event(s).run_id, AttributeError, "event.task_id")
mistake("notice.kind", lambda s: Notice(None, _event(s)).kind, AttributeError, "notice.event.kind")
mistake("Node(fn=)", lambda s: Node("a", fn=print), err.WrongArguments, "run=")
mistake("Node(depends_on=)", lambda s: Node("b", print, depends_on=["a"]), err.WrongArguments, "after=")
mistake(
    "a pipeline of functions",
    lambda s: Pipeline([print]),
    err.ConfigurationError,
    "Pipeline takes a list of Node(",
)
mistake(
    "a worker class",
    lambda s: sayer(worker=AgentWorker),
    err.ConfigurationError,
    "worker must be",
    "AgentWorker",
)
mistake(
    "a state that is a list",
    lambda s: s.runner.run(s.agent, "?", extra_state=[1]),
    err.ConfigurationError,
    "extra_state",
    "dict",
)


def _event(s: Scene) -> Any:
    return next(iter(s.sync.handle(s.result.task_id).events()))


# ------------------------------------------------------------------------------------------- the table


@pytest.fixture
async def scene(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_garbage: None, anyio_backend: str
) -> Any:
    async with Runner("memory:") as runner:
        result = await runner.run(calculator(), "?")
        task = await runner.create_task(calculator(), "?")
        yield Scene(runner, tmp_path, result, task, monkeypatch)


@pytest.mark.anyio
@pytest.mark.sampled(100)
@pytest.mark.parametrize(("case", "error", "says"), TABLE)
async def test_a_mistake_is_told_what_is_wrong_and_what_to_write(
    scene: Scene, case: Any, error: type[Exception], says: tuple[str, ...]
) -> None:
    with pytest.raises(error) as caught:
        await case(scene)
    shown = "".join(traceback.format_exception_only(caught.value))
    for phrase in says:
        assert phrase in shown, shown


def test_the_table_has_every_row_once() -> None:
    names = [row.id for row in TABLE]
    assert len(set(names)) == len(names) >= 250
