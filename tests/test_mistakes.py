"""What people try who come from other libraries, who guess, or who mistake a name, and what the error must name.

Each row is a line of code as a newcomer writes it, the class of the error, and words that its message must have: what
is wrong, and the name that is right here. The rows were written before the messages were read. `test_misuse.py` has
mistakes that need a task in a certain state.
"""

import ast
import asyncio
import inspect
import sys
import traceback
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pydantic_ai
import pytest

import treadle
from tests.cast import add, calculator, sayer
from treadle import (
    Agent,
    Client,
    RunContext,
    Runner,
    ScriptedModel,
    ToolContext,
    models,
    replay,
    server,
    tool,
    tools,
)
from treadle import errors as err
from treadle.cli.main import main
from treadle.models import call
from treadle.ports import Notice
from treadle.stores.memory import MemoryStore

TABLE: list[tuple[str, type[Exception], tuple[str, ...]]] = []


def guesses(error: type[Exception], *rows: tuple[str, ...]) -> None:
    """Enter rows of one class of error: the code, then what the message must name."""
    TABLE.extend((row[0], error, row[1:]) for row in rows)


# ------------------------------------------------------------------------------------------ Pydantic AI

guesses(
    AttributeError,
    ("agent.run_stream_sync('hi')", "runner.sync.run_stream("),
    ("agent.deps_type", "agent.context_type"),
    ("agent.tools.append(add)", "agent.replace(tools="),
    ("agent.output_type = int", "agent.replace(output_type="),
    ("agent.is_model_request_node(1)", "runner.run_step("),
    ("agent.to_a2a()", "treadle serve"),
    ("agent.to_ag_ui()", "treadle serve"),
    ("agent.set_mcp_sampling_model()", "MCPServer("),
    ("agent.run_mcp_servers()", "tools=[MCPServer("),
    ("runner.stream_resume('t')", "runner.run_stream(agent, text, task_id="),
    ("runner.resume_stream('t')", "runner.run_stream(agent, text, task_id="),
    ("agent.instrument_all()", "OpenTelemetry"),
    ("agent.event_stream_handler", "observers="),
    ("result.all_messages_json()", "result.messages"),
    ("result.new_messages_json()", "result.messages"),
    ("result.timestamp()", "result.ended_at"),
    ("result.usage.request_tokens", "usage.input_tokens"),
)
guesses(
    TypeError,
    ("@agent.instructions\ndef f(ctx): return 'x'", "Agent(instructions="),
    ("result.usage()", "result.usage"),
)
guesses(
    err.WrongArguments,
    ("Agent(M, builtin_tools=[])", "tools=", "MCPServer"),
    ("Agent(M, native_tools=[])", "tools=", "MCPServer"),
    ("Agent(M, capabilities=[])", "guardrails=", "middleware="),
    ("Agent(M, end_strategy='early')", "leave it out"),
    ("Agent(M, output_validator=len)", "output_type=", "on='output'"),
    ("Limits(input_tokens_limit=3)", "tokens=", "max_tokens="),
    ("Agent(M, history_processors=[])", "middleware="),
    ("Agent(M, instrument=True)", "OpenTelemetry"),
    ("Agent(M, prepare_tools=print)", "offer="),
    ("Agent(M, event_stream_handler=print)", "observers="),
    ("Agent(M, tool_timeout=3)", "@tool(timeout="),
    ("Agent(M, max_concurrency=3)", "max_parallel_tools="),
    ("runner.run(agent, 'x', event_stream_handler=print)", "run_stream"),
    ("runner.run(agent, 'x', toolsets=[])", "agent.replace(tools="),
    ("runner.run(agent, 'x', infer_name=False)", "run has no argument 'infer_name'"),
)
guesses(
    ImportError,
    ("from treadle import RunUsage", "TaskUsage"),
    ("from treadle import UsageLimitExceeded", "'degraded'", "result.degraded_reasons", "on_limit="),
    ("from treadle import PromptedOutput", "output_mode='prompt'"),
    ("from treadle import TextOutput", "@tool(return_direct=True)"),
    ("from treadle import CallDeferred", "@tool(background=True)", "runner.complete("),
    ("from treadle import ToolApproved", "runner.approve("),
    ("from treadle import ToolDenied", "runner.deny("),
    ("from treadle import FunctionToolset", "Agent(tools=[...])", "PydanticAIToolset"),
    ("from treadle import ModelMessagesTypeAdapter", "runner.import_thread("),
    ("from treadle import capture_run_messages", "result.messages"),
    ("from treadle import evals", "result.output"),
    ("from treadle import UnexpectedModelBehavior", "treadle.errors"),
    ("from treadle import ApprovalRequired", "needs_approval=True"),
    ("from treadle import DeferredToolRequests", "result.pending"),
    ("from treadle import BinaryContent", "Image"),
    ("from treadle import ImageUrl", "Image(url="),
    ("from treadle import NativeOutput", "output_mode='native'"),
    ("from treadle import ToolReturn", "ToolOutput"),
    ("from treadle.models import infer_model", "Agent('openai:"),
)

# ------------------------------------------------------------------------------------- OpenAI Agents SDK

guesses(
    AttributeError,
    ("Runner.run_streamed(agent, 'hi')", "run_stream("),
    ("result.raw_responses", "get_events("),
    ("result.to_state()", "runner.resume("),
    ("result.context_wrapper", "context="),
    ("result.last_response_id", "thread_id"),
    ("result.input_guardrail_results", "result.error"),
    ("result.is_complete", "result.state"),
    ("result.stream_events()", "runner.run_stream("),
    ("agent.get_all_tools()", "agent.tools"),
    ("agent.get_system_prompt(1)", "agent.instructions"),
    ("agent.mcp_servers", "agent.tools"),
)
guesses(
    err.WrongArguments,
    ("Agent(M, tool_use_behavior='stop_on_first_tool')", "return_direct=True"),
    ("Agent(M, output_guardrails=[])", "guardrails=[Guardrail("),
    ("Agent(M, hooks=print)", "observers="),
    ("Agent(M, tool_choice='required')", "ModelSettings(tool_choice="),
    ("Agent(M, handoff_description='x')", "description="),
    ("runner.run(agent, 'x', previous_response_id='r')", "thread_id="),
    ("runner.run(agent, 'x', error_handlers={})", "on_failure="),
    ("runner.run(agent, 'x', auto_previous_response_id=True)", "thread_id="),
    ("runner.run(starting_agent=agent, input='x')", "agent="),
    ("Guardrail('id', lambda request: None)", "on="),
    ("Guardrail(guardrail_function=print)", "function"),
)
guesses(
    ImportError,
    ("from treadle import input_guardrail", "Guardrail"),
    ("from treadle import GuardrailFunctionOutput", "Deny"),
    ("from treadle import RunHooks", "observers="),
    ("from treadle import AgentHooks", "observers="),
    ("from treadle import ItemHelpers", "result.final_text"),
    ("from treadle import WebSearchTool", "http_client"),
    ("from treadle import HostedMCPTool", "MCPServer"),
    ("from treadle import MCPServerStdio", "MCPServer(", "command="),
    ("from treadle import MaxTurnsExceeded", "Limits"),
    ("from treadle import InputGuardrailTripwireTriggered", "GuardrailStopped"),
    ("from treadle import set_default_openai_key", "OPENAI_API_KEY"),
    ("from treadle import set_tracing_disabled", "observers="),
    ("from treadle import enable_verbose_stdout_logging", "Console"),
    ("from treadle import AsyncOpenAI", "treadle.models"),
    ("from treadle import RunState", "runner.resume("),
)

# ----------------------------------------------------------------------------------- LangGraph, LangChain

guesses(
    AttributeError,
    ("agent.compile(checkpointer=1)", "Runner("),
    ("agent.get_graph()", "Pipeline"),
    ("agent.with_structured_output(int)", "output_type="),
    ("agent.bind_tools([])", "agent.replace(tools="),
    ("agent.batch(['a'])", "runner.start("),
    ("agent.with_retry()", "Retry("),
    ("agent.get_state({})", "runner.get_task("),
    ("agent.update_state({}, {})", "runner.fork("),
    ("runner.get_tuple({})", "runner.get_task("),
    ("runner.stream_mode", "runner.run_stream("),
    ("Pipeline([Node('a', 'x')]).add_node('b', print)", "Pipeline([Node("),
    ("Pipeline([Node('a', 'x')]).add_edge('a', 'b')", "after="),
    ("Pipeline([Node('a', 'x')]).add_conditional_edges('a', print)", "when="),
    ("Pipeline([Node('a', 'x')]).compile()", "worker="),
)
guesses(
    err.WrongArguments,
    ("runner.run_stream(agent, 'x', stream_mode='values')", "run_stream has no argument 'stream_mode'"),
    ("runner.run(agent, 'x', interrupt_before=['add'])", "break_on=[Breakpoint("),
    ("runner.run(agent, 'x', durability='sync')", "run has no argument 'durability'"),
    ("runner.run(agent, 'x', recursion_limit=3)", "Limits(steps="),
    ("Node('a', print, retry_policy=1)", "Node has no argument 'retry_policy'"),
    ("Node('a', print, destinations=())", "after="),
    ("Agent(M, response_format=int)", "output_type="),
    ("Agent(M, state_schema=dict)", "extra_state"),
    ("Agent(M, pre_model_hook=print)", "middleware"),
    ("Agent(M, interrupt_on={'add': True})", "needs_approval=True"),
)
guesses(
    err.ConfigurationError,
    ("runner.run(agent, {'messages': [('user', 'hi')]})", "input must be text"),
    ("runner.run(agent, None)", "runner.resume("),
    ("runner.create_task('hi')", "create_task(agent, input"),
    ("Agent(M, tools=[print])", "@tool"),
)
guesses(
    ImportError,
    ("from treadle import create_agent", "Agent("),
    ("from treadle import StateGraph", "Pipeline("),
    ("from treadle import START", "after="),
    ("from treadle import MessagesState", "thread_id="),
    ("from treadle import interrupt", "ctx.ask("),
    ("from treadle import Command", "runner.resume("),
    ("from treadle import Send", "NextStep"),
    ("from treadle import InMemorySaver", "Runner('memory:')"),
    ("from treadle import SqliteSaver", "Runner('journal.db')"),
    ("from treadle import PostgresSaver", "Runner('postgresql://"),
    ("from treadle import ToolNode", "Agent(", "tools="),
    ("from treadle import entrypoint", "AgentWorker"),
    ("from treadle import HumanMessage", "Message"),
    ("from treadle import ChatOpenAI", "treadle.models", "OpenAI"),
    ("from treadle import init_chat_model", "Agent('openai:"),
    ("from treadle import SummarizationMiddleware", "compact_thread"),
    ("from treadle import RetryPolicy", "Retry"),
    ("from treadle import get_stream_writer", "ctx.progress("),
)

# -------------------------------------------------------------------------------------------- LlamaIndex

guesses(
    AttributeError,
    ("Agent.from_tools([add])", "Agent('openai:", "tools="),
    ("Agent.from_llm([add], llm=M)", "Agent('openai:", "worker="),
    ("Agent.from_defaults()", "Agent('openai:"),
    ("runner.chat_repl()", "treadle chat"),
    ("runner.agent_worker", "agent.worker"),
    ("runner.get_completed_step(task, 's1')", "runner.get_step("),
    ("runner.get_upcoming_step(task)", "get_upcoming_steps"),
    ("runner.delete_task_on_finish", "delete_task_on_finish"),
    ("runner.get_completed_tasks()", "list_tasks(state="),
    ("task.memory", "thread_id"),
    ("task.callback_manager", "observers="),
)
guesses(
    err.WrongArguments,
    ("Runner(agent_worker=1)", "worker="),
    ("Runner(default_tool_choice='auto')", "ModelSettings(tool_choice="),
    ("Agent(M, allow_parallel_tool_calls=False)", "parallel_tool_calls="),
    ("Agent(M, initial_state={})", "extra_state="),
    ("Agent(M, can_handoff_to=['a'])", "handoffs="),
    ("Agent(M, tool_retriever=1)", "ToolIndex"),
    ("Agent(M, max_function_calls=3)", "Limits(tool_calls="),
    ("Agent(M, streaming=True)", "run_stream"),
    ("runner.run_step(task, mode='wait')", "run_step has no argument 'mode'"),
    ("runner.undo_step(task, 's1')", "to="),
)
guesses(
    ImportError,
    ("from treadle import FunctionAgent", "Agent("),
    ("from treadle import AgentWorkflow", "handoffs="),
    ("from treadle import QueryEngineTool", "llamaindex_tools("),
    ("from treadle import Settings", "RunOptions"),
    ("from treadle import VectorStoreIndex", "@tool"),
    ("from treadle import Context", "ToolContext"),
    ("from treadle import CallbackManager", "observers="),
    ("from treadle import TokenCountingHandler", "result.usage"),
    ("from treadle import StructuredPlannerAgent", "worker='plan_refine'"),
)

# ------------------------------------------------------------------------------------------ AFK, AdalFlow

guesses(
    err.WrongArguments,
    ("Runner(policy_engine=1)", "policy="),
    ("Runner(interaction_mode='headless')", "RunOptions(interaction="),
    ("Runner(interaction_provider=1)", "on_pending="),
    ("Runner(telemetry='console')", "observers=['console']"),
    ("Agent(M, fail_safe=1)", "limits="),
    ("Agent(M, instruction_file='a.md')", "instructions=Path("),
    ("RunOptions(sanitize_tool_output=True)", "untrusted"),
    ("RunOptions(interaction_mode='headless')", "interaction="),
    ("Limits(max_wall_time_s=3)", "seconds="),
    ("Agent(M, use_cache=True)", "Cache("),
    ("Agent(M, model_kwargs={})", "model_settings=ModelSettings("),
    ("runner.run(agent, prompt_kwargs={'input_str': 'x'})", "input="),
    ("runner.run(agent, 'x', use_cache=True)", "Cache("),
)
guesses(
    AttributeError,
    ("result.step_history", "get_completed_steps("),
    ("result.steps_history", "get_completed_steps("),
    ("result.state_snapshot", "result.state"),
    ("result.requested_model", "agent.model"),
    ("runner.reset_cancellation()", "runner.resume("),
    ("runner.policy_engine", "policy="),
    ("runner.add_permission_manager(1)", "needs_approval=True"),
    ("runner.interaction_mode", "interaction="),
    ("handle.await_result()", "await handle.result()"),
)
guesses(
    ImportError,
    ("from treadle import FailSafeConfig", "Limits"),
    ("from treadle import PolicyEngine", "Policy"),
    ("from treadle import InteractionProvider", "on_pending="),
    ("from treadle import PermissionManager", "needs_approval=True"),
    ("from treadle import ToolManager", "Agent(tools="),
    ("from treadle import Generator", "Agent("),
    ("from treadle.telemetry import Otel", "OpenTelemetry"),
)

# --------------------------------------------------------------------------------------- Temporal, Celery

guesses(
    AttributeError,
    ("Client.connect('localhost:7233')", "Client("),
    ("client.start_workflow('x')", "client.start("),
    ("client.get_workflow_handle('x')", "client.handle("),
    ("client.list_workflows()", "client.list_tasks("),
    ("runner.execute_activity(add, 1)", "@tool"),
    ("runner.execute_workflow(agent, 'x')", "runner.run("),
    ("runner.signal(task, 'x')", "runner.send("),
    ("runner.terminate(task)", "runner.cancel("),
    ("runner.schedule(agent, 'x')", "ctx.sleep("),
    ("handle.signal('x')", "handle.send("),
    ("handle.query('x')", "get_task("),
    ("handle.update('x')", "handle.send("),
    ("handle.fetch_history()", "handle.events()"),
    ("runner.query(task, 'x')", "runner.get_task("),
    ("runner.describe(task)", "runner.get_task("),
    ("runner.reset(task)", "runner.fork(task, at="),
    ("handle.describe()", "get_task("),
    ("handle.terminate()", "handle.cancel("),
    ("handle.get(timeout=3)", "await handle.result()"),
    ("handle.ready()", "driven"),
    ("handle.successful()", "state"),
    ("handle.revoke(terminate=True)", "handle.cancel("),
    ("handle.join()", "await handle.result()"),
    ("add.delay(1, 2)", "runner.start("),
    ("add.apply_async((1, 2))", "runner.start("),
    ("add.s(1, 2)", "Pipeline"),
    ("runner.send_task('x')", "runner.submit("),
    ("runner.enqueue(agent, 'x')", "runner.submit("),
    ("runner.AsyncResult('x')", "runner.handle("),
    ("runner.start_worker()", "begin_adopting"),
    ("runner.worker_main()", "treadle drive"),
)
guesses(
    err.WrongArguments,
    ("runner.run(agent, 'x', workflow_id='a')", "task_id="),
    ("runner.run(agent, 'x', task_queue='a')", "run has no argument 'task_queue'"),
    ("runner.run(agent, 'x', execution_timeout=3)", "Limits(seconds="),
    ("runner.run(agent, 'x', retry_policy=1)", "Retry("),
    ("runner.start(agent, 'x', countdown=3)", "ctx.sleep("),
    ("Runner(broker='redis://')", "store="),
    ("Runner(backend='redis://')", "store="),
    ("Runner(task_queue='a')", "agents="),
    ("runner.begin_adopting(concurrency=4)", "at_most="),
    ("Client('http://h', namespace='a')", "scoped(tenant="),
)
guesses(
    ImportError,
    ("from treadle import workflow", "Agent("),
    ("from treadle import activity", "@tool"),
    ("from treadle import Worker", "begin_adopting"),
    ("from treadle import Celery", "Runner"),
    ("from treadle import shared_task", "@tool"),
    ("from treadle import chain", "Pipeline"),
)

# -------------------------------------------------------------------- command ids, untrusted content, tenants

guesses(
    err.WrongArguments,
    ("runner.cancel(task, idempotency_key='a')", "command_id="),
    ("runner.send(task, 'x', message_id='a')", "command_id="),
    ("runner.approve(task, request='a')", "request_id"),
    ("runner.run(agent, 'x', command_id='a')", "task_id="),
    ("runner.create_task(agent, 'x', idempotency_key='a')", "task_id="),
    ("runner.fork(task, command_id='a')", "task_id="),
    ("untrusted('x')", "untrusted needs origin"),
    ("untrusted('x', 'mail')", "origin="),
    ("untrusted('x', source='mail')", "origin="),
    ("runner.run(agent, 'x', untrusted=True)", "untrusted(text, origin="),
    ("runner.scoped('a')", "tenant="),
    ("runner.scoped(user='a')", "by="),
    ("runner.scoped(namespace='a')", "tenant="),
    ("Runner(tenant='a')", "runner.scoped(tenant="),
    ("runner.run(agent, 'x', tenant='a')", "runner.scoped(tenant="),
    ("runner.list_tasks(tenant='a')", "runner.scoped(tenant="),
    ("RunOptions(tenant='a')", "runner.scoped(tenant="),
    ("runner.approve(task, always=True)", "scope="),
    ("runner.deny(task, message='no')", "reason="),
)
guesses(
    err.ConfigurationError,
    ("untrusted(3, origin='mail')", "text"),
    ("untrusted('x', origin='')", "origin"),
    ("runner.cancel(task, command_id=7)", "command_id must be"),
    ("runner.send(task, 'x', command_id='')", "command_id must be"),
    ("runner.scoped(tenant=7)", "tenant must be"),
    ("runner.scoped(tenant='a\"b')", "no quotes"),
    ("runner.approve(task, scope='forever')", "always"),
)
guesses(
    AttributeError,
    ("runner.tenant('a')", "runner.scoped(tenant="),
    ("runner.for_tenant('a')", "runner.scoped(tenant="),
    ("runner.reject(task)", "runner.deny("),
    ("runner.respond(task, 'x')", "runner.answer("),
)

# ------------------------------------------------------------------------------------- a client, a server

guesses(
    err.WrongArguments,
    ("Client()", "Client('http://"),
    ("Client(base_url='http://h')", "url"),
    ("Client('http://h', api_key='k')", "token="),
    ("Client('http://h', timeout=3)", "patience="),
    ("Client('http://h', tenant='a')", "scoped(tenant="),
    ("Client('http://h', headers={})", "token="),
    ("server.app()", "server.app(runner"),
    ("server.app(runner, token='k')", "auth="),
    ("server.app(runner, cors=['*'])", "origins="),
    ("server.app(runner, allowed_hosts=['h'])", "hosts="),
    ("server.app(runner, agents=[agent])", "Runner(agents="),
    ("server.app(runner, port=8000)", "treadle serve"),
    ("server.Principal()", "name"),
    ("server.Principal('a', role='admin')", "scopes="),
    ("server.ServerLimits(rate_limit=5)", "requests_per_second="),
    ("server.ServerLimits(max_body_size=5)", "body_bytes="),
)
guesses(
    err.ConfigurationError,
    ("Client('localhost:8700')", "http://localhost:8700"),
    ("Client('journal.db')", "http://"),
    ("Client(runner)", "url"),
    ("Client('http://127.0.0.1:1', token=7)", "token"),
    ("server.app(agent)", "Runner(agents=[agent])"),
    ("server.app(runner, auth='secret')", "OneToken("),
    ("server.app(runner, hosts='h')", "hosts must be a list"),
    ("server.Principal('a', scopes='read')", "scopes"),
    ("server.Principal('a', scopes=['write'])", "edit"),
)
guesses(
    AttributeError,
    ("client.close()", "aclose()"),
    ("client.runs", "client.list_tasks("),
    ("client.threads", "client.list_threads("),
    ("client.create_run('x')", "client.start("),
    ("server.serve(runner)", "treadle serve"),
    ("server.create_app(runner)", "app("),
    ("server.app(runner).run()", "treadle serve"),
)
guesses(
    err.MisusedVerb,
    ("client.run(agent, 'x').final_text", "await client.run("),
    ("Client.run(agent, 'x')", "Client(url)"),
    ("with client: pass", "async with"),
    ("replay.load('math.journal').steps", "await load("),
)

# ----------------------------------------------------------------------------- caller tools, replay, MCP, hosts

guesses(
    err.ConfigurationError,
    ("RunOptions(caller_tools=[add])", "CallerTool("),
    ("RunOptions(caller_tools=CallerTool('x'))", "caller_tools=[CallerTool("),
    ("CallerTool('a b')", "'a b'"),
    ("CallerTool(add)", "name"),
    ("CallerTool('x', 'd', 'no schema')", "parameters"),
    ("Agent(M, tools=[CallerTool('x')])", "RunOptions(caller_tools="),
    ("MCPServer('x')", "command=", "url="),
    ("MCPServer('x', command='npx', url='http://h')", "command", "url"),
    ("MCPServer('x', command=['npx', '-y'])", "args="),
    ("MCPServer('x', command='npx -y server')", "args="),
    ("MCPServer('x', command='npx', args='-y')", "args must be a list"),
    ("MCPServer('x', url='localhost:3000')", "http://localhost:3000"),
    ("MCPServer('x', command='npx', transport='stdio')", "transport", "command"),
    ("Agent(M, tools=MCPServer('x', command='npx'))", "tools must be a list"),
    ("Subprocess(memory='4G')", "memory", "bytes"),
    ("Subprocess(env={'A': 'b'})", "env", "names"),
    ("Sandbox(read='data')", "read=['data']"),
    ("http_client('https://example.org')", "example.org"),
    ("ReplayModel('journal.db')", "events"),
    ("replay.assert_replays('gone.journal', 'math')", "Agent"),
)
guesses(
    err.WrongArguments,
    ("CallerTool()", "name"),
    ("CallerTool('x', schema={})", "parameters="),
    ("CallerTool('x', input_schema={})", "parameters="),
    ("RunOptions(client_tools=[])", "caller_tools="),
    ("RunOptions(tools=[])", "agent.replace(tools="),
    ("MCPServer(tools=['a'])", "only="),
    ("MCPServer('x', command='npx', allowed_tools=['a'])", "only="),
    ("MCPServer('x', command='npx', tool_filter=print)", "only="),
    ("MCPServer('x', url='http://h', require_approval='always')", "Policy"),
    ("MCPServer('x', url='http://h', token='k')", "auth="),
    ("MCPServer('x', command='npx', timeout=3)", "call_timeout="),
    ("MCPServer(params={'command': 'npx'})", "command="),
    ("Subprocess(timeout=3)", "@tool(timeout="),
    ("Subprocess(memory_mb=3)", "memory="),
    ("Sandbox(image='python:3')", "Sandbox has no argument 'image'"),
    ("call('add', {'a': 1})", "call('add', a=1)"),
)
guesses(
    AttributeError,
    ("MCPServer('x', command='npx').list_tools()", "Agent(tools=["),
    ("MCPServer('x', command='npx').call_tool('a', {})", "Agent(tools=["),
    ("runner.submit_tool_outputs(task, {})", "runner.complete("),
    ("runner.replay(task)", "treadle.replay", "runner.fork("),
    ("pending.id", "request_id"),
    ("pending.tool_call_id", "request_id"),
    ("pending.tool_name", "pending.tool"),
    ("pending.args", "pending.arguments"),
    ("pending.approve()", "runner.approve("),
)
guesses(
    ImportError,
    ("from treadle import call", "treadle.models"),
    ("from treadle import Subprocess", "treadle.tools"),
    ("from treadle import Docker", "Sandbox"),
    ("from treadle.tools import WebSearch", "http_client"),
    ("from treadle.replay import Replay", "replay"),
)

# ------------------------------------------------------------------------------- await, call, len and change

guesses(
    TypeError,
    ("await handle", "await handle.result()"),
    ("await runner.sync.run(agent, 'x')", "runner.run("),
    ("await runner.run_sync(agent, 'x')", "runner.run("),
    ("len(page)", "page.items"),
    ("agent('hi')", "runner.run("),
    ("runner('hi')", "runner.run("),
    ("runner.sync(agent, 'hi')", "runner.sync.run("),
    ("for step in task: pass", "get_steps("),
    ("for message in result: pass", "result.messages"),
    ("for event in handle: pass", "handle.events()"),
    ("async for event in handle: pass", "handle.events()"),
    ("Task('id')", "runner.create_task("),
    ("RunHandle('id')", "runner.handle("),
)
guesses(
    AttributeError,
    ("runner.agents.append(agent)", "Runner(agents="),
    ("runner.register(agent)", "Runner(agents="),
    ("result.messages.append('hi')", "thread_id=result.thread_id"),
    ("runner.sync.result(result.task_id).messages.pop()", "thread_id=result.thread_id"),
    ("tool.from_defaults(plain)", "@tool", "tool(function"),
    ("tool.from_function(plain, name='p')", "@tool", "tool(function"),
    ("add.from_defaults", "@tool"),
    ("Limits(steps=3).steps = 4", "replace"),
)
guesses(
    err.ToolDefinitionError,
    ("@tool\ndef f(ctx, a: int) -> int: return a", "'ctx'", "ToolContext"),
    ("tool(takes_ctx=True)(plain)", "ToolContext"),
    ("tool(prepare=print)(plain)", "offer="),
    ("tool(docstring_format='google')(plain)", "leave it out"),
    ("tool(bind=True)(plain)", "ToolContext"),
    ("tool(autoretry_for=(OSError,))(plain)", "retries="),
    ("tool(rate_limit='10/m')(plain)", "rate_limit"),
    ("tool(time_limit=3)(plain)", "timeout="),
    ("tool(start_to_close_timeout=3)(plain)", "timeout="),
    ("tool(heartbeat_timeout=3)(plain)", "timeout=", "ctx.progress("),
    ("tool(max_attempts=3)(plain)", "retries="),
    ("tool(task_queue='x')(plain)", "treadle drive --agent"),
    ("tool(acks_late=True)(plain)", "idempotent="),
    ("tool(retry_policy=1)(plain)", "retries="),
    ("tool(untrusted=True)(plain)", "trusted="),
    ("tool(sandbox=True)(plain)", "host=Sandbox("),
    ("tool(container='x')(plain)", "host=Sandbox("),
    ("tool(host='docker')(plain)", "Sandbox("),
    ("tool(host=Subprocess)(plain)", "Subprocess()"),
)

# ------------------------------------------------------------------------------------------ a command line

guesses(
    SystemExit,
    ("$ treadle run app.py Hi", "app:AGENT"),
    ("$ treadle start app:agent Hi", "run"),
    ("$ treadle list", "tasks"),
    ("$ treadle worker", "drive"),
    ("$ treadle logs last", "show"),
    ("$ treadle status", "show"),
    ("$ treadle kill last", "cancel"),
    ("$ treadle rewind last", "undo"),
    ("$ treadle undo last --to-step 1", "--to"),
    ("$ treadle serve app:agent --reload", "--reload"),
)


# ------------------------------------------------------------------------- methods of other systems' agents

guesses(
    AttributeError,
    ("agent.run('hi')", "Agent has no 'run'", "await runner.run(agent, "),
    ("agent.run_sync('hi')", "runner.run_sync(agent, "),
    ("agent.run_stream('hi')", "runner.run_stream(agent, "),
    ("agent.iter('hi')", "runner.run_step("),
    ("agent.chat('hi')", "runner.run_sync(agent, ", "thread_id="),
    ("agent.achat('hi')", "await runner.run(agent, "),
    ("agent.query('hi')", "runner.run_sync(agent, "),
    ("agent.invoke({'messages': []})", "runner.run_sync(agent, "),
    ("agent.ainvoke({})", "await runner.run(agent, "),
    ("agent.stream({})", "runner.run_stream(agent, "),
    ("agent.call('hi')", "runner.run_sync(agent, "),
    ("agent.tool(len)", "@tool", "Agent(tools=[...])"),
    ("agent.tool_plain(len)", "Agent(tools=[...])"),
    ("agent.system_prompt(len)", "Agent(instructions="),
    ("agent.output_validator(len)", "output_type="),
    ("agent.override(model='test')", "agent.replace(model="),
    ("agent.clone(name='b')", "agent.replace("),
    ("agent.as_tool()", "Agent(subagents=[agent])"),
    ("agent.create_task('hi')", "runner.create_task(agent, "),
    ("agent.reset()", "runner.delete_thread("),
    ("agent.memory", "thread_id=", "runner.get_thread("),
    ("agent.to_web()", "treadle run"),
    ("agent.llm", "agent.model"),
    ("agent.intructions", "'instructions'"),
    ("agent.frobnicate", "Agent", "'frobnicate'"),
)

# -------------------------------------------------------------------------------- arguments of an agent

guesses(
    err.WrongArguments,
    ("Agent(llm=M)", "Agent has no argument 'llm'", "model="),
    ("Agent(M, system_prompt='Hi.')", "instructions="),
    ("Agent(M, prompt='Hi.')", "instructions="),
    ("Agent(M, deps_type=int)", "context_type="),
    ("Agent(M, managed_agents=[])", "subagents="),
    ("Agent(M, result_type=int)", "output_type="),
    ("Agent(M, retries=3)", "output_retries=", "@tool(retries="),
    ("Agent(M, max_steps=3)", "limits=Limits(steps="),
    ("Agent(M, max_iterations=3)", "limits=Limits(steps="),
    ("Agent(M, memory=[])", "thread_id="),
    ("Agent(M, verbose=True)", "Runner(observers=['console'])"),
    ("Agent(M, temperature=0)", "ModelSettings(temperature="),
    ("Agent(M, toolsets=[])", "tools="),
    ("Agent(M, mcp_servers=[])", "tools=", "@tool"),
    ("Agent(M, input_guardrails=[])", "guardrails"),
    ("Agent(M, context=3)", "runner.run(agent, input, context="),
    ("Agent(M, checkpointer=3)", "Runner(store"),
    ("Agent(M, 'Be nice.')", "'Be nice.' is one too many by position", "instructions="),
    ("Agent(M, tool=add)", "tools="),
)

guesses(
    AttributeError,
    ("treadle.langchain_tools", "from treadle.tools import"),
)

guesses(
    err.ConfigurationError,
    ("sayer(name='Math Tutor')", "'Math Tutor'", "letters"),
    ("Agent(treadle.models.OpenAI)", "model must be", "class"),
    ("Agent([M, M])", "Fallback("),
    ("Agent(M, instructions=['a', 'b'])", "text"),
    ("Agent(M, model_settings={'temperature': 0})", "ModelSettings("),
    ("Agent(M, worker='ReAct')", "'react'"),
    ("Agent(M, subagents=[add])", "subagents[0]", "tools="),
    ("Agent(M, tools=[sayer()])", "tools[0]", "subagents="),
    ("Agent(M, tools=['5'])", "tools[0]", "'5'", "without calling it"),
    ("Agent(M, tools=[None])", "tools[0]", "None", "without calling it"),
    ("with closing(add(1, 2)) as called: Agent(M, tools=[called])", "tools[0]", "without calling it"),
    ("Agent(M, tools=[dict])", "tools[0]", "class 'dict'"),
    ("Agent(M, tools={'add': add})", "tools must be a list"),
    ("Agent(M, tools=[{'type': 'function'}])", "tools[0]", "@tool"),
    ("sayer(output_type=[int, str])", "output_type", "int | str"),
    ("sayer(output_type=len)", "output_type", "the function 'len'", "@tool(return_direct=True)"),
    ("sayer(output_type='City')", "output_type", "City", "type itself"),
    ("sayer(output_type=Text('x'))", "output_type", "type"),
    ("sayer(output_type={'type': 'object'})", "output_type", "type"),
    ("sayer(output_mode='json')", "native", "'json'"),
)

# ------------------------------------------------------------------------------------ import statements

guesses(
    ImportError,
    ("from treadle import function_tool", "treadle has no 'function_tool'", "tool"),
    ("from treadle import AgentRunner", "Runner"),
    ("from treadle import UsageLimits", "Limits"),
    ("from treadle import ModelRetry", "ToolError"),
    ("from treadle import RunOption", "'RunOptions'"),
)

guesses(
    AttributeError,
    ("treadle.Memory", "thread_id="),
)

# -------------------------------------------------------------------------------------------- a runner

guesses(
    err.ConfigurationError,
    ("Runner(agent)", "Runner(agents=[agent])"),
    ("Runner(agents=sayer())", "Runner(agents=[agent])"),
    ("Runner(agents=[sayer(), sayer()])", "'sayer'"),
    ("Runner(agents=['math'])", "must be an Agent", "'math'"),
    ("Runner(options={'limits': 3})", "RunOptions(...)"),
    ("Runner(context_factory=3)", "context_factory"),
    ("Runner(7)", "a path, a URL or a JournalStore", "7"),
    ("Runner(MemoryStore)", "a JournalStore"),
    ("Runner('mysql://u:pw@h/x')", "mysql", "sqlite:///"),
    ("Runner('sqlite:j.db')", "sqlite:///path"),
    ("Runner('')", "store", "path"),
    ("async with runner.run_stream(sayer(), '?', task_id=''): pass", "task_id must be text"),
)

guesses(
    err.WrongArguments,
    ("Runner(agent=agent)", "agents="),
    ("Runner(max_steps=3)", "RunOptions(limits=Limits(steps="),
    ("Runner(checkpointer='x')", "store"),
    ("Runner(db_url='x')", "store"),
    ("Runner(callbacks=[])", "observers="),
    ("Runner(context=3)", "context_factory="),
    ("Runner(limits=Limits())", "options=RunOptions(limits="),
    ("Runner(memory=[])", "thread_id="),
)

guesses(
    AttributeError,
    ("runner.invoke('hi')", "Runner has no 'invoke'", "runner.run_sync("),
    ("runner.ainvoke('hi')", "await runner.run("),
    ("runner.chat('hi')", "run_sync(", "thread_id="),
    ("runner.achat('hi')", "await runner.run("),
    ("runner.stream('hi')", "run_stream("),
    ("runner.run_streamed(agent, 'hi')", "run_stream("),
    ("runner.finalize_response('x')", "finalize(task)"),
    ("runner.arun_step('x')", "await runner.run_step(task)"),
    ("runner.run_steps_in_queue('x')", "run_ready_steps"),
    ("runner.get_task_output('x')", "result(task)"),
    ("runner.run_handle('x')", "start(agent, "),
    ("runner.acall(prompt_kwargs={})", "await runner.run("),
    ("runner.get_state({})", "get_task(task)"),
    ("runner.update_state({})", "fork(", "edit_call"),
    ("runner.get_state_history({})", "get_completed_steps"),
    ("runner.close()", "await runner.aclose()", "runner.sync.close()"),
    ("runner.sync.aclose()", "runner.sync.close()"),
    ("runner.undo('x')", "undo_step(task)"),
    ("runner.wait('x')", "handle(task).result()"),
    ("runner.is_cancelled()", "result.state"),
    ("runner.register_cancel_callback(print)", "observers="),
    ("runner.set_permission_manager(None)", "@tool(needs_approval=True)"),
    ("runner.sync.chat('hi')", "runner.sync has no 'chat'", "runner.sync.run(agent, "),
    ("runner.sync.run_sync(agent, 'hi')", "runner.sync.run(agent, "),
    ("runner.creat_task(agent, 'hi')", "'create_task'"),
)

guesses(
    err.MisusedVerb,
    ("with runner: pass", "Runner has no plain `with`", "async with", "with runner.sync"),
    ("Runner.run_sync(agent, 'hi')", "Runner().run_sync("),
    ("Runner.run(sayer(), '?')", "on the class", "Runner().run("),
    ("Runner.get_task('x')", "Runner().get_task("),
    ("runner.run(sayer(), '?').final_text", "await runner.run("),
    ("runner.run_step('x').is_last", "not awaited", "runner.sync."),
)

# --------------------------------------------------------------------------------- arguments of a verb

guesses(
    err.WrongArguments,
    (
        "runner.run(agent, '?', max_turns=3)",
        "run has no argument 'max_turns'",
        "options=RunOptions(limits=Limits(steps=",
    ),
    (
        "runner.sync.run(agent, '?', max_turns=3)",
        "run has no argument 'max_turns'",
        "options=RunOptions(limits=Limits(steps=",
    ),
    ("runner.run_sync(agent, '?', max_turns=3)", "run_sync has no argument 'max_turns'", "Limits(steps="),
    ("runner.run_stream(agent, '?', max_turns=3)", "Limits(steps="),
    ("runner.run(agent, '?', deps=3)", "context="),
    ("runner.run(agent, '?', ctx=3)", "context="),
    ("runner.run(agent, '?', usage_limits=3)", "Limits("),
    ("runner.run(agent, '?', message_history=[])", "thread_id=", "import_thread"),
    ("runner.run(agent, '?', chat_history=[])", "thread_id="),
    ("runner.run(agent, '?', session='x')", "thread_id="),
    ("runner.run(agent, '?', session_id='x')", "thread_id="),
    ("runner.run(agent, '?', config={})", "thread_id=", "options="),
    ("runner.run(agent, '?', run_config={})", "options=RunOptions("),
    ("runner.run(agent, '?', model=M)", "agent.replace(model="),
    ("runner.run(agent, '?', stream=True)", "run_stream"),
    ("runner.run(agent, '?', hooks=3)", "observers="),
    ("runner.run(agent, '?', labels={})", "options=RunOptions(labels="),
    ("runner.run(agent, '?', limits=3)", "options=RunOptions(limits="),
    ("runner.run(agent, '?', timeout=3)", "Limits(seconds="),
    ("runner.run(agent, '?', output_type=int)", "agent.replace(output_type="),
    ("runner.run(agent, user_prompt='?')", "input="),
    ("runner.run(agent, message='?')", "input="),
    ("runner.run(agent, '?', id='x')", "task_id="),
    ("runner.run(agent, '?', thred_id='x')", "'thread_id'"),
    ("runner.run(agent)", "run needs input", "runner.run(agent, input"),
    ("runner.sync.run(agent)", "run needs input"),
    ("runner.run(agent, 'hi', 'talk')", "'talk'", "one too many by position", "thread_id="),
    ("runner.resume(task, agent)", "by name", "agent="),
    ("runner.undo_step(task, 1)", "by name", "to="),
    ("runner.fork(task, 3)", "by name", "at="),
    ("runner.create_task(agent, '?', limits=3)", "options=RunOptions(limits="),
    ("runner.list_tasks(status='failed')", "state="),
    ("runner.prune(days=3)", "older_than", "timedelta"),
    ("runner.handle(task).result(timeout=3)", "result has no argument 'timeout'", "asyncio.timeout("),
)

guesses(
    err.ConfigurationError,
    ("runner.run('hi')", "must be an Agent", "run(agent, input)"),
    ("runner.run('hi', agent)", "must be an Agent, got 'hi'", "the agent comes first"),
    ("runner.run(Agent, 'hi')", "Agent", "class"),
    ("runner.run(agent, [{'role': 'user', 'content': 'hi'}])", "input", "text", "import_thread"),
    ("with closing(runner.run(agent, 'hi')) as called: await runner.run(agent, called)", "input", "await"),
    ("runner.run(agent, result)", "input", "final_text"),
    ("runner.resume(agent)", "a Task or its id"),
    ("runner.run_step(agent, 'hi')", "Task or its id", "create_task(agent, input)"),
    ("runner.run_step(runner.handle('x'))", "RunHandle", "task_id"),
    ("runner.get_task([task])", "Task or its id"),
    ("runner.send('hello', task)", "the task comes first"),
    ("runner.settle(task, 's1-0', True)", "Happened("),
)

guesses(
    err.MisusedVerb,
    ("runner.run_step(runner.create_task(agent, 'hi'))", "await runner.create_task("),
)

guesses(
    err.TaskNotFound,
    ("runner.get_task(result.thread_id)", "is a thread"),
)

guesses(
    err.ThreadNotFound,
    ("runner.get_thread(result.task_id)", "is a task", "thread"),
)

guesses(
    AttributeError,
    ("runner.handle(task).stop()", "cancel()"),
    ("runner.handle(task).await_result()", "await handle.result()"),
    ("runner.handle(task).status", "runner.get_task("),
)

# ------------------------------------------------------------------------------- await, with and for

guesses(
    err.MisusedVerb,
    ("runner.run_step(task).output", "await runner.run_step("),
    ("runner.start(agent, '?').task_id", "await runner.start("),
    ("runner.handle(task).result().output", "await handle.result("),
    ("runner.list_tasks()['x']", "await runner.list_tasks("),
    ("runner.run_stream(agent, '?')", "async with", "run_stream"),
    ("async with runner.run(agent, '?'): pass", "run_stream", "await runner.run("),
    ("with runner.run_stream(agent, '?'): pass", "async with", "runner.sync.run_stream("),
    ("for _ in runner.run_stream(agent, '?'): pass", "async for", "runner.sync.run_stream("),
    ("async for _ in runner.sync.run_stream(agent, '?'): pass", "for event in", "runner.run_stream("),
    ("async with runner.sync: pass", "with runner.sync", "async with runner"),
    ("for _ in runner.handle(result.task_id).events(): pass", "async for", "runner.sync.handle("),
)

guesses(
    err.TaskUnfinished,
    ("async for _ in runner.run_stream(agent, '?'): pass", "async with"),
    ("_ = runner.run_stream(agent, '?').result", "async with"),
)

guesses(
    AttributeError,
    ("async with runner.run_stream(agent, '?') as stream: stream.stream_text()", "stream.partials()"),
    (
        "async with runner.run_stream(agent, '?') as stream: stream.stream_events()",
        "async for event in stream",
    ),
    ("async with runner.run_stream(agent, '?') as stream: _ = stream.final_output", "stream.result"),
)

# --------------------------------------------------------------------------------------------- results

guesses(
    AttributeError,
    ("result.final_output", "RunResult has no 'final_output'", "result.output", "result.final_text"),
    ("result.data", "result.output"),
    ("result.text", "result.final_text"),
    ("result.content", "result.final_text"),
    ("result.response", "result.final_text"),
    ("result.all_messages()", "result.messages", "get_thread("),
    ("result.new_messages()", "result.messages"),
    ("result.to_input_list()", "thread_id="),
    ("result.new_items", "result.messages"),
    ("result.last_agent", "subagent_executions"),
    ("result.interruptions", "result.pending"),
    ("result.run_id", "result.task_id"),
    ("result.status", "result.state"),
    ("result.success", "result.state"),
    ("result.tool_calls", "result.tool_executions"),
    ("result.source_nodes", "result.sources"),
    ("result.usage_aggregate", "result.usage"),
    ("result.model_dump()", "RunResult has no 'model_dump'", "dataclasses.asdict(result)"),
    ("task.id", "task.task_id"),
    ("task.status", "task.state"),
    ("task.output", "runner.result(task)"),
    ("task.run()", "runner.resume(task)", "runner.run_step(task)"),
    ("result.usage.total", "total_tokens"),
    ("result.usage.prompt_tokens", "input_tokens"),
    ("result.usage.requests", "model_calls"),
    ("result.tool_executions[0].tool_name", ".name"),
    ("result.tool_executions[0].success", "outcome == 'ok'"),
    ("result.tool_executions[0].result", ".output"),
    ("result.tool_executions[0].latency_ms", ".latency", "seconds"),
    ("result.messages[0].content", "message.text", "message.parts"),
    ("_ = (await runner.run_step(task)).response", "out.output"),
    ("_ = (await runner.run_step(task)).done", "is_last"),
)

guesses(
    TypeError,
    ("result['messages']", ".messages"),
    ("result.messages[0]['role']", ".role"),
)

# --------------------------------------------------------------------------------------------- contexts

guesses(
    AttributeError,
    ("ctx.deps", "ToolContext has no 'deps'", "ctx.context"),
    ("ctx.run_id", "ctx.task_id"),
    ("ctx.tool_call_id", "ctx.call_id"),
    ("ctx.report_progress(1)", "ctx.progress("),
    ("ctx.retry", "ctx.attempt"),
)

guesses(
    err.TaskFailed,
    (
        "runner.run_sync(sayer(instructions=lambda ctx: ctx.deps), '?').raise_for_state()",
        "RunContext has no 'deps'",
        "ctx.context",
    ),
)

# ----------------------------------------------------------------------------------------------- tools

guesses(
    err.ToolDefinitionError,
    ("tool('search')", "'search'", "name="),
    ("tool(dict)", "class dict"),
    ("tool(plain(3))", "int", "type int", "without calling it"),
    ("tool(strict=True)(plain)", "'plain'", "strict"),
    ("tool(name_override='x')(plain)", "name="),
    ("tool(requires_approval=True)(plain)", "write needs_approval=True"),
    ("tool(args_schema=dict)(plain)", "annotat"),
    ("tool(max_retries=2)(plain)", "retries="),
    ("tool(description=3)(plain)", "description", "text"),
    ("tool(timeout='5s')(plain)", "timeout", "seconds"),
    ("tool(lambda *args: 1, name='x')", "'*args'", "one by one"),
    ("tool(wants_run_context)", "'ctx'", "ToolContext"),
    ("tool(wants_context_of_pydantic_ai)", "'ctx'", "RunContext", "annotate it as ToolContext"),
    ("tool(wants_socket)", "'where'", "Socket", "ToolContext.context"),
    ("tool(staticmethod(print))", "print"),
)

guesses(
    AttributeError,
    ("add.invoke({'a': 1})", "tool has no 'invoke'", "call the function itself"),
    ("add.description", ".spec.description"),
    ("add.args_schema", ".spec.parameters"),
)

# ----------------------------------------------------------------------------------- limits and options

guesses(
    err.WrongArguments,
    ("Limits(max_steps=3)", "Limits has no argument 'max_steps'", "steps="),
    ("Limits(turns=3)", "steps="),
    ("Limits(timeout=3)", "seconds="),
    ("Limits(max_tokens=3)", "tokens="),
    ("Limits(request_limit=3)", "model_calls="),
    ("Limits(max_total_cost_usd=3)", "cost="),
    ("Limits(5)", "all by name", "steps="),
    ("RunOptions(max_turns=3)", "limits=Limits(steps="),
    ("RunOptions(steps=3)", "limits=Limits(steps="),
    ("RunOptions(thread_id='x')", "runner.run(agent, input, thread_id="),
    ("RunOptions(context=3)", "runner.run(agent, input, context="),
    ("RunOptions(tags=['x'])", "labels="),
    ("FailurePolicy(tools='fail')", "'tool'"),
    ("Breakpoint('pay')", "all by name", "before_tool="),
    ("Breakpoint(tool_name='pay')", "before_tool="),
    ("ModelSettings(max_output_tokens=3)", "max_tokens="),
    ("ModelSettings(top_p=0.5)", "extra={'top_p': "),
    ("runner.run(agent, [Image('a.png')])", "a.png", "path="),
)

guesses(
    err.ConfigurationError,
    ("Limits(steps='10')", "Limits.steps", "'10'"),
    ("Limits(steps=0.5)", "whole number"),
    ("RunOptions(limits=10)", "Limits("),
    ("RunOptions(labels='x')", "labels", "text to text"),
    ("RunOptions(on_limit='stop')", "on_limit", "'final_answer'", "'pause'"),
    ("RunOptions(on_failure='fail')", "FailurePolicy("),
)

# ----------------------------------------------------------------------------------------------- stores

guesses(
    err.ConfigurationError,
    ("Runner('redis://localhost')", "redis", "postgresql://"),
    ("Runner('sqlite+aiosqlite:///j.db')", "sqlite:///"),
    ("Runner('postgresql+psycopg://h/x')", "postgresql://"),
    ("Runner('postgresql:localhost/x')", "postgresql://"),
    ("Runner(':memory:')", "memory:"),
    ("Runner('sqlite:///:memory:')", "memory:"),
    ("Runner('sqlite:///')", "path"),
    ("Runner('sqlite:///x.db?timeout=5')", "?lease=SECONDS", "timeout"),
    ("Runner(object())", "a path, a URL"),
)

# ----------------------------------------------------------------------------------------------- models

guesses(
    err.ModelUnknown,
    ("runner.run(Agent('openai/gpt-5'), '?')", "openai:gpt-5"),
    ("runner.run(Agent('You are helpful.'), '?')", "provider:model"),
    ("runner.run(Agent('openai:'), '?')", "openai:"),
    ("runner.run(Agent('OpenAI:gpt-5'), '?')", "openai:gpt-5"),
    ("runner.run(Agent('antropic:claude'), '?')", "anthropic:claude"),
)

guesses(
    err.ConfigurationError,
    ("Agent(ClientOfAnSDK())", "ClientOfAnSDK", "model must be"),
    ("runner.run(sayer(instructions=lambda: 'x'), '?')", "instructions", "RunContext"),
)

guesses(
    err.TaskFailed,
    (
        "monkeypatch.delenv('OPENAI_API_KEY', raising=False)\n(await runner.run(Agent(M), '?')).raise_for_state()",
        "OPENAI_API_KEY",
    ),
    (
        "runner.run_sync(sayer(instructions=lambda ctx: None), '?').raise_for_state()",
        "instructions",
        "text",
        "None",
    ),
)

# ----------------------------------------------------------------------------- the context of a run

guesses(
    err.ConfigurationError,
    (
        "runner.run(sayer(tools=[who]), '?')",
        "its tool 'who' needs a context of type Deps, and the call has none",
        "pass context=",
    ),
    (
        "runner.run(sayer(tools=[who]), '?', context='Ada')",
        "its tool 'who' needs a context of type Deps",
        "of type str: pass an object of that type",
    ),
    (
        "runner.sync.run(sayer(tools=[who]), '?', context=Deps)",
        "needs a context of type Deps",
        "of type type: pass an object of that type",
    ),
    ("runner.run_sync(sayer(context_type=Deps), '?')", "needs a context of type Deps", "pass context="),
    ("sayer(context_type=Deps('Ada'))", "context_type must be a class", "Deps"),
    (
        "Runner('memory:', context_factory=lambda: Deps('Ada'))",
        "context_factory is called with the task",
        "lambda task: ...",
    ),
)

# ------------------------------------------------------------------------------- providers and layers

guesses(
    err.WrongArguments,
    ("OpenAI(model=OWN)", "OpenAI has no argument 'model'", "first"),
    ("OpenAI(OWN, temperature=0)", "ModelSettings("),
    ("OpenAI(OWN, apikey='x')", "api_key="),
    ("OpenAI(OWN, timeout=3)", "Timeout(model, total="),
    ("OpenAI()", "OpenAI needs name", "OpenAI('"),
    ("Fallback(M, M)", "Fallback([first, second])"),
    ("Retry(M, retries=3)", "attempts="),
    ("ModelSettings(temprature=1)", "'temperature'"),
)

guesses(
    err.ConfigurationError,
    ("OpenAI(M)", "the model alone, 'gpt-5.4-mini'"),
    (
        "OpenAI(OWN, base_url='127.0.0.1:4010')",
        "base_url '127.0.0.1:4010' must begin with http:// or https://",
        "did you mean http://127.0.0.1:4010?",
    ),
    ("Fallback([M])", "list of at least two"),
    ("ScriptedModel('Hi.')", "list of turns", "['Hi.']"),
    ("ModelSettings(temperature='hot')", "temperature", "'hot'"),
)

guesses(
    err.ModelUnknown,
    ("Retry(3)", "Retry: a model is a name", "not 3"),
)

guesses(
    ImportError,
    (
        "from treadle.models import OpenAIModel",
        "treadle.models has no 'OpenAIModel'",
        "from treadle.models import OpenAI`",
    ),
    ("from treadle.telemetry import Logfire", "OpenTelemetry"),
)

guesses(
    err.TaskFailed,
    (
        (
            "there = OpenAI(OWN, base_url='http://127.0.0.1:9/v1', api_key='x')\n"
            "(await runner.run(Agent(Retry(there, attempts=1)), '?')).raise_for_state()"
        ),
        "no connection to http://127.0.0.1:9/v1",
    ),
)

# -------------------------------------------------------------------------- lists, threads and events

guesses(
    TypeError,
    ("runner.sync.list_tasks()[0]", "page has attributes, not items", "page.items[0]"),
)

guesses(
    AttributeError,
    ("runner.sync.list_tasks().tasks", "page.items"),
    ("runner.sync.get_thread('t').messages", "iterate over it"),
    ("event.type", "event has no 'type'", "event.kind"),
    ("event.message", "event.description"),
    ("event.run_id", "event.task_id"),
    ("Notice(None, event).kind", "notice.event.kind"),
)

guesses(
    err.ConfigurationError,
    (
        "runner.sync.import_thread('t', [{'role': 'user', 'content': 'hi'}])",
        "import_thread: message 0 is no Message",
        "Message('user', (Text('...'),))",
    ),
    ("runner.sync.import_thread('t', [Message('user', 'hi')])", "message 0: parts must be a tuple", "Text("),
    ("runner.list_tasks(since='yesterday')", "datetime"),
    ("runner.list_tasks(labels='x')", "labels must map text"),
    ("Runner('memory:', observers=print)", "observers=[function]"),
    ("Runner(observers=['stdout'])", "takes console, jsonl:PATH or otel"),
    ("Pipeline([print])", "Pipeline takes a list of Node("),
    ("sayer(worker=AgentWorker)", "worker must be", "AgentWorker"),
    ("runner.run(agent, '?', extra_state=[1])", "extra_state", "dict"),
)

guesses(
    err.WrongArguments,
    ("Node('a', fn=print)", "run="),
    ("Node('b', print, depends_on=['a'])", "after="),
)

# ---------------------------------------------------------------------------------------------- agents

guesses(
    err.ConfigurationError,
    ("runner.run(Agent(name='plain'), 'Hi')", "agent 'plain' names no model, and the runner has none"),
    ("Agent('')", "model must be like 'openai:"),
    ("Agent(ScriptedModel)", "model must be", "stream(request)"),
    ("sayer(name='my agent')", "'my agent'"),
    ("sayer(tools=[len])", "tools[0]", "'len'", "@tool"),
    ("sayer(tools=add)", "tools must be a list"),
    ("sayer(tools=[add, add])", "'add'", "@tool(name=...)"),
    ("sayer().replace(nmae='x')", "no argument 'nmae'"),
    ("sayer(instructions=3)", "instructions must be text"),
    ("sayer(worker='reactor')", "worker must be"),
    ("sayer(limits={'steps': 3})", "limits must be Limits(...)"),
)

guesses(
    AttributeError,
    ("setattr(sayer(), 'name', 'x')", "immutable", "agent.replace(name="),
)

guesses(
    err.ToolDefinitionError,
    ("tool(lambda x: x)", "lambda", "name="),
    ("tool(add, read_onyl=True)", "'add'", "read_only="),
    ("tool(retries=2)(write)", "read_only=True"),
)

# --------------------------------------------------------------------------------------------- options

guesses(
    err.ConfigurationError,
    ("Limits(steps=-1)", "Limits.steps", "-1"),
    ("Limits(tool_calls=True)", "Limits.tool_calls"),
    ("Limits(steps=1.5)", "Limits.steps", "whole number"),
    ("Limits(seconds=float('nan'))", "Limits.seconds"),
    ("Limits(seconds=float('inf'))", "Limits.seconds", "None"),
    ("FailurePolicy(tool='ignore')", "tool", "'continue'"),
    ("FailurePolicy(model='retry')", "FailurePolicy.model"),
    ("RunOptions(limits={})", "Limits(...)"),
    ("RunOptions(max_parallel_tools=0)", "max_parallel_tools"),
    ("RunOptions(labels={'a': 1})", "labels", "'a': 1"),
    ("RunOptions(labels=['a'])", "labels must"),
    ("Breakpoint()", "exactly one of before_tool"),
    ("Breakpoint(event='tool_end')", "tool_ended"),
    ("Breakpoint(after_step='s1')", "after_step"),
    ("RunOptions(break_on=['add'])", "Breakpoint(...)"),
    ("RunOptions(break_on=Breakpoint(event='tool_ended'))", "list"),
)

# --------------------------------------------------------------------------------------- what is given

guesses(
    err.ConfigurationError,
    ("runner.run('math', '?')", "must be an Agent", "'math'"),
    ("runner.run(sayer(), '')", "input", "''"),
    ("runner.run(sayer(), ' \\n')", "input must not be empty"),
    ("runner.run(sayer(), None)", "input must be text"),
    ("runner.run(sayer(), b'hi')", "input must be text", "b'hi'"),
    ("runner.run(sayer(), {'a': 1})", "input must be text"),
    ("runner.run(sayer(), ['a', 7])", "content parts"),
    ("runner.run(sayer(), '?', task_id='')", "task_id", "''"),
    ("runner.run(sayer(), '?', task_id=7)", "task_id", "7"),
    ("runner.run(sayer(), '?', task_id='x' * 999)", "200"),
    ("runner.run(sayer(), '?', thread_id=7)", "thread_id"),
    ("runner.run(sayer(), '?', thread_id='')", "thread_id"),
    ("runner.run(sayer(), '?', options={})", "RunOptions"),
    ("runner.create_task(sayer(), '?', extra_state={1, 2})", "extra_state", "JSON"),
    ("runner.run(sayer(), [Image()])", "path, url and data"),
    ("runner.run(sayer(), [Image(path='a.png', url='http://x/a.png')])", "path, url"),
    ("runner.run(sayer(), [Image(data=b'x')])", "media_type", "image/png"),
    ("runner.run(sayer(), [Image(path='gone.png')])", "gone.png"),
    ("runner.run(sayer(), [File(path=str(folder), media_type='text/plain')])", "cannot be read"),
)

guesses(
    err.ModelUnknown,
    ("runner.run(Agent('opnai:gpt'), '?')", "opnai", "openai:gpt"),
    ("runner.run(Agent('gpt-5'), '?')", "openai:gpt-5"),
)

# ------------------------------------------------------------------------------------------- which task

guesses(
    err.ConfigurationError,
    ("runner.get_task(7)", "a Task or its id", "7"),
)

# ------------------------------------------------------------------------------------------------ lists

guesses(
    err.ConfigurationError,
    ("runner.list_tasks(limit=0)", "limit must be 1 to 1000"),
    ("runner.list_tasks(state='done')", "state", "completed"),
    ("runner.list_tasks(cursor=7)", "cursor"),
    ("runner.list_tasks(since='today')", "since", "microseconds"),
)

# ------------------------------------------------------------------------------------------- the table

TOP_LEVEL_AWAIT = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT

APP = """
from treadle import Agent, ScriptedModel
agent = Agent(ScriptedModel(["Hi."]), name="app")
"""


def plain(a: int) -> int:
    """Return it."""
    return a


def write() -> None:
    """Write."""


@tool(needs_approval=True)
def pay(amount: int) -> str:
    """Pay."""
    return "paid"


def wants_run_context(ctx: RunContext[int], a: int) -> int:
    return a


def wants_context_of_pydantic_ai(ctx: pydantic_ai.RunContext[int], a: int) -> int:
    return a


class Socket:
    pass


def wants_socket(where: Socket) -> int:
    return 1


class ClientOfAnSDK:
    chat = None


@dataclass
class Deps:
    user: str


@tool(read_only=True)
def who(ctx: ToolContext[Deps]) -> str:
    """Say who asks."""
    return ctx.context.user


OWN = "gpt-5.4-mini"
OF_THIS_FILE = (
    sayer,
    closing,
    plain,
    write,
    wants_run_context,
    wants_context_of_pydantic_ai,
    wants_socket,
    ClientOfAnSDK,
    Deps,
    MemoryStore,
    Notice,
)


@pytest.fixture
async def names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_garbage: None, anyio_backend: str
) -> Any:
    """What a row can use: the public names, and one object of each kind."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "app.py").write_text(APP)
    namespace: dict[str, Any] = {name: getattr(models, name) for name in models.__all__}
    namespace |= {name: getattr(tools, name) for name in tools.__all__}
    namespace |= {name: getattr(treadle, name) for name in treadle.__all__}
    namespace |= {each.__name__: each for each in OF_THIS_FILE}
    async with Runner("memory:") as runner, Client("http://127.0.0.1:1", token="t") as client:
        task = await runner.create_task(calculator(), "?")
        pays = call("pay", amount=1)
        paying = await runner.run(Agent(ScriptedModel([pays, "Paid."]), name="payer", tools=[pay]), "Pay.")
        result = await runner.run(calculator(), "?")
        yield namespace | {
            "M": f"openai:{OWN}",
            "OWN": OWN,
            "add": add,
            "who": who,
            "treadle": treadle,
            "runner": runner,
            "client": client,
            "server": server,
            "replay": replay,
            "agent": sayer(),
            "result": result,
            "event": (await runner.get_events(result.task_id)).items[0],
            "task": task,
            "handle": runner.handle(task),
            "page": await runner.list_tasks(),
            "pending": paying.pending[0],
            "ctx": ToolContext("t", "t", "s1", "s1-0", "key", "agent", 1, None),
            "folder": tmp_path,
            "monkeypatch": monkeypatch,
        }


async def _evaluated(code: str, names: dict[str, Any]) -> Any:
    """Run code as a cell of a notebook would, and await what it leaves."""
    if code.startswith("$ treadle "):
        sys.exit(await asyncio.to_thread(main, code.split()[2:]))
    *before, last = ast.parse(code).body
    lines: list[tuple[Any, str]] = [(ast.Module(before, []), "exec")]
    lines.append(
        (ast.Expression(last.value), "eval")
        if isinstance(last, ast.Expr)
        else (ast.Module([last], []), "exec")
    )
    value = None
    for tree, mode in lines:
        value = eval(compile(tree, "<row>", mode, TOP_LEVEL_AWAIT), names)
        value = await value if inspect.isawaitable(value) else value
    return value


@pytest.mark.anyio
@pytest.mark.sampled(150)
@pytest.mark.parametrize(("code", "error", "says"), TABLE, ids=[row[0] for row in TABLE])
async def test_a_mistake_is_told_what_is_wrong_and_what_to_write(
    names: dict[str, Any],
    capfd: pytest.CaptureFixture[str],
    code: str,
    error: type[Exception],
    says: tuple[str, ...],
) -> None:
    with pytest.raises(error) as caught:
        await _evaluated(code, names)
    if issubclass(error, err.TreadleError):
        assert type(caught.value) is error
    shown = "".join(traceback.format_exception_only(caught.value)) + "".join(capfd.readouterr())
    for phrase in says:
        assert phrase in shown, shown


def test_the_table_has_every_row_once() -> None:
    assert len({row[0] for row in TABLE}) == len(TABLE) >= 730
