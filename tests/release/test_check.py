"""What the checks of a release find. `make release-check` runs them on real packages."""

from pathlib import Path

import pytest

from tests.release.check import TOP, compared, differences, wrong_release
from tests.release.sources import ROOT
from tests.test_project import tracked_files

URLS = '[project.urls]\nSource = "https://code.example/treadle"\n'


def tree(
    folder: Path, version: str, urls: str = "", readme: str = "# Treadle\n", recorded: bool = True
) -> Path:
    (folder / "docs").mkdir()
    (folder / "README.md").write_text(readme)
    (folder / "CHANGELOG.md").write_text("# Changelog\n\n## [Unreleased]\n\n## [0.2.0]\n\nNews.\n")
    (folder / "pyproject.toml").write_text(f'[project]\nname = "treadle"\nversion = "{version}"\n{urls}')
    (folder / "tests" / "journals" / (version if recorded else "unreleased")).mkdir(parents=True)
    return folder


@pytest.mark.parametrize(
    ("version", "tag", "urls", "readme", "recorded", "problems"),
    [
        ("0.2.0", "v0.2.0", URLS, "# Treadle\n", True, []),
        ("0.2.0.dev0", "v0.2.0.dev0", "", "Not on a package index yet.\n", False, []),
        ("0.2.0", "v0.2.1", URLS, "# Treadle\n", True, ["the tag is v0.2.1"]),
        ("0.3.0", "v0.3.0", URLS, "# Treadle\n", True, ["no section 0.3.0"]),
        ("0.2.0", "v0.2.0", "", "# Treadle\n", True, ["no [project.urls]"]),
        ("0.2.0", "v0.2.0", URLS.replace("code", "other"), "# Treadle\n", True, ["and the release is of"]),
        ("0.2.0", "v0.2.0", URLS, "Not on a package index yet.\n", True, ["README.md says"]),
        ("0.2.0", "v0.2.0", URLS, "# Treadle\n", False, ["journals of this version"]),
    ],
)
def test_a_release_needs_its_tag_notes_addresses_and_journals(
    version: str, tag: str, urls: str, readme: str, recorded: bool, problems: list[str], tmp_path: Path
):
    root = tree(tmp_path, version, urls, readme, recorded)
    found = [*wrong_release(tag, "https://code.example/treadle", root)]
    assert len(found) == len(problems), found
    assert [problem for problem, text in zip(problems, found, strict=True) if problem not in text] == []


def test_a_file_that_differs_or_is_missing_is_named(tmp_path: Path):
    first, second = tmp_path / "a", tmp_path / "b"
    for folder, content in ((first, "1"), (second, "2")):
        folder.mkdir()
        (folder / "same").write_text("0")
        (folder / "changed").write_text(content)
    (first / "lost").touch()
    assert [text.split()[0] for text in differences(first, second)] == ["changed", "lost"]


def test_a_file_too_many_or_too_few_is_named():
    assert [*compared({"a", "b"}, {"b", "c"})] == ["c is missing", "a does not belong there"]


def test_the_source_distribution_lists_each_file_and_folder_of_the_repository():
    assert {path.relative_to(ROOT).parts[0] for path in tracked_files()} - {".github"} == TOP
