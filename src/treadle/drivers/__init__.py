"""The tasks of this process: caching, ownership, driving, release and adoption. Uses ports alone."""
