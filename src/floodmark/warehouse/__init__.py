"""Targets: where the lake's data is loaded, exactly once."""
