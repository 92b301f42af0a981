"""The notes of a release, and the links of a page that a package index shows."""

import pytest

from tests.release.sources import ROOT, is_development, notes, project, with_addresses

CHANGELOG = """# Changelog

## [Unreleased]

- New: a thing.

## [0.2.0] - 2026-12-01

### Threads

- Fixed: another thing.

## [0.1.0] (not released)

The first version.
"""


@pytest.mark.parametrize(
    ("version", "section"),
    [
        ("0.3.0.dev0", "- New: a thing.\n"),
        ("0.2.0", "### Threads\n\n- Fixed: another thing.\n"),
        ("0.1.0", "The first version.\n"),
    ],
)
def test_the_notes_are_the_section_of_the_version(version: str, section: str):
    assert notes(CHANGELOG, version) == section


def test_a_version_without_a_section_has_no_notes():
    with pytest.raises(LookupError, match="no section"):
        notes(CHANGELOG, "0.3.0")


def test_this_version_has_notes():
    assert len(notes((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), project()["version"])) > 10


@pytest.mark.parametrize(
    ("version", "expected"), [("0.2.0.dev0", True), ("0.2.0", False), ("0.2.0rc1", False)]
)
def test_a_development_version_is_told_from_a_release(version: str, expected: bool):
    assert is_development(version) is expected


PAGE = "![run](docs/a.svg) and [guide](docs/a.md#one), [site](https://a.example/b), [here](#one)"


def test_links_to_files_lead_to_the_repository_at_the_tag():
    metadata = {"version": "0.2.0", "urls": {"Source": "https://code.example/a/treadle/"}}
    assert with_addresses(PAGE, metadata) == (
        "![run](https://code.example/a/treadle/raw/v0.2.0/docs/a.svg) and "
        "[guide](https://code.example/a/treadle/blob/v0.2.0/docs/a.md#one), [site](https://a.example/b), [here](#one)"
    )


def test_without_an_address_links_stay():
    assert with_addresses(PAGE, {"version": "0.2.0"}) == PAGE
