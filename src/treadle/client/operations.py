"""What the client sends for each verb: the method, the path and where each argument stands.

The arguments themselves, their names and their defaults, are those of the runner's verb.
"""

from __future__ import annotations

from typing import Any, Final

from treadle.core.data import frozen
from treadle.core.messages import File
from treadle.core.permits import StandingGrant
from treadle.results import results
from treadle.results.agent_info import AgentInfo
from treadle.results.read_results import EventPage, Lineage, PastRequest, StepPage, UsageReport
from treadle.transfer.verifying import VerifyReport


@frozen
class Row:
    """The request of one verb.

    Args:
        method: of HTTP.
        path: below `/v1/`, with the names of arguments in braces.
        result: the type of what the server answers; None for nothing.
        query: arguments in the query.
        body: arguments in the body; None if it has none.
        has_key: whether it takes a key under which it can be repeated.
        waits: whether the answer may have to be waited for.
    """

    method: str
    path: str
    result: Any = None
    query: tuple[str, ...] = ()
    body: tuple[str, ...] | None = None
    has_key: bool = False
    waits: bool = False


def _command(path: str, result: Any = None, *body: str, waits: bool = False, has_key: bool = True) -> Row:
    return Row("POST", path, result, (), body, has_key, waits)


_FILTERS = (
    *("state", "agent", "thread_id", "parent", "forked_from", "since", "until", "labels", "search", "roots"),
    "updated_since",
)
_RESULT: Final[Any] = results.RunResult[Any]

ROWS: Final[dict[str, Row]] = {
    "get_agents": Row("GET", "agents", tuple[AgentInfo, ...]),
    "get_task": Row("GET", "tasks/{task}", results.Task[Any], ("at",)),
    "result": Row("GET", "tasks/{task}/result", _RESULT, ("at",)),
    "list_tasks": Row("GET", "tasks", results.TaskPage, (*_FILTERS, "limit", "cursor")),
    "count_tasks": Row("GET", "totals", results.TaskTotals, _FILTERS),
    "usage": Row("GET", "usage", UsageReport, ("since", "until", "by", "agent", "labels")),
    "get_events": Row("GET", "tasks/{task}/events", EventPage, ("after", "limit", "kinds")),
    "get_steps": Row("GET", "tasks/{task}/steps", StepPage[Any], ("after", "limit")),
    "get_upcoming_steps": Row("GET", "tasks/{task}/steps/upcoming", tuple[results.StepInfo, ...]),
    "get_step": Row("GET", "tasks/{task}/steps/{step}", results.TaskStepOutput[Any]),
    "get_request": Row("GET", "tasks/{task}/steps/{step}/request", PastRequest, ("call",)),
    "get_lineage": Row("GET", "tasks/{task}/lineage", Lineage, ("limit",)),
    "get_artifact": Row("GET", "tasks/{task}/artifacts/{artifact_id}", File),
    "get_thread": Row("GET", "threads/{thread_id}/messages", results.ThreadMessages),
    "list_threads": Row("GET", "threads", results.ThreadPage, ("limit", "cursor")),
    "list_pending": Row("GET", "pending", results.PendingPage, ("thread_id", "limit", "cursor")),
    "list_grants": Row("GET", "grants", tuple[StandingGrant, ...], ("thread_id", "revoked")),
    "diff": Row("GET", "diff", results.Difference, ("a", "b")),
    "verify": Row("GET", "tasks/{task}/verify", VerifyReport),
    "send": _command("tasks/{task}/send", None, "message", "role"),
    "pause": _command("tasks/{task}/pause", _RESULT, "reason", waits=True),
    "interrupt": _command("tasks/{task}/interrupt", _RESULT, "reason", waits=True),
    "cancel": _command("tasks/{task}/cancel", _RESULT, "reason", waits=True),
    "settle": _command("tasks/{task}/settle", None, "request_id", "verdict"),
    "approve": _command("tasks/{task}/approve", None, "request_id", "arguments", "scope", "same"),
    "deny": _command("tasks/{task}/deny", None, "request_id", "reason", "stop"),
    "answer": _command("tasks/{task}/answer", None, "request_id", "value"),
    "complete": _command("tasks/{task}/complete", None, "ticket", "value"),
    "fail": _command("tasks/{task}/fail", None, "ticket", "error"),
    "progress": _command("tasks/{task}/progress", None, "ticket", "value"),
    "revoke": _command("grants/{grant_id}/revoke"),
    "undo_step": _command(
        "tasks/{task}/undo", results.UndoReport, "to", "step", "force", "dry_run", waits=True
    ),
    "fork": _command(
        "tasks/{task}/fork",
        results.Task[Any],
        *("at", "input", "replace", "thread_id", "options", "agent", "task_id", "instructions", "model"),
    ),
    "finalize": _command("tasks/{task}/finalize", _RESULT, waits=True),
    "edit_step": _command("tasks/{task}/edit_step", results.StepInfo, "input"),
    "edit_call": _command("tasks/{task}/edit_call", None, "call_id", "arguments"),
    "skip_step": _command("tasks/{task}/skip_step", None, "step"),
    "compact_thread": _command(
        "threads/{thread_id}/compact", results.CompactionReport, "keep", "context_tokens", waits=True
    ),
    "import_thread": _command("threads/{thread_id}/import", str, "messages"),
    "delete_task": Row("DELETE", "tasks/{task}"),
    "delete_thread": Row("DELETE", "threads/{thread_id}"),
    "prune": _command(
        "prune", results.PruneReport, "older_than", "states", "labels", "dry_run", has_key=False
    ),
}
"""The verbs that are one request each."""

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
"""What a client does not have, and where it is."""
