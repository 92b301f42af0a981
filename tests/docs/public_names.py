"""The public names of the package, each of which a page of docs/reference/ describes."""

import pkgutil
import re
from collections.abc import Iterable
from importlib import import_module

import treadle.testing
from tests.docs.tables import DOCS

MODULES = ("treadle", "treadle.models", "treadle.events", "treadle.telemetry", "treadle.tools")
PROGRAMS = {"treadle.testing.auditor"}
"""Modules below `treadle.testing` that are run, not imported: the guide says how."""


def public_names() -> list[str]:
    """Return every public name: those in the `__all__` of a module, and the modules of `treadle.testing`.

    What has two names, as `treadle.ScriptedModel` has, is here by its first.
    """
    below = pkgutil.iter_modules(treadle.testing.__path__, "treadle.testing.")
    names: dict[int, str] = {}
    for module in [*MODULES, *(found.name for found in below)]:
        home = import_module(module)
        exported = getattr(home, "__all__", None)
        if exported is None and module not in PROGRAMS:
            names[id(home)] = module
        for name in exported or ():
            names.setdefault(id(getattr(home, name)), f"{module}.{name}")
    return list(names.values())


def undescribed(names: Iterable[str], described: Iterable[str]) -> list[str]:
    """Return the names that no page describes; a package is described by the modules below it."""
    known = set(described)
    return [
        name
        for name in names
        if name not in known and not any(other.startswith(f"{name}.") for other in known)
    ]


def names_in_the_reference() -> set[str]:
    """Return every name whose docstring a page of the reference asks for."""
    pages = (path.read_text(encoding="utf-8") for path in sorted((DOCS / "reference").rglob("*.md")))
    return {name for page in pages for name in re.findall(r"^::: ([\w.]+)$", page, re.MULTILINE)}
