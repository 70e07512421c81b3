"""Code that runs on Spark workers: read a window, convert, write Parquet, compare."""
