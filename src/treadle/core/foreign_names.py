"""Names of other libraries with their counterparts here, for the text of errors. They never change behaviour.

The hints are those of `foreign_names.ini`. `unknown_names` loads this module with the first error.
"""

from __future__ import annotations

import re
from importlib import resources
from string import Template
from typing import Final

PUBLIC_MODULES: Final = (
    "treadle",
    "treadle.models",
    "treadle.tools",
    "treadle.telemetry",
    "treadle.replay",
    "treadle.server",
    "treadle.errors",
    "treadle.ports",
)
"""The modules in which to look for a name that another module lacks."""


def _sections(text: str) -> dict[str, dict[str, list[str]]]:
    """Return the hints of a file by section and name, with shared texts inserted."""
    sections: dict[str, dict[str, list[str]]] = {}
    rows: dict[str, list[str]] = {}
    hints: list[str] = []
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        if "$" in line:
            shared = {name: texts[0] for name, texts in sections["shared"].items()}
            line = Template(line).substitute(shared)
        if line.startswith("["):
            rows = sections[line[1:-1]] = {}
        elif line.startswith(" "):
            hints.append(line.strip())
        else:
            names, _, hint = line.partition(" =")
            hints = [hint.strip()] if hint else []
            rows |= dict.fromkeys(names.split(), hints)
    return sections


_SECTIONS: Final = _sections(
    resources.files("treadle.core").joinpath("foreign_names.ini").read_text(encoding="utf-8")
)


def _hints(section: str) -> dict[str, str]:
    return {name: hints[0] for name, hints in _SECTIONS[section].items()}


def _by_label(kind: str) -> dict[str, dict[str, str]]:
    """Return the hints of all sections of a kind, by each label of a section."""
    prefix = f"{kind}: "
    return {
        label: _hints(section)
        for section in _SECTIONS
        if section.startswith(prefix)
        for label in section.removeprefix(prefix).split(", ")
    }


ATTRIBUTES: Final = _by_label("attributes")
"""Hints for unknown attributes, by the label of `explains_names` and the name."""

_RUNNER: Final = ATTRIBUTES["Runner"]
_AWAITED: Final = re.compile(r"\(await runner\.(\w+\([^()]*\))\)")
ATTRIBUTES["Client"] = {
    **{name: hint.replace("runner.", "client.") for name, hint in _RUNNER.items()},
    **ATTRIBUTES["Client"],
}
ATTRIBUTES["runner.sync"] = {
    **{
        name: _AWAITED.sub(r"runner.sync.\1", hint).replace("await runner.", "runner.sync.")
        for name, hint in _RUNNER.items()
        if name != "close"
    },
    **ATTRIBUTES["runner.sync"],
}

ASSIGNED: Final = _by_label("assigned")
"""Hints for attributes that cannot be set, by the label of `explains_names` and the name."""

ITEMS: Final = _hints("items")
"""Hints for an item by number, or a loop, of an object that is neither a list nor a dict."""

VERB_ARGUMENTS: Final = {name: tuple(hints) for name, hints in _SECTIONS["arguments of verbs"].items()}
"""Hints for unknown arguments of the verbs of a runner, a handle and `runner.sync`."""

ARGUMENTS: Final = _by_label("arguments")
"""Hints for unknown arguments of constructors and of single verbs, and for options of `@tool`."""

EXAMPLES: Final = _hints("examples")
"""Example calls, where the parameters alone do not explain them."""
