"""What a user of another library guesses on the first day, and what the error must name.

Each row is a line of code as a newcomer writes it, the class of the error, and words that its message must have: the
name that is right here. The rows were written before the messages were read. `test_mistakes.py` has more of them, and
`test_misuse.py` the mistakes of people who know the names.
"""

import ast
import asyncio
import inspect
import sys
import traceback
from pathlib import Path
from typing import Any

import pytest

import treadle
from tests.cast import add, calculator, sayer
from treadle import Agent, Client, Runner, ScriptedModel, ToolContext, models, replay, server, tool, tools
from treadle import errors as err
from treadle.cli.main import main
from treadle.models import call

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
    ("agent.instrument_all()", "OpenTelemetry"),
    ("agent.event_stream_handler", "observers="),
    ("result.all_messages_json()", "result.messages"),
    ("result.new_messages_json()", "result.messages"),
    ("result.timestamp()", "result.ended_at"),
    ("result.usage.request_tokens", "usage.input_tokens"),
    ("ctx.deps", "ctx.context"),
)
guesses(
    TypeError,
    ("@agent.instructions\ndef f(ctx): return 'x'", "Agent(instructions="),
    ("result.usage()", "result.usage"),
)
guesses(
    err.WrongArguments,
    ("Agent(M, builtin_tools=[])", "tools="),
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
    ("from treadle import UsageLimitExceeded", "result.state"),
    ("from treadle import UnexpectedModelBehavior", "treadle.errors"),
    ("from treadle import ApprovalRequired", "needs_approval=True"),
    ("from treadle import DeferredToolRequests", "result.pending"),
    ("from treadle import BinaryContent", "Image"),
    ("from treadle import ImageUrl", "Image(url="),
    ("from treadle import NativeOutput", "output_mode="),
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
    ("from treadle import QueryEngineTool", "@tool"),
    ("from treadle import Settings", "RunOptions"),
    ("from treadle import VectorStoreIndex", "@tool"),
    ("from treadle import Context", "ToolContext"),
    ("from treadle import CallbackManager", "observers="),
    ("from treadle import TokenCountingHandler", "result.usage"),
    ("from treadle import StructuredPlannerAgent", "worker='planner'"),
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
    ("tool(host='docker')(plain)", "Sandbox("),
    ("tool(host=Subprocess)(plain)", "Subprocess()"),
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
    ("tool(bind=True)(plain)", "ToolContext"),
    ("tool(autoretry_for=(OSError,))(plain)", "retries="),
    ("tool(rate_limit='10/m')(plain)", "rate_limit"),
    ("tool(time_limit=3)(plain)", "timeout="),
    ("tool(start_to_close_timeout=3)(plain)", "timeout="),
    ("tool(heartbeat_timeout=3)(plain)", "timeout="),
    ("tool(acks_late=True)(plain)", "idempotent="),
    ("tool(retry_policy=1)(plain)", "retries="),
    ("tool(untrusted=True)(plain)", "trusted="),
    ("tool(sandbox=True)(plain)", "host=Sandbox("),
    ("tool(container='x')(plain)", "host=Sandbox("),
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


# ------------------------------------------------------------------------------------------- the table

TOP_LEVEL_AWAIT = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT

APP = """
from treadle import Agent, ScriptedModel
agent = Agent(ScriptedModel(["Hi."]), name="app")
"""


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
    async with Runner("memory:") as runner, Client("http://127.0.0.1:1", token="t") as client:
        task = await runner.create_task(sayer(), "?")
        pays = call("pay", amount=1)
        paying = await runner.run(Agent(ScriptedModel([pays, "Paid."]), name="payer", tools=[pay]), "Pay.")
        yield namespace | {
            "M": "openai:gpt-5.4-mini",
            "runner": runner,
            "client": client,
            "server": server,
            "replay": replay,
            "agent": sayer(),
            "add": add,
            "plain": _plain,
            "result": await runner.run(calculator(), "?"),
            "task": task,
            "handle": runner.handle(task),
            "page": await runner.list_tasks(),
            "pending": paying.pending[0],
            "ctx": ToolContext("t", "t", "s1", "s1-0", "key", "agent", 1, None),
        }


def _plain(a: int) -> int:
    """Return it."""
    return a


@tool(needs_approval=True)
def pay(amount: int) -> str:
    """Pay."""
    return "paid"


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
@pytest.mark.sampled(100)
@pytest.mark.parametrize(("code", "error", "says"), TABLE, ids=[row[0] for row in TABLE])
async def test_a_guess_is_told_the_name_that_is_right_here(
    names: dict[str, Any],
    capfd: pytest.CaptureFixture[str],
    code: str,
    error: type[Exception],
    says: tuple[str, ...],
) -> None:
    with pytest.raises(error) as caught:
        await _evaluated(code, names)
    shown = "".join(traceback.format_exception_only(caught.value)) + "".join(capfd.readouterr())
    for phrase in says:
        assert phrase in shown, shown


def test_the_table_has_every_row_once() -> None:
    assert len({row[0] for row in TABLE}) == len(TABLE) >= 233
