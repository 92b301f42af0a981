"""Dialects: how an agent speaks with a model that writes text and calls no tools."""
