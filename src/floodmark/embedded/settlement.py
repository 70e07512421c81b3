"""Sample tables and rows for the demo: the settlements of a parcel carrier."""

from collections.abc import Callable

Execute = Callable[[str], object]

SCHEMA = (
    "CREATE DATABASE IF NOT EXISTS settlement CHARACTER SET utf8mb4",
    """
    CREATE TABLE settlement.settlement_normal_delivery_detail (
        id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
        billing_num VARCHAR(40) NOT NULL,
        partner_id INT NOT NULL,
        driver_id INT,
        net_price DECIMAL(12,4) NOT NULL,
        weight_kg DOUBLE,
        status ENUM('created','billed','paid','disputed') NOT NULL,
        extra JSON,
        delivered_on DATE,
        create_at DATETIME NOT NULL,
        update_at DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP,
        KEY by_change (update_at, id)
    )
    """,
    """
    CREATE TABLE settlement.partner_info (
        partner_id INT NOT NULL PRIMARY KEY,
        name VARCHAR(80) NOT NULL,
        country CHAR(2) NOT NULL,
        updated_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP,
        KEY by_change (updated_at)
    )
    """,
)


def create_tables(execute: Execute, *, deliveries: int, partners: int = 500) -> None:
    """Create the tables, with rows that changed over the last year."""
    for statement in SCHEMA:
        execute(statement)
    execute(
        f"""
        INSERT INTO settlement.partner_info (partner_id, name, country, updated_at)
        SELECT seq, CONCAT('Partner ', seq), ELT(1 + seq % 4, 'US', 'CA', 'MX', 'DE'),
               NOW() - INTERVAL seq HOUR
        FROM settlement.seq_1_to_{int(partners)}
        """  # noqa: S608
    )
    add_deliveries(execute, deliveries, oldest_minutes=500_000)


def add_deliveries(execute: Execute, rows: int, *, oldest_minutes: int) -> None:
    """Add deliveries that changed within the last `oldest_minutes`."""
    execute(
        f"""
        INSERT INTO settlement.settlement_normal_delivery_detail
            (billing_num, partner_id, driver_id, net_price, weight_kg, status, extra,
             delivered_on, create_at, update_at)
        SELECT CONCAT('UNI', LPAD(seq, 12, '0')), 1 + seq % 500, IF(seq % 7, seq % 9000, NULL),
               ROUND(1 + (seq * 7919 % 100000) / 1000, 4), (seq * 31 % 4000) / 100,
               ELT(1 + seq % 4, 'created', 'billed', 'paid', 'disputed'),
               JSON_OBJECT('zone', seq % 12, 'note', IF(seq % 50, NULL, 'fragile ✓')),
               CURDATE() - INTERVAL seq % 300 DAY,
               NOW() - INTERVAL {int(oldest_minutes)} MINUTE,
               NOW() - INTERVAL 10 SECOND - INTERVAL ((seq * 7919) % {int(oldest_minutes)}) MINUTE
        FROM settlement.seq_1_to_{int(rows)}
        """  # noqa: S608
    )


def change_deliveries(every: int) -> str:
    """Return a statement that updates one of `every` deliveries; the server sets update_at."""
    return (
        "UPDATE settlement.settlement_normal_delivery_detail"  # noqa: S608
        f" SET status = 'paid', net_price = net_price + 0.01 WHERE id % {int(every)} = 0"
    )


def insert_deliveries(rows: int) -> str:
    """Return a statement that inserts deliveries; the server sets update_at."""
    return (
        "INSERT INTO settlement.settlement_normal_delivery_detail"  # noqa: S608
        " (billing_num, partner_id, net_price, status, create_at)"
        f" SELECT CONCAT('NEW', seq), 7, 9.5, 'created', NOW() FROM settlement.seq_1_to_{int(rows)}"
    )
