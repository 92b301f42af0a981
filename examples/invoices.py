"""A batch of invoices: typed data out of every file of a folder, many at a time, into a table.

    python examples/invoices.py
    python examples/invoices.py --model openai:gpt-5.4-mini --folder mail --out invoices.csv

Each file is a task with an id of its own, made of its name and contents: a program that was killed, or is started
again, asks nothing twice, and a file that changed is read anew. An answer that does not add up goes back to the model.
PDF and pictures are sent as they are. Without --model a script plays the model, on made-up invoices.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import hashlib
import re
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Self

from pydantic import BaseModel, model_validator

from treadle import Agent, File, Image, Limits, ModelRequest, Runner, RunOptions, RunResult, ScriptedModel
from treadle.models import Turn, call

LETTERS = {
    "ada.txt": "Invoice 7 of Ada Ltd.\nTea 250, cake 400. Total 650 cents.",
    "bob.txt": "Bob & Sons, invoice 12: repairs 9900 cents.",
}
PICTURES = {".png", ".jpg", ".jpeg", ".webp"}


class Invoice(BaseModel):
    """What is wanted of an invoice; amounts in cents."""

    sender: str
    number: int
    items: dict[str, int]
    total: int

    @model_validator(mode="after")
    def adds_up(self) -> Self:
        """Refuse a total that is not the sum; the model reads this and answers again."""
        if sum(self.items.values()) != self.total:
            raise ValueError(f"the items add up to {sum(self.items.values())}, not to {self.total}")
        return self


def script(request: ModelRequest) -> Turn:
    """What a model may answer: it adds wrongly at first."""
    letter = request.messages[0].text
    if "Ada" in letter:
        total = 655 if request.turn == 0 else 650
        return call("final_answer", sender="Ada Ltd.", number=7, items={"tea": 250, "cake": 400}, total=total)
    return call("final_answer", sender="Bob & Sons", number=12, items={"repairs": 9900}, total=9900)


def parts_of(path: Path) -> list[str | Image | File]:
    """A file as a model reads it."""
    if path.suffix.lower() in PICTURES:
        return ["The invoice:", Image(path=str(path))]
    if path.suffix.lower() == ".pdf":
        return ["The invoice:", File(path=str(path))]
    return [path.read_text(encoding="utf-8")]


def id_of(path: Path) -> str:
    """The id of the task that reads a file: another one if the file has changed."""
    digest = hashlib.sha256(path.read_bytes()).hexdigest()[:12]
    return f"invoice-{re.sub(r'[^A-Za-z0-9]+', '-', path.stem)}-{digest}"


async def read_all(agent: Agent, paths: Sequence[Path], at_once: int) -> list[RunResult]:
    """Read all files, so many at a time; one that fails holds up no other."""
    turn = asyncio.Semaphore(at_once)
    options = RunOptions(limits=Limits(steps=4, seconds=300), labels={"batch": "invoices"})
    async with Runner(agents=[agent], options=options) as runner:

        async def read(path: Path) -> RunResult:
            async with turn:
                result = await runner.run(agent, parts_of(path), task_id=id_of(path))
                return result if result.state != "failed" else await runner.resume(result.task_id)

        return list(await asyncio.gather(*map(read, paths)))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the example as the command line says."""
    parser = argparse.ArgumentParser(description="Read invoices into a table.")
    parser.add_argument("--folder", type=Path, help="the invoices; some are made up by default")
    parser.add_argument("--model", help="provider:name, such as openai:gpt-5.4-mini; a script by default")
    parser.add_argument("--out", type=Path, help="the CSV file; standard output by default")
    parser.add_argument("--at-once", type=int, default=8, help="how many files are read at a time")
    parsed = parser.parse_args(arguments)
    folder = parsed.folder
    if folder is None:
        folder = Path(".treadle", "invoices")
        folder.mkdir(parents=True, exist_ok=True)
        for name, body in LETTERS.items():
            (folder / name).write_text(body, encoding="utf-8")
    chosen = parsed.model if parsed.model is not None else ScriptedModel(script)
    agent = Agent(
        chosen, name="invoices", instructions="Read the invoice. Amounts in cents.", output_type=Invoice
    )
    paths = sorted(path for path in folder.iterdir() if path.is_file())
    results = asyncio.run(read_all(agent, paths, parsed.at_once))
    with parsed.out.open("w", newline="") if parsed.out else nullcontext(sys.stdout) as out:
        table = csv.writer(out)
        table.writerow(["file", "state", "sender", "number", "total"])
        for path, result in zip(paths, results, strict=True):
            read = result.output
            row = [read.sender, read.number, read.total] if isinstance(read, Invoice) else ["", "", ""]
            table.writerow([path.name, result.state, *row])
    unread = [result for result in results if result.state != "completed"]
    for result in unread:
        print(f"{result.task_id}: {result}", file=sys.stderr)
    return 1 if unread else 0


if __name__ == "__main__":
    raise SystemExit(main())
