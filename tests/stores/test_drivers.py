"""Whether a driver is taken for alive."""

import os
import subprocess
import sys
import time
from dataclasses import asdict
from typing import Any

from treadle.stores.drivers import alive, lease_from_now, start_of, this_process


def row(**changes: Any) -> tuple[str, str, int, int, int]:
    """What the table holds of this process, with changes."""
    mine = {**asdict(this_process()), "lease": lease_from_now(), **changes}
    return mine["host"], mine["boot"], mine["pid"], mine["started"], mine["lease"]


def test_this_process_is_alive() -> None:
    assert alive(*row())


def test_a_process_that_said_goodbye_is_not() -> None:
    assert not alive(*row(lease=0))


def test_a_lease_does_not_matter_on_the_same_host() -> None:
    assert alive(*row(lease=1))


def test_another_process_under_the_same_id_is_not_the_one_that_was_meant() -> None:
    assert not alive(*row(started=1))
    assert not alive(*row(pid=os.getppid(), started=1))


def test_a_process_that_ended_is_dead_also_before_its_parent_asked_for_it() -> None:
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
    assert alive(*row(host="elsewhere"))
    assert alive(*row(boot="earlier"))
    assert not alive(*row(host="elsewhere", lease=1))


FORKING = """
import os, time
from treadle.stores.drivers import start_of, this_process
this_process()
time.sleep(0.05)  # the kernel counts starts in hundredths of a second
child = os.fork()
if child == 0:
    os._exit(0 if this_process().started == start_of(os.getpid()) else 1)
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_fork_tells_its_own_start_and_not_its_parents() -> None:
    assert subprocess.run([sys.executable, "-c", FORKING], check=False).returncode == 0
