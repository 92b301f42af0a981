"""Mask a server's secrets in the logs of the `mcp` package and its HTTP client."""

from __future__ import annotations

import logging
from typing import Final

from treadle.core.redaction import hidden_in_logs

_LOGGERS: Final = ("httpcore2", "httpx2", "mcp")
"""Packages that log URLs at INFO, and messages at DEBUG."""


class _HidesSecrets(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        if secrets := hidden_in_logs.get():
            message = record.getMessage()
            if record.exc_info:
                message = f"{message}\n{logging.Formatter().formatException(record.exc_info)}"
            record.msg, record.args, record.exc_info = secrets.hide(message, deep=True), None, None
        return True


_hides: Final = _HidesSecrets()


def hide_in_logs() -> None:
    """Mask the secrets of `hidden_in_logs`, from the context of each log record, in the logs of these packages.

    A logger's filter does not apply to records of its children, so each existing logger gets the filter.
    """
    for name in (*_LOGGERS, *logging.Logger.manager.loggerDict):
        if name.partition(".")[0] in _LOGGERS:
            logging.getLogger(name).addFilter(_hides)
