"""The programs in `examples/` do what they say, with a script and with a model over HTTP."""

from pathlib import Path
from typing import Any

import pytest

from examples import reflection
from treadle import Runner
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
