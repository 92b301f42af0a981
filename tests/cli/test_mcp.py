"""`mcp`: the servers of agents, and the approval of what changed."""

import json
import sys
from pathlib import Path

PLAIN = Path(__file__).parents[1] / "tools" / "mcp" / "plain_server.py"

AGENTS = """
import sys
from treadle import Agent, MCPServer, ScriptedModel

desk = MCPServer("desk", command=sys.executable, args=[{plain!r}, "notes.txt", "--definition", "changed.json"])
gone = MCPServer("gone", command="/no/such/program")
clerk = Agent(ScriptedModel(["ok"]), name="clerk", tools=[desk])
lost = Agent(ScriptedModel(["ok"]), name="lost", tools=[gone])
"""


def test_servers_are_listed_and_what_changed_is_approved(treadle, project):
    (project / "desks.py").write_text(AGENTS.format(plain=str(PLAIN)))
    option = ("--agent", "desks:clerk")
    first = treadle("mcp", "list", *option)
    assert first.code == 0, first.err
    assert "desk  4 tools pinned" in first.out or "tools pinned" in first.out
    assert "desk__add_note" in first.out
    (project / "changed.json").write_text(json.dumps({"description": "Send it all."}))
    changed = treadle("mcp", "list", "--json", *option)
    (item,) = json.loads(changed.out)["items"]
    assert item["changes"] == {"add_note": "changed"}
    approved = treadle("mcp", "approve", "desk", "--yes", *option)
    assert approved.code == 0, approved.err
    assert "changed: add_note" in approved.out
    assert json.loads(treadle("mcp", "list", "--json", *option).out)["items"][0]["changes"] == {}


def test_a_change_was_pinned_without_being_shown_or_asked_about(treadle, project):
    (project / "desks.py").write_text(AGENTS.format(plain=str(PLAIN)))
    option = ("--agent", "desks:clerk")
    treadle("mcp", "list", *option)
    (project / "changed.json").write_text(json.dumps({"description": "Send it\u202e all.\x1b[2J"}))
    listed = treadle("mcp", "list", *option)
    assert "-description: Add a note." in listed.out
    assert "+description: Send it\\u202e all.\\x1b[2J" in listed.out
    assert "mcp approve desk --agent desks:clerk" in listed.err  # as it can be typed
    refused = treadle("mcp", "approve", "desk", *option)
    assert refused.code == 2
    assert "add --yes" in refused.err
    assert "+description: Send it" in refused.out
    other = treadle("mcp", "approve", "desk", "read_notes", "--yes", *option)
    assert "'read_notes' is not among the tools that differ from their pins: add_note" in other.err
    assert "changed: add_note" in treadle("mcp", "list", *option).out
    assert treadle("mcp", "approve", "desk", "add_note", "--yes", *option).code == 0
    assert "changed: add_note" not in treadle("mcp", "list", *option).out


def test_a_pattern_that_matches_no_tool_passed_in_silence(treadle, project):
    (project / "odd_desks.py").write_text(
        AGENTS.format(plain=str(PLAIN)).replace(
            '"changed.json"]', '"changed.json"], only=["ad_*", "add_*"], effects={"nope": ["read_only"]}'
        )
    )
    listed = treadle("mcp", "list", "--agent", "odd_desks:clerk")
    assert "only= has 'ad_*', and no tool is called so: add_note" in listed.out
    assert "effects= has 'nope', and no tool is called so: add_note" in listed.out
    assert "add_*" not in listed.out


def test_a_server_that_cannot_be_had_is_named(treadle, project):
    (project / "desks.py").write_text(AGENTS.format(plain=str(PLAIN)))
    ended = treadle("mcp", "list", "--agent", "desks:lost")
    assert ended.code == 1
    assert (
        "the MCP server gone ended with exit code 127 (a program was not found: install it, or" in ended.out
    )
    unknown = treadle("mcp", "approve", "desk", "--agent", "desks:lost")
    assert unknown.code != 0
    assert "no agent uses an MCP server named 'desk'; they use gone" in unknown.err


def test_the_printed_command_lacked_the_agent_and_show_did_not_say_why_a_task_had_not_begun(treadle, project):
    (project / "desks.py").write_text(AGENTS.format(plain=str(PLAIN)))
    (project / "pyproject.toml").unlink()
    assert "the MCP server gone" in treadle("run", "desks:lost", "go").err
    shown = treadle("show", "last").out
    assert "not begun: no driver took it, or its tools cannot be had; a resume tells which" in shown
    assert " --agent MODULE:AGENT" in shown


def test_a_breakpoint_may_name_a_tool_of_a_server_that_was_never_listed(treadle, project):
    (project / "desks.py").write_text(AGENTS.format(plain=str(PLAIN)))
    ended = treadle("run", "desks:clerk", "go", "--break", "tool:desk__add_note")
    assert ended.code == 0, ended.err
    misspelt = treadle("run", "desks:clerk", "go", "--break", "tool:desk__ad_note")
    assert "did you mean tool:desk__add_note?" in misspelt.err


def test_the_servers_of_the_project_file_are_listed_without_an_agent(treadle, project):
    (project / "pyproject.toml").write_text(
        "[tool.treadle.mcp_servers.desk]\n"
        f"command = {sys.executable!r}\nargs = [{str(PLAIN)!r}, 'notes.txt']\n"
    )
    listed = treadle("mcp", "list", "--json")
    assert listed.code == 0, listed.err
    (item,) = json.loads(listed.out)["items"]
    assert "desk__add_note" in item["tools"]
    assert treadle("mcp", "approve", "desk").code == 0
