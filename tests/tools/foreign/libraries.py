"""The libraries whose tools are taken: heavy, so in a group of their own, with an environment of `make foreign`."""

import os
from importlib.util import find_spec

import pytest

MUST_RUN = "TREADLE_FOREIGN"
"""Set by `make foreign`: what cannot run is then a failure."""


def needs(module: str) -> None:
    """Skip the tests of a module where a library is not installed; by `make foreign` they fail instead."""
    try:
        is_there = find_spec(module) is not None
    except ModuleNotFoundError:
        is_there = False
    if is_there:
        return
    if os.environ.get(MUST_RUN):
        pytest.fail(f"{module} is not installed: uv sync --group foreign", pytrace=False)
    pytest.skip(f"needs {module}, of the group foreign: make foreign", allow_module_level=True)
