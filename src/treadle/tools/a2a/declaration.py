"""The declaration of a remote agent: its checked arguments, and its tool."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any, Final, cast
from urllib.parse import urlsplit

from treadle.core.messages import Json
from treadle.core.redaction import Secrets, credentials, url_secrets
from treadle.core.tools import ToolSpec
from treadle.core.unknown_names import explains_arguments
from treadle.errors import ConfigurationError, MissingExtra
from treadle.tools.definitions import FLAGS, described, plain_name

WELL_KNOWN: Final = "/.well-known/agent-card.json"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")

PARAMETERS: Final[Json] = {
    "type": "object",
    "properties": {
        "message": {
            "type": "string",
            "description": "The message for the agent, with all that it needs to know.",
        },
        "conversation": {
            "type": "string",
            "description": "The conversation of an earlier answer of this agent, to continue it.",
        },
    },
    "required": ["message"],
    "additionalProperties": False,
}


@explains_arguments
class AgentDeclaration:
    """How to reach an agent, and how models see it. It takes the arguments of `RemoteAgent`."""

    def __init__(
        self,
        url: str,
        *,
        name: str | None = None,
        description: str | None = None,
        headers: Mapping[str, str] | None = None,
        auth: Callable[[], str | Awaitable[str]] | None = None,
        effects: Sequence[str] | None = None,
        repeats: bool | None = None,
        timeout: float = 600.0,
    ) -> None:
        if find_spec("httpx2") is None:
            raise MissingExtra("http", "RemoteAgent")
        self.card_url = _card_url(url)
        self._name = _default_name(self.card_url) if name is None else name
        if not isinstance(self._name, str) or not _NAME.fullmatch(self._name):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(
                f"RemoteAgent: name must be up to 64 letters, digits, '_' and '-', got {self._name!r:.200}"
            )
        self.description = description
        self.headers = self._checked_headers(headers)
        if auth is not None and not callable(auth):
            self._refuse(
                "auth", "must be a function that returns a token, such as lambda: os.environ['TOKEN']"
            )
        self.auth = auth
        self.effects = None if effects is None else self._checked_effects(effects)
        self.repeats = repeats
        seconds: Any = timeout
        if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 < seconds < 1e7:
            self._refuse("timeout", f"must be seconds, more than 0, got {timeout!r:.200}")
        self.timeout = float(timeout)

    @property
    def name(self) -> str:
        """The name of its tool."""
        return self._name

    @property
    def origin(self) -> str:
        """The origin of its answers, for labels."""
        return f"a2a:{self._name}"

    def facts(self) -> Json:
        """Return facts that identify this declaration, without headers and tokens."""
        effects: Any = None if self.effects is None else list(self.effects)
        return ["a2a", self._name, without_secrets(self.card_url), self.description, effects]

    def known_specs(self) -> tuple[ToolSpec, ...] | None:
        """Return the tool if its description is declared; None if the card has it."""
        return None if self.description is None else (self.spec(None, ""),)

    def spec(self, card_name: str | None, card_description: str) -> ToolSpec:
        """Return the tool as models see it.

        Args:
            card_name: the name in the card; None if it was not read.
            card_description: the description in the card.
        """
        foreign = self.description is None
        text = f"The agent {card_name}: {card_description}" if foreign else self.description or ""
        flags = ("sends", "open_world") if self.effects is None else self.effects
        declared: dict[str, Any] = {flag: flag in flags for flag in FLAGS}
        # A second start continues the task of the first one, so it may ask and is restarted after a crash.
        declared["idempotent"] = not declared["read_only"]
        return ToolSpec(
            name=self._name,
            description=described(text),
            parameters=PARAMETERS,
            timeout=self.timeout,
            declared=self.effects is not None,
            origin=self.origin,
            defined_by=self.origin if foreign else "",
            **declared,
        )

    def secrets(self) -> Secrets:
        """Return the secrets to mask in messages: the values of `headers`, and secrets in the URL."""
        return Secrets({*self.headers.values(), *url_secrets(self.card_url)})

    def credentials(self) -> set[str]:
        """Return the credentials that a server could send back, and that models must not see."""
        return {*credentials(self.headers), *url_secrets(self.card_url)}

    def __eq__(self, other: object) -> bool:
        """Return whether both declarations are equal. A runner then keeps one connection for both."""
        return isinstance(other, AgentDeclaration) and self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        return hash((self._name, self.card_url))

    def __repr__(self) -> str:
        return f"RemoteAgent({without_secrets(self.card_url)!r}, name={self._name!r})"

    def _refuse(self, field: str, reason: str) -> Any:
        raise ConfigurationError(f"RemoteAgent {self._name!r}: {field} {reason}")

    def _checked_headers(self, headers: Any) -> Mapping[str, str]:
        if headers is None:
            return {}
        pairs = dict(cast("Mapping[Any, Any]", headers)) if isinstance(headers, Mapping) else None
        if pairs is None or not all(isinstance(part, str) for pair in pairs.items() for part in pair):
            self._refuse("headers", "must map names to texts")
        return cast("dict[str, str]", pairs)

    def _checked_effects(self, effects: Any) -> tuple[str, ...]:
        flags = tuple(cast("Sequence[Any]", effects)) if isinstance(effects, (list, tuple)) else ()
        wrong = next((flag for flag in flags if flag not in FLAGS), None)
        if not isinstance(effects, (list, tuple)) or wrong is not None:
            self._refuse("effects", f"must be a list of some of {', '.join(FLAGS)}, got {effects!r:.200}")
        return flags


def _card_url(url: Any) -> str:
    parts = urlsplit(url) if isinstance(url, str) else None
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigurationError(
            f"RemoteAgent: url must be like 'https://example.com/a2a/shop', got {url!r:.200}"
        )
    if parts.path.endswith(".json"):
        return parts._replace(fragment="").geturl()
    return parts._replace(path=parts.path.rstrip("/") + WELL_KNOWN, fragment="").geturl()


def _default_name(card_url: str) -> str:
    parts = urlsplit(card_url)
    path = parts.path.removesuffix(WELL_KNOWN).strip("/")
    return plain_name(path.rpartition("/")[2] or (parts.hostname or "agent").partition(".")[0])


def without_secrets(url: str) -> str:
    """Return a URL without user, password and query."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="").geturl()
