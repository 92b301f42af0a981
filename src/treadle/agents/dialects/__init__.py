"""Dialects: text protocols with models that write text but call no tools."""
