"""The driver side of Spark: start a session and run tasks."""
