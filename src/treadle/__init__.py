"""Treadle: LLM agents as durable tasks made of steps."""
