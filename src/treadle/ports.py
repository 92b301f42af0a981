"""The ports of Treadle: models, tools, memory, journal stores and observers. Their docstrings are the contracts.

This module holds no behaviour. An adapter of a port passes that port's conformance suite in `treadle.testing`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, MutableMapping, Sequence
from contextlib import AbstractAsyncContextManager
from contextvars import Context
from dataclasses import field
from datetime import datetime
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Final,
    Generic,
    Literal,
    Protocol,
    TypeAlias,
    TypeGuard,
    cast,
    get_args,
    overload,
    runtime_checkable,
)

from treadle.core.data import frozen, mutable
from treadle.core.events import END_STATES, Ephemeral, Event, ForkChange
from treadle.core.ids import in_tenant
from treadle.core.messages import Content, File, Image, Json, Message, ToolCall
from treadle.core.model import ModelAnswer, ModelDelta, ModelRequest
from treadle.core.permits import StandingGrant
from treadle.core.tools import ToolSpec, Verdict
from treadle.core.unknown_names import explains_names
from treadle.errors import ConfigurationError, SecretUnavailable, StoreFormatError, ToolError

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    ContextT = TypeVar("ContextT", default=Any)
    ContextT_co = TypeVar("ContextT_co", covariant=True, default=Any)
    ContextT_contra = TypeVar("ContextT_contra", contravariant=True, default=Any)
    OutputT = TypeVar("OutputT", default=Any)
    OutputT_co = TypeVar("OutputT_co", covariant=True, default=Any)
else:
    # The standard library's TypeVar accepts defaults from Python 3.13 on, and only type checkers read them.
    from typing import TypeVar

    ContextT = TypeVar("ContextT")
    ContextT_co = TypeVar("ContextT_co", covariant=True)
    ContextT_contra = TypeVar("ContextT_contra", contravariant=True)
    OutputT = TypeVar("OutputT")
    OutputT_co = TypeVar("OutputT_co", covariant=True)

T = TypeVar("T")

# ---------------------------------------------------------------------------------------------- models


class PydanticAIClient(Protocol):
    """An instance of a model class of pydantic-ai, accepted where a `Model` is: `PydanticAIModel` goes around it."""

    @property
    def model_name(self) -> str:
        """The provider's name for the model."""
        ...

    @property
    def system(self) -> str:
        """The name of the provider."""
        ...


@runtime_checkable
class Model(Protocol):
    """A client of a language model: it answers a `ModelRequest`.

    A model may also have any part of `FullModel`, such as `output_mode`. Runners and layers use the parts that it has.

    Every adapter follows these rules for requests. It does not send a reasoning part with the `meta` `UNSEEN`. It sends
    one with `IN_WORDS` as text if its message has calls. It sends a call that has a `problem` with its `raw` text
    instead of its arguments. It refuses a file that has only a `path` with kind `invalid_request`, since the author of
    a message could name any file. The `extra_headers` of `ModelSettings.extra` are headers, and the rest belongs to the
    body.

    Every adapter follows these rules for answers. A call has a `problem` instead of arguments if they are not a
    complete JSON object, or if the answer's finish is not in `WHOLE`. `llm.arguments.parsed_call` decides this. Data
    that the provider needs back is plain JSON in a part's `meta`. Secrets are not searched for under its keys
    `signature` and `provider_details`. `core.tokens.estimated_usage` estimates tokens that the provider does not
    report.
    """

    @property
    def name(self) -> str:
        """The name of the model, as `provider:model`."""
        ...

    def stream(self, request: ModelRequest) -> AsyncIterator[ModelDelta | ModelAnswer]:
        """Yield deltas while the model writes, then exactly one `ModelAnswer`.

        Makes one attempt, and never suppresses a cancellation. Raises `ModelError` for every refusal and failure of the
        provider, also for an answer that breaks off. A layer that wants another attempt sets `ModelError.again_in` and
        does not wait. The caller then journals the failed attempt, waits, and calls `stream` again with that attempt in
        the request.
        """
        ...


OutputMode: TypeAlias = Literal["native", "tool", "prompt"]
"""How to request a typed answer of a model."""


class FullModel(Model, Protocol):
    """A model with all optional parts. `has_part` says whether a model has a part."""

    @property
    def output_mode(self) -> OutputMode:
        """How to request a typed answer. Default: `tool`.

        `native`: the model follows `ModelRequest.output_schema`, also when tools are offered. `tool`: it calls tools.
        `prompt`: it only writes text.
        """
        ...

    @property
    def service(self) -> str:
        """The service whose failures count together. Default: the provider in the model's name."""
        ...

    @property
    def account(self) -> str:
        """The account whose requests count together. Default: the service."""
        ...

    def ready_in(self) -> float:
        """Return the seconds until the model accepts a request. Default: 0."""
        ...

    def choose(self, route: str) -> tuple[str, str]:
        """Return the name of the model that a request with this route reaches, and the complete route.

        For a model around several models. Default: its own name and the same route.
        """
        ...

    def require(self) -> None:
        """Raise `MissingExtra` if a package that it needs is not installed. Default: it needs none."""
        ...

    def preload(self) -> None:
        """Begin to load the packages of the first request in a thread, and return at once. Default: do nothing.

        A runner calls it when it creates a task.
        """
        ...

    async def until_loaded(self) -> None:
        """Wait until these packages are loaded. Default: return at once. A limit on time counts from then on."""
        ...

    async def prepare(self) -> None:
        """Load the packages of the first request now. Default: do nothing."""
        ...

    def limit_waits(self, connect: float | None, silence: float | None) -> None:
        """Limit the waits of clients that are created from now on. Default: do nothing.

        Args:
            connect: seconds for a connection. None: no limit.
            silence: seconds between two pieces of an answer. None: no limit.
        """
        ...

    def secret_values(self) -> frozenset[str]:
        """Return the keys that it sends, so that they can be masked everywhere. Default: none."""
        ...


ModelPart: TypeAlias = Literal[
    "output_mode",
    "service",
    "account",
    "ready_in",
    "choose",
    "require",
    "preload",
    "until_loaded",
    "prepare",
    "limit_waits",
    "secret_values",
]


def has_part(model: Model, part: ModelPart) -> TypeGuard[FullModel]:
    """Return whether a model has a part of `FullModel`. A part that is None counts as missing."""
    return getattr(model, part, None) is not None


def chosen_model(model: Model, route: str) -> tuple[str, str]:
    """Return the name of the model that answers a request with this route, and the complete route.

    Args:
        model: any model. A model around several has a method `choose`.
        route: the choices so far, see `ModelRequest.route`.
    """
    if getattr(model, "choose", None) is None:  # has_part, without a call in each step
        return model.name, route
    return cast("FullModel", model).choose(route)


def output_mode_of(model: Model) -> OutputMode:
    """Return a model's `output_mode`, else `tool`.

    Raises `ConfigurationError` for any other value.
    """
    mode = model.output_mode if has_part(model, "output_mode") else "tool"
    if mode not in get_args(OutputMode):
        raise ConfigurationError(
            f"the model {model.name} says output_mode={mode!r}: it must be 'native', 'tool' or 'prompt'"
        )
    return mode


def model_names(model: Model) -> tuple[str, ...]:
    """Return the names of all models that a request to this model may reach.

    They are those of its inner models, else its own. A layer has its inner models in `models`, if it has several, else
    in `model`, and a second model in `other`.
    """
    names = [name for inner in _models_inside(model) for name in model_names(inner)]
    return tuple(dict.fromkeys(names)) or (model.name,)


async def until_loaded(model: Model) -> None:
    """Wait until a model and its inner models have loaded the packages of their first request."""
    for inner in _models_inside(model):
        await until_loaded(inner)
    if has_part(model, "until_loaded"):
        await model.until_loaded()


def model_secrets(model: Model) -> frozenset[str]:
    """Return the keys that a model and its inner models report as sent."""
    own = model.secret_values() if has_part(model, "secret_values") else ()
    return frozenset(own).union(*[model_secrets(each) for each in _models_inside(model)])


def _models_inside(model: Model) -> list[Model]:
    several: Any = getattr(model, "models", None)
    if not isinstance(several, (list, tuple)):
        several = (getattr(model, "model", None), getattr(model, "other", None))
    return [model for model in cast("Sequence[Model]", several) if hasattr(model, "stream")]


# ----------------------------------------------------------------------------------------------- tools


def _new_state() -> Callable[[], MutableMapping[str, Json]]:
    """Return a function that always returns one empty state, for a context without a task."""
    state: dict[str, Json] = {}
    return lambda: state


class CallServices(Protocol):
    """The services of the engine for the tool of a call."""

    async def ask(self, question: str, schema: Any, expires: float | None, default: tuple[Any, ...]) -> Any:
        """Return a person's answer. The call stops until there is one, then starts again. `default` may be empty."""
        ...

    async def once(self, name: str, fn: Callable[[], T | Awaitable[T]]) -> T:
        """Call a function once under this name in this call of the tool, and return its result."""
        ...

    async def sleep(self, seconds: float | None, until: datetime | float | None) -> None:
        """Return once a time has come. The call stops until then, then starts again."""
        ...

    def wait(self, awaitable: Awaitable[T]) -> T:
        """Wait for an awaitable in a thread other than the event loop's."""
        ...


class NoServices:
    """The services where a tool's code runs outside of a call. Each use raises `ToolError`.

    Args:
        where: the code that runs outside of a call, for the error.
    """

    def __init__(self, where: str = "a ToolContext that no call made") -> None:
        self._where = where

    def __getattr__(self, name: str) -> Any:
        if name not in ("ask", "once", "sleep", "wait"):
            raise AttributeError(name)
        raise ToolError(f"ctx.{name}(...) is for tools while they run in a task, not for {self._where}")


NO_DEFAULT: Final[Any] = object()
"""The value of an omitted argument."""

BACKGROUND_SECONDS: Final = 604_800.0
"""Seconds (a week) until the ticket of a call in the background expires, unless its tool says otherwise."""

MAX_SECONDS: Final = 1e10
"""The longest wait, in seconds: some three hundred years."""


@explains_names("ToolContext")
@mutable
class ToolContext(Generic[ContextT_co]):
    """The context of a call, for its tool. A parameter with this annotation gets it, and the model does not see it.

    Args:
        idempotency_key: the same for each attempt of this call, and different for every other call, also after a fork.
        attempt: 1 for the first start.
        context: the `context=` of the run. It is never shown to a model and never stored.
        open_state: creates `state` at its first use.
        open_services: creates the services of `ask`, `once`, `sleep` and `wait` at their first use.
        issued: the ticket of this start, if the tool declares `background=True`.
        cancelled: returns whether the call should stop. Tools in threads call it from time to time.
        open_secret: returns the value of a secret by its name. Tests of a tool pass a function such as `{...}.get`.
        on_left_behind: for custom tool classes. A tool calls it when it returns while part of its work continues and
            cannot be stopped. Its argument is a function that returns whether that work still runs.
        on_start: for custom tool classes with `spec.host`. A tool calls it when its code is about to act. Until then
            the call's timeout does not run, and a stopped call has not happened.
    """

    task_id: str
    thread_id: str
    step_id: str
    call_id: str
    idempotency_key: str
    agent: str
    attempt: int
    context: ContextT_co
    on_progress: Callable[[Any], None] | None = field(default=None, repr=False)
    cancelled: Callable[[], bool] = field(default=lambda: False, repr=False)
    on_left_behind: Callable[[Callable[[], bool]], None] | None = field(default=None, repr=False)
    open_state: Callable[[], MutableMapping[str, Json]] = field(default_factory=_new_state, repr=False)
    open_services: Callable[[], CallServices] = field(default=cast("Any", NoServices), repr=False)
    issued: str = field(default="", repr=False)
    open_secret: Callable[[str], str] | None = field(default=None, repr=False)
    on_start: Callable[[], None] | None = field(default=None, repr=False)

    @property
    def state(self) -> MutableMapping[str, Json]:
        """The task's `extra_state`: JSON data by name, as it was when the call began.

        The call's changes are stored with its end. If the call fails or is stopped, none are stored. In `undo=` and
        `reconcile=` it has its present value and is read-only.
        """
        return self.open_state()

    @property
    def ticket(self) -> str:
        """The text with which any process can complete the call. Pass it only to the process that does the work.

        It is valid from now on, also if this process crashes before the tool returns. Only a tool that declares
        `background=True` has one.
        """
        if not self.issued:
            raise ToolError(
                f"call {self.call_id} has no ticket: declare the tool with @tool(background=True), and use "
                "the context of the call itself"
            )
        return self.issued

    def background(self, details: Json = None, *, expires: float = BACKGROUND_SECONDS) -> Background:
        """Return the result of a tool whose work continues in the background. Completing `ticket` ends the call.

        Args:
            details: facts about the work, such as its id elsewhere. The model reads them, and `undo=` gets them as
                `call.output` until the call has an output.
            expires: seconds after which the call ends as timed out. Default: 604,800, a week.

        Raises:
            ToolError: the tool does not declare `background=True`.
        """
        if not isinstance(expires, (int, float)) or not 0 < expires < MAX_SECONDS:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ToolError(f"ctx.background: expires must be a number of seconds above 0, got {expires!r}")
        self.ticket  # noqa: B018  raises for a tool that has none
        return Background(details, expires=float(expires))

    def secret(self, name: str) -> str:
        """Return a secret of the runner by its name. The tool must declare it: `@tool(secrets=("crm",))`.

        It reads the secret's source, which may block. A function in the event loop can call
        `await asyncio.to_thread(ctx.secret, "crm")` for a slow source. From then on the value is masked everywhere.

        Raises:
            SecretRefused: the tool does not declare it.
            SecretUnavailable: it has no source, or its source does not return it.
        """
        if self.open_secret is None:
            raise SecretUnavailable(
                f"the secret {name!r} cannot be had: this context was made without open_secret=",
                name=name,
                where=None,
            )
        return self.open_secret(name)

    def progress(self, value: Json) -> None:
        """Report the progress of the call to watchers. It is safe in any thread, and never stored."""
        if self.on_progress is not None:
            self.on_progress(value)

    @overload
    async def ask(self, question: str, *, expires: float | None = None, default: str = ...) -> str: ...
    @overload
    async def ask(
        self, question: str, schema: type[T], *, expires: float | None = None, default: T = ...
    ) -> T: ...
    @overload
    async def ask(
        self, question: str, schema: Any, *, expires: float | None = None, default: Any = ...
    ) -> Any: ...
    async def ask(
        self,
        question: str,
        schema: Any = str,
        *,
        expires: float | None = None,
        default: Any = NO_DEFAULT,
    ) -> Any:
        """Return a person's answer to a question, of the type `schema`.

        The attempt ends here, and the process may exit. Once there is an answer, the tool starts again from its top
        under the same idempotency key, and `ask` returns the answer. So only `read_only` or `idempotent` tools may ask.
        They must ask the same questions in the same order each time. Work before a question that must not be repeated
        belongs in `once`.

        Args:
            question: the text that the person reads.
            schema: the type of the answer: any type that pydantic supports. Default: text.
            expires: seconds until the question expires, more than 0. None: it never expires.
            default: the answer of an expired question, and in a run with `interaction="headless"`.

        Raises:
            QuestionUnanswered: the question expired, and has no default.
            NotReproducible: the tool asked a different question here when it ran before.
            ToolError: the tool is neither `read_only` nor `idempotent`, so it cannot start again.
        """
        return await self.open_services().ask(
            question, schema, expires, () if default is NO_DEFAULT else (default,)
        )

    @overload
    async def once(self, name: str, fn: Callable[[], Awaitable[T]]) -> T: ...
    @overload
    async def once(self, name: str, fn: Callable[[], T]) -> T: ...
    async def once(self, name: str, fn: Callable[[], T | Awaitable[T]]) -> T:
        """Call a function once under this name in this call of the tool, and return its result: JSON data.

        The value is durable before `once` returns, so later attempts of the call get it without calling the function. A
        process that crashes while the function runs leaves no value. So pass `idempotency_key` to services that support
        idempotency keys.

        Args:
            name: the name of the value in this call.
            fn: a function without arguments, sync or async.

        Raises:
            ToolError: the result is not JSON data, or the call has ended.
        """
        return await self.open_services().once(name, fn)

    async def sleep(self, seconds: float | None = None, *, until: datetime | float | None = None) -> None:
        """Sleep for some time, or until a time. The process may exit meanwhile.

        The attempt ends here. Once the time has come, the tool starts again from its top under the same idempotency
        key, and `sleep` returns at once. So only `read_only` or `idempotent` tools may sleep. Work before it that must
        not be repeated belongs in `once`. The end of the sleep stays the same however often the tool starts.

        Args:
            seconds: how long.
            until: a `datetime` with its zone, or seconds since 1970, UTC. A time in the past does not end the attempt.

        Raises:
            ConfigurationError: neither or both are set, or the time is not possible.
            ToolError: the tool is neither `read_only` nor `idempotent`, so it cannot start again.
        """
        await self.open_services().sleep(seconds, until)

    def wait(self, awaitable: Awaitable[T]) -> T:
        """Return the result of an awaitable of this context, in a sync tool: `ctx.wait(ctx.ask(...))`."""
        return self.open_services().wait(awaitable)


@frozen
class ToolOutput:
    """A tool's result in three forms: for the journal, the model and a person. A plain return value is all three.

    Args:
        output: the raw value for the journal, as JSON data.
        observation: the text or content parts for the model. Default: the output as text.
        display: the text for people. Default: the observation's text.
        sources: the sources of the result, each any JSON data, such as `{"title", "url"}`.
        artifacts: files that the call made, stored with the task and shown to no model. Each is a `File` or an `Image`
            with a name, from a URL, bytes, or a local path, which is read now.
        origin: the origin of the result, such as `web:example.org`, if it is not the tool itself. A result with an
            origin is untrusted, even if the tool is declared as trusted.
    """

    output: Json
    observation: str | Sequence[str | Content] | None = None
    display: str | None = None
    sources: Sequence[Json] = ()
    artifacts: Sequence[File | Image] = ()
    origin: str | None = None


@frozen
class Background(ToolOutput):
    """The result of a call whose work continues. `output` has facts about it, and the ticket ends the call.

    Args:
        expires: seconds until the ticket expires.
    """

    expires: float = BACKGROUND_SECONDS


@runtime_checkable
class Tool(Protocol[ContextT_contra]):
    """A tool that a model can call. The tool decides where it runs: inline, in a thread, or in another process.

    A tool may also have an attribute `context_type`, the required type of a run's context. It is checked before the
    first request.
    """

    @property
    def spec(self) -> ToolSpec: ...

    def validate(self, arguments: dict[str, Json]) -> Any:
        """Return the arguments in the form that `call` takes, without calling. Raises `ToolArgumentsInvalid`."""
        ...

    async def call(self, arguments: Any, ctx: ToolContext[ContextT_contra]) -> ToolOutput:
        """Run with arguments from `validate`. Any exception is the call's error.

        When cancelled it ends only once its work has really stopped. After a second cancel it gives up waiting. The
        first argument of the `CancelledError` is `cancelled` if the task is cancelled, so that no attempt follows, else
        `timeout` or `interrupted`. The result's `output` is plain JSON data, and its `observation` is text or content
        parts.
        """
        ...

    async def undo(self, call: ToolCall, ctx: ToolContext[ContextT_contra]) -> None:
        """Take back a finished call, whose result is `call.output`. Only if `spec.undoable`."""
        ...

    async def reconcile(self, call: ToolCall, ctx: ToolContext[ContextT_contra]) -> Verdict:
        """Find out whether a call that began before a crash took effect. Only if `spec.reconcilable`."""
        ...


class ToolsetConnection(Protocol):
    """The connection of one driver process to a toolset: its tools, with their child process or session."""

    async def tools(self) -> Sequence[Tool]:
        """Return the present tools, as the same object until they change.

        Starts or restarts the child process or session. Raises `ToolsetUnavailable` if that fails.
        """
        ...

    async def close(self) -> None:
        """End the child process or session. Idempotent."""
        ...


@runtime_checkable
class HoldsCredentials(ToolsetConnection, Protocol):
    """A connection of a toolset that sends credentials. A server may echo them in a result.

    They are masked in journals, streams, logs, and requests to models.
    """

    def credentials(self) -> Collection[str]:
        """Return the credentials of the declaration."""
        ...

    def tell_tokens(self, learn: Callable[[str], None]) -> None:
        """Call `learn`, in any thread, with each later credential, such as a token that expires."""
        ...


@runtime_checkable
class Toolset(Protocol):
    """Tools that a process can list only over a connection, such as those of an MCP server.

    `Agent(tools=[...])` takes it like a tool. It is a declaration without state. Each driver process connects once.
    Each drive uses the tools that the connection lists when the drive begins.
    """

    @property
    def name(self) -> str:
        """The prefix of its tools' names, before `__`."""
        ...

    def facts(self) -> Json:
        """Return JSON data without secrets that identifies the declaration, for the fingerprint of the agent."""
        ...

    def known_specs(self) -> tuple[ToolSpec, ...] | None:
        """Return the tools that are known without a connection, or None if they were never listed."""
        ...

    def connect(self) -> ToolsetConnection:
        """Return a new connection, which starts nothing yet."""
        ...


# ---------------------------------------------------------------------------------------------- memory


class Conversation(Protocol):
    """A growing conversation, of which a model sees a part: a task's, or one agent's view of it."""

    @property
    def messages(self) -> list[Message]:
        """The messages. The list grows in place, and is replaced after an undo."""
        ...

    @property
    def own_from(self) -> int:
        """Index of the first message of the task itself."""
        ...

    @property
    def summarised(self) -> bool:
        """Whether the first message is a summary of older ones."""
        ...

    @property
    def fingerprint(self) -> str:
        """The version of the agent."""
        ...

    @property
    def instructions(self) -> str | None:
        """The instructions of the agent."""
        ...


class ConversationWindow(Protocol):
    """The part of one task's conversation that models see. Pure: the same messages give the same view."""

    def show(self, limit: int, instructions: str, tools: Sequence[ToolSpec]) -> Sequence[Message]:
        """Return the messages for a request of at most `limit` tokens, with these tools.

        It keeps system messages, a summary, the task's own input and the newest messages. It never separates a call
        from its result. A single message that is too large is shown as an excerpt. The engine calls it before each
        request of a task, and it reads each message once. Raises `ModelError` (`too_large`) if instructions and tools
        leave no room.
        """
        ...


class Memory(Protocol):
    """Reduces long conversations for models."""

    def window(self, conversation: Conversation) -> ConversationWindow:
        """Return a window that follows a conversation. The caller keeps it as long as the conversation."""
        ...

    def tokens(self, messages: Sequence[Message]) -> int:
        """Return the number of tokens of messages."""
        ...

    def transcript(
        self, previous: str | None, turns: Sequence[Sequence[Message]], limit: int
    ) -> tuple[str, int]:
        """Return a text to summarise of about `limit` tokens, and the number of turns in it.

        It has the previous summary and the turns after it, at least the first one.
        """
        ...


# --------------------------------------------------------------------------------------------- journals


@mutable
class Record:
    """One commit of one task: consecutive events, encoded together.

    Args:
        seq: the sequence number of its last event. The first event of a task has number 1.
        count: the number of its events, so its first is `seq - count + 1`.
        epoch: the epoch of the task's owner that wrote it.
        data: the encoded events, opaque to stores.
        digest: a hash over the previous record's digest and this data, opaque to stores.
        blobs: large values of `data`, by digest. A known digest is not stored again. Reads return them with the record.
        upto: in a read of a fork, the last event of this record that the fork shares. None: all.
    """

    seq: int
    count: int
    epoch: int
    data: bytes
    digest: bytes
    blobs: dict[str, bytes] = field(default_factory=dict[str, bytes])
    upto: int | None = None


@mutable
class NewTask:
    """A task row to create. With `base` it is a fork, whose events 1 to `base_seq` are those of task `base`."""

    task_id: str
    agent: str
    thread_id: str
    created: int
    """microseconds since 1970, UTC"""
    parent: str | None = None
    base: str | None = None
    base_seq: int = 0
    labels: dict[str, str] = field(default_factory=dict[str, str])


@mutable
class ThreadChange:
    """A change of a thread, in the same transaction as its record.

    `add` makes (task, seq) the thread's newest member and its version `expected + 1`. It is refused with `ThreadMoved`
    if the thread's version is not `expected`. With `covers` the member is a summary. Models see it instead of the
    messages of all members up to that version, which stay members. `remove` takes the task out. It is refused with
    `AlreadyFinalized` if newer members other than summaries follow, or if a summary covers the task. A summary can
    always be taken out. A thread without any change has version 0, and versions only grow.
    """

    action: Literal["add", "remove"]
    thread_id: str
    expected: int = 0
    covers: int = 0


AT_ONCE: Final = 1
"""The `due_at` time of a task that a driver is to adopt now. In microseconds since 1970, UTC, so it has passed."""

OnBusyThread = Literal["enqueue", "reject", "interrupt", "parallel"]
"""How a task enters its thread while other tasks are driven there. See `Commit.enter`."""


@mutable
class QueuePosition:
    """The place of a task in the queue of its thread.

    Only a task with an owner has a place. A claim begins without a place unless it requests one. The place ends with
    the ownership. No task waits for a task whose owner crashed.

    Args:
        held: whether the task has the thread and may begin.
        version: the thread's version in the same transaction.
        holders: the other tasks that have the thread now. Only `parallel` makes more than one.
        number: the order of the waiting tasks, smallest first. 0 for a task that has the thread.
    """

    held: bool
    version: int
    holders: tuple[str, ...] = ()
    number: int = 0


@frozen
class TaskFigures:
    """The figures of a task in lists, besides its row, from the last write of its row.

    `tokens` and `cost` include all tasks below the task. `own_tokens` and `own_cost` are of the task alone, so that
    sums over several tasks count nothing twice. Costs are in pico-dollars, and None if a part is not known. `updated`
    is the time of its last event, in microseconds since 1970, UTC. `input` and `outcome` are cut to a line. `outcome`
    is its answer, or the reason of its failure. `text` is a longer piece of both, folded, for searches. `pending` is
    the number of its requests that wait for a person, its caller or a ticket. While the task is driven, and after a
    crash of its driver, None stands for 0. It is also None in rows of versions that did not count them. `model` is the
    model that was asked last. `fork_changes` are those of a fork, each with its text cut to a line, and `shared_steps`
    the number of its steps that it shares. `undos` counts the undos in its events, shared ones included.
    """

    steps: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: int | None = 0
    own_tokens: int = 0
    own_cost: int | None = 0
    updated: int = 0
    input: str = ""
    outcome: str = ""
    text: str = ""
    pending: int | None = None
    model: str = ""
    fork_changes: tuple[ForkChange, ...] = ()
    shared_steps: int = 0
    undos: int = 0


@mutable
class TaskSums:
    """The number of some tasks and their spending, without the tasks below them.

    Args:
        tasks: their number.
        tokens: the tokens of those with known figures.
        cost: in pico-dollars, of those with a known cost.
        unpriced: the number of tasks whose cost is not known.
        driven: the number of tasks that a living driver owns.
    """

    tasks: int = 0
    tokens: int = 0
    cost: int = 0
    unpriced: int = 0
    driven: int = 0

    def add(self, other: TaskSums) -> None:
        """Add the figures of other tasks."""
        self.tasks += other.tasks
        self.tokens += other.tokens
        self.cost += other.cost
        self.unpriced += other.unpriced
        self.driven += other.driven


@mutable
class Commit:
    """A change of one task, written in one transaction or not at all.

    Args:
        task_id: the task.
        epoch: the epoch of the writing owner. Refused with `Fenced` if it is not the task's newest.
        record: the events, or None if only the row changes. Refused with `Fenced` if events before it are missing or
            another record has its place. The same record, by seq, epoch and digest, is accepted again without a change,
            even if the task has another owner. A driver sends a commit again after a lost acknowledgement.
        create: the task row to insert first, owned by this process with this `epoch`. Refused with `TaskExists`.
        state: the row's new state. None: unchanged.
        release: end the ownership, unless the inbox has items not taken.
        leave: with `release`, end the ownership even with such items. The next owner takes them.
        due_at: with `release`, the time from which a driver is to adopt the task, in microseconds since 1970, UTC.
            `AT_ONCE`: now. 0: never. See `JournalStore.orphans`.
        seal: refuse with `InboxWaiting` if the inbox has items not taken by this or earlier commits.
        taken: the ids of the inbox items that the record's events answer.
        thread: a change of a thread.
        enter: request the thread that the task's row names, while the task is owned. `Committed.place` is the answer.
            `enqueue`: it gets the thread unless a task of a living owner has it or waits. Otherwise it waits after all
            waiting tasks. `interrupt`: the same, but it waits before them. `reject`: refused with `ThreadBusy` if it
            cannot have the thread at once. `parallel`: it has the thread beside its holders, and `place` stays None. A
            task that requests again keeps its place, and gets the thread once it is first. If the owner of the thread's
            holder crashed, that holder loses the thread in the same transaction and its epoch grows by one. This fences
            its old owner if it wakes. The holder then counts as a task whose driver crashed, even if that process
            renews its lease.
        format: the journal format that a driver must know to continue the task. The row keeps the highest.
        figures: the task's new figures in lists. None: unchanged.
        grants: approvals for later calls, which the store keeps. A stored grant does not change.
    """

    task_id: str
    epoch: int
    record: Record | None = None
    create: NewTask | None = None
    state: str | None = None
    release: bool = False
    leave: bool = False
    due_at: int = 0
    seal: bool = False
    taken: tuple[str, ...] = ()
    thread: ThreadChange | None = None
    enter: OnBusyThread | None = None
    format: int = 1
    figures: TaskFigures | None = None
    grants: tuple[StandingGrant, ...] = ()


@mutable
class Committed:
    """The commit is durable. `released` says whether the ownership ended. `place` answers `Commit.enter`."""

    released: bool = False
    place: QueuePosition | None = None


class Refused(Exception):
    """A commit was checked and not written. The driver handles it, so a user never sees it."""


class TaskExists(Refused):
    """A task of this id already exists."""


class InboxWaiting(Refused):
    """The inbox holds an item that must be read before the task ends."""


class ThreadMoved(Refused):
    """The thread has another version now."""

    def __init__(self, version: int) -> None:
        super().__init__(f"the thread is at version {version}")
        self.version = version


@frozen
class JournalEnd:
    """The end of a task's journal at the last write of its row. It reveals a missing tail.

    Stores write it with a claim, and with a commit that creates the task, changes its state or ends the ownership. It
    only grows. Between two of these, the journal may be longer.
    """

    seq: int
    """the last event"""

    digest: bytes
    """of the record that holds it; empty without one"""


@mutable
class Driver:
    """A process that drives tasks.

    It is alive until its lease has passed. On the same host, boot and process space it is dead once its process ended.

    Args:
        lease: the end of its lease unless it is renewed, in microseconds since 1970, UTC. 0: its store was closed.
            None: its store is in the memory of its process.
    """

    driver_id: str
    host: str
    pid: int
    alive: bool
    lease: int | None = None


@mutable
class TaskRow:
    """A task as its store lists it. `driver` is its owner, or its last owner if that crashed."""

    task_id: str
    agent: str
    thread_id: str
    state: str
    created: int
    parent: str | None
    base: str | None
    base_seq: int
    epoch: int
    labels: dict[str, str]
    driver: Driver | None
    head: int = 0
    """sequence number of the last event"""

    mark: JournalEnd | None = None
    """None for a deleted task, and for rows of versions without marks"""

    deleted: bool = False
    """no longer listed, but kept for forks or a thread"""

    due_at: int = 0
    """from when a driver is to adopt it, in microseconds since 1970, UTC; 0 for never. Set by a release, or by a claim
    from a driver that crashed (`AT_ONCE`), until the next release.
    """

    format: int = 1
    """the journal format that a driver must know: the highest of its commits and of its base"""

    figures: TaskFigures | None = None
    """None until a commit has some, and for rows of versions without figures; `text` is empty"""

    tenant: str = ""
    """the tenant of the task"""

    @property
    def cursor(self) -> str:
        """The cursor of a list that continues after this row."""
        return f"{self.created}.{self.task_id}"

    @property
    def display_state(self) -> str:
        """The task's state as users see it. Unless the task has ended, its owner takes precedence over the stored
        state.

        A claim of an ended task changes nothing until the task is reopened, which changes the state too.
        """
        return state_word(self.state, None if self.driver is None else self.driver.alive)


BETWEEN_STEPS: Final = "between steps"
"""The displayed state of a `running` task that no process drives. Filters accept it as a state."""


def state_word(state: str, alive: bool | None) -> str:
    """Return a task's state as users see it.

    Args:
        state: the stored state.
        alive: whether its owner is alive. None: it has no owner.
    """
    if alive is None or state in END_STATES:
        return state
    return "running" if alive else "interrupted"


@mutable
class Claim:
    """Ownership of a task: the new epoch and the end of its journal."""

    epoch: int
    head: int
    digest: bytes
    """of the last record, or of the base's record at `base_seq` for a fork without own records; else empty"""

    place: QueuePosition | None = None
    """in its thread, if the claim requested one"""

    due_at: int = 0
    """from when the task was to be adopted, apart from its inbox: `AT_ONCE` if its last driver crashed, 0 for never"""

    is_taken_over: bool = False
    """whether its last driver did not release it, because it crashed or its lease passed"""


@mutable
class InboxItem:
    """A message or command for a task, not from its owner. The sender chooses the id. The same id twice is one item."""

    item_id: str
    kind: str
    data: dict[str, Json]
    created: int


@mutable
class ThreadMember:
    """A task whose messages are part of a thread: those of its own events up to `seq`."""

    version: int
    task_id: str
    seq: int
    gone: int | None = None
    """the version that took it out; `thread` never shows it, `restore_thread` accepts it"""

    covers: int = 0
    """for a summary, the version up to which it replaces the members before it for models; else 0"""


@mutable
class ThreadRow:
    """A thread as its store lists it: its version and its number of members, without summaries."""

    thread_id: str
    version: int
    members: int


@mutable
class TaskFilter:
    """A filter of tasks. All fields that are set must match.

    Args:
        states: a row's `display_state` is one of these. `BETWEEN_STEPS` matches `running` rows without a living driver.
        agent: the name of its agent.
        thread_id: its thread.
        parent: the task it is a child of.
        base: the task it was forked from.
        since: created at this time or later, in microseconds since 1970, UTC.
        until: created before this time.
        labels: it has all of these.
        search: a folded text that its figures' `text` contains. Rows without figures match too.
        beginning: the beginning of its id.
        end: the end of its id.
        limit: the most rows.
        cursor: the `cursor` of the last row of the page before.
        roots: it has no parent.
        updated_since: updated at this time or later, by its figures, in microseconds since 1970, UTC. Without figures
            its creation counts. Tasks with an owner always match, since the row does not have their progress yet.
        pending: it may wait for a person, its caller or a ticket. Tasks with an owner or without that figure match too.
        tenant: the tenant of the tasks.
    """

    states: tuple[str, ...] | None = None
    agent: str | None = None
    thread_id: str | None = None
    parent: str | None = None
    base: str | None = None
    since: int | None = None
    until: int | None = None
    labels: dict[str, str] | None = None
    search: str | None = None
    beginning: str | None = None
    end: str | None = None
    limit: int = 100
    cursor: str | None = None
    roots: bool = False
    updated_since: int | None = None
    pending: bool = False
    tenant: str = ""


@frozen
class AdoptionQuery:
    """A query of a process for tasks to adopt: those that it may drive now.

    Args:
        limit: the most rows.
        agents: the names of the agents that it has.
        format: the newest journal format that it knows.
        until: the latest due time of tasks that wait for a time, in microseconds since 1970, UTC.
        full_tenants: tenants for which it already drives as many tasks as it may.
        excluded: tasks to leave out, by tenant and id, since it drives them or tried to a moment ago.
        last_tenant: the tenant that it served last. The tenants after it come first. None: begin with the first tenant.
    """

    limit: int
    agents: tuple[str, ...]
    format: int
    until: int = AT_ONCE
    full_tenants: frozenset[str] = frozenset()
    excluded: frozenset[tuple[str, str]] = frozenset()
    last_tenant: str | None = None


@frozen
class StoreChanges:
    """The possible changes of a store since its watchers were last woken.

    Args:
        tasks: the ids of the tasks whose journal or row changed. None: any may have.
        mail: the ids of the tasks whose inbox has an item not taken.
        owners: whether a task may have another owner, or none, from now on.
        deleted: the ids of the deleted tasks, as far as the store knows them.
        outdated: the error if a newer version migrated the store beyond this version. From now on the store only
            accepts commits of tasks that this process owns, and they are to be released.
    """

    tasks: frozenset[str] | None = frozenset()
    mail: tuple[str, ...] = ()
    owners: bool = True
    deleted: frozenset[str] = frozenset()
    outdated: StoreFormatError | None = None


CommitDone = Callable[["Committed | Exception"], None]
Wake = Callable[[StoreChanges], None]
"""Called, from any thread, when a store may have changed."""


def missing_methods(store: object, port: type) -> list[str]:
    """Return the names of the methods and properties of a port that a store lacks, sorted."""
    methods: frozenset[str] = cast("Any", port).__abstractmethods__
    return sorted([name for name in methods if not hasattr(store, name)])


class TaskReader(Protocol):
    """The reads that running tasks needs.

    A store with several tenants prefixes each name with its tenant: of tasks, threads, blobs, grants and labels. It
    lists the tasks, threads and grants of one tenant. `TenantStores.of` returns the store of one tenant, which removes
    these prefixes again. The names of the tenant "" have no prefix.
    """

    @abstractmethod
    async def read(self, task_id: str, *, after: int = 0, upto: int | None = None) -> list[Record]:
        """Return the records that hold events `after` + 1 to `upto`, in order, with blobs.

        A fork's journal begins with the records of its base that hold an event up to `base_seq`. If the last of them
        holds later events too, its `upto` says so. Raises `TaskNotFound`. Raises `JournalCorrupt` if the last records
        up to the row's mark are missing, or up to `upto` if that comes first.
        """
        ...

    @abstractmethod
    async def row(self, task_id: str, *, deleted: bool = False) -> TaskRow:
        """Return a task's row. With `deleted`, also that of a deleted task whose records a fork or thread needs.

        Raises `TaskNotFound`.
        """
        ...

    @abstractmethod
    async def inbox(self, task_id: str) -> list[InboxItem]:
        """Return the items not taken yet, in order of arrival. Raises `TaskNotFound`."""
        ...

    @abstractmethod
    async def thread(
        self, thread_id: str, *, version: int | None = None, since: int = 0
    ) -> tuple[int, list[ThreadMember]]:
        """Return a thread's version and its members in order, now or at an earlier version.

        With `since`, only the members that versions after `since` added. Earlier members are not read.
        """
        ...


class JournalReader(TaskReader, Protocol):
    """The reading half of a `JournalStore`: it also lists and sums up tasks."""

    @abstractmethod
    async def rows(self, wanted: TaskFilter) -> list[TaskRow]:
        """Return matching rows, newest first: by `created`, then by id, descending."""
        ...

    @abstractmethod
    async def sums(self, wanted: TaskFilter) -> dict[str, TaskSums]:
        """Return the number of matching rows and their spending, by `display_state`. `limit` and `cursor` are ignored.

        A search leaves out rows without figures.
        """
        ...

    @abstractmethod
    async def usage(self, wanted: TaskFilter, by: str) -> dict[str | None, TaskSums]:
        """Return the number of matching rows and their spending, by `agent`, `day`, `model` or `label:NAME`.

        The days are those of `created`, UTC, such as `2026-11-23`. The model is that of the figures. Rows without a
        model, or without the label, are summed up under None.
        `stores.listing.label_key` gives the text of a label. `driven` stays 0. The filter's `states`, `search`, `limit`
        and `cursor` are ignored.
        """
        ...

    @abstractmethod
    async def threads(self, limit: int, *, after: str | None = None, tenant: str = "") -> list[ThreadRow]:
        """Return the threads of a tenant that have a version, by ascending id, after the id `after`."""
        ...

    @abstractmethod
    async def grants(
        self, *, tool: str | None = None, revoked: bool = False, tenant: str = ""
    ) -> list[StandingGrant]:
        """Return the approvals of a tenant that hold for later calls, oldest first.

        They are ordered by `created`, then by id.

        With `tool`, only those for calls of this tool. With `revoked`, also revoked ones.
        """
        ...


class TaskStore(TaskReader, Protocol):
    """A store of journals that runs tasks.

    One transaction covers a task's record, its row, its thread, its inbox and its blobs.

    A `Runner` takes one. Its verbs that list, search, sum up, export, import or delete need a `JournalStore`. With this
    store they raise `ConfigurationError`, which names the missing method. So does an approval for later calls: a store
    without `grants` gets no commit with grants.

    All methods can be called from any event loop and thread of the process. The first use opens the store, once. Errors
    of the store are `StoreError`s. An acknowledged write is never lost, and a failed write harms no other write.
    """

    @property
    @abstractmethod
    def url(self) -> str:
        """The address of this store, without secrets."""
        ...

    @property
    @abstractmethod
    def fenced(self) -> int:
        """The number of commits of this process that were refused with `Fenced` since the store was created."""
        ...

    @abstractmethod
    async def open(self) -> None:
        """Make the store usable. Idempotent. Raises `StoreUnavailable` or `StoreFormatError`."""
        ...

    @abstractmethod
    async def close(self) -> None:
        """Write the queued commits and close. Idempotent. Tasks owned through this store are orphans from then on."""
        ...

    @abstractmethod
    def commit(self, commit: Commit, done: CommitDone) -> None:
        """Queue a commit and return at once. Needs an open store and a running event loop.

        Commits of one task are written, and answered, in the order of the calls. The store calls `done` exactly once,
        in the calling event loop. Its argument is `Committed` once the commit is durable, else the `Refused` or
        `StoreError` that stopped it. A store that never waits calls it before `commit` returns. A refused commit has
        written nothing.
        """
        ...

    @abstractmethod
    async def claim(self, task_id: str, *, enter: bool = False) -> Claim:
        """Become the owner with the next epoch, and read the head in the same transaction.

        With `enter`, also request the task's thread, as a `Commit` with `enqueue` does.

        A task whose driver ended on this host can be claimed at once. A task of any other driver can be claimed once
        its lease has passed. A process has one lease for all its tasks. A thread renews it as long as the process owns
        a task, and a claim begins with a full lease. Dead drivers without a task are deleted.

        Raises `TaskNotFound`. Raises `TaskBusy` if a live driver, this process included, owns the task. Raises
        `TaskTooNew` if its row has a newer `format` than this version's `JOURNAL_FORMAT`. Raises `JournalCorrupt` if
        the journal ends before the row's mark, or ends at it with another digest. These errors change nothing. After
        any other error the claim may have succeeded. Then this object's next claim of the task returns the result of
        this claim. Without a next claim, the store releases the task as soon as it can write.
        """
        ...

    @abstractmethod
    async def orphans(
        self, limit: int, *, after: str | None = None, until: int = AT_ONCE, indirect: bool = False
    ) -> list[TaskRow]:
        """Return the tasks of all tenants that a driver is to adopt, oldest first, after the task `after`.

        These are the tasks of dead drivers, in any state. They are also tasks without an owner that have not ended, and
        have a `due_at` up to `until` or an item in their inbox. `until` is in microseconds since 1970, UTC.

        With `indirect`, return only those that `adoptable` never finds: children, and tasks that only have unread
        items.
        """
        ...

    @abstractmethod
    async def adoptable(self, query: AdoptionQuery) -> list[TaskRow]:
        """Return the orphans without a parent that a process may drive now, in order of priority.

        The tasks of dead drivers come first, oldest first. The others follow with tenants in turn, the oldest task of
        each first. It reads no more rows than it returns, however many tasks the query excludes.
        """
        ...

    @abstractmethod
    async def unadoptable(self, query: AdoptionQuery) -> list[TaskRow]:
        """Return the oldest orphan of each agent and format that the process does not have.

        A task may need an unknown agent or a newer format. Only `agents`, `format` and `until` of the query count.
        """
        ...

    @abstractmethod
    async def post(self, task_id: str, item: InboxItem) -> bool:
        """Put an item into a task's inbox, durably. Return False if its id was used before. Raises `TaskNotFound`."""
        ...

    @abstractmethod
    def watch(self, wake: Wake) -> Callable[[], None]:
        """Call `wake` soon after possible writes of other processes, in any thread. Return a function that stops it.

        Several writes may share a call. Writes through this object call it too, if several callers watch. The changes
        name each task whose journal grew, or that was created, claimed or released. After a gap in the store's
        notifications they name none, so `tasks` is None. A deletion may do the same in stores without a cheaper sign.
        The release of a task whose thread has waiting tasks is a change of owners.
        """
        ...


class JournalStore(TaskStore, JournalReader, Protocol):
    """A store for all verbs: a `TaskStore` that also lists, deletes, imports and takes snapshots."""

    @abstractmethod
    async def delete(self, task_id: str) -> None:
        """Remove a task with its children, rows, inbox and unshared blobs, in one transaction.

        Records that existing forks or a thread refer to stay readable for them, but the task itself is no longer found.
        It stays a member of its thread, even as the last one. Its children leave theirs. `stores/rules.py` defines the
        kept records and threads. Raises `TaskNotFound`. Raises `TaskBusy` while a live driver owns it or a child.
        """
        ...

    @abstractmethod
    async def delete_thread(self, thread_id: str) -> None:
        """Remove a thread and all its tasks, each as `delete` does, in one transaction.

        Its tasks are those whose rows name it. All members leave the thread, and its approvals for later calls are
        deleted. A prefix that forks in other threads share stays readable for them, with the versions of the thread
        that they began with. Raises `ThreadNotFound` if the thread has neither a task nor a version. Raises `TaskBusy`
        while a live driver owns one of its tasks or a child.
        """
        ...

    @abstractmethod
    async def revoke(self, grant_id: str, time: int, by: str | None) -> bool:
        """Revoke an approval for later calls. Return False if it was revoked before, which stays unchanged.

        Raises `GrantNotFound`.
        """
        ...

    @abstractmethod
    async def restore(self, row: TaskRow, records: Iterable[Record], inbox: Sequence[InboxItem] = ()) -> None:
        """Insert a task of another store with its own records, in one transaction or not at all.

        It has no owner, so `row.head` and `row.driver` are ignored. Records may be of several epochs. `records` is
        iterated a part at a time, in any thread and maybe more than once. Its errors are raised here. Raises
        `TaskExists`. Raises `TaskNotFound` if the base does not exist, and `Fenced` if the base ends before
        `row.base_seq`.
        """
        ...

    @abstractmethod
    async def restore_thread(self, thread_id: str, version: int, members: Sequence[ThreadMember]) -> None:
        """Insert a thread that has no version yet, in one transaction. `members` include removed ones.

        Raises `ThreadMoved` if the thread has a version. Raises `TaskNotFound` if a member is neither listed nor kept.
        """
        ...

    @abstractmethod
    def snapshot(self) -> AbstractAsyncContextManager[JournalReader]:
        """Return a context manager for a reader of the present store: one read-only transaction.

        It sees all commits that this process queued before. Writes do not wait for it. Until the block ends, the store
        keeps the old rows that the reader may need. The reader is for one event loop, one call at a time. Raises
        `StoreUnavailable`, here or in a method of the reader, also if the snapshot was lost.
        """
        ...


class TenantStores(Protocol):
    """The tenants of a store. Each tenant sees a store of its own."""

    @abstractmethod
    def of(self, tenant: str) -> JournalStore:
        """Return the store of a tenant. No name in it leads to data of another tenant."""
        ...

    @abstractmethod
    async def orphans(
        self, limit: int, *, after: TaskRow | None = None, until: int = AT_ONCE, indirect: bool = False
    ) -> list[TaskRow]:
        """Return the rows of `JournalStore.orphans`, of all tenants. A row's `tenant` names the tenant of its task.

        The list begins after the row `after`.
        """
        ...

    @abstractmethod
    async def adoptable(self, query: AdoptionQuery) -> list[TaskRow]:
        """Return the rows of `JournalStore.adoptable`, of all tenants."""
        ...

    @abstractmethod
    async def unadoptable(self, query: AdoptionQuery) -> list[TaskRow]:
        """Return the rows of `JournalStore.unadoptable`, of all tenants."""
        ...


# ------------------------------------------------------------------------------------------- observers


@frozen
class ObservedTask:
    """The task of an observed event. `parent` is its parent task, and `depth` its distance from the root.

    Ids are unique within `tenant`. Several tenants may have a task of the same id.
    """

    task_id: str
    agent: str
    thread_id: str
    parent: str | None = None
    depth: int = 0
    tenant: str = ""

    @property
    def full_id(self) -> str:
        """Its id prefixed with its tenant, unique among all tenants."""
        return in_tenant(self.tenant, self.task_id)


@mutable
class DriveBegan:
    """From here on this process owns the task. Sent with the first event that follows, to observers only.

    Args:
        seq: the task's last event before. 0 for a new task.
        epoch: the epoch of this ownership.
        previous: the epoch of the last event before. 0 for a new task.
        calls: the tools' names of calls that had not ended, by the calls' ids.
        context: the context variables of the caller.
        asked: the time of each open request to a person: approvals by the calls' ids, and questions by theirs.
    """

    kind: ClassVar[str] = "drive_began"
    seq: int
    epoch: int
    previous: int
    calls: dict[str, str]
    context: Context = field(repr=False, compare=False)
    asked: dict[str, int] = field(default_factory=dict[str, int])


@mutable
class DriveEnded:
    """A task was released in `state`: completed, waiting, paused, interrupted, and so on.

    `state` is `lost` if another driver took the task over, or if its store could not be written.
    """

    kind: ClassVar[str] = "drive_ended"
    state: str
    seq: int


@mutable
class Missed:
    """Events and deltas of any tasks were not delivered, because the observer was slower than the tasks."""

    kind: ClassVar[str] = "missed"
    events: int
    deltas: int


@explains_names("Notice")
@mutable
class Notice:
    """A notice for an observer: an event of a task that this runner drives. `task` is None for `Missed`."""

    task: ObservedTask | None
    event: Event | Ephemeral | DriveBegan | DriveEnded | Missed


@runtime_checkable
class Observer(Protocol):
    """Receives the events of all tasks that a runner, or one call of it, drives. It can neither fail nor slow them.

    It is called in its own thread, with one notice at a time. It gets each event of a task once, in order, when the
    event is durable. Its exceptions are logged and counted. Further notices wait in a bounded buffer. A full buffer
    drops deltas first, then the oldest events, and `Missed` counts both.

    It belongs to one runner, or to calls of one runner. Each call has a thread for it. It may also have
    `deltas = True`, to get the text that a model is writing. It may have `close()`, which is called in the same thread
    when the runner is closed and every notice was delivered. The end of a call does not close it, since other calls may
    have it too.

    It may have `enter_call(task, epoch, call, attempt)`, to set context variables for the code of a tool. That is
    called just before the tool runs, in a context of that call alone, and must return at once.
    """

    def observe(self, notice: Notice) -> None:
        """Handle a notice. Its contents are shared and must not be changed."""
        ...


Observers: TypeAlias = Sequence[Observer | Callable[[Notice], object] | str]
"""Observers as callers list them: functions of a `Notice`, objects, and the names `console`, `jsonl:PATH`, `otel`."""
