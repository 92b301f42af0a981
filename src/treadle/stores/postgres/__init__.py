"""A journal store in a schema of a PostgreSQL database."""

from treadle.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
