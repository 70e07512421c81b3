"""What runs on Spark's workers: read a window, convert, write Parquet, compare."""
