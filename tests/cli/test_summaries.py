"""`usage` and `agents`."""

from typing import Any

import pytest


def test_usage_sums_up_what_tasks_spent(treadle: Any) -> None:
    for number in range(2):
        treadle("run", "math", f"{number}")
    treadle("step", "steppy", "hi")
    report = treadle("usage", "--json").document
    assert (report["by"], {line["key"]: line["tasks"] for line in report["lines"]}) == (
        "agent",
        {"math": 2, "steppy": 1},
    )
    lines = [line.split("\t") for line in treadle("usage").out.splitlines()]
    assert [line[:2] for line in lines] == [["math", "2"], ["steppy", "1"], ["total", "3"]]
    assert treadle("usage", "--agent", "math", "--json").document["total"]["tasks"] == 2
    assert treadle("usage", "--until", "1h", "--json").document["total"]["tasks"] == 0
    assert treadle("usage", "--label", "team=blue", "--json").document["lines"] == []
    (day,) = treadle("usage", "--by", "day", "--json").document["lines"]
    assert day["key"].startswith("20")
    (rest,) = treadle("usage", "--by", "label:team", "--json").document["lines"]
    assert rest["key"] is None


@pytest.mark.parametrize(
    ("options", "sentence"),
    [(("--by", "month"), "by must be"), (("--since", "soon"), "--since takes a time")],
)
def test_a_wrong_option_of_usage_is_named(treadle: Any, options: tuple[str, ...], sentence: str) -> None:
    treadle("run", "math", "1")
    ended = treadle("usage", *options)
    assert (ended.code, sentence in ended.err) == (2, True), ended.err


def test_agents_lists_what_the_project_lists_without_a_store(treadle: Any, project: Any) -> None:
    items = {item["name"]: item for item in treadle("agents", "--json").document["items"]}
    assert [tool["name"] for tool in items["math"]["tools"]] == ["add"]
    assert list(items) == sorted(items)
    rows = {line.split("\t")[0]: line.split("\t")[1:] for line in treadle("agents").out.splitlines()}
    assert rows["math"][1] == "add"
    assert not (project / ".treadle").exists(), "nothing was created"
    unknown = treadle("agents", "maths")
    assert unknown.code == 2
    assert "there is no agent 'maths'; the agents are: " in unknown.err


def test_a_place_of_agents_that_cannot_be_imported_is_named_beside_the_others(
    treadle: Any, project: Any
) -> None:
    (project / "pyproject.toml").write_text('[tool.treadle]\nagents = ["team:math", "absent:agent"]\n')
    listed = treadle("agents", "--json")
    assert [item["name"] for item in listed.document["items"]] == ["math"]
    assert "absent:agent" in listed.err
