"""Export, import and verification of journals. Nothing here drives a task."""
