"""Reads the code blocks of a Markdown file, and runs them in order as one program.

    python tests/docs/blocks.py docs/guide/steps.md

Without a file it runs each file that a line of its standard input names, in a fork of itself that has imported what
most pages need. A fork has a folder, an environment and an output of its own, and ends as a program does.

Python blocks of one file share their names and one event loop, and may `await` at top level; `sh` blocks run in
between, in the same folder. A comment directly above a block changes what is done with it:

    <!-- not run: REASON -->      shown to the reader only
    <!-- file: NAME -->           written to a file of that name, for the blocks that follow

A line `# > words` in a Python block is what the block prints; a block with such lines prints exactly them. `...` in
one stands for any words, for ids and times.
"""

import ast
import asyncio
import gc
import inspect
import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
import types
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path

SECONDS = 120
COMMENT = re.compile(r"<!--\s*(not run|file):\s*(.*?)\s*-->")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block; `line` is that of its first line of code, counted from 1."""

    path: Path
    line: int
    language: str
    code: str
    mark: str = ""
    detail: str = ""

    @property
    def is_run(self) -> bool:
        return not self.mark and self.language in {"python", "sh"}

    @property
    def shown(self) -> list[str]:
        """The lines the block says it prints."""
        return [match.group(1).strip() for match in re.finditer(r"^# ?>(.*)$", self.code, re.MULTILINE)]


def blocks(path: Path) -> list[Block]:
    blocks_found: list[Block] = []
    lines = path.read_text(encoding="utf-8").splitlines()
    start, fence, above = 0, "", ""
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if fence:
            if text == fence:
                indent = len(line) - len(line.lstrip())
                code = "\n".join(line[indent:] for line in lines[start : number - 1])
                language = lines[start - 1].strip().removeprefix(fence).strip()
                comment = COMMENT.fullmatch(above)
                blocks_found.append(
                    Block(path, start + 1, language, code, *(comment.groups() if comment else ()))
                )
                fence, above = "", ""
        elif text.startswith("```"):
            start, fence = number, re.match("`+", text).group()
        elif text:
            above = text
    if fence:
        raise ValueError(f"{path}:{start}: this block is never closed")
    return blocks_found


def run(path: Path) -> None:
    """Run the blocks of a file in the current folder; the first that fails ends the program."""
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main  # so that annotations in the blocks resolve as they do in a script
    sys.path.insert(0, str(Path.cwd()))
    with asyncio.Runner() as loop:
        for block in blocks(path):
            if block.mark == "file":
                Path(block.detail).parent.mkdir(parents=True, exist_ok=True)
                Path(block.detail).write_text(block.code + "\n", encoding="utf-8")
            elif block.is_run and block.language == "sh":
                run_shell(block)
            elif block.is_run:
                run_python(block, main.__dict__, loop)


def run_shell(block: Block) -> None:
    completed = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block.code], stdin=subprocess.DEVNULL, check=False
    )
    if completed.returncode:
        sys.exit(f"{block.path}:{block.line}: exit status {completed.returncode}")


def run_python(block: Block, names: dict[str, object], loop: asyncio.Runner) -> None:
    # Blank lines in front, so that a traceback shows the line of the document.
    source = "\n" * (block.line - 1) + block.code
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    code = compile(source, str(block.path), "exec", flags=flags, dont_inherit=True)
    printed = io.StringIO()
    with redirect_stdout(printed if block.shown else sys.stdout):
        if code.co_flags & inspect.CO_COROUTINE:
            loop.run(types.FunctionType(code, names)())
        else:
            exec(code, names)
    if block.shown:
        lines = [line.strip() for line in printed.getvalue().splitlines()]
        sys.stdout.write(printed.getvalue())
        if not fits(lines, block.shown):
            sys.exit(f"{block.path}:{block.line}: printed {lines}, the page shows {block.shown}")


def fits(lines: list[str], shown: list[str]) -> bool:
    """Tell whether what was printed is what a page shows."""
    patterns = [re.escape(line).replace(re.escape("..."), ".+") for line in shown]
    return len(lines) == len(patterns) and all(map(re.fullmatch, patterns, lines))


def serve() -> Path | None:
    """Answer each line of standard input with the exit status of a fork; in the fork, return the file to run."""
    # A script has its own folder first on its import path, where a page does not find its modules either.
    sys.path[0] = str(Path(__file__).parents[2])
    from tests.docs import warm_treadle

    commands = warm_treadle.offer()
    load()
    sys.path[0] = str(Path(__file__).parent)
    assert threading.active_count() == 1, "a fork would not have the other threads"
    gc.collect()
    gc.freeze()  # else each fork would copy all pages that its own collections look at
    while line := sys.stdin.readline():
        request = json.loads(line)
        fork = os.fork()
        if fork == 0:
            path = {"PATH": os.pathsep.join([str(commands), request["environment"]["PATH"]])}
            begin(request["folder"], request["output"], request["environment"] | path)
            return Path(request["document"])
        _, status = os.waitpid(fork, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)
    return None


def load() -> None:
    """Import what most pages need, and what a model of each of the providers in them needs for its first answer."""
    from treadle.llm import loading

    for home in ("openai_stream", "anthropic_stream"):
        loading.begin(f"treadle.llm.{home}").answers.result()
    for thread in threading.enumerate():
        if thread is not threading.main_thread():
            thread.join()


def begin(folder: str, output: str, environment: dict[str, str]) -> None:
    """Make a fork what a process is that was just started in a folder, and end it when it hangs."""
    signal.alarm(SECONDS)
    printed = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for target, source in enumerate((os.open(os.devnull, os.O_RDONLY), printed, printed)):
        os.dup2(source, target)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)


if __name__ == "__main__":
    page = Path(sys.argv[1]) if sys.argv[1:] else serve()
    if page is not None:
        run(page.resolve())
