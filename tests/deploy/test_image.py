"""The image of `deploy/`, by its Containerfile and the services that run it; no container runtime is needed."""

import re
from typing import Any

import yaml

from tests.deploy.processes import DEPLOY, ROOT

TEXT = (DEPLOY / "Containerfile").read_text(encoding="utf-8")
LINES = [line for line in TEXT.replace("\\\n", " ").splitlines() if line and not line.startswith("#")]


def stages() -> dict[str, list[tuple[str, str]]]:
    """Return the instructions of each stage, by its name; the last stage has none."""
    by_name: dict[str, list[tuple[str, str]]] = {}
    for line in LINES:
        word, _, rest = line.partition(" ")
        if word == "FROM":
            instructions = by_name[rest.partition(" AS ")[2]] = []
        instructions.append((word, re.sub(r"\s+", " ", rest)))
    return by_name


def values(stage: str, word: str) -> list[str]:
    return [rest for name, rest in stages()[stage] if name == word]


def services() -> dict[str, Any]:
    return yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))["services"]


def test_the_base_image_is_pinned_by_its_digest_and_the_only_one():
    bases = {name: values(name, "FROM")[0].partition(" AS ")[0] for name in stages()}
    assert re.fullmatch(r"python:3\.\d+-slim@sha256:[0-9a-f]{64}", bases.pop("base"))
    assert bases == {"build": "base", "treadle": "base", "": "treadle"}


def test_each_package_is_installed_by_its_hash_from_the_lock():
    (run,) = values("build", "RUN")
    assert "pip install --no-cache-dir --require-hashes -r /opt/treadle/build-requirements.txt" in run
    assert "uv sync --locked " in run
    assert "--no-default-groups" in run
    every = [rest for name in stages() for rest in values(name, "RUN")]
    assert [rest for rest in every if re.search(r"pip install|uv (pip|add)|curl|wget|apt", rest)] == [run]


def test_the_extras_of_the_image_are_extras_of_the_package():
    import tomllib

    (run,) = values("build", "RUN")
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
        "optional-dependencies"
    ]
    assert {"server", "postgres"} <= set(re.findall(r"--extra (\S+)", run)) <= set(extras)


def test_the_image_has_the_environment_and_not_the_sources():
    assert values("treadle", "COPY") == ["--from=build /opt/venv /opt/venv"]
    assert values("", "COPY") == ["shop.py access.py ./"]


def test_no_process_of_the_image_is_root_or_writes_into_it():
    assert values("treadle", "USER") == [
        "10001:10001"
    ]  # a number, so that an orchestrator can see that it is not root
    assert values("", "USER") == []
    assert "--uid 10001" in values("treadle", "RUN")[0]
    assert "UV_COMPILE_BYTECODE=1" in values("build", "ENV")[0]
    assert "PYTHONDONTWRITEBYTECODE=1" in values("treadle", "ENV")[0]
    ours = [service for service in services().values() if "build" in service]
    assert len(ours) == 4
    for service in ours:
        assert (service["read_only"], service["tmpfs"], service["cap_drop"]) == (True, ["/tmp"], ["ALL"])
        assert service["security_opt"] == ["no-new-privileges:true"]


def test_a_server_has_the_same_health_check_in_the_image_and_in_compose():
    (check,) = values("treadle", "HEALTHCHECK")
    options, _, command = check.partition(" CMD ")
    assert options == "--interval=5s --timeout=5s"
    expected = {"test": ["CMD", *yaml.safe_load(command)], "interval": "5s", "timeout": "5s"}
    checks = {name: service.get("healthcheck") for name, service in services().items() if "build" in service}
    assert checks == {"server-a": expected, "server-b": expected, "drive-a": None, "drive-b": None}
    assert values("", "HEALTHCHECK") == ["NONE"]  # of a driver, which has no port


def test_the_image_ends_by_the_signal_that_releases_tasks():
    assert values("treadle", "STOPSIGNAL") == ["SIGTERM"]
    assert values("treadle", "ENTRYPOINT") == ['["treadle"]']
