"""The libraries of the page are the recorded ones, with their licences."""

from __future__ import annotations

import json
import re

from tests.server.inspector.vendor import FOLDER, MANIFEST, digest, manifest
from treadle.server.page import FOLDER as PAGE


def test_each_file_has_the_recorded_hash_and_no_other_file_is_there() -> None:
    recorded = {name: file["sha256"] for package in manifest() for name, file in package["files"].items()}
    found = {file.name: digest(file.read_bytes()) for file in FOLDER.iterdir() if file != MANIFEST}
    assert found == recorded


def test_each_package_has_its_licence() -> None:
    for package in manifest():
        assert package["licence"] in ("MIT", "Apache-2.0")
        licences = [name for name in package["files"] if name.endswith(".LICENSE.txt")]
        assert len(licences) == 1, package["name"]
        words = {"MIT": "MIT License", "Apache-2.0": "Apache License"}[package["licence"]]
        assert words.lower() in (FOLDER / licences[0]).read_text().lower()


def test_the_import_map_names_each_library_once() -> None:
    found = re.search(
        r'<script type="importmap">(.*?)</script>', (PAGE / "index.html").read_text(), re.DOTALL
    )
    assert found is not None
    places = list(json.loads(found[1])["imports"].values())
    modules = [name for package in manifest() for name in package["files"] if name.endswith(".js")]
    assert sorted(places) == sorted(f"./inspector/vendor/{name}" for name in modules)
