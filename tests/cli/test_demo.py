"""The demonstration: it ends well, says how it stands, sees its own failures, and touches only its folder."""

import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.demonstration import WITHOUT_KEYS, check, demo, folder_of, run
from tests.interruptible import interruptible
from treadle.cli import demo_agent
from treadle.cli.demo import demo as demo_play
from treadle.testing.provider import ProviderRequest, ProviderServer, call, text, turn


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, "subprocess.CompletedProcess[str]"]:
    place = tmp_path_factory.mktemp("demo")
    return place, run(place, "--resume")


Resume = Callable[[], tuple[int, str]]


@pytest.fixture
def again(played, tmp_path, monkeypatch, capsys) -> Resume:
    """In a copy of a played demonstration that was not closed yet: go on with it, and say how that ended."""
    place, _ = played
    shutil.copytree(place / ".treadle", tmp_path / ".treadle")
    log = folder_of(tmp_path) / demo_agent.LOG
    log.write_text("".join(line for line in log.read_text().splitlines(True) if '"verified"' not in line))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TREADLE_STORE", raising=False)

    def go_on() -> tuple[int, str]:
        code = demo_play(resume=True)
        told = capsys.readouterr()
        assert told.err == ""
        return code, " ".join(told.out.split())

    return go_on


def note(place: Path, line: dict[str, Any]) -> None:
    demo_agent.append_line(folder_of(place) / demo_agent.LOG, json.dumps(line))


def start_of(place: Path, call: str) -> dict[str, Any]:
    lines = demo_agent.read_log(folder_of(place))
    return next(line for line in lines if line["event"] == "start" and line["call"] == call)


def test_it_ends_well_and_what_it_claims_is_true(played):
    place, done = played
    assert (done.returncode, done.stderr) == (0, "")
    assert "BROKEN" not in done.stdout
    assert done.stdout.count("  holds   ") > 10
    check(place)


def test_it_says_that_the_model_is_scripted_and_that_a_process_was_killed(played):
    _, done = played
    assert "The model is SCRIPTED" in done.stdout
    assert "exit status -9, SIGKILL" in done.stdout


def test_it_fits_in_eighty_columns_and_has_no_control_codes_when_piped(played):
    _, done = played
    told = done.stdout.split("Look further")[0]
    paths = [line for line in told.splitlines() if line.startswith("  journal")]
    assert all(len(line) <= 80 for line in told.splitlines() if line not in paths)
    assert "\x1b" not in done.stdout


def test_without_an_unfinished_one_resume_says_so_and_starts_one(played):
    _, done = played
    assert done.stdout.startswith("There is no demonstration to go on with")


def test_one_that_ended_is_not_taken_up_again(played):
    place, _ = played
    assert demo_agent.read_log(folder_of(place))[-1]["event"] == "verified"


def test_untouched_its_claims_hold_again(again):
    code, told = again()
    assert code == 0
    assert "taken up again" in told
    assert "BROKEN" not in told


@pytest.mark.parametrize("call", ["s1-0", "s4-0"])
def test_a_start_in_the_log_after_a_call_ended_breaks_a_claim(again, tmp_path, call):
    note(tmp_path, start_of(tmp_path, call) | {"time": time.time_ns() // 1000})
    code, told = again()
    assert code == 1
    assert f"ran twice: {call}" in told


def test_a_second_start_of_a_writing_call_breaks_a_claim_also_before_the_call_ended(again, tmp_path):
    note(tmp_path, start_of(tmp_path, "s4-0"))
    code, told = again()
    assert code == 1
    assert "ran twice: s4-0" in told


def test_a_start_that_the_journal_does_not_know_breaks_a_claim(again, tmp_path):
    first = start_of(tmp_path, "s4-0")
    note(tmp_path, first | {"call": "s9-0", "key": first["key"].replace("s4-0", "s9-0")})
    code, told = again()
    assert code == 1
    assert "not in the journal:" in told


def test_a_call_missing_from_the_log_breaks_a_claim(again, tmp_path):
    log = folder_of(tmp_path) / demo_agent.LOG
    log.write_text("".join(line for line in log.read_text().splitlines(True) if '"call": "s3-0"' not in line))
    code, told = again()
    assert code == 1
    assert "not in the log: s3-0" in told


def test_a_second_line_in_the_ledger_breaks_a_claim(again, tmp_path):
    ledger = folder_of(tmp_path) / demo_agent.LEDGER
    ledger.write_text(ledger.read_text() * 2)
    code, told = again()
    assert code == 1
    assert "2 lines in ledger.csv" in told


def test_a_file_that_undo_did_not_bring_back_breaks_a_claim(again, tmp_path):
    folder = folder_of(tmp_path)
    (folder / "sales-east.csv").rename(folder / "archive" / "sales-east.csv")
    code, told = again()
    assert code == 1
    assert "still as the call left it" in told


def test_a_fork_that_started_what_it_shares_breaks_a_claim(again, tmp_path):
    lines = demo_agent.read_log(folder_of(tmp_path))
    forks = next(line for line in lines if line["tool"] == "write_report" and line["call"] == "s3-0")
    fork = next(line for line in lines if line["what"] == "best.md")["key"].split("/")[0]
    note(tmp_path, forks | {"event": "start", "call": "s2-0", "key": f"{fork}/s2-0"})
    code, told = again()
    assert code == 1
    assert "the fork started 1 of them again" in told


def test_ctrl_c_leaves_it_resumable_and_says_how(tmp_path):
    with interruptible():
        process = subprocess.Popen(
            demo(), cwd=tmp_path, start_new_session=True, stdout=subprocess.PIPE, text=True, env=WITHOUT_KEYS
        )
    with process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("process"):
                break
        time.sleep(0.3)
        os.killpg(process.pid, signal.SIGINT)
        told = process.stdout.read()
        assert process.wait(30) == 6
    assert "treadle demo --resume" in told
    done = run(tmp_path, "--resume")
    assert (done.returncode, done.stderr) == (0, "")
    check(tmp_path)


def test_on_a_terminal_it_offers_a_model_at_hand_and_takes_its_time(tmp_path):
    ours, theirs = pty.openpty()
    env = {**os.environ, "OPENAI_API_KEY": "none", "TERM": "xterm", "COLUMNS": "80"}
    process = subprocess.Popen(
        demo(), cwd=tmp_path, stdin=theirs, stdout=theirs, stderr=theirs, env=env, start_new_session=True
    )
    os.close(theirs)
    told = b""
    while b"costs money" not in told and b"money?" not in told and b"[y/n]" not in told:
        told += os.read(ours, 1000)
    os.write(ours, b"n\n")
    while b"SCRIPTED" not in told:
        told += os.read(ours, 1000)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(10)
    os.close(ours)
    assert b"Use openai:" in told


def test_a_model_nobody_knows_is_refused_before_anything_begins(tmp_path):
    done = run(tmp_path, "--model", "nobody:nothing")
    assert done.returncode == 2
    assert "nobody" in done.stderr
    assert not (tmp_path / ".treadle").exists()


@pytest.mark.parametrize("path", ["/etc/passwd", "../x.md", "demo-00000000/../../x.md", "journal.db", ""])
def test_its_tools_refuse_every_path_outside_of_its_folder(path):
    with pytest.raises(ValueError, match="not in a demonstration's folder"):
        demo_agent.place(path)


def test_a_torn_line_of_the_log_is_read_over_and_the_next_one_is_whole(tmp_path):
    log = tmp_path / demo_agent.LOG
    log.write_text('{"event": "start"}\n{"event": "wro')
    demo_agent.append_line(log, '{"event": "looked"}')
    assert [line["event"] for line in demo_agent.read_log(tmp_path)] == ["start", "looked"]


def test_its_agent_is_cheap_to_import():
    code = "import sys, treadle.cli.demo_agent as d; print(d.AGENT.name, 'rich' in sys.modules, 'typer' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.split() == ["treadle-demo", "False", "False"]


def another_way(request: ProviderRequest) -> object:
    """A model of its own mind: other steps than the script's, two writing calls at once, and a call that fails."""
    (said,) = [message["content"] for message in request.messages if message["role"] == "user"][-1:]
    folder = re.findall(r"demo-[0-9a-f]{8}", str(said))[0]
    if "Change of plan" in str(said):
        if request.messages[-1]["role"] == "tool":
            return text("North it is.")
        return call("write_report", path=f"{folder}/best.md", text="north")
    turns = [
        turn(*[call("total_sales", path=f"{folder}/sales-{region}.csv") for region in ("north", "west")]),
        turn(
            call("write_report", path=f"{folder}/report.md", text="7595"),
            call("book_entry", folder=folder, text="a, b", amount=7595),
        ),
        turn(
            call("archive_file", path=f"{folder}/sales-north.csv"),
            call("archive_file", path=f"{folder}/none.csv"),
        ),
        text("Closed."),
    ]
    return turns[request.turn]


@pytest.mark.full
def test_what_it_claims_is_computed_so_it_holds_for_a_model_that_goes_another_way(tmp_path):
    with ProviderServer(another_way) as server:
        env = {**WITHOUT_KEYS, "OPENAI_API_KEY": "any", "OPENAI_BASE_URL": server.openai_base_url}
        done = subprocess.run(
            demo("--model", "openai:gpt-test"),
            cwd=tmp_path,
            env=env,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert "The model is openai:gpt-test" in done.stdout
    assert "exit status -9" in done.stdout
    assert "BROKEN" not in done.stdout
    folder = folder_of(tmp_path)
    assert (folder / "ledger.csv").read_text().count("\n") == 1
    assert (folder / "sales-north.csv").exists()
