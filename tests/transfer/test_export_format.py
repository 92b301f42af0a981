"""The format of export files: lines that people can read, and files that were changed or cut."""

import json
import stat
from pathlib import Path

import pytest

from tests.transfer.exports import content, filled, put, refused
from treadle import Runner
from treadle.core import events as e
from treadle.errors import ImportRefused
from treadle.stores.memory import MemoryStore
from treadle.transfer.export_format import FORMAT

pytestmark = pytest.mark.anyio

some_places = pytest.mark.parametrize(
    "stride", [pytest.param(4, id="each fourth"), pytest.param(1, marks=pytest.mark.full, id="each")]
)


async def test_a_line_is_an_event_that_people_and_programs_can_read(tmp_path: Path) -> None:
    file = tmp_path / "all.jsonl"
    async with filled(MemoryStore()) as runner:
        await runner.export_tasks(file, "two")
        journal = [
            event async for event in runner.handle("two").events(deltas=False) if isinstance(event, e.Event)
        ]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    start = next(number for number, line in enumerate(lines) if line.get("task") == "two")
    end = next(number for number, line in enumerate(lines) if line.get("end") == "two")
    kinds = [line["event"]["k"] for line in lines[start:end] if "event" in line]
    assert kinds == [event.kind for event in journal]
    assert lines[0]["treadle_export"] == FORMAT


@some_places
async def test_a_changed_line_is_refused_whichever_it_is(export: Path, stride: int) -> None:
    lines = content(export).splitlines(keepends=True)
    section = 0
    for number, line in enumerate(lines, 1):
        section = number if line.startswith(b'{"task"') else section
        if number % stride:
            continue
        middle = len(line) // 2
        changed = line[:middle] + bytes([line[middle] ^ 2]) + line[middle + 1 :]
        put(export, b"".join([*lines[: number - 1], changed, *lines[number:]]))
        where = (await refused(export)).line
        # In the line itself, at the record it belongs to, or where its task ends.
        ends = [
            place
            for place, end in enumerate(lines, 1)
            if place >= number and end[:6] in (b'{"end"', b'{"expo')
        ]
        assert section <= where <= max(number, ends[0]) or where == len(lines)


@some_places
async def test_a_file_that_was_cut_is_refused_wherever_it_was_cut(export: Path, stride: int) -> None:
    whole = content(export)
    lines = whole.count(b"\n")
    for part in range(0, len(whole) - 1, len(whole) * stride // 60):
        put(export, whole[:part])
        assert (await refused(export)).line == whole[:part].count(b"\n") + 1
    put(export, whole + b"{}\n")
    assert (await refused(export)).line == lines + 1


@some_places
async def test_lines_that_are_missing_moved_or_there_twice_are_refused(export: Path, stride: int) -> None:
    lines = content(export).splitlines(keepends=True)
    for number in range(0, len(lines), stride):
        put(export, b"".join(lines[:number] + lines[number + 1 :]))
        await refused(export)
        put(export, b"".join([*lines[: number + 1], *lines[number:]]))
        await refused(export)
    put(export, b"".join(lines[::-1]))
    assert (await refused(export)).line == 1


async def test_a_newer_export_is_refused_with_what_to_do(export: Path) -> None:
    put(export, content(export).replace(b'{"treadle_export":1', b'{"treadle_export":2', 1))
    assert "upgrade treadle" in str(await refused(export))
    put(export, b"not an export\n")
    assert (await refused(export)).line == 1
    with pytest.raises(ImportRefused, match="nowhere"):
        await Runner(MemoryStore()).import_tasks(export.parent / "nowhere")
