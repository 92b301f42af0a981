"""Which drivers count as alive."""

import os
import subprocess
import sys
import time
from dataclasses import asdict
from typing import Any

import pytest

from treadle.errors import ConfigurationError
from treadle.stores.processes import alive, lease_from_now, start_of, this_process
from treadle.stores.sqlite import SQLiteStore
from treadle.wiring import open_store


def row(**changes: Any) -> tuple[str, str, int, int, int]:
    """Return the row of this process in `drivers`, with changes."""
    process = {**asdict(this_process()), "lease": lease_from_now(), **changes}
    return process["host"], process["boot"], process["pid"], process["started"], process["lease"]


def test_this_process_is_alive() -> None:
    assert alive(*row())


def test_this_process_has_a_start_time_that_tells_it_from_another_of_the_same_id() -> None:
    assert this_process().started == (start_of(os.getpid()) or 0)
    if sys.platform == "linux":
        assert this_process().started > 0


def test_a_process_that_ended_its_lease_is_not_alive() -> None:
    assert not alive(*row(lease=0))


def test_a_running_process_is_not_alive_once_its_lease_has_passed() -> None:
    assert not alive(*row(lease=lease_from_now(-0.001)))
    assert alive(*row(lease=lease_from_now(0.5)))


@pytest.mark.parametrize("seconds", [0, -1, 0.4, 86_401, float("nan"), float("inf"), True, "60", None])
def test_a_lease_that_cannot_work_is_refused_by_name(seconds: Any) -> None:
    with pytest.raises(ConfigurationError, match="lease_seconds must be"):
        SQLiteStore("journal.db", lease_seconds=seconds)


def test_a_store_url_may_say_how_long_a_lease_is() -> None:
    store = open_store("sqlite:////tmp/journal.db?lease=5")
    assert isinstance(store, SQLiteStore)
    assert (store.lease_seconds, store.url) == (5.0, "sqlite:////tmp/journal.db")
    for url, complaint in {
        "sqlite:///j.db?lease=soon": "number of seconds, got 'soon'",
        "sqlite:///j.db?lease=0": "lease must be 0.5 to 86400 seconds",
        "sqlite:///j.db?leese=5": "not leese",
    }.items():
        with pytest.raises(ConfigurationError, match=complaint):
            open_store(url)


def test_another_process_with_the_same_id_is_not_the_driver() -> None:
    assert not alive(*row(started=1))
    assert not alive(*row(pid=os.getppid(), started=1))


def test_a_zombie_process_counts_as_dead() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    started = start_of(child.pid)
    assert started
    assert alive(*row(pid=child.pid, started=started))
    assert alive(*row(pid=child.pid, started=0))
    child.kill()
    deadline = time.monotonic() + 5
    while alive(*row(pid=child.pid, started=started)) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not alive(*row(pid=child.pid, started=started))
    child.communicate()
    assert not alive(*row(pid=child.pid, started=0))


def test_elsewhere_only_the_lease_can_tell() -> None:
    for elsewhere in ({"host": "elsewhere"}, {"boot": "earlier"}):
        assert alive(*row(**elsewhere))
        assert alive(*row(**elsewhere, pid=2**22 + 1, started=1)), (
            "no process here has that id; one there may"
        )
    assert not alive(*row(host="elsewhere", lease=1))


FORKING = """
import os, time
from treadle.stores.processes import start_of, this_process
this_process()
time.sleep(0.05)  # the kernel counts starts in hundredths of a second
child = os.fork()
if child == 0:
    os._exit(0 if this_process().started == start_of(os.getpid()) else 1)
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_forked_process_has_its_own_start_time() -> None:
    assert subprocess.run([sys.executable, "-c", FORKING], check=False).returncode == 0
