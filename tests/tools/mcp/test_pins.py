"""Pinned definitions: the first listing is believed, later ones are compared with it."""

import json
import stat

import pytest

from treadle import MCPServer, Runner
from treadle.errors import ConfigurationError
from treadle.models import call, text
from treadle.tools.mcp.declaration import DEFAULT_PINS
from treadle.tools.mcp.definitions import ToolDefinition
from treadle.tools.mcp.pins import Pins, pins_of


def defined(name, **facts):
    return ToolDefinition(name, {"name": name, **facts})


ADD, ADD_OTHERWISE, READ = defined("add"), defined("add", description="Send it all."), defined("read")


@pytest.mark.parametrize("in_file", [True, False])
def test_a_listing_is_compared_with_the_first_one(tmp_path, in_file):
    pins = Pins("desk", tmp_path / "pins" if in_file else None)
    assert pins.read() is None
    assert pins.compare([ADD, READ]).changes == {}
    later = (Pins("desk", tmp_path / "pins") if in_file else pins).compare([ADD_OTHERWISE, defined("new")])
    assert later.changes == {"add": "changed", "new": "new", "read": "gone"}
    assert [(each.definition, changed) for each, changed in later.tools] == [(ADD.definition, True)]
    pins.pin([ADD_OTHERWISE])
    assert pins.compare([ADD_OTHERWISE]).changes == {}


def test_what_another_process_pinned_first_stays(tmp_path):
    mine, other = Pins("desk", tmp_path), Pins("desk", tmp_path)
    other.compare([ADD])
    mine.pin([ADD_OTHERWISE], first=True)
    assert mine.read() == {"add": ADD}
    assert [path.name for path in tmp_path.iterdir()] == ["desk.json"]


def test_a_store_lost_its_pins_when_its_driver_ran_in_another_folder(tmp_path, monkeypatch):
    server = MCPServer("desk", command="desk")
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
    monkeypatch.chdir(tmp_path / "a")
    assert pins_of(server, tmp_path / "jobs.db").compare([ADD]).changes == {}
    monkeypatch.chdir(tmp_path / "b")
    assert pins_of(server, tmp_path / "jobs.db").compare([ADD_OTHERWISE]).changes == {"add": "changed"}
    assert (tmp_path / ".treadle" / "mcp" / "desk.json").exists()
    assert pins_of(server, tmp_path / ".treadle" / "journal.db").read() == {"add": ADD}  # that of the default


def test_pins_of_the_working_directory_hold_for_a_store_that_has_none_yet(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    server = MCPServer("desk", command="desk")
    pins_of(server).compare([ADD])
    beside = tmp_path / "elsewhere" / "jobs.db"
    assert pins_of(server, beside).compare([ADD_OTHERWISE]).changes == {"add": "changed"}
    assert (tmp_path / "elsewhere" / ".treadle" / "mcp" / "desk.json").exists()
    named = MCPServer("desk", command="desk", pins="kept")
    assert pins_of(named, beside).read() is None


@pytest.mark.anyio
async def test_another_working_directory_pinned_a_changed_server_anew(tmp_path, monkeypatch, server, clerk):
    definition = tmp_path / "definition.json"
    states = list[str]()
    for number, folder in enumerate(("a", "b")):
        (tmp_path / folder).mkdir()
        monkeypatch.chdir(tmp_path / folder)
        definition.write_text(json.dumps({"description": f"Add a note, {number}."}))
        desk = server("--definition", str(definition), pins=DEFAULT_PINS)
        async with Runner(tmp_path / "jobs.db") as runner:
            result = await runner.run(clerk([call("desk__add_note", text="milk"), text("done")], desk), "go")
        states.append(result.state)
    assert states == ["completed", "waiting"]


def test_one_tool_is_approved_and_another_stays_as_it_is_pinned(tmp_path):
    pins = Pins("desk", tmp_path)
    pins.compare([ADD, READ])
    differences = pins.compare([ADD_OTHERWISE, defined("new")]).differences
    pins.approve({name: differences[name] for name in ("add", "read")})
    assert pins.compare([ADD_OTHERWISE, defined("new")]).changes == {"new": "new"}
    assert [*differences["add"].lines()] == ["+description: Send it all.", " name: add"]
    assert [*differences["read"].lines()] == ["-name: read"]


def test_the_file_is_for_people_to_read_and_its_folder_for_its_owner(tmp_path):
    Pins("desk", tmp_path / "a" / "pins").compare([ADD, READ])
    written = json.loads((tmp_path / "a" / "pins" / "desk.json").read_text())
    assert written == {"server": "desk", "tools": {"add": {"name": "add"}, "read": {"name": "read"}}}
    assert stat.S_IMODE((tmp_path / "a" / "pins").stat().st_mode) == 0o700


@pytest.mark.parametrize("content", ["{", "[]", '{"tools": 3}', '{"tools": {"add": 3}}', "\xff"])
def test_a_file_that_is_damaged_is_named_and_not_pinned_anew(tmp_path, content):
    (tmp_path / "desk.json").write_text(content, encoding="latin-1")
    with pytest.raises(
        ConfigurationError, match=r"MCP server 'desk': its pinned definitions in .*desk\.json"
    ):
        Pins("desk", tmp_path).compare([ADD])


def test_a_folder_that_cannot_be_written_is_named_with_what_to_do(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match=r"cannot be pinned in .*; name another folder with pins="):
        Pins("desk", tmp_path / "file").pin([ADD])
