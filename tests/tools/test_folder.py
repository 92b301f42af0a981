"""Paths that a model writes lead to files of one folder, or nowhere."""

import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import pytest

from treadle import Agent, Runner, ScriptedModel, tool
from treadle.errors import ConfigurationError, ToolError
from treadle.llm.scripted import call, text
from treadle.tools.folder import Folder, FolderPath, PathRefused

SECRET = "the secret of another folder"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder beside which there are a secret, a twin, and links of every kind."""
    root, outside = tmp_path / "ws", tmp_path / "outside"
    for folder in (root / "notes", root / "Notes", outside, tmp_path / "ws-evil"):
        folder.mkdir(parents=True, exist_ok=True)
    (root / "notes" / "a.txt").write_text("hello")
    for place in (outside / "secret.txt", tmp_path / "secret.txt", tmp_path / "ws-evil" / "secret.txt"):
        place.write_text(SECRET)
    (root / "out").symlink_to(outside)
    (root / "file").symlink_to(outside / "secret.txt")
    (root / "absolute").symlink_to("/")
    (root / "up").symlink_to("..")
    (root / "one").symlink_to("two")
    (root / "two").symlink_to("out")
    (root / "round").symlink_to("round")
    (root / "inside").symlink_to("notes")
    (root / "notes" / "proc").symlink_to("/proc/self")
    (root / "hard").hardlink_to(outside / "secret.txt")
    os.mkfifo(root / "pipe")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(root / "socket"))
    listener.close()
    return root


OUTSIDE = [
    "../secret.txt",
    "notes/../../secret.txt",
    "notes/..",
    "..",
    "../ws-evil/secret.txt",
    "../outside/secret.txt",
    "./../secret.txt",
    "notes//..//../secret.txt",
    "/etc/passwd",
    "//etc/passwd",
    "/proc/self/environ",
    "notes/proc/environ",
    "notes/proc/cwd/x",
    "out/secret.txt",
    "out",
    "file",
    "absolute/etc/passwd",
    "absolute",
    "up/secret.txt",
    "up/ws-evil/secret.txt",
    "up/ws/up/secret.txt",
    "one/secret.txt",
    "one",
    "round",
    "round/x",
    "inside/a.txt",
    "hard",
    "pipe",
    "socket",
    "notes/a.txt/x",
    "notes/a.txt\0.png",
    "\0",
    "",
    "notes\n/a.txt",
    "\x1b[2J",
    "\ud800",
    "a/" * 3_000,
    "x" * 300,
    "~/keys",
    "file:///etc/passwd",
    "notes/\u2024\u2024/a.txt",
    "\uff0e\uff0e/secret.txt",
    "..\u2215secret.txt",
    "%2e%2e/secret.txt",
    "..\\secret.txt",
    "NOTES/a.txt",
]


@pytest.mark.parametrize("path", OUTSIDE)
def test_nothing_outside_is_read(root: Path, path: str) -> None:
    with pytest.raises(ToolError) as refused:
        Folder(root).path(path).read_text()
    assert str(root) not in str(refused.value), "the model is not told where the folder is"


@pytest.mark.parametrize("path", OUTSIDE)
def test_nothing_outside_is_written_or_removed(root: Path, path: str, tmp_path: Path) -> None:
    def kept() -> dict[str, str]:
        outside = [
            tmp_path / "secret.txt",
            *(tmp_path / "outside").iterdir(),
            *(tmp_path / "ws-evil").iterdir(),
        ]
        return {str(file): file.read_text() for file in (*outside, root / "notes" / "a.txt")}

    before, folder = kept(), Folder(root, writable=True)
    for work in (
        lambda: folder.path(path).write_text("gone"),
        lambda: folder.path(path).mkdir(),
        lambda: folder.path(path).unlink(),
    ):
        try:
            work()
        except ToolError:
            continue
    assert kept() == before


def test_names_that_look_like_a_way_out_are_names_of_files(root: Path) -> None:
    folder = Folder(root, writable=True)
    for name in ("..\\secret.txt", "\uff0e\uff0e", "...", "~", "%2e%2e"):
        folder.path(name).write_text("mine")
        assert (root / name).read_text() == "mine"


@pytest.mark.parametrize("swapped", ["a folder", "a file"])
def test_a_path_is_not_led_out_by_a_swap_between_two_looks(root: Path, tmp_path: Path, swapped: str) -> None:
    """A thread swaps a part for a link to the secret, over and over, while the file is read 1,000 times."""
    place = root / "spot" if swapped == "a folder" else root / "spot.txt"
    if swapped == "a folder":
        (root / "true").mkdir()
        (root / "true" / "secret.txt").write_text("mine")
        (root / "link").symlink_to(tmp_path / "outside")
        path = "spot/secret.txt"
    else:
        (root / "true").write_text("mine")
        (root / "link").symlink_to(tmp_path / "outside" / "secret.txt")
        path = "spot.txt"
    over = threading.Event()

    def swap() -> None:
        while not over.is_set():
            for name in ("true", "link"):
                (root / name).rename(place)
                place.rename(root / name)

    thread = threading.Thread(target=swap)
    thread.start()
    read = set[str]()
    try:
        for _ in range(1_000):
            try:
                read.add(Folder(root).path(path).read_text())
            except ToolError:
                continue
    finally:
        over.set()
        thread.join()
    assert read <= {"mine"}


def test_files_are_read_written_listed_and_removed(root: Path) -> None:
    folder = Folder(root, writable=True)
    note = folder.path("new") / "note.txt"
    folder.path("new").mkdir()
    folder.path("new").mkdir()
    assert (note.write_text("one"), note.write_text("two!")) == (3, 4)
    assert (note.read_text(), note.exists(), note.name, str(note)) == (
        "two!",
        True,
        "note.txt",
        "new/note.txt",
    )
    assert folder.path("new").names() == ["note.txt"]
    assert "file" not in folder.path(".").names()
    note.unlink()
    assert not note.exists()
    assert folder.path(".").exists()


def test_a_file_with_other_names_is_replaced_and_not_written_through(root: Path, tmp_path: Path) -> None:
    Folder(root, writable=True).path("hard").write_text("mine")
    assert (root / "hard").read_text() == "mine"
    assert (tmp_path / "outside" / "secret.txt").read_text() == SECRET


@pytest.mark.parametrize("name", ["file", "inside", "round", "one", "pipe", "socket"])
def test_a_link_or_a_pipe_was_replaced_by_the_file_that_was_written(root: Path, name: str) -> None:
    before = (root / name).lstat()
    for work in (lambda path: path.write_text("mine"), lambda path: path.write_bytes(b"mine")):
        with pytest.raises(PathRefused, match=r"is a symbolic link|is neither a file nor a folder"):
            work(Folder(root, writable=True).path(name))
    assert (root / name).lstat() == before
    assert [path.name for path in root.iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize(
    ("work", "told"),
    [
        (lambda path: path.write_text("x"), "read-only"),
        (lambda path: path.unlink(), "read-only"),
        (lambda path: path.mkdir(), "read-only"),
    ],
)
def test_a_folder_is_read_only_unless_it_says_otherwise(
    root: Path, work: Callable[[FolderPath], object], told: str
) -> None:
    with pytest.raises(PathRefused, match=told):
        work(Folder(root).path("notes/a.txt"))


def test_large_files_are_neither_read_nor_written(root: Path) -> None:
    folder = Folder(root, writable=True, max_bytes=4)
    with pytest.raises(ToolError, match="more than 4 bytes"):
        folder.path("notes/a.txt").read_bytes()
    with pytest.raises(ToolError, match="would have 5 bytes"):
        folder.path("b").write_text("fives")
    assert sorted(path.name for path in root.iterdir() if path.name.startswith(".")) == []


def test_errors_say_what_is_not_there(root: Path) -> None:
    folder = Folder(root)
    with pytest.raises(ToolError, match="cannot read nothing: there is no such file"):
        folder.path("nothing").read_text()
    with pytest.raises(ToolError, match="cannot read notes: it is a folder"):
        folder.path("notes").read_text()
    with pytest.raises(ToolError, match="the folder of this tool cannot be opened"):
        Folder(root / "gone").path("a").read_text()
    for wrong in ("", 5, None):
        with pytest.raises(ConfigurationError, match="root must be the path"):
            Folder(wrong)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigurationError, match="max_bytes"):
        Folder(root, max_bytes=0)


@pytest.mark.anyio
async def test_a_tool_takes_paths_of_its_folder_and_tells_the_model_of_others(root: Path) -> None:
    notes = Folder(root)

    @tool(read_only=True)
    def read_note(path: Annotated[FolderPath, notes]) -> str:
        """Read a note."""
        return path.read_text()

    calls = [call("read_note", path=path) for path in ("notes/a.txt", "../secret.txt", "file")]
    agent = Agent(ScriptedModel([calls[0] + calls[1] + calls[2], text("done")]), tools=[read_note])
    async with Runner("memory:") as runner:
        result = await runner.run(agent, "go")
    assert read_note.spec.parameters["properties"]["path"]["type"] == "string"
    good, out, link = result.tool_executions
    assert (good.outcome, good.output) == ("ok", "hello")
    assert (out.outcome, link.outcome) == ("invalid", "error")
    assert out.error is not None
    assert link.error is not None
    assert "leads out of the folder" in out.error.message
    assert "'file' is a symbolic link" in link.error.message
