"""`treadle tasks` on a store that may only be read ended with an error, though it writes nothing."""

import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import apsw
import psycopg
import pytest

from tests.forked import completed
from treadle import Agent, Runner, ScriptedModel
from treadle.errors import StoreUnavailable
from treadle.models import text
from treadle.ports import InboxItem
from treadle.stores.postgres import PostgresStore
from treadle.stores.sqlite import SQLiteStore
from treadle.testing.postgres import PostgresServer

pytestmark = pytest.mark.anyio

AGENT = Agent(ScriptedModel([text("Done.")]), name="worker")
READING = [["tasks"], ["show", "t"], ["verify"], ["threads", "list"], ["export", "--out", "OUT"]]

COMMANDS = """
import contextlib, io, json, os, sys
from treadle.cli.main import main

def run(words, out):
    words = [out if word == "OUT" else word for word in words]
    told, wrong = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(told), contextlib.redirect_stderr(wrong):
        try:
            code = main(words)
        except SystemExit as end:
            code = end.code
    return [code or 0, told.getvalue() + wrong.getvalue()]

warm, store, commands, out, warm_out = sys.argv[1], sys.argv[2], json.loads(sys.argv[3]), sys.argv[4], sys.argv[5]
for words in commands:  # what is imported late is imported while this user may still read it
    run([*words, "--store", warm], warm_out)
if os.geteuid() == 0 and "://" not in store:
    os.setgid(65534)
    os.setuid(65534)
    os.environ["HOME"] = "/tmp"
print(json.dumps([run([*words, "--store", store], out) for words in commands]))
"""


def commands(
    warm: Path | str, store: Path | str, argument_lists: list[list[str]], out: Path
) -> list[tuple[int, str]]:
    done = completed(
        [
            sys.executable,
            "-c",
            COMMANDS,
            str(warm),
            str(store),
            json.dumps(argument_lists),
            str(out),
            f"{out}.warm",
        ],
    )
    assert done.returncode == 0, done.stderr
    return [(code, output) for code, output in json.loads(done.stdout.splitlines()[-1])]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that other users may look into."""
    folder = Path(tempfile.mkdtemp(prefix="read-only-"))
    folder.chmod(0o755)
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


async def filled(store: str) -> None:
    async with Runner(store) as runner:
        await runner.run(AGENT, "Go.", task_id="t", thread_id="talk")


def protect(folder: Path) -> None:
    """Let no user write to a folder, or to what is in it; root may all the same."""
    for file in folder.iterdir():
        file.chmod(0o444)
    folder.chmod(0o555)


@pytest.fixture
def out() -> Iterator[Path]:
    """A file that any user may make."""
    folder = Path(tempfile.mkdtemp(prefix="out-"))
    folder.chmod(0o777)
    yield folder / "export.jsonl"
    shutil.rmtree(folder)


@pytest.mark.parametrize("log", ["without a log", pytest.param("with a log", marks=pytest.mark.full)])
async def test_commands_that_read_work_on_a_file_that_may_only_be_read(
    folder: Path, tmp_path: Path, out: Path, log: str
) -> None:
    path, warm = folder / "journal.db", tmp_path / "warm.db"
    await filled(str(path))
    shutil.copy(path, warm)
    writer = SQLiteStore(path)
    if log == "with a log":
        await writer.open()  # its log and its index lie beside the file
    protect(folder)
    try:
        *reading, forking = commands(warm, path, [*READING, ["fork", "t"]], out)
    finally:
        await writer.close()
    assert [code for code, _ in reading] == [0] * len(READING), reading
    assert "t" in reading[0][1]
    assert forking[0] == 1
    assert "the store is read-only here" in " ".join(forking[1].split())


@pytest.mark.full
async def test_a_read_only_file_of_an_older_format_names_the_way_to_upgrade_it(
    folder: Path, tmp_path: Path, out: Path
) -> None:
    path, warm = folder / "journal.db", tmp_path / "warm.db"
    await filled(str(path))
    shutil.copy(path, warm)
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA user_version = 6")
    connection.close()
    protect(folder)
    [(code, output)] = commands(warm, path, [["tasks"]], out)
    assert code == 1
    assert "open it once where it can be written" in " ".join(output.split())


async def test_reading_works_for_a_role_that_may_only_select(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    schema = f"r{sha256(str(tmp_path).encode()).hexdigest()[:20]}"
    url = postgres.in_schema(schema)
    await filled(url)
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {schema} LOGIN")
        connection.execute(f"GRANT USAGE ON SCHEMA {schema} TO {schema}")
        connection.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {schema}")
    as_reader = url.replace("postgres@", f"{schema}@")
    *reading, forking = commands(as_reader, as_reader, [*READING, ["fork", "t"]], tmp_path / "export.jsonl")
    assert [code for code, _ in reading] == [0] * len(READING), reading
    assert forking[0] == 1
    assert "the store is read-only for this role" in " ".join(forking[1].split())
    store = PostgresStore(as_reader)
    with pytest.raises(StoreUnavailable, match="the store is read-only for this role"):
        await store.post("t", InboxItem("i", "send", {}, 0))
    with pytest.raises(StoreUnavailable, match="the store is read-only for this role"):
        await store.claim("t")
    assert (await store.row("t")).state == "completed"
    await store.close()
