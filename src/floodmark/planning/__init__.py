"""What to read and in which pieces: pure functions of what the source and the lake say."""
