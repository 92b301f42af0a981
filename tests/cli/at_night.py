"""The command line of an operator at 06:45 of the night of `night.py`: the clock stands still, all else is as it is."""

import functools
import sys

from treadle.cli import command, times
from treadle.cli.main import main
from treadle.testing.clock import BEGIN

NOW = BEGIN + 405 * 60_000_000


if __name__ == "__main__":
    times.now = lambda: NOW / 1e6
    command.Runner = functools.partial(command.Runner, clock=lambda: NOW)  # type: ignore[misc]
    sys.exit(main())
