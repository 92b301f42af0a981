"""What a model sees of a long conversation: windows of so many tokens, and words for summaries. Pure functions."""
