"""All that Treadle asks of the world: models, tools and a journal store. The docstrings are the contracts.

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
from treadle.core.events import END_STATES, Ephemeral, Event
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
    # The standard library's knows defaults from Python 3.13 on, and only type checkers ask for them.
    from typing import TypeVar

    ContextT = TypeVar("ContextT")
    ContextT_co = TypeVar("ContextT_co", covariant=True)
    ContextT_contra = TypeVar("ContextT_contra", contravariant=True)
    OutputT = TypeVar("OutputT")
    OutputT_co = TypeVar("OutputT_co", covariant=True)

T = TypeVar("T")

# ---------------------------------------------------------------------------------------------- models


@runtime_checkable
class Model(Protocol):
    """Something that answers a `ModelRequest`.

    A model may also have any part of `FullModel`, such as `output_mode`. Runners and layers use the parts it has.

    What every adapter keeps to in a request. A reasoning part with the `meta` `UNSEEN` is not sent; one with `IN_WORDS`
    goes back as text if its message has calls. A call with a `problem` goes back with its `raw` text instead of its
    arguments. A file that has only a `path` is refused with kind `invalid_request`: the author of a message could name
    any file. Of `ModelSettings.extra`, `extra_headers` are headers, and the rest goes into the body.

    What every adapter keeps to in an answer. A call has a `problem` and no arguments if they are no complete JSON
    object, or if the answer has a finish outside of `WHOLE`: `llm.arguments.parsed_call` decides. What the provider
    wants back is plain JSON in a part's `meta`; no key is searched for under `signature` and `provider_details`. Tokens
    that the provider does not tell are estimated by `core.tokens.estimated_usage`.
    """

    @property
    def name(self) -> str:
        """`provider:model`, as people write it."""
        ...

    def stream(self, request: ModelRequest) -> AsyncIterator[ModelDelta | ModelAnswer]:
        """Yield deltas while the answer is written and at the end exactly one `ModelAnswer`.

        Makes one attempt. Always lets cancellation through. Raises `ModelError` for every refusal and failure of the
        provider; an answer cut off in the middle is an error, not an answer. A layer that wants another attempt sets
        `ModelError.again_in` and does not wait: the caller journals the failed attempt, waits, and calls `stream`
        again with that attempt in the request.
        """
        ...


OutputMode: TypeAlias = Literal["native", "tool", "prompt"]
"""How to request a typed answer of a model."""


class FullModel(Model, Protocol):
    """A model with each part that a `Model` may leave out. `has_part` says whether a model has a part."""

    @property
    def output_mode(self) -> OutputMode:
        """How to request a typed answer; by default `tool`.

        `native`: it keeps to `ModelRequest.output_schema`, also when tools are offered. `tool`: it calls tools.
        `prompt`: it only writes text.
        """
        ...

    @property
    def service(self) -> str:
        """The service whose failures count together; by default the provider in the model's name."""
        ...

    @property
    def account(self) -> str:
        """The account whose requests count together; by default the service."""
        ...

    def ready_in(self) -> float:
        """Return the seconds until it would take a request; by default 0."""
        ...

    def choose(self, route: str) -> tuple[str, str]:
        """Return the name of the model that a request with a route goes to, and the route with all choices made.

        For a model around several. By default its own name and the same route.
        """
        ...

    def require(self) -> None:
        """Raise `MissingExtra` if packages that it needs are not installed; by default it needs none."""
        ...

    def preload(self) -> None:
        """Begin to load the packages of the first request in a thread, and return at once; by default nothing.

        A runner calls it when it makes a task.
        """
        ...

    async def until_loaded(self) -> None:
        """Wait until these packages are loaded; by default they are. A limit on time counts from then on."""
        ...

    async def prepare(self) -> None:
        """Load the packages of the first request, so that it does not wait for them; by default nothing."""
        ...

    def limit_waits(self, connect: float | None, silence: float | None) -> None:
        """Limit how long clients that are made from now on may wait; by default nothing.

        Args:
            connect: seconds for a connection; None sets no limit.
            silence: seconds for which an answer may be silent; None sets no limit.
        """
        ...

    def secret_values(self) -> frozenset[str]:
        """Return the keys that it sends, to be hidden wherever they turn up; by default none."""
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
    """Return whether a model has a part of `FullModel`; a part that is None counts as missing."""
    return getattr(model, part, None) is not None


def chosen_model(model: Model, route: str) -> tuple[str, str]:
    """Return the name of the model that answers a request with a route, and the route with all choices made.

    Args:
        model: any model; one around several has a method `choose`.
        route: the choices that are made already, see `ModelRequest.route`.
    """
    if getattr(model, "choose", None) is None:  # has_part, without a call in each step
        return model.name, route
    return cast("FullModel", model).choose(route)


def output_mode_of(model: Model) -> OutputMode:
    """Return the way to request a typed answer of a model: its `output_mode`, else `tool`.

    Raises `ConfigurationError` for any other value.
    """
    mode = model.output_mode if has_part(model, "output_mode") else "tool"
    if mode not in get_args(OutputMode):
        raise ConfigurationError(
            f"the model {model.name} says output_mode={mode!r}: it must be 'native', 'tool' or 'prompt'"
        )
    return mode


def model_names(model: Model) -> tuple[str, ...]:
    """Return the names of all models that a request to this model may reach: its inner models, or its own name.

    A layer has its inner models in `models`, if it has several, else in `model`, and a second model in `other`.
    """
    names = [name for inner in _models_inside(model) for name in model_names(inner)]
    return tuple(dict.fromkeys(names)) or (model.name,)


async def until_loaded(model: Model) -> None:
    """Wait until all is loaded that a model, and the models inside of it, need for their first request."""
    for inner in _models_inside(model):
        await until_loaded(inner)
    if has_part(model, "until_loaded"):
        await model.until_loaded()


def model_secrets(model: Model) -> frozenset[str]:
    """Return the keys that a model and the models inside of it send, as far as these tell them."""
    own = model.secret_values() if has_part(model, "secret_values") else ()
    return frozenset(own).union(*[model_secrets(each) for each in _models_inside(model)])


def _models_inside(model: Model) -> list[Model]:
    several: Any = getattr(model, "models", None)
    if not isinstance(several, (list, tuple)):
        several = (getattr(model, "model", None), getattr(model, "other", None))
    return [model for model in cast("Sequence[Model]", several) if hasattr(model, "stream")]


# ----------------------------------------------------------------------------------------------- tools


def _new_state() -> Callable[[], MutableMapping[str, Json]]:
    """Return what gives one and the same empty state each time: that of a context which no task made."""
    state: dict[str, Json] = {}
    return lambda: state


class CallServices(Protocol):
    """What the engine does for the tool of a call."""

    async def ask(self, question: str, schema: Any, expires: float | None, default: tuple[Any, ...]) -> Any:
        """Return a person's answer: the call rests until there is one and starts again; `default` is empty for none."""
        ...

    async def once(self, name: str, fn: Callable[[], T | Awaitable[T]]) -> T:
        """Return what a function returned when it was first called under a name in this call."""
        ...

    async def sleep(self, seconds: float | None, until: datetime | float | None) -> None:
        """Return once a time has come: the call rests until then and starts again."""
        ...

    def wait(self, awaitable: Awaitable[T]) -> T:
        """Wait for an awaitable in a thread that is not the event loop's."""
        ...


class NoServices:
    """Stands where a tool's code runs without a call that may ask and keep: each use raises `ToolError`.

    Args:
        where: what has no call, for the error.
    """

    def __init__(self, where: str = "a ToolContext that no call made") -> None:
        self._where = where

    def __getattr__(self, name: str) -> Any:
        if name not in ("ask", "once", "sleep", "wait"):
            raise AttributeError(name)
        raise ToolError(f"ctx.{name}(...) is for tools while they run in a task, not for {self._where}")


NO_DEFAULT: Final[Any] = object()
"""Stands for an argument that was left out."""

BACKGROUND_SECONDS: Final = 604_800.0
"""Seconds, a week, in which a call in the background is to end, unless its tool says otherwise."""

MAX_SECONDS: Final = 1e10
"""Seconds, some three hundred years: nothing waits for longer."""


@explains_names("ToolContext")
@mutable
class ToolContext(Generic[ContextT_co]):
    """What a tool may know of the call it serves; a parameter annotated with it is filled in, unseen by the model.

    Args:
        idempotency_key: the same for each attempt of this call, different for every other, also after a fork.
        attempt: 1 for the first start.
        context: the object given to the run; never shown to a model, never stored.
        open_state: makes `state` at its first use.
        open_services: makes what `ask`, `once`, `sleep` and `wait` need at their first use.
        issued: the ticket of this start, if the tool declares `background=True`.
        cancelled: asks whether the call should stop; tools in threads look at it now and then.
        open_secret: returns the value of a secret by its name; for tests of a tool, a function such as `{...}.get`.
        on_left_behind: for custom tool classes: a tool calls it when it returns though some of its work goes on and
            cannot be ended, with a function that says whether that work still runs.
        on_start: for custom tool classes with `spec.host`: a tool calls it when its code is about to act; before that
            the call's timeout does not run, and a call that is stopped has not happened.
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

        What the call changes is stored with its end: all of it, or nothing if the call fails or is stopped. In `undo=`
        and `reconcile=` it is as it is now, and cannot be changed.
        """
        return self.open_state()

    @property
    def ticket(self) -> str:
        """The text by which any process may complete the call: hand it to what does the work, and to nothing else.

        It is good from now on, also if this process crashes before the tool returns. Only a tool that declares
        `background=True` has one.
        """
        if not self.issued:
            raise ToolError(
                f"call {self.call_id} has no ticket: declare the tool with @tool(background=True), and use "
                "the context of the call itself"
            )
        return self.issued

    def background(self, details: Json = None, *, expires: float = BACKGROUND_SECONDS) -> Background:
        """Return what a tool returns to leave work in the background: the call ends when `ticket` is completed.

        Args:
            details: what the tool says of the work, such as its id elsewhere: the model reads it, `undo=` gets it as
                `call.output` while there is no other.
            expires: seconds after which the call ends as one that took too long; default 604,800, a week.

        Raises:
            ToolError: the tool does not declare `background=True`.
        """
        if not isinstance(expires, (int, float)) or not 0 < expires < MAX_SECONDS:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ToolError(f"ctx.background: expires must be a number of seconds above 0, got {expires!r}")
        self.ticket  # noqa: B018  raises for a tool that has none
        return Background(details, expires=float(expires))

    def secret(self, name: str) -> str:
        """Return a secret of the runner, by its name; the tool has to declare it: `@tool(secrets=("crm",))`.

        Its source is read now, which may block: a function in the event loop calls `await asyncio.to_thread(ctx.secret,
        "crm")` where that takes long. Wherever the value turns up from then on, it is hidden.

        Raises:
            SecretRefused: the tool does not declare it.
            SecretUnavailable: it has no source, or its source does not give it.
        """
        if self.open_secret is None:
            raise SecretUnavailable(
                f"the secret {name!r} cannot be had: this context was made without open_secret=",
                name=name,
                where=None,
            )
        return self.open_secret(name)

    def progress(self, value: Json) -> None:
        """Report the progress of the call to watchers; safe from any thread, never stored."""
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

        The attempt ends here, and the process may exit. Once there is an answer, the tool starts again from its top,
        under the same idempotency key, and this place returns the answer. So only tools that are `read_only` or
        `idempotent` may ask. They ask the same questions in the same order each time, and put what comes before a
        question and must not be done twice into `once`.

        Args:
            question: the text that the person reads.
            schema: the type of the answer, any that pydantic supports; by default text.
            expires: seconds until the question expires, more than 0; None to wait for any time.
            default: the answer if none comes in time, and in a run with `interaction="headless"`.

        Raises:
            QuestionUnanswered: the question expired, and has no default.
            NotReproducible: the tool asked another question here when it ran before.
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
        """Return what a function returned when it was first called under a name in this call: JSON data.

        The value is durable before this returns, so no later attempt of the call, after an answer or a crash, calls the
        function again. A process that crashes while the function runs leaves no value: pass `idempotency_key` on to
        services that know such keys.

        Args:
            name: the name of the value in this call.
            fn: a function without arguments, sync or async.

        Raises:
            ToolError: what it returned is not JSON data; or the call has ended.
        """
        return await self.open_services().once(name, fn)

    async def sleep(self, seconds: float | None = None, *, until: datetime | float | None = None) -> None:
        """Sleep for some time, or until a time; the process may exit meanwhile.

        The attempt ends here. Once the time has come, the tool starts again from its top, under the same idempotency
        key, and this place returns at once. So only tools that are `read_only` or `idempotent` may sleep, and put what
        comes before and must not be done twice into `once`. It sleeps for the same time however often it starts.

        Args:
            seconds: how long.
            until: a `datetime` with its zone, or seconds since 1970, UTC. A time that has passed does not end the
                attempt.

        Raises:
            ConfigurationError: neither is given, or both are, or a time that cannot be.
            ToolError: the tool is neither `read_only` nor `idempotent`, so it cannot start again.
        """
        await self.open_services().sleep(seconds, until)

    def wait(self, awaitable: Awaitable[T]) -> T:
        """Return the result of an awaitable of this context in a tool that is not `async`: `ctx.wait(ctx.ask(...))`."""
        return self.open_services().wait(awaitable)


@frozen
class ToolOutput:
    """The three faces of a result, for tools that want to choose them; a plain return value is all three.

    Args:
        output: the raw value, kept in the journal; JSON.
        observation: what the model sees: text or content parts; by default the output as text.
        display: what a person sees; by default the observation's text.
        sources: the sources of the result, each JSON data of the tool's choosing, such as `{"title", "url"}`.
        artifacts: files that the call made, stored with the task and shown to no model: each a `File` (or an `Image`)
            with a name, from a local path (read now), a URL, or bytes.
        origin: where the result comes from, such as `web:example.org`, where that is not the tool itself. A result with
            an origin is untrusted, also that of a tool that is declared as trusted.
    """

    output: Json
    observation: str | Sequence[str | Content] | None = None
    display: str | None = None
    sources: Sequence[Json] = ()
    artifacts: Sequence[File | Image] = ()
    origin: str | None = None


@frozen
class Background(ToolOutput):
    """The work of a call goes on: `output` is what its tool says of it, and the call ends by its ticket.

    Args:
        expires: seconds until the ticket expires.
    """

    expires: float = BACKGROUND_SECONDS


@runtime_checkable
class Tool(Protocol[ContextT_contra]):
    """Something a model may call. The tool decides where it runs (inline, in a thread, in another process).

    A tool may also have an attribute `context_type`, the type that the context of a run has to be of; it is checked
    before anything is sent.
    """

    @property
    def spec(self) -> ToolSpec: ...

    def validate(self, arguments: dict[str, Json]) -> Any:
        """Return the arguments in the form that `call` takes, without calling; raise `ToolArgumentsInvalid`."""
        ...

    async def call(self, arguments: Any, ctx: ToolContext[ContextT_contra]) -> ToolOutput:
        """Run with what `validate` returned. Any exception is the call's error.

        When cancelled it ends only once its work has really stopped; after a second cancel it gives up waiting.
        The result's `output` is plain JSON data and its `observation` is text or content parts.
        """
        ...

    async def undo(self, call: ToolCall, ctx: ToolContext[ContextT_contra]) -> None:
        """Take back a finished call (`call.output` is what it returned); only if `spec.undoable`."""
        ...

    async def reconcile(self, call: ToolCall, ctx: ToolContext[ContextT_contra]) -> Verdict:
        """Find out whether a call begun before a crash took effect; only if `spec.reconcilable`."""
        ...


class ToolsetConnection(Protocol):
    """The tools of a toolset in one driver process, and what keeps them there: a child process, a session."""

    async def tools(self) -> Sequence[Tool]:
        """Return the tools that there are now: the same object for as long as they are the same.

        Begins, or begins again, what the tools need. Raises `ToolsetUnavailable` when that cannot be had.
        """
        ...

    async def close(self) -> None:
        """End what the tools need; idempotent."""
        ...


@runtime_checkable
class HoldsCredentials(ToolsetConnection, Protocol):
    """A connection of a toolset that sends credentials: a server may send them back in a result.

    They are hidden in journals, streams and logs, and from models.
    """

    def credentials(self) -> Collection[str]:
        """Return the credentials that the declaration holds."""
        ...

    def tell_tokens(self, learn: Callable[[str], None]) -> None:
        """Call `learn`, in any thread, with each credential that becomes known later, such as a token that expires."""
        ...


@runtime_checkable
class Toolset(Protocol):
    """Tools that a process can only list once it has connected, such as those of an MCP server.

    `Agent(tools=[...])` takes it like a tool. It is a declaration without state; each driver process connects once, and
    each drive goes by the tools that the connection tells when the drive begins.
    """

    @property
    def name(self) -> str:
        """What the names of its tools begin with, before `__`."""
        ...

    def facts(self) -> Json:
        """Return JSON data that differs when the declaration does, for the fingerprint of the agent; no secrets."""
        ...

    def known_specs(self) -> tuple[ToolSpec, ...] | None:
        """Return the tools as far as they are known without a connection; None if they were never listed."""
        ...

    def connect(self) -> ToolsetConnection:
        """Return a new connection, which begins nothing yet."""
        ...


# ---------------------------------------------------------------------------------------------- memory


class Conversation(Protocol):
    """A growing conversation that a model sees a part of: that of a task, or what one of its agents sees of it."""

    @property
    def messages(self) -> list[Message]:
        """The messages; the list is extended, and replaced when some were taken back."""
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
    """What models see of one task's conversation. Pure: the same messages give the same view."""

    def show(self, limit: int, instructions: str, tools: Sequence[ToolSpec]) -> Sequence[Message]:
        """Return what a model sees of the conversation in a request of at most `limit` tokens, with these tools.

        System messages, a summary, the task's own input and the newest messages are kept; no call is parted from its
        result, and a single message that is too large is shown as an excerpt. Called before each request of a task;
        reads each message once. Raises `ModelError` (`too_large`) when nothing fits beside instructions and tools.
        """
        ...


class Memory(Protocol):
    """What models see of long conversations."""

    def window(self, conversation: Conversation) -> ConversationWindow:
        """Return a window that follows a conversation; the caller keeps it as long as that."""
        ...

    def tokens(self, messages: Sequence[Message]) -> int:
        """Return how many tokens messages are."""
        ...

    def transcript(
        self, previous: str | None, turns: Sequence[Sequence[Message]], limit: int
    ) -> tuple[str, int]:
        """Return a summary so far and some turns after it as text of about `limit` tokens, and how many it holds.

        It holds the first turn at least.
        """
        ...


# --------------------------------------------------------------------------------------------- journals


@mutable
class Record:
    """One commit of one task: some events in a row, encoded together.

    Args:
        seq: the sequence number of its last event; the first event of a task has number 1.
        count: how many events it holds, so its first is `seq - count + 1`.
        epoch: the ownership of the task under which it was written.
        data: the encoded events; opaque to stores.
        digest: hash over the previous record's digest and this data; opaque to stores.
        blobs: large values taken out of `data`, by digest; a digest that is stored already is not stored again. They
            are returned with the record.
        upto: when reading a fork, the last event of this record that the fork shares; None means all.
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
    """A task row to create. With `base`, it is a fork: events 1 to `base_seq` are those of task `base`."""

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
    """A change of a thread, in the same transaction as the record it comes with.

    `add` makes (task, seq) the thread's newest member and its version `expected + 1`; refused with `ThreadMoved`
    when its version is not `expected`. With `covers` the member is a summary: models see it instead of the messages of
    all members up to that version, which stay members. `remove` takes the task out, only while it is the newest member
    that is no summary, and no summary covers it; else refused with `AlreadyFinalized`. A summary can always be taken
    out. A thread without any change has version 0; versions only grow.
    """

    action: Literal["add", "remove"]
    thread_id: str
    expected: int = 0
    covers: int = 0


AT_ONCE: Final = 1
"""The `due_at` time of a task that is to be driven on now: long gone, in microseconds since 1970, UTC."""

OnBusyThread = Literal["enqueue", "reject", "interrupt", "parallel"]
"""How a task enters its thread while other tasks are driven there; see `Commit.enter`."""


@mutable
class QueuePosition:
    """The place of a task in the queue of its thread.

    Only a task with an owner has a place. A claim begins without a place unless it asks for one, and the place ends
    with the ownership. No task waits for a task whose owner crashed.

    Args:
        held: whether the task has the thread and may begin.
        version: the thread's version, read in the same transaction.
        holders: the other tasks that have the thread now; more than one only by `parallel`.
        number: the order of the waiting tasks, smallest first; 0 for a task that has the thread.
    """

    held: bool
    version: int
    holders: tuple[str, ...] = ()
    number: int = 0


@frozen
class TaskFigures:
    """What a list shows of a task besides its row, as it stood when its row was last written.

    Tokens and costs are those of the task with all tasks below it; `own_tokens` and `own_cost` are of the task alone,
    so that sums over several tasks count nothing twice. Costs are in pico-dollars, None if some of it is not known.
    `updated` is the time of its last event, in microseconds since 1970, UTC. `input` and `outcome` (its answer, or why
    it failed) are cut to a line; `text` is more of both, folded, for searches. `pending` is how many of its requests
    wait for a person, its caller or a ticket. While the task is driven, also if its driver crashed, None stands for 0.
    It is None too if the version that wrote the row did not count them.
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


@mutable
class TaskSums:
    """How many tasks there are, and what they spent without the tasks below them.

    Args:
        tasks: how many they are.
        tokens: of those whose figures are known.
        cost: in pico-dollars, of those whose cost is known.
        unpriced: how many tasks have a cost that is not known.
        driven: how many are owned by a driver that is alive.
    """

    tasks: int = 0
    tokens: int = 0
    cost: int = 0
    unpriced: int = 0
    driven: int = 0

    def add(self, other: TaskSums) -> None:
        """Count other tasks too."""
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
        epoch: the ownership under which it is written; refused with `Fenced` when it is not the task's newest.
        record: the events, or None when only the row changes; refused with `Fenced` when events are missing before it
            or another record is in its place. The same record again (same seq, epoch, digest) is accepted without a
            change, also when the task has another owner by then: a driver sends a commit again when its
            acknowledgement was lost.
        create: the task row to insert first, owned by this process with this `epoch`; refused with `TaskExists`.
        state: the row's new state, None to leave it.
        release: end the ownership, unless the inbox holds items not taken; then ownership stays.
        leave: with `release`: end the ownership also when the inbox holds items not taken; the next owner takes them.
        due_at: with `release`: from when a driver is to adopt the task (see `JournalStore.orphans`), in microseconds
            since 1970, UTC; `AT_ONCE` for now, 0 for not at all.
        seal: refuse with `InboxWaiting` when the inbox holds items not taken by this or earlier commits.
        taken: ids of the inbox items that the record's events answer.
        thread: a change of a thread.
        enter: ask for the thread that the task's row names, while it is owned; `Committed.place` is the answer.
            `enqueue`: it has the thread if no task of a living owner has it or waits before it, else it waits behind
            all waiting tasks. `interrupt`: the same, but it waits before them. `reject`: refused with `ThreadBusy` if
            it cannot have the thread at once. `parallel`: it has the thread beside its holders, and `place` stays None.
            A task that asks again keeps its place, and has the thread once it is first. When a task gets a thread whose
            holder's owner crashed, that holder loses it in the same transaction and its epoch grows by one: its old
            owner, should it wake, is fenced. The task counts as one whose driver crashed, also when that process renews
            its lease.
        format: the journal format that a driver must know to drive the task on from here; the row keeps the highest.
        figures: what lists show of the task from now on; None leaves what they show.
        grants: approvals for later calls, which the store keeps; of one that is there nothing changes.
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
    """The commit is durable. `released` says whether the ownership ended, `place` answers `Commit.enter`."""

    released: bool = False
    place: QueuePosition | None = None


class Refused(Exception):
    """A commit was checked and not written; the driver decides what follows. A user never sees it."""


class TaskExists(Refused):
    """A task of this id exists already."""


class InboxWaiting(Refused):
    """The inbox holds an item that must be read before the task ends."""


class ThreadMoved(Refused):
    """The thread has another version now."""

    def __init__(self, version: int) -> None:
        super().__init__(f"the thread is at version {version}")
        self.version = version


@frozen
class JournalEnd:
    """Where a task's journal ended when its row was last written: a missing tail is noticed by it.

    Stores write it where they write the row anyway: with a commit that creates the task, changes its state or ends
    the ownership, and with a claim. It only grows. Between two of these the journal goes on behind it.
    """

    seq: int
    """the last event"""

    digest: bytes
    """of the record that holds it; empty when there is none"""


@mutable
class Driver:
    """A process that drives tasks.

    It is alive until its lease has passed. On the same host, boot and process space it is dead once it has ended.

    Args:
        lease: when its lease ends unless it is renewed, in microseconds since 1970, UTC; 0 once its store was closed;
            None for a store in the memory of its process.
    """

    driver_id: str
    host: str
    pid: int
    alive: bool
    lease: int | None = None


@mutable
class TaskRow:
    """A task as its store lists it. `driver` owns it now, or owned it when it crashed."""

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
    """None for a deleted task, and for rows written before marks existed"""

    deleted: bool = False
    """no longer listed; its records are kept for forks or a thread"""

    due_at: int = 0
    """from when a driver is to adopt it, in microseconds since 1970, UTC, or 0: it was released so, or claimed from a
    driver that crashed (`AT_ONCE`); stays until it is released again"""

    format: int = 1
    """the journal format that a driver must know to drive the task: the highest of its commits and of its base"""

    figures: TaskFigures | None = None
    """None until a commit brought some, and for rows written before figures existed; `text` is left empty"""

    tenant: str = ""
    """whose task it is"""

    @property
    def cursor(self) -> str:
        """Where a list goes on behind this row."""
        return f"{self.created}.{self.task_id}"

    @property
    def display_state(self) -> str:
        """The task's state as users see it: its owner counts before the state that was written last, except an end.

        A claim of an ended task changes nothing until the task is reopened, which changes the state too.
        """
        return state_word(self.state, None if self.driver is None else self.driver.alive)


BETWEEN_STEPS: Final = "between steps"
"""The state, as people read it, of a `running` task that no process drives. Filters take it as a state."""


def state_word(state: str, alive: bool | None) -> str:
    """Return a task's state as users see it.

    Args:
        state: the state that was written last.
        alive: whether its owner is alive; None if it has no owner.
    """
    if alive is None or state in END_STATES:
        return state
    return "running" if alive else "interrupted"


@mutable
class Claim:
    """Ownership of a task: the new epoch and where its journal ends."""

    epoch: int
    head: int
    digest: bytes
    """of the last record; of the base's record at `base_seq` for a fork without records of its own; else empty"""

    place: QueuePosition | None = None
    """in its thread, if the claim asked for one"""

    due_at: int = 0
    """from when the task was to be adopted, its inbox apart: `AT_ONCE` if its last driver crashed, 0 for not at all"""

    is_taken_over: bool = False
    """whether its last driver did not release it: it crashed, or let its lease pass"""


@mutable
class InboxItem:
    """A message or command for a task, not from its owner. The sender chooses the id; the same id twice is one item."""

    item_id: str
    kind: str
    data: dict[str, Json]
    created: int


@mutable
class ThreadMember:
    """A task whose messages are part of a thread: those of its events up to `seq`, without the ones it began with."""

    version: int
    task_id: str
    seq: int
    gone: int | None = None
    """the version that took it out; `thread` never shows it, `restore_thread` takes it"""

    covers: int = 0
    """for a summary, the version up to which models see it instead of the members before it; else 0"""


@mutable
class ThreadRow:
    """A thread as its store lists it: its version, and how many tasks are members, summaries left out."""

    thread_id: str
    version: int
    members: int


@mutable
class TaskFilter:
    """Which tasks to list: all fields that are set must match.

    Args:
        states: a row's `word` is one of these. `BETWEEN_STEPS` among them stands for rows that are `running` and that
            no living driver owns.
        agent: the name of its agent.
        thread_id: its thread.
        parent: the task it is a child of.
        base: the task it was forked from.
        since: created then or later, in microseconds since 1970, UTC.
        until: created before that.
        labels: it has all of these.
        search: a folded text that is part of its figures' `text`; rows without figures match too.
        beginning: what its id begins with.
        end: what its id ends with.
        limit: the most rows.
        cursor: the `cursor` of the last row of the page before.
        roots: it has no parent.
        updated_since: its figures say so, or it has none and was created then or later, or it has an owner: what an
            owner does is not in the row yet. In microseconds since 1970, UTC.
        pending: it may wait for something from outside: its figures say so or do not tell, or it has an owner.
        tenant: whose tasks are listed.
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
    """Which tasks a process asks for to adopt: those that it may drive now.

    Args:
        limit: the most rows.
        agents: the names of the agents that it has.
        format: the newest journal format that it knows.
        until: tasks that wait for a time are due up to this one, in microseconds since 1970, UTC.
        full_tenants: tenants of which it drives as many tasks as it may.
        excluded: tasks to leave out, by tenant and id: it drives them, or tried to a moment ago.
        last_tenant: the tenant it served last; the tenants after it come first. None: begin with the first tenant.
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
    """What may have been written to a store since its watchers were woken last.

    Args:
        tasks: the ids of the tasks whose journal or row changed; None: any may have.
        mail: the ids of the tasks whose inbox holds an item not taken.
        owners: whether a task may have another owner, or none, from now on.
        deleted: the ids of the tasks that were deleted, as far as the store knows them.
        outdated: the error for a store that a newer version migrated beyond this version: from now on the store takes
            only commits of tasks that this process owns, and they are to be released.
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

    A store with several tenants keeps each name that a tenant gives (of tasks, threads, blobs, grants and labels) with
    the tenant's before it, and lists the tasks, threads and grants of one tenant. `TenantStores.of` returns the store
    of one, which takes these names away again. The names of the tenant "" have nothing before them.
    """

    @abstractmethod
    async def read(self, task_id: str, *, after: int = 0, upto: int | None = None) -> list[Record]:
        """Return the records that hold events `after` + 1 to `upto`, in order, with blobs.

        A fork's journal begins with the records of its base that hold an event up to `base_seq`. The last of them may
        hold more: then its `upto` says so. Raises `TaskNotFound`; `JournalCorrupt` when the last of these records are
        missing: those up to the row's mark, or to `upto` if that comes before it.
        """
        ...

    @abstractmethod
    async def row(self, task_id: str, *, deleted: bool = False) -> TaskRow:
        """Return a task's row; with `deleted` also that of a deleted task whose records are kept for forks or a thread.

        Raises `TaskNotFound`.
        """
        ...

    @abstractmethod
    async def inbox(self, task_id: str) -> list[InboxItem]:
        """Return the items that are not taken yet, in order of arrival. Raises `TaskNotFound`."""
        ...

    @abstractmethod
    async def thread(
        self, thread_id: str, *, version: int | None = None, since: int = 0
    ) -> tuple[int, list[ThreadMember]]:
        """Return a thread's version and its members in order, or those of an earlier version.

        With `since`, only the members that versions after `since` added; earlier members are not read.
        """
        ...


class JournalReader(TaskReader, Protocol):
    """The reading half of a `JournalStore`: a reader that also lists and sums up what the store holds."""

    @abstractmethod
    async def rows(self, wanted: TaskFilter) -> list[TaskRow]:
        """Return matching rows, newest first: by `created`, and of the same time by id, descending."""
        ...

    @abstractmethod
    async def sums(self, wanted: TaskFilter) -> dict[str, TaskSums]:
        """Return how many rows match and what they spent, by `word`; `limit` and `cursor` are ignored.

        A search leaves out rows without figures.
        """
        ...

    @abstractmethod
    async def usage(self, wanted: TaskFilter, by: str) -> dict[str | None, TaskSums]:
        """Return how many rows match and what they spent, by `agent`, by `day` or by `label:NAME`.

        The days are those of `created`, UTC, such as `2026-11-23`. Rows without the label are summed up under None;
        a text of a label is as `stores.listing.label_key` has it. `driven` stays 0. Of the filter, `states`, `search`,
        `limit` and `cursor` are ignored.
        """
        ...

    @abstractmethod
    async def threads(self, limit: int, *, after: str | None = None, tenant: str = "") -> list[ThreadRow]:
        """Return the threads of a tenant that have a version, by ascending id, beginning behind `after`."""
        ...

    @abstractmethod
    async def grants(
        self, *, tool: str | None = None, revoked: bool = False, tenant: str = ""
    ) -> list[StandingGrant]:
        """Return the approvals of a tenant that hold for later calls, oldest first.

        They are ordered by `created`, and of the same time by id.

        With `tool`, only those of calls of this tool; with `revoked`, also those that were revoked.
        """
        ...


class TaskStore(TaskReader, Protocol):
    """A store of journals that runs tasks.

    One transaction covers a task's record, its row, its thread, its inbox and its blobs.

    A `Runner` takes one. Its verbs that list, search, sum up, export, import or delete need a `JournalStore`; with this
    store they raise `ConfigurationError`, which names the missing method. So does an approval for later calls: a store
    without `grants` gets no commit with grants.

    All methods may be called from any event loop and thread of the process; the first use opens the store, once.
    Errors of the store are `StoreError`s. An acknowledged write is never lost, and a failed write harms no other write.
    """

    @property
    @abstractmethod
    def url(self) -> str:
        """The address of this store, without secrets."""
        ...

    @property
    @abstractmethod
    def fenced(self) -> int:
        """How many commits of this process were refused with `Fenced` since the store was made."""
        ...

    @abstractmethod
    async def open(self) -> None:
        """Make the store usable; idempotent. Raises `StoreUnavailable` or `StoreFormatError`."""
        ...

    @abstractmethod
    async def close(self) -> None:
        """Write what is queued and close; idempotent. Tasks owned through this store are orphans from then on."""
        ...

    @abstractmethod
    def commit(self, commit: Commit, done: CommitDone) -> None:
        """Queue a commit and return at once; needs an open store and a running event loop.

        Commits of one task are written, and answered, in the order of the calls. `done` is called exactly once, in the
        calling event loop (by a store that never waits: before this returns), with `Committed` once the commit is
        durable, else with the `Refused` or `StoreError` that stopped it. A refused commit has written nothing.
        """
        ...

    @abstractmethod
    async def claim(self, task_id: str, *, enter: bool = False) -> Claim:
        """Become the owner: epoch + 1, in one transaction with reading the head.

        With `enter`, also ask for the task's thread, as a `Commit` does that enters by `enqueue`.
        Raises `TaskNotFound`, `TaskBusy` when a live driver (also this process) owns the task, or `TaskTooNew`, and
        changes nothing, when its row has a newer `format` than this version's `JOURNAL_FORMAT`. The task of a driver
        that ended on this host can be claimed at once, of any other driver once its lease has passed. A process has one
        lease for all its tasks, renewed from a thread for as long as it owns a task; a claim begins with a full lease.
        Drivers that are dead and own no task are deleted. Raises `JournalCorrupt`, and changes nothing, when the
        journal ends before the row's mark, or ends at it with another digest. After any other error the claim may have
        been carried out: then this object's next claim of the task returns what this claim would have returned. Without
        a next claim, the store releases the task as soon as it can write.
        """
        ...

    @abstractmethod
    async def orphans(
        self, limit: int, *, after: str | None = None, until: int = AT_ONCE, indirect: bool = False
    ) -> list[TaskRow]:
        """Return the tasks that a driver is to adopt, of all tenants, the oldest first, beginning behind task `after`.

        They are: tasks whose driver is not alive, in any state; and, among those that have not ended, tasks without an
        owner that were released with a `due_at` up to `until`, in microseconds since 1970, UTC, or whose inbox
        holds an item not taken.

        With `indirect`, return those alone that no `adoptable` finds: children, and tasks that only have unread items.
        """
        ...

    @abstractmethod
    async def adoptable(self, query: AdoptionQuery) -> list[TaskRow]:
        """Return orphans without a parent that a process may drive now, in the order in which it should.

        The tasks of dead drivers come first, the oldest first. The others follow with tenants in turn, the oldest task
        of each first. It reads no more than it returns, however many tasks wait that the query leaves out.
        """
        ...

    @abstractmethod
    async def unadoptable(self, query: AdoptionQuery) -> list[TaskRow]:
        """Return the oldest orphan of each agent that the process does not have, or that needs a newer format.

        One row for each agent and format; of the query, `agents`, `format` and `until` count.
        """
        ...

    @abstractmethod
    async def post(self, task_id: str, item: InboxItem) -> bool:
        """Put an item into a task's inbox, durably; False when its id was used before. Raises `TaskNotFound`."""
        ...

    @abstractmethod
    def watch(self, wake: Wake) -> Callable[[], None]:
        """Call `wake` (from any thread, soon, seldom) after other processes may have written; return how to stop it.

        It is also called after writes through this object, if several callers watch. The changes name each task whose
        journal grew, or that was created, claimed or released; after a gap in what the store heard they name none
        (`tasks` is None), and so does a deletion where it has no cheaper sign. The release of a task that had a thread
        for which other tasks wait is a change of owners.
        """
        ...


class JournalStore(TaskStore, JournalReader, Protocol):
    """A store of journals for all verbs: a `TaskStore` that also lists, deletes, imports and takes snapshots."""

    @abstractmethod
    async def delete(self, task_id: str) -> None:
        """Remove a task with its children, rows, inbox and unshared blobs, in one transaction.

        Raises `TaskNotFound`; `TaskBusy` while a live driver owns it or a child; a prefix shared by existing forks and
        records that a thread refers to stay readable for them, but the task itself is no longer found. It stays a
        member of its thread, also the last one; its children leave theirs. `stores/rules.py` says which records and
        threads are kept.
        """
        ...

    @abstractmethod
    async def delete_thread(self, thread_id: str) -> None:
        """Remove a thread and all its tasks, each as `delete` does, in one transaction.

        Its tasks are those whose rows name it. Raises `ThreadNotFound` when no task does and it has no version;
        `TaskBusy` while a live driver owns one of them or a child. All members leave the thread, and the approvals that
        held in it are deleted. A prefix that forks in other threads share stays readable for them, and with it the
        versions of the thread that they began with.
        """
        ...

    @abstractmethod
    async def revoke(self, grant_id: str, time: int, by: str | None) -> bool:
        """Note that an approval for later calls holds no more; False if that was noted before, which stays.

        Raises `GrantNotFound`.
        """
        ...

    @abstractmethod
    async def restore(self, row: TaskRow, records: Iterable[Record], inbox: Sequence[InboxItem] = ()) -> None:
        """Insert a task as it stood in another store, with its own records, in one transaction or not at all.

        It has no owner; `row.head` and `row.driver` are ignored. Records may be of several epochs. `records` is
        iterated in any thread and maybe more than once, a part at a time; its errors are raised here.
        Raises `TaskExists`; `TaskNotFound` when the base is not there, `Fenced` when it ends before `row.base_seq`.
        """
        ...

    @abstractmethod
    async def restore_thread(self, thread_id: str, version: int, members: Sequence[ThreadMember]) -> None:
        """Insert a thread that has no version yet, in one transaction: `members` are also those taken out again.

        Raises `ThreadMoved` when the thread has a version; `TaskNotFound` when a member is neither listed nor kept.
        """
        ...

    @abstractmethod
    def snapshot(self) -> AbstractAsyncContextManager[JournalReader]:
        """Return a reader of the store as it is now, for the length of a block: one read-only transaction.

        It sees all commits that this process queued before. Writes do not wait for it; until the block ends, the store
        keeps the old rows that the reader may need. The reader is for one event loop, one call at a time.
        Raises `StoreUnavailable`, here or in a method of the reader, also when the snapshot was lost.
        """
        ...


class TenantStores(Protocol):
    """The tenants of a store, each of which sees a store of its own."""

    @abstractmethod
    def of(self, tenant: str) -> JournalStore:
        """Return the store as a tenant sees it: no name leads to what another tenant has."""
        ...

    @abstractmethod
    async def orphans(
        self, limit: int, *, after: TaskRow | None = None, until: int = AT_ONCE, indirect: bool = False
    ) -> list[TaskRow]:
        """Return what `JournalStore.orphans` returns, of all tenants; `tenant` of a row tells whose store knows it.

        The list begins behind the row `after`.
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
    """The task of an observed event. `parent` is the task that it is a child of, `depth` its distance from the root.

    Ids are those of `tenant`: several tenants may have a task of the same id.
    """

    task_id: str
    agent: str
    thread_id: str
    parent: str | None = None
    depth: int = 0
    tenant: str = ""

    @property
    def full_id(self) -> str:
        """Its id with its tenant before it: no other task of any tenant has it."""
        return in_tenant(self.tenant, self.task_id)


@mutable
class DriveBegan:
    """A task belongs to this process from here on. Sent with the first event that follows, to observers only.

    Args:
        seq: the task's last event before; 0 for a new task.
        epoch: the ownership under which it is written now.
        previous: the ownership under which it was written last; 0 for a new task.
        calls: names of the tools of calls that had not ended, by the calls' ids.
        context: the context variables of the caller.
        asked: when a person was asked: about calls that wait for an approval, by their ids, and questions, by theirs.
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
    """A task was released, and `state` is the state it was released in: completed, waiting, paused, interrupted, ...

    `lost` is the state if another driver took the task over, or if its store could not be written.
    """

    kind: ClassVar[str] = "drive_ended"
    state: str
    seq: int


@mutable
class Missed:
    """So many events and deltas, of any tasks, were not delivered: the observer was slower than the tasks."""

    kind: ClassVar[str] = "missed"
    events: int
    deltas: int


@explains_names("Notice")
@mutable
class Notice:
    """One notice for an observer: an event of a task that this runner drives. `task` is None for `Missed`."""

    task: ObservedTask | None
    event: Event | Ephemeral | DriveBegan | DriveEnded | Missed


@runtime_checkable
class Observer(Protocol):
    """Gets the events of all tasks that a runner drives, or one call of it, and can neither hurt nor slow them.

    It is called in its own thread, with one notice at a time: the events of one task in order, each once, when it is
    durable. Its exceptions are logged and counted. Further notices wait in a bounded buffer; when that is full, deltas
    are left out first, then the oldest events, and `Missed` counts both.

    It belongs to one runner, or to calls of one: each call has a thread for it. It may also have `deltas = True`, to
    get the text that is being written, and `close()`, which is called in the same thread when the runner is closed and
    every notice was delivered; after a call it is not closed, since other calls may have it too.

    And it may have `enter_call(task, epoch, call, attempt)`, to set context variables for the code of a tool: it is
    called where the tool is about to run, in a context of that call alone, and must return at once.
    """

    def observe(self, notice: Notice) -> None:
        """Handle a notice; its contents are shared and must not be changed."""
        ...


Observers: TypeAlias = Sequence[Observer | Callable[[Notice], object] | str]
"""Observers as callers list them: functions of a `Notice`, objects, and the names `console`, `jsonl:PATH`, `otel`."""
