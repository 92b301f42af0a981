"""Builds a release from the commit: source distribution, wheel, list of dependencies and notes.

    python -m tests.release.build [FOLDER]

The wheel is built from the source distribution, by the build backend inside of the locked uv. The list of dependencies
(SBOM, CycloneDX) has each locked package with its hashes. Two builds of one commit are equal byte for byte.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import tarfile
import uuid
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.release.sources import ROOT, export, git, notes, project, with_addresses

UV = ROOT / ".venv" / "bin" / "uv"
NAMESPACE = uuid.uuid5(uuid.NAMESPACE_DNS, "treadle")


def build(folder: Path) -> None:
    """Build the release of the commit into a folder, instead of an earlier one."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in [*folder.glob("treadle-*"), *folder.glob("notes.md")]:
        path.unlink()
    with TemporaryDirectory() as temporary:
        tree = export(Path(temporary) / "tree")
        uv("build", "--sdist", "--out-dir", str(folder), folder=tree)
        (archive,) = folder.glob("treadle-*.tar.gz")
        with tarfile.open(archive) as files:  # of an archive, uv would fetch the backend from an index
            files.extractall(temporary, filter="data")
        unpacked = Path(temporary) / archive.name.removesuffix(".tar.gz")
        uv("build", "--wheel", "--out-dir", str(folder), folder=unpacked)
        (folder / ".gitignore").unlink(missing_ok=True)
        metadata = project(tree)
        (folder / f"treadle-{metadata['version']}.cdx.json").write_text(dependencies(tree), encoding="utf-8")
        section = notes((tree / "CHANGELOG.md").read_text(encoding="utf-8"), metadata["version"])
        (folder / "notes.md").write_text(with_addresses(section, metadata), encoding="utf-8")


def uv(*arguments: str, folder: Path) -> bytes:
    """Run uv, at the version and hash of build-requirements.txt; it contains the build backend."""
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(commit_time())}
    command = [str(UV), *arguments, "--quiet", "--offline"]
    return subprocess.run(command, cwd=folder, env=environment, check=True, stdout=subprocess.PIPE).stdout


def commit_time() -> int:
    """Return when the commit was made, in seconds since 1970, UTC."""
    return int(git("log", "-1", "--format=%ct"))


def dependencies(tree: Path) -> str:
    """Return the dependencies of the package with all its extras, as CycloneDX; the same for the same lock."""
    wanted = ("--format=cyclonedx1.5", "--locked", "--all-extras", "--no-default-groups")
    document = json.loads(uv("export", *wanted, "--preview-features=sbom-export", folder=tree))
    del document["serialNumber"], document["metadata"]["timestamp"]
    add_copied(document, tree)
    content = json.dumps(document, sort_keys=True)
    document["serialNumber"] = f"urn:uuid:{uuid.uuid5(NAMESPACE, content)}"
    document["metadata"]["timestamp"] = datetime.fromtimestamp(commit_time(), UTC).isoformat()
    return json.dumps(document, indent=1) + "\n"


def add_copied(document: dict[str, Any], tree: Path) -> None:
    """Add to a list of dependencies the libraries of npm whose files are part of the package."""
    root = document["metadata"]["component"]["bom-ref"]
    (needs,) = [each for each in document["dependencies"] if each["ref"] == root]
    for library in copied_libraries(tree):
        name, version = library["name"], library["version"]
        digest = base64.b64decode(library["archive"].removeprefix("sha512-")).hex()
        address = f"https://registry.npmjs.org/{name}/-/{name.rpartition('/')[2]}-{version}.tgz"
        reference = {
            "type": "distribution",
            "url": address,
            "hashes": [{"alg": "SHA-512", "content": digest}],
        }
        ref = f"pkg:npm/{name.replace('@', '%40')}@{version}"
        component = {
            "type": "library",
            "bom-ref": ref,
            "name": name,
            "version": version,
            "licenses": [{"license": {"id": library["licence"]}}],
            "purl": ref,
            "externalReferences": [reference],
        }
        document["components"].append(component)
        document["dependencies"].append({"ref": ref})
        needs.setdefault("dependsOn", []).append(ref)


def copied_libraries(tree: Path) -> list[dict[str, Any]]:
    """Return the libraries of the inspector: name, version, licence, and the hash of the archive."""
    manifest = tree / "src/treadle/server/inspector/vendor/vendor.json"
    return json.loads(manifest.read_text(encoding="utf-8"))


if __name__ == "__main__":
    target = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "dist").resolve()
    build(target)
    print(*sorted(path.name for path in target.iterdir() if path.is_file()), sep="\n")
