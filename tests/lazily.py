"""Packages that take up to a second to import, in every worker: imported when a test first uses them."""

from importlib import import_module
from typing import Any


class Lazy:
    """A module that is imported when it is first asked for something."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith(("_", "pytest")):  # pytest looks at all that stands in a module
            raise AttributeError(attribute)
        return getattr(import_module(self._name), attribute)


anthropic: Any = Lazy("anthropic")
openai: Any = Lazy("openai")
genai: Any = Lazy("google.genai")
errors: Any = Lazy("google.genai.errors")
types: Any = Lazy("google.genai.types")
fastapi: Any = Lazy("fastapi")
schemathesis: Any = Lazy("schemathesis")
schemathesis_checks: Any = Lazy("schemathesis.specs.openapi.checks")
