"""`pending`, `approve` and `deny`, and what `show` and `tasks` tell of a task that waits for an approval."""

import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from treadle import Agent, Runner, ScriptedModel, tool
from treadle.models import call
from treadle.testing.postgres import PostgresServer

AGENTS = """
from pathlib import Path

from treadle import Agent, ScriptedModel, tool
from treadle.models import call, text


@tool(needs_approval=True, preview=lambda order, cents: f"{cents} cents go back for {order}")
def refund(order: str, cents: int) -> str:
    \"\"\"Pay money back.\"\"\"
    with Path("paid").open("a") as book:
        book.write(f"{order} {cents}\\n")
    return "refunded"


calls = [call("refund", order="17", cents=500), call("refund", order="18", cents=900)]
one = Agent(ScriptedModel([calls[0], text("Done.")]), name="one", tools=[refund])
two = Agent(ScriptedModel([calls, text("Done.")]), name="two", tools=[refund])
"""


@pytest.fixture
def desk(project: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (project / "desk.py").write_text(AGENTS)
    (project / "pyproject.toml").write_text('[tool.treadle]\nagents = ["desk:one", "desk:two"]\n')
    monkeypatch.delitem(sys.modules, "desk", raising=False)
    return lambda: (project / "paid").read_text() if (project / "paid").exists() else ""


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.full)], autouse=True)
def store(request: pytest.FixtureRequest, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store of every command: a file in the project, or a schema."""
    if request.param == "postgresql":
        server: PostgresServer = request.getfixturevalue("postgres")
        schema = f"c{sha256(str(project).encode()).hexdigest()[:20]}"
        monkeypatch.setenv("TREADLE_STORE", server.in_schema(schema))


def test_a_waiting_call_is_shown_with_its_arguments_preview_rule_and_the_commands_that_decide(
    treadle: Any, desk: Any
) -> None:
    ended = treadle("run", "one", "go", "--task-id", "order-17")
    assert (ended.code, desk()) == (4, "")
    for command in (("show", "order-17"), ("pending",), ("pending", "order-17")):
        out = treadle(*command).out
        assert 'refund({"order":"17","cents":500})' in out
        assert "500 cents go back for 17" in out
        assert "asked by rule:   needs_approval" in out
        assert "treadle approve order-17 s1-0-ask1" in out
        assert "treadle deny order-17 s1-0-ask1" in out
    assert treadle("tasks").out.rstrip().endswith("approval of refund")
    assert treadle("tasks", "--json").document["items"][0]["waits_for"] == ["approval of refund"]


def test_what_waits_is_listed_a_page_at_a_time(treadle: Any, desk: Any) -> None:
    treadle("run", "two", "go", "--task-id", "both")
    first = treadle("pending", "--limit", "1")
    assert "500 cents" in first.out
    assert "900 cents" not in first.out
    page = treadle("pending", "--limit", "1", "--json").document
    assert f"more: --cursor {page['cursor']}" in first.err
    rest = treadle("pending", "--cursor", page["cursor"], "--json").document
    assert ([item["request_id"] for item in rest["items"]], rest["cursor"]) == (["s1-1-ask1"], None)


def test_an_approval_is_recorded_and_the_task_goes_on_at_the_next_resume(treadle: Any, desk: Any) -> None:
    treadle("run", "one", "go", "--task-id", "order-17")
    (item,) = treadle("pending", "--json").document["items"]
    assert (item["task_id"], item["request_id"], item["kind"]) == ("order-17", "s1-0-ask1", "approval")
    assert (item["arguments"], item["rule"]) == ({"order": "17", "cents": 500}, "needs_approval")
    ended = treadle("approve", "order-17", "--arguments", '{"order": "17", "cents": 400}', "--by", "ada")
    assert ended.code == 0
    assert treadle("pending", "--json").document == {"items": [], "cursor": None}
    assert treadle("resume", "order-17", "--json").document["final_text"] == "Done."
    assert desk() == "17 400\n"
    shown = treadle("show", "order-17").out
    assert "refund (s1-0) approved with (order=17, cents=400)  by ada" in shown
    assert treadle("approve", "order-17", "s1-0-ask1").code == 2


@pytest.mark.parametrize(
    ("arguments", "problem"), [('{"cents": 7}', "order"), ('{"order": "17", "cents": "all"}', "cents")]
)
def test_an_approval_with_arguments_that_do_not_fit_the_tool_is_refused_and_its_request_stays_open(
    treadle: Any, desk: Any, arguments: str, problem: str
) -> None:
    treadle("run", "one", "go", "--task-id", "order-17")
    refused = treadle("approve", "order-17", "--arguments", arguments)
    assert refused.code == 2
    assert "approve: arguments do not fit the tool refund of call s1-0" in refused.err
    assert problem in refused.err
    (item,) = treadle("pending", "--json").document["items"]
    assert item["arguments"] == {"order": "17", "cents": 500}
    assert treadle("approve", "order-17", "--arguments", '{"order": "17", "cents": 7}').code == 0
    assert treadle("resume", "order-17").code == 0
    assert desk() == "17 7\n"


@pytest.mark.parametrize("named", ["job", "job.s1-0"])
def test_arguments_are_checked_against_the_tool_of_a_subagent_that_the_project_does_not_list(
    treadle: Any, desk: Any, project: Path, named: str
) -> None:
    boss = '\nboss = Agent(ScriptedModel([call("one", input="go"), text("Paid.")]), name="boss", subagents=[one])\n'
    (project / "desk.py").write_text(AGENTS + boss)
    (project / "pyproject.toml").write_text('[tool.treadle]\nagents = ["desk:boss"]\n')
    treadle("run", "boss", "go", "--task-id", "job")
    assert "arguments do not fit" in treadle("approve", named, "--arguments", '{"cents": 7}').err
    assert len(treadle("pending", "--json").document["items"]) == 1


def test_an_approval_and_an_answer_name_the_agent_whose_tool_checks_them(
    treadle: Any, desk: Any, project: Path
) -> None:
    treadle("run", "one", "go", "--task-id", "order-17")
    (project / "pyproject.toml").write_text("[tool.treadle]\nagents = []\n")
    wrong = ("approve", "order-17", "--arguments", '{"order": "17", "cents": "many"}')
    refused = treadle(*wrong, "--agent", "desk:one")
    assert (refused.code, "cents" in refused.err) == (2, True), refused.err
    assert treadle("approve", "order-17", "--agent", "desk:none").code == 2
    assert treadle("approve", "order-17", "--agent", "desk:one").code == 0


def test_an_answer_that_does_not_fit_the_argument_that_a_rule_wants_is_refused(
    treadle: Any, desk: Any, project: Path
) -> None:
    rule = '[[rule]]\nid = "cents"\ntool = "refund"\nverdict = "ask"\nargument = "cents"\n'
    (project / "policy.toml").write_text(rule)
    treadle("run", "one", "go", "--task-id", "order-17", "--policy", "policy.toml")
    assert "arguments do not fit" in treadle("answer", "order-17", "all").err
    assert len(treadle("pending", "--json").document["items"]) == 1
    assert treadle("answer", "order-17", "7").code == 0


def test_a_denial_names_its_request_if_several_are_pending(treadle: Any, desk: Any) -> None:
    treadle("run", "two", "go", "--task-id", "both")
    refused = treadle("deny", "both", "--reason", "too much")
    assert refused.code == 2
    assert "name one of the requests that are pending: s1-0-ask1 (refund), s1-1-ask1 (refund)" in refused.err
    listed = treadle("pending").out
    assert "refund waits for an approval  s1-1-ask1" in listed
    assert "approve both REQUEST" in listed
    assert listed.count("approve both REQUEST") == 1, "the commands stand once below the requests"
    assert treadle("deny", "both", "s1-1-ask1", "--reason", "too much").code == 0
    assert treadle("approve", "both", "--json").document["state"] == "running"
    document = treadle("resume", "both", "--json").document
    assert [call["outcome"] for call in document["tool_executions"]] == ["ok", "denied"]
    assert desk() == "17 500\n"
    assert "refund (s1-1) denied: too much" in treadle("show", "both").out


def test_an_answer_is_the_argument_that_a_rule_wants(treadle: Any, desk: Any, project: Path) -> None:
    rule = '[[rule]]\nid = "order"\ntool = "refund"\nverdict = "ask"\nargument = "order"\n'
    (project / "policy.toml").write_text(rule)
    treadle("run", "one", "go", "--task-id", "order-17", "--policy", "policy.toml")
    assert "you write:       order" in treadle("pending").out
    assert treadle("approve", "order-17").code == 2
    assert treadle("answer", "order-17", "18").code == 0
    assert treadle("resume", "order-17", "--policy", "policy.toml").code == 0
    assert desk() == "18 500\n"


def test_a_denial_cancels_the_task_if_asked_to(treadle: Any, desk: Any) -> None:
    treadle("run", "two", "go", "--task-id", "both")
    ended = treadle("deny", "both", "s1-0-ask1", "--stop", "--reason", "fraud", "--json")
    assert ended.document["state"] == "cancelled"
    assert "cancel requested" in treadle("show", "both").out
    assert desk() == ""


def test_an_approval_for_always_is_listed_and_revoked(treadle: Any, desk: Any) -> None:
    treadle("run", "one", "go", "--task-id", "order-17")
    assert "there are no approvals for later calls" in treadle("policy", "grants").err
    assert treadle("approve", "order-17", "--scope", "always", "--by", "ada").code == 0
    assert treadle("resume", "order-17").code == 0
    assert "approved for all tasks" in treadle("show", "order-17").out
    assert treadle("run", "one", "go").code == 0
    (grant,) = treadle("policy", "grants", "--json").document["items"]
    assert (grant["tool"], grant["rule"], grant["thread_id"], grant["by"]) == (
        "refund",
        "needs_approval",
        None,
        "ada",
    )
    assert grant["grant_id"] in treadle("policy", "grants").out
    assert treadle("policy", "grants", "--thread", "talk", "--json").document["items"] == []
    revoked = treadle("policy", "revoke", grant["grant_id"], "--by", "bob", "--json").document
    assert revoked["revoked_by"] == "bob"
    assert treadle("policy", "revoke", "g-none").code == 2
    assert treadle("run", "one", "go").code == 4
    assert "revoked" in treadle("policy", "grants", "--all").out
    assert desk() == "17 500\n17 500\n"


def test_requests_are_listed_of_one_thread(treadle: Any, desk: Any) -> None:
    treadle("run", "one", "go", "--thread", "talk", "--task-id", "a")
    treadle("run", "one", "go", "--task-id", "b")
    items = treadle("pending", "--thread", "talk", "--json").document["items"]
    assert [item["task_id"] for item in items] == ["a"]
    assert treadle("pending", "a", "--thread", "talk").code == 2
    assert "nothing is pending" in treadle("pending", "--thread", "silent").err


def test_an_approval_on_the_command_line_may_be_bound_to_an_argument(treadle: Any, project: Path) -> None:
    (project / "mails.py").write_text(
        "from treadle import Agent, ScriptedModel, tool\n"
        "from treadle.models import call, text\n\n\n"
        "@tool(needs_approval=True)\n"
        "def mail(to: str, body: str) -> str:\n"
        '    """Send a mail."""\n'
        "    return to\n\n\n"
        "calls = [call('mail', to=to, body=body) for to, body in (('ann', '1'), ('ann', '2'), ('eve', '3'))]\n"
        "bound = Agent(ScriptedModel([*calls, text('Done.')]), name='bound', tools=[mail])\n"
    )
    (project / "pyproject.toml").write_text('[tool.treadle]\nagents = ["mails:bound"]\n')
    assert treadle("run", "bound", "go", "--task-id", "mails").code == 4
    assert treadle("approve", "mails", "--scope", "task", "--same", "nobody").code != 0
    assert treadle("approve", "mails", "--scope", "task", "--same", "to").code == 0
    assert treadle("resume", "mails").code == 4
    assert '"to":"eve"' in treadle("pending", "mails").out


def test_one_command_approves_all_calls_of_a_tool_and_prints_each(treadle: Any, desk: Any) -> None:
    treadle("run", "two", "go", "--task-id", "both")
    treadle("run", "one", "go", "--task-id", "order-17")
    asked = treadle("approve", "--tool", "refund")
    assert (asked.code, desk()) == (2, "")
    assert "to approve 3 requests without being asked, add --yes" in asked.err
    ended = treadle("approve", "--tool", "refund", "--by", "ada", "--yes")
    assert (ended.code, "approved 3 of 3 requests" in ended.err) == (0, True)
    assert 'approved  both  s1-1-ask1  refund({"order":"18","cents":900})' in ended.out
    assert treadle("pending", "--json").document["items"] == []
    assert treadle("resume", "both").code == 0
    assert treadle("resume", "order-17").code == 0
    assert sorted(desk().split("\n")) == ["", "17 500", "17 500", "18 900"]
    assert "no request that this command could decide" in treadle("approve", "--all").err


def test_a_denial_of_several_requests_leaves_those_of_other_agents_and_tools_open(
    treadle: Any, desk: Any
) -> None:
    treadle("run", "two", "go", "--task-id", "both")
    treadle("run", "one", "go", "--task-id", "order-17")
    assert treadle("deny", "--tool", "refund", "--tool", "none", "--agent", "none", "--yes").code == 0
    ended = treadle("deny", "--agent", "two", "--reason", "too much", "--yes", "--json")
    assert ended.document["items"] == [
        {"task_id": "both", "request_id": "s1-0-ask1", "state": "denied"},
        {"task_id": "both", "request_id": "s1-1-ask1", "state": "denied"},
    ]
    assert [item["task_id"] for item in treadle("pending", "--json").document["items"]] == ["order-17"]
    assert treadle("approve", "both", "--all", "--yes", "--json").document["items"] == []
    assert treadle("approve", "order-17", "--all", "--tool", "refund", "--yes").code == 0


def test_several_requests_are_not_named_beside_one(treadle: Any, desk: Any) -> None:
    treadle("run", "two", "go", "--task-id", "both")
    assert "which requests?" in treadle("approve").err
    for command in (
        ("approve", "both", "s1-0-ask1", "--all"),
        ("approve", "--all", "--arguments", "{}"),
        ("deny", "both", "--all", "--stop"),
        ("answer", "both", "s1-0-q1", "yes", "--all"),
    ):
        assert treadle(*command, "--yes").code == 2, command
    assert len(treadle("pending", "--json").document["items"]) == 2


def test_a_request_that_several_decide_and_that_is_refused_does_not_block_the_others(
    treadle: Any, desk: Any, project: Path
) -> None:
    rule = '[[rule]]\nid = "order"\ntool = "refund"\nverdict = "ask"\nargument = "order"\n'
    (project / "policy.toml").write_text(rule)
    treadle("run", "one", "go", "--task-id", "order-17", "--policy", "policy.toml")
    treadle("run", "one", "go", "--task-id", "order-18")
    ended = treadle("approve", "--all", "--yes", "--json")
    assert ended.code == 1
    assert {item["task_id"]: item["state"] for item in ended.document["items"]} == {
        "order-17": "refused",
        "order-18": "approved",
    }


def test_a_recorded_answer_told_to_resume_though_a_driver_continues_the_task(treadle, project):
    @tool(needs_approval=True)
    def pay() -> str:
        """Pay."""
        return "paid"

    agent = Agent(ScriptedModel([call("pay"), "Paid."]), name="clerk", tools=[pay])
    with Runner(str(project / "bills.db")).sync as runner:
        assert runner.run(agent, "Pay.", task_id="bill").state == "waiting"
    approved = treadle("approve", "bill", "--store", "bills.db").out
    assert "a driver (treadle drive) continues it; without one: " in approved
    assert "go on with" not in approved
