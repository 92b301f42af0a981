"""Policies, guardrails and limits of tasks."""
