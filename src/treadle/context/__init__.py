"""What a model sees of a long conversation: windows of so many tokens, transcripts for summaries. Pure functions."""
