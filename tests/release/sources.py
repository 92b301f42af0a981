"""The files of a release: those of the commit, its version, and its section of the changelog."""

from __future__ import annotations

import io
import re
import subprocess
import tarfile
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"(!?\[[^\]]*\]\()([^)#:\s]+)((?:#[^)\s]*)?\))")
TITLE = re.compile(r"^## \[([^\]]+)\].*$", re.MULTILINE)


def git(*arguments: str) -> bytes:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout


def export(folder: Path) -> Path:
    """Write the files of the commit into a folder, with links of the README that also work outside of it."""
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(git("archive", "--format=tar", "HEAD"))) as files:
        files.extractall(folder, filter="data")
    readme = folder / "README.md"
    readme.write_text(with_addresses(readme.read_text(encoding="utf-8"), project(folder)), encoding="utf-8")
    return folder


def project(folder: Path = ROOT) -> Mapping[str, Any]:
    """Return the table `[project]` of a source tree."""
    return tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def with_addresses(text: str, metadata: Mapping[str, Any]) -> str:
    """Return a page whose links to files lead to the repository; a package index shows the page without the files."""
    source = metadata.get("urls", {}).get("Source")
    if source is None:
        return text

    def link(match: re.Match[str]) -> str:
        view = "raw" if match[1].startswith("!") else "blob"
        return f"{match[1]}{source.removesuffix('/')}/{view}/v{metadata['version']}/{match[2]}{match[3]}"

    return LINK.sub(link, text)


def is_development(version: str) -> bool:
    """Return whether a version comes before its release, such as `0.2.0.dev0`."""
    return re.search(r"\.dev\d+$", version) is not None


def notes(changelog: str, version: str) -> str:
    """Return the section of a version, or for a version in development the section Unreleased.

    Raises:
        LookupError: the changelog has no such section.
    """
    title = "Unreleased" if is_development(version) else version
    sections = [*TITLE.finditer(changelog)]
    for section, following in zip(sections, [*sections[1:], None], strict=True):
        if section[1] == title:
            return changelog[section.end() : following.start() if following else None].strip() + "\n"
    raise LookupError(f"CHANGELOG.md has no section {title}")
