"""`make redshift` as a user runs it, on a stand-in that it takes for a real cluster."""

import os
import ssl
import subprocess
import sys
from pathlib import Path

from scenarios import KEYS
from servers.ministack import Ministack
from servers.postgres import PrivatePostgres
from servers.redshift import ROLE, RedshiftStandIn

ROOT = Path(__file__).parents[2]


def test_make_redshift(postgres: PrivatePostgres, ministack: Ministack, tmp_path: Path) -> None:
    ministack.create_bucket("some-lake")
    certificate, key = tmp_path / "server.pem", tmp_path / "server.key"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
         "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1",
         "-keyout", str(key), "-out", str(certificate)],
        check=True, capture_output=True,
    )  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with RedshiftStandIn(postgres, ministack, tls=context) as server:
        place = f"{server.host}:{server.port}/{server.database}"
        environment = {
            **os.environ,
            **KEYS,
            "AWS_ENDPOINT_URL_S3": ministack.endpoint,
            "SSL_CERT_FILE": str(certificate),
            "FLOODMARK_REDSHIFT_URL": f"redshift://{postgres.user}:{postgres.password}@{place}",
            "FLOODMARK_REDSHIFT_LAKE": "s3://some-lake/checks",
            "FLOODMARK_REDSHIFT_ROLE": ROLE,
        }
        ended = subprocess.run(
            _command(), env=environment, cwd=ROOT, capture_output=True, text=True, check=False
        )
        left = server.look("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'floodmark%'")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    report = ended.stdout.partition("----- report")[2].splitlines()
    checks = [line for line in report if line.startswith(("passed: ", "failed: ", "skipped: "))]
    assert len(checks) == 10, ended.stdout
    assert all(line.startswith("passed: ") for line in checks)
    assert any("ZSTD inside Parquet is not read" in line for line in report)
    assert any("rows are the same in source and target" in line for line in report)
    for name in (postgres.password, server.database, ROLE, "some-lake", server.host):
        assert name not in "\n".join(report)
    assert left == []


def _command() -> list[str]:
    """What the Makefile runs."""
    lines = (ROOT / "Makefile").read_text().splitlines()
    (line,) = (line.strip() for line in lines if "redshift_report" in line)
    return ["sh", "-c", line.replace("$(bin)/python", sys.executable)]
