"""The page on extras names each extra of the project, with its packages."""

import re
import tomllib

import pytest

from tests.docs.test_code_blocks import ROOT

PAGE = (ROOT / "docs" / "guide" / "extras.md").read_text(encoding="utf-8")
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
    "optional-dependencies"
]


def test_each_row_of_the_page_is_an_extra():
    assert re.findall(r"^\| `([\w-]+)` \| .* \| .* \| \[", PAGE, re.MULTILINE) == list(EXTRAS)


@pytest.mark.parametrize("extra", EXTRAS)
def test_an_extra_is_on_the_page_with_its_packages(extra: str):
    packages = [re.split(r"[<>=; ]", requirement)[0] for requirement in EXTRAS[extra]]
    (row,) = re.findall(rf"^\| `{extra}` \| .*$", PAGE, re.MULTILINE)
    assert re.findall(r"`([^`]+)`", row.split(" | ")[2]) == packages


def test_each_package_that_is_always_installed_is_on_the_page():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    always = PAGE.partition("## Packages that are always installed")[2]
    assert {re.split(r"[<>=; ]", each)[0] for each in project["dependencies"]} == set(
        re.findall(
            r"`([\w-]+)`", "".join(row.split(" | ")[0] for row in always.splitlines() if row[:3] == "| `")
        )
    )
