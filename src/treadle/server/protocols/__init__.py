"""Protocols of others, each as a pure fold of events and one route."""
