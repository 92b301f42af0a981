"""Layers around models, a module each: each is a `Model` itself, holds no state of a task, waits for no retry."""
