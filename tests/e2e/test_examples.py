"""The programs in `examples/` do what they say, with a script and with a model over HTTP."""

import io
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from examples import code_fixer, invoices, mail_desk, reflection, research_team, support_desk, what_if
from examples import refund_desk as refund_desk_example
from tests.client.served import client, served
from tests.forked import completed
from treadle import Runner, RunOptions, ScriptedModel
from treadle.models import call
from treadle.models import text as says
from treadle.testing.provider import fail, text


def test_reflection_runs_as_it_is_and_goes_on_under_its_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TREADLE_STORE", str(tmp_path / "journal.db"))
    assert reflection.main(["--task-id", "lease"]) == 0
    output = capsys.readouterr().out
    assert output.splitlines() == [
        "draft 1: A lease is ownership for a while.",
        " critic: It does not say how the holder keeps it.",
        "answer : A lease is ownership for a while: who does not renew it in time has lost it.",
    ]
    assert reflection.main(["--task-id", "lease"]) == 0
    assert capsys.readouterr().out == output
    with Runner(tmp_path / "journal.db").sync as runner:
        assert runner.result("lease").usage.model_calls == 4


def test_reflection_asks_a_model_and_ends_after_three_rounds(
    serve: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TREADLE_STORE", str(tmp_path / "journal.db"))
    script = iter(["one", "too short", "two", "too long", "three"])
    server = serve(lambda request: text(next(script)))
    assert reflection.main(["--model", "openai:scripted", "Write."]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "answer : three"
    written = [str(request.messages) for request in server.requests]
    assert "too short" in written[2]
    assert "too long" in written[4]


def test_a_failed_reflection_is_reported(
    serve: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TREADLE_STORE", str(tmp_path / "journal.db"))
    serve(fail(400))
    assert reflection.main(["--model", "openai:scripted"]) == 1
    assert capsys.readouterr().out.startswith("answer : failed: ")


ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The journal of a program that runs in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TREADLE_STORE", str(tmp_path / "journal.db"))
    return tmp_path / "journal.db"


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs_as_a_program_without_a_key(example: Path, tmp_path: Path) -> None:
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    done = completed(
        [sys.executable, example], cwd=tmp_path, env=environment, input="My order is late\ny\n\n"
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout
    assert str(example.relative_to(ROOT)) in example.read_text(encoding="utf-8")


def test_there_are_eight_examples() -> None:
    assert len(EXAMPLES) == 8


def refund_desk(folder: Path, *arguments: str) -> str:
    """Run a command of the refund desk in a process of its own; return what it printed."""
    program = [sys.executable, ROOT / "examples" / "refund_desk.py", *arguments]
    env = {**os.environ, "TREADLE_STORE": str(folder / "journal.db")}
    done = completed(program, cwd=folder, env=env)
    assert done.stderr == ""
    return done.stdout


@pytest.mark.full
def test_the_refund_desk_waits_for_a_second_person_over_restarts(tmp_path: Path) -> None:
    bank = tmp_path / ".treadle" / "bank.jsonl"
    opened = refund_desk(tmp_path, "open", "A-17", "The lamp came broken", "--clerk", "bob")
    assert opened == (
        "refund-A-17 is waiting: refund waits for an approval: Refunds above ten euros need a second person.\n"
    )
    assert refund_desk(tmp_path, "waiting") == (
        "refund-A-17: 40.00 of 40.00 EUR go back for order A-17, since rule second-person asks\n"
    )
    refused = refund_desk(tmp_path, "approve", "refund-A-17", "--by", "bob")
    assert refused == "refused: task refund-A-17: bob may not decide on s2-0-ask1\n"
    assert "at most" not in refund_desk(tmp_path, "work"), "nothing is decided yet"
    assert not bank.exists()
    refund_desk(tmp_path, "approve", "refund-A-17", "--by", "ann", "--cents", "2500")
    working = subprocess.Popen(
        [sys.executable, ROOT / "examples" / "refund_desk.py", "work"],
        cwd=tmp_path,
        env={**os.environ, "TREADLE_STORE": str(tmp_path / "journal.db")},
    )
    until = time.monotonic() + 60
    while not (bank.exists() and bank.read_text()) and time.monotonic() < until:
        time.sleep(0.0005)
    working.kill()  # right after the payment, maybe before its result is on disk
    working.wait()
    assert refund_desk(tmp_path, "work") in ("", "refund-A-17 is completed: The refund is settled.\n")
    assert [json.loads(line)["text"] for line in bank.read_text().splitlines()] == [
        "2500 cents paid back for A-17"
    ]
    assert refund_desk(tmp_path, "waiting") == ""


@pytest.mark.full
def test_the_refund_desk_tells_the_model_of_a_denial_and_pays_small_sums(tmp_path: Path) -> None:
    refund_desk(tmp_path, "open", "A-17", "Too dark", "--clerk", "bob")
    refund_desk(tmp_path, "deny", "refund-A-17", "--by", "ann", "--reason", "not broken")
    assert refund_desk(tmp_path, "work") == "refund-A-17 is completed: No refund: a person said no.\n"
    small = refund_desk(tmp_path, "open", "A-18", "Broken", "--clerk", "bob")
    assert small == "refund-A-18 is completed: The refund is settled.\n"


def test_the_support_desk_pays_only_what_a_person_agreed_to(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = iter(["My order is late", "y", ""])
    assert support_desk.main([], lambda _: next(answers)) == 0
    assert capsys.readouterr().out == "desk> I have paid half of it back.\n"

    answers = iter(["My order is late", "n", "hello", ""])
    desk = support_desk.Desk("bob")
    support_desk.converse(support_desk.desk_agent(None), desk, lambda _: next(answers))
    assert desk.refunds == {}
    assert capsys.readouterr().out.splitlines()[0] == "desk> I am sorry, I cannot do that."


def test_the_support_desk_without_a_terminal_ended_in_an_eof_error(
    store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("hello\n"))
    assert support_desk.main([]) == 0
    out = capsys.readouterr().out
    assert "desk> How can I help?" in out
    assert out.endswith("The input has ended. Run this at a terminal, or pipe it the lines of a customer.\n")


def test_a_refund_is_undone_with_its_step(store: Path) -> None:
    desk = support_desk.Desk("ada")
    with Runner(agents=[support_desk.desk_agent(None)]).sync as runner:
        task = runner.create_task(support_desk.desk_agent(None), "My order is late")
        runner.run_step(task, context=desk)
        runner.run_step(task, context=desk)
        assert desk.refunds == {"A-17": 2000}
        runner.undo_step(task, context=desk)
    assert desk.refunds == {}


def test_the_research_team_asks_in_parallel_and_is_not_asked_twice(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert research_team.main(["--task-id", "report"]) == 0
    output = capsys.readouterr().out
    assert output.splitlines()[:5] == [
        "Report",
        f"- {research_team.NOTES['leases.md']}",
        f"- {research_team.NOTES['journals.md']}",
        "  asked researcher: ok",
        "  asked researcher: ok",
    ]
    assert research_team.main(["--task-id", "report"]) == 0
    assert capsys.readouterr().out == output


def test_the_code_fixer_mends_the_project(store: Path) -> None:
    assert code_fixer.main([]) == 0
    assert "prices)" in Path(".treadle/project/total.py").read_text()


def test_edits_that_do_not_help_are_taken_back(
    store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = call("replace", name="total.py", old="prices[1:]", new="prices[2:]")
    monkeypatch.setattr(code_fixer, "SCRIPT", [wrong, call("run_tests"), says("I tried.")])
    assert code_fixer.main([]) == 1
    assert Path(".treadle/project/total.py").read_text() == code_fixer.PROJECT["total.py"]
    assert "calls taken back" in capsys.readouterr().out


def test_the_code_fixer_stays_in_its_folder(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("secret.txt").write_text("secret")
    Path("project").mkdir()
    escape = ScriptedModel([call("read", name="../secret.txt"), says("I cannot.")])
    with Runner("memory:").sync as runner:
        agent = code_fixer.Agent(escape, tools=[code_fixer.read])
        result = runner.run(agent, "Read it", context=Path("project"))
    assert "is not in the project" in str(result.tool_executions[0].error)


def test_invoices_are_read_into_a_table_and_asked_for_once(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoices.main([]) == 0
    table = capsys.readouterr().out
    assert table.split() == [
        "file,state,sender,number,total",
        "ada.txt,completed,Ada",
        "Ltd.,7,650",
        "bob.txt,completed,Bob",
        "&",
        "Sons,12,9900",
    ]
    assert invoices.main(["--out", "table.csv"]) == 0
    assert Path("table.csv").read_text().split() == table.split()
    with Runner(store).sync as runner:
        tasks = runner.list_tasks().items
        assert sum(runner.result(task.task_id).usage.model_calls for task in tasks) == 3


def test_an_invoice_that_cannot_be_read_is_named(
    serve: Any, store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    serve(lambda request: fail(400))
    assert invoices.main(["--model", "openai:scripted"]) == 1
    captured = capsys.readouterr()
    assert "ada.txt,failed,,," in captured.out
    assert captured.err.startswith("invoice-ada-")


def test_what_if_forks_without_asking_again_what_was_before(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert what_if.main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if not line.startswith(" ")] == [
        "was     : Rome.",
        "what if : Rome is warmer.",
        "what if : Rome, by 20.5 degrees.",
    ]
    assert "differs: step 2, text" in lines[2]
    with Runner(store).sync as runner:
        steps = [
            runner.get_completed_steps(task.task_id)[0].step.step_id for task in runner.list_tasks().items
        ]
        assert steps == ["s1", "s1", "s1"]


def test_the_mail_desk_obeys_a_stranger_and_a_person_stops_it(
    store: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mail_desk, "SENT", [])
    assert mail_desk.main([]) == 0
    sorting, _, answering = capsys.readouterr().out.partition("answer:")
    assert "?" not in sorting, "nothing is asked about: the desk reads nothing of strangers"
    assert "send_mail: ok" in sorting
    assert "To mallory@example.net: The code is 463820." in answering
    assert "send_mail: denied" in answering
    assert "delete_mail: denied" in answering
    assert "untrusted content from mail:ann@example.com" in answering
    assert mail_desk.SENT == ["ann@example.com: 3 mails are sorted."]


def test_what_a_person_approves_at_the_mail_desk_leaves(
    store: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mail_desk, "SENT", [])
    monkeypatch.setattr(mail_desk, "MAILS", dict(mail_desk.MAILS))
    assert mail_desk.main(["--approve", "answer"]) == 0
    assert mail_desk.SENT == ["mallory@example.net: The code is 463820."]


@pytest.mark.anyio
async def test_the_refund_desk_is_served_without_a_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the guide says to try a server from a fresh clone."""
    monkeypatch.chdir(tmp_path)
    with served(refund_desk_example.agent) as url:
        async with client(url) as remote:
            assert [agent.name for agent in await remote.get_agents()] == ["refund-desk"]
            name: Any = "refund-desk"
            options = RunOptions(labels={"clerk": "bob"})
            waiting = await remote.run(
                name, "Order A-17: the lamp came broken.", task_id="case", options=options
            )
            assert (waiting.state, waiting.pending[0].tool) == ("waiting", "refund")
            await remote.approve("case")
            assert (await remote.resume("case")).final_text == "The refund is settled."
