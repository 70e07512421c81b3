"""The only room that knows Spark: its session, and the tasks that run on it."""
