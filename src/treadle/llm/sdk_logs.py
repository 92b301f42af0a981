"""What SDKs and HTTP libraries log of a request to a provider, without the keys it is sent with."""

from __future__ import annotations

import logging
from contextvars import ContextVar
from typing import Final

from treadle.core.redaction import NO_SECRETS, Secrets

_LOGGERS: Final = ("anthropic", "google_genai", "httpcore", "httpcore2", "httpx", "httpx2", "openai")
"""Packages whose loggers tell of requests and responses: at DEBUG with headers, at INFO with addresses."""


hidden_in_logs: Final[ContextVar[Secrets]] = ContextVar("hidden_in_logs", default=NO_SECRETS)
"""What the request that is being made must not show in the logs of those that make it."""


class _HidesKeys(logging.Filter):
    """Hides the keys of a request in what HTTP libraries and SDKs log of it."""

    def filter(self, record: logging.LogRecord) -> bool:
        try:
            message = record.getMessage()
        except Exception:  # noqa: BLE001  what cannot be formatted must not end the request it tells of
            message = f"(a record of {record.name} that cannot be formatted)"
        if record.exc_info:
            message = f"{message}\n{_FORMATTER.formatException(record.exc_info)}"
        record.msg = hidden_in_logs.get().hide(message, deep=True)
        record.args = record.exc_info = None
        return True


_FORMATTER: Final = logging.Formatter()
_hides_keys: Final = _HidesKeys()


def watch_logs() -> None:
    """Hide keys in what the libraries log that send requests to providers.

    A filter of a logger does not see what its children log, so each logger there is gets it.
    """
    for name in (*_LOGGERS, *logging.Logger.manager.loggerDict):
        if name.partition(".")[0] in _LOGGERS:
            logging.getLogger(name).addFilter(_hides_keys)
