"""The results that callers see: tasks, rows, pending requests, problems, and their public form.

They are read-only and made from the state.
"""
