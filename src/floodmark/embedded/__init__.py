"""Real servers that Floodmark starts for itself, for tests and the demo."""
