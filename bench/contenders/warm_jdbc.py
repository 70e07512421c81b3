"""Run spark.read.jdbc(…).write.parquet(…), as a Spark user would, in a warm session.

    python warm_jdbc.py JAR JDBC_URL USER PASSWORD ROWS

Each line on stdin is a folder in JSON; the answer is a line when the table has been written there.
"""

import json
import sys

from pyspark.sql import SparkSession

PARTITIONS = 8


def main(jar: str, url: str, user: str, password: str, rows: int) -> None:
    """Start Spark, report it, and then write tables."""
    spark = (
        SparkSession.builder.master("local[*]")
        .config("spark.jars", jar)
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "2g")
        .config("spark.sql.parquet.compression.codec", "zstd")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        properties = {"user": user, "password": password, "fetchsize": "10000"}
        properties["driver"] = "org.mariadb.jdbc.Driver"
        table = spark.read.jdbc(
            url,
            "bench.wide",
            column="id",
            lowerBound=1,
            upperBound=rows,
            numPartitions=PARTITIONS,
            properties=properties,
        )
        table.write.mode("overwrite").parquet(json.loads(line))
        print(json.dumps({"code": 0}), flush=True)
    spark.stop()


if __name__ == "__main__":
    jar, url, user, password, rows = sys.argv[1:]
    main(jar, url, user, password, int(rows))
