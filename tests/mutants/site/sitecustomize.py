"""Lets the processes that tests start import what their mutation run does: Python runs this at its start."""

import sys
from pathlib import Path

root = str(Path(__file__).parents[3])
sys.path.insert(0, root)
try:
    from tests.mutants.sources import install
finally:
    sys.path.remove(root)
install()
