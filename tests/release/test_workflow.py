"""The workflows on GitHub: they run targets of the Makefile, with pinned actions and no more rights than they need."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.release.sources import ROOT, project

FOLDER = ROOT / ".github" / "workflows"
FILES = sorted(FOLDER.glob("*.yml"))
TARGETS = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
RIGHTS = {
    "test": {"contents": "read"},
    "build": {"contents": "read"},
    "attest": {"attestations": "write", "id-token": "write"},
    "pypi": {"id-token": "write"},
    "image": {"attestations": "write", "contents": "read", "id-token": "write", "packages": "write"},
    "release": {"contents": "write"},
}
ENVIRONMENTS = {"pypi": "pypi", "image": "registry", "release": "release"}
"""The jobs that publish, and the protected environment of each."""
NEEDS = {"attest": ["test", "build"], "pypi": ["attest"], "image": ["pypi"], "release": ["pypi"]}

pytestmark = pytest.mark.skipif(not FOLDER.exists(), reason="not in the source distribution")


def workflow(path: Path) -> dict[Any, Any]:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def jobs() -> dict[str, Any]:
    return workflow(FOLDER / "release.yml")["jobs"]


def steps(path: Path) -> list[dict[str, Any]]:
    return [step for job in workflow(path)["jobs"].values() for step in job["steps"]]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_each_action_is_pinned_by_the_hash_of_a_named_version(path: Path):
    used = re.findall(r"uses: (.*)", path.read_text(encoding="utf-8"))
    assert used
    assert [line for line in used if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line)] == []


def test_an_action_has_one_hash_in_all_workflows():
    pins = {line for path in FILES for line in re.findall(r"uses: (\S+)", path.read_text(encoding="utf-8"))}
    assert len(pins) == len({pin.partition("@")[0] for pin in pins})


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_workflows_run_targets_of_the_makefile(path: Path):
    targets = {
        target for step in steps(path) for target in re.findall(r"\bmake ([\w-]+)", step.get("run", ""))
    }
    assert targets
    assert targets - TARGETS == set()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_no_checkout_leaves_a_token_and_no_step_reads_a_secret(path: Path):
    checkouts = [step for step in steps(path) if step.get("uses", "").startswith("actions/checkout@")]
    assert checkouts
    assert [step for step in checkouts if step["with"]["persist-credentials"] is not False] == []
    assert "secrets." not in path.read_text(encoding="utf-8")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_no_expression_is_part_of_a_script(path: Path):
    """A value that a stranger chooses, such as the name of a branch, would be run."""
    scripts = [step.get("run", "") for step in steps(path)]
    allowed = re.compile(r"\$\{\{ matrix\.\w+ \}\}")
    assert [script for script in scripts if "${{" in allowed.sub("", script)] == []


def test_a_release_begins_with_a_tag_and_has_no_rights_by_itself():
    release = workflow(FOLDER / "release.yml")
    assert release[True] == {"push": {"tags": ["v*"]}}  # YAML reads `on` as true
    assert release["permissions"] == {}
    assert release["concurrency"]["cancel-in-progress"] is False


def test_each_job_of_a_release_has_exactly_the_rights_that_it_needs():
    assert {name: job["permissions"] for name, job in jobs().items()} == RIGHTS


def test_jobs_that_publish_have_a_protected_environment_and_follow_the_checks():
    assert {name: job["environment"] for name, job in jobs().items() if "environment" in job} == ENVIRONMENTS
    assert {name: job["needs"] for name, job in jobs().items() if "needs" in job} == NEEDS


def test_the_checks_of_a_release_are_those_that_run_anywhere():
    assert [step["run"] for step in jobs()["test"]["steps"] if "run" in step] == ["bash .ci/run"]
    (check,) = [step["run"] for step in jobs()["build"]["steps"] if "run" in step]
    assert check == 'make release-check TAG="$GITHUB_REF_NAME" SOURCE="$GITHUB_SERVER_URL/$GITHUB_REPOSITORY"'
    supported = re.findall(r"Python :: (3\.\d+)", "\n".join(project()["classifiers"]))
    assert jobs()["test"]["strategy"]["matrix"]["python"] == supported


def test_only_packages_go_to_the_index_with_attestations():
    download, publish = jobs()["pypi"]["steps"]
    assert download["with"]["name"] == "packages"
    assert publish["with"] == {"packages-dir": download["with"]["path"], "attestations": True}
    uploads = [step["with"] for step in jobs()["build"]["steps"] if "upload-artifact" in step.get("uses", "")]
    assert {each["name"]: each["path"].split() for each in uploads} == {
        "packages": ["dist/*.tar.gz", "dist/*.whl"],
        "notes": ["dist/*.cdx.json", "dist/notes.md"],
    }


def test_the_image_is_a_stage_of_the_containerfile_and_has_provenance():
    (script,) = [step["run"] for step in jobs()["image"]["steps"] if step.get("id") == "image"]
    stage = re.search(r"--target (\S+)", script)
    assert stage is not None
    containerfile = (ROOT / "deploy" / "Containerfile").read_text(encoding="utf-8")
    assert re.search(rf"^FROM \S+ AS {stage[1]}$", containerfile, re.MULTILINE)
    assert "--provenance mode=max --sbom=true" in script
    assert jobs()["image"]["steps"][-1]["with"]["push-to-registry"] is True
