"""The table of the verbs: how each is called over HTTP, by servers, clients and commands."""
