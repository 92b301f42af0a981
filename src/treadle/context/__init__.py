"""Long conversations for models: windows with a token limit, and transcripts for summaries. Pure functions."""
