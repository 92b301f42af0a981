"""Limits on what a task may spend."""
