"""Packages of providers, imported in a thread: first what a request needs, then what only its answer needs."""

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
    """What is being loaded for a model class.

    Args:
        requests: done when a request can be sent.
        answers: done when an answer can be read.
    """

    requests: Future[None]
    answers: Future[None]


def begin(home: str) -> Loading:
    """Begin to load what the model class of a module needs, unless that began before; a failure is tried again.

    Args:
        home: the module, with `NEEDED`, names of modules that its client imports at its first request if its version of
            the package has them, and `prepare_answers`, which builds what reads an answer.
    """
    with _state.lock:
        found = _state.begun.get(home)
        if found is None or (found.answers.done() and found.answers.exception() is not None):
            found = _state.begun[home] = Loading(Future(), Future())
            for future in (found.requests, found.answers):
                future.set_running_or_notify_cancel()  # one that waits for it and is cancelled leaves it alone
            # Not a daemon: one that is cut off inside a package written in Rust ends the process with an abort.
            Thread(target=_load, args=(home, found), name=f"treadle-import-{home.rpartition('.')[2]}").start()
        return found


def has_begun(home: str) -> bool:
    """Return whether what the model class of a module needs is loaded, or being loaded."""
    return home in _state.begun


async def until(loaded: Future[None]) -> None:
    """Wait for what is being loaded, without holding up the event loop; raises what went wrong."""
    if loaded.done():
        loaded.result()
    else:
        await asyncio.wrap_future(loaded)


class _State:
    def __init__(self) -> None:
        self.lock = Lock()
        self.importing = Lock()
        self.begun: dict[str, Loading] = {}


_state: Final = _State()


def _load(home: str, loading: Loading) -> None:
    try:
        # Packages that import each other in a circle cannot be imported by several threads at a time.
        with _state.importing:
            for name in (*_SHARED, home):
                _import(name)
            module = import_module(home)
            for name in module.NEEDED:
                _import_if_there(name)
            import_module("treadle.llm.connections").tls()
            prices.load()  # pydantic-ai reads its tables when a model is made
        loading.requests.set_result(None)
        module.prepare_answers()
        loading.answers.set_result(None)
    except BaseException as error:  # noqa: BLE001  raised again in those that wait for it
        for future in (loading.requests, loading.answers):
            if not future.done():
                future.set_exception(error)


_SHARED: Final = ("httpx2", "pydantic_ai.messages", "treadle.llm.mapping", "anyio._backends._asyncio")
"""What all providers need, in steps, so that a process that ends need not wait for all of them."""


def _import(name: str) -> None:
    if not main_thread().is_alive():
        raise ImportError(f"{name} is not imported any more: the process ends")
    import_module(name)


def _import_if_there(name: str) -> None:
    """Import a module of a provider's package, unless this version of the package has no such module."""
    try:
        _import(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise


os.register_at_fork(after_in_child=_state.__init__)  # the thread that loads is not in the child
