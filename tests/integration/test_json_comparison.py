"""JSON in a target that keeps its meaning: equal by checksum where it is spelled alike."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from checked_rows import Source, Target
from floodmark.embedded.mariadb import PrivateMariaDB
from floodmark.model.row_checksums import CheckedColumn
from floodmark.model.verification import WindowPair
from floodmark.sync.compare_windows import WindowComparison
from floodmark.worker.canonical_json import write_slowly
from pipelines import Pipeline, ask_once
from scenarios import use_test_keys
from servers.mysql import PrivateMySQL
from warehouses import Warehouse, name_target, new_warehouse

New = Callable[..., Pipeline]
FOURS = "extraction: {window_rows: 4, windows_per_chunk: 3}"
PLAIN = '{"id": 1, "note": "a", "price": 1.50}'  # as JSONB spells it
COMPACT = '{"note":"a","id":1}'
LARGE = '{"id": 1e22}'  # JSONB has no exponents

NUMBERS = ["0", "-0", "1", "1.0", "1.00", "10", "1e1", "1E+1", "0.1e2", "-0.0", "1e22", "1e-7"]
NUMBERS += ["0.0000001", "1e400", "9" * 30, "18446744073709551616", "1.000000000000000000001"]
TEXTS = ['""', '"a"', '"A"', '"é"', r'"\u00e9"', r'"\u0000"', r'"a\/b"', '"a/b"', '"😀"', '" "']
TEXTS += [r'"\ud83d\ude00"', r'"\n\t\"\\"', '"1"', '"null"', r'"\u001f"', '"\x7f"', '", "', '": "']
KEYS = ['""', '"a"', '"b"', '"aa"', '"B"', '"é"', r'"\u0061"', '"zzz"']
SPACE = ["", " ", "\n"]


def nested(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    commas = st.sampled_from([",", ", ", " ,"])
    pairs = st.tuples(st.sampled_from(KEYS), st.sampled_from([":", ": "]), inner).map("".join)
    lists = st.tuples(commas, st.lists(inner, max_size=3)).map(lambda it: f"[{it[0].join(it[1])}]")
    objects = st.tuples(commas, st.lists(pairs, max_size=3)).map(
        lambda it: "{" + it[0].join(it[1]) + "}"
    )
    return lists | objects


LEAVES = st.sampled_from([*NUMBERS, *TEXTS, "true", "false", "null"])
DOCUMENTS = st.tuples(
    st.sampled_from(SPACE), st.recursive(LEAVES, nested, max_leaves=6), st.sampled_from(SPACE)
).map("".join)
FIXED = [*NUMBERS, *TEXTS, "null", "[]", "{}", PLAIN, COMPACT, LARGE, "[" * 25 + "]" * 25]
FIXED += ['{"a":1,"a":2}', '{"a": 2}', '{"b": 1, "aa": 2}', '{"aa": 2, "b": 1}', '{"": {"": null}}']


@pytest.fixture
def source(server: PrivateMariaDB) -> Iterator[Source]:
    made = Source(server)
    yield made
    server.execute(f"DROP DATABASE {made.schema}")


def literal(text: str) -> str:
    return f"CONVERT(X'{text.encode().hex()}' USING utf8mb4)" if text else "''"


@pytest.mark.parametrize("kind", ["duckdb", "postgres", "redshift"])
def test_equal_checksums_mean_equal_documents(
    server: PrivateMariaDB,
    source: Source,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
) -> None:
    """Every document of the source against every one of the target."""
    use_test_keys(monkeypatch)
    documents = [*FIXED]

    @settings(
        max_examples=120,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(DOCUMENTS)
    def draw(document: str) -> None:
        documents.append(document)

    draw()
    if isinstance(server, PrivateMySQL):  # it refuses such a number
        documents = [text for text in documents if "1e400" not in text]
    values = [[literal(text)] for text in dict.fromkeys(documents)]
    source.create({"doc": "JSON"}, [["NULL"], *values])
    source.describe()
    rows = source.read()
    with Target(new_warehouse(kind, request, tmp_path), source, rows) as target:
        assert len(target.rows) > len(values) / 2
        (column,) = (c for c in target.checkable() if c.name == "doc")
        forms = [column, CheckedColumn("doc", "shortened")]
        for checked in ([form] for form in forms):
            ours, its = source.checksums(target.ids, checked), target.checksums(checked)
            texts = [row["doc"] for row in target.rows]
            meanings = [None if text is None else write_slowly(text) for text in texts]
            equal = 0
            for one, mine in zip(meanings, ours, strict=True):
                for other, other_sum in zip(meanings, its, strict=True):
                    assert mine != other_sum or one == other, (one, other)
                    equal += mine == other_sum
            assert equal > len(texts) / 3
            alike = [at for at, text in enumerate(texts) if text in (None, PLAIN, "[]", '"a"')]
            assert len(alike) >= 4
            assert all(ours[at] == its[at] for at in alike)


@pytest.fixture
def synced(pipeline: New, request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., Any]:
    """Sync 24 rows in two chunks of three windows, with a document for each row."""

    def sync(document: Callable[[int], str]) -> tuple[Pipeline, Warehouse]:
        it = pipeline({"t": "{cursor: id}"}, settings=FOURS)
        warehouse = new_warehouse("postgres", request, tmp_path)
        name_target(it.config, warehouse.connection)
        ask_once(it, "CREATE TABLE t (id INT PRIMARY KEY, v INT NOT NULL, doc JSON)")
        rows = ", ".join(f"({n}, {n}, {literal(document(n))})" for n in range(1, 25))
        ask_once(it, f"INSERT INTO t VALUES {rows}")
        assert it.call("sync", "-p", "main").code == 0
        return it, warehouse

    return sync


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, bool]]:
    """How many windows were compared by checksum at once, and whether JSON was part of it."""
    seen: list[tuple[int, bool]] = []
    real = WindowComparison._checksums

    def counted(
        self: WindowComparison, checked: Sequence[CheckedColumn], pairs: Sequence[WindowPair]
    ) -> Any:
        seen.append((len(pairs), any(column.name == "doc" for column in checked)))
        return real(self, checked, pairs)

    monkeypatch.setattr(WindowComparison, "_checksums", counted)
    return seen


def compare(it: Pipeline) -> Any:
    ended = it.call("sync", "-p", "main", "--load-only", "--verify-data=all", "--json")
    found = ended.table["verification"]
    assert ended.code == (5 if found["differences"] else 0), ended
    assert found["rows"] == 24
    return found


def test_documents_that_are_spelled_alike_are_not_read(
    synced: Callable[..., Any], asked: list[tuple[int, bool]]
) -> None:
    it, warehouse = synced(lambda n: PLAIN.replace("1,", f"{n},"))
    found = compare(it)
    assert (found["checksum_windows"], found["windows"]) == (6, 6)
    assert found["read_columns"] == []
    assert asked == [(1, True), (2, True), (3, True)]
    for change in ("doc || '{\"id\": 0}'", "NULL", "'null'", "'{}'"):
        warehouse.query(f"UPDATE {{schema}}.t SET doc = {change} WHERE id = 7")
        found = compare(it)
        assert found["differences"] == {"changed": 1}
        assert [row["key"] for row in found["shown"]] == [{"id": "7"}]
        assert found["checksum_windows"] == 5


def test_documents_that_are_spelled_differently_are_read_once(
    server: PrivateMariaDB, synced: Callable[..., Any], asked: list[tuple[int, bool]]
) -> None:
    it, warehouse = synced(lambda _: LARGE if isinstance(server, PrivateMySQL) else COMPACT)
    found = compare(it)
    assert (found["differences"], found["checksum_windows"]) == ({}, 0)
    assert asked == []
    assert found["read_columns"] == ["id", "v", "doc"]
    assert "compared row by row, as the databases spell JSON differently" in found["remarks"]
    warehouse.query("UPDATE {schema}.t SET doc = '{}' WHERE id IN (2, 20)")
    assert compare(it)["differences"] == {"changed": 2}
    warehouse.query("UPDATE {schema}.t SET v = 0 WHERE id = 1")
    assert compare(it)["differences"] == {"changed": 3}
    assert asked == []


def test_a_few_documents_in_each_window_end_the_checksums(
    synced: Callable[..., Any], asked: list[tuple[int, bool]]
) -> None:
    it, warehouse = synced(lambda n: LARGE if n % 4 == 0 else PLAIN)
    assert compare(it)["differences"] == {}
    assert asked == [(1, True), (1, False)]
    warehouse.query("UPDATE {schema}.t SET v = 0 WHERE id = 1")
    del asked[:]
    assert compare(it)["differences"] == {"changed": 1}
    # The first window differs in other columns too; after the first chunk it is known.
    assert asked == [(1, True), (1, False), (2, True)]


def test_one_document_that_is_spelled_differently_costs_one_window(
    synced: Callable[..., Any], asked: list[tuple[int, bool]]
) -> None:
    it, _ = synced(lambda n: LARGE if n == 6 else PLAIN)
    found = compare(it)
    assert (found["differences"], found["checksum_windows"]) == ({}, 5)
    assert asked == [(1, True), (2, True), (3, True)]


def test_checksums_end_where_they_stop_to_help(
    synced: Callable[..., Any], asked: list[tuple[int, bool]]
) -> None:
    it, _ = synced(lambda n: PLAIN if n < 5 else LARGE)
    found = compare(it)
    assert (found["differences"], found["checksum_windows"]) == ({}, 1)
    assert asked == [(1, True), (2, True)]
