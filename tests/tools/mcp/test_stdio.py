"""Programs that are found by a mark in their environment, wherever they went."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.tools.test_processes import assert_gone, is_running
from treadle.tools.mcp.stdio import VARIABLE, kill_marked, new_mark

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/environ").exists(), reason="environments are not shown here"
)

DAEMON = """
import os, sys, time
if os.fork():
    os._exit(0)
os.setsid()
if os.fork():
    os._exit(0)
print(os.getpid(), flush=True)
os.closerange(0, 3)
time.sleep(300)
"""

DRIVER = """
import os, subprocess, sys
from treadle.tools.mcp.stdio import VARIABLE
from treadle.tools.processes import watcher
watcher.add_mark(sys.argv[1])
command, env = [sys.executable, "-c", sys.argv[2]], {VARIABLE: sys.argv[1]}
print(subprocess.run(command, env=env, stdout=subprocess.PIPE, check=True).stdout.decode(), flush=True)
os.kill(os.getpid(), 9)
"""


def daemon(mark: str) -> int:
    """Start a program that detaches itself, and return its process."""
    started = subprocess.run(
        [sys.executable, "-c", DAEMON], env={VARIABLE: mark}, capture_output=True, check=True
    )
    return int(started.stdout)


def test_a_program_that_detached_itself_is_killed_and_no_other() -> None:
    mark, other = new_mark(), new_mark()
    ours, theirs = daemon(mark), daemon(other)
    assert kill_marked(mark) >= 1  # the program between them may just be ending
    assert_gone([ours])
    assert is_running(theirs)
    assert kill_marked(other) >= 1
    assert_gone([theirs])


def test_a_program_that_detached_itself_ends_with_a_driver_that_is_killed() -> None:
    mark = new_mark()
    driver = subprocess.run([sys.executable, "-c", DRIVER, mark, DAEMON], stdout=subprocess.PIPE, check=False)
    assert driver.returncode == -9
    assert_gone([int(driver.stdout)])


def test_looking_through_all_processes_takes_no_time_that_is_felt() -> None:
    began = time.process_time()
    assert kill_marked(new_mark()) == 0
    assert time.process_time() - began < 1
    assert VARIABLE not in os.environ


RESTLESS = """
import os, sys, time
for _ in range(6):
    if os.fork():
        os._exit(0)
    os.setsid()
    time.sleep(0.002)
open(sys.argv[1], "w").write(str(os.getpid()))
time.sleep(300)
"""


def test_a_program_that_is_just_detaching_itself_is_found(tmp_path: Path) -> None:
    for number in range(5):
        mark, note = new_mark(), tmp_path / str(number)
        command = [sys.executable, "-S", "-c", RESTLESS, str(note)]
        subprocess.Popen(command, env={VARIABLE: mark}).wait()
        kill_marked(mark)
        time.sleep(0.1)
        if note.exists() and (pid := note.read_text()):  # else it did not come so far
            assert_gone([int(pid)])
