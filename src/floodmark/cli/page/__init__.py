"""The status page: what it shows, how it is written to a file, and how it is served."""
