"""A journal store in one SQLite file: the default."""

from treadle.stores.sqlite.store import SQLiteStore

__all__ = ["SQLiteStore"]
