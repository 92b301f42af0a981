"""The tasks of this process: cached, owned, driven to a goal, released, adopted. Over ports alone."""
