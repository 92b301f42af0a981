"""The rules: how each event changes the state of a task, and what is decided from it."""
