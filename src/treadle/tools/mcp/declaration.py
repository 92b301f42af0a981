"""The declaration of an MCP server: its checked arguments."""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, cast, get_args
from urllib.parse import urlsplit

from treadle.core.messages import Json
from treadle.core.redaction import Secrets, credentials, url_secrets
from treadle.core.unknown_names import explains_arguments
from treadle.errors import ConfigurationError, MissingExtra
from treadle.tools.definitions import checked_effects

Protocol = Literal["auto", "legacy", "2026-07-28"]
"""Protocol versions: with a handshake (2024-11-05 to 2025-11-25), or without one (from 2026-07-28)."""

Transport = Literal["http", "sse"]
"""The transport for a URL: streamable HTTP, or HTTP with server-sent events, as before 2025."""

DEFAULT_PINS: Final = Path(".treadle") / "mcp"
"""The folder for pins, relative to the store's folder.

If the store has no file, it is relative to the working directory.
"""

_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]|_(?!_)){0,31}")


@explains_arguments
class ServerDeclaration:
    """How to start or reach a server, and which of its features an agent uses.

    It takes the arguments of `MCPServer`.
    """

    def __init__(
        self,
        name: str,
        *,
        command: str | None = None,
        args: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        url: str | None = None,
        headers: Mapping[str, str] | None = None,
        auth: Callable[[], str | Awaitable[str]] | Any = None,
        transport: Transport = "http",
        protocol: Protocol = "auto",
        only: Sequence[str] = (),
        effects: Mapping[str, Sequence[str]] | None = None,
        trusted: bool = False,
        trusted_results: Sequence[str] = (),
        resources: bool = True,
        prompts: bool = True,
        roots: Sequence[str | os.PathLike[str]] = (),
        elicitation: bool = True,
        sampling: Callable[[Any], Awaitable[Any]] | None = None,
        pins: str | os.PathLike[str] | None = DEFAULT_PINS,
        start_timeout: float = 60.0,
        call_timeout: float = 60.0,
        unavailable: Literal["wait", "continue"] = "wait",
    ) -> None:
        self._name = name
        _check_installed(name)
        if not isinstance(name, str) or not _NAME.fullmatch(name):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(
                f"MCPServer: name must be at most 32 letters, digits, '-' and single '_', got {name!r:.200}"
            )
        self._check_target(command, args, url, headers, auth)
        if cast("str", transport) == "stdio":
            self._refuse("transport", "is for servers with a url; command= is run and spoken to over stdio")
        self.transport: Transport = self._choice("transport", transport, get_args(Transport))
        if url is None and transport != "http":
            self._refuse("transport", "is for servers with a url")
        self.command, self.args, self.url = command, self._texts("args", args), url
        self.env, self.headers = self._mapping("env", env), self._mapping("headers", headers)
        self.cwd = os.fspath(cwd) if cwd is not None else None
        self.auth, self.sampling = auth, sampling
        self.only = self._texts("only", only)
        self.effects = checked_effects(effects, self._refuse)
        self.roots = tuple(Path(root).absolute() for root in roots)
        self.pins = Path(pins) if pins is not None else None
        self.pins_beside_store = pins is DEFAULT_PINS
        self.protocol: Protocol = self._choice("protocol", protocol, get_args(Protocol))
        self.unavailable = self._choice("unavailable", unavailable, ("wait", "continue"))
        self.trusted, self.resources, self.prompts = trusted, resources, prompts
        self.trusted_results = self._texts("trusted_results", trusted_results)
        self.elicitation = elicitation
        for field in ("start_timeout", "call_timeout"):
            seconds: Any = start_timeout if field == "start_timeout" else call_timeout
            if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 < seconds < 1e6:
                self._refuse(field, f"must be seconds, more than 0, got {seconds!r:.200}")
        self.start_timeout, self.call_timeout = float(start_timeout), float(call_timeout)

    @property
    def name(self) -> str:
        """The prefix of its tools' names, before `__`."""
        return self._name

    def facts(self) -> Json:
        """Return facts that identify this declaration, without the values of `env` and `headers`."""
        address = [self.command, *self.args] if self.url is None else [_without_secrets(self.url)]
        effects: Any = {pattern: list(flags) for pattern, flags in self.effects.items()}
        believed = [self.trusted, *self.trusted_results]
        return [self.name, address, list(self.only), effects, believed, self.resources, self.prompts]

    def secrets(self) -> Secrets:
        """Return the secrets to mask in messages: the values of `env` and `headers`, and secrets in the URL."""
        return Secrets({*self.env.values(), *self.headers.values(), *url_secrets(self.url)})

    def credentials(self) -> set[str]:
        """Return the credentials that a server could send back, and that models must not see."""
        return {*credentials(self.env), *credentials(self.headers), *url_secrets(self.url)}

    def __eq__(self, other: object) -> bool:
        """Return whether both declarations are equal. A runner then keeps one server for both."""
        return isinstance(other, ServerDeclaration) and self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        return hash((self._name, self.command, self.args, self.url))

    def __repr__(self) -> str:
        address = " ".join([self.command, *self.args]) if self.command is not None else self.url or ""
        return f"MCPServer({self.name!r}, {self.secrets().hide(_without_secrets(address))!r})"

    # ----------------------------------------------------------------------------------- arguments

    def _refuse(self, field: str, reason: str) -> Any:
        raise ConfigurationError(f"MCPServer {self._name!r}: {field} {reason}")

    def _check_target(self, command: Any, args: Any, url: Any, headers: Any, auth: Any) -> None:
        if (command is None) == (url is None):
            self._refuse(
                "command",
                "or url must be given, and not both: command='npx', args=[...], or url='https://...'",
            )
        if url is None:
            if not isinstance(command, str) or not command:
                advice = "; its arguments are args=[...]" if isinstance(command, (list, tuple)) else ""
                self._refuse(
                    "command", f"must be the name or path of a program, got {command!r:.200}{advice}"
                )
            words = cast("str", command).split()
            if len(words) > 1 and not Path(cast("str", command)).exists():
                self._refuse(
                    "command",
                    f"must be the name or path of a program, got {command!r:.200}; "
                    f"write command={words[0]!r}, args={words[1:]!r:.200}",
                )
            if headers or auth:
                self._refuse("headers" if headers else "auth", "is for servers with a url")
            return
        parts = urlsplit(url) if isinstance(url, str) else None
        if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
            advice = (
                f"; did you mean 'http://{url:.200}'?" if isinstance(url, str) and "://" not in url else ""
            )
            self._refuse("url", f"must be like 'https://example.com/mcp', got {url!r:.200}{advice}")
        if args:
            self._refuse("args", "is for servers with a command")

    def _texts(self, field: str, values: Any) -> tuple[str, ...]:
        items = tuple(cast("list[Any]", values)) if isinstance(values, (list, tuple)) else ()
        texts = all(isinstance(value, str) and "\0" not in value for value in items)
        if not texts or not isinstance(values, (list, tuple)):
            self._refuse(field, f"must be a list of texts, got {values!r:.200}")
        return items

    def _mapping(self, field: str, values: Any) -> Mapping[str, str]:
        pairs: dict[Any, Any] = dict(values) if isinstance(values, Mapping) else {}  # pyright: ignore[reportUnknownArgumentType]
        texts = all(isinstance(part, str) and "\0" not in part for pair in pairs.items() for part in pair)
        if not texts or (values is not None and not isinstance(values, Mapping)):
            self._refuse(field, "must map names to texts")
        return pairs

    def _choice(self, field: str, value: Any, choices: Sequence[str]) -> Any:
        return (
            value
            if value in choices
            else self._refuse(field, f"must be {' or '.join(choices)}, got {value!r:.200}")
        )


def _check_installed(name: str) -> None:
    from importlib.util import find_spec

    if find_spec("mcp") is None:
        raise MissingExtra("mcp", f"MCPServer {name!r}")


def _without_secrets(url: str) -> str:
    """Return a URL without user, password and query."""
    if "://" not in url:
        return url
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()
