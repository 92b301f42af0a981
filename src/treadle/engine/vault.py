"""The secrets of one runner: their sources, and the masking of known values.

A tool requests a secret by its name. Only then its source is read: a variable, a file or a function. Only the tool gets
the value. From then on it is masked in journals and logs, and for watchers and models. The same holds for the keys of
the models that the runner's agents use.

    ctx.secret("crm") --> does the tool declare it? --> its source --> known to the vault --> the value
                            SecretRefused               SecretUnavailable

When values are masked:

    results, errors and progress of tools      before they are cut, since half a secret is hard to recognise
    deltas, answers and errors of models       as they arrive, since a secret may be split over two deltas
    every event                                when it is recorded, also one with a person's message
    commands to tasks                          before they are stored in an inbox
"""

from __future__ import annotations

import logging
import os
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import fields
from inspect import iscoroutinefunction
from pathlib import Path
from threading import Lock
from typing import Any, Final, TypeAlias, cast

from treadle.core import events as e
from treadle.core.data import frozen
from treadle.core.model_answer import WITHHELD
from treadle.core.observation import ERROR_CHARS, bounded, whole_error_text
from treadle.core.redaction import LEAST, NO_SECRETS, Secrets, hidden_in_logs
from treadle.core.refused_uses import can_be_called
from treadle.core.unknown_names import near_name
from treadle.errors import ConfigurationError, SecretRefused, SecretUnavailable

KNOWN_MAX: Final = 100
"""Maximum number of masked values. The least recently requested one is forgotten first."""

SecretSource: TypeAlias = str | os.PathLike[str] | Callable[[], str]
"""The source of a secret: `env:NAME`, `file:PATH`, a path, or a function that returns it."""


@frozen
class Source:
    """The source of one secret. `where` names the place for people, without the value."""

    where: str
    read: Callable[[], str | None]


class HidesSecrets(logging.Filter):
    """Masks a vault's known values in records of the application's own logs, for its handlers."""

    def __init__(self, vault: Vault) -> None:
        super().__init__()
        self._vault = vault
        self._formatter = logging.Formatter()

    def filter(self, record: logging.LogRecord) -> bool:
        if self._vault.hide_in is not None:
            message = record.getMessage()
            if record.exc_info:
                message = f"{message}\n{self._formatter.formatException(record.exc_info)}"
            record.msg, record.args = self._vault.known.hide(message, deep=True), None
            record.exc_info = record.exc_text = None
        return True


class Vault:
    """The secrets that the tools of a runner may request, and the values that this process knows.

    It is safe in any thread.

    Args:
        sources: the sources, by the names of the secrets.
        on_known: called when a value becomes known.
    """

    def __init__(
        self, sources: Mapping[str, Source] | None = None, on_known: Callable[[], None] | None = None
    ) -> None:
        self._sources = dict(sources or {})
        self._on_known = on_known
        self._declared: OrderedDict[str, None] = OrderedDict()
        self._keys: frozenset[str] = frozenset()
        self._lock = Lock()
        self.known = NO_SECRETS
        self.hide_in: Callable[[e.Event], None] | None = None
        """masks known values in an event before it is recorded; None as long as no value is known"""

    def __repr__(self) -> str:
        return f"Vault({', '.join(self._sources)})"

    def where(self) -> dict[str, str]:
        """Return the place of each secret's source, by name."""
        return {name: source.where for name, source in self._sources.items()}

    def reveal(self, name: str, tool: str, declared: Collection[str]) -> str:
        """Return the value of a secret to a tool.

        Args:
            name: the name of the secret.
            tool: the name of the tool.
            declared: the names of the secrets that it declares.

        Raises:
            SecretRefused: the tool does not declare it.
            SecretUnavailable: it has no source, or its source does not return it.
        """
        if name not in declared:
            shown = name if isinstance(name, str) and name.isidentifier() else "of this name"  # pyright: ignore[reportUnnecessaryIsInstance]
            raise SecretRefused(
                f"the tool {tool} does not declare the secret {shown}: @tool(secrets=({shown!r},))", name=name
            )
        source = self._sources.get(name)
        if source is None:
            near = near_name(name, self._sources)
            advice = f"; did you mean {near!r}?" if near else ""
            raise SecretUnavailable(
                f"the secret {name!r} has no source: Runner(secrets={{{name!r}: 'env:NAME'}}), or "
                f"[tool.treadle.secrets] in pyproject.toml{advice}",
                name=name,
                where=None,
            )
        value = _read(name, source)
        self.learn(declared=(value,))
        hidden_in_logs.set(self.known)
        return value

    def is_in(self, data: Any) -> bool:
        """Whether JSON data has a known value. A call with such arguments must not be recorded."""
        return self.hide_in is not None and self.known.hide_data(data) != data

    def error_text(self, error: BaseException) -> str:
        """Return the text of an error for a model. Secrets are masked before the text is cut."""
        return self.text(whole_error_text(error))

    def text(self, text: str) -> str:
        """Return a text without secrets, cut to the length of an error. Secrets are masked before the text is cut."""
        if self.hide_in is None:
            return bounded(text, ERROR_CHARS)
        return self.known.hide_and_cut(text, ERROR_CHARS)

    def learn(self, keys: Iterable[str] = (), *, declared: Iterable[str] = ()) -> None:
        """Mask these values from now on.

        Args:
            keys: values that may be secret, such as keys of models. They are masked for ever.
            declared: values that are secret by a declaration.
        """
        more = frozenset(keys)
        with self._lock:
            is_new = not more <= self._keys
            self._keys |= more
            for value in declared:
                is_new |= value not in self._declared
                self._declared[value] = None
                self._declared.move_to_end(value)
                if len(self._declared) > KNOWN_MAX:
                    self._declared.popitem(last=False)
            if not is_new:
                return
            self.known = Secrets(self._keys, self._declared)
            if self.known:
                self.hide_in = self._hide_in
        if self.known and self._on_known is not None:
            self._on_known()

    def _hide_in(self, event: e.Event) -> None:
        """Mask known values in an event. A call whose arguments had one does not run with the rest."""
        secrets = self.known
        for item in fields(event):
            value = getattr(event, item.name)
            hidden = _hidden(secrets, value)
            if hidden is not value:
                setattr(event, item.name, hidden)
                if isinstance(event, e.CallRequested) and item.name == "arguments":
                    event.problem = event.problem or WITHHELD


def _hidden(secrets: Secrets, value: Any) -> Any:
    if isinstance(value, (int, float)) or value is None:
        return value
    return secrets.hide_data(value, deep=isinstance(value, e.Failure))


def _read(name: str, source: Source) -> str:
    """Return the value of a source. Errors are not chained, since they may contain the value or access data."""
    problem, value = "", None
    try:
        value = source.read()
    except Exception as error:  # noqa: BLE001  the text of any error of a source may hold a secret
        problem = f"failed ({type(error).__name__})"
    if not problem and not isinstance(value, str):
        problem = "is not set" if value is None else f"gave a {type(value).__name__}, no text"
    elif not problem and len(cast("str", value)) < LEAST:
        problem = (
            "is empty" if not value else f"is shorter than {LEAST} characters, so that it could not be hidden"
        )
    if problem:
        raise SecretUnavailable(
            f"the secret {name!r}: {source.where} {problem}", name=name, where=source.where
        )
    return cast("str", value)


def checked_sources(label: str, value: Any, folder: Path | None = None) -> dict[str, Source]:
    """Return the sources of secrets by their names.

    Args:
        label: names the argument in errors.
        value: a mapping from names to `SecretSource`.
        folder: the base of relative paths of files. Default: the working directory.

    Raises:
        ConfigurationError: a name or a source is not valid. The text does not repeat the source.
    """
    if not isinstance(value, Mapping):
        raise ConfigurationError(f"{label} must map names to sources such as 'env:CRM_TOKEN'")
    sources: dict[str, Source] = {}
    for name, source in cast("Mapping[Any, Any]", value).items():
        if not isinstance(name, str) or not name.isidentifier():
            raise ConfigurationError(
                f"{label}: a secret is named by letters, digits and '_', got {name!r:.80}"
            )
        sources[name] = _source(f"{label}[{name!r}]", source, folder or Path())
    return sources


def _source(label: str, value: Any, folder: Path) -> Source:
    if isinstance(value, str):
        kind, _, place = value.partition(":")
        if kind == "env" and place:
            return Source(f"the variable {place}", lambda: os.environ.get(place))
        value = Path(place) if kind == "file" and place else value
    if isinstance(value, os.PathLike) and not isinstance(value, str):
        path = folder / cast("os.PathLike[str]", value)
        return Source(f"the file {path}", lambda: path.read_text(encoding="utf-8").rstrip("\r\n"))
    if can_be_called(value) and not isinstance(value, type) and not iscoroutinefunction(value):
        function = cast("Callable[[], str | None]", value)
        return Source(f"the function {getattr(value, '__name__', type(value).__name__)}", function)
    raise ConfigurationError(
        f"{label} must be 'env:NAME', 'file:PATH', a path, or a sync function that returns the secret, and not "
        "the secret itself"
    )


NO_VAULT: Final = Vault()
