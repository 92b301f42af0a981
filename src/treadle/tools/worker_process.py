"""The tool side of a tool's process: load the function's module and run one call."""

from __future__ import annotations

import asyncio
import os
import runpy
import sys
import types
from collections.abc import Callable
from importlib import import_module
from threading import Lock
from typing import Any, Final, NoReturn, cast

from treadle import errors
from treadle.core.observation import error_text
from treadle.core.tools import LOADING
from treadle.core.tracebacks import user_error
from treadle.errors import ToolArgumentsInvalid, ToolError, ToolOutcomeUnknown, TreadleError
from treadle.ports import NoServices, ToolContext
from treadle.tools.approval import code_digest
from treadle.tools.function import FunctionTool
from treadle.tools.hosts.child import Channel, limit_behind, packed
from treadle.tools.hosts.declaration import make_inert
from treadle.tools.hosts.messages import call_from_json, output_to_json, verdict_to_json
from treadle.tools.observe import to_output

SCRIPT: Final = "__mp_main__"
"""The name of the driver's script in this process, if it defines tools. Its `__main__` block does not run here."""

WHERE: Final = "a tool that runs in a process of its own"

_ERROR_CHARS: Final = 250_000
"""Most characters of an error that is sent. The driver removes secrets before it cuts the text further."""


def serve(channel: Channel, setup: dict[str, Any]) -> None:
    """Load the function's module, wait for the request, and answer it."""
    make_inert()
    try:
        os.environ[LOADING] = "1"
        _load(setup["module"], setup["script"])
        FunctionTool(_load, {"name": "load"})  # imports pydantic before the call's timeout starts
        del os.environ[LOADING]
    except BaseException as error:  # noqa: BLE001  a module may also call sys.exit()
        text = error_text(error, _ERROR_CHARS) + limit_behind(error, setup["limits"])
        channel.send({"failed": f"its module {setup['module']} could not be loaded: {text}"})
        return
    channel.send({"ready": True})
    request = channel.receive()
    if request is not None:
        asyncio.run(_answer(channel, request, setup["answer_bytes"], setup["limits"]))


class _NotRunnable(Exception):
    """The named function is missing here, or differs from the driver's."""


async def _answer(channel: Channel, request: dict[str, Any], limit: int, limits: dict[str, int]) -> None:
    caller = _Caller(channel, limit)
    try:
        answer = {"result": await _run_operation(request, caller)}
    except (_NotRunnable, ToolArgumentsInvalid) as error:
        answer = {"failed": error_text(error, _ERROR_CHARS)}
    except ToolOutcomeUnknown as error:
        answer = {"error": error_text(error, _ERROR_CHARS), "unknown": True}
    except BaseException as error:  # noqa: BLE001  any error of the function is the call's error
        answer: dict[str, Any] = {"error": error_text(error, _ERROR_CHARS) + limit_behind(error, limits)}
        raised = user_error(error)
        if raised is not None and not isinstance(raised.error, TreadleError):
            answer["traceback"] = raised.pieces
    if "result" in answer and len(data := packed(answer)) > limit:
        answer = {"error": f"the result has {len(data):,} bytes as JSON, and may have {limit:,}"}
    caller.answer(answer)


async def _run_operation(request: dict[str, Any], caller: _Caller) -> Any:
    """Run the requested operation, and return its result as JSON data."""
    tool, ctx = _tool(request), caller.context(request["context"])
    match request["do"]:
        case "call":
            return output_to_json(await tool.call(tool.validate(request["arguments"]), ctx))
        case "undo":
            await tool.undo(call_from_json(request["call"]), ctx)
            return None
        case "reconcile":
            return verdict_to_json(await tool.reconcile(call_from_json(request["call"]), ctx))
        case "preview":
            return to_output(await tool.preview(tool.validate(request["arguments"]), ctx)).output
        case unknown:
            raise _NotRunnable(f"the driver asked for {unknown!r}, which this version does not know")


# ------------------------------------------------------------------------------------------ the function


def _load(module: str, script: str | None) -> None:
    """Import a module, or run the driver's script under another name, so that its `__main__` block is skipped."""
    if script is None:
        import_module(module)
        return
    loaded = types.ModuleType(SCRIPT)
    loaded.__file__ = script
    sys.modules[SCRIPT] = sys.modules["__main__"] = loaded
    loaded.__dict__.update(runpy.run_path(script, run_name=SCRIPT))


def _tool(request: dict[str, Any]) -> FunctionTool[..., Any, Any]:
    """Return the requested tool, without its host, middleware and approval."""
    target = _named_object(request["function"])
    function = target.function if isinstance(target, FunctionTool) else target
    if code_digest(function) != request["code"]:
        raise _NotRunnable(
            f"{request['function']} is not the function that the driver has: its file has changed since, or its name "
            "refers to another object; restart the driver"
        )
    options: dict[str, Any] = dict(target.options) if isinstance(target, FunctionTool) else {}
    beside = request["beside"]
    if beside is not None:
        option_function = _named_object(beside)
        options[request["do"]] = (
            option_function.function if isinstance(option_function, FunctionTool) else option_function
        )
    for option in ("host", "middleware", "needs_approval"):
        options.pop(option, None)
    return FunctionTool(
        cast("Callable[..., Any]", function), cast("Any", options | {"name": request["name"]})
    )


def _named_object(reference: str) -> Any:
    """Return the object that `module:qualname` names."""
    module, _, qualname = reference.partition(":")
    try:
        value: Any = import_module(module)
        for name in qualname.split("."):
            value = getattr(value, name)
    except (ImportError, AttributeError) as error:
        raise _NotRunnable(
            f"{reference} cannot be found in a new process: {error_text(error, _ERROR_CHARS)}"
        ) from None
    return value


# ------------------------------------------------------------------------------------------- the context


class _Caller:
    """The driver, as seen by the function through its context. It is thread-safe."""

    def __init__(self, channel: Channel, limit: int) -> None:
        self._channel = channel
        self._limit = limit
        self._lock = Lock()
        self._is_over = False

    def answer(self, message: dict[str, Any]) -> None:
        """Send the answer as the last message. Later progress from threads of the function is dropped."""
        self._is_over = True  # set before the lock: a thread that reports in a loop could starve it
        with self._lock:
            self._channel.send(message)

    def context(self, document: dict[str, Any]) -> ToolContext[Any]:
        fields = dict(document)
        kind = fields.pop("context_type", None)
        if "context" not in fields:
            fields["context"] = None if kind is None else _NoContext(kind)
        return ToolContext(
            **fields,
            on_progress=self._progress,
            open_state=_no_state,
            open_services=lambda: cast("Any", NoServices(WHERE)),
            open_secret=self._secret,
        )

    def _progress(self, value: Any) -> None:
        data = {"progress": to_output(value).output}
        if len(packed(data)) > self._limit:
            raise ToolError(f"a value of progress may have {self._limit:,} bytes as JSON")
        with self._lock:
            if not self._is_over:
                self._channel.send(data)

    def _secret(self, name: str) -> str:
        with self._lock:
            if self._is_over:
                raise ToolError(f"the secret {name!r} is not available: the call is over")
            self._channel.send({"secret": name})
            reply = self._channel.receive()
        if reply is None:
            raise ToolError(f"the secret {name!r} is not available: the call is over")
        if "secret" in reply:
            return reply["secret"]
        kind = getattr(errors, reply["kind"], ToolError)
        raise kind(reply["refused"], **reply["fields"])


def _no_state() -> NoReturn:
    raise ToolError(
        f"ctx.state is not available in {WHERE}: pass its values as arguments, and return the changes"
    )


class _NoContext:
    """Placeholder for a context that is not JSON data: each use raises `ToolError`."""

    def __init__(self, kind: str) -> None:
        self.__dict__["kind"] = kind

    def _refuse(self, *_: Any) -> NoReturn:
        kind = self.__dict__["kind"]
        raise ToolError(
            f"ctx.context is not available in {WHERE}: it is of type {kind}, and only JSON data is passed on"
        )

    __getattr__ = __getitem__ = __iter__ = __len__ = __bool__ = __call__ = __contains__ = _refuse
