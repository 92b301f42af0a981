"""Tools that run what a model writes: where they run, what they return, what they declare."""

import tempfile
from pathlib import Path
from typing import Any, cast

import pytest

from tests.tools.hosts.test_escapes import WAYS, need
from tests.tools.hosts.test_sandbox import only_call
from treadle import tool
from treadle.errors import ConfigurationError, ToolDefinitionError
from treadle.tools import Subprocess
from treadle.tools.code import KEPT, command_tool, python_tool, shell_tool
from treadle.tools.commands import PATH, Command
from treadle.tools.hosts.sandbox import Sandbox, Way

PLAIN = Subprocess(spare=False)


@pytest.mark.parametrize(
    "make", [python_tool, shell_tool, lambda **more: command_tool(Command("ls"), **more)]
)
def test_a_code_tool_has_to_be_told_where_it_runs(make: Any) -> None:
    for host in (None, "thread", "subprocess"):
        with pytest.raises(ConfigurationError, match=r"host=Sandbox\(...\), or host=Subprocess\(\)"):
            make(host=host)
    with pytest.raises(TypeError, match=r"needs host: write .*host=Sandbox\(folder='scratch'\)\)"):
        make()
    with pytest.raises(TypeError, match="has no argument 'hosts'; did you mean 'host'"):
        make(hosts=PLAIN)


def test_arguments_that_a_sandbox_does_not_take_raised_an_error_without_a_hint() -> None:
    made: Any = Sandbox
    with pytest.raises(TypeError, match=r"Sandbox takes all by name: .*write Sandbox\(read=\['data'\]"):
        made("data")
    with pytest.raises(TypeError, match=r"Sandbox has no argument 'hosts': .*http_client"):
        made(hosts=["example.com"])
    with pytest.raises(TypeError, match="Subprocess has no argument 'memry'; did you mean 'memory'"):
        cast("Any", Subprocess)(memry=1)


def test_the_error_for_an_unknown_host_left_out_the_sandbox() -> None:
    def nothing() -> None:
        """Do nothing."""

    with pytest.raises(
        ToolDefinitionError, match=r"Subprocess\(\.\.\.\) or Sandbox\(\.\.\.\), not 'sandbox'"
    ):
        tool(nothing, host=cast("Any", "sandbox"))


def test_a_code_tool_declares_what_it_can_do(tmp_path: Path) -> None:
    def declared(host: Subprocess) -> tuple[Any, ...]:
        spec = python_tool(host=host).spec
        return spec.executes, spec.read_only, spec.open_world, spec.host, spec.timeout

    assert declared(PLAIN) == (True, False, True, "subprocess", 60)
    assert declared(Sandbox()) == (True, True, False, "sandbox", 60)
    assert declared(Sandbox(folder=tmp_path)) == (True, False, False, "sandbox", 60)
    assert declared(Sandbox(network=True)) == (True, False, True, "sandbox with network", 60)
    assert tool(python_tool(host=PLAIN, name="calc"), needs_approval=True).spec.executes


@pytest.mark.sampled(1)
@pytest.mark.parametrize("way", WAYS)
def test_a_program_is_run_in_the_sandbox(way: Way, tmp_path: Path) -> None:
    need(way)
    code = """
import pydantic, sys
open("made.txt", "w").write("1234")
try:
    open("/etc/passwd").read()
except OSError as error:
    print(type(error).__name__, file=sys.stderr)
print("hello")
sys.exit(3)
"""
    done = only_call(python_tool(host=Sandbox(by=way, folder=tmp_path, spare=False)), code=code)
    assert done.outcome == "ok", done.error
    assert done.output["exit_code"] == 3
    assert done.output["stdout"] == "hello\n"
    assert done.output["stderr"] in ("FileNotFoundError\n", "PermissionError\n")
    assert done.output["files"] == {"made.txt": 4}
    assert (tmp_path / "made.txt").read_text() == "1234"


def test_a_script_is_run_its_output_cut_and_what_it_leaves_behind_not_waited_for() -> None:
    script = f"head -c {3 * KEPT} /dev/zero | tr '\\0' x; echo err >&2; echo x > y; sleep 60 & exit 7"
    done = only_call(shell_tool(host=PLAIN), script=script)
    assert done.outcome == "ok", done.error
    assert (done.output["exit_code"], done.output["stderr"], done.output["files"]) == (7, "err\n", {"y": 2})
    assert len(done.output["stdout"]) < KEPT + 100
    assert "bytes were cut here" in done.output["stdout"]
    assert done.host == "subprocess"


def test_folders_nested_without_end_are_deleted_and_harm_no_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    code = "import os\nfor _ in range(1_100):\n    os.mkdir('d')\n    os.chdir('d')\nprint(os.stat('.').st_nlink)"
    done = only_call(python_tool(host=PLAIN), code=code)
    assert done.outcome == "ok", done.error
    assert (done.output["exit_code"], done.output["files"]) == (0, {}), done.output["stderr"]
    assert not [folder for folder in tmp_path.iterdir() if (folder / "d").exists()]


def test_a_program_that_takes_too_long_is_ended() -> None:
    done = only_call(tool(shell_tool(host=PLAIN, timeout=0.3), read_only=True), script="sleep 60")
    assert done.outcome == "timeout"


def test_a_declared_command_line_is_run_and_others_do_not_start() -> None:
    made = command_tool(
        Command("ls", rest=PATH, options={"-l": None}), Command("missing-program"), host=PLAIN
    )
    assert made.spec.description == "Run one of these programs:\n  ls [-l] [PATH ...]\n  missing-program"
    refused = only_call(made, command=["ls", "/etc"])
    assert refused.outcome == "invalid"
    assert "'/etc' is not a path relative to the working folder" in str(refused.error)
    stricter = tool(made, needs_approval=True, name="run")
    assert only_call(stricter, command=["ls", "/etc"]).outcome == "invalid"
    assert only_call(made, command=["missing-program"]).output["exit_code"] == 127


def test_a_file_whose_name_is_no_text_made_each_call_in_its_folder_fail() -> None:
    done = only_call(shell_tool(host=PLAIN), script=r"touch $(printf 'a\377')")
    assert (done.outcome, done.output["files"]) == ("ok", {r"a\xff": 0})
