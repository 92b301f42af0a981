"""Mask the keys of a request in the logs of SDKs and HTTP libraries."""

from __future__ import annotations

import logging
from typing import Final

from treadle.core.redaction import hidden_in_logs

_LOGGERS: Final = ("anthropic", "google_genai", "httpcore", "httpcore2", "httpx", "httpx2", "openai")
"""Packages that log requests and responses: at DEBUG with headers, at INFO with addresses."""


class _HidesKeys(logging.Filter):
    """Masks the keys of a request in the logs of HTTP libraries and SDKs."""

    def filter(self, record: logging.LogRecord) -> bool:
        try:
            message = record.getMessage()
        except Exception:  # noqa: BLE001  a bad log record must not end the request
            message = f"(a record of {record.name} that cannot be formatted)"
        if record.exc_info:
            message = f"{message}\n{_FORMATTER.formatException(record.exc_info)}"
        record.msg = hidden_in_logs.get().hide(message, deep=True)
        record.args = record.exc_info = None
        return True


_FORMATTER: Final = logging.Formatter()
_hides_keys: Final = _HidesKeys()


def watch_logs() -> None:
    """Hide keys in the logs of the libraries that send requests to providers.

    A logger's filter does not see the records of its children, so each existing logger gets the filter.
    """
    for name in (*_LOGGERS, *logging.Logger.manager.loggerDict):
        if name.partition(".")[0] in _LOGGERS:
            logging.getLogger(name).addFilter(_hides_keys)
