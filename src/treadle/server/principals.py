"""Principals with a tenant and scopes, and the functions that find the principal of a request.

A server calls one function, `auth(connection) -> Principal | None`, for every request. Three are included: one token, a
file of hashed tokens, and a header that a trusted proxy sets. Tokens are compared by their SHA-256 digests, in a time
that does not depend on the place where they differ.
"""

from __future__ import annotations

import hashlib
import hmac
import inspect
import os
import secrets
import tomllib
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any, Final, TypeAlias, cast, get_args

from starlette.requests import HTTPConnection

from treadle.core.data import frozen, set_field
from treadle.core.unknown_names import explains_arguments
from treadle.drivers import arguments
from treadle.engine.options import RunOptions
from treadle.errors import ConfigurationError
from treadle.stores.private_files import make_folder, private_token
from treadle.verbs.operation import Scope

ADMIN: Final[frozenset[Scope]] = frozenset(get_args(Scope))
"""Every scope. `admin` allows limits above those of a task; without a tenant also metrics and all tenants."""

ALL: Final[frozenset[Scope]] = ADMIN - {"admin"}
"""Every scope that concerns the tasks of the principal's own tenant."""

MAX_NAME: Final = 200
"""Maximum length of the name of a principal, in characters."""

PEER: Final = "treadle.peer"
"""The key in the scope of a request for the address of its connection, which headers cannot change."""

LEAST_TOKEN: Final = 32
"""Minimum length of a token in a file, in characters."""


@frozen
@explains_arguments
class Principal:
    """The author of a request.

    Args:
        name: recorded as `by` with every action of the principal.
        tenant: the tenant whose tasks the principal sees; "" for the tenant without a name.
        scopes: the permissions of the principal there; by default all except `admin`.
        options: a ceiling for the options of the principal's tasks; the smaller of two limits counts.

    Raises:
        ConfigurationError: the name is not text of 1 to 200 printable characters, or a tenant or scope is not valid.
    """

    name: str
    tenant: str = ""
    scopes: Collection[Scope] = ALL
    options: RunOptions | None = None

    def __post_init__(self) -> None:
        name: Any = self.name
        if type(name) is not str or not 0 < len(name) <= MAX_NAME or not name.isprintable():
            raise ConfigurationError(
                f"Principal: name must be printable text of 1 to {MAX_NAME} characters, got {name!r:.80}"
            )
        if self.tenant != "":
            arguments.tenant("Principal: tenant", self.tenant)
        unknown = _unknown_scopes(self.scopes)
        if unknown:
            raise ConfigurationError(
                f"Principal: scopes must be some of {', '.join(get_args(Scope))}, got {unknown[0]!r:.80}"
            )
        set_field(self, "scopes", frozenset(self.scopes))
        if self.options is not None and not isinstance(self.options, RunOptions):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(f"Principal: options must be RunOptions, got {self.options!r:.80}")

    @property
    def is_operator(self) -> bool:
        """Whether the principal may see the whole process and act in every tenant: it has `admin` and no tenant."""
        return not self.tenant and "admin" in self.scopes


def _unknown_scopes(scopes: Any) -> list[Any]:
    """Return the values that are no scopes; a value that cannot hold scopes is itself one of them."""
    if not isinstance(scopes, Collection) or isinstance(scopes, (str, Mapping)):
        return [scopes]
    return [each for each in cast("Collection[Any]", scopes) if each not in get_args(Scope)]


Authenticate: TypeAlias = Callable[[HTTPConnection], "Principal | Awaitable[Principal | None] | None"]
"""Returns the principal of a request, or None if it names none; may be async."""


async def authenticated(auth: Authenticate, connection: HTTPConnection) -> Principal | None:
    """Return the principal of a request.

    Raises `ConfigurationError` if the function returns any value other than a principal or None.
    """
    principal: Any = auth(connection)
    if inspect.isawaitable(principal):
        principal = await principal
    if principal is not None and not isinstance(principal, Principal):
        raise ConfigurationError(f"auth must return a Principal or None, got a {type(principal).__name__}")
    return principal


def bearer_token(connection: HTTPConnection) -> str | None:
    """Return the token of the header `Authorization: Bearer`; None without such a header, or with several."""
    values = connection.headers.getlist("authorization")
    if len(values) != 1:
        return None
    kind, _, token = values[0].partition(" ")
    return token.strip() if kind.lower() == "bearer" else None


def digest_of(token: str) -> str:
    """Return the SHA-256 digest of a token, as in files of hashed tokens: 64 hexadecimal digits."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


@explains_arguments
class OneToken:
    """Accepts one token, such as that of `.treadle/server-token`.

    Args:
        token: the token.
        principal: its holder; by default `local`, with every scope.
    """

    def __init__(self, token: str, principal: Principal | None = None) -> None:
        if type(token) is not str or len(token) < LEAST_TOKEN:
            raise ConfigurationError(f"a token must be text of at least {LEAST_TOKEN} characters")
        self._token, self._digest = token, digest_of(token)
        self._principal = Principal("local", scopes=ADMIN) if principal is None else principal

    def __call__(self, connection: HTTPConnection) -> Principal | None:
        """Return the holder of the token if a request has it."""
        token = bearer_token(connection)
        if token is None or not hmac.compare_digest(digest_of(token), self._digest):
            return None
        return self._principal

    def secret_values(self) -> frozenset[str]:
        """Return the token, which is masked in everything that tasks record and the server sends."""
        return frozenset((self._token,))


@explains_arguments
class TokenFile:
    """Accepts the tokens of a file, which holds their digests and is read again when it changes.

        [[token]]
        name = "ci"
        sha256 = "..."               # of the token: treadle.server.digest_of(token)
        tenant = "acme"              # by default the store's own
        scopes = ["read", "run"]     # by default all but admin

    Args:
        path: the file, in TOML.

    Raises:
        ConfigurationError: the file cannot be read, or an entry is not valid; the error names it.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self._read: tuple[int, int] | None = None
        self._principals: dict[str, Principal] = {}
        self._refresh()

    def __call__(self, connection: HTTPConnection) -> Principal | None:
        """Return the holder of the token in a request."""
        token = bearer_token(connection)
        if token is None:
            return None
        self._refresh()
        # The digests are the keys, so the place where two of them differ reveals nothing about a token.
        return self._principals.get(digest_of(token))

    def _refresh(self) -> None:
        try:
            found = self._path.stat()
            if (found.st_mtime_ns, found.st_ino) != self._read:
                document = tomllib.loads(self._path.read_text(encoding="utf-8"))
                self._principals = _principals(document, self._path)
                self._read = found.st_mtime_ns, found.st_ino
        except (OSError, ValueError) as error:
            # An unreadable file accepts no token: its older contents may hold tokens that were revoked.
            self._principals, self._read = {}, None
            raise ConfigurationError(f"the tokens in {self._path} cannot be read: {error}") from None


def _principals(document: Mapping[str, Any], path: Path) -> dict[str, Principal]:
    principals: dict[str, Principal] = {}
    entries: Any = document.get("token")
    if set(document) - {"token"} or not isinstance(entries, list):
        raise ConfigurationError(f"{path} must hold [[token]] tables and nothing else")
    for number, entry in enumerate(cast("list[Any]", entries), 1):
        where = f"{path}: token {number}"
        fields = dict(cast("dict[str, Any]", entry)) if isinstance(entry, dict) else {}
        digest = fields.pop("sha256", None)
        if not isinstance(digest, str) or len(digest) != 64 or set(digest.lower()) - set("0123456789abcdef"):
            raise ConfigurationError(f"{where}: sha256 must be 64 hexadecimal digits")
        if unknown := set(fields) - {"name", "tenant", "scopes"}:
            raise ConfigurationError(f"{where} has no field {unknown.pop()!r:.80}")
        try:
            principals[digest.lower()] = Principal(**fields)
        except (TypeError, ConfigurationError) as error:
            raise ConfigurationError(f"{where}: {error}") from None
    return principals


class ProxyHeader:
    """Trusts the header that a reverse proxy sets to the name of the signed-in user.

    The header counts only on connections from the proxy itself. The proxy must remove it from the requests of clients.

    Args:
        header: the name of the header, such as `X-Forwarded-User`.
        proxies: the addresses of the proxies: networks such as `10.0.0.0/8`, or single addresses.
        scopes: the permissions of these users.
        tenant: the header with the user's tenant; None for the store's own tenant.

    Raises:
        ConfigurationError: an address is not valid or is missing.
    """

    def __init__(
        self,
        header: str,
        proxies: Sequence[str],
        *,
        scopes: Collection[Scope] = ALL,
        tenant: str | None = None,
    ) -> None:
        self._header, self._tenant = header, tenant
        try:
            self._proxies = [ip_network(each) for each in proxies] if not isinstance(proxies, str) else []
        except ValueError as error:
            raise ConfigurationError(f"ProxyHeader: proxies: {error}") from None
        if not self._proxies:
            raise ConfigurationError("ProxyHeader: proxies must list the addresses of the proxies")
        self._scopes = Principal("-", scopes=scopes).scopes

    def __call__(self, connection: HTTPConnection) -> Principal | None:
        """Return the user that the proxy names."""
        peer = connection.scope.get(PEER, connection.client)  # `client` may come from `X-Forwarded-For`
        try:
            address = ip_address(peer[0]) if peer is not None else None
        except ValueError:
            return None
        if address is None or not any(address in network for network in self._proxies):
            return None
        names = connection.headers.getlist(self._header)
        tenants = connection.headers.getlist(self._tenant) if self._tenant is not None else [""]
        if len(names) != 1 or len(tenants) != 1:
            return None
        try:
            return Principal(names[0], tenants[0], self._scopes)
        except ConfigurationError:
            return None


def token_in(path: str | os.PathLike[str], *, new: bool = False) -> str:
    """Return the token in a file. A missing file is created with a random token, readable by its owner alone.

    Args:
        path: the file.
        new: replace the token of an existing file.

    Raises:
        ConfigurationError: other users may read the file, it belongs to another user, or it holds no token.
    """
    file = Path(path)
    if new:
        file.unlink(missing_ok=True)
    make_folder(file.parent)
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return _kept_token(file)
    with os.fdopen(descriptor, "w", encoding="ascii") as opened:
        token = secrets.token_urlsafe(32)
        opened.write(f"{token}\n")
    return token


def _kept_token(file: Path) -> str:
    token = private_token(file, "name another file, or delete it")
    if len(token) < LEAST_TOKEN or not token.isascii() or not token.isprintable():
        raise ConfigurationError(
            f"{file} holds no token of at least {LEAST_TOKEN} characters: delete it, and the server makes a new token"
        )
    return token
