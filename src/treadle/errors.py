"""The tree of all errors that Treadle raises. The failure of a task is a result, not an exception.

TreadleError
├── ConfigurationError              an agent, option or limit is not valid (also a ValueError)
│   ├── InvalidField                a field of a JSON document is missing, unknown or of another type
│   ├── MissingExtra                an optional package is not installed
│   ├── ModelUnknown                no provider answers to this model name
│   └── PriceUnknown                a limit on cost is set, and the price of a model is not known
├── MisusedVerb                     called on the class, or used without `await` (also a TypeError)
├── WrongArguments                  an argument that does not exist, or one too few or too many (also a TypeError)
├── UnknownAttribute                an object has no such attribute (also an AttributeError)
├── NotFound                        (also a LookupError)
│   ├── TaskNotFound · StepNotFound · CallNotFound · ArtifactNotFound · ThreadNotFound · GrantNotFound
│   ├── TicketNotFound              no call has such a ticket
│   └── AgentUnknown                this process does not have the task's agent
├── ContextFailed                   the runner's `context_factory` raised: the task was not driven
├── TaskStateError                  the verb does not fit the task's state
│   ├── TaskFinished · TaskUnfinished · TaskParked · TaskBusy · TaskConflict
│   ├── TaskMoved                   the task's journal has newer events than the caller saw
│   ├── ThreadBusy                  another task runs in the thread and `on_busy_thread="reject"`
│   ├── StepFailed                  the step failed and the failure policy is to fail
│   ├── ChildTask                   a child continues only with the task that called it
│   ├── AlreadyFinalized · AlreadyDecided · ApproverRefused · TicketClosed
│   │   └── RequestClosed           no decision was made: the call of the request has ended or was taken back
│   ├── IrreversibleStep · UndoUnfinished · ForkPointBusy
│   ├── VersionRefused              the agent changed and `on_version_change="refuse"`
│   └── TaskTooNew                  a newer version wrote the task's journal: this one cannot drive it
├── TaskEndedBadly                  raised by `RunResult.raise_for_state()`
│   ├── TaskFailed                  the task ended failed
│   │   └── GuardrailStopped        a guardrail refused a content of it
│   └── TaskCancelled · TaskInterrupted
├── StoredTraceback                 the cause of a failure, as text: the exception object is gone
├── RequestRefused                  a server refused a request before it touched a task
├── ServerUnavailable               no server answered, or the client is closed
├── StoreError
│   ├── StoreUnavailable            cannot be opened, read or written
│   ├── StoreFormatError            not ours, or of another version
│   ├── JournalCorrupt              a record was changed, lost or cut
│   ├── ImportRefused               a file is not an export, or was cut or changed
│   └── Fenced                      another driver owns the task now
├── ModelError                      a provider refused or failed; `kind` is from a closed list
├── WorkerError                     a custom worker broke its contract
│   ├── NotReproducible             code that ran again made a different request
│   └── StepHasNoOutput             the requested step failed or was skipped (also a LookupError)
└── ToolError                       a tool could not be called
    ├── QuestionUnanswered          a question expired without an answer, and it has no default
    ├── ToolCallFailed              a call that a step made did not succeed; `outcome` names its end
    │   └── SubagentFailed          an agent that a step ran did not succeed
    ├── HostUnavailable             the declared host of a tool is not available, so it did not run
    ├── MiddlewareError             a middleware broke its contract, for instance by calling `next` twice
    ├── SecretRefused               the tool does not declare the secret that it asks for
    ├── SecretUnavailable           a secret has no source, or its source does not return it
    ├── ToolDefinitionError         the function cannot be a tool (also a ConfigurationError)
    ├── ToolOutcomeUnknown          the service of a tool disappeared before it answered
    ├── ToolsetUnavailable          a toolset, such as an MCP server, is not available: the task was not driven
    └── ToolArgumentsInvalid        the arguments do not fit the tool's schema
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any, Final, Literal

ModelErrorKind = Literal[
    "authentication",
    "permission",
    "not_found",
    "invalid_request",
    "too_large",
    "rate_limit",
    "overloaded",
    "server",
    "timeout",
    "connection",
    "refused",
    "truncated",
    "unparsable",
    "empty",
    "not_sent",
    "denied",
    "unknown",
]
"""The kinds of a `ModelError`. `not_sent`: a layer held the request back, so nothing was asked or spent.

`denied`: a policy held the request back. `empty`: the answer held no text and no call.
"""


PASSING: Final[frozenset[ModelErrorKind]] = frozenset(
    ("rate_limit", "overloaded", "server", "timeout", "connection", "not_sent")
)
"""Failures that may pass: 408, 409, 425, 429 and 5xx, deadlines, lost connections, requests not sent."""


class TreadleError(Exception):
    """The base of all errors raised by Treadle."""


class ConfigurationError(TreadleError, ValueError):
    """A value given to an agent, a tool, an option or a limit is not valid."""


class InvalidField(ConfigurationError):
    """A field of a JSON document is missing, unknown or of another type. `field` names it.

    Args:
        problem: the problem with the field.
        field: the path of the field, such as `messages[0].parts[1].type`; empty for the document itself.
    """

    def __init__(self, problem: str, *, field: str = "") -> None:
        super().__init__(f"{field}: {problem}" if field else problem)
        self.problem = problem
        self.field = field

    def inside(self, name: str) -> InvalidField:
        """Return the same problem as seen from the document whose field `name` holds this one's."""
        dot = "" if not self.field or self.field.startswith("[") else "."
        return InvalidField(self.problem, field=f"{name}{dot}{self.field}")

    @classmethod
    def unknown(cls, names: Iterable[str], known: Collection[str]) -> InvalidField:
        """Return the problem that some names are not all known."""
        first = next(name for name in names if name not in known)
        return cls(f"is not known; there are: {', '.join(sorted(known)) or 'none'}", field=f"{first:.80}")


class MissingExtra(ConfigurationError):
    """An optional package is needed and not installed.

    Args:
        extra: the extra that brings it, such as `openai`.
        what: the feature that needs the package, as the subject of a sentence.
    """

    def __init__(self, extra: str, what: str) -> None:
        super().__init__(
            f"{what} needs an optional package, from your clone of Treadle: pip install '/path/to/treadle[{extra}]'"
        )
        self.extra = extra


class ModelUnknown(ConfigurationError):
    """No provider that Treadle knows has a model of this name."""


class PriceUnknown(ConfigurationError):
    """A limit on cost was set, and the price of a model is not known.

    Args:
        message: the text of the error.
        model: `provider:model`.
    """

    def __init__(self, message: str, *, model: str) -> None:
        super().__init__(message)
        self.model = model


class MisusedVerb(TreadleError, TypeError):
    """A verb was called on the class, or its result was used without `await`."""


class WrongArguments(TreadleError, TypeError):
    """A call has an unknown argument, or one too few or too many. The message names the fix."""


class UnknownAttribute(TreadleError, AttributeError):
    """An object has no attribute of this name. The message names the right one.

    Args:
        name: the name.
        tell: returns the message. It is only called when the error is shown, since code may probe for attributes.
    """

    def __init__(self, name: str, tell: Callable[[], str]) -> None:
        # Without the object, Python appends no suggestion of its own.
        super().__init__(name, name=name)
        self._tell = tell

    def __str__(self) -> str:
        return self._tell()

    def __reduce__(self) -> tuple[Any, ...]:
        return AttributeError, (str(self),)


class NotFound(TreadleError, LookupError):
    """An object with this id does not exist in this store."""


class TaskNotFound(NotFound):
    """No task of this id is in this store."""


class StepNotFound(NotFound):
    """The task has no step of this id or index on its present branch."""


class CallNotFound(NotFound):
    """The task has no tool call of this id on its present branch."""


class TicketNotFound(NotFound):
    """No call of the task has such a ticket."""


class ArtifactNotFound(NotFound):
    """The task has no artifact of this id on its present branch."""


class ThreadNotFound(NotFound):
    """No task was finalized in a thread of this id."""


class GrantNotFound(NotFound):
    """No approval for later calls has this id."""


class AgentUnknown(NotFound):
    """The process that should drive the task does not have its agent."""


class ContextFailed(TreadleError):
    """The runner's `context_factory` raised, so the task `task_id` was not driven. The cause is its error."""

    def __init__(self, message: str, *, task_id: str) -> None:
        super().__init__(message)
        self.task_id = task_id


class TaskStateError(TreadleError):
    """The verb does not fit the state of the task."""

    def __init__(self, message: str, *, task_id: str | None = None, state: str | None = None) -> None:
        super().__init__(message)
        self.task_id = task_id
        self.state = state


class TaskFinished(TaskStateError):
    """The task has answered or ended, so it accepts no further step or message."""


class TaskUnfinished(TaskStateError):
    """The task has not answered yet, so it has no answer to return or finalize."""


class TaskParked(TaskStateError):
    """The task waits or is paused. `pending` lists its open requests."""

    def __init__(self, message: str, *, task_id: str, state: str, pending: tuple[Any, ...] = ()) -> None:
        super().__init__(message, task_id=task_id, state=state)
        self.pending = pending


class ChildTask(TaskStateError):
    """The task is a child and continues only with `parent`, the task that called it."""

    def __init__(self, message: str, *, task_id: str, parent: str) -> None:
        super().__init__(message, task_id=task_id)
        self.parent = parent


class TaskBusy(TaskStateError):
    """A driver is running the task."""


class ThreadBusy(TaskStateError):
    """Another task runs in the thread. `thread_id` names the thread and `task_id` that task."""

    def __init__(self, message: str, *, task_id: str, thread_id: str) -> None:
        super().__init__(message, task_id=task_id)
        self.thread_id = thread_id


class TaskMoved(TaskStateError):
    """The task's journal has newer events than the caller saw. `head` is its last event now."""

    def __init__(self, message: str, *, task_id: str, head: int) -> None:
        super().__init__(message, task_id=task_id)
        self.head = head


class TaskConflict(TaskStateError):
    """A task of this id exists with another agent, input or thread. `field` names the difference."""

    def __init__(self, message: str, *, task_id: str, field: str) -> None:
        super().__init__(message, task_id=task_id)
        self.field = field


class StepFailed(TaskStateError):
    """A step failed and the failure policy is to fail. `output` and `error` describe the failure."""

    def __init__(self, message: str, *, task_id: str, output: Any, error: Any) -> None:
        super().__init__(message, task_id=task_id, state="failed")
        self.output = output
        self.error = error


class AlreadyFinalized(TaskStateError):
    """The thread has newer messages after those of the task, so they cannot be taken back. Fork the task instead."""


class AlreadyDecided(TaskStateError):
    """The request already has a different decision."""


class RequestClosed(AlreadyDecided):
    """The call or step of the request has ended, was changed or was taken back. No decision was made."""


class TicketClosed(TaskStateError):
    """The call in the background ended without its ticket. It expired, was cancelled or was taken back."""


class ApproverRefused(TaskStateError):
    """The policy does not let this person decide on the request."""


class IrreversibleStep(TaskStateError):
    """A step to undo has calls with effects and without `undo=`. `calls` names them."""

    def __init__(self, message: str, *, task_id: str, calls: tuple[str, ...]) -> None:
        super().__init__(message, task_id=task_id)
        self.calls = calls


class UndoUnfinished(TaskStateError):
    """An undo has begun and not ended. Call `undo_step` again, or settle the calls that it waits for."""


class ForkPointBusy(TaskStateError):
    """At the point of the fork, a call has begun and not ended."""


class VersionRefused(TaskStateError):
    """The agent has changed since the task began, and the options refuse to continue."""


class TaskTooNew(TaskStateError):
    """The task has events of a newer version of Treadle. This version does not know them and cannot drive the task.

    Args:
        message: the text of the error.
        task_id: the task.
        needs: the journal format that a driver of the task must know.
        knows: the journal format that this version knows.
    """

    def __init__(self, message: str, *, task_id: str, needs: int, knows: int) -> None:
        super().__init__(message, task_id=task_id)
        self.needs = needs
        self.knows = knows


class TaskEndedBadly(TreadleError):
    """The task did not complete. `result` is its `RunResult`."""

    def __init__(self, message: str, result: Any) -> None:
        super().__init__(message)
        self.result = result


class TaskFailed(TaskEndedBadly):
    """The task ended failed."""


class GuardrailStopped(TaskFailed):
    """A guardrail, or a person whom it asked, refused a content of the task.

    `guards` names the refused content: `input`, `output` or `result`. `guardrail` is the id of the guardrail, and `by`
    the name of the person.
    """

    def __init__(self, message: str, result: Any) -> None:
        super().__init__(message, result)
        error = result.error
        self.guards: str = error.kind
        self.guardrail: str | None = error.rule
        self.by: str | None = error.by


class StoredTraceback(TreadleError):
    """The cause of a failure whose exception object is gone. `text` is its traceback in the journal."""

    def __init__(self, text: str) -> None:
        super().__init__(f"\n\n{text}\n")
        self.text = text

    def __reduce__(self) -> tuple[Any, ...]:
        return StoredTraceback, (self.text,)


class TaskCancelled(TaskEndedBadly):
    """The task was cancelled."""


class TaskInterrupted(TaskEndedBadly):
    """The task was interrupted and can be resumed."""


class StoreError(TreadleError):
    """A store could not carry out a request. No acknowledged write is lost."""


class StoreUnavailable(StoreError):
    """The store cannot be opened, read or written now."""


class StoreFormatError(StoreError):
    """The file or database is not a Treadle store, or was written by another version."""


class JournalCorrupt(StoreError):
    """A record was changed, lost or cut. `task_id` and `seq` say where."""

    def __init__(self, message: str, *, task_id: str, seq: int) -> None:
        super().__init__(message)
        self.task_id = task_id
        self.seq = seq


class ImportRefused(StoreError):
    """The file is not an export, was cut or changed, or does not fit the store. `line` says where."""

    def __init__(self, message: str, *, line: int) -> None:
        super().__init__(message)
        self.line = line


class Fenced(StoreError):
    """Another driver owns the task now, so this driver's commit was refused."""


class RequestRefused(TreadleError):
    """A server refused a request before it reached a task.

    Args:
        message: the problem and its fix.
        status: the status of the response, such as 401 for a missing or invalid token.
        problem: the server's name of the problem.
    """

    def __init__(self, message: str, *, status: int | None = None, problem: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.problem = problem


class ServerUnavailable(TreadleError):
    """No server answered within the client's `patience`. Tasks that have begun continue on the server.

    A closed client raises it too.
    """


class ModelError(TreadleError):
    """A model provider refused or failed.

    Args:
        message: the provider's own message, shortened.
        kind: the kind of failure, from a closed list, by type, status and headers.
        status: the HTTP status, if there was one.
        retry_after: seconds that the provider asks to wait, if it does.
        again_in: seconds after which to repeat the request, by decision of a layer around the model. None: do not
            repeat it. The caller waits, not the layer.
        model: the model that failed, as `provider:model`, if it is not the requested one.
        route, next_route: the choices among several models in this attempt and in the next one. They are positions,
            outermost first, such as `1` or `0.2`.
        also: further requests that the attempt sent, each a `SideCall`.
        usage: the tokens (`Usage`) of a complete but unusable answer, if the provider reported them.
    """

    def __init__(
        self,
        message: str,
        *,
        kind: ModelErrorKind = "unknown",
        status: int | None = None,
        retry_after: float | None = None,
        again_in: float | None = None,
        model: str = "",
        route: str = "",
        next_route: str = "",
        also: tuple[Any, ...] = (),
        usage: Any = None,
    ) -> None:
        super().__init__(message)
        self.kind: ModelErrorKind = kind
        self.status = status
        self.retry_after = retry_after
        self.again_in = again_in
        self.model = model
        self.route = route
        self.next_route = next_route
        self.also = also
        self.usage = usage


class WorkerError(TreadleError):
    """A custom worker broke its contract, so its step fails."""


class NotReproducible(WorkerError):
    """Code that ran again made a different request in the same place or under the same key."""


class StepHasNoOutput(WorkerError, LookupError):
    """A step asked for the output of a failed or skipped step, or of a step that it does not wait for."""


class ToolError(TreadleError):
    """A tool could not be called, or raised this error itself. The model gets the message as the call's error."""


class QuestionUnanswered(ToolError):
    """A question of a tool or step expired without an answer, and it has no default."""


class ToolCallFailed(ToolError):
    """A call that a step made did not succeed.

    Args:
        message: the error, as a model reads it.
        tool: name of the tool.
        call_id: id of the call.
        outcome: its end: `error`, `timeout`, `invalid`, `refused`, `denied`, `cancelled`, `abandoned` or `unknown`.
    """

    def __init__(self, message: str, *, tool: str, call_id: str, outcome: str) -> None:
        super().__init__(message)
        self.tool = tool
        self.call_id = call_id
        self.outcome = outcome


class SubagentFailed(ToolCallFailed):
    """An agent that a step ran did not succeed. `outcome` names its end."""


class ToolDefinitionError(ToolError, ConfigurationError):
    """A function cannot be made a tool."""


class HostUnavailable(ToolError):
    """The declared host of a tool is not available here, so the tool did not run. The message names the reason."""


class MiddlewareError(ToolError):
    """A middleware broke its contract. For instance, it called `next` twice or did not return a `ToolOutput`."""


class SecretRefused(ToolError):
    """A tool asked for a secret that it does not declare. `name` is its name.

    Args:
        message: the text of the error.
        name: the name of the secret.
    """

    def __init__(self, message: str, *, name: str) -> None:
        super().__init__(message)
        self.name = name


class SecretUnavailable(ToolError):
    """A secret could not be read. `name` is its name, and `where` its source.

    Args:
        message: the text of the error.
        name: the name of the secret.
        where: its source: a variable, a file or a function. None if it has no source.
    """

    def __init__(self, message: str, *, name: str, where: str | None) -> None:
        super().__init__(message)
        self.name = name
        self.where = where


class ToolOutcomeUnknown(ToolError):
    """A tool cannot tell whether its call took effect, because its service disappeared before it answered.

    The outcome of a call that may write is then unknown, as after a timeout. Any other call has failed.
    """


class ToolsetUnavailable(ToolError):
    """The tools of a toolset, such as an MCP server, are not available. The task waits for its next drive.

    Args:
        message: the error, with the name of the toolset.
        toolset: name of the toolset.
    """

    def __init__(self, message: str, *, toolset: str) -> None:
        super().__init__(message)
        self.toolset = toolset


class ToolArgumentsInvalid(ToolError):
    """The arguments do not fit the tool's schema. The message names each misfit.

    `is_tools` is true if a validator of the tool wrote part of the text. Such text may quote its input.
    """

    def __init__(self, message: str, *, is_tools: bool = False) -> None:
        super().__init__(message)
        self.is_tools = is_tools
