"""A notebook, run by a real kernel of Jupyter, with a Spark session of its own."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipelines import Pipeline, ask_once, numbers

BIN = Path(__file__).parents[2] / ".venv-notebook" / "bin"

CELLS = """
import os, sys
from pyspark.sql import SparkSession
import floodmark
os.environ["PYSPARK_PYTHON"] = sys.executable
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
spark = builder.config("spark.authenticate", "true").getOrCreate()
project = floodmark.open_project("floodmark.yml", spark=spark)
print(project.tables)
---
result = project.sync().raise_for_failures()
result.rows, result.loaded_rows
---
try:
    project.sync("no.such_table")
except floodmark.UsageError as error:
    print(error.message)
---
[row.v for row in project.read(project.tables[0]).orderBy("id").limit(3).collect()]
---
project.close()
spark.range(3).count()
"""

# Prints the output of each cell: the text of its streams, and the value of its last line.
RUN = """
import json, sys
import nbformat
from nbclient import NotebookClient
cells = [nbformat.v4.new_code_cell(cell) for cell in open(sys.argv[1]).read().split("---")]
notebook = nbformat.v4.new_notebook(cells=cells)
NotebookClient(notebook, timeout=180, resources={"metadata": {"path": sys.argv[2]}}).execute()
found = []
for cell in notebook.cells:
    outputs = [one for one in cell.outputs if one.get("name") != "stderr"]
    found.append([one["text"] if "text" in one else one["data"]["text/plain"] for one in outputs])
print(json.dumps(found))
"""

pytestmark = [
    pytest.mark.enough_on("mysql"),
    pytest.mark.skipif(
        not (BIN / "jupyter").exists(),
        reason="'make notebook' installs Jupyter's kernel in an environment of its own",
    ),
]


def test_cells_show_values_and_the_session_goes_on(pipeline: Callable[..., Pipeline]) -> None:
    it = pipeline({"t": "{cursor: [update_at, id]}"})
    ask_once(
        it,
        "CREATE TABLE t (id INT PRIMARY KEY, v INT, update_at DATETIME NOT NULL,"
        " KEY by_change (update_at, id))",
    )
    ask_once(it, f"INSERT INTO t SELECT seq, seq * 2, '2025-06-01' FROM {numbers(1, 50)}")
    cells = it.folder / "cells"
    cells.write_text(CELLS)
    ended = subprocess.run(
        [BIN / "python", "-c", RUN, cells, it.folder],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    found: list[Any] = json.loads(ended.stdout.splitlines()[-1])
    assert found[0] == [f"({it.table()!r},)\n"]
    assert found[1] == ["(50, 50)"]
    assert found[2] == ["unknown table 'no.such_table'\n"]
    assert found[3:] == [["[2, 4, 6]"], ["3"]]
