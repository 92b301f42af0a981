"""The migrations of the PostgreSQL format.

`NNNN_name.sql` leads from format NNNN - 1 to NNNN. Never edit a released one.
"""
