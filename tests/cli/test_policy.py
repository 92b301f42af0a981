"""`policy`: what a file says, and what it would have said of recorded tasks."""

POLICY = """
[[rule]]
id = "big-sums"
tool = "add"
when = { "arguments.a" = { at_least = 3 } }
verdict = "ask"
reason = "Big sums need a person."

[[rule]]
id = "cap"
tool = "pay"
when = { "arguments.amount" = { above = 1 } }
verdict = "replace"
arguments = { amount = 1 }

[[rule]]
id = "never"
tool = "pay_*"
verdict = "deny"
"""


def test_a_policy_is_tested_on_recorded_tasks(treadle, project):
    (project / "policy.toml").write_text(POLICY)
    for agent in ("steppy", "payer", "math"):
        assert treadle("run", agent, "go").code == 0
    ended = treadle("policy", "test", "policy.toml")
    assert ended.code == 0, ended.err
    assert (
        "as arguments.a is at least 3 (3): Big sums need a person; the model has read untrusted content from"
        in ended.out
    )
    assert 'becomes {"amount": 1}' in ended.out
    assert "3 tasks, 4 effects: 1 asked about, 1 changed, 2 not concerned" in ended.out
    assert "rules that met nothing: never" in ended.out
    assert (project / "ledger").read_text() == "pay 5\n", "nothing ran again"


def test_a_report_as_json_has_every_effect_that_a_rule_stops(treadle, project):
    (project / "policy.toml").write_text(POLICY)
    assert treadle("run", "payer", "go").code == 0
    report = treadle("policy", "test", "policy.toml", "--json").document
    (item,) = report["items"]
    assert (report["tasks"], report["effects"], report["counts"]["replace"]) == (1, 1, 1)
    assert report["unused_rules"] == ["big-sums", "never"]
    assert item["task_id"].endswith(treadle("tasks", "--json").document["items"][0]["task_id"])
    assert {name: item[name] for name in ("step", "call", "kind", "name", "verdict", "rule")} == {
        "step": "s1",
        "call": "s1-0",
        "kind": "tool",
        "name": "pay",
        "verdict": "replace",
        "rule": "cap",
    }
    assert (item["arguments"], item["replaced"]) == ({"amount": 5}, {"amount": 1})


def test_the_tasks_of_a_test_are_named_or_meant_by_options(treadle, project):
    (project / "policy.toml").write_text(POLICY)
    for agent in ("steppy", "payer"):
        assert treadle("run", agent, "go").code == 0
    assert treadle("policy", "test", "policy.toml", "--task", "last", "--json").document["effects"] == 1
    assert treadle("policy", "test", "policy.toml", "--limit", "1", "--json").document["tasks"] == 1
    assert treadle("policy", "test", "policy.toml", "--state", "failed", "--json").document["tasks"] == 0
    refused = treadle("policy", "test", "policy.toml", "--task", "last", "--state", "failed")
    assert (refused.code, "not both" in refused.err) == (2, True)


def test_without_the_code_of_an_agent_a_report_says_what_it_lacks(treadle, project):
    (project / "policy.toml").write_text('default = "strict"')
    assert treadle("run", "math", "go").code == 0
    (project / "pyproject.toml").write_text("")
    ended = treadle("policy", "test", "policy.toml", "--all")
    assert "the declarations of the tools of math are not known" in ended.err
    assert "allow" in ended.out, "the journal tells that add only reads"
    assert treadle("policy", "test", "policy.toml", "--agent", "team:math").err == ""
    (project / "policy.toml").write_text(POLICY)
    told = treadle("policy", "test", "policy.toml", "--agent", "team:math").err
    assert "rule cap: no tool is called 'pay'" in told


def test_mistakes_in_a_file_are_told_before_any_task_is_read(treadle, project):
    (project / "policy.toml").write_text(POLICY.replace("at_least", "atleast").replace('"never"', '"never "'))
    for command in ("test", "show"):
        ended = treadle("policy", command, "policy.toml")
        assert ended.code == 2
        assert "policy policy.toml has 2 mistakes:" in ended.err
        assert (
            "line 2: rule 'big-sums': when: 'arguments.a' has no comparison 'atleast': did you mean"
            in ended.err
        )
    assert treadle("policy", "test", "gone.toml").code == 2


def test_a_policy_is_shown_by_force(treadle, project):
    (project / "policy.toml").write_text(POLICY)
    ended = treadle("policy", "show", "policy.toml")
    assert [line.split()[:2] for line in ended.out.splitlines()[1:]] == [
        ["deny", "never"],
        ["replace", "cap"],
        ["ask", "big-sums"],
        ["default", "allow"],
    ]
    document = treadle("policy", "show", "policy.toml", "--json").document
    assert [rule["id"] for rule in document["rules"]] == ["big-sums", "cap", "never"]


def test_a_project_lists_the_policy_of_all_commands_that_drive(treadle, project):
    (project / "rules").mkdir()
    (project / "rules" / "policy.toml").write_text(POLICY.replace("pay_*", "pay"))
    settings = project / "pyproject.toml"
    settings.write_text(settings.read_text() + 'policy = "rules/policy.toml"\n')
    ended = treadle("run", "payer", "go")
    assert ended.code == 0
    assert "pay (s1-0) not allowed" in ended.out
    assert ".." not in ended.out
    assert "by rule never" in ended.out
    assert not (project / "ledger").exists()
    assert "by rule never" in treadle("show", "last").out
    (project / "other.toml").write_text("")
    assert treadle("run", "payer", "go", "--policy", "other.toml").code == 0
    assert (project / "ledger").read_text() == "pay 5\n"


def test_a_request_to_a_model_that_is_asked_about_is_told_with_the_commands_that_decide(treadle, project):
    (project / "ask.toml").write_text(
        '[[rule]]\nid = "dear"\nmodel = "*"\nverdict = "ask"\nreason = "It is dear."\n'
    )
    ended = treadle("run", "payer", "go", "--policy", "ask.toml")
    assert ended.code == 5
    assert "a request to scripted waits for a person" in ended.out
    assert "It is dear." in ended.out
    assert "--policy ask.toml" in ended.out, "the command that goes on names the policy"
    assert treadle("resume", "last", "--policy", "ask.toml").code == 5, (
        "its second request is asked about too"
    )
    resumed = treadle("resume", "last", "--policy", "ask.toml")
    assert (resumed.code, (project / "ledger").read_text()) == (0, "pay 5\n")


def test_a_policy_that_is_wrong_starts_no_task(treadle, project):
    settings = project / "pyproject.toml"
    settings.write_text(settings.read_text() + "policy = 5\n")
    refused = treadle("run", "payer", "go")
    assert (refused.code, "policy must be the path of a file" in refused.err) == (2, True)
    assert treadle("run", "payer", "go", "--policy", "gone.toml").code == 2
    assert treadle("tasks").code == 2, "there is no store yet"


def test_doctor_checks_the_policy_of_the_project(treadle, project):
    settings = project / "pyproject.toml"
    settings.write_text(settings.read_text() + 'policy = "policy.toml"\n')
    (project / "policy.toml").write_text(POLICY.replace("arguments.a", "arguments.amount"))
    ended = treadle("doctor")
    assert "3 rules, default allow" in ended.out
    assert "rule big-sums: no tool that it is about has an argument 'amount'" in ended.out
    assert treadle("doctor", "--json").document["policy"] == "3 rules, default allow"
    (project / "policy.toml").write_text(POLICY.replace('"ask"', '"aks"'))
    ended = treadle("doctor")
    assert (ended.code, "did you mean 'ask'?" in ended.out) == (1, True)


def test_the_policy_of_the_project_is_shown_and_tested_without_its_file(treadle, project, monkeypatch):
    missing = treadle("policy", "show")
    assert missing.code == 2
    assert "there is no policy to show: name its file, set policy under [tool.treadle]" in missing.err
    (project / "policy.toml").write_text(POLICY)
    with (project / "pyproject.toml").open("a") as file:
        file.write('policy = "policy.toml"\n')
    assert treadle("run", "math", "go").code == 0
    for command in (("policy", "show"), ("policy", "test")):
        ended = treadle(*command)
        assert (ended.code, ended.out) == (0, treadle(*command, "policy.toml").out), ended.err
    (project / "other.toml").write_text('default = "deny"\n')
    monkeypatch.setenv("TREADLE_POLICY", "other.toml")
    assert "big-sums" in treadle("policy", "show").out, "that of the project counts"


def test_an_agent_of_a_policy_test_was_refused_by_its_name(treadle, project):
    (project / "policy.toml").write_text(POLICY)
    assert treadle("run", "math", "go").code == 0
    by_name = treadle("policy", "test", "policy.toml", "--agent", "math")
    assert (by_name.code, by_name.out) == (
        0,
        treadle("policy", "test", "policy.toml", "--agent", "team:math").out,
    ), by_name.err
    unknown = treadle("policy", "test", "policy.toml", "--agent", "meth")
    assert (unknown.code, "no agent is called 'meth': did you mean 'math'?" in unknown.err) == (2, True)
