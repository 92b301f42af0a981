"""The client: the verbs of a runner, carried out by a server."""

from treadle.client.client import Client

__all__ = ["Client"]
