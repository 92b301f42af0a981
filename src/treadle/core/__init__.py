"""The pure core."""
