"""Layers around models. Each layer is a `Model` itself, holds no state of a task and never waits to retry."""
