"""The HTTP server: every verb of the runner, and live streams of events, over any number of tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from treadle.errors import MissingExtra

if TYPE_CHECKING:
    from treadle.server.application import Application, app
    from treadle.server.limits import ServerLimits
    from treadle.server.principals import (
        ADMIN,
        ALL,
        OneToken,
        Principal,
        ProxyHeader,
        TokenFile,
        bearer_token,
        digest_of,
        token_in,
    )
    from treadle.server.served_tools import tool_agent

_HOMES = {
    "Application": "application",
    "app": "application",
    "ServerLimits": "limits",
    "tool_agent": "served_tools",
    **dict.fromkeys(
        (
            "ADMIN",
            "ALL",
            "OneToken",
            "Principal",
            "ProxyHeader",
            "TokenFile",
            "bearer_token",
            "digest_of",
            "token_in",
        ),
        "principals",
    ),
}

__all__ = [
    "ADMIN",
    "ALL",
    "Application",
    "OneToken",
    "Principal",
    "ProxyHeader",
    "ServerLimits",
    "TokenFile",
    "app",
    "bearer_token",
    "digest_of",
    "token_in",
    "tool_agent",
]


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            from treadle.core.unknown_names import unknown_in_module

            raise unknown_in_module(__name__, name, __all__)
        from importlib import import_module

        try:
            home = import_module(f"treadle.server.{_HOMES[name]}")
        except ModuleNotFoundError as missing:
            if (missing.name or "").partition(".")[0] != "starlette":
                raise
            raise MissingExtra("server", "The HTTP server") from None
        return getattr(home, name)
