"""The demonstration: it ends well, says how it stands, sees its own failures, and touches only its folder."""

import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.demonstration import WITHOUT_KEYS, check, demo, folder_of, run
from treadle.cli import demo_agent


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, "subprocess.CompletedProcess[str]"]:
    place = tmp_path_factory.mktemp("demo")
    return place, run(place, "--resume")


def copy_of(played: Path, to: Path) -> Path:
    """A played demonstration that was not closed yet, at another place."""
    subprocess.run(["cp", "-a", f"{played}/.treadle", to], check=True)
    log = folder_of(to) / demo_agent.LOG
    log.write_text("".join(line for line in log.read_text().splitlines(True) if '"verified"' not in line))
    return to


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


def tampered(played: Path, to: Path, *lines: dict) -> "subprocess.CompletedProcess[str]":
    """Resume a demonstration whose log was added to."""
    copy_of(played, to)
    log = folder_of(to) / demo_agent.LOG
    for line in lines:
        demo_agent.append_line(log, json.dumps(line))
    return run(to, "--resume")


def start_of(played: Path, call: str) -> dict:
    return next(
        line
        for line in demo_agent.read_log(folder_of(played))
        if line["event"] == "start" and line["call"] == call
    )


def test_untouched_its_claims_hold_again(played, tmp_path):
    place, _ = played
    done = tampered(place, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "taken up again" in done.stdout


@pytest.mark.parametrize("call", ["s1-0", "s4-0"])
def test_a_second_start_in_the_log_breaks_a_claim(played, tmp_path, call):
    place, _ = played
    again = start_of(place, call) | {"time": time.time_ns() // 1000}
    done = tampered(place, tmp_path, again)
    assert done.returncode == 1
    assert "BROKEN" in done.stdout
    assert f"ran twice: {call}" in " ".join(done.stdout.split())


def test_a_second_start_of_a_writing_call_breaks_a_claim_also_before_the_call_ended(played, tmp_path):
    place, _ = played
    done = tampered(place, tmp_path, start_of(place, "s4-0"))
    assert done.returncode == 1
    assert "ran twice: s4-0" in " ".join(done.stdout.split())


def test_a_start_that_the_journal_does_not_know_breaks_a_claim(played, tmp_path):
    place, _ = played
    first = start_of(place, "s4-0")
    stranger = first | {"call": "s9-0", "key": first["key"].replace("s4-0", "s9-0")}
    assert tampered(place, tmp_path, stranger).returncode == 1


def test_a_second_line_in_the_ledger_breaks_a_claim(played, tmp_path):
    place, _ = played
    copy_of(place, tmp_path)
    ledger = folder_of(tmp_path) / demo_agent.LEDGER
    ledger.write_text(ledger.read_text() * 2)
    done = run(tmp_path, "--resume")
    assert done.returncode == 1
    assert "2 lines in ledger.csv" in done.stdout


def test_a_file_that_undo_did_not_bring_back_breaks_a_claim(played, tmp_path):
    place, _ = played
    folder = folder_of(copy_of(place, tmp_path))
    (folder / "sales-east.csv").rename(folder / "archive" / "sales-east.csv")
    done = run(tmp_path, "--resume")
    assert done.returncode == 1
    assert "still as the call left it" in " ".join(done.stdout.split())


def test_ctrl_c_leaves_it_resumable_and_says_how(tmp_path):
    with subprocess.Popen(
        demo(), cwd=tmp_path, start_new_session=True, stdout=subprocess.PIPE, text=True, env=WITHOUT_KEYS
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("process"):
                break
        time.sleep(0.3)
        os.killpg(process.pid, signal.SIGINT)
        told = process.stdout.read()
        assert process.wait(30) == 130
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
