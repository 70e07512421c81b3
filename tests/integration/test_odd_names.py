"""Tables and columns with long names, or names like paths, sync through both stages."""

from collections.abc import Callable
from pathlib import Path

import duckdb

from pipelines import Pipeline, ask_once

LONG = "受注明細履歴一覧表示用集計結果保存先候補管理台帳補助情報付加価値税率変更適用日別地域"
NAMES = ["..", "../../../a", "a/b\\c", "%2e%2e", LONG, "Case", "case"]


def test_tables_of_any_name_are_synced_and_cleaned(pipeline: Callable[..., Pipeline]) -> None:
    tables = {name: f"{{cursor: id, target_name: t{n}}}" for n, name in enumerate(NAMES)}
    it = pipeline(tables)
    for number, name in enumerate(NAMES):
        ask_once(
            it, f"CREATE TABLE `{name}` (id INT PRIMARY KEY AUTO_INCREMENT, `..` INT, `a/b` INT)"
        )
        ask_once(it, f"INSERT INTO `{name}` VALUES (1, {number}, 2)")
    outside = {path.name for path in it.folder.parent.iterdir()}
    for _ in range(2):  # the second one finds nothing new
        ended = it.call("sync", "-p", "main")
        assert ended.code == 0, ended
    with duckdb.connect(str(Path(it.folder) / "warehouse.duckdb"), read_only=True) as target:
        for number in range(len(NAMES)):
            assert target.execute(f"FROM t{number}").fetchall() == [(1, number, 2)]
    assert it.call("watermark", "validate").code == 0
    for name in NAMES:
        ended = it.call("s3clean", "clean", "-t", f"{it.schema}.{name}")
        assert "removed 1 file" in ended.out, ended
    assert {path.name for path in it.folder.parent.iterdir()} == outside
