"""Tables of every shape, their rows, and what an operator chose to leave out of them.

Each table has a column `n` that no step touches: it tells rows apart whatever becomes of the key.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any

from pipelines import Session, ask

STAMPS = (
    "created_at TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3),"
    " updated_at TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3)"
    " ON UPDATE CURRENT_TIMESTAMP(3), KEY by_change (updated_at), KEY by_birth (created_at)"
)
PAYLOAD = (
    "n INT NOT NULL, KEY ns (n), v INT NULL, w INT NOT NULL, name VARCHAR(20) NULL,"
    " amount DECIMAL(10,2) NULL, seen DATETIME(3) NULL"
)
FIXED = ("id", "n", "region", "number", "code", "created_at", "updated_at")
OLD = datetime(2024, 6, 1)  # noqa: DTZ001 - as MySQL shows it, in UTC
TEXTS = ("", "a", "é", "it's", "NULL", "🎈", "7", " x ")


@dataclass(frozen=True)
class Shape:
    """The key of a table, and the cursors that suit it; the first is configured at the start."""

    key: str
    cursors: tuple[str | list[str] | None, ...]


ID = "id BIGINT NOT NULL AUTO_INCREMENT, PRIMARY KEY (id), KEY ids (id)"
BY_ID: tuple[str | list[str] | None, ...] = (
    ["updated_at", "id"],
    "id",
    "updated_at",
    ["created_at", "id"],
    "none",
)
SHAPES = {
    "keyed": Shape(ID, BY_ID),
    "found": Shape(ID, (None, *BY_ID)),
    "counted": Shape(ID, ("id", *BY_ID)),
    "whole": Shape(ID, ("none", *BY_ID)),
    "composite": Shape(
        "region VARCHAR(8) NOT NULL, number INT NOT NULL, PRIMARY KEY (region, number)",
        ("updated_at", "created_at", "none"),
    ),
    "text": Shape(
        "code VARCHAR(30) NOT NULL, PRIMARY KEY (code)", ("updated_at", "created_at", "none")
    ),
    "keyless": Shape("", ("created_at", "n", "none")),
    "heap": Shape("", ("none", "created_at")),
}


@dataclass(frozen=True)
class Column:
    """A column as the server's catalog shows it."""

    name: str
    kind: str
    whole: str
    nullable: bool
    default: str | None

    @property
    def null(self) -> str:
        """The clause that keeps it as nullable as it is."""
        return "NULL" if self.nullable else "NOT NULL"


@dataclass
class Table:
    """One table, what the configuration says of it, and which rows an operator gave up.

    skipped   rows that a position was set past on purpose; `once_skipped` were so at some time,
              and are again when an operator restores that time's state
    deleted   rows that are gone from the source, which only `cursor: none` sees
    pending   rows of a transaction that is still open
    old       rows from before the latest start that was ever configured
    """

    name: str
    shape: str
    settings: dict[str, Any] = field(default_factory=dict)
    last: int = 0
    names: int = 0
    away: bool = False
    skipped: set[int] = field(default_factory=set)
    once_skipped: set[int] = field(default_factory=set)
    deleted: set[int] = field(default_factory=set)
    pending: set[int] = field(default_factory=set)
    old: set[int] = field(default_factory=set)

    @property
    def cursor(self) -> str | list[str] | None:
        """What the configuration says: columns, `none`, or nothing."""
        return self.settings.get("cursor")

    @property
    def whole(self) -> bool:
        """Whether all of it is read each time."""
        return self.cursor == "none"

    @property
    def cursor_column(self) -> str:
        """The first column of its cursor."""
        found = self.cursor or "updated_at"
        return found if isinstance(found, str) else found[0]

    @property
    def target_name(self) -> str:
        """Its name in the warehouse."""
        return str(self.settings.get("target_name") or self.name)

    def new_name(self) -> str:
        """A name that no column had before."""
        self.names += 1
        return f"x{self.names}"

    def create(self, session: Session) -> None:
        """Create it in the source."""
        key = SHAPES[self.shape].key
        columns = ", ".join(filter(None, [PAYLOAD, key, STAMPS]))
        ask(session, f"CREATE TABLE {self.name} ({columns})")

    def columns(self, session: Session) -> list[Column]:
        """Its columns as they are now."""
        rows = ask(
            session,
            "SELECT column_name, data_type, column_type, is_nullable, column_default"
            " FROM information_schema.columns"
            f" WHERE table_schema = DATABASE() AND table_name = '{self.name}'"
            " ORDER BY ordinal_position",
        )
        return [Column(a, b.lower(), c, d == "YES", e) for a, b, c, d, e in rows]

    def payload(self, session: Session) -> list[Column]:
        """The columns that steps may change in any way."""
        return [column for column in self.columns(session) if column.name not in FIXED]

    def has_key(self, session: Session) -> bool:
        """Whether it has a primary key now."""
        return bool(ask(session, f"SHOW KEYS FROM {self.name} WHERE Key_name = 'PRIMARY'"))

    def sees_updates(self, session: Session) -> bool:
        """Whether its cursor finds rows that were updated."""
        return self.whole or (self.cursor_column == "updated_at" and self.has_key(session))

    def insert(self, session: Session, random: Random, rows: int, *, old: bool = False) -> set[int]:
        """Add rows, and return which; old ones are stamped long ago."""
        payload = self.payload(session)
        known = {column.name for column in self.columns(session)}
        added = set()
        for _ in range(rows):
            self.last += 1
            row: dict[str, Any] = {column.name: value(random, column) for column in payload}
            row |= {"n": self.last, "number": self.last, "code": f"k{self.last}"}
            row["region"] = random.choice(["eu", "us"])
            if old:
                stamp = OLD + timedelta(seconds=self.last)
                row |= {"created_at": stamp, "updated_at": stamp}
            write(session, self.name, {name: v for name, v in row.items() if name in known})
            added.add(self.last)
        return added

    def update(self, session: Session, random: Random, rows: int) -> None:
        """Change rows that no transaction holds."""
        free = sorted(self.present(session) - self.pending)
        payload = self.payload(session)
        for n in random.sample(free, min(rows, len(free))) if payload else ():
            column = random.choice(payload)
            # The index keeps it away from rows that a transaction holds.
            change = f"UPDATE {self.name} FORCE INDEX (ns) SET `{column.name}` = %s WHERE n = {n}"
            with session.cursor() as cursor:
                cursor.execute(change, [value(random, column)])
                if cursor.rowcount:
                    for given_up in (self.skipped, self.once_skipped, self.old):
                        given_up.discard(n)

    def present(self, session: Session, where: str = "TRUE") -> set[int]:
        """The rows that are committed."""
        return {n for (n,) in ask(session, f"SELECT n FROM {self.name} WHERE {where}")}

    def set_past(self, behind: set[int], missing: set[int]) -> None:
        """An operator set a position: rows behind it that the target lacks are not wanted."""
        self.skipped = (self.skipped & behind) | (missing & behind) | self.pending
        self.once_skipped |= self.skipped


def write(session: Session, table: str, row: dict[str, Any]) -> None:
    """Insert one row."""
    names = ", ".join(f"`{name}`" for name in row)
    places = ", ".join(["%s"] * len(row))
    with session.cursor() as cursor:
        cursor.execute(f"INSERT INTO {table} ({names}) VALUES ({places})", list(row.values()))


def value(random: Random, column: Column) -> Any:
    """A value that the column can hold, if need be the empty one."""
    if column.nullable and random.random() < 0.2:
        return None
    match column.kind:
        case "varchar" | "text" | "char":
            return random.choice(TEXTS)
        case "decimal":
            return Decimal(random.randrange(10**6)).scaleb(-2)
        case "double":
            return random.randrange(1000) / 8
        case "datetime" | "timestamp":
            return datetime(2025, 5, 1) + timedelta(milliseconds=random.randrange(10**9))  # noqa: DTZ001
        case "date":
            return datetime(2025, 5, 1).date() + timedelta(days=random.randrange(99))  # noqa: DTZ001
    return random.randrange(100)
