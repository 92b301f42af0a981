"""The pure deciders: what a task does next, from its state. Nothing else is here."""
