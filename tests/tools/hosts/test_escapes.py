"""Ways out of a sandbox: none is open, by none of the ways to confine; without a sandbox they are."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, get_args

import pytest

from tests.tools.hosts.escapes.registry import CLOSED_ANYWAY, ESCAPES, NAMESPACES_ONLY
from tests.tools.hosts.escapes.trying import try_all
from tests.tools.hosts.outside import Outside, outside
from treadle import Agent, Runner, ScriptedModel, tool
from treadle.models import call, text
from treadle.tools.hosts.declaration import Subprocess
from treadle.tools.hosts.sandbox import Sandbox, Way, lacking

WAYS: tuple[Way, ...] = get_args(Way)
PROCESSES, MEMORY, FILE_BYTES, DISK, OPEN_FILES = 24, 1 << 30, 8 << 20, 4 << 20, 128
LIMITS: dict[str, Any] = {
    "processes": PROCESSES,
    "memory": MEMORY,
    "file_bytes": FILE_BYTES,
    "open_files": OPEN_FILES,
    "spare": False,
}


def need(way: Way) -> None:
    """Skip where the machine cannot confine in a way; fail where `TREADLE_SANDBOX=required` says that it has to."""
    problem = lacking(way)
    if problem is not None:
        if os.environ.get("TREADLE_SANDBOX") == "required":
            pytest.fail(f"this machine has no sandbox by {way}: it lacks {problem}")
        pytest.skip(f"this machine has no sandbox by {way}: it lacks {problem}")


def others_of_this_user() -> int:
    """Return how many more processes Landlock may allow: it counts those that its user had when the call began.

    Those of other tests end meanwhile. It counts no other processes for root, whose calls have a control group.
    """
    if os.geteuid() == 0:
        return 0
    count = 0
    for entry in Path("/proc").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            count += entry.name.isdigit() and entry.stat().st_uid == os.geteuid()
    return count


class Tried:
    """What became of all ways out, tried from within one call of a tool."""

    def __init__(self, world: Outside, names: list[str], host: Subprocess) -> None:
        world.world |= {
            "processes": PROCESSES + others_of_this_user(),
            "memory": MEMORY,
            "file_bytes": FILE_BYTES,
            "disk": DISK,
            "open_files": OPEN_FILES,
        }
        hosted = tool(try_all, name="try_all", host=host, timeout=900)
        model = ScriptedModel([call("try_all", names=names, world=world.world), text("Done.")])
        with Runner("memory:").sync as runner:
            self.execution = runner.run(Agent(model, tools=[hosted]), "Get out.").tool_executions[0]
        assert self.execution.outcome == "ok", self.execution.error
        self.found: Any = self.execution.output
        self.world = world
        self.left = world.processes()
        self.victim_ended = world.victim.poll()


@contextmanager
def tried(folder: Path, names: list[str], host: Any) -> Iterator[Tried]:
    with outside(folder) as world:
        yield Tried(world, names, host(world))


@pytest.fixture(scope="module", params=WAYS)
def confined(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tried]:
    way: Way = request.param
    need(way)
    names = [name for name in ESCAPES if way == "bubblewrap" or name not in NAMESPACES_ONLY]

    def host(world: Outside) -> Sandbox:
        disk = DISK if way == "bubblewrap" else None
        return Sandbox(by=way, read=[world.readable], write=[world.writable], disk=disk, **LIMITS)

    with tried(tmp_path_factory.mktemp("world"), names, host) as result:
        yield result


@pytest.mark.parametrize("name", ESCAPES)
def test_a_way_out_of_a_sandbox_is_closed(confined: Tried, name: str) -> None:
    if name not in confined.found:
        pytest.skip("Landlock does not claim to close it: docs/guide/sandboxing.md says so")
    assert confined.found[name].startswith("closed: "), confined.found[name]


def test_nothing_outside_was_reached_or_changed(confined: Tried) -> None:
    world = confined.world
    assert world.reached == []
    assert world.victim.poll() is None
    assert world.processes() == []
    assert world.file.read_text() == "as it was"
    for path, before in zip((world.secret, world.file), world.status, strict=True):
        after = path.stat()
        assert (after.st_mode, after.st_mtime, after.st_nlink) == (before.st_mode, before.st_mtime, 1)
    assert sorted(path.name for path in world.readable.iterdir()) == ["file", "link-out", "service"]
    assert world.memory.value.decode() == world.text


def test_no_text_from_outside_came_into_a_sandbox(confined: Tried) -> None:
    for secret in (confined.world.text, confined.world.world["environment_secret"]):
        assert not [name for name, what in confined.found.items() if secret in what]


def test_a_result_says_which_sandbox_was_in_force(confined: Tried) -> None:
    assert confined.execution.host in ("sandbox: bubblewrap, no network", "sandbox: Landlock, no network")


OPEN_ANYWHERE = {
    *("read_a_file_outside", "read_by_dots", "read_through_an_own_link", "list_a_folder_outside"),
    *(
        "read_through_a_link_in_a_declared_folder",
        "link_a_readable_file_and_write_it",
        "write_a_readable_file",
    ),
    *("make_a_file_in_a_readable_folder", "rename_a_readable_file", "truncate_a_readable_file"),
    *(
        "change_the_mode_of_a_readable_file",
        "change_the_times_of_a_file_outside",
        "leave_a_setuid_program_behind",
    ),
    *("make_a_setuid_program_at_once", "connect_by_tcp", "send_by_udp", "ask_a_name_server"),
    *("be_reached_from_the_machine", "connect_to_an_abstract_socket", "connect_to_a_socket_outside"),
    *(
        "connect_to_a_socket_in_a_declared_folder",
        "signal_the_driver",
        "signal_by_a_handle",
        "see_other_processes",
    ),
    *("open_named_shared_memory_of_the_driver", "slow_another_process_down", "limit_another_process"),
}
"""Ways that are open on every machine without a sandbox."""


def test_the_ways_out_are_open_without_a_sandbox(tmp_path: Path) -> None:
    names = [name for name in ESCAPES if name not in CLOSED_ANYWAY]
    last = [
        name for name in names if name.startswith("signal_")
    ]  # they end the process that others try to reach
    ordered = [name for name in names if name not in last] + last
    with tried(tmp_path, ordered, lambda _: Subprocess(**LIMITS | {"processes": 256})) as result:
        closed = {name: what for name, what in result.found.items() if not what.startswith("open: ")}
        assert not closed.keys() & OPEN_ANYWHERE, closed
        print(f"closed on this machine without a sandbox: {closed}")
        assert result.world.reached
