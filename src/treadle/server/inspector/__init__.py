"""The inspector: one page that shows tasks, served from the package without a build step."""

from __future__ import annotations

from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parent
"""The folder of the page: its modules, its style, and the vendored libraries."""
