"""PostgreSQL's SQL for fingerprints: moments as numbers, and digests of text."""

from datetime import UTC, datetime

from floodmark.model.fingerprint import DAY, DIGEST_DIGITS, moment_number

_EXACT_YEARS = (1930, 2070, 2000)  # first, last, and that in the middle
_MIDDLE = moment_number(datetime(2000, 1, 1, tzinfo=UTC))


def moment(name: str, held: str) -> str:
    """Return the SQL for the microseconds since the year 0 of a time or date in UTC."""
    if held == "date":
        return f"(CAST({name} - DATE '0001-01-01 BC' AS bigint) * {DAY})"
    # The difference in seconds is a double: in these years, it has enough digits for
    # microseconds. date_part would parse its first argument for each row.
    zone = "tz" if "with time zone" in held else ""
    kind = f"TIMESTAMP{'TZ' if zone else ''}"
    first, last, middle = (f"{kind} '{year}-01-01'" for year in _EXACT_YEARS)
    seconds = f"ts{zone}range_subdiff({name}, {middle})"
    exact = f"CAST({seconds} * 1000000 AS bigint) + {_MIDDLE}"
    day, time = f"CAST({name} AS date)", f"CAST({name} AS time)"
    days = f"CAST({day} - DATE '0001-01-01 BC' AS bigint) * {DAY}"
    rest = f"CAST(date_part('epoch', {time}) * 1000000 AS bigint)"
    near = f"{name} >= {first} AND {name} < {last}"
    return f"(CASE WHEN {near} THEN {exact} ELSE {days} + {rest} END)"


def digest(text: str) -> str:
    """Return the SQL for the number of a text: the first digits of its SHA-256."""
    digits = f"left(encode(sha256(convert_to({text}, 'UTF8')), 'hex'), {DIGEST_DIGITS})"
    return f"CAST(CAST('x' || {digits} AS bit({4 * DIGEST_DIGITS})) AS bigint)"
