"""The demonstration: it ends well, its claims fail when the evidence does, and it touches only its folder."""

import json
import os
import pty
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from tests.cli.demonstration import WITHOUT_KEYS, check, demo, folder_of, run
from tests.forked import Forked
from treadle.cli import demo_agent
from treadle.cli.demo import _is_unfinished, play
from treadle.testing.ledger import Ledger, LedgerLine, append_line
from treadle.testing.provider import ProviderRequest, ProviderServer, call, text, turn

pytestmark = pytest.mark.sampled(10)


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, "subprocess.CompletedProcess[str]"]:
    directory = tmp_path_factory.mktemp("demo")
    return directory, run(directory, "--resume")


Resume = Callable[[], tuple[int, str]]


@pytest.fixture
def again(played, tmp_path, monkeypatch, capsys) -> Resume:
    """Go on with a copy of a played demonstration that was not closed yet; return exit code and output."""
    directory, _ = played
    shutil.copytree(directory / ".treadle", tmp_path / ".treadle")
    log = log_in(tmp_path)
    log.write_text("".join(line for line in log.read_text().splitlines(True) if '"verified"' not in line))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TREADLE_STORE", raising=False)

    def go_on() -> tuple[int, str]:
        code = play(resume=True)
        printed = capsys.readouterr()
        assert printed.err == ""
        return code, " ".join(printed.out.split())

    return go_on


def log_in(directory: Path) -> Path:
    return folder_of(directory) / demo_agent.LOG


def append(directory: Path, line: LedgerLine) -> None:
    append_line(log_in(directory), json.dumps(asdict(line)))


def start_of(directory: Path, call: str) -> LedgerLine:
    lines = Ledger(log_in(directory)).entries()
    return next(line for line in lines if line.kind == "start" and line.call == call)


def broken_claims(output: str) -> list[str]:
    return [claim.split(" holds ")[0] for claim in output.split(" BROKEN ")[1:]]


def test_it_ends_well_and_what_it_claims_is_true(played):
    directory, done = played
    assert (done.returncode, done.stderr) == (0, "")
    assert "BROKEN" not in done.stdout
    assert done.stdout.count("  holds   ") > 10
    check(directory)


def test_it_says_that_the_model_is_scripted_and_that_a_process_was_killed(played):
    _, done = played
    assert "The model is SCRIPTED" in done.stdout
    assert "exit status -9, SIGKILL" in done.stdout


def test_it_fits_in_eighty_columns_and_has_no_control_codes_when_piped(played):
    _, done = played
    lines = done.stdout.split("Look further")[0].splitlines()
    assert all(len(line) <= 80 for line in lines if not line.startswith("  journal"))
    assert "\x1b" not in done.stdout


def test_without_an_unfinished_one_resume_says_so_and_starts_one(played):
    _, done = played
    assert done.stdout.startswith("There is no demonstration to go on with")


def test_one_that_ended_is_not_taken_up_again(played):
    directory, _ = played
    assert Ledger(log_in(directory)).entries()[-1].tool == demo_agent.VERIFIED


def test_untouched_its_claims_hold_again(again):
    code, output = again()
    assert code == 0
    assert "taken up again" in output
    assert "BROKEN" not in output


@pytest.mark.parametrize("call", ["s1-0", "s4-0"])
def test_a_start_in_the_log_after_a_call_ended_breaks_a_claim(again, tmp_path, call):
    append(tmp_path, replace(start_of(tmp_path, call), time=time.time_ns() // 1000))
    code, output = again()
    assert code == 1
    assert f"ran twice; {call} started after its end" in output


def test_a_second_start_of_a_writing_call_breaks_a_claim_also_before_the_call_ended(again, tmp_path):
    append(tmp_path, start_of(tmp_path, "s4-0"))
    code, output = again()
    assert code == 1
    assert "ran twice; s4-0 started 2 times, allowed were 1" in output


@pytest.mark.parametrize("call", ["s1-0", "s4-0"])
def test_a_start_that_the_journal_does_not_hold_breaks_a_claim(again, tmp_path, call):
    first = start_of(tmp_path, call)
    append(tmp_path, replace(first, call="s9-0", key=first.key.replace(call, "s9-0")))
    code, output = again()
    assert code == 1
    assert "ran twice; s9-0 is not in the journal" in output


def test_a_call_missing_from_the_log_breaks_a_claim(again, tmp_path):
    log = log_in(tmp_path)
    log.write_text("".join(line for line in log.read_text().splitlines(True) if '"call": "s3-0"' not in line))
    code, output = again()
    assert code == 1
    assert "s3-0 is not in the log" in output


def test_a_compensation_that_ran_twice_breaks_a_claim(again, tmp_path):
    append(tmp_path, start_of(tmp_path, "s5-0-undo"))
    code, output = again()
    assert code == 1
    assert "s5-0-undo started 2 times, allowed were 1" in output


def test_a_second_line_in_the_books_breaks_a_claim(again, tmp_path):
    books = folder_of(tmp_path) / demo_agent.BOOKS
    books.write_text(books.read_text() * 2)
    code, output = again()
    assert code == 1
    assert len(broken_claims(output)) == 2
    assert all("1 booking in the journal, 2 lines in ledger.csv" in claim for claim in broken_claims(output))


def test_a_file_that_undo_did_not_bring_back_breaks_a_claim(again, tmp_path):
    folder = folder_of(tmp_path)
    (folder / "sales-east.csv").rename(folder / "archive" / "sales-east.csv")
    code, output = again()
    assert code == 1
    assert "still as the call left it" in output
    assert len(broken_claims(output)) == 1


def test_a_fork_that_started_what_it_shares_breaks_a_claim(again, tmp_path):
    lines = Ledger(log_in(tmp_path)).entries()
    task = next(line.task for line in lines if line.tool == demo_agent.KILLED)
    start = next(line for line in lines if line.kind == "start" and line.task != task)
    append(tmp_path, replace(start, call="s2-0", key=f"{start.task}/s2-0"))
    code, output = again()
    assert code == 1
    assert "the fork started 1 of them again" in output


def test_without_a_killed_process_the_claim_of_the_crash_is_broken(again, tmp_path):
    log = log_in(tmp_path)
    log.write_text("".join(line for line in log.read_text().splitlines(True) if '"kill"' not in line))
    code, output = again()
    assert code == 1
    assert "a process died inside a writing call" in broken_claims(output)[0]


def test_a_demonstration_with_a_log_of_an_older_version_is_not_taken_up_again(tmp_path):
    log = tmp_path / demo_agent.LOG
    log.write_text("")
    assert _is_unfinished(tmp_path)
    old = json.dumps({"event": "start", "key": "k", "call": "s1-0", "tool": "list_files", "pid": 1})
    log.write_text(old + "\n")
    assert not _is_unfinished(tmp_path)


def test_ctrl_c_leaves_it_resumable_and_says_how(tmp_path):
    process = Forked(
        demo(), cwd=tmp_path, start_new_session=True, stdout=subprocess.PIPE, text=True, env=WITHOUT_KEYS
    )
    with process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("process"):
                break
        time.sleep(0.3)
        os.killpg(process.pid, signal.SIGINT)
        output = process.stdout.read()
        assert process.wait(30) == 6
    assert "treadle demo --resume" in output
    done = run(tmp_path, "--resume")
    assert (done.returncode, done.stderr) == (0, "")
    check(tmp_path)


def test_on_a_terminal_it_offers_a_model_at_hand_and_takes_its_time(tmp_path):
    controller, terminal = pty.openpty()
    env = {**os.environ, "OPENAI_API_KEY": "none", "TERM": "xterm", "COLUMNS": "80"}
    process = Forked(
        demo(),
        cwd=tmp_path,
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        env=env,
        start_new_session=True,
    )
    os.close(terminal)
    output = b""
    while b"costs money" not in output and b"money?" not in output and b"[y/n]" not in output:
        output += os.read(controller, 1000)
    os.write(controller, b"n\n")
    while b"SCRIPTED" not in output:
        output += os.read(controller, 1000)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(10)
    os.close(controller)
    assert b"Use openai:" in output


def test_an_unknown_model_is_refused_before_anything_begins(treadle, project):
    ended = treadle("demo", "--model", "unheard-of:nothing")
    assert ended.code == 2
    assert "unheard-of" in ended.err
    assert not (project / ".treadle").exists()


@pytest.mark.parametrize("path", ["/etc/passwd", "../x.md", "demo-00000000/../../x.md", "journal.db", ""])
def test_its_tools_refuse_every_path_outside_of_its_folder(path):
    with pytest.raises(ValueError, match="not in a demonstration's folder"):
        demo_agent.place(path)


def another_way(request: ProviderRequest) -> object:
    """Answer unlike the script: other steps, two writing calls at once, and a call that fails."""
    message = [str(message["content"]) for message in request.messages if message["role"] == "user"][-1]
    folder = re.findall(r"demo-[0-9a-f]{8}", message)[0]
    if "Change of plan" in message:
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
        completed = subprocess.run(
            demo("--model", "openai:gpt-test"),
            cwd=tmp_path,
            env=env,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert (completed.returncode, completed.stderr) == (0, ""), completed.stdout
    assert "The model is openai:gpt-test" in completed.stdout
    assert "exit status -9" in completed.stdout
    assert "BROKEN" not in completed.stdout
    folder = folder_of(tmp_path)
    assert (folder / "ledger.csv").read_text().count("\n") == 1
    assert (folder / "sales-north.csv").exists()
