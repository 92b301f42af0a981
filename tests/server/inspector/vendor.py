"""The libraries of the page: fetched from npm, compared with the recorded hashes, and written beside the page.

`python -m tests.server.inspector.vendor` fetches them again. Each archive must have its recorded hash. For a new
version, change `version` and `archive` of its entry in `vendor.json`: npm prints the hash of an archive with
`npm view NAME@VERSION dist.integrity`. The hashes of the files are written, and their changes are to be read.
"""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "src/treadle/server/inspector/vendor"
MANIFEST = FOLDER / "vendor.json"


def manifest() -> list[dict[str, Any]]:
    """Return the packages: name, version, licence, the hash of the archive, and files with their hashes."""
    return json.loads(MANIFEST.read_text())


def digest(content: bytes) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def fetched(package: dict[str, Any], folder: Path) -> Path:
    """Fetch the archive of a package with npm, and return it if it has the recorded hash."""
    name = f"{package['name']}@{package['version']}"
    command = ["npm", "pack", name, "--json", "--ignore-scripts", "--pack-destination", str(folder)]
    printed = subprocess.run(command, capture_output=True, check=True, text=True).stdout
    archive = folder / json.loads(printed)[0]["filename"]
    found = "sha512-" + base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
    if found != package["archive"]:
        sys.exit(f"{name}: the archive has the hash {found}, recorded is {package['archive']}")
    return archive


def without_map(content: bytes) -> bytes:
    """Return a module without the line that names its source map, which is not shipped."""
    lines = content.splitlines(keepends=True)
    return b"".join([line for line in lines if not line.startswith(b"//# sourceMappingURL=")])


def main() -> None:
    """Fetch all packages, write their files, and record the hashes of the files."""
    packages = manifest()
    with tempfile.TemporaryDirectory() as folder:
        for package in packages:
            with tarfile.open(fetched(package, Path(folder))) as archive:
                for name, file in package["files"].items():
                    member = archive.extractfile(f"package/{file['from']}")
                    assert member is not None, f"{file['from']} is a file"
                    content = without_map(member.read())
                    (FOLDER / name).write_bytes(content)
                    file["sha256"] = digest(content)
    MANIFEST.write_text(json.dumps(packages, indent=2) + "\n")


if __name__ == "__main__":
    main()
