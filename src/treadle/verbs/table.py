"""The table of operations over HTTP: a row for each verb of the runner, and for each operation without a verb.

It makes the routes, the OpenAPI document, the matrix of authorisations, the reference page and the client's requests. A
route that is not in this table does not exist.

The arguments of a row are those of its verb, with the types of the verb's annotations. The row lists those that a
request can have, and their places. A request cannot have the others: agents as objects, contexts, models, and `by`,
which is the name of the principal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from treadle.core.events import Event
from treadle.core.messages import File, Json, Message
from treadle.core.permits import StandingGrant
from treadle.results.agent_info import AgentInfo
from treadle.results.pages import PendingPage, TaskPage, ThreadPage
from treadle.results.read_results import EventPage, Lineage, PastRequest, StepPage, UsageReport
from treadle.results.reports import CompactionReport, Difference, PruneReport, UndoReport
from treadle.results.run_result import RunResult
from treadle.results.step_outputs import StepOutputs, TaskStepOutput
from treadle.results.steps import StepInfo
from treadle.results.tasks import Task, TaskTotals
from treadle.results.threads import ThreadMessages, ThreadSummary
from treadle.transfer.verifying import VerifyReport
from treadle.verbs.operation import Access, Operation

SOON: Final = 10.0
"""Seconds that usually quick verbs wait, unless the request says otherwise."""

PAGE: Final = 200
"""The most items of a page."""

MOST_EVENTS: Final = 500
"""The most events of a page, and its size if a request names no `limit`."""

_FILTERS: Final = (
    "state",
    "agent",
    "thread_id",
    "parent",
    "forked_from",
    "since",
    "until",
    "labels",
    "search",
    "roots",
    "updated_since",
)


def _get(name: str, path: str, summary: str, result: Any, **more: Any) -> Operation:
    """Return the row of a reading operation, for the verb of its name, or for `verb`."""
    row: dict[str, Any] = {"access": "read", "verb": name, **more}
    return Operation(name=name, method="GET", path=f"/v1/{path}", summary=summary, result=result, **row)


def _post(
    name: str, access: Access, path: str, body: tuple[str, ...], summary: str, **more: Any
) -> Operation:
    """Return the row of a changing operation, for the verb of its name, or for `verb`."""
    row: dict[str, Any] = {"verb": name, "status": 200 if "result" in more else 204, **more}
    return Operation(
        name=name, method="POST", access=access, path=f"/v1/{path}", body=body, summary=summary, **row
    )


def _command(name: str, access: Access, body: tuple[str, ...], summary: str, **more: Any) -> Operation:
    """Return the row of a command to a task, which a key makes safe to repeat."""
    return _post(name, access, f"tasks/{{task}}/{name}", body, summary, **{"repeats": "command", **more})


def _stop(name: str, summary: str) -> Operation:
    return _command(name, "control", ("reason",), summary, result=RunResult, waits=SOON)


def _delete(name: str, path: str, summary: str) -> Operation:
    return Operation(
        name=name,
        method="DELETE",
        access="delete",
        path=f"/v1/{path}",
        verb=name,
        summary=summary,
        status=204,
    )


_ABOUT: Final = (
    _get(
        "get_me",
        "me",
        "Return the principal of the request, and facts about the server.",
        dict[str, Json],
        verb="",
        access="any",
    ),
    _get("get_openapi", "openapi.json", "Return this document.", dict[str, Json], verb="", access="any"),
    Operation(
        name="get_health",
        method="GET",
        path="/health",
        access="open",
        summary="Answer that the process is alive.",
        result=dict[str, Json],
    ),
    Operation(
        name="get_metrics",
        method="GET",
        path="/metrics",
        access="operator",
        summary="Return the counters of the server, as Prometheus reads them.",
        result=str,
        media="text/plain",
    ),
    Operation(
        name="get_ready",
        method="GET",
        path="/ready",
        access="open",
        summary="Answer whether the server can serve: its store is readable, and it is not shutting down.",
        result=dict[str, Json],
    ),
)

_LISTS: Final = (
    _get("get_agents", "agents", "List the agents that this process can drive.", tuple[AgentInfo, ...]),
    _get("get_agent", "agents/{name}", "Return an agent that this process can drive.", AgentInfo, verb=""),
    _get(
        "list_tasks",
        "tasks",
        "List tasks, newest first.",
        TaskPage,
        query=(*_FILTERS, "limit", "cursor"),
        most=PAGE,
    ),
    _get(
        "count_tasks",
        "totals",
        "Count tasks by state, with their spending.",
        TaskTotals,
        query=_FILTERS,
    ),
    _get(
        "usage",
        "usage",
        "Return the spending of tasks, by agent, day, model or label.",
        UsageReport,
        query=("since", "until", "by", "agent", "labels"),
    ),
    _get(
        "list_pending",
        "pending",
        "List the open requests of all tasks.",
        PendingPage,
        query=("thread_id", "limit", "cursor"),
        most=PAGE,
    ),
    _get(
        "list_threads",
        "threads",
        "List threads, by id.",
        ThreadPage,
        query=("limit", "cursor"),
        most=PAGE,
    ),
    _get(
        "get_thread_summary",
        "threads/{thread_id}",
        "Return the number of tasks with messages in a thread.",
        ThreadSummary,
        verb="",
    ),
    _get(
        "get_thread",
        "threads/{thread_id}/messages",
        "Return the messages of a thread.",
        ThreadMessages,
    ),
    _get(
        "list_grants",
        "grants",
        "List the approvals that hold for later calls.",
        tuple[StandingGrant, ...],
        query=("thread_id", "revoked"),
    ),
    _get(
        "diff",
        "diff",
        "Return the differences between the steps of two tasks.",
        Difference,
        query=("a", "b"),
        types={"a": str, "b": str},
    ),
)

_READS: Final = (
    _get(
        "get_task",
        "tasks/{task}",
        "Return a snapshot of a task; its ETag is its head.",
        Task,
        query=("at",),
    ),
    _get(
        "get_result",
        "tasks/{task}/result",
        "Return the result of a task so far; with `Prefer: wait`, once it is at rest.",
        RunResult,
        verb="result",
        query=("at",),
        waits=0.0,
    ),
    _get(
        "list_pending_of_task",
        "tasks/{task}/pending",
        "List the open requests of a task and of the tasks below it.",
        PendingPage,
        verb="list_pending",
        query=("limit", "cursor"),
        most=PAGE,
    ),
    _get(
        "get_artifact",
        "tasks/{task}/artifacts/{artifact_id}",
        "Return an artifact as an attachment, or as JSON with its URL if it is stored elsewhere.",
        File,
        media="application/octet-stream",
    ),
    _get(
        "get_events",
        "tasks/{task}/events",
        "Return a page of the events of a task; as `text/event-stream`, follow them.",
        EventPage,
        query=("after", "limit", "kinds", "cut", "deltas", "until", "hold"),
        most=MOST_EVENTS,
        types={
            "kinds": tuple[str, ...] | None,
            "cut": int | None,
            "deltas": bool,
            "until": Literal["rest"],
            "hold": bool,
        },
        streams=True,
    ),
    _get(
        "get_stream",
        "stream",
        "Stream the changes of all tasks, and the events of up to 8 of them, each named as `ID:AFTER`.",
        str,
        verb="",
        query=("task", "changes", "cut", "deltas"),
        types={"task": tuple[str, ...] | None, "changes": bool, "cut": int | None, "deltas": bool},
        streams=True,
        media="text/event-stream",
    ),
    _get("get_event", "tasks/{task}/events/{seq}", "Return one event of a task, whole.", Event, verb=""),
    _get(
        "get_steps",
        "tasks/{task}/steps",
        "Return a page of a task's steps.",
        StepPage,
        query=("after", "limit"),
        most=PAGE,
    ),
    _get(
        "get_upcoming_steps",
        "tasks/{task}/steps/upcoming",
        "List the steps that would run next.",
        tuple[StepInfo, ...],
    ),
    _get(
        "get_step",
        "tasks/{task}/steps/{step}",
        "Return the report of a step; with `Prefer: wait`, once it has ended or the task is at rest.",
        TaskStepOutput,
        waits=0.0,
    ),
    _get(
        "get_request",
        "tasks/{task}/steps/{step}/request",
        "Return a request as its model saw it.",
        PastRequest,
        query=("call",),
    ),
    _get(
        "get_lineage",
        "tasks/{task}/lineage",
        "Return the parent, the children, the forks and the base of a task.",
        Lineage,
        query=("limit",),
        most=PAGE,
    ),
    _get(
        "verify",
        "tasks/{task}/verify",
        "Read the journal of a task again and verify it.",
        VerifyReport,
    ),
    _get(
        "export_task",
        "tasks/{task}/export",
        "Return a task as an export, with the tasks that it was forked from or shares a thread with.",
        File,
        verb="",
        media="application/jsonl",
    ),
)

_RUNS: Final = (
    _post(
        "create_task",
        "run",
        "tasks",
        ("agent", "input", "task_id", "thread_id", "options", "extra_state", "labels", "run"),
        "Create a task, and drive it with `run`; a repeat with the same id returns the same task.",
        types={"agent": str, "labels": dict[str, str] | None, "run": bool},
        result=Task,
        status=201,
        waits=0.0,
        repeats="task",
    ),
    _post(
        "run_step",
        "run",
        "tasks/{task}/steps",
        ("input", "step", "ready"),
        "Run one step, or with `ready` every step that is ready.",
        types={"ready": bool},
        result=TaskStepOutput | StepOutputs,
        waits=0.0,
        repeats="command",
        drives=True,
    ),
    _command(
        "resume",
        "run",
        ("options",),
        "Continue a task from its present state.",
        result=RunResult,
        waits=0.0,
    ),
    _command(
        "send",
        "run",
        ("message", "role"),
        "Add a message to a task before its next model call.",
        command="send",
    ),
    _stop("pause", "Let running calls end and start nothing new."),
    _stop("interrupt", "Stop running calls now; the task can be resumed."),
    _stop("cancel", "End a task for good."),
)

_DECISIONS: Final = (
    _command("settle", "decide", ("request_id", "verdict"), "Settle an unknown outcome."),
    _command("approve", "decide", ("request_id", "arguments", "scope", "same"), "Approve a call."),
    _command("deny", "decide", ("request_id", "reason", "stop"), "Deny a call."),
    _command("answer", "decide", ("request_id", "value"), "Answer a question."),
    _command("complete", "decide", ("ticket", "value"), "Deliver the result of a call in the background."),
    _command("fail", "decide", ("ticket", "error"), "Report that a call in the background failed."),
    _command("progress", "decide", ("ticket", "value"), "Report the progress of a call in the background."),
    _post(
        "revoke",
        "decide",
        "grants/{grant_id}/revoke",
        (),
        "Revoke an approval for later calls.",
        repeats="itself",
    ),
)

_EDITS: Final = (
    _command(
        "undo",
        "edit",
        ("to", "step", "force", "dry_run"),
        "Take back steps, and compensate their calls.",
        verb="undo_step",
        result=UndoReport,
        waits=SOON,
        drives=True,
    ),
    _command(
        "fork",
        "edit",
        ("at", "input", "replace", "thread_id", "options", "agent", "instructions", "model", "task_id"),
        "Create a task that shares another's journal up to a point.",
        types={"agent": str | None},
        result=Task,
        status=201,
        repeats="task",
    ),
    _command(
        "finalize",
        "edit",
        (),
        "End a task that has answered.",
        result=RunResult,
        waits=SOON,
        drives=True,
    ),
    _command("edit_step", "edit", ("input",), "Replace the input of the next step.", result=StepInfo),
    _command("edit_call", "edit", ("call_id", "arguments"), "Change a call that has not begun."),
    _command("skip_step", "edit", ("step",), "Skip a failed step."),
    _post(
        "compact_thread",
        "edit",
        "threads/{thread_id}/compact",
        ("keep", "context_tokens"),
        "Let later tasks of a thread see a summary of its older turns.",
        result=CompactionReport,
        waits=0.0,
        repeats="itself",
        drives=True,
    ),
    _post(
        "import_thread",
        "edit",
        "threads/{thread_id}/import",
        ("messages",),
        "Add messages from elsewhere to the end of a thread; return the id of the task that holds them.",
        types={"messages": Sequence[Message]},
        result=str,
        status=201,
        repeats="command",
    ),
)

_DELETIONS: Final = (
    _delete("delete_task", "tasks/{task}", "Delete a task with its children."),
    _delete("delete_thread", "threads/{thread_id}", "Delete a thread with all its tasks."),
    _post(
        "prune",
        "delete",
        "prune",
        ("older_than", "states", "labels", "dry_run"),
        "Delete tasks that ended long ago.",
        types={"older_than": float},
        repeats="itself",
        result=PruneReport,
    ),
)

_OBJECTS: Final = list[dict[str, Json]]

LONG: Final = 3_600.0
"""Seconds that a request waits for a whole answer, unless it says otherwise."""

_OF_RESPONSES: Final = (
    *("model", "input", "instructions", "previous_response_id", "conversation", "stream", "background"),
    *("store", "metadata", "tools", "tool_choice", "parallel_tool_calls", "temperature"),
    *("max_output_tokens", "max_tool_calls", "text", "include"),
    *("top_p", "presence_penalty", "frequency_penalty", "top_logprobs", "truncation", "service_tier"),
    *("reasoning", "prompt", "moderation", "context_management", "verbosity", "prompt_cache_options"),
    *("background_options", "access_programs", "image"),
    *("user", "safety_identifier", "prompt_cache_key", "prompt_cache_retention", "stream_options"),
)
"""The members of a request of the Responses API. `server.protocols.responses_input` says which are honoured."""

_PROTOCOLS: Final = (
    Operation(
        name="run_agui",
        method="POST",
        path="/agui/{agent}",
        access="run",
        summary="Run an agent over AG-UI 1.0, and stream the events of the run; needs the scope `read` too.",
        body=(
            *("threadId", "runId", "messages", "tools", "context", "state", "resume"),
            *("forwardedProps", "parentRunId", "protocolVersion"),
        ),
        types={
            **dict.fromkeys(("threadId", "runId"), str),
            "messages": _OBJECTS,
            **dict.fromkeys(("tools", "context", "resume"), _OBJECTS | None),
            **dict.fromkeys(("state", "forwardedProps"), Json),
            **dict.fromkeys(("parentRunId", "protocolVersion"), str | None),
        },
        result=str,
        repeats="itself",
        media="text/event-stream",
        protocol="agui",
        needs=("threadId", "runId", "messages"),
    ),
    Operation(
        name="call_mcp",
        method="POST",
        path="/mcp",
        access="any",
        summary="Answer a request of MCP: list agents and served tools, call them, and read and answer their tasks.",
        body=("jsonrpc", "id", "method", "params", "result", "error"),
        types=dict.fromkeys(("jsonrpc", "id", "method", "params", "result", "error"), Json),
        result=dict[str, Json],
        repeats="itself",
        media="text/event-stream",
        protocol="mcp",
    ),
    Operation(
        name="run_a2a",
        method="POST",
        path="/a2a/{agent}",
        access="any",
        summary="Carry out a method of A2A 1.0 with an agent, as a call of JSON-RPC; each method needs its scope.",
        query=("A2A-Version",),
        body=("jsonrpc", "id", "method", "params"),
        types={"A2A-Version": str, **dict.fromkeys(("jsonrpc", "id", "method", "params"), Json)},
        result=dict[str, Json],
        repeats="itself",
        protocol="a2a",
        streams=True,
    ),
    Operation(
        name="get_a2a_card",
        method="GET",
        path="/a2a/{agent}/.well-known/agent-card.json",
        access="any",
        summary="Return the A2A card of an agent.",
        result=dict[str, Json],
        protocol="a2a",
    ),
    Operation(
        name="get_a2a_server_card",
        method="GET",
        path="/.well-known/agent-card.json",
        access="any",
        summary="Return the A2A card of the server's agent, if it has only one.",
        result=dict[str, Json],
        protocol="a2a",
    ),
    Operation(
        name="create_response",
        method="POST",
        path="/v1/responses",
        access="run",
        summary="Create a response, as the OpenAI API does, whole or as a stream; needs the scope `read` too.",
        body=_OF_RESPONSES,
        types={**dict.fromkeys(_OF_RESPONSES, Json), "model": str},
        result=dict[str, Json],
        repeats="task",
        streams=True,
        waits=LONG,
        protocol="responses",
        needs=("model",),
    ),
    Operation(
        name="get_response",
        method="GET",
        path="/v1/responses/{response_id}",
        access="read",
        summary="Return a response, or stream its events after one of them.",
        query=("stream", "starting_after", "include_obfuscation"),
        types={"stream": bool | None, "starting_after": int | None, "include_obfuscation": bool | None},
        result=dict[str, Json],
        streams=True,
        protocol="responses",
    ),
    Operation(
        name="delete_response",
        method="DELETE",
        path="/v1/responses/{response_id}",
        access="delete",
        summary="Delete the task of a response.",
        result=dict[str, Json],
        protocol="responses",
    ),
    Operation(
        name="cancel_response",
        method="POST",
        path="/v1/responses/{response_id}/cancel",
        access="control",
        summary="Cancel a response.",
        body=(),
        result=dict[str, Json],
        repeats="itself",
        waits=SOON,
        protocol="responses",
    ),
    Operation(
        name="list_input_items",
        method="GET",
        path="/v1/responses/{response_id}/input_items",
        access="read",
        summary="Return the input of a response, as a page of items.",
        query=("after", "limit", "order"),
        types={"after": str | None, "limit": int | None, "order": Literal["asc", "desc"]},
        result=dict[str, Json],
        most=100,
        protocol="responses",
    ),
)

OPERATIONS: Final = {
    row.name: row
    for row in (*_ABOUT, *_LISTS, *_READS, *_RUNS, *_DECISIONS, *_EDITS, *_DELETIONS, *_PROTOCOLS)
}
"""Every operation, by its name."""

PROTOCOLS: Final = tuple(dict.fromkeys([row.protocol for row in _PROTOCOLS]))
"""The protocols that a server can speak besides its own."""

ELSEWHERE: Final[dict[str, str]] = {
    "store": "the store belongs to the servers: open it with Runner(store)",
    "observers": "observers belong to the processes that drive: Runner(observers=...) of the server",
    "abandoned": "abandoned calls are those of the process that drives",
    "log_filter": "secrets are known to the process that drives: use log_filter() of its Runner",
    "middleware_of": "middleware belongs to the processes that drive: ask a Runner with the agents",
    "drain": "the server drains by itself when it is stopped",
    "begin_adopting": "a server adopts by itself; other processes do by `treadle drive` or Runner(adopt=True)",
    "set_policy": "policies belong to the processes that drive: call set_policy on the Runner of the server",
    "export_tasks": "an export is written where the store is: `treadle export`, or GET /v1/tasks/{id}/export",
    "import_tasks": "tasks are imported where the store is: `treadle import`",
}
"""The members of a runner without a row, and their replacements."""


def operation_of(verb: str, arguments: Mapping[str, Any]) -> Operation:
    """Return the operation of a verb. Of several, it is that with the most of the arguments in its path."""
    rows = [row for row in OPERATIONS.values() if row.verb == verb]
    return max(rows, key=lambda row: sum(arguments.get(name) is not None for name in row.in_path))
