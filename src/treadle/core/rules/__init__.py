"""The rules: how each event changes the state of a task, and the decisions that follow."""
