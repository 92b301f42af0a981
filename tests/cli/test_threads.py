"""`threads` and `prune`: conversations as a whole."""

import json

import apsw


def test_threads_are_listed_shown_compacted_imported_and_deleted(treadle, tmp_path):
    for message in ("1 + 2?", "1 + 2?", "1 + 2?"):
        treadle(
            "run",
            "math",
            message,
            "--thread",
            "ada",
            "--on-busy-thread",
            "reject",
            "--context-tokens",
            "4000",
        )
    (item,) = treadle("threads", "list", "--json").document["items"]
    assert item == {"thread_id": "ada", "turns": 3, "version": 3}
    assert treadle("threads", "list").out == "ada\t3\t3\n"
    shown = treadle("threads", "show", "ada").out.splitlines()
    assert shown[0] == "user: 1 + 2?"
    items = treadle("threads", "show", "ada", "--json").document["items"]
    report = treadle("threads", "compact", "ada", "--keep", "1", "--json")
    assert report.code in (0, 1)
    assert report.document["messages_before"] == len(items)
    assert treadle("threads", "show", "ada", "--json").document["items"] == items
    file = tmp_path / "words.json"
    file.write_text(json.dumps([{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]))
    assert treadle("threads", "import", "bob", str(file)).code == 0
    assert treadle("threads", "show", "bob").out == "user: x\nassistant: y\n"
    file.write_text("[{}]")
    assert treadle("threads", "import", "bob", str(file)).code == 2
    assert treadle("threads", "delete", "bob").code == 0
    missing = treadle("threads", "show", "bob", "--json")
    assert (missing.code, missing.document["error"]["type"]) == (2, "urn:treadle:error:ThreadNotFound")


def test_prune_reports_what_it_would_delete_and_deletes_it(treadle):
    treadle("run", "math", "1 + 2?", "--thread", "ada")
    assert treadle("prune", "1h", "--json").document == {"threads": [], "tasks": []}
    assert treadle("prune", "0s", "--label", "a=b", "--dry-run", "--json").document["tasks"] == []
    would = treadle("prune", "0s", "--dry-run", "--json").document
    assert would["threads"] == ["ada"]
    assert treadle("prune", "0s", "--state", "failed", "--json").document["tasks"] == []
    assert treadle("prune", "0s", "--json").document == would
    assert treadle("tasks").out == ""
    assert treadle("prune", "soon").code == 2


def test_a_thread_is_shown_without_its_damaged_turn_which_is_reported(treadle):
    for task in ("one", "two"):
        treadle("run", "math", "1 + 2?", "--thread", "ada", "--task-id", task)
    connection = apsw.Connection(".treadle/journal.db")
    connection.set_busy_timeout(30_000)
    first = "SELECT min(pos) FROM records JOIN tasks ON tasks.id = task WHERE key = 'one'"
    connection.execute(f"UPDATE records SET data = x'00' WHERE pos = ({first})")
    connection.close()
    shown = treadle("threads", "show", "ada")
    assert shown.out.count("user: 1 + 2?") == 1
    assert "left out, since it cannot be read: task one" in shown.err
    document = treadle("threads", "show", "ada", "--json").document
    assert [turn["task_id"] for turn in document["damaged"]] == ["one"]
    assert treadle("verify").code == 1
