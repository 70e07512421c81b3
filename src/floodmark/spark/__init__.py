"""Spark on the driver: its session, its start, and the tasks that run on it."""
