"""Targets: the warehouses that the lake's data is loaded into, exactly once."""
