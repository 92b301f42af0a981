"""Agents as data, and each kind of worker as one pure `decide`."""
