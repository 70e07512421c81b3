"""Object stores with compare-and-set: in memory, in a local folder, in S3."""
