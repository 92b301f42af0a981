"""Open a schema of a PostgreSQL database: address, session settings, format, migrations.

A password is in the connection parameters alone: neither an address as text nor an error shows it.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import field
from functools import cache
from importlib import resources
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import psycopg
from psycopg import sql
from psycopg.abc import PQGen
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import tuple_row

from treadle.core.data import frozen
from treadle.errors import ConfigurationError, StoreError, StoreFormatError, StoreUnavailable
from treadle.stores.processes import HEARTBEATS_PER_LEASE, LEASE_SECONDS, checked_lease

V = TypeVar("V")

SCHEMES: Final = ("postgresql", "postgres")
SCHEMA: Final = "treadle"
LOCK_SECONDS: Final = (0.1, 10.0)
"""Minimum and maximum of the seconds that a statement waits for a lock; a heartbeat may wait for the statement."""

IDLE_SECONDS: Final = (0.5, 30.0)
"""Minimum and maximum of the seconds after which the server ends a transaction of a silent writer."""

ANSWER_SECONDS: Final = 30.0
"""Seconds for which a server may leave a statement unanswered, unless the URL sets another number."""

CLOSING_SECONDS: Final = 5.0
"""The same number while the store is being closed."""

LONG: Final = 10
"""Factor by which deletions, imports and migrations may take longer."""

MIGRATE_SECONDS: Final = 30.0
"""Seconds for which to try to create or migrate tables that other processes are creating too."""

AWAY_SECONDS: Final = (0.05, 1.0)
"""Minimum and maximum of the seconds between two tries to reach a server that does not answer."""

DEFAULTS: Final = {
    "connect_timeout": "5",
    "keepalives_idle": "15",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
    "target_session_attrs": "read-write",  # after a failover the first server found may be the old primary
}
_SECRET: Final = ("password", "sslpassword", "oauth_client_secret")
SESSION_FAULTS: Final = (
    "57P01",
    "57P02",
    "57P03",
    "57P05",
    "25P03",
    "25006",
)  # shut down, cut, became read-only
_PASSING: Final = (
    *("starting up", "not yet accepting connections", "shutting down", "terminating connection"),
    *("too many clients", "too many connections", "connection slots are reserved"),
    *("closed the connection unexpectedly", "closed unexpectedly", "reset by peer", "connection is lost"),
)


_CROWDED: Final = ("40001", "40P01", "23505", "42P06", "42P07", "55P03", "57014")
"""The errors of concurrent migrations: serialization, deadlock, duplicates, locks, and waits for them."""


class Unanswered(psycopg.OperationalError):
    """The server left a statement unanswered for too long; the session is closed."""


class BoundedConnection(psycopg.Connection[tuple[Any, ...]]):
    """A session that waits for each answer for a bounded time, since a network may drop packets without an error.

    `answer_seconds` returns the seconds for which the server may leave a statement unanswered now. After that the
    statement ends with `Unanswered` and the session is closed. The outcome of the statement is not known.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.answer_seconds: Callable[[], float] = lambda: ANSWER_SECONDS
        self.is_patient = False
        """whether the statements that follow may take long"""

    def wait(self, gen: PQGen[V], interval: float = 0.1, *more: Any, **options: Any) -> V:
        """Wait for an answer; raise `Unanswered`."""
        try:
            return super().wait(self._bounded(gen), interval, *more, **options)
        except Unanswered:
            self.close()
            raise

    def _bounded(self, gen: PQGen[V]) -> PQGen[V]:
        """Forward a generator of psycopg, which is sent 0 for each interval without news."""
        last_answer = time.monotonic()
        try:
            awaited = next(gen)
            while True:
                ready = yield awaited
                if ready:
                    last_answer = time.monotonic()
                elif time.monotonic() - last_answer > (
                    seconds := self.answer_seconds() * (LONG if self.is_patient else 1)
                ):
                    raise Unanswered(f"the server has not answered for {seconds:g} seconds")
                awaited = gen.send(ready)
        except StopIteration as end:
            return end.value


@frozen
class Address:
    """A schema of a database, and the parameters of a connection to it.

    Args:
        url: the address without secrets.
        schema: the schema of the tables.
        lease_seconds: seconds for which a driver counts as alive after a heartbeat.
        answer_seconds: seconds for which the server may leave a statement unanswered.
        parameters: connection parameters of libpq, including the password.
    """

    url: str
    schema: str
    lease_seconds: float
    answer_seconds: float
    parameters: dict[str, Any] = field(repr=False)

    def conninfo(self, name: str) -> str:
        """Return the connection string of a session of this name, including the password."""
        return make_conninfo(**{**self.parameters, "application_name": name})

    @property
    def lock_seconds(self) -> float:
        """Seconds to wait for a lock before a heartbeat is due."""
        return _within(LOCK_SECONDS, self.lease_seconds / HEARTBEATS_PER_LEASE)

    @property
    def idle_seconds(self) -> float:
        """Seconds for which a transaction may idle; its locks are free before other drivers take over its tasks."""
        return _within(IDLE_SECONDS, self.lease_seconds / 2)

    @property
    def channel(self) -> str:
        """The channel on which the writers of this schema notify each other."""
        return f"treadle {self.schema}"


def address(url: str, schema: str | None = None, lease_seconds: float | None = None) -> Address:
    """Parse a `postgresql://` URL.

    Its parameters `schema`, `lease` and `answer_timeout` belong to Treadle, all others to libpq.

    Raises:
        ConfigurationError: it is not a PostgreSQL URL, or the name of the schema or a number of seconds is invalid.
    """
    try:
        parts = urlsplit(url)
        query = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
        if parts.scheme not in SCHEMES or parts.netloc.count("@") > 1 or parts.fragment:
            raise ValueError
        options = {key: value for key, value in query if key in ("schema", "lease", "answer_timeout")}
        query = [(key, value) for key, value in query if key not in options]
        parameters = conninfo_to_dict(_join(parts.netloc, parts.path, query))
        if not all(port.isdigit() for port in str(parameters.get("port") or "0").split(",") if port):
            raise ValueError
    except (ValueError, psycopg.Error):
        # The exact error would repeat parts of the URL, and any of them may be a password.
        raise ConfigurationError(
            "store: this is not a PostgreSQL URL: write postgresql://user:password@host:port/database?schema=name, "
            "with special characters of a password as %40 and the like"
        ) from None
    schema = schema or options.get("schema", SCHEMA)
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_$]{0,47}", schema) or schema.lower().startswith("pg_"):
        raise ConfigurationError(
            f"store: {schema!r} cannot be a schema: up to 48 letters, digits and _, not beginning with a digit or pg_"
        )
    try:
        lease = float(options.get("lease", LEASE_SECONDS)) if lease_seconds is None else lease_seconds
    except ValueError:
        raise ConfigurationError(
            f"store: lease must be a number of seconds, got {options['lease']!r}"
        ) from None
    answer = _answer_seconds(options.get("answer_timeout"))
    user, at, host = parts.netloc.rpartition("@")
    safe_url = [pair for pair in query if pair[0] not in _SECRET] + (
        [("schema", schema)] if schema != SCHEMA else []
    )
    clean = _join(user.partition(":")[0] + at + host, parts.path, safe_url)
    lease = checked_lease(lease, "store: lease")
    return Address(
        clean, schema, lease, answer, {**DEFAULTS, **{k: v for k, v in parameters.items() if v is not None}}
    )


def _answer_seconds(value: str | None) -> float:
    try:
        seconds = ANSWER_SECONDS if value is None else float(value)
        if not 0.1 <= seconds <= 3600:
            raise ValueError
    except ValueError:
        raise ConfigurationError(
            f"store: answer_timeout must be 0.1 to 3600 seconds, got {value!r}"
        ) from None
    return seconds


def _join(netloc: str, path: str, query: list[tuple[str, str]]) -> str:
    return f"postgresql://{netloc}{path}" + (
        "?" + urlencode(query, quote_via=quote, safe="/") if query else ""
    )


def connect(to: Address, name: str, *, for_reading: bool = False) -> BoundedConnection:
    """Open a session with all settings that a store needs.

    Raises:
        StoreUnavailable: the server is unreachable, refuses, or would lose acknowledged commits.
    """
    try:
        connection = BoundedConnection.connect(to.conninfo(name), autocommit=True, row_factory=tuple_row)
    except psycopg.Error as error:
        raise unavailable(to, error) from error
    connection.answer_seconds = lambda: to.answer_seconds
    try:
        settle(to, connection, for_reading=for_reading)
    except BaseException:
        connection.close()
        raise
    return connection


def settle(to: Address, connection: BoundedConnection, *, for_reading: bool = False) -> None:
    """Configure a session, and check the settings of the server."""
    idle = IDLE_SECONDS[1] if for_reading else to.idle_seconds  # a reader holds no locks that a writer needs
    settings = {
        "search_path": f'"{to.schema}"',
        "client_encoding": "UTF8",
        "statement_timeout": _statement_timeout(to),
        "lock_timeout": str(round(min(to.lock_seconds, to.answer_seconds / 2) * 1_000)),
        "idle_in_transaction_session_timeout": str(round(idle * 1_000)),
        "default_transaction_read_only": "on" if for_reading else "off",
    }
    try:
        calls = sql.SQL(", ").join(
            [sql.SQL("set_config({}, {}, false)").format(k, v) for k, v in settings.items()]
        )
        connection.execute(sql.SQL("SELECT {}").format(calls))
        if for_reading:
            return
        cursor = connection.execute(
            "SELECT current_setting('synchronous_commit'), current_setting('server_encoding')"
        )
        synchronous, encoding = cursor.fetchone() or ("", "")
    except psycopg.Error as error:
        raise unavailable(to, error) from error
    if synchronous == "off":
        raise StoreUnavailable(
            f"{to.url}: synchronous_commit is off, so a crash of the server would lose acknowledged commits: set "
            "it to on for this role: ALTER ROLE ... SET synchronous_commit = on"
        )
    if encoding != "UTF8":
        raise StoreUnavailable(f"{to.url}: the database is encoded in {encoding}; a store needs UTF8")


def unavailable(to: Address, error: BaseException) -> StoreUnavailable:
    """Return the error for a failed database, with the reason and without secrets."""
    text = re.sub(r"\s*\n\s*", " ", str(error)).strip() or type(error).__name__
    for name in _SECRET:
        if secret := to.parameters.get(name):
            text = text.replace(str(secret), "***")
    if isinstance(error, psycopg.errors.InsufficientPrivilege):
        text = f"{text}: {_owner_advice(to)}"
    return StoreUnavailable(f"{to.url}: {text}")


def as_store_error(to: Address, error: Exception) -> StoreError:
    """Convert an error to an error of the store, if it is not one already."""
    if isinstance(error, StoreError):
        return error
    failure = unavailable(to, error)
    failure.__cause__ = error
    return failure


def _owner_advice(to: Address) -> str:
    """Return the advice for a role that may not write."""
    return (
        "the store is read-only for this role; to write, the schema must belong to it: "
        f"CREATE SCHEMA {to.schema} AUTHORIZATION ..."
    )


def pause(outage: float) -> float:
    """Return the seconds before the next try to reach a server lost `outage` seconds ago: about a tenth of that."""
    return _within(AWAY_SECONDS, outage / 10) * random.uniform(0.5, 1.0)  # noqa: S311


def _within(bounds: tuple[float, float], value: float) -> float:
    return min(bounds[1], max(bounds[0], value))


def is_passing(error: BaseException | None) -> bool:
    """Return whether an error passes by itself, such as that of a starting server."""
    return isinstance(error, psycopg.Error) and (
        error.sqlstate in SESSION_FAULTS or any(text in str(error) for text in _PASSING)
    )


def look(url: str) -> dict[str, Any]:
    """Return the settings of a server and of a store in it, without changes; raise `StoreError`."""
    to = address(url)
    connection = connect(to, "treadle doctor", for_reading=True)
    try:
        version = _format(to, connection)
        _check_not_newer(to, connection, version)
        names = ("server_version", "synchronous_commit", "fsync", "full_page_writes", "max_connections")
        settings = {
            name: connection.execute("SELECT current_setting(%s)", (name,)).fetchone() for name in names
        }
        facts: dict[str, Any] = {name: value[0] for name, value in settings.items() if value is not None}
        facts |= {"schema": to.schema, "exists": version > 0}
        if version:
            tasks = connection.execute("SELECT count(*) FROM tasks WHERE NOT deleted").fetchone()
            facts |= {"format": version, "tasks": tasks[0] if tasks else 0, "older": version < max(_steps())}
        if not _may_write(to, connection, version):
            raise StoreUnavailable(f"{to.url}: this role may not write here: {_owner_advice(to)}")
        return facts
    except psycopg.Error as error:
        raise unavailable(to, error) from error
    finally:
        connection.close()


def _may_write(to: Address, connection: BoundedConnection, version: int) -> bool:
    """Return whether a role may add to a schema's tables, or create them."""
    row = connection.execute(
        """SELECT CASE WHEN %(version)s > 0 THEN has_table_privilege(%(table)s, 'INSERT')
        WHEN EXISTS (SELECT FROM pg_namespace WHERE nspname = %(schema)s)
        THEN has_schema_privilege(%(schema)s, 'CREATE')
        ELSE has_database_privilege(current_database(), 'CREATE') END""",
        {"version": version, "table": f'"{to.schema}".tasks' if version else None, "schema": to.schema},
    ).fetchone()
    return bool(row and row[0])


# ----------------------------------------------------------------------------------------------- format


def migrate(to: Address, connection: BoundedConnection) -> None:
    """Create the schema and its tables, or migrate their format, if necessary.

    Raises:
        StoreFormatError: the schema has other tables, or a format that this version does not know.
        StoreUnavailable: a privilege is missing.
    """
    began = time.monotonic()
    try:
        while True:
            try:
                return _migrate(to, connection)
            except psycopg.Error as error:
                if error.sqlstate not in _CROWDED or time.monotonic() > began + MIGRATE_SECONDS:
                    raise unavailable(to, error) from error
            time.sleep(pause(time.monotonic() - began))
    finally:
        connection.is_patient = False


def _migrate(to: Address, connection: BoundedConnection) -> None:
    steps = _steps()
    if (version := _format(to, connection)) >= max(steps):
        _check_not_newer(to, connection, version)
        return
    with connection.transaction():
        # Not the default of the database: commits of other sessions during a wait for a lock must be seen.
        connection.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
        take_long(to, connection)
        # Another process may take long to create the schema. This process owns no task yet that needs a heartbeat.
        connection.execute("SET LOCAL lock_timeout = '30s'")
        # Held to the end of the transaction, so that only one of several processes creates the schema.
        connection.execute(
            "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (f"migrate {to.channel}",)
        )
        version = _format(to, connection)
        _check_not_newer(to, connection, version)
        if version == 0:
            _make_schema(to, connection)
        for number in range(version + 1, max(steps) + 1):
            connection.execute(steps[number].encode())
            connection.execute("UPDATE treadle_format SET version = %s", (number,))


def take_long(to: Address, connection: BoundedConnection) -> None:
    """Let the statements of a new transaction take longer than others."""
    connection.is_patient = True
    connection.execute("SELECT set_config('statement_timeout', %s, true)", (_statement_timeout(to, LONG),))


def _statement_timeout(to: Address, times: int = 1) -> str:
    """Return the milliseconds after which the server ends a statement by itself, before the session gives up."""
    return str(round(0.8 * times * to.answer_seconds * 1_000))


def _check_not_newer(to: Address, connection: BoundedConnection, version: int) -> None:
    """Raise `StoreFormatError` if a newer version of Treadle wrote tables that this version cannot use."""
    known_version = max(_steps())
    if version <= known_version:
        return
    table = sql.Identifier(to.schema, "treadle_format")
    row = connection.execute(sql.SQL("SELECT opens FROM {}").format(table)).fetchone()
    if (error := outdated(to, version, version if row is None else row[0])) is not None:
        raise error


def outdated(to: Address, version: int, opens: int) -> StoreFormatError | None:
    """Return the error for a schema that needs a newer version.

    Args:
        to: the schema.
        version: the format of its tables.
        opens: the earliest format that a version must know to use them.
    """
    known_version = max(_steps())
    if opens <= known_version:
        return None
    return StoreFormatError(
        f"{to.url} has format {version}, this version of Treadle knows formats up to {known_version}: "
        "upgrade treadle"
    )


def _format(to: Address, connection: BoundedConnection) -> int:
    """The format of the schema's tables; 0 for a schema that is missing or empty."""
    row = connection.execute(
        """SELECT relname = 'treadle_format' FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE nspname = %s ORDER BY 1 DESC LIMIT 1""",
        (to.schema,),
    ).fetchone()
    if row is None:
        return 0
    if not row[0]:
        raise StoreFormatError(
            f"{to.url}: schema {to.schema} holds tables of another program: name another one with ?schema=..."
        )
    # By its full name, so that a schema which this role may not read is refused instead of treated as empty.
    table = sql.Identifier(to.schema, "treadle_format")
    version = connection.execute(sql.SQL("SELECT version FROM {}").format(table)).fetchone()
    return 0 if version is None else int(version[0])


def _make_schema(to: Address, connection: BoundedConnection) -> None:
    row = connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (to.schema,)).fetchone()
    if row is None:
        connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(to.schema)))
    connection.execute("CREATE TABLE treadle_format (version integer NOT NULL)")
    connection.execute("INSERT INTO treadle_format VALUES (0)")


@cache
def _steps() -> Mapping[int, str]:
    """Return the migrations by their resulting format; read once in a process."""
    folder = resources.files("treadle.stores.postgres.migrations")
    return {int(f.name[:4]): f.read_text() for f in folder.iterdir() if f.name.endswith(".sql")}
