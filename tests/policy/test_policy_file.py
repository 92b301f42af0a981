"""Policies as files: what they hold, and every mistake with its line, its rule and its field."""

from pathlib import Path

import pytest

from tests.policy.requests import a_call
from treadle import Allow, AskPerson, Deny, EffectRequest, Policy, Rule
from treadle.errors import ConfigurationError

GOOD = """
default = "ask"
deadline = 2.5

[[rule]]
id = "look"
tool = ["look_*", "search"]
verdict = "allow"

[[rule]]
id = "big-refunds"
tool = "refund"
when = { "arguments.amount" = { above = 100, at_most = 1000 }, "labels.tier" = "gold" }
verdict = "ask"
reason = "Refunds above 100 dollars need a person."
expires = 3600
approvers = ["ann"]

[[rule]]
id = "no-shell"
tool = "bash"
verdict = "deny"

[rule.when."arguments.command"]
contains = ["rm ", "sudo"]
"""


@pytest.fixture
def written(tmp_path: Path):
    def write(text: str) -> Path:
        path = tmp_path / "policy.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_a_file_holds_rules_and_the_default(written):
    policy = Policy.from_file(written(GOOD))
    assert (policy.default, policy.deadline) == ("ask", 2.5)
    assert policy.rules == (
        Rule("look", "allow", tool=["look_*", "search"]),
        Rule(
            "big-refunds",
            "ask",
            tool="refund",
            when={"arguments.amount": {"above": 100, "at_most": 1000}, "labels.tier": "gold"},
            reason="Refunds above 100 dollars need a person.",
            expires=3600,
            approvers=["ann"],
        ),
        Rule("no-shell", "deny", tool="bash", when={"arguments.command": {"contains": ["rm ", "sudo"]}}),
    )
    assert policy.judge(a_call("search")) == Allow("look")
    assert isinstance(policy.judge(a_call("bash", command="sudo ls")), Deny)
    assert isinstance(policy.judge(a_call("bash", command="ls")), AskPerson), "by default"


def test_an_empty_file_is_a_policy_without_rules(written):
    assert Policy.from_file(written("")).rules == ()


def test_functions_stand_beside_the_rules_of_a_file(written):
    def check(request: EffectRequest) -> None:
        return None

    assert [rule.id for rule in Policy.from_file(written(GOOD), check).rules][-1] == "check"
    with pytest.raises(ConfigurationError, match="two rules have the id 'look'"):
        Policy.from_file(written(GOOD), Rule("look", "deny"))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[[rule]\nid = "a"', "is not valid TOML: "),
        ('default = "denny"', "default must be one of allow, ask, deny, strict, got 'denny'; did you mean 'deny'?"),
        ("deadline = 0", "deadline must be a number of seconds above 0"),
        ('defaults = "deny"', "the file: has no field 'defaults': did you mean 'default'?"),
        ('[[rules]]\nid = "a"', "the file: has no field 'rules': did you mean 'rule'?"),
        ('[rule]\nid = "a"', "rules are written as [[rule]], with two brackets"),
        ('[[rule]]\nverdict = "deny"', "line 1: a rule without id: id: is missing"),
        ('\n\n[[rule]]\nid = "a"', "line 3: rule 'a': verdict: is missing"),
        ('[[rule]]\nid = "a"\nverdict = "dney"', "line 1: rule 'a': verdict: must be one of"),
        ('[[rule]]\nid = "a"\nverdict = "deny"\ntols = "x"', "rule 'a': has no field 'tols': did you mean 'tool'?"),
        ('[[rule]]\nid = "a"\naction = "deny"', "rule 'a': has no field 'action': did you mean 'verdict'?"),
        ('[[rule]]\nid = "a"\nverdict = "deny"\ncondition = 1', "did you mean 'when'?"),
        ('[[rule]]\nid = "a"\nverdict = "deny"\nwhen = {cost = {gt = 1}}', "rule 'a': when: 'cost' has no"),
        ('[[rule]]\nid = "a"\nverdict = "deny"\nwhen = {cost = {above = 2026-01-01}}', "above takes a number"),
        ('[[rule]]\nid = "a"\nverdict = "ask"\n[rule.when.arguments.x]\nabove = 5', '"arguments.x", in quotes'),
        ('[[rule]]\nid = "a"\nverdict = "replace"\narguments = {x = 1979-05-27}', "arguments: 'x' must be JSON data"),
        ('[[rule]]\nid = "a"\nverdict = "deny"\n[[rule]]\nid = "a"\nverdict = "ask"',
         "line 4: rule 'a': id: the rule of line 1 has it too"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_with_its_place(written, text: str, says: str):
    path = written(text)
    with pytest.raises(ConfigurationError) as raised:
        Policy.from_file(path)
    assert f"policy {path}" in str(raised.value)
    assert says in str(raised.value)


def test_all_mistakes_of_a_file_are_told_at_once(written):
    first = '[[rule]]\nid = "a"\nverdict = "dny"\nexpire = 5\n\n'
    text = f'deny = 1\n{first}[[rule]]\nid = "b"\nverdict = "ask"\ntool = 5\n'
    with pytest.raises(ConfigurationError) as raised:
        Policy.from_file(written(text))
    lines = str(raised.value).splitlines()
    assert lines[0].endswith("has 4 mistakes:")
    assert [line.split(":")[0].strip() for line in lines[1:]] == ["the file", "line 2", "line 2", "line 7"]


def test_a_file_that_is_not_there_or_no_text_is_told(tmp_path: Path):
    with pytest.raises(ConfigurationError, match=r"policy .*gone\.toml cannot be read: No such file"):
        Policy.from_file(tmp_path / "gone.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigurationError, match="is not valid TOML"):
        Policy.from_file(tmp_path / "bytes.toml")


def test_rules_in_a_text_of_several_lines_are_not_counted_as_rules(written):
    text = '[[rule]]\nid = "a"\nverdict = "deny"\nreason = """\n[[rule]]\n"""\n[[rule]]\nid = "b"\n'
    with pytest.raises(ConfigurationError, match=r"\[\[rule\]\] number 2: rule 'b': verdict: is missing"):
        Policy.from_file(written(text))
