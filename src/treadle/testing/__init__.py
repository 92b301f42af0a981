"""Helpers for tests of agents, models and stores."""
