"""The daemon of Spark's workers: which PySpark it imports."""

from pathlib import Path

from floodmark.spark.worker_daemon import without_copies


def test_archives_inside_an_installed_package_are_left_out(tmp_path: Path) -> None:
    package = tmp_path / "site-packages" / "pyspark"
    (package / "python" / "lib").mkdir(parents=True)
    (package / "__init__.py").touch()
    archives = [str(package / "python" / "lib" / name) for name in ("pyspark.zip", "py4j-src.zip")]
    rest = [str(tmp_path / "site-packages"), str(tmp_path / "own.zip"), ""]
    assert without_copies([*archives, *rest]) == rest


def test_archives_of_a_spark_that_is_not_a_package_stay(tmp_path: Path) -> None:
    path = [str(tmp_path / "spark" / "python" / "lib" / "pyspark.zip"), "/usr/lib/python3"]
    assert without_copies(path) == path
