"""`export` and `import`: tasks from one store to another."""

import io
import os
import runpy
import subprocess
import sys


def test_export_and_import_copy_tasks_between_stores(treadle, project):
    for name in ("task-one", "task-two"):
        assert treadle("run", "math", "1 + 2?", "--task-id", name).code == 0
    exported = treadle("export", "task-two", "--out", "tasks.jsonl", "--json")
    assert exported.document["tasks"] == ["task-two"]
    assert treadle("import", "tasks.jsonl", "--store", "other.db").out == "task-two\n"
    assert treadle("import", "tasks.jsonl", "--store", "other.db", "--json").document["known"] == ["task-two"]
    assert treadle("verify", "--store", "other.db").code == 0
    assert treadle("show", "task-two", "--store", "other.db").code == 0


def test_export_writes_to_a_pipe_and_import_reads_from_one(treadle, project, monkeypatch):
    treadle("run", "math", "1 + 2?", "--task-id", "task-one")
    exported = treadle("export").out
    assert exported.count('{"task":') == 1
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(exported.encode())))
    assert treadle("import", "-", "--store", "other.db").out == "task-one\n"


def test_a_file_that_was_changed_is_refused_with_its_line(treadle, project):
    treadle("run", "math", "1 + 2?", "--task-id", "task-one")
    file = project / "tasks.jsonl"
    treadle("export", "--out", str(file))
    file.write_text(file.read_text().replace('"state":"completed"', '"state":"completer"'))
    refused = treadle("import", str(file), "--store", "other.db")
    assert refused.code == 1
    assert "error: line " in refused.err
    assert treadle("tasks", "--store", "other.db", "--json").document["items"] == []


def test_an_export_with_json_needs_a_file(treadle, project):
    assert treadle("export", "--json").code == 2


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
    run = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(test)]
    env = {**os.environ, "PYTHONPATH": str(project)}
    done = subprocess.run(run, cwd=project, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout
    assert "tools.add.description" in done.stdout
    assert "recorded: Add two numbers." in done.stdout
    del sys.modules["team"]
    told = treadle("replay", str(recording), "--json")
    assert told.code == 1
    (drift,) = told.document["drifts"]
    assert (drift["kind"], drift["recorded"], drift["now"]) == ("tools", "Add two numbers.", "Sum up.")


def test_replay_refuses_what_it_cannot_do(treadle):
    assert treadle("run", "math", "1 + 2?").code == 0
    assert treadle("replay", "nothing-there").code == 2
    assert "not of" in treadle("replay", "last", "--agent", "steppy").err
