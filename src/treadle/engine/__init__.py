"""Drive one task: the shell around the pure core, over ports alone."""
