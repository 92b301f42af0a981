"""Checks that the commit can be released: `make release-check`, in an environment of its own (`.release`).

    python -m tests.release.check [--tag TAG] [--source ADDRESS]

It builds the release into `dist/`, a second time in another folder, and compares the two. Then it checks the files in
the packages, the metadata, the list of dependencies, the workflows, and the installed wheel. With `--tag` it also
checks that the version, the changelog, the addresses and the recorded journals are those of a release of that tag.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.release.build import UV, build, copied_libraries
from tests.release.sources import ROOT, git, is_development, notes, project

DIST = ROOT / "dist"
BIN = Path(sys.executable).parent
TOP = {
    *(
        ".ci",
        ".editorconfig",
        ".gitignore",
        ".pre-commit-config.yaml",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "LICENSE",
    ),
    *(
        "Makefile",
        "README.md",
        "SECURITY.md",
        "bench",
        "build-requirements.txt",
        "deploy",
        "docs",
        "examples",
    ),
    *("mkdocs.yml", "pyproject.toml", "src", "tests", "uv.lock"),
}
"""The files and folders of the source distribution."""
MADE = {"PKG-INFO", "pyproject.toml.orig"}
"""The files that the build adds to them."""
INFO = {
    *("METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE"),
    *[f"licenses/{path.relative_to(ROOT)}" for path in ROOT.glob("src/**/*.LICENSE.txt")],
}
"""The files of the wheel beside the package."""
NOT_YET = "not on a package index yet"
"""Words of pages that a release makes wrong."""


def differences(first: Path, second: Path) -> Iterator[str]:
    """Yield the files of two builds that are not equal byte for byte."""
    names = {path.name for folder in (first, second) for path in folder.iterdir() if path.is_file()}
    for name in sorted(names):
        one, other = first / name, second / name
        if not (one.exists() and other.exists() and one.read_bytes() == other.read_bytes()):
            yield f"{name} is another one in a second build"


def wrong_contents(folder: Path, tracked: set[str]) -> Iterator[str]:
    """Yield the files that a package has too many or too few, given the files of the commit."""
    version = project()["version"]
    wheel = f"treadle-{version}-py3-none-any.whl"
    with zipfile.ZipFile(folder / wheel) as files:
        there = {name for name in files.namelist() if not name.endswith("/")}
    expected = {name.removeprefix("src/") for name in tracked if name.startswith("src/")}
    expected |= {f"treadle-{version}.dist-info/{name}" for name in INFO}
    yield from (f"{wheel}: {name}" for name in compared(there, expected))

    archive = f"treadle-{version}.tar.gz"
    with tarfile.open(folder / archive) as files:
        there = {member.name.partition("/")[2] for member in files if not member.isdir()}
    expected = {name for name in tracked if name.partition("/")[0] in TOP} | MADE
    yield from (f"{archive}: {name}" for name in compared(there, expected))
    new = {name.partition("/")[0] for name in tracked} - TOP - {".github"}
    yield from (f"{name} is new: add it to TOP in tests/release/check.py" for name in sorted(new))


def compared(there: set[str], expected: set[str]) -> Iterator[str]:
    yield from (f"{name} is missing" for name in sorted(expected - there))
    yield from (f"{name} does not belong there" for name in sorted(there - expected))


def wrong_metadata(folder: Path) -> Iterator[str]:
    """Yield the complaints of the package index about the metadata and the README."""
    yield from failed(str(BIN / "twine"), "check", "--strict", *packages(folder))


def wrong_dependencies(folder: Path) -> Iterator[str]:
    """Yield the flaws of the list of dependencies: its schema, and its packages compared with the lock."""
    (path,) = folder.glob("*.cdx.json")
    document = json.loads(path.read_text(encoding="utf-8"))
    yield from (f"{path.name}: {problem}" for problem in wrong_by_schema(document))
    listed = {part["name"]: part for part in document["components"]}
    locked = {line.partition("==")[0] for line in requirements("--all-extras").splitlines() if "==" in line}
    locked |= {library["name"] for library in copied_libraries(ROOT)}
    yield from (f"{path.name}: {name}" for name in compared(set(listed), locked))
    for name, part in listed.items():
        if not [each for each in part.get("externalReferences", []) if each.get("hashes")]:
            yield f"{path.name}: {name} has no hash"


def wrong_by_schema(document: Any) -> Iterator[str]:
    """Yield the errors of a document by the schema of CycloneDX 1.5."""
    from jsonschema import Draft7Validator, FormatChecker
    from referencing import Registry
    from referencing.jsonschema import DRAFT7

    schemas = {path.name: json.loads(path.read_text(encoding="utf-8")) for path in schema_files()}
    others = [
        (f"http://cyclonedx.org/schema/{name}", DRAFT7.create_resource(schema))
        for name, schema in schemas.items()
    ]
    # The checker of addresses takes minutes for a list of this size.
    formats = FormatChecker(set(FormatChecker.checkers) - {"iri", "iri-reference"})
    registry: Any = Registry().with_resources(others)
    schema = schemas["bom-1.5.SNAPSHOT.schema.json"]
    for error in Draft7Validator(schema, registry=registry, format_checker=formats).iter_errors(document):
        yield f"{error.json_path}: {error.message:.200}"


def schema_files() -> list[Path]:
    """Return the schemas that the package cyclonedx-python-lib ships."""
    import cyclonedx

    return sorted((Path(cyclonedx.__file__).parent / "schema" / "_res").glob("*.schema.json"))


def requirements(*more: str) -> str:
    """Return the locked dependencies of the package with their hashes, as pip reads them."""
    wanted = ("--locked", "--offline", "--quiet", "--no-default-groups", "--no-emit-project", "--no-header")
    command = [str(UV), "export", *wanted, "--no-annotate", *more]
    return subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


def wrong_workflows() -> Iterator[str]:
    """Yield the errors and risks of the workflows: schema, pinned actions, permissions, injections."""
    workflows = sorted(str(path) for path in (ROOT / ".github" / "workflows").glob("*.yml"))
    schema = (str(BIN / "check-jsonschema"), "--builtin-schema")
    yield from failed(*schema, "vendor.github-workflows", *workflows)
    yield from failed(*schema, "vendor.dependabot", str(ROOT / ".github" / "dependabot.yml"))
    yield from failed(str(BIN / "zizmor"), "--offline", "--quiet", "--no-progress", str(ROOT / ".github"))


def wrong_install(folder: Path) -> Iterator[str]:
    """Install the wheel and its locked dependencies in a fresh environment, and yield the failures of its demo."""
    (wheel,) = folder.glob("*.whl")
    with TemporaryDirectory() as temporary:
        here = Path(temporary)
        (here / "requirements.txt").write_text(requirements())
        pip = (str(here / "venv/bin/pip"), "install", "--quiet", "--disable-pip-version-check")
        for command in (
            (sys.executable, "-m", "venv", str(here / "venv")),
            (*pip, "--require-hashes", "--requirement", str(here / "requirements.txt")),
            (*pip, "--no-deps", str(wheel)),
            (str(here / "venv/bin/pip"), "check"),
            (str(here / "venv/bin/treadle"), "demo"),
        ):
            problems = [*failed(*command, folder=here)]
            yield from problems
            if problems:
                return
        version = (here / "venv/bin/treadle", "--version")
        said = subprocess.run(version, cwd=here, check=True, stdout=subprocess.PIPE, text=True)
        if said.stdout.split() != ["treadle", project()["version"]]:
            yield f"the installed command says {said.stdout!r}"


def wrong_release(tag: str, source: str | None, root: Path = ROOT) -> Iterator[str]:
    """Yield the reasons not to release the commit under a tag, from a repository at an address."""
    metadata = project(root)
    version: str = metadata["version"]
    if tag != f"v{version}":
        yield f"the tag is {tag}, and pyproject.toml has version {version}"
    address = metadata.get("urls", {}).get("Source")
    if address is not None and source is not None and address.removesuffix("/") != source.removesuffix("/"):
        yield f"[project.urls] has Source {address}, and the release is of {source}"
    if is_development(version):
        return
    if address is None:
        yield "pyproject.toml has no [project.urls] with Source: on a package index the links of the README are dead"
    try:
        notes((root / "CHANGELOG.md").read_text(encoding="utf-8"), version)
    except LookupError as error:
        yield str(error)
    journals = root / "tests" / "journals"
    if not (journals / version).exists() or (journals / "unreleased").exists():
        yield "the journals of this version are not recorded: run `python -m tests.journals.make`"
    pages = [root / "README.md", *sorted((root / "docs").rglob("*.md"))]
    for page in pages:
        if NOT_YET in page.read_text(encoding="utf-8").lower():
            yield f'{page.relative_to(root)} says "{NOT_YET}"'


def failed(*command: str, folder: Path = ROOT) -> Iterator[str]:
    """Run a command, and yield its output if it fails."""
    environment = {**os.environ, "NO_COLOR": "1"}
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        yield f"{' '.join(command)} failed with {done.returncode}:\n{done.stdout}"


def packages(folder: Path) -> list[str]:
    return sorted(str(path) for path in folder.glob("treadle-*") if path.suffix in {".gz", ".whl"})


def built_again(folder: Path) -> Iterator[str]:
    """Build twice, the second time with another umask and time zone, and yield the differences."""
    build(folder)
    with TemporaryDirectory() as temporary:
        again = Path(temporary) / "dist"
        command = [sys.executable, "-m", "tests.release.build", str(again)]
        environment = {**os.environ, "TZ": "Asia/Tokyo", "LC_ALL": "C"}
        subprocess.run(command, cwd=ROOT, env=environment, check=True, umask=0o077, stdout=subprocess.DEVNULL)
        yield from differences(folder, again)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tag")
    parser.add_argument("--source")
    arguments = parser.parse_args()
    tracked = set(git("ls-tree", "-r", "-z", "--name-only", "HEAD").decode().split("\0")) - {""}
    checks = {
        "two builds are equal": lambda: built_again(DIST),
        "files of the packages": lambda: wrong_contents(DIST, tracked),
        "metadata": lambda: wrong_metadata(DIST),
        "list of dependencies": lambda: wrong_dependencies(DIST),
        "workflows": wrong_workflows,
        "installed wheel and demo": lambda: wrong_install(DIST),
    }
    if arguments.tag:
        checks["tag, changelog, addresses, journals"] = lambda: wrong_release(arguments.tag, arguments.source)
    failures = 0
    for name, check in checks.items():
        problems = [*check()]
        failures += len(problems)
        print(f"{'failed' if problems else 'ok':6} {name}", *problems, sep="\n       ", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
