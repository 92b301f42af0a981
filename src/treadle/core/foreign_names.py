"""Names that users of other libraries try, and what to write here instead: the text of errors, never of behaviour.

Tables of what to write, by what has no such name and by the name. They cover Pydantic AI, the OpenAI Agents SDK,
LangGraph, LangChain, LlamaIndex, AFK, AdalFlow, smolagents, Temporal and Celery. `unknown_names` loads this module with
the first error.
"""

from __future__ import annotations

from typing import Final

_ASYNC_OR_SYNC = "`await runner.run(agent, text)`, or `runner.run_sync(agent, text)` without asyncio"
_RUN = f"a runner runs agents: `runner = Runner()`, then {_ASYNC_OR_SYNC}"
_CHAT = f"{_RUN}; runs with the same `thread_id=` are one conversation"
_STREAM = (
    "a runner streams: `async with runner.run_stream(agent, text) as stream: async for event in stream: ...`"
)
_STEPS = (
    "a runner takes the steps of a task: `task = await runner.create_task(agent, text)`, "
    "then `await runner.run_step(task)`"
)
_TOOLS = "decorate the function with `@tool` (`from treadle import tool`) and list it: `Agent(tools=[...])`"
_MEMORY = (
    "conversations are threads in the store: give runs the same `thread_id=`, "
    "and read `runner.get_thread(thread_id)`"
)
_HANDOFFS = "agents that take over a conversation are listed: `Agent(handoffs=[agent])`"
_SUBAGENTS = "agents that an agent may call are listed: `Agent(subagents=[agent])`"
_APPROVAL = (
    "a call of a tool waits for a person: `@tool(needs_approval=True)`, then `await runner.approve(task)` or "
    "`runner.deny(task)`, and `runner.resume(task)`"
)
_RULES = "rules are passed one by one: Policy(rule, other), Policy.strict(*rules)"
_OBSERVERS = "observers are told of all events: `Runner(observers=[function])`"
_CONSOLE = (
    "write observers=['console'] for a line per event, as in `Runner(observers=['console'])`; 'jsonl:PATH' and 'otel' "
    "are the other names, and Console(), from treadle.telemetry, has options"
)
_PROMPT = "instructions are an argument, text or a function of RunContext: `Agent(instructions=...)`"
_OTHER = "an agent does not change; make another one: "
_REPLACE = f"{_OTHER}`agent.replace(model=...)`"
_UNDO = "a step is taken back: `await runner.undo_step(task)`"
_STATE = (
    "a task's state is in its store: `await runner.get_task(task)`, and `runner.get_completed_steps(task)`"
)

_RETRIES = "a layer around the model retries: `Retry(model, attempts=...)`, from treadle.models; a tool has `retries=`"
_CACHE = "a layer around the model caches answers: `Cache(model)`, from treadle.models"
_OF_ITS_DRIVER = "they belong to the process that drives: `Runner(observers=[function])` there"
_TRACING = "observers trace: `Runner(observers=[OpenTelemetry()])`, from treadle.telemetry"
_SERVER = (
    "`treadle serve` serves a store over HTTP; in another application, mount `treadle.server.app(runner)`"
)
_MCP = (
    "a server is listed like a tool, and the runner starts it: `Agent(tools=[MCPServer(name, command=...)])`"
)
_DRIVERS = "a process takes over tasks by `treadle drive`, `Runner(adopt=True)` or `runner.begin_adopting()`"
_SCOPED = "a runner of one tenant is `runner.scoped(tenant=...)`"
_LATER = (
    "a task waits by a tool or step that awaits `ctx.sleep(seconds)`; another scheduler starts runs at a time"
)
_SEND = (
    "write `await runner.send(task, message)`; the answer to a question is `runner.answer(task, value=...)`"
)
_DENY = "write `await runner.deny(task)`"
_TASK_STATE = "write `await runner.get_task(task)`"
_STEPS_OF = "write `await runner.get_completed_steps(task)`"
_LIMIT_STATE = (
    "a limit ends the task and raises nothing: `result.state` is 'failed' or 'paused', "
    "`result.error` says why"
)
_QUESTION = (
    "a tool asks a person by `await ctx.ask(question, schema)`; "
    "the task waits for `runner.answer(task, value=...)`"
)
_CLASS_AGENT = "write `Agent('openai:gpt-5.4-mini', tools=[...])`"
_WORKERS = "; for models without tool calls add `worker='react'`"
_REGISTERED = (
    "agents are listed when the runner is made: `Runner(agents=[agent])`; "
    "`runner.run(agent, text)` needs no list"
)

_RUNS_AGENTS: Final = {
    **dict.fromkeys(
        ("run", "run_sync", "invoke", "ainvoke", "call", "acall", "query", "aquery", "kickoff"), _RUN
    ),
    **dict.fromkeys(("execute", "generate", "predict", "print_response"), _RUN),
    **dict.fromkeys(("chat", "achat"), _CHAT),
    **dict.fromkeys(
        ("stream", "astream", "run_stream", "run_streamed", "stream_chat", "astream_chat"), _STREAM
    ),
    **dict.fromkeys(("run_stream_events", "astream_events", "stream_events"), _STREAM),
    **dict.fromkeys(("iter", "step", "run_step"), _STEPS),
    "create_task": "a runner makes tasks: `await runner.create_task(agent, text)`",
    "run_stream_sync": "write `with runner.sync.run_stream(agent, text) as stream: for event in stream: ...`",
    "batch": "start several and wait for each: `handle = await runner.start(agent, text)`, `await handle.result()`",
    "abatch": "start several and wait for each: `handle = await runner.start(agent, text)`, `await handle.result()`",
    **dict.fromkeys(("memory", "chat_history", "history", "messages", "session"), _MEMORY),
    "reset": "an agent has no state; a conversation is deleted by `runner.delete_thread(thread_id)`, or begun by "
    "another `thread_id=`",
}
"""What other systems' agents do themselves."""

_WAYS_TO_RUN: Final = {
    **dict.fromkeys(
        ("invoke", "ainvoke", "call", "acall", "query", "aquery", "kickoff", "execute"),
        f"write {_ASYNC_OR_SYNC}",
    ),
    **dict.fromkeys(
        ("chat", "achat"), f"write {_ASYNC_OR_SYNC}; runs with the same `thread_id=` are one conversation"
    ),
    **dict.fromkeys(
        ("stream", "astream", "run_streamed", "stream_chat", "astream_chat", "astream_events"), _STREAM
    ),
}

_RUNNER: Final = {
    **_WAYS_TO_RUN,
    "arun": "write `await runner.run(agent, text)`",
    "run_async": "write `await runner.run(agent, text)`",
    "step": "write `await runner.run_step(task)`",
    "arun_step": "write `await runner.run_step(task)`, or `runner.sync.run_step(task)` without asyncio",
    "astream_step": "write `async with runner.stream_step(task) as stream`",
    "run_steps_in_queue": "write `await runner.run_ready_steps(task)`",
    "arun_steps_in_queue": "write `await runner.run_ready_steps(task)`",
    "finalize_response": "write `await runner.finalize(task)`",
    "get_completed_tasks": "write `await runner.list_tasks(state='completed')`",
    "get_task_output": "write `await runner.result(task)`; of the last step, "
    "`(await runner.get_completed_steps(task))[-1]`",
    "run_handle": "write `await runner.start(agent, text)`: it returns a handle at once",
    "get_state": _STATE,
    "aget_state": _STATE,
    "get_state_history": "write `await runner.get_completed_steps(task)`; `await runner.get_events(task)` has all "
    "events, and `await runner.result(task, at=seq)` tells how it stood after one",
    "update_state": "history is not rewritten: `runner.fork(task, at=...)` goes another way from a step, "
    "`runner.edit_call(task, call_id, arguments)` changes a call that has not begun",
    "close": "write `await runner.aclose()`, or `runner.sync.close()` without asyncio",
    "undo": "write `await runner.undo_step(task)`",
    "rewind": "write `await runner.undo_step(task, to=...)`",
    "delete": "write `await runner.delete_task(task)`, or `runner.delete_thread(thread_id)`",
    "stop": "write `await runner.cancel(task)`, or `runner.interrupt(task)` to resume it later",
    "abort": "write `await runner.cancel(task)`",
    "wait": "write `await runner.handle(task).result()`",
    "await_result": "write `await runner.handle(task).result()`",
    "get_result": "write `await runner.result(task)`",
    "get_tuple": _TASK_STATE,
    "get_completed_step": "write `await runner.get_step(task, step)`",
    "get_upcoming_step": "write `await runner.get_upcoming_steps(task)`",
    "stream_mode": _STREAM,
    **dict.fromkeys(("chat_repl", "streaming_chat_repl"), "write `treadle chat MODULE:AGENT` in a terminal"),
    "agent_worker": "the worker is the agent's: `agent.worker`",
    **dict.fromkeys(("agents", "register", "register_agent", "add_agents"), _REGISTERED),
    "replay": "a recorded task is run again by `treadle.replay`, or `treadle replay`; "
    "another way from a step is "
    "`await runner.fork(task, at=...)`",
    **dict.fromkeys(
        ("rerun", "retry"), "write `await runner.resume(task)`, or `runner.fork(task)` for another try"
    ),
    **dict.fromkeys(
        ("policy_engine", "policy"),
        "a policy is given when the runner is made: `Runner(policy=Policy(...))`; "
        "`runner.set_policy(policy)` sets another for later judgements",
    ),
    "interaction_mode": "write `options=RunOptions(interaction='headless')`, of a run or of the runner",
    "reset_cancellation": "a cancelled task is final; "
    "one that was interrupted or paused goes on by `runner.resume(task)`",
    "add_permission_manager": _APPROVAL,
    "execute_activity": "an activity is a tool that the model calls: decorate the function with `@tool`; "
    "fixed steps are a "
    "`Pipeline`",
    **dict.fromkeys(("execute_workflow", "run_workflow"), f"write {_ASYNC_OR_SYNC}"),
    **dict.fromkeys(("start_workflow", "create_run", "start_run"), "write `await runner.start(agent, text)`"),
    **dict.fromkeys(
        ("get_workflow_handle", "get_handle", "AsyncResult", "attach"), "write `runner.handle(task)`"
    ),
    **dict.fromkeys(("list_workflows", "runs", "list_runs", "tasks"), "write `await runner.list_tasks()`"),
    **dict.fromkeys(("threads", "sessions", "conversations"), "write `await runner.list_threads()`"),
    **dict.fromkeys(("signal", "send_message", "add_message"), _SEND),
    **dict.fromkeys(("terminate", "kill"), "write `await runner.cancel(task)`, or `runner.interrupt(task)`"),
    **dict.fromkeys(("schedule", "schedule_run", "delay", "apply_async", "add_periodic_task"), _LATER),
    **dict.fromkeys(
        ("send_task", "enqueue", "publish"),
        "write `await runner.submit(agent, text)`; another process drives it",
    ),
    **dict.fromkeys(("start_worker", "worker_main", "work", "Worker"), _DRIVERS),
    **dict.fromkeys(("tenant", "for_tenant", "with_tenant", "in_tenant", "namespace"), _SCOPED),
    **dict.fromkeys(("reject", "decline"), _DENY),
    **dict.fromkeys(("respond", "reply"), "write `await runner.answer(task, value=...)`"),
    "submit_tool_outputs": "write `await runner.complete(ticket, value)` for each call",
    "events": "write `async for event in runner.handle(task).events()`",
    "set_permission_manager": _APPROVAL,
    "is_cancelled": "a task tells it: `result.state == 'cancelled'`",
    "register_cancel_callback": f"{_OBSERVERS}; a `TaskEnded` event has the state",
    "add_callback": _OBSERVERS,
    "set_callback_manager": _OBSERVERS,
    "subscribe": f"{_OBSERVERS}; of one task, `runner.handle(task).events()`",
    "get_token_consumption": "write `result.usage`, or `(await runner.get_task(task)).usage`",
    "chat_history": _MEMORY,
    "memory": _MEMORY,
    "reset": "a conversation is deleted by `runner.delete_thread(thread_id)`, or begun by another `thread_id=`",
    "add_agent": "write `Runner(agents=[agent])`; `runner.run(agent, text)` needs no list",
    "compact": "write `await runner.compact_thread(thread_id)`",
}

_SET_POLICY = "write `runner.set_policy(policy)`, which later judgements go by, or `Runner(policy=policy)`"
_OF_A_RUN = "are those of a run: write `options=RunOptions(...)` of `run`, `start` or `resume`"
_OF_THE_RUNNER = {
    "policy": _SET_POLICY,
    "policy_engine": _SET_POLICY,
    "permission_manager": _SET_POLICY,
    "options": f"write `Runner(options=RunOptions(...))`; others {_OF_A_RUN}",
    "limits": "write `Runner(options=RunOptions(limits=Limits(...)))`, or the same options of a run",
    "agents": "write `Runner(agents=[agent])`; the agent of a run is registered by it",
    "store": "write `Runner(store)`: a runner keeps its store",
    "observers": "write `Runner(observers=[function])`",
}
_OF_A_HANDLE = {
    "policy": "the runner judges: write `runner.set_policy(policy)`, or `Runner(policy=policy)`",
    "options": f"they {_OF_A_RUN}",
    "limits": f"they {_OF_A_RUN}",
    "agents": "write `Runner(agents=[agent])`",
    "store": "a task stays in its store: write `Runner(store)`",
    "observers": "write `Runner(observers=[function])`",
    "extra_state": "write `extra_state={...}` of `run` or `start`; tools change it by `ctx.state`",
}
_OF_THE_PROCESS = "belongs to the processes that drive: set it on the Runner of the server"

ASSIGNED: Final[dict[str, dict[str, str]]] = {
    "Runner": _OF_THE_RUNNER,
    "runner.sync": _OF_THE_RUNNER,
    "Client": {
        "policy": f"it {_OF_THE_PROCESS}, by `runner.set_policy(policy)`",
        "options": f"they {_OF_A_RUN}",
        "limits": "write `options=RunOptions(limits=Limits(...))` of a run",
        "agents": "write `Client(url, agents=[agent])`",
        "store": f"it {_OF_THE_PROCESS}",
        "observers": f"each {_OF_THE_PROCESS}",
    },
    "handle": _OF_A_HANDLE,
    "sync handle": _OF_A_HANDLE,
    "stream": _OF_A_HANDLE,
    "sync stream": _OF_A_HANDLE,
}
"""Advice in place of setting an attribute, by the label of `explains_names` and the name."""

ATTRIBUTES: Final[dict[str, dict[str, str]]] = {
    "Agent": {
        **_RUNS_AGENTS,
        "tool": _TOOLS,
        "tool_plain": _TOOLS,
        "toolset": _TOOLS,
        "add_tool": f"{_OTHER}`agent.replace(tools=[...])`",
        "function_tools": "write `agent.tools`",
        "system_prompt": _PROMPT,
        "prompt": _PROMPT,
        "is_model_request_node": _STEPS,
        **dict.fromkeys(("to_a2a", "to_ag_ui"), _SERVER),
        **dict.fromkeys(
            ("set_mcp_sampling_model", "run_mcp_servers", "mcp_servers"), f"{_MCP}; read `agent.tools`"
        ),
        "instrument_all": _TRACING,
        "event_stream_handler": _OBSERVERS,
        **dict.fromkeys(("get_all_tools", "get_tools", "tool_names"), "write `agent.tools`"),
        "get_system_prompt": "write `agent.instructions`",
        "compile": "an agent is ready as it is; "
        "a runner has the store: `Runner('journal.db')`, then `runner.run(agent, text)`",
        "get_graph": "an agent with fixed steps has a worker: `Agent(worker=Pipeline([Node(...)]))`",
        "with_structured_output": f"{_OTHER}`agent.replace(output_type=...)`",
        "bind_tools": f"{_OTHER}`agent.replace(tools=[...])`",
        "with_config": "options are an argument of a run: `runner.run(agent, text, options=RunOptions(...))`",
        "with_retry": _RETRIES,
        "with_fallbacks": "write `Agent(Fallback([first, second]))`, from treadle.models",
        **dict.fromkeys(("get_state", "aget_state"), _STATE),
        "update_state": _RUNNER["update_state"],
        **dict.fromkeys(("from_llm", "from_tools", "from_defaults", "from_"), _CLASS_AGENT + _WORKERS),
        "get_prompts": "write `agent.instructions`",
        "update_prompts": f"{_OTHER}`agent.replace(instructions=...)`",
        "output_validator": "the type of the answer checks it: `Agent(output_type=...)`, with validators of pydantic",
        "result_validator": "the type of the answer checks it: `Agent(output_type=...)`, with validators of pydantic",
        "override": _REPLACE,
        "clone": _REPLACE,
        "copy": _REPLACE,
        "as_tool": _SUBAGENTS,
        "managed_agents": _SUBAGENTS,
        "register_handoff": _HANDOFFS,
        "to_web": "there is no web page; `treadle run MODULE:AGENT TEXT` runs it in a terminal",
        "to_cli": "write `treadle run MODULE:AGENT TEXT` in a terminal",
        "to_cli_sync": "write `treadle run MODULE:AGENT TEXT` in a terminal",
        "llm": "write `agent.model`",
        "deps_type": "write `agent.context_type`",
        "result_type": "write `agent.output_type`",
        "max_steps": "write `agent.limits.steps`",
        "state": _STATE,
        "usage": "usage is a result's: `result.usage`",
    },
    "agent.tools": dict.fromkeys(
        ("append", "extend", "insert", "remove", "pop", "clear", "sort"),
        f"{_OTHER}`agent.replace(tools=[*agent.tools, tool])`",
    ),
    "result.messages": dict.fromkeys(
        ("append", "extend", "insert", "remove", "pop", "clear", "sort"),
        "past messages do not change; the next run goes on with them: "
        "`runner.run(agent, text, thread_id=result.thread_id)`",
    ),
    "Client": {
        **{name: text.replace("runner.", "client.") for name, text in _RUNNER.items()},
        "connect": "write `Client('http://host:8700', token=...)`, which connects with its first verb",
        "close": "write `await client.aclose()`",
        "get": "a client has the verbs of a runner: `await client.get_task(task)`",
    },
    "Runner": _RUNNER,
    "runner.sync": {
        **{
            name: text.replace("await runner.", "runner.sync.")
            for name, text in _RUNNER.items()
            if name not in ("close", "events")
        },
        **dict.fromkeys(_WAYS_TO_RUN, "write `runner.sync.run(agent, text)`"),
        **dict.fromkeys(
            ("stream", "astream", "run_streamed", "stream_chat", "astream_chat", "astream_events"),
            "write `with runner.sync.run_stream(agent, text) as stream: for event in stream: ...`",
        ),
        "run_sync": "write `runner.sync.run(agent, text)`",
        "arun_step": "write `runner.sync.run_step(task)`",
        "aclose": "write `runner.sync.close()`",
        "events": "write `for event in runner.sync.handle(task).events()`",
    },
    "sync handle": {
        "await_result": "write `handle.result()`",
        "wait": "write `handle.result()`",
        "stop": "write `handle.cancel()`, or `handle.interrupt()` to resume it later",
        "status": "write `runner.sync.get_task(handle.task_id).state`",
        "run_id": "write `handle.task_id`",
    },
    "sync stream": {
        "stream_text": "write `for text in stream.partials()`",
        "stream_events": "write `for event in stream`",
        "response_gen": "write `for text in stream.partials()`",
        "final_output": "write `stream.result.output`, once the stream has ended",
        "final_text": "write `stream.result.final_text`, once the stream has ended",
    },
    "handle": {
        "signal": "write `await handle.send(message)`",
        **dict.fromkeys(
            ("query", "describe", "info"),
            "write `await runner.get_task(handle.task_id)`, a snapshot of the task",
        ),
        **dict.fromkeys(
            ("terminate", "revoke", "kill"), "write `await handle.cancel()`, or `handle.interrupt()`"
        ),
        **dict.fromkeys(("get", "join", "run"), "write `await handle.result()`"),
        "ready": "write `(await runner.get_task(handle.task_id)).driven`, or wait: `await handle.result()`",
        **dict.fromkeys(
            ("successful", "failed"),
            "write `(await handle.result()).state == 'completed'`, or its `raise_for_state()`",
        ),
        "forget": "write `await runner.delete_task(handle.task_id)`",
        "await_result": "write `await handle.result()`",
        "wait": "write `await handle.result()`",
        "stop": "write `await handle.cancel()`, or `handle.interrupt()` to resume it later",
        "abort": "write `await handle.cancel()`",
        "status": "write `(await runner.get_task(handle.task_id)).state`",
        "state": "write `(await runner.get_task(handle.task_id)).state`",
        "done": "write `(await runner.get_task(handle.task_id)).driven`, or wait: `await handle.result()`",
        "output": "write `(await handle.result()).output`",
        "run_id": "write `handle.task_id`",
        "id": "write `handle.task_id`",
        "stream": "write `async for event in handle.events()`",
        "undo": "write `await handle.undo_step()`",
    },
    "stream": {
        "stream_text": "write `async for text in stream.partials()`",
        "stream_output": "write `async for answer in stream.partials()`",
        "stream_events": "write `async for event in stream`",
        "stream_responses": "write `async for event in stream`",
        "events": "write `async for event in stream`",
        "text_stream": "write `async for text in stream.partials()`",
        "response_gen": "write `async for text in stream.partials()`",
        "get_output": "write `stream.result.output`, once the stream has ended",
        "final_output": "write `stream.result.output`, once the stream has ended",
        "final_text": "write `stream.result.final_text`, once the stream has ended",
        "output": "write `stream.result.output`, once the stream has ended",
        "all_messages": "write `stream.result.messages`, once the stream has ended",
        "usage": "write `stream.result.usage`, once the stream has ended",
        "state": "write `stream.result.state`, once the stream has ended",
        "cancel": "leave the `async with` block, or write `await runner.cancel(stream.task_id)`",
    },
    "RunResult": {
        "new_messages_json": "write `result.messages`",
        "timestamp": "write `result.ended_at`, in microseconds since 1970, UTC",
        "raw_responses": "write `await runner.get_events(result.task_id)`: `model_returned` events have the answers",
        "to_state": "the store has the state: `await runner.resume(result.task_id)` goes on, in any process",
        "context_wrapper": "write `context=...` for a run and keep the object: it is never stored",
        "last_response_id": "no id is passed on: the next run with `thread_id=result.thread_id` goes on with it",
        **dict.fromkeys(
            ("input_guardrail_results", "output_guardrail_results"),
            "a guardrail that refuses ends the task: `result.error` says why",
        ),
        "is_complete": "write `result.state == 'completed'`",
        "stream_events": _STREAM,
        **dict.fromkeys(("steps_history", "history", "intermediate_steps"), _STEPS_OF),
        "state_snapshot": "write `result.state`, and `result.started_at`, `result.usage`, `result.steps`",
        **dict.fromkeys(
            ("requested_model", "model_name", "model"),
            "write `agent.model`; a `model_returned` event names it",
        ),
        "final_output": "write `result.output`, or `result.final_text` for its text",
        "final_output_as": "give the agent a type, `Agent(output_type=...)`; then write `result.output`",
        "data": "write `result.output`",
        "value": "write `result.output`",
        "result": "write `result.output`",
        **dict.fromkeys(
            ("text", "content", "response", "message"), "write `result.final_text`, or `result.output`"
        ),
        "all_messages": "write `result.messages`, or `await runner.get_thread(result.thread_id)` for the conversation",
        "new_messages": "write `result.messages`",
        "all_messages_json": "write `result.messages`",
        "to_input_list": "no history is passed on: the next run with `thread_id=result.thread_id` goes on with it",
        "new_items": "write `result.messages`, and `result.tool_executions`",
        "last_agent": "a task has one agent; `result.subagent_executions` are those it called",
        "interruptions": "write `result.pending`",
        "step_history": "write `await runner.get_completed_steps(result.task_id)`; `result.steps` counts them, and "
        "`result.tool_executions` are the calls",
        "run_id": "write `result.task_id`",
        "id": "write `result.task_id`",
        "conversation_id": "write `result.thread_id`",
        "session_id": "write `result.thread_id`",
        "status": "write `result.state`, such as 'completed' or 'failed'",
        "success": "write `result.state == 'completed'`, or `result.raise_for_state()`",
        "is_success": "write `result.state == 'completed'`, or `result.raise_for_state()`",
        "tool_calls": "write `result.tool_executions`",
        "source_nodes": "write `result.sources`",
        "usage_aggregate": "write `result.usage`",
        "total_cost": "write `result.cost`",
        "tokens": "write `result.usage.total_tokens`",
        "exception": "write `result.error`; `result.raise_for_state()` raises it",
        "model_dump": "write `dataclasses.asdict(result)`",
        "dict": "write `dataclasses.asdict(result)`",
        "to_dict": "write `dataclasses.asdict(result)`",
        "json": "write `dataclasses.asdict(result)`",
    },
    "Task": {
        "memory": "its conversation is that of `task.thread_id`: `await runner.get_thread(task.thread_id)`",
        "callback_manager": _OBSERVERS,
        "id": "write `task.task_id`",
        "run_id": "write `task.task_id`",
        "status": "write `task.state`",
        **dict.fromkeys(
            ("output", "result", "final_output", "final_text"), "write `await runner.result(task)`"
        ),
        "error": "write `(await runner.result(task)).error`",
        "pending": "write `(await runner.result(task)).pending`",
        "messages": "write `(await runner.result(task)).messages`",
        "run": "write `await runner.resume(task)` to drive it on, `await runner.run_step(task)` for one step",
        "cancel": "write `await runner.cancel(task)`",
        "refresh": "a task is a snapshot: `await runner.get_task(task)` is a newer one",
    },
    "Pending": {
        **dict.fromkeys(("id", "tool_call_id", "call_id", "interrupt_id"), "write `pending.request_id`"),
        **dict.fromkeys(("tool_name", "name"), "write `pending.tool`"),
        **dict.fromkeys(("args", "tool_args", "tool_input", "input"), "write `pending.arguments`"),
        **dict.fromkeys(("question", "message", "value"), "write `pending.text`"),
        "approve": "write `await runner.approve(task, pending.request_id)`",
        **dict.fromkeys(("deny", "reject"), "write `await runner.deny(task, pending.request_id)`"),
        **dict.fromkeys(
            ("answer", "respond"), "write `await runner.answer(task, pending.request_id, value=...)`"
        ),
    },
    "Pipeline": {
        "add_node": "nodes are listed when it is made: `Pipeline([Node('name', function), ...])`",
        "add_edge": "a node names its predecessors: `Node('name', function, after='other')`",
        "add_conditional_edges": "a node has a condition: `Node('name', function, after='other', when=function)`",
        **dict.fromkeys(
            ("set_entry_point", "set_finish_point"),
            "nodes without `after=` begin; `Pipeline(nodes, output='name')` names the answer",
        ),
        **dict.fromkeys(
            ("compile", "invoke", "ainvoke", "run"),
            "it is the worker of an agent: `Agent(model, worker=Pipeline([...]))`, which a runner runs",
        ),
    },
    "MCPServer": {
        **dict.fromkeys(
            ("list_tools", "get_tools", "call_tool"), f"the runner calls it: `Agent(tools=[server])`; {_MCP}"
        ),
        "tools": "write `await server.known_specs()` within a run; its tools are those of the agent that lists it",
        **dict.fromkeys(("cleanup", "close", "stop", "disconnect"), "the runner starts it and stops it"),
    },
    "Application": dict.fromkeys(
        ("run", "serve", "listen"),
        "an ASGI server runs it: `uvicorn module:app`; or write `treadle serve` in a terminal",
    ),
    "treadle.server": {
        **dict.fromkeys(
            ("serve", "run", "start", "Server"), "write `treadle serve MODULE:AGENT` in a terminal"
        ),
        **dict.fromkeys(
            ("create_app", "make_app", "FastAPI", "router"),
            "write `treadle.server.app(runner, auth=...)`",
        ),
    },
    "TaskStepOutput": {
        **dict.fromkeys(("response", "result", "text", "content"), "write `out.output`"),
        "task_step": "write `out.step`",
        "done": "write `out.is_last`",
        "is_done": "write `out.is_last`",
        "tool_calls": "write `out.tool_executions`",
    },
    "TaskUsage": {
        "total": "write `usage.total_tokens`",
        "requests": "write `usage.model_calls`",
        **dict.fromkeys(("prompt_tokens", "request_tokens", "tokens_in"), "write `usage.input_tokens`"),
        **dict.fromkeys(
            ("completion_tokens", "response_tokens", "tokens_out"), "write `usage.output_tokens`"
        ),
        "cost_usd": "write `usage.cost`",
    },
    "ToolExecution": {
        "tool_name": "write `execution.name`",
        "tool": "write `execution.name`",
        "tool_call_id": "write `execution.call_id`",
        "id": "write `execution.call_id`",
        "args": "write `execution.arguments`",
        "success": "write `execution.outcome == 'ok'`",
        "status": "write `execution.outcome`",
        "result": "write `execution.output`",
        "latency_ms": "write `execution.latency`, in seconds",
        "agent_name": "write `execution.agent`",
    },
    "Message": {
        "content": "write `message.text`, or `message.parts` for all of it",
        "kind": "write `message.role`",
        "type": "write `message.role`",
    },
    "page": {
        **dict.fromkeys(
            ("tasks", "threads", "data", "results"), "write `page.items`, or iterate over the page"
        ),
        **dict.fromkeys(
            ("next", "next_page", "next_cursor"), "write `page.cursor`; `async for` goes over all pages"
        ),
        "total": "a page knows only its own items: `page.items`; `treadle tasks` shows totals",
    },
    "ThreadMessages": {
        "messages": "it is the tuple of messages itself: iterate over it",
        "text": "it is a tuple of messages, each with a `text`",
    },
    "event": {
        **dict.fromkeys(
            ("type", "event_type", "event"), "write `event.kind`, such as 'tool_ended', or isinstance()"
        ),
        "message": "write `event.description` for one plain line",
        **dict.fromkeys(("data", "content", "delta"), "its fields are attributes; a `Delta` has `text`"),
        "timestamp": "write `event.time`, in microseconds since 1970, UTC",
        **dict.fromkeys(("run_id", "thread_id"), "write `event.task_id`"),
        "agent_name": "write `event.agent_path`, whose last entry is the task's own agent",
        "sequence": "write `event.seq`",
    },
    "Notice": {
        **dict.fromkeys(("kind", "type"), "write `notice.event.kind`"),
        "message": "write `notice.event.description`",
        "task_id": "write `notice.event.task_id`",
        "data": "write `notice.event`, whose fields are attributes",
    },
    "ToolContext": {
        "heartbeat": "write `ctx.progress(value)`",
        **dict.fromkeys(("write_event_to_stream", "send_event", "report"), "write `ctx.progress(value)`"),
        "deps": "write `ctx.context`",
        "run_context": "write `ctx.context`",
        "run_id": "write `ctx.task_id`",
        "tool_call_id": "write `ctx.call_id`",
        "session_id": "write `ctx.thread_id`",
        "report_progress": "write `ctx.progress(value)`",
        "stream_writer": "write `ctx.progress(value)`",
        "retry": "write `ctx.attempt`, 1 for the first start",
        **dict.fromkeys(
            ("secrets", "get_secret", "credentials"),
            "write `ctx.secret('name')`; the tool declares it: secrets=",
        ),
        **dict.fromkeys(
            ("elicit", "interrupt", "ask_user", "input", "wait_for_event"),
            "write `await ctx.ask(question, schema)`",
        ),
        "is_cancelled": "write `ctx.cancelled()`",
        "messages": "tools do not see the conversation: it is in `runner.get_thread(ctx.thread_id)`",
        "usage": "tools do not see the usage: it is in `result.usage`",
    },
    "RunContext": {
        "deps": "write `ctx.context`",
        "run_id": "write `ctx.task_id`",
        "session_id": "write `ctx.thread_id`",
    },
    "tool": {
        **dict.fromkeys(
            ("from_defaults", "from_function"),
            "write `@tool` above the function, or `tool(function, name='...', description='...')`",
        ),
        **dict.fromkeys(
            ("delay", "apply_async", "apply", "retry"),
            "a model calls tools; work in the background is a task: `await runner.start(agent, text)`",
        ),
        **dict.fromkeys(
            ("s", "si", "signature", "chain"), "steps in an order are `Pipeline([Node('name', tool), ...])`"
        ),
        **dict.fromkeys(
            ("invoke", "ainvoke", "run", "func", "fn", "_run"), "call the function itself: `name(...)`"
        ),
        "description": "write `.spec.description`",
        "parameters": "write `.spec.parameters`",
        "args_schema": "write `.spec.parameters`, a JSON schema",
        "params_json_schema": "write `.spec.parameters`, a JSON schema",
        "name": "write `.spec.name`",
    },
    "treadle.models": {
        **dict.fromkeys(("OpenAIModel", "OpenAIResponsesModel"), "write `from treadle.models import OpenAI`"),
        "OpenAIChatModel": "write `from treadle.models import OpenAIChat`, for servers like OpenAI's",
        **dict.fromkeys(("AnthropicModel", "Claude"), "write `from treadle.models import Anthropic`"),
        **dict.fromkeys(
            ("GoogleModel", "GeminiModel", "Gemini"), "write `from treadle.models import Google`"
        ),
        "OllamaModel": "write `from treadle.models import Ollama`",
        **dict.fromkeys(("infer_model", "init_chat_model"), "write the name: `Agent('openai:gpt-5.4-mini')`"),
        "FallbackModel": "write `from treadle.models import Fallback`",
        **dict.fromkeys(("TestModel", "FunctionModel"), "write `from treadle.models import ScriptedModel`"),
        **dict.fromkeys(
            ("LiteLLM", "LiteLLMModel", "LitellmModel", "GroqModel", "MistralModel", "BedrockConverseModel"),
            "other providers are named by text: `Agent('groq:...')`, or `ProviderModel` for settings",
        ),
    },
    "treadle.telemetry": {
        "Logfire": "write `from treadle.telemetry import OpenTelemetry`",
        "Otel": "write `from treadle.telemetry import OpenTelemetry`",
        "Json": "write `from treadle.telemetry import JsonLines`",
    },
    "treadle": {
        "function_tool": "write `from treadle import tool`",
        "FunctionTool": "write `from treadle import tool`",
        "Tool": "write `from treadle import tool`, and decorate a function with it",
        "StructuredTool": "write `from treadle import tool`",
        "AgentRunner": "write `from treadle import Runner`",
        "Runtime": "write `from treadle import Runner`",
        "TaskRunner": "write `from treadle import Runner`",
        "UsageLimits": "write `from treadle import Limits`",
        "RunConfig": "write `from treadle import RunOptions`",
        "RunnerConfig": "write `from treadle import RunOptions`",
        "RunContextWrapper": "write `from treadle import ToolContext`, or RunContext for instructions",
        "ModelRetry": "raise `treadle.errors.ToolError`, or any exception: the model reads its message",
        "TestModel": "write `from treadle import ScriptedModel`",
        "FunctionModel": "write `from treadle import ScriptedModel`, which takes a function",
        "FallbackModel": "write `from treadle.models import Fallback`",
        "OpenAI": "write `from treadle.models import OpenAI`, or give the name: `Agent('openai:gpt-5.4-mini')`",
        "Anthropic": "write `from treadle.models import Anthropic`, or give the name: "
        "`Agent('anthropic:claude-sonnet-5-5')`",
        **dict.fromkeys(("Memory", "Session", "SQLiteSession", "ChatMemoryBuffer", "MemorySaver"), _MEMORY),
        **dict.fromkeys(
            ("StateGraph", "Graph", "GraphBuilder", "Workflow"), "write `Agent(worker=Pipeline([Node(...)]))`"
        ),
        "create_react_agent": "write `Agent(model, tools=[...])`",
        "ReActAgent": "write `Agent(model, worker='react')`",
        "ReActAgentWorker": "write `Agent(model, worker='react')`",
        "CodeAgent": "write `Agent(model, tools=[...])`; there is no agent that writes code",
        "ToolCallingAgent": "write `Agent(model, tools=[...])`",
        "ChatMessage": "write `from treadle import Message`",
        "handoff": _HANDOFFS,
        "trace": "observers trace: `Runner(observers=[OpenTelemetry()])`, from treadle.telemetry",
        "SQLiteStore": "give the runner a path: `Runner('journal.db')`",
        "PostgresStore": "give the runner a URL: `Runner('postgresql://...')`",
        "MemoryStore": "write `Runner('memory:')`",
        "RunUsage": "write `from treadle import TaskUsage`",
        **dict.fromkeys(
            ("UsageLimitExceeded", "MaxTurnsExceeded"), f"{_LIMIT_STATE}; `Limits(steps=...)` sets it"
        ),
        **dict.fromkeys(
            ("UnexpectedModelBehavior", "AgentRunError", "AgentsException"),
            "errors are in treadle.errors: `ModelError`",
        ),
        **dict.fromkeys(("ApprovalRequired", "PermissionManager", "HumanInTheLoopMiddleware"), _APPROVAL),
        **dict.fromkeys(
            ("DeferredToolRequests", "DeferredToolResults"),
            "`result.pending` lists open requests; "
            "tools that the caller runs are `RunOptions(caller_tools=[CallerTool(...)])`",
        ),
        "BinaryContent": "write `from treadle import Image`, or File: `Image(data=..., media_type=...)`",
        "ImageUrl": "write `from treadle import Image`: `Image(url=...)`",
        "DocumentUrl": "write `from treadle import File`: `File(url=...)`",
        **dict.fromkeys(
            ("NativeOutput", "PromptedOutput"), "write `Agent(output_type=..., output_mode='native')`"
        ),
        "ToolReturn": "write `from treadle import ToolOutput`",
        **dict.fromkeys(
            ("input_guardrail", "output_guardrail", "InputGuardrail", "OutputGuardrail"),
            "write `from treadle import Guardrail`: `Agent(guardrails=[Guardrail(function, on='input')])`",
        ),
        "GuardrailFunctionOutput": "a guardrail returns `Allow()`, `Deny(reason)` or `Rewrite(content)`, from treadle",
        **dict.fromkeys(("RunHooks", "AgentHooks", "CallbackManager", "BaseCallbackHandler"), _OBSERVERS),
        "ItemHelpers": "write `result.final_text`",
        **dict.fromkeys(
            ("WebSearchTool", "WebSearch", "DuckDuckGoSearchTool"),
            "there is no search of the web: write a `@tool` with `treadle.tools.http_client`, or list an MCPServer",
        ),
        **dict.fromkeys(
            ("HostedMCPTool", "MultiServerMCPClient"), f"write `from treadle import MCPServer`; {_MCP}"
        ),
        "MCPServerStdio": "write `from treadle import MCPServer`: `MCPServer(name, command='npx', args=[...])`",
        **dict.fromkeys(
            (
                "MCPServerStreamableHttp",
                "MCPServerStreamableHTTP",
                "MCPServerSse",
                "MCPServerSSE",
                "MCPServerHTTP",
            ),
            "write `from treadle import MCPServer`: `MCPServer(name, url='https://...')`",
        ),
        "InputGuardrailTripwireTriggered": "a refusal ends the task; `result.raise_for_state()` raises "
        "`treadle.errors.GuardrailStopped`",
        "OutputGuardrailTripwireTriggered": "a refusal ends the task; `result.raise_for_state()` raises "
        "`treadle.errors.GuardrailStopped`",
        "set_default_openai_key": "set the variable OPENAI_API_KEY, or write `OpenAI(name, api_key=...)`",
        "set_tracing_disabled": "nothing is traced without `Runner(observers=[...])`",
        "enable_verbose_stdout_logging": f"{_CONSOLE}",
        "AsyncOpenAI": "write `from treadle.models import OpenAI`: `OpenAI(name, base_url=..., api_key=...)`",
        "RunState": "the store has the state of each task: `await runner.resume(task)` goes on, in any process",
        **dict.fromkeys(
            ("create_agent", "FunctionAgent", "AgentExecutor", "LLMAgent"),
            "write `Agent(model, tools=[...])`",
        ),
        **dict.fromkeys(
            ("START", "END"),
            "nodes without `after=` begin: `Pipeline([Node('a', f), Node('b', g, after='a')])`",
        ),
        **dict.fromkeys(("MessagesState", "add_messages"), _MEMORY),
        "interrupt": _QUESTION,
        "Command": "a task goes on by `runner.resume(task)`, an answer is `runner.answer(task, value=...)`; "
        "the Command of "
        "shell tools is in treadle.tools",
        "Send": "a custom worker returns several `NextStep(...)`, which run in parallel",
        **dict.fromkeys(("InMemorySaver", "InMemoryStore"), "write `Runner('memory:')`"),
        **dict.fromkeys(
            ("SqliteSaver", "AsyncSqliteSaver"), "give the runner a path: `Runner('journal.db')`"
        ),
        **dict.fromkeys(
            ("PostgresSaver", "AsyncPostgresSaver"), "give the runner a URL: `Runner('postgresql://...')`"
        ),
        "ToolNode": "an agent runs its tools itself: `Agent(model, tools=[...])`",
        **dict.fromkeys(
            ("entrypoint", "task"), "a custom worker is a function of StepContext, or an `AgentWorker`"
        ),
        **dict.fromkeys(
            ("HumanMessage", "AIMessage", "SystemMessage", "ModelMessage", "ModelRequestPart"),
            "write `from treadle import Message`: `Message('user', (Text('...'),))`",
        ),
        "ChatOpenAI": "write `from treadle.models import OpenAI`, or give the name: `Agent('openai:gpt-5.4-mini')`",
        "ChatAnthropic": "write `from treadle.models import Anthropic`, or give the name: `Agent('anthropic:...')`",
        "init_chat_model": "write the name: `Agent('openai:gpt-5.4-mini')`",
        "SummarizationMiddleware": "write `await runner.compact_thread(thread_id)`; "
        "`RunOptions(context_tokens=...)` bounds "
        "the size of a request",
        "RetryPolicy": _RETRIES,
        "CachePolicy": _CACHE,
        "get_stream_writer": "a tool reports by `ctx.progress(value)` of its ToolContext",
        "AgentWorkflow": "write `Agent(handoffs=[agent])`, or `Agent(worker=Pipeline([Node(...)]))`",
        "QueryEngineTool": "write a function with `@tool` that asks the index",
        "VectorStoreIndex": "write a function with `@tool` that asks your index",
        "Settings": "write `Runner(options=RunOptions(...))` for all runs; a model is the agent's",
        "Context": "write `from treadle import ToolContext` for tools, RunContext for instructions",
        "TokenCountingHandler": "write `result.usage`, or `await runner.usage()` for sums",
        "StructuredPlannerAgent": "write `Agent(model, worker='planner')`, or worker='plan_refine'",
        "FailSafeConfig": "write `from treadle import Limits`: `Agent(limits=Limits(...))`; failures are FailurePolicy",
        "PolicyEngine": "write `from treadle import Policy`: `Runner(policy=Policy(Rule(...)))`",
        "InteractionProvider": "write `Runner(on_pending=function)`, an async function of a Pending and a handle",
        "ToolManager": "tools are listed: `Agent(tools=[...])`",
        "Generator": "write `Agent(model, instructions=...)`, and `runner.run(agent, text)`",
        "workflow": "an agent runs: `Agent(model, tools=[...])`; "
        "fixed steps are `Agent(worker=Pipeline([...]))`",
        **dict.fromkeys(
            ("activity", "shared_task"),
            "write `from treadle import tool`: decorate the function with `@tool`",
        ),
        "Worker": _DRIVERS,
        **dict.fromkeys(("Celery", "celery"), f"write `from treadle import Runner`; {_DRIVERS}"),
        **dict.fromkeys(
            ("chain", "group", "chord"), "write `Agent(worker=Pipeline([Node(...), Node(..., after='...')]))`"
        ),
        **dict.fromkeys(
            ("Docker", "DockerSandbox", "Container"), "write `from treadle.tools import Sandbox`"
        ),
    },
}
"""Attributes by what does not have them."""

ITEMS: Final[dict[str, str]] = {
    "page": "write `page.items[0]`, or iterate over the page",
    "Task": "its steps are `await runner.get_steps(task)`, its events `runner.handle(task).events()`",
    "RunResult": "its messages are `result.messages`, its answer is `result.output`",
    "TaskStepOutput": "its calls are `out.tool_executions`",
    "Message": "its parts are `message.parts`",
}
"""Advice in place of an item by number, or a loop, of an object that is neither a list nor a dict."""

PUBLIC_MODULES: Final = (
    "treadle",
    "treadle.models",
    "treadle.tools",
    "treadle.telemetry",
    "treadle.replay",
    "treadle.server",
    "treadle.errors",
    "treadle.ports",
)
"""Where a name may be that a module does not have."""

# Advice that begins with "write NAME=" is given only where there is such an argument.
_STEPS_OF_A_RUN = "write options=RunOptions(limits=Limits(steps=...))"
_STEPS_LIMIT = "write limits=Limits(steps=...)"
_THREAD = "write thread_id='...': runs with the same one are one conversation, kept in the store"
_CONTEXT = "write context=..., which tools and instructions read as `ctx.context`"
_CONTEXT_OF_A_RUN = "the context is an argument of a run: `runner.run(agent, input, context=...)`"
_THREAD_OF_A_RUN = "the thread is an argument of a run: `runner.run(agent, input, thread_id=...)`"
_OUTPUT_TYPE = "write output_type=..."
_SUBAGENTS_ARGUMENT = "write subagents=[agent], which the model calls as tools"
_INSTRUCTIONS = "write instructions=..."
_STORE = "write Runner(store), with a path or URL first: `Runner('journal.db')`, `Runner('postgresql://...')`"
_SETTINGS = "write model_settings=ModelSettings({}=...)"
_GUARDRAILS = "write guardrails=[Guardrail(function, on='{}')]"

VERB_ARGUMENTS: Final[dict[str, str | tuple[str, ...]]] = {
    **dict.fromkeys(
        ("max_turns", "max_steps", "max_iterations", "steps", "recursion_limit"), _STEPS_OF_A_RUN
    ),
    **dict.fromkeys(("deps", "ctx", "dependencies", "context_wrapper"), _CONTEXT),
    "usage_limits": "write options=RunOptions(limits=Limits(model_calls=..., tool_calls=..., tokens=...))",
    "limits": "write options=RunOptions(limits=Limits(...))",
    "timeout": "write options=RunOptions(limits=Limits(seconds=...)), or use asyncio.timeout()",
    "max_cost": "write options=RunOptions(limits=Limits(cost=...))",
    "labels": "write options=RunOptions(labels={'name': 'value'})",
    "tags": "write options=RunOptions(labels={'name': 'value'})",
    "break_on": "write options=RunOptions(break_on=[Breakpoint(...)])",
    **dict.fromkeys(
        ("message_history", "chat_history", "history"),
        "write thread_id='...', whose messages the store keeps; others go in by "
        "`runner.import_thread(thread_id, messages)`",
    ),
    **dict.fromkeys(
        ("session", "session_id", "conversation_id", "thread", "conversation", "memory", "group_id"), _THREAD
    ),
    "config": "write thread_id='...' for the conversation, options=RunOptions(...) for the rest",
    "run_config": "write options=RunOptions(...)",
    "model": "the model is the agent's: `agent.replace(model=...)`",
    "model_settings": "write options=RunOptions(model_settings=ModelSettings(...))",
    "model_kwargs": "write options=RunOptions(model_settings=ModelSettings(...))",
    "tool_choice": "write options=RunOptions(model_settings=ModelSettings(tool_choice=...))",
    "tools": "they are the agent's: `agent.replace(tools=[...])`",
    "instructions": "they are the agent's: `agent.replace(instructions=...)`",
    "output_type": "it is the agent's: `agent.replace(output_type=...)`",
    "stream": "write `runner.run_stream(agent, input)` instead",
    **dict.fromkeys(("hooks", "callbacks", "callback"), ("write observers=[function]", _OBSERVERS)),
    "event_stream_handler": "write `runner.run_stream(agent, input)` instead",
    "verbose": ("write observers=['console']", "observers show events: `Runner(observers=['console'])`"),
    **dict.fromkeys(
        (
            "user_prompt",
            "prompt",
            "messages",
            "query",
            "text",
            "task",
            "user_input",
            "prompt_kwargs",
            "user_msg",
        ),
        ("write input=..., or the text after the agent", "write message=..., or the text after the task"),
    ),
    **dict.fromkeys(
        ("message", "comment", "feedback"),
        (
            "write input=..., or the text after the agent",
            "write reason='...'",
            "write value=...",
            "write message=..., or the text after the task",
        ),
    ),
    "toolsets": "they are the agent's: `agent.replace(tools=[...])`",
    **dict.fromkeys(
        ("previous_response_id", "auto_previous_response_id", "response_id"),
        _THREAD,
    ),
    "error_handlers": "write options=RunOptions(on_failure=FailurePolicy(...)); a model has layers: Retry, Fallback",
    **dict.fromkeys(
        ("interrupt_before", "interrupt_after"),
        "write options=RunOptions(break_on=[Breakpoint(before_tool='...')])",
    ),
    "use_cache": _CACHE,
    **dict.fromkeys(("retry_policy", "retries", "max_retries"), _RETRIES),
    **dict.fromkeys(("workflow_id", "job_id", "request_key"), "write task_id='...'"),
    **dict.fromkeys(
        ("execution_timeout", "run_timeout", "time_limit", "soft_time_limit"),
        "write options=RunOptions(limits=Limits(seconds=...))",
    ),
    **dict.fromkeys(("countdown", "eta", "start_delay", "cron_schedule", "run_at"), _LATER),
    **dict.fromkeys(("task_queue", "queue", "priority"), _DRIVERS),
    **dict.fromkeys(
        ("idempotency_key", "command_id", "message_id", "dedup_id"),
        (
            "write command_id='...': the same id again is the same command",
            "write task_id='...': a task with this id is made once, and a repeat returns it",
        ),
    ),
    "untrusted": "label the input: `untrusted(text, origin='mail')`, from treadle",
    **dict.fromkeys(("tenant", "namespace", "tenant_id"), ("write tenant='...'", _SCOPED)),
    **dict.fromkeys(("user", "user_id", "actor"), "write by='...'"),
    **dict.fromkeys(("always", "remember"), "write scope='always', or 'task' or 'thread'"),
    **dict.fromkeys(
        ("concurrency", "workers", "max_tasks"), "write at_most=..., how many tasks it drives at once"
    ),
    "starting_agent": "write agent=..., or the agent first",
    **dict.fromkeys(("id", "run_id"), "write task_id='...'"),
    "status": "write state='...'",
    "states": "write state='...'",
    "days": "write older_than=timedelta(days=...), or a number of seconds",
    "state": "write extra_state={...}",
}
"""Arguments of the verbs of a runner, a handle and `runner.sync`."""

ARGUMENTS: Final[dict[str, dict[str, str]]] = {
    "Client": {
        **dict.fromkeys(
            ("base_url", "host", "target_host", "server"), "write url='http://host:8700', or it first"
        ),
        **dict.fromkeys(("api_key", "headers", "auth", "key"), "write token='...', sent as a bearer token"),
        "timeout": "write patience=..., the seconds for which no server may answer",
        **dict.fromkeys(
            ("tenant", "namespace"), "a client of one tenant is `Client(url).scoped(tenant=...)`"
        ),
        "agent": "write agents=[agent]",
    },
    "app": {
        **dict.fromkeys(
            ("token", "api_key", "tokens"), "write auth=OneToken('...'), or auth=TokenFile(path)"
        ),
        **dict.fromkeys(("cors", "cors_origins", "allow_origins"), "write origins=['https://...']"),
        **dict.fromkeys(
            ("allowed_hosts", "host", "host_names"), "write hosts=['...'], the names by which clients call it"
        ),
        **dict.fromkeys(("agent", "agents"), "they are the runner's: `app(Runner(agents=[agent]))`"),
        **dict.fromkeys(
            ("port", "reload", "workers"), "the ASGI server has it: `uvicorn module:app`, or `treadle serve`"
        ),
        "prefix": "mount the application: `Mount('/agents', app(runner))`",
        "options": "write ceiling=RunOptions(...)",
    },
    "Principal": {
        **dict.fromkeys(("role", "roles", "permissions", "scope"), "write scopes={'read', 'run'}"),
        **dict.fromkeys(("user", "id", "subject"), "write name='...', or it first"),
    },
    "ServerLimits": {
        **dict.fromkeys(("rate_limit", "rate", "rps"), "write requests_per_second=..."),
        **dict.fromkeys(("max_body_size", "max_body_bytes", "body_size"), "write body_bytes=..."),
        "timeout": "write stream_seconds=..., body_seconds=... or send_seconds=...",
    },
    "untrusted": dict.fromkeys(("source", "label", "sender"), "write origin='mail'"),
    "deny": {"stop": "write stop=True"},
    "CallerTool": dict.fromkeys(
        ("schema", "input_schema", "args_schema"), "write parameters={...}, a JSON schema"
    ),
    "MCPServer": {
        **dict.fromkeys(
            ("tools", "allowed_tools", "tool_filter", "allowed", "include"),
            "write only=['...'], the names of the tools that the agent may call",
        ),
        "require_approval": "a policy asks: `Runner(policy=Policy(Rule('mcp', 'ask', tool='server__*')))`, or "
        "`Policy.strict()`",
        **dict.fromkeys(
            ("token", "api_key", "bearer_token", "authorization"),
            "write auth=function that returns the token",
        ),
        **dict.fromkeys(
            ("timeout", "read_timeout"), "write call_timeout=... for calls, start_timeout=... for the start"
        ),
        **dict.fromkeys(
            ("params", "config", "server_params"),
            "write MCPServer('name', command='npx', args=[...]), or url='https://...'",
        ),
        **dict.fromkeys(
            ("cache_tools_list", "tool_prefix"),
            "leave it out: tools are listed once a drive, as server__tool",
        ),
    },
    "Guardrail": {
        **dict.fromkeys(("guardrail_function", "func", "fn", "check"), "write function=..., or it first"),
        "name": "write id='...'",
        "run_in_parallel": "write blocking=True for a check before the request",
    },
    "Subprocess": {
        "timeout": "the time of a call is an option of its tool: `@tool(timeout=...)`",
        **dict.fromkeys(("memory_mb", "memory_limit", "mem_limit"), "write memory=..., in bytes"),
        **dict.fromkeys(("cpu", "cpu_limit"), "write cpu_seconds=..."),
    },
    "Policy": {"rules": _RULES},
    "Policy.strict": {
        "rules": _RULES,
        "default": "the default of a strict policy is its table; write Policy(default=...) for another",
    },
    **{verb: {"observers": _OF_ITS_DRIVER} for verb in ("submit", "create_task")},
    "result": {"timeout": "wait inside of `async with asyncio.timeout(seconds)`"},
    "Agent": {
        **dict.fromkeys(
            ("llm", "model_name", "model_client", "llm_model"),
            "write model='openai:gpt-5.4-mini', or the model first",
        ),
        **dict.fromkeys(
            ("system_prompt", "prompt", "system_message", "system", "backstory", "goal", "role"),
            _INSTRUCTIONS,
        ),
        "deps_type": "write context_type=..., the type of `context=` of a run",
        "deps": _CONTEXT_OF_A_RUN,
        "context": _CONTEXT_OF_A_RUN,
        **dict.fromkeys(("managed_agents", "agents", "sub_agents"), _SUBAGENTS_ARGUMENT),
        **dict.fromkeys(
            ("result_type", "response_format", "output_schema", "answer_data_type", "output_cls"),
            _OUTPUT_TYPE,
        ),
        "retries": "write output_retries=... for wrong answers; a tool has its own: `@tool(retries=...)`",
        **dict.fromkeys(("max_steps", "max_turns", "max_iterations"), _STEPS_LIMIT),
        **dict.fromkeys(("memory", "session", "chat_history"), _THREAD_OF_A_RUN),
        "verbose": "observers show events: `Runner(observers=['console'])`",
        **{
            name: _SETTINGS.format(name)
            for name in ("temperature", "max_tokens", "tool_choice", "parallel_tool_calls")
        },
        **dict.fromkeys(
            ("toolsets", "functions", "tool", "capabilities"),
            "write tools=[...], functions decorated with @tool",
        ),
        "mcp_servers": "write tools=[MCPServer(...)], beside functions decorated with @tool",
        "mcp": "write tools=[MCPServer(...)], beside functions decorated with @tool",
        "builtin_tools": "write tools=[...], functions decorated with @tool; a provider's own come by "
        "ModelSettings(extra={...})",
        **dict.fromkeys(
            ("history_processors", "pre_model_hook", "post_model_hook"),
            "a middleware wraps calls of tools: middleware=[function]; of the history, write "
            "RunOptions(context_tokens=...), or a layer around the model",
        ),
        **dict.fromkeys(("instrument", "tracing"), _TRACING),
        "prepare_tools": "write offer=function, which returns the tools of a request",
        "tool_retriever": "write offer=ToolIndex(...), or a function that returns the tools of a request",
        "event_stream_handler": _OBSERVERS,
        "tool_timeout": "a tool has its own: `@tool(timeout=...)`",
        "max_concurrency": "options of a run bound it: `RunOptions(max_parallel_tools=...)`",
        "tool_use_behavior": "a tool whose result is the answer is `@tool(return_direct=True)`",
        **dict.fromkeys(
            ("state_schema", "initial_state"),
            "state is an argument of a run: `runner.run(..., extra_state={...})`",
        ),
        "interrupt_on": "a tool waits for a person: `@tool(needs_approval=True)`; a Policy asks by rules",
        "allow_parallel_tool_calls": _SETTINGS.format("parallel_tool_calls"),
        "can_handoff_to": "write handoffs=[agent]",
        "max_function_calls": "write limits=Limits(tool_calls=...)",
        **dict.fromkeys(("streaming", "stream"), _STREAM),
        "fail_safe": "write limits=Limits(...); the reaction to a failure is RunOptions(on_failure=FailurePolicy(...))",
        **dict.fromkeys(("instruction_file", "prompt_file"), "write instructions=Path('...')"),
        "use_cache": _CACHE,
        "model_kwargs": "write model_settings=ModelSettings(...)",
        **{f"{content}_guardrails": _GUARDRAILS.format(content) for content in ("input", "output")},
        "checkpointer": _STORE,
        "store": _STORE,
        "handoff_description": "write description=...",
        "callbacks": _OBSERVERS,
        "hooks": _OBSERVERS,
    },
    "Runner": {
        "agent": "write agents=[agent]; `runner.run(agent, text)` needs no list",
        **dict.fromkeys(
            ("checkpointer", "db_url", "db", "database_url", "url", "path", "session_service"),
            "write store='journal.db', or 'postgresql://...'",
        ),
        **dict.fromkeys(("max_steps", "max_turns"), _STEPS_OF_A_RUN),
        "limits": "write options=RunOptions(limits=Limits(...))",
        "config": "write options=RunOptions(...)",
        "agent_worker": "the worker is the agent's: `Agent(model, worker=...)`",
        "default_tool_choice": "it is the agent's: `Agent(model_settings=ModelSettings(tool_choice=...))`",
        "policy_engine": "write policy=Policy(Rule(...)), or Policy.strict()",
        "interaction_mode": "write options=RunOptions(interaction='headless'), 'interactive' or 'external'",
        "interaction_provider": "write on_pending=function, an async function of a Pending and a handle on its task",
        **dict.fromkeys(
            ("broker", "backend", "result_backend"), "write store='postgresql://...': the store is the queue"
        ),
        "task_queue": "write agents=[...]: a process drives the tasks of the agents that it has",
        **dict.fromkeys(("tenant", "namespace"), _SCOPED),
        **dict.fromkeys(("callbacks", "hooks", "callback_manager"), "write observers=[function]"),
        "telemetry": _CONSOLE,
        "verbose": _CONSOLE,
        **dict.fromkeys(
            ("context", "ctx", "deps"),
            "write context_factory=function, or `runner.run(agent, input, context=...)`",
        ),
        **dict.fromkeys(("memory", "memory_store", "conversation_memory", "chat_history"), _THREAD_OF_A_RUN),
        "permission_manager": _APPROVAL,
        "init_task_state_kwargs": "write extra_state={...}",
    },
    **{
        provider: {
            "model": "write the name of the model first, as in `Agent(OpenAI('gpt-5.4-mini'))`",
            "model_name": "write the name of the model first, as in `Agent(OpenAI('gpt-5.4-mini'))`",
            "apikey": "write api_key=...",
            "key": "write api_key=...",
            **dict.fromkeys(("url", "api_base", "host", "endpoint"), "write base_url='http://...'"),
            **dict.fromkeys(
                ("temperature", "max_tokens", "settings"),
                "it is the agent's: `Agent(model_settings=ModelSettings(...))`",
            ),
            "timeout": "a layer bounds the waits: `Timeout(model, total=...)`, from treadle.models",
            "max_retries": "a layer retries: `Retry(model, attempts=...)`, from treadle.models",
        }
        for provider in ("OpenAI", "OpenAIChat", "Anthropic", "Google", "Ollama", "ProviderModel")
    },
    "Retry": dict.fromkeys(("retries", "max_retries", "tries"), "write attempts=..., the first one included"),
    "Timeout": dict.fromkeys(("timeout", "seconds"), "write total=..., in seconds"),
    "Cache": {"ttl": "write seconds=...", "size": "write entries=..."},
    "Node": {
        **dict.fromkeys(
            ("fn", "func", "function", "action", "agent", "tool"), "write run=..., or it after the name"
        ),
        **dict.fromkeys(("depends_on", "requires", "parents"), "write after='...'"),
        "condition": "write when=...",
        "destinations": "the nodes that follow name it: `Node('next', run, after='...')`",
        **dict.fromkeys(("retry_policy", "retry", "max_retries"), "write retries=..."),
    },
    "ToolIndex": dict.fromkeys(("k", "top_k", "limit"), "write top=..."),
    "RunOptions": {
        "sanitize_tool_output": "results of tools are untrusted and framed as data: leave it out",
        "interaction_mode": "write interaction='headless', 'interactive' or 'external'",
        **dict.fromkeys(("tenant", "namespace"), _SCOPED),
        "client_tools": "write caller_tools=[CallerTool(...)]",
        "tools": "they are the agent's: `agent.replace(tools=[...])`; tools that the caller runs are caller_tools=",
        **dict.fromkeys(("max_turns", "max_steps", "steps", "recursion_limit"), _STEPS_LIMIT),
        **{
            name: f"write limits=Limits({name}=...)"
            for name in ("cost", "tokens", "seconds", "model_calls", "tool_calls")
        },
        "timeout": "write limits=Limits(seconds=...)",
        "thread_id": _THREAD_OF_A_RUN,
        "session_id": _THREAD_OF_A_RUN,
        **dict.fromkeys(("context", "deps"), _CONTEXT_OF_A_RUN),
        **dict.fromkeys(("tags", "metadata"), "write labels={'name': 'value'}"),
        "breakpoints": "write break_on=[Breakpoint(...)]",
        "interrupt_before": "write break_on=[Breakpoint(before_tool='...')]",
        "model": "the model is the agent's: `agent.replace(model=...)`",
    },
    "Limits": {
        **dict.fromkeys(
            ("max_steps", "max_turns", "turns", "max_iterations", "recursion_limit"), "write steps=..."
        ),
        **dict.fromkeys(("timeout", "max_time", "duration", "max_wall_time_s"), "write seconds=..."),
        **dict.fromkeys(
            ("max_tokens", "total_tokens_limit", "total_tokens"),
            "write tokens=..., of input and output together",
        ),
        **dict.fromkeys(("request_limit", "requests", "max_requests"), "write model_calls=..."),
        **dict.fromkeys(("tool_calls_limit", "max_tool_calls"), "write tool_calls=..."),
        **dict.fromkeys(
            ("max_total_cost_usd", "max_cost", "cost_limit", "cost_usd", "budget"),
            "write cost=..., in US dollars",
        ),
    },
    "Breakpoint": {
        **dict.fromkeys(("tool_name", "interrupt_before", "before"), "write before_tool='...'"),
        "step": "write after_step=...",
        "after": "write after_step=...",
    },
    "ModelSettings": {
        **dict.fromkeys(("max_output_tokens", "max_completion_tokens"), "write max_tokens=..."),
        **{
            name: f"write extra={{'{name}': ...}}, by the provider's own name"
            for name in (
                "top_p",
                "top_k",
                "seed",
                "stop",
                "stop_sequences",
                "presence_penalty",
                "frequency_penalty",
            )
        },
        **{
            name: f"write extra={{'{name}': ...}}, by the provider's own name"
            for name in ("reasoning_effort", "thinking", "extra_headers", "service_tier", "logit_bias")
        },
        "timeout": "write limits=Limits(seconds=...) of the agent, or `@tool(timeout=...)` of a tool",
    },
    "Sandbox": {
        **dict.fromkeys(
            ("hosts", "allowed_hosts", "domains", "allow_hosts"),
            "a sandbox has all of the network or none: leave it out, and let another tool ask some hosts "
            "(treadle.tools.http_client)",
        ),
        **dict.fromkeys(("allow_network", "net", "internet"), "write network=True"),
        **dict.fromkeys(("workdir", "working_dir", "cwd"), "write folder='...'"),
        **dict.fromkeys(("paths", "mounts", "volumes"), "write read=['...'], or write=['...']"),
        "timeout": "write cpu_seconds=...; the time of a call is an option of its tool, `@tool(timeout=...)`",
    },
    **{
        adapter: {
            "needs_approval": "a policy asks: `Runner(policy=Policy(Rule('pay', 'ask', tool='pay')))`, or "
            "`Policy.strict()`"
        }
        for adapter in ("langchain_tools", "llamaindex_tools", "openapi_tools")
    },
    "@tool": {
        **dict.fromkeys(
            ("takes_ctx", "bind"), "annotate a parameter as ToolContext, which the call fills in"
        ),
        "prepare": "the agent chooses: `Agent(offer=function)`",
        **dict.fromkeys(("autoretry_for", "retry_policy", "retry_backoff", "retry"), "write retries=..."),
        "rate_limit": "a rate_limit is for models: `RateLimit(model, ...)`; a tool waits by a middleware",
        **dict.fromkeys(
            (
                "time_limit",
                "soft_time_limit",
                "start_to_close_timeout",
                "schedule_to_close_timeout",
                "heartbeat_timeout",
            ),
            "write timeout=..., in seconds",
        ),
        **dict.fromkeys(("acks_late", "idempotency"), "write idempotent=True if a second start does no harm"),
        "untrusted": "results are untrusted: leave it out; trusted=True is for results that no stranger can write",
        **dict.fromkeys(
            ("sandbox", "container", "docker", "isolated"), "write host=Sandbox(...), from treadle.tools"
        ),
        **dict.fromkeys(("process", "subprocess"), "write host=Subprocess(), from treadle.tools"),
        "name_override": "write name='...'",
        "description_override": "write description='...'",
        **dict.fromkeys(
            ("requires_approval", "approval", "approval_mode"), "write needs_approval=True, or a function"
        ),
        **dict.fromkeys(
            ("args_schema", "schema", "parameters"),
            "the schema comes from the function: annotate its parameters",
        ),
        **dict.fromkeys(
            ("strict", "strict_mode"), "arguments are always checked against the schema: leave it out"
        ),
        **dict.fromkeys(
            ("prehooks", "posthooks", "before", "after", "hooks", "middlewares"),
            "write middleware=[function], an async function (call, next)",
        ),
        **dict.fromkeys(("secret_scope", "credentials"), "write secrets=('name',) and `ctx.secret('name')`"),
        "sequential": "write `RunOptions(max_parallel_tools=1)`",
        "max_retries": "write retries=...",
        "async_": "leave it out: an async function is awaited, another one runs in a thread",
    },
}
"""Arguments of constructors and of single verbs, and options of `@tool`."""

EXAMPLES: Final[dict[str, str]] = {
    "Client": "write Client('http://127.0.0.1:8700', token=...)",
    "app": "write treadle.server.app(runner, auth=...)",
    "Principal": "write Principal('ann', scopes={'read', 'run'})",
    "Guardrail": "write Guardrail(function, on='input', id='...')",
    "Message": "write Message('user', (Text('...'),)), with parts=",
    "Task": "a runner makes tasks: `await runner.create_task(agent, text)`",
    "RunHandle": "write `runner.handle(task)`",
    "MCPServer": "write MCPServer('name', command='npx', args=[...]), or url='https://...'",
    "Fallback": "write Fallback([first, second])",
    **{
        provider: f"write {provider}('the name of the model')"
        for provider in ("OpenAI", "OpenAIChat", "Anthropic", "Google", "Ollama")
    },
    "untrusted": "write untrusted(text, origin='mail')",
    "Agent": "write Agent('openai:gpt-5.4-mini', name=..., instructions=...)",
    "Sandbox": "write Sandbox(read=['data'], folder='scratch')",
    "python_tool": "write python_tool(host=Sandbox(folder='scratch'))",
    "shell_tool": "write shell_tool(host=Sandbox(folder='scratch'))",
    "command_tool": "write command_tool(Command('ls'), host=Sandbox(folder='scratch'))",
}
"""How a call is written, where its parameters alone do not show it."""
