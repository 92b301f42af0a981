"""Tools that run in processes of their own: a new process imports this module to find them."""

import ctypes
import os
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from treadle import Happened, ToolContext, ToolOutput, tool
from treadle.core.messages import ToolCall
from treadle.tools import Subprocess

HOST = Subprocess(spare=False)


@tool(read_only=True, host=HOST)
def add(a: int, b: int = 2) -> int:
    """Add two numbers."""
    print("adding")
    return a + b


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


@tool(read_only=True, host=HOST, secrets=("crm",))
async def surroundings(ctx: ToolContext[Any], secret: str = "") -> dict[str, Any]:
    """Tell what a function finds in its process."""
    ctx.progress("looking")
    descriptors = [fd for fd in range(256) if _is_open(fd)]
    return {
        "pid": os.getpid(),
        "folder": str(Path.cwd()),
        "environment": sorted(os.environ),
        "arguments": sys.argv,
        "context": ctx.context,
        "ids": [ctx.task_id, ctx.call_id, ctx.idempotency_key, ctx.attempt],
        "descriptors": [fd for fd in descriptors if fd > 2],
        "secret": len(ctx.secret(secret)) if secret else None,
    }


@tool(read_only=True, host=HOST)
def count(n: int) -> Any:
    """Count."""
    for i in range(n):  # noqa: UP028  a list has no progress
        yield i


@tool(read_only=True, host=HOST)
async def count_slowly(n: int) -> Any:
    """Count, in an event loop."""
    for i in range(n):
        yield ToolOutput(i, f"number {i}")


def take_back(call: ToolCall, ctx: ToolContext[Any]) -> None:
    """Leave a note of what is taken back, and where."""
    Path(call.arguments["note"]).write_text(f"{call.output} {os.getpid()} {ctx.call_id}", "utf-8")


def find_out(call: ToolCall, ctx: ToolContext[Any]) -> Happened:
    """Say that it happened."""
    return Happened(f"found in {os.getpid() != int(call.arguments['driver'])}")


def foresee(note: str) -> str:
    """Tell what would be written."""
    return f"would write {note}, says {os.getpid()}"


@tool(host=HOST, undo=take_back, reconcile=find_out, preview=foresee)
def write(note: str, driver: str = "0") -> str:
    """Write a note."""
    Path(note).write_text("written", "utf-8")
    if driver != "0":
        os._exit(7)
    return "written"


@tool(read_only=True, host=HOST)
def crash(how: str) -> None:
    """End the process without an answer."""
    print("last words")
    sys.stdout.flush()
    if how == "exit":
        os._exit(3)
    ctypes.string_at(0)


@tool(read_only=True, host=HOST, timeout=0.5)
def linger(notes: str) -> None:
    """Start programs in groups of their own, tell their ids, and never return."""
    started = [subprocess.Popen(["sleep", "1000"], start_new_session=apart) for apart in (True, False)]
    Path(notes).write_text(" ".join(str(each.pid) for each in started) + f" {os.getpid()} {os.getppid()}")
    while True:
        time.sleep(0.1)


@tool(read_only=True, host=HOST)
def fail() -> None:
    """Raise an error."""
    raise LookupError("no such customer")


@tool(read_only=True, host=HOST)
async def use(what: str, ctx: ToolContext[Any]) -> None:
    """Use a part of the context that is not there."""
    if what == "context":
        print(ctx.context.name)
    elif what == "state":
        ctx.state["a"] = 1
    elif what == "ask":
        other = ctx
        await other.ask("May I?")
    else:
        ctx.secret("crm")


@tool(read_only=True, host=HOST)
def rest(seconds: float) -> None:
    """Sleep."""
    time.sleep(seconds)


@tool(read_only=True, host=HOST)
def where() -> list[int]:
    """Tell the ids of its process and of the one above."""
    return [os.getpid(), os.getppid()]


@tool(read_only=True, retries=1, host=HOST)
def second_time(note: str) -> int:
    """End the process, unless it did before."""
    path = Path(note)
    if not path.exists():
        path.touch()
        os._exit(9)
    return 2


@tool(read_only=True, host=HOST, secrets=("crm",))
def betray(ctx: ToolContext[Any]) -> None:
    """Tell a secret in an error."""
    raise ValueError(f"the key is {ctx.secret('crm')}")


@tool(host=HOST)
def lose_output(how: str) -> str:
    """Leave no output behind."""
    if how == "closed":
        sys.stdout.close()
    else:
        sys.stdout = None
    return "done"


@tool(host=HOST)
def report_on(ctx: ToolContext[Any]) -> str:
    """Leave a thread that reports without end."""

    def report() -> None:
        while True:
            ctx.progress({"rows": list(range(2_000))})

    threading.Thread(target=report, daemon=True).start()
    time.sleep(0.2)
    return "x" * 1_000_000


@tool(read_only=True, host=HOST, secrets=("crm",))
def print_secret(ctx: ToolContext[Any], before: int, after: int) -> None:
    """Print a secret among other text, and end."""
    os.write(
        1, b"y " * (before // 2) + ctx.secret("crm").encode() + b" z" * (after // 2) + b"z" * (after % 2)
    )
    os._exit(3)


@tool(read_only=True, host=HOST)
def forge(how: str) -> str:
    """Write into the channel what no worker would."""
    channel = max(fd for fd in range(3, 64) if _is_socket(fd))
    data = {
        "huge": b"\xff\xff\xff\xff",
        "noise": b"\0\0\0\x03{,}",
        "list": b"\0\0\0\x02[]",
        "unknown": b'\0\0\0\x0d{"forged": 1}',
        "nan": b'\0\0\0\x11{"progress": NaN}',
        "close": b"",
        "many": _frame(b'{"progress":[' + b"[]," * 3_000_000 + b"1]}"),
        "flood": _frame(b'{"progress":[' + b"0.5," * 2_000_000 + b"1]}") * 6,
    }[how]
    if data:
        while data:
            data = data[os.write(channel, data) :]
        time.sleep(30)
    os.close(channel)
    os._exit(0)


def _frame(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


def _is_socket(fd: int) -> bool:
    try:
        return stat.S_ISSOCK(os.fstat(fd).st_mode)
    except OSError:
        return False


@tool(read_only=True)
def start_thread() -> None:
    """Start a thread whose stack has no room in the memory."""
    threading.stack_size(1 << 30)
    threading.Thread(target=print).start()
