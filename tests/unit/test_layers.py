"""Check that each package imports only what it may."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "src" / "floodmark"

# A package may import itself and the packages named here.
FOUNDATION = {"errors", "model"}
ALLOWED = {
    "errors": set[str](),
    "subprocesses": set[str](),
    "model": {"errors"},
    "config": FOUNDATION,
    "storage": FOUNDATION | {"config"},
    "planning": FOUNDATION,
    "state": FOUNDATION | {"storage"},
    "mysql": FOUNDATION | {"config"},
    "warehouse": FOUNDATION | {"config", "storage"},
    "worker": FOUNDATION | {"config", "storage"},
    "spark": FOUNDATION | {"config", "subprocesses", "worker"},
    "tunnels": FOUNDATION | {"config", "subprocesses"},
    "embedded": {"errors", "subprocesses"},
}
ROOMS = {*ALLOWED, "sync"}
ALLOWED["sync"] = ROOMS - {"embedded"}
ALLOWED["checks"] = ROOMS - {"embedded", "sync"}
ALLOWED["api"] = ROOMS - {"embedded"} | {"checks"}
# The CLI parses, calls the API, confirms and prints.
ALLOWED["cli"] = FOUNDATION | {"api", "config", "embedded", "subprocesses"}
# It is beside the program, and runs it.
ALLOWED["fork_server"] = {"cli", "config", "spark"}

# Libraries that take long to import, and the packages that may know them at all.
HEAVY = {
    "pyspark": {"spark"},
    "connectorx": {"worker", "spark"},
    "pyarrow": {"worker", "spark", "warehouse"},
    "duckdb": {"warehouse", "worker"},
    "psycopg": {"warehouse"},
    "redshift_connector": {"warehouse"},
    "pymysql": {"mysql", "worker", "spark", "embedded"},
    "boto3": {"storage", "config"},
}


def imports(path: Path) -> set[str]:
    """Every module that a file imports, wherever in the file."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            module = node.module or ""
            found |= (
                {module} if module != "floodmark" else {f"floodmark.{a.name}" for a in node.names}
            )
    return found


def package_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


FILES = [
    path for path in sorted(ROOT.rglob("*.py")) if package_of(path) not in ("__init__", "__main__")
]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_imports_only_what_its_package_may(path: Path) -> None:
    package = package_of(path)
    assert package in ALLOWED, f"{package} is not in ALLOWED"
    for module in imports(path):
        top, _, rest = module.partition(".")
        if top == "floodmark" and rest != "__version__":
            other = rest.partition(".")[0]
            assert other == package or other in ALLOWED[package], f"{package} must not know {other}"
        if top in HEAVY:
            assert package in HEAVY[top], f"{package} must not import {top}"


def test_the_walk_sees_imports() -> None:
    assert "pyspark.sql" not in imports(ROOT / "cli" / "main.py")
    assert "floodmark.errors" in imports(ROOT / "cli" / "main.py")
    assert len(FILES) > 30
