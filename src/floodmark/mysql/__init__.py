"""MySQL: its connections, its catalog, and how each of its types is read."""
