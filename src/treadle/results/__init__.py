"""The results that callers see: tasks, rows, pending requests, problems, and their public form."""
