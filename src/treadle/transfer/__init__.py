"""Journals carried from store to store, and verified. Nothing here drives a task."""
