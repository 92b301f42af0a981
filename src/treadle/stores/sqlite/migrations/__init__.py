"""The SQLite format as steps: `NNNN_what.sql` leads from format NNNN - 1 to NNNN; never edited once released."""
