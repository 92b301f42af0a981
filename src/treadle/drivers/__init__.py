"""The tasks of this process: caching, ownership, driving, release and adoption, over ports alone."""
