"""The scopes of principals, and the access that an operation needs."""

from __future__ import annotations

from typing import Literal

Scope = Literal["read", "run", "control", "decide", "edit", "delete", "admin"]

Access = Scope | Literal["operator", "any", "open"]
"""The scope that an operation needs; `operator`: `admin` of no tenant; `any`: a principal; `open`: not even that."""
