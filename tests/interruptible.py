"""Processes that Ctrl-C interrupts, also where the tests themselves were started with SIGINT ignored."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def interruptible() -> Iterator[None]:
    """Let SIGINT end each process that is started inside.

    A process starts with SIGINT ignored if its parent ignores SIGINT, as under `nohup` or in a script's background job.
    A handler of the parent is not inherited: the default action takes its place.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
