"""`verify`, `export` and `import`."""

import io
import sys

import apsw


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


def test_verify_names_the_damaged_task_and_exits_1(treadle, project):
    treadle("run", "math", "1 + 2?", "--task-id", "good")
    treadle("run", "math", "1 + 2?", "--task-id", "bad")
    assert treadle("verify").code == 0
    connection = apsw.Connection(str(project / ".treadle" / "journal.db"))
    connection.set_busy_timeout(30_000)
    (task,) = connection.execute("SELECT id FROM tasks WHERE key = 'bad'").fetchone()
    changed = "CAST(replace(data, 'It is', 'It was') AS BLOB)"
    sql = f"UPDATE records SET data = {changed} WHERE task = ? AND instr(data, 'It is')"
    try:
        connection.execute(sql, (task,))
    finally:
        connection.close()
    ended = treadle("verify")
    assert ended.code == 1
    assert "bad at event" in ended.out
    assert "1 of 2 tasks whole" in ended.out
    assert treadle("verify", "good").code == 0
    items = treadle("verify", "--json").document["items"]
    assert {item["task_id"]: not item["findings"] for item in items} == {"good": True, "bad": False}
    assert treadle("tasks").code == 0


def test_commands_work_in_the_tenant_that_they_name(treadle, project):
    for tenant in ("acme", "bolt"):
        run = treadle("run", "math", "1 + 2?", "--task-id", "t", "--tenant", tenant)
        assert run.code == 0
    assert treadle("tasks", "--json").document["items"] == []
    (item,) = treadle("tasks", "--tenant", "acme", "--json").document["items"]
    assert (item["task_id"], item["tenant"]) == ("t", "acme")
    assert treadle("show", "t").code != 0
    assert treadle("show", "t", "--tenant", "acme").code == 0
    stopped = treadle("step", "math", "1 + 2?", "--tenant", "acme")
    assert "--tenant acme" in stopped.out + stopped.err, "what is to be typed next is in the tenant, too"
    assert treadle("export", "--tenant", "acme", "--out", "acme.jsonl", "--json").document["tasks"][0] == "t"
    assert treadle("import", "acme.jsonl", "--store", "other.db", "--tenant", "bolt").code == 0
    assert treadle("verify", "t", "--store", "other.db", "--tenant", "bolt").code == 0


def test_a_tenant_that_cannot_be_is_refused_and_what_concerns_all_takes_none(treadle, project):
    treadle("run", "math", "1 + 2?")
    refused = treadle("tasks", "--tenant", "it's")
    assert refused.code == 2
    assert "tenant must hold printable characters" in refused.err
    assert treadle("doctor", "--tenant", "acme").code == 2
