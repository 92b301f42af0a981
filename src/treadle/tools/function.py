"""`@tool`: make a tool of a Python function, sync, async, or a generator of either kind."""

from __future__ import annotations

import asyncio
import inspect
import math
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import cached_property, partial, update_wrapper
from types import FrameType
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    Literal,
    ParamSpec,
    Protocol,
    TypeAlias,
    TypedDict,
    TypeVar,
    Unpack,
    cast,
    overload,
)

from treadle.agents.middleware import ToolMiddleware, checked_middleware
from treadle.core.messages import Json, ToolCall, copied
from treadle.core.refused_uses import can_be_called, no_function
from treadle.core.tools import Happened, NotHappened, ToolSpec, Unknown, Verdict
from treadle.core.unknown_names import explains_names, near_name, refuses_names
from treadle.errors import ConfigurationError, ToolDefinitionError, ToolError
from treadle.ports import ContextT_contra, ToolContext, ToolOutput
from treadle.tools.approval import CONTEXT, code_digest, names_taken
from treadle.tools.asking import asks
from treadle.tools.faults import contain
from treadle.tools.observe import to_output
from treadle.tools.schema import Arguments, arguments_of, defining_frame
from treadle.tools.threads import Job, in_thread

if TYPE_CHECKING:
    from treadle.tools.hosts.declaration import Subprocess
    from treadle.tools.hosts.function import HostedFunction

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C")

Undo: TypeAlias = Callable[[ToolCall, ToolContext[Any]], Awaitable[None] | None]
Reconcile: TypeAlias = Callable[[ToolCall, ToolContext[Any]], Awaitable[Verdict] | Verdict]


class ToolOptions(TypedDict, total=False):
    """The options of `tool`.

    Args:
        name: the tool's name for the model; by default the function's name.
        description: the tool's description for the model. The default is the docstring, without its sections.
        read_only, idempotent, destructive, open_world, sends, spends, executes, private: declared effects, as in
            `ToolSpec`. A tool that declares nothing may write and is never started twice.
        return_direct: a successful result is the task's answer.
        timeout: seconds that a call may take, more than 0; also for `undo=` and `reconcile=`. None for no limit.
        retries: how often a failed call is tried again, only for read-only and idempotent tools.
        undo: compensates a finished call. It takes the `ToolCall` with its `output`, and a `ToolContext`.
        reconcile: finds out whether a call begun before a crash took effect. It returns `Happened(output)`,
            `NotHappened()` or `Unknown()`.
        needs_approval: whether a person must approve each call before it starts, or a sync or async function that
            returns it. The function takes any of the tool's arguments by name, and the `ToolContext` as `ctx`.
        background: whether a call may return `ctx.background()`. It then ends when `ctx.ticket` is completed.
        preview: a function with the same arguments that describes the call for the approver, as text or JSON data.
        secrets: names of the secrets that the tool may read by `ctx.secret(name)`.
        recipients: names of all parameters that say where the tool sends data, such as `("to", "cc")`.
        trusted: whether the developer controls every text in the tool's results, as for a time, a sum or fixed words.
            Results of other tools are untrusted.
        middleware: async functions `(call, next)` around each call, the first outermost. They run inside the middleware
            of the runner and the agent.
        host: where the function, `undo`, `reconcile` and `preview` run. `"inline"` is the event loop, the default of
            async functions. `"thread"` is the default of others. `Subprocess(...)` is a new process for each call.
    """

    name: str | None
    description: str | None
    read_only: bool
    idempotent: bool
    destructive: bool
    open_world: bool
    sends: bool
    spends: bool
    executes: bool
    private: bool
    return_direct: bool
    timeout: float | None
    retries: int
    undo: Undo | None
    reconcile: Reconcile | None
    background: bool
    needs_approval: bool | Callable[..., bool | Awaitable[bool]]
    preview: Callable[..., Any] | None
    secrets: Sequence[str]
    recipients: Sequence[str]
    trusted: bool
    middleware: Sequence[ToolMiddleware]
    host: Literal["inline", "thread"] | Subprocess | None


_EFFECTS = (
    "read_only",
    "idempotent",
    "destructive",
    "open_world",
    "sends",
    "spends",
    "executes",
    "private",
)
_FLAGS = (*_EFFECTS, "return_direct", "background", "trusted")


@explains_names("tool")
class FunctionTool(Generic[P, R, ContextT_contra]):
    """A tool made by `tool`. Calling it directly calls the function.

    Async functions run in the caller's event loop. Sync functions and generators run in a thread, so they may block.
    """

    __name__: str

    def __init__(self, fn: Callable[P, R], options: ToolOptions, frame: FrameType | None = None) -> None:
        name = _name(fn, options)
        _check_options(options, name)
        self._arguments: Arguments = arguments_of(fn, name, frame=frame)
        self.function: Callable[P, R] = fn
        self.options: ToolOptions = options
        self.middleware: tuple[ToolMiddleware, ...] = _middleware(options, name)
        if asks(fn, self._arguments.context) and not (options.get("read_only") or options.get("idempotent")):
            raise ToolDefinitionError(
                f"tool {name!r}: idempotent: a tool that asks starts again after the answer; declare "
                "idempotent=True if it may start twice under one key, or read_only=True if it changes nothing"
            )
        self._undo, self._reconcile = options.get("undo"), options.get("reconcile")
        self._needs_approval, self._preview = options.get("needs_approval", False), options.get("preview")
        argument_names = {*self._arguments.parameters["properties"], CONTEXT}
        self._option_arguments = {
            option: _names_taken(option_function, argument_names, option, name)
            for option, option_function in (
                ("needs_approval", self._needs_approval),
                ("preview", self._preview),
            )
            if can_be_called(option_function)
        }
        self._validate = self._arguments.validator.validate_python
        self._context = self._arguments.context
        self._fn = cast("Callable[..., Any]", fn)
        self._is_coroutine = _is(inspect.iscoroutinefunction, fn)
        self._is_async_generator = _is(inspect.isasyncgenfunction, fn)
        self._is_generator = _is(inspect.isgeneratorfunction, fn)
        self._hosted = self._hosted_function(options.get("host"), name)
        self._spec = ToolSpec(
            name=name,
            description=_description(options, self._arguments),
            parameters=self._arguments.parameters,
            timeout=options.get("timeout"),
            retries=options.get("retries", 0),
            undoable=self._undo is not None,
            reconcilable=self._reconcile is not None,
            needs_approval=self._needs_approval is not False,
            previews=self._preview is not None,
            declared=any(effect in options for effect in _EFFECTS),
            secrets=tuple(options.get("secrets", ())),
            recipients=_recipients(options, self._arguments.parameters, name),
            host=None if self._hosted is None else self._hosted.host.declared,
            **cast("Any", {flag: options.get(flag, False) for flag in _FLAGS}),
        )
        update_wrapper(cast("Callable[..., Any]", self), fn, updated=())
        self.__name__ = getattr(fn, "__name__", name)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<tool {self._spec.name} ({self._spec.effect})>"

    def with_options(
        self, options: ToolOptions, frame: FrameType | None = None
    ) -> FunctionTool[P, R, ContextT_contra]:
        """Return a tool of the same function. These options override its own."""
        return FunctionTool(self.function, {**self.options, **options}, frame)

    @property
    def spec(self) -> ToolSpec:
        return self._spec

    @property
    def context_type(self) -> Any:
        """The context type that the function's `ToolContext[...]` names; None if it names none."""
        return self._arguments.context_type

    @property
    def takes_context(self) -> bool:
        """Whether the function takes a `ToolContext`. Its result may then depend on more than its arguments."""
        return self._context is not None

    @property
    def level(self) -> str | None:
        """Where the function runs, as recorded in results; None for this process."""
        return None if self._hosted is None else self._hosted.host.level

    def validate(self, arguments: dict[str, Json]) -> dict[str, Any]:
        """Return validated arguments, converted, or as JSON if the function runs in another process."""
        try:
            converted = self._validate(arguments)
            return converted if self._hosted is None else arguments
        except Exception as error:
            raise self._arguments.problems(error, arguments) from error

    def as_taken(self, arguments: dict[str, Json]) -> dict[str, Json] | None:
        """Return converted arguments as JSON; None if they have no JSON form."""
        try:
            return self._arguments.as_taken(copied(arguments))
        except Exception:  # noqa: BLE001  rules then see the arguments as the model wrote them
            return None

    async def call(self, arguments: dict[str, Any], ctx: ToolContext[ContextT_contra]) -> ToolOutput:
        if self._hosted is not None:
            return await self._hosted.call(arguments, ctx)
        try:
            if not self._is_coroutine:
                return await self._run_blocking(arguments, ctx)
            if self._context is not None:
                arguments = {**arguments, self._context: ctx}
            return to_output(await self._fn(**arguments))
        except BaseException as error:
            contain(error)
            raise

    async def undo(self, call: ToolCall, ctx: ToolContext[Any]) -> None:
        if self._undo is None:
            raise ToolError(f"tool {self._spec.name!r} has no undo=")
        if self._hosted is not None:
            await self._hosted.undo(self._undo, call, ctx)
            return
        await self._settle(self._undo, call, ctx)

    async def reconcile(self, call: ToolCall, ctx: ToolContext[Any]) -> Verdict:
        if self._reconcile is None:
            raise ToolError(f"tool {self._spec.name!r} has no reconcile=")
        if self._hosted is not None:
            verdict = await self._hosted.reconcile(self._reconcile, call, ctx)
        else:
            verdict = await self._settle(self._reconcile, call, ctx)
        if isinstance(verdict, Happened):
            return Happened(to_output(verdict.output).output)
        if not isinstance(verdict, (NotHappened, Unknown)):
            raise ToolError(
                f"reconcile= of tool {self._spec.name!r} returned a {type(verdict).__name__}, "
                "not Happened(...), NotHappened() or Unknown()"
            )
        return verdict

    @cached_property
    def code(self) -> str:
        """A digest of the function's code. An approval holds only for the approved code."""
        return code_digest(self.function)

    async def needs_approval(self, arguments: dict[str, Any], ctx: ToolContext[Any]) -> bool:
        """Return whether a person must approve a call with these arguments."""
        if not can_be_called(self._needs_approval):
            return self._needs_approval
        needed: Any = await self._option_value("needs_approval", self._needs_approval, arguments, ctx)
        if not isinstance(needed, bool):
            kind = type(needed).__name__
            raise ToolError(
                f"needs_approval= of tool {self._spec.name!r} returned a {kind}, not True or False"
            )
        return needed

    async def preview(self, arguments: dict[str, Any], ctx: ToolContext[Any]) -> Any:
        """Return the preview of a call with these arguments, for its approver."""
        if self._preview is None:
            raise ToolError(f"tool {self._spec.name!r} has no preview=")
        if self._hosted is not None:
            return to_output(await self._hosted.preview(self._preview, arguments, ctx)).output
        return await self._option_value("preview", self._preview, arguments, ctx)

    async def _option_value(
        self, option: str, fn: Callable[..., Any], arguments: dict[str, Any], ctx: ToolContext[Any]
    ) -> Any:
        """Call `needs_approval=` or `preview=` with the arguments that it names, and return its value."""
        if self._hosted is not None:
            arguments = self._validate(arguments)
        bound = inspect.signature(self._fn).bind_partial(**arguments)
        bound.apply_defaults()
        values = {**bound.arguments, CONTEXT: ctx}
        keywords = {name: values[name] for name in self._option_arguments[option] if name in values}
        return await self._run_option(fn, ctx, lambda _: fn(**keywords))

    def _hosted_function(self, host: Any, name: str) -> HostedFunction | None:
        """Return the function to run in a process of its own, if the tool declares one."""
        is_async = self._is_coroutine or self._is_async_generator
        if host is None or host == ("inline" if is_async else "thread"):
            return None
        from treadle.tools.hosts.declaration import Subprocess  # few tools declare a host

        if not isinstance(host, Subprocess):
            raise ToolDefinitionError(f"tool {name!r}: host: {_host_problem(host, is_async=is_async)}")
        if asks(self.function, self._context):
            raise ToolDefinitionError(f"tool {name!r}: host: a tool that asks a person runs in this process")
        if self.options.get("background"):
            raise ToolDefinitionError(
                f"tool {name!r}: host: contradicts background=True: its process ends with the call"
            )
        from treadle.tools.hosts.function import HostedFunction, reference_to

        for field, option_function in (
            ("undo", self._undo),
            ("reconcile", self._reconcile),
            ("preview", self._preview),
        ):
            if option_function is not None:
                reference_to(option_function, name, field)
        code = partial(getattr, self, "code")
        return HostedFunction(host, name, self.function, code, takes_context=self.takes_context)

    async def _run_blocking(self, arguments: dict[str, Any], ctx: ToolContext[Any]) -> ToolOutput:
        """Run an async generator in the event loop, or a function that may block in a thread."""
        if self._is_async_generator:
            if self._context is not None:
                arguments = {**arguments, self._context: ctx}
            return await _drained(self._fn(**arguments), ctx)

        def work(job: Job[Any]) -> Any:
            call_arguments = _with_stopping(ctx, job)
            keywords = arguments if self._context is None else {**arguments, self._context: call_arguments}
            value = self._fn(**keywords)
            if self._is_generator:
                return _exhausted(value, call_arguments, job)
            return value if inspect.isawaitable(value) else to_output(value)

        names: Any = {"tool": self._spec.name, "task_id": ctx.task_id, "call_id": ctx.call_id}
        result = await in_thread(work, **names, on_left_behind=ctx.on_left_behind)
        return result if isinstance(result, ToolOutput) else to_output(await result)

    async def _settle(self, fn: Callable[..., Any], call: ToolCall, ctx: ToolContext[Any]) -> Any:
        """Run `undo=` or `reconcile=`."""
        return await self._run_option(
            fn, ctx, lambda job: fn(call, ctx if job is None else _with_stopping(ctx, job))
        )

    async def _run_option(
        self, fn: Callable[..., Any], ctx: ToolContext[Any], run: Callable[[Job[Any] | None], Any]
    ) -> Any:
        """Run an option's function: in the loop if it is async, else as a job in a thread."""
        try:
            if _is(inspect.iscoroutinefunction, fn):
                return await run(None)
            result = await in_thread(
                run,
                tool=self._spec.name,
                task_id=ctx.task_id,
                call_id=ctx.call_id,
                on_left_behind=ctx.on_left_behind,
            )
            return await result if inspect.isawaitable(result) else result
        except BaseException as error:
            contain(error)
            raise


class _Anything:
    """A type that only parameters of any type accept. A function with such a parameter does not type its context."""


class ToolDecorator(Protocol):
    """Makes a function a tool. It is the return type of `tool(...)` with options.

    Type checkers see the type of the context if a `ToolContext` is the first parameter. In any other position it is
    checked when a task begins.
    """

    @overload
    def __call__(
        self, fn: Callable[Concatenate[_Anything, P], R], /
    ) -> FunctionTool[Concatenate[Any, P], R, object]: ...
    @overload
    def __call__(
        self, fn: Callable[Concatenate[ToolContext[C], P], R], /
    ) -> FunctionTool[Concatenate[ToolContext[C], P], R, C]: ...
    @overload
    def __call__(self, fn: Callable[P, R], /) -> FunctionTool[P, R, object]: ...


@overload
def tool(
    fn: Callable[Concatenate[_Anything, P], R], /, **options: Unpack[ToolOptions]
) -> FunctionTool[Concatenate[Any, P], R, object]: ...
@overload
def tool(
    fn: Callable[Concatenate[ToolContext[C], P], R], /, **options: Unpack[ToolOptions]
) -> FunctionTool[Concatenate[ToolContext[C], P], R, C]: ...
@overload
def tool(fn: Callable[P, R], /, **options: Unpack[ToolOptions]) -> FunctionTool[P, R, object]: ...
@overload
def tool(**options: Unpack[ToolOptions]) -> ToolDecorator: ...
@refuses_names("tool", "from_defaults", "from_function")
def tool(fn: Callable[..., Any] | None = None, /, **options: Unpack[ToolOptions]) -> Any:
    """Make a function a tool: `@tool`, `@tool(read_only=True)`, or `tool(function, name="...")`.

    The schema comes from signature and docstring. A parameter annotated `ToolContext` is filled in and hidden from the
    model. Each value that a generator yields is progress. The result is its return value, or else the last value that
    it yielded. Options for an existing tool make a new tool and override its options.

    Args:
        fn: a sync or async function, a generator function of either kind, or a bound method.
        options: see `ToolOptions`.

    Raises:
        ToolDefinitionError: the function or an option is not valid; the text names tool and field.
    """
    frame = defining_frame()

    def define(fn: Callable[..., Any]) -> FunctionTool[..., Any, Any]:
        if isinstance(fn, FunctionTool):
            return cast("FunctionTool[..., Any, Any]", fn).with_options(options, frame)
        return FunctionTool(fn, options, frame)

    return define if fn is None else define(fn)


def _recipients(options: ToolOptions, parameters: Json, name: str) -> tuple[str, ...]:
    """Return the names of the recipient parameters. Raises `ToolDefinitionError` for unknown ones."""
    names: Any = options.get("recipients", ())
    schema = cast("dict[str, Any]", parameters)
    properties: dict[str, Any] = schema.get("properties", {})
    is_list = isinstance(names, (list, tuple))
    wrong = [each for each in cast("list[Any]", names) if each not in properties] if is_list else [names]
    if wrong:
        available = ", ".join(properties) or "none"
        raise ToolDefinitionError(
            f"tool {name!r}: recipients must list parameters of the tool ({available}), and has {wrong[0]!r:.80}"
        )
    return tuple(names)


# ------------------------------------------------------------------------------------------- generators


def _with_stopping(ctx: ToolContext[Any], job: Job[Any]) -> ToolContext[Any]:
    cancelled = ctx.cancelled
    return replace(ctx, cancelled=lambda: job.stopping or cancelled())


def _exhausted(values: Generator[Any, None, Any], ctx: ToolContext[Any], job: Job[Any]) -> ToolOutput:
    """Run a sync generator to its end in the thread of its call."""
    last = ToolOutput(None)
    try:
        while True:
            last = to_output(next(values))
            ctx.progress(last.output)
            if job.stopping:
                raise asyncio.CancelledError
    except StopIteration as end:
        return last if end.value is None else to_output(end.value)
    finally:
        values.close()


async def _drained(values: AsyncGenerator[Any, None], ctx: ToolContext[Any]) -> ToolOutput:
    last = ToolOutput(None)
    async with aclosing(values):
        async for value in values:
            last = to_output(value)
            ctx.progress(last.output)
            await asyncio.sleep(
                0
            )  # lets the loop run, and cancellations arrive, if the generator never awaits
    return last


def _host_problem(host: object, *, is_async: bool) -> str:
    """Return why a function cannot run on its declared host."""
    if host == "inline":
        return "inline: a function that is not async would stop the event loop; leave host= out, or make it async"
    if host == "thread":
        return "thread: an async function runs in the event loop; make it a plain function, or give host=Subprocess()"
    if isinstance(host, type):
        return f"give an instance: host={host.__name__}()"
    return f"must be 'inline', 'thread', Subprocess(...) or Sandbox(...), not {host!r:.80}"


def _is(kind: Callable[[Any], bool], fn: Callable[..., Any]) -> bool:
    """Return whether a function, or the `__call__` of an object, is of a kind."""
    return kind(fn) or (not inspect.isroutine(fn) and kind(getattr(fn, "__call__", None)))  # noqa: B004


# ---------------------------------------------------------------------------------------------- options


def _name(fn: Any, options: ToolOptions) -> str:
    name = options.get("name")
    if not can_be_called(fn) or isinstance(fn, type):
        description = f"the class {fn.__name__}" if isinstance(fn, type) else _an_object(fn)
        advice = "; give the function itself, without calling it"
        if hasattr(fn, "spec"):
            advice = ", which is a tool already: list it as it is; a policy says when its calls wait (Rule(..., 'ask'))"
        elif isinstance(fn, (str, type)):
            is_name = isinstance(fn, str)
            advice = (
                f"; a name is an option: @tool(name={fn!r:.80})"
                if is_name
                else "; tool(obj.method) takes a method"
            )
        raise ToolDefinitionError(
            f"{'tool' if name is None else f'tool {name!r}'}: fn: a tool is made of a function, "
            f"not of {description}{advice}"
        )
    if name is None:
        name = getattr(fn, "__name__", None)
        if not isinstance(name, str) or name == "<lambda>":
            description = "a lambda" if name else _an_object(fn)
            raise ToolDefinitionError(f"tool: name: {description} has no name of its own, so give name=")
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ToolDefinitionError(
            f"tool {str(name)[:80]!r}: name: takes 1 to 64 of letters (a-z), digits, '_' and '-'"
        )
    return name


def _names_taken(fn: Callable[..., Any], argument_names: set[str], option: str, name: str) -> tuple[str, ...]:
    names = names_taken(fn, argument_names)
    if isinstance(names, str):
        raise ToolDefinitionError(f"tool {name!r}: {option}: the function {names}")
    return names


def _middleware(options: ToolOptions, name: str) -> tuple[ToolMiddleware, ...]:
    try:
        return checked_middleware(f"tool {name!r}: middleware", options.get("middleware", ()))
    except ConfigurationError as error:
        raise ToolDefinitionError(str(error)) from None


def _an_object(value: object) -> str:
    return f"an object of type {type(value).__name__}"


def _description(options: ToolOptions, arguments: Arguments) -> str:
    description = options.get("description")
    return arguments.description if description is None else description


def _check_options(options: ToolOptions, name: str) -> None:
    def refuse(field: str, reason: str) -> None:
        raise ToolDefinitionError(f"tool {name!r}: {field}: {reason}")

    for field in options:
        if field not in ToolOptions.__annotations__:
            from treadle.core.foreign_names import ARGUMENTS

            closest = near_name(field, ToolOptions.__annotations__)
            advice = ARGUMENTS["@tool"].get(field)
            near = f", did you mean {closest}=?" if closest else ""
            refuse(field, f"no such option: {advice}" if advice else f"no such option{near}")
    for flag in _FLAGS:
        if not isinstance(options.get(flag, False), bool):
            refuse(flag, f"must be True or False, not {options.get(flag)!r}")
    if not isinstance(options.get("description", ""), (str, type(None))):
        refuse("description", "must be text")
    secrets: Any = options.get("secrets", ())
    if not isinstance(secrets, (list, tuple)) or not all(map(_is_identifier, cast("list[Any]", secrets))):
        refuse("secrets", f"must list names of secrets, such as ('crm',), not {secrets!r:.80}")
    timeout, retries = options.get("timeout"), options.get("retries", 0)
    if timeout is not None and not (_is_number(timeout) and timeout > 0 and math.isfinite(timeout)):
        refuse("timeout", f"must be a number of seconds above 0, or None, not {timeout!r}")
    if type(retries) is not int or retries < 0:
        refuse("retries", f"must be a whole number from 0 on, not {retries!r}")
    for field in ("undo", "reconcile"):
        _check_settler(options.get(field), field, refuse)
    if not isinstance(options.get("needs_approval", False), bool):
        _check_option_function(
            options.get("needs_approval"), "needs_approval", refuse, "True, False or a function"
        )
    if options.get("preview") is not None:
        _check_option_function(options.get("preview"), "preview", refuse, "a function")
    if options.get("read_only"):
        if options.get("destructive"):
            refuse("read_only", "contradicts destructive=True")
        if options.get("undo") is not None:
            refuse("read_only", "contradicts undo=: there is nothing to take back")
    if retries and not (options.get("read_only") or options.get("idempotent")):
        refuse(
            "retries", "a tool that may write starts at most once; declare read_only=True or idempotent=True"
        )


def _is_identifier(value: Any) -> bool:
    return isinstance(value, str) and value.isidentifier()


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _check_option_function(fn: Any, field: str, refuse: Callable[[str, str], None], allowed: str) -> None:
    if not can_be_called(fn) or isinstance(fn, type):
        refuse(field, f"must be {allowed}, not {no_function(fn)}")
    if _is(inspect.isgeneratorfunction, fn) or _is(inspect.isasyncgenfunction, fn):
        refuse(field, "must be a plain or async function, not a generator")


def _check_settler(fn: Any, field: str, refuse: Callable[[str, str], None]) -> None:
    if fn is None:
        return
    if not can_be_called(fn) or isinstance(fn, type):
        refuse(field, "must be a function of (call, ctx)")
    if _is(inspect.isgeneratorfunction, fn) or _is(inspect.isasyncgenfunction, fn):
        refuse(field, "must be a plain or async function, not a generator")
    try:
        inspect.signature(fn).bind(None, None)
    except (TypeError, ValueError):
        refuse(field, "must take two arguments, the call and its ToolContext")
