"""Real servers, started as child processes for tests and the demo."""
