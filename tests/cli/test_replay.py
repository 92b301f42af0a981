"""`replay`: a recorded task as a regression test."""

import runpy
import sys

import pytest


def test_replay_writes_a_test_that_names_later_changes(treadle, project):
    assert treadle("run", "math", "1 + 2?").code == 0
    ended = treadle("replay", "last", "--out", "replays")
    assert ended.code == 0, ended.err
    assert "goes as it was recorded" in ended.out
    (test,) = (project / "replays").glob("test_replay_math_*.py")
    (recording,) = (project / "replays").glob("math_*.jsonl")
    assert treadle("replay", str(recording)).code == 0
    runpy.run_path(str(test))[test.stem]()  # raises nothing

    team = project / "team.py"
    team.write_text(team.read_text().replace('"""Add two numbers."""', '"""Sum up."""'))
    del sys.modules["team"]
    with pytest.raises(AssertionError, match=r"(?s)tools\.add\.description.*recorded: Add two numbers\."):
        runpy.run_path(str(test))[test.stem]()
    replayed = treadle("replay", str(recording), "--json")
    assert replayed.code == 1
    (drift,) = replayed.document["drifts"]
    assert (drift["kind"], drift["recorded"], drift["now"]) == ("tools", "Add two numbers.", "Sum up.")


def test_replay_refuses_unsupported_tasks_and_options(treadle):
    assert treadle("run", "math", "1 + 2?").code == 0
    assert treadle("replay", "nothing-there").code == 2
    assert "belongs to the agent 'math'" in treadle("replay", "last", "--agent", "steppy").err


def test_a_replay_without_its_agent_did_not_say_what_to_write(treadle, project):
    assert treadle("run", "math", "1 + 2?", "--task-id", "sum").code == 0
    (project / "pyproject.toml").write_text("")
    ended = treadle("replay", "last")
    assert ended.code == 2
    assert "the code of agent 'math'" in ended.err
    assert "`treadle replay last --agent MODULE:AGENT`" in ended.err
    assert treadle("replay", "last", "--agent", "team:math").code == 0
