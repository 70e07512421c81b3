"""Data files in the lake: what is there, what it belongs to, what may go."""
