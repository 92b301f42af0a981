"""What a sandbox is declared with, what it refuses, and what a tool finds in it."""

import importlib
import os
import platform
import shutil
import subprocess
import sys
import textwrap
import time
import types
from pathlib import Path
from typing import Any

import pytest

import treadle
from tests.tools.hosts.confined_tools import inside, inside_with_network, mark
from tests.tools.hosts.test_escapes import WAYS, need
from treadle import Agent, Runner, ScriptedModel, ToolInvocation, tool
from treadle.errors import ConfigurationError, HostUnavailable
from treadle.models import call, text
from treadle.tools.hosts import cgroup, function, sandbox, seccomp, spares
from treadle.tools.hosts.sandbox import Sandbox, Way, lacking


def only_call(made: Any, **arguments: Any) -> ToolInvocation:
    """Return what became of one call of a tool."""
    agent = Agent(ScriptedModel([call(made.spec.name, **arguments), text("Done.")]), tools=[made])
    with Runner("memory:").sync as runner:
        return runner.run(agent, "Go.").tool_executions[0]


# ------------------------------------------------------------------------------------------ declaration


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"network": "api.example.com"}, "network=...) takes True or False"),
        ({"network": ["api.example.com"]}, "treadle.tools.http_client"),
        ({"network": 1}, "takes True or False"),
        ({"by": "docker"}, "takes 'bubblewrap' or 'landlock'"),
        ({"disk": 0}, "takes a whole number of bytes"),
        ({"read": "src"}, "takes a list of paths, such as read=['data'], not 'src'"),
        ({"read": [3]}, "takes paths, not 3"),
        ({"read": ["missing"]}, "there is no "),
        ({"write": [sys.executable]}, "is not a folder"),
        ({"read": ["/"]}, "/ holds or is part of /proc"),
        ({"read": ["/proc/self"]}, "is part of /proc"),
        ({"write": ["/run"]}, "is part of /run"),
        ({"read": ["/dev"]}, "is part of /dev"),
        ({"read": ["/tmp/../"]}, "/ holds"),
        ({"memory": 0}, "Sandbox(memory=...) takes a whole number"),
        ({"memory": 1 << 70}, "Sandbox(memory=...) takes a whole number"),
        ({"open_files": 3}, "takes a whole number from 8 on"),
        ({"processes": 1}, "takes a whole number from 8 on"),
        ({"read": 5}, "takes a list of paths, such as read=['data'], not 5"),
        ({"read": ["a\0b"]}, "takes paths, not "),
        ({"env": 5}, "takes names of variables"),
    ],
)
def test_a_profile_that_confines_nothing_is_refused_when_it_is_made(
    arguments: dict[str, Any], problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigurationError) as error:
        Sandbox(**arguments)
    assert problem in str(error.value)


def test_a_folder_in_a_writable_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    with pytest.raises(ConfigurationError, match="a call could replace it by a link"):
        Sandbox(write=[tmp_path], read=[tmp_path / "inner"])
    with pytest.raises(ConfigurationError, match="write holds reading"):
        Sandbox(write=[tmp_path], read=[tmp_path])


def test_paths_are_where_they_lead_when_the_profile_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "link").symlink_to("data")
    monkeypatch.chdir(tmp_path)
    assert Sandbox(read=["link"]).read == (str((tmp_path / "data").resolve()),)


def test_a_profile_says_what_it_is_without_a_look_at_the_machine(tmp_path: Path) -> None:
    assert (Sandbox().declared, Sandbox(network=True).declared) == ("sandbox", "sandbox with network")
    assert tool(inside, host=Sandbox()).spec.host == "sandbox"
    assert Sandbox().confines
    assert not Sandbox(network=True).confines
    assert not Sandbox(folder=tmp_path).confines


def test_profiles_are_read_from_files(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    table = 'read = ["data"]\nmemory = 1_000_000_000\n[{0}.net]\nnetwork = true\nfolder = "data"\n'
    for name, where in (("treadle.toml", "sandbox"), ("pyproject.toml", "tool.treadle.sandbox")):
        (tmp_path / name).write_text(f"[{where}.build]\n" + table.format(where))
        profile = Sandbox.from_file(tmp_path / name, "build")
        assert profile == Sandbox(read=[tmp_path / "data"], memory=1_000_000_000)
        assert Sandbox.from_file(tmp_path / name, "net").folder == str((tmp_path / "data").resolve())


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", "has no profile [sandbox.build]; it has none"),
        ("[sandbox.other]", "has no profile [sandbox.build]; it has other"),
        ("sandbox = 3", "has no profile"),
        ("[sandbox", "cannot be read"),
        ("[sandbox.build]\nreed = []", "has no key 'reed': did you mean 'read'?"),
        ('[sandbox.build]\nread = "data"', "read must be a list of paths"),
        ("[sandbox.build]\nnetwork = 'yes'", "[sandbox.build]: Sandbox(network=...) takes True or False"),
    ],
)
def test_a_mistake_in_a_file_is_told_with_its_place(tmp_path: Path, content: str, problem: str) -> None:
    path = tmp_path / "treadle.toml"
    path.write_text(content)
    with pytest.raises(ConfigurationError) as error:
        Sandbox.from_file(path, "build")
    assert str(error.value).startswith(str(path))
    assert problem in str(error.value)


# ---------------------------------------------------------------------------------------------- refusal


@pytest.fixture
def without_bubblewrap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A PATH of this interpreter and a shell alone."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "sh").symlink_to("/bin/sh")
    monkeypatch.setenv("PATH", str(folder))


@pytest.mark.usefixtures("without_bubblewrap")
def test_a_sandbox_that_the_machine_lacks_refuses_and_nothing_runs(tmp_path: Path) -> None:
    marked = tmp_path / "work"
    marked.mkdir()
    host = Sandbox(by="bubblewrap", write=[marked], spare=False)
    done = only_call(tool(mark, host=host), path=str(marked / "ran"))
    assert done.outcome == "error"
    assert done.error is not None
    assert done.error.message == (
        "mark did not run: the sandbox is not available here, so nothing ran: bubblewrap lacks the program bwrap "
        "(apt-get install bubblewrap)"
    )
    assert done.host is None, "it ran nowhere"
    assert not (marked / "ran").exists()


@pytest.mark.usefixtures("without_bubblewrap")
def test_landlock_confines_where_bubblewrap_is_absent() -> None:
    need("landlock")
    assert Sandbox().level == "sandbox: Landlock, no network"


def test_a_profile_that_landlock_cannot_enforce_refuses() -> None:
    need("landlock")
    done = only_call(tool(inside, host=Sandbox(by="landlock", disk=1 << 20, spare=False)))
    assert done.outcome == "error"
    assert "landlock lacks a limit for all files of a folder: declare disk=None" in str(done.error)


OLD_KERNEL = """
    import ctypes, struct, sys
    libc = ctypes.CDLL(None)
    # Answers the system call that makes a ruleset of Landlock as a kernel does that has none.
    code = b"".join(struct.pack("=HBBI", *each) for each in (
        (0x20, 0, 0, 0), (0x15, 0, 1, 444), (0x06, 0, 0, 0x00050000 | 38), (0x06, 0, 0, 0x7FFF0000)))
    class Filter(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))
    assert libc.prctl(38, 1, 0, 0, 0) == 0
    assert libc.prctl(22, 2, ctypes.byref(Filter(4, code)), 0, 0) == 0
"""


def run_script(script: str, *command: str) -> str:
    """Run a script in a process of its own, and return what it prints."""
    done = subprocess.run(
        (*command, sys.executable, "-c", script), capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_kernel_without_landlock_is_told() -> None:
    if problem := seccomp.missing():
        pytest.skip(f"this machine lacks {problem}")
    script = textwrap.dedent(OLD_KERNEL) + textwrap.dedent("""
        import os
        os.environ["PATH"] = "/nowhere"
        from treadle.tools.hosts.sandbox import Sandbox
        try:
            Sandbox().launch((), {}, None, module="x", script=None)
        except Exception as error:
            print(f"{type(error).__name__}: {error}")
    """)
    assert run_script(script) == (
        "HostUnavailable: the sandbox is not available here, so nothing ran: bubblewrap lacks the program bwrap "
        "(apt-get install bubblewrap); landlock lacks Landlock in the kernel, or it is switched off\n"
    )


def test_a_bubblewrap_that_cannot_make_namespaces_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if problem := seccomp.missing():
        pytest.skip(f"this machine lacks {problem}")
    program = tmp_path / "bwrap"
    program.write_text("#!/bin/sh\necho 'bwrap: No permissions to create a new namespace' >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    problem = lacking("bubblewrap")
    assert (
        problem == "namespaces, or version 0.8 of bubblewrap: bwrap: No permissions to create a new namespace"
    )


def test_root_without_a_control_group_is_refused_a_limit_of_processes() -> None:
    need("landlock")
    if cgroup.binds_rlimit() or shutil.which("unshare") is None:
        pytest.skip("only root of the machine needs a control group, and only it can hide them")
    script = textwrap.dedent("""
        from treadle.tools.hosts.sandbox import Sandbox
        print(Sandbox(by="landlock", processes=None).level)
        try:
            Sandbox(by="landlock").launch((), {}, None, module="x", script=None)
        except Exception as error:
            print(error)
    """)
    printed = run_script(
        script, "unshare", "-m", "sh", "-c", 'umount -l /sys/fs/cgroup; umount -l /sys; exec "$@"', "sh"
    )
    assert printed.splitlines()[0] == "sandbox: Landlock, no network"
    assert "a limit of processes for root: there is no control group that may be written" in printed


# --------------------------------------------------------------------------------------------- a call


def control_groups_gone() -> bool:
    """Whether the groups of this process's calls are gone within two seconds: they go with their last process."""
    place = None if cgroup.binds_rlimit() else cgroup.parent()
    until = time.monotonic() + 2
    while place is not None and list(place.glob(f"treadle-{os.getpid()}-*")):
        if time.monotonic() > until:
            return False
        cgroup.remove_left()
        time.sleep(0.01)
    return True


@pytest.mark.sampled(1)
@pytest.mark.parametrize("way", WAYS)
def test_a_tool_reads_and_writes_what_is_declared_and_leaves_no_control_group(
    way: Way, tmp_path: Path
) -> None:
    need(way)
    data, work = tmp_path / "data", tmp_path / "work"
    for folder in (data, work):
        folder.mkdir()
    (data / "in.txt").write_text("hello")
    host = Sandbox(by=way, read=[data], folder=work, spare=False)
    done = only_call(tool(inside, host=host), read=str(data / "in.txt"), write="out.txt")
    assert done.outcome == "ok", done.error
    assert done.output["read"] == "hello"
    assert done.output["folder"] == str(work)
    assert (work / "out.txt").read_text() == "hello"
    assert done.output["packages"] == ["pydantic", "treadle"]
    assert control_groups_gone()


@pytest.mark.sampled(1)
@pytest.mark.parametrize("way", WAYS)
def test_a_tool_whose_sandbox_has_the_network_reaches_it_and_no_unix_socket(way: Way, tmp_path: Path) -> None:
    import socket

    need(way)
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as local:
        local.bind("\0" + (name := f"treadle-{os.getpid()}-{way}"))
        local.listen()
        host = Sandbox(by=way, network=True, spare=False)
        made = tool(inside_with_network, host=host)
        done = only_call(made, port=server.getsockname()[1], name=name)
        assert done.outcome == "ok", done.error
        assert done.output == ["connected", "PermissionError"]
        assert done.host.endswith(", network")


@pytest.mark.full
@pytest.mark.parametrize("way", WAYS)
def test_a_tool_that_spins_is_killed(way: Way) -> None:
    need(way)
    from tests.tools.hosts.confined_tools import spin

    done = only_call(tool(spin, host=Sandbox(by=way, cpu_seconds=3, spare=False)))
    assert done.outcome == "error"
    assert "its process ended before it answered" in str(done.error)


@pytest.mark.parametrize("where", ["module", "program", "package"])
def test_a_folder_to_write_from_which_the_driver_takes_code_is_refused(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need("landlock")
    (tmp_path / "inner").mkdir()
    folder = tmp_path
    if where == "module":
        monkeypatch.syspath_prepend(str(tmp_path / "inner"))
    elif where == "program":
        monkeypatch.setenv("PATH", f"{os.environ['PATH']}:{tmp_path}")
    else:
        folder = Path(treadle.__file__).parents[1]
    host = Sandbox(by="landlock", write=[folder], spare=False)
    done = only_call(tool(inside, host=host))
    assert done.outcome == "error"
    assert f"the sandbox may write {folder}, from which this process loads code" in str(done.error)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("way", WAYS)
def test_an_interpreter_called_by_a_path_through_another_folder_was_not_found(
    way: Way, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need(way)
    folder, name = os.path.split(sys.executable)
    around = f"{tmp_path}/{os.path.relpath('/', tmp_path)}{folder}/{name}"
    monkeypatch.setattr(sys, "executable", around)
    done = only_call(tool(inside, host=Sandbox(by=way, spare=False)))
    assert done.outcome == "ok", done.error


def test_a_declared_folder_that_leads_to_another_place_by_now_refuses(tmp_path: Path) -> None:
    need("landlock")
    data = tmp_path / "data"
    data.mkdir()
    host = Sandbox(by="landlock", read=[data], spare=False)
    data.rmdir()
    data.symlink_to("/etc")
    done = only_call(tool(inside, host=host), read=str(data / "passwd"))
    assert done.outcome == "error"
    assert "it is not there, or leads to another place by now" in str(done.error)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("way", WAYS)
def test_a_path_exchanged_for_a_link_after_its_check_was_followed(
    way: Way, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need(way)
    data, other = tmp_path / "data", tmp_path / "other"
    for folder in (data, other):
        folder.mkdir()
        (folder / "in.txt").write_text(folder.name)
    host = Sandbox(by=way, read=[data], spare=False)
    pins = sandbox.Sandbox.pins

    def then_exchanged(self: Sandbox, module: str, script: str | None) -> Any:
        found = pins(self, module, script)
        if sys._getframe(1).f_code.co_name == "launch":
            data.rename(tmp_path / "old")
            data.symlink_to(other)
        return found

    monkeypatch.setattr(sandbox.Sandbox, "pins", then_exchanged)
    done = only_call(tool(inside, host=host), read=str(data / "in.txt"))
    assert done.outcome == "error"
    assert "was exchanged for something else" in str(done.error)


def test_a_package_that_the_driver_has_imported_from_elsewhere_could_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "plugged").mkdir()
    module = types.ModuleType("plugged")
    module.__file__, module.__path__ = str(tmp_path / "plugged" / "__init__.py"), [str(tmp_path / "plugged")]
    monkeypatch.setitem(sys.modules, "plugged", module)
    with pytest.raises(HostUnavailable, match="from which this process loads code"):
        Sandbox(folder=tmp_path / "plugged").pins("treadle", None)


def test_a_sandbox_could_write_the_file_of_its_own_profile(tmp_path: Path) -> None:
    (tmp_path / "treadle.toml").write_text('[sandbox.own]\nfolder = "."\n')
    with pytest.raises(HostUnavailable, match=r"treadle\.toml"):
        Sandbox.from_file(tmp_path / "treadle.toml", "own").pins("treadle", None)


def test_a_spare_showed_a_file_that_had_been_replaced(tmp_path: Path) -> None:
    need("landlock")
    data = tmp_path / "in.txt"
    data.write_text("old")
    made = tool(inside, host=Sandbox(by="landlock", read=[data]))
    agent = Agent(ScriptedModel([call("inside", read=str(data)), text("Done.")] * 2), tools=[made])
    with Runner("memory:").sync as runner:
        assert runner.run(agent, "Go.").tool_executions[0].output["read"] == "old"
        assert spares.waiting()
        (tmp_path / "new").write_text("new")
        (tmp_path / "new").replace(data)
        assert runner.run(agent, "Go.").tool_executions[0].output["read"] == "new"


def test_a_spare_outlived_a_change_of_the_file_of_its_module(tmp_path: Path) -> None:
    file = tmp_path / "script.py"
    file.write_text("LIMIT = 1")
    before = function._version(function.Reference("script:limit", str(file)))
    file.write_text("LIMIT = 20")
    assert function._version(function.Reference("script:limit", str(file))) != before != ()


def test_the_filter_answers_for_this_machine_alone() -> None:
    if problem := seccomp.missing():
        assert platform.machine() not in ("x86_64", "aarch64") or "libseccomp" in problem
        pytest.skip(f"this machine lacks {problem}")
    sizes = {
        (namespaces, network): len(seccomp.program(namespaces=namespaces, network=network))
        for namespaces in (True, False)
        for network in (True, False)
    }
    assert all(size % 8 == 0 and 1_000 < size < 8 * 4_096 for size in sizes.values()), sizes


FOLDERS = '''
from pathlib import Path

from treadle import tool
from treadle.tools import Sandbox, Subprocess, python_tool

HERE = Path(__file__).parent
analyst = python_tool(host=Sandbox(folder="work", read=["data"], by="{way}", spare=False))


@tool(read_only=True, host=Sandbox(read=["data"], by="{way}", spare=False))
def relative() -> str:
    """Read a folder that is declared by a relative path."""
    return (HERE / "data" / "in.txt").read_text()


@tool(read_only=True, host=Sandbox(write=[HERE / "out"], by="{way}", spare=False))
def absolute() -> str:
    """Write to another folder."""
    (HERE / "out" / "written").write_text("x")
    return "written"


@tool(read_only=True, host=Sandbox.from_file("treadle.toml", "analysis"))
def of_a_file() -> str:
    """Tell the working folder, which a file names."""
    return Path.cwd().name


@tool(read_only=True, host=Sandbox(by="{way}", spare=False))
def without() -> str:
    """Declare no folder."""
    return "no folder"


@tool(read_only=True, host=Subprocess(spare=False))
def unconfined() -> str:
    """Run in no sandbox."""
    return "unconfined"
'''


@pytest.mark.sampled(1)
@pytest.mark.parametrize("way", WAYS)
def test_functions_with_folders_were_refused_by_the_declarations_of_their_module_in_the_sandbox(
    way: Way, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need(way)
    name = f"folders_by_{way}"
    for folder in ("data", "work", "out"):
        (tmp_path / folder).mkdir()
    (tmp_path / "data" / "in.txt").write_text("hello")
    (tmp_path / "treadle.toml").write_text(
        f'[sandbox.analysis]\nfolder = "work"\nby = "{way}"\nspare = false\n'
    )
    (tmp_path / f"{name}.py").write_text(FOLDERS.replace("{way}", way))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    module = importlib.import_module(name)
    expected = {
        "relative": "hello",
        "absolute": "written",
        "of_a_file": "work",
        "without": "no folder",
        "unconfined": "unconfined",
    }
    agent = Agent(
        ScriptedModel([[call(each) for each in expected], text("Done.")]),
        tools=[getattr(module, each) for each in expected],
    )
    with Runner("memory:").sync as runner:
        done = runner.run(agent, "Go.").tool_executions
    assert {each.name: each.output or each.error for each in done} == expected
