"""Long conversations as models see them: windows with a token limit, transcripts for summaries. Pure functions."""
