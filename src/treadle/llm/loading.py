"""Import the packages of providers in a thread: first those of a request, then those of its answer."""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import Future
from importlib import import_module
from threading import Lock, Thread, main_thread
from typing import Final

from treadle.core.data import frozen
from treadle.llm import prices


@frozen
class Loading:
    """The state of loading a model class.

    Args:
        requests: done when a request can be sent.
        answers: done when an answer can be read.
    """

    requests: Future[None]
    answers: Future[None]


def begin(home: str) -> Loading:
    """Begin to load a model class, unless that has begun. After a failure, begin again.

    Args:
        home: the module of the model class. In a module of Treadle, `NEEDED` names the modules that the client would
            import during its first request. Its `prepare_answers` builds the readers of answers.
    """
    with _state.lock:
        loading = _state.loadings.get(home)
        if loading is None or (loading.answers.done() and loading.answers.exception() is not None):
            loading = _state.loadings[home] = Loading(Future(), Future())
            for future in (loading.requests, loading.answers):
                future.set_running_or_notify_cancel()  # a waiter that is cancelled does not cancel it
            # Not a daemon: a daemon thread stopped inside a Rust extension aborts the process at exit.
            Thread(
                target=_load, args=(home, loading), name=f"treadle-import-{home.rpartition('.')[2]}"
            ).start()
        return loading


def has_begun(home: str) -> bool:
    """Return whether the model class of a module is loaded or being loaded."""
    return home in _state.loadings


async def until(loaded: Future[None]) -> None:
    """Wait until loading has finished, without blocking the event loop; raises its error if it failed."""
    if loaded.done():
        loaded.result()
    else:
        await asyncio.wrap_future(loaded)


class _State:
    def __init__(self) -> None:
        self.lock = Lock()
        self.importing = Lock()
        self.loadings: dict[str, Loading] = {}


_state: Final = _State()


def _load(home: str, loading: Loading) -> None:
    try:
        # Packages that import each other in a circle cannot be imported by several threads at a time.
        with _state.importing:
            for name in (*_SHARED, home):
                _import(name)
            module = import_module(home)
            for name in getattr(module, "NEEDED", ()):
                _import_if_installed(name)
            import_module("treadle.llm.connections").tls()
            prices.load()  # pydantic-ai reads its tables when a model is made
        loading.requests.set_result(None)
        getattr(module, "prepare_answers", _nothing)()
        loading.answers.set_result(None)
    except BaseException as error:  # noqa: BLE001  raised again by `until`
        for future in (loading.requests, loading.answers):
            if not future.done():
                future.set_exception(error)


def _nothing() -> None: ...


_SHARED: Final = ("httpx2", "pydantic_ai.messages", "treadle.llm.mapping", "anyio._backends._asyncio")
"""Modules that all providers need, in steps: a process that ends does not wait for all of them."""


def _import(name: str) -> None:
    if not main_thread().is_alive():
        raise ImportError(f"{name} is not imported any more: the process ends")
    import_module(name)


def _import_if_installed(name: str) -> None:
    """Import a module of a provider's package, unless this version of the package has no such module."""
    try:
        _import(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise


os.register_at_fork(after_in_child=_state.__init__)  # the child has no loading thread
