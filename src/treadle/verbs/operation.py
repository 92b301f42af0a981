"""One operation over HTTP: a row of the table, with the types of its verb.

The scopes of principals, and the access that an operation needs.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Mapping
from dataclasses import field
from functools import cache
from inspect import Parameter
from typing import Any, Literal

from treadle.core.data import frozen
from treadle.runner.runner import TaskRunner

Scope = Literal["read", "run", "control", "decide", "edit", "delete", "admin"]

Access = Scope | Literal["operator", "any", "open"]
"""The scope that an operation needs. `operator`: `admin` without a tenant. `any`: any principal. `open`: no principal.
"""


Method = Literal["GET", "POST", "DELETE"]


@frozen(kw_only=True)
class Operation:
    """One operation.

    Args:
        name: its id, unique.
        method: of HTTP.
        path: with the names of its parameters in braces.
        access: its required scope.
        verb: the verb of the runner whose arguments it takes. "": an operation without a verb.
        summary: one sentence.
        query: the names of its arguments in the query.
        body: the names of its arguments in the body. None: it takes no body.
        types: the types of arguments that the verb does not have, or that differ over HTTP.
        result: the type of a response. None: it is empty.
        status: the status of the response.
        waits: the seconds that it waits, unless `Prefer: wait=` says otherwise. None: it never waits.
        repeats: the use of `Idempotency-Key`: the id of a new `task`, or that of a `command`. With `itself`, the key is
            not used, since a repeat changes nothing. None: it takes no key.
        media: the media type of the response.
        streams: whether a client that accepts `text/event-stream` gets an event stream.
        most: the most items of a page that a request can ask for.
        command: the name of its plain command, if any. `cli.plain` makes it.
        drives: whether it may run code of agents and tools, and so belongs in the loop that drives tasks.
    """

    name: str
    method: Method
    path: str
    access: Access
    summary: str
    verb: str = ""
    query: tuple[str, ...] = ()
    body: tuple[str, ...] | None = None
    types: Mapping[str, Any] = field(default_factory=dict[str, Any])
    result: Any = None
    status: int = 200
    waits: float | None = None
    repeats: Literal["task", "command", "itself"] | None = None
    media: str = "application/json"
    command: str = ""
    drives: bool = False
    streams: bool = False
    most: int | None = None
    protocol: str = ""
    needs: tuple[str, ...] = ()

    @property
    def in_path(self) -> tuple[str, ...]:
        """The names of the parameters in the path."""
        return tuple([part[1:-1] for part in self.path.split("/") if part.startswith("{")])

    @property
    def parameters(self) -> Mapping[str, Parameter]:
        """The parameters of its verb, by their names."""
        return _parameters_of(self.verb) if self.verb else {}

    @property
    def checks_head(self) -> bool:
        """Whether `If-Match` becomes `expect=`."""
        return "expect" in self.parameters

    @property
    def brings_files(self) -> bool:
        """Whether its body may be as large as files are."""
        return not {"input", "message", "messages", "params"}.isdisjoint(self.body or ())

    @property
    def turned_by(self) -> str:
        """The argument for the beginning of a page."""
        return "cursor" if "cursor" in self.query else "after"

    def argument_type(self, name: str) -> Any:
        """Return the type of an argument, from the row, as text in a path, or from the verb."""
        if name in self.types:
            return self.types[name]
        return str if name in self.in_path else _types_of(self.verb)[name]

    def is_required(self, name: str) -> bool:
        """Whether a request must have an argument."""
        parameter = self.parameters.get(name)
        return name in (*self.in_path, *self.needs) or (
            parameter is not None and parameter.default is Parameter.empty
        )


def function_of(verb: str) -> Any:
    """Return the function of a verb of the runner."""
    return inspect.unwrap(inspect.getattr_static(TaskRunner, verb))


@cache
def _parameters_of(verb: str) -> dict[str, Parameter]:
    parameters = inspect.signature(function_of(verb)).parameters
    return {name: parameter for name, parameter in parameters.items() if name != "self"}


@cache
def _types_of(verb: str) -> dict[str, Any]:
    return typing.get_type_hints(function_of(verb))
