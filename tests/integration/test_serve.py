"""`floodmark serve` and `status --html`: what is answered, refused and written."""

import gzip
import json
import os
import re
import signal
import socket
import subprocess
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from select import select
from typing import Any

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

import floodmark
from floodmark.cli import http_server
from floodmark.cli.http_access import Access
from floodmark.cli.http_server import LOOPBACK, HttpServer
from floodmark.cli.main import run
from floodmark.cli.page import file as page_file
from floodmark.cli.page.site import Site
from floodmark.model import lake_layout
from floodmark.model.failure import Failure
from floodmark.model.timestamps import utc_now
from floodmark.state.lease import record_failure
from pipelines import PROGRAM, wait_until
from sample_lake import DIFFERENCE, HELD, HOUR, PASSWORD, SampleLake
from scenarios import new_lake, snapshot, use_test_keys
from servers.seaweedfs import SeaweedFS

TOKEN = "a-token-of-25-characters!"
ORDERS = "PROD:shop.orders"


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> SampleLake:
    made = SampleLake(tmp_path_factory.mktemp("sample"), days=2)
    made.fill(every=12 * HOUR)
    return made


class Client:
    """Sends requests to a server on loopback."""

    def __init__(self, port: int) -> None:
        self.port = port

    def ask(self, path: str, method: str = "GET", **headers: str) -> tuple[HTTPResponse, bytes]:
        connection = HTTPConnection(LOOPBACK, self.port, timeout=20)
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, headers=names)
        response = connection.getresponse()
        body = response.read()
        connection.close()
        return response, body

    def json(self, path: str) -> Any:
        response, body = self.ask(path)
        assert (response.status, response.getheader("Content-Type")) == (200, "application/json")
        return json.loads(body)


@contextmanager
def serving(config: Path, token: str | None = None) -> Iterator[Client]:
    """Serve in this process, reading the lake for each request."""
    with floodmark.open_project(config, environment={}) as project:
        server = HttpServer(
            LOOPBACK, 0, Site(project, Access(token), pause=lambda _took: 0).answer, "serve"
        )
        try:
            yield Client(int(server.address.rsplit(":")[-1].strip("/")))
        finally:
            server.stop()


def listed(config: Path, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """What `status --json` prints."""
    assert run(["status", "--config", str(config), "--json"]) == 0
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return found


def test_what_is_served_is_what_the_commands_print(
    sample: SampleLake, capsys: pytest.CaptureFixture[str]
) -> None:
    before = snapshot(sample.objects)
    with serving(sample.config) as client:
        status = client.json("/status.json")
        details = client.json(f"/table.json?name={ORDERS}")
        customers = client.json("/table.json?name=PROD:shop.customers")
        record = client.json(f"/run.json?id={status['runs'][0]['run_id']}")
        metrics = client.ask("/metrics")[1].decode()
        seen, body = client.ask(f"/status.json?seen={status['as_of']}")
    expected = listed(sample.config, capsys)
    changing = {"age_seconds"}
    for shown, table in zip(status["tables"], expected, strict=True):
        known = {k: v for k, v in table.items() if v not in (None, []) and k not in changing}
        assert {k: v for k, v in shown.items() if k not in changing} == known
    states = {table["table_name"]: table["state"] for table in status["tables"]}
    assert list(dict.fromkeys(states.values())) == status["states"]
    assert run(["runs", "--config", str(sample.config), "--json"]) == 0
    runs = json.loads(capsys.readouterr().out)
    assert [each["run_id"] for each in status["runs"]] == [each["run_id"] for each in runs]
    assert record["tables"] == runs[0]["tables"]
    assert record["unchanged"] == len(runs[0]["unchanged"]) == 1
    rows = {table["table_name"]: table["rows_read"] for table in expected}
    assert details["stages"]["extract"]["total_rows"] == rows[ORDERS]
    assert sum(day["rows"] for day in details["history_days"]) == rows[ORDERS]
    assert [change["what"] for change in details["changes"]] == ["set by hand"]
    assert [(found["deleted"], found["stale"]) for found in customers["found"]] == [(37, 2)]
    assert status["mirror"]["text"].startswith("./mirror, complete at ")
    assert status["drill"]["text"] == "165 rehearsals recovered in 15 of 15 tables"
    families = {each.name: each for each in text_string_to_metric_families(metrics)}
    counted = {s.labels["table"]: s.value for s in families["floodmark_files"].samples}
    assert counted[ORDERS] == details["stages"]["extract"]["s3_file_count"]
    for family, state in (
        ("floodmark_failing_seconds", "failing"),
        ("floodmark_differs_seconds", "differs"),
        ("floodmark_held_back_seconds", "held back"),
    ):
        alarming = {s.labels["table"] for s in families[family].samples if s.value > 0}
        assert alarming == {name for name, found in states.items() if found == state} != set()
    assert seen.status == 200  # there is a newer reading
    assert json.loads(body)["as_of"] > status["as_of"]
    assert snapshot(sample.objects) == before


def test_stages_do_not_contradict_the_state(sample: SampleLake) -> None:
    def stage(name: str, stage: str) -> tuple[str, str | None]:
        found = client.json(f"/table.json?name=PROD:shop.{name}")["stages"][stage]
        return found["status"], found.get("error")

    with serving(sample.config) as client:
        assert stage("payments", "extract") == ("failed", PASSWORD)
        assert stage("payments", "load") == ("success", None)
        assert stage("stock_movements", "extract") == ("held back", HELD)
        assert stage("deliveries", "load")[0] == "pending"
        assert stage("deliveries", "extract")[0] == "success"
        assert stage("orders", "verify") == ("differs", DIFFERENCE)
        assert stage("prices", "extract") == ("success", None)
        assert client.json("/table.json?name=PROD:shop.gift_cards")["stages"] is None
        cards = sample.table(
            next(each for each in sample.samples if each.name == "shop.gift_cards")
        )
        now = utc_now()
        failure = Failure(stage="extract", error="gone", since=now, at=now, session_id="x")
        record_failure(sample.objects, cards, failure, owner="me@here", began=now)
        assert stage("gift_cards", "extract") == ("failed", "gone")  # there is no watermark
        sample.objects.delete(lake_layout.lease(cards))


def test_the_same_cause_of_several_tables_does_not_name_them(sample: SampleLake) -> None:
    tables = [sample.table(each) for each in sample.samples if each.rows > 9000]
    before = {lake_layout.lease(table): b"" for table in tables}
    for key in before:
        before[key] = sample.objects.get(key).data
    for table in tables:
        now = utc_now()
        error = f"{table}: no such column"
        failure = Failure(stage="extract", error=error, since=now, at=now, session_id="x")
        record_failure(sample.objects, table, failure, owner="me@here", began=now)
    with serving(sample.config) as client:
        status = client.json("/status.json")
    for key, data in before.items():
        sample.objects.put(key, data)
    found = {t["table_name"]: t["cause"] for t in status["tables"] if "cause" in t}
    assert found == {str(table): "extract failed: no such column" for table in tables}
    assert len(found) == 3


def test_a_table_that_is_not_read_to_its_end_for_long_is_behind_in_its_first_stage(
    sample: SampleLake, tmp_path: Path
) -> None:
    config = tmp_path / "floodmark.yml"
    text = sample.config.read_text().replace("lake: ./lake", f"lake: {sample.lake.folder}")
    config.write_text(text.replace("target: warehouse", "target: warehouse\n    behind_hours: 0.1"))
    with serving(config) as client:
        extract = client.json("/table.json?name=PROD:shop.prices")["stages"]["extract"]
    assert extract["status"] == "behind"
    assert extract["error"].startswith("no complete run for ")


def test_what_holds_back_has_the_hint_that_the_run_recorded(sample: SampleLake) -> None:
    key = max(info.key for info in sample.objects.list_objects(lake_layout.RUNS))
    data = sample.objects.get(key).data
    hint = "GRANT PROCESS ON *.* TO the user, or set 'extraction.lag_seconds'"
    record = msgspec.json.decode(data)
    held = [table for table in record["tables"] if table.get("status") == "held_back"]
    assert held
    for table in held:
        table["hint"] = hint
    sample.objects.put(key, msgspec.json.encode(record))
    try:
        with serving(sample.config) as client:
            tables = client.json("/status.json")["tables"]
    finally:
        sample.objects.put(key, data)
    assert {t["table_name"]: t.get("hint") for t in tables if t["state"] == "held back"} == {
        table["table_name"]: hint for table in held
    }


def test_a_reader_that_has_the_reading_gets_nothing(sample: SampleLake) -> None:
    with floodmark.open_project(sample.config, environment={}) as project:
        server = HttpServer(LOOPBACK, 0, Site(project, Access(None)).answer, "serve")
        client = Client(int(server.address.rsplit(":")[-1].strip("/")))
        seen = client.json("/status.json")["as_of"]
        response, body = client.ask(f"/status.json?seen={seen}")
        server.stop()
    assert (response.status, body) == (204, b"")


def test_only_pages_are_answered_and_only_reading_is(sample: SampleLake) -> None:
    outside = ("/../floodmark.yml", "/..%2ffloodmark.yml", "/lake/", "//etc/passwd", "/page.js")
    unknown = ("/table.json", "/table.json?name=PROD:shop.none", "/table.json?name=../../x")
    with serving(sample.config) as client:
        for path in (*outside, *unknown, "/run.json?id=../x"):
            assert client.ask(path)[0].status == 404, path
        for method in ("POST", "PUT", "DELETE", "OPTIONS", "PROPFIND"):
            assert client.ask("/", method)[0].status == 501
        head, nothing = client.ask("/", "HEAD")
        page, body = client.ask("/")
        packed, small = client.ask("/", Accept_Encoding="gzip")
        rebound = client.ask("/", Host="evil.example")[0]
    assert (head.status, nothing) == (200, b"")
    assert int(head.getheader("Content-Length", "0")) > 10_000
    assert page.getheader("X-Content-Type-Options") == "nosniff"
    assert page.getheader("Content-Security-Policy") == "frame-ancestors 'none'"
    assert page.getheader("Server") == "floodmark"
    assert packed.getheader("Content-Encoding") == "gzip"
    assert gzip.decompress(small)[:500] == body[:500]
    assert len(body) > 3 * len(small)
    assert rebound.status == 421


def test_without_the_token_only_health_is_visible(sample: SampleLake) -> None:
    with serving(sample.config, TOKEN) as client:
        for path in ("/", "/status.json", "/metrics", "/nothing"):
            assert client.ask(path)[0].status == 401
            assert client.ask(path, Authorization=f"Bearer {TOKEN}")[0].status != 401
        assert client.ask("/healthz")[1] == b"ok\n"
        assert (
            client.ask("/", Authorization=f"Bearer {TOKEN}", Host="page.example")[0].status == 200
        )


def test_health_is_whether_the_lake_can_be_read(sample: SampleLake) -> None:
    lake, away = Path(str(sample.lake.folder)), Path(f"{sample.lake.folder}-away")
    reason = f"the lake cannot be read: the folder {lake} does not exist"
    with serving(sample.config) as client, serving(sample.config, TOKEN) as guarded:
        client.json("/status.json")
        assert client.ask("/healthz")[0].status == 200
        lake.rename(away)
        try:
            wait_until(lambda: client.ask("/healthz")[0].status == 503)
            assert client.ask("/healthz")[1].decode() == f"{reason}\n"
            # The last reading is still shown, and says why there is no newer one.
            assert reason.partition(": ")[2] in client.json("/status.json")["problem"]
            assert client.ask("/metrics")[0].status == 503
            assert guarded.ask("/healthz")[1] == b"the lake cannot be read\n"
            refused, said = guarded.ask("/", Authorization=f"Bearer {TOKEN}")
            assert (refused.status, said.decode()) == (503, f"{reason}\n")
        finally:
            away.rename(lake)
        assert "problem" not in client.json("/status.json")
        assert client.ask("/healthz")[0].status == 200


def test_a_damaged_manifest_hides_only_the_history(sample: SampleLake) -> None:
    key = lake_layout.manifests(sample.table(sample.samples[5]))
    first = next(iter(sample.objects.list_objects(key))).key
    data = sample.objects.get(first).data
    sample.objects.put(first, data[:-9])
    try:
        with serving(sample.config) as client:
            details = client.json("/table.json?name=PROD:shop.customers")
    finally:
        sample.objects.put(first, data)
    assert first in details["problem"]
    assert details["stages"]["extract"]["status"] == "success"


def test_the_command_serves_until_it_is_ended(sample: SampleLake) -> None:
    """It needs no password of source or warehouse, and never shows its own token."""
    for end in (signal.SIGTERM, signal.SIGINT):
        with subprocess.Popen(
            [*PROGRAM, "serve", "--config", str(sample.config), "--port", "0"],
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "FLOODMARK_SERVE_TOKEN": TOKEN},
        ) as process:
            assert process.stderr
            line = process.stderr.readline()
            port = re.fullmatch(r"info: serving http://127\.0\.0\.1:(\d+)/\n", line)
            assert port, line
            client = Client(int(port[1]))
            assert client.ask("/status.json", Authorization=f"Bearer {TOKEN}")[0].status == 200
            assert client.ask(f"/?token={TOKEN}")[0].status == 401
            process.send_signal(end)
            assert process.stderr.read() == "info: stopped serving\n"
        assert process.returncode == 0


@pytest.mark.follows_hint("'openssl rand -hex 24'", "name it with --token-file")
def test_elsewhere_than_on_loopback_a_token_is_required(
    sample: SampleLake, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    serve = ["serve", "--config", str(sample.config), "--host", "0.0.0.0", "--port", "0"]
    assert run(serve) == 2
    assert "0.0.0.0 is not a loopback address: a token is required" in capsys.readouterr().err
    path = tmp_path / "token"
    path.write_text("secret")
    assert run([*serve, "--token-file", str(path)]) == 2
    said = capsys.readouterr().err
    assert "secret" not in said
    assert "openssl rand -hex 24" in said
    path.write_bytes(
        subprocess.run(["openssl", "rand", "-hex", "24"], stdout=-1, check=True).stdout
    )
    process = subprocess.Popen(
        [*PROGRAM, *serve, "--token-file", str(path)], stderr=subprocess.PIPE, text=True
    )
    with process:
        assert process.stderr
        assert process.stderr.readline().startswith("info: serving http://0.0.0.0:")
        assert "TLS" in process.stderr.readline()
        process.terminate()


def test_a_port_that_is_taken_is_refused(
    sample: SampleLake, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(sample.config) as client:
        assert run(["serve", "--config", str(sample.config), "--port", str(client.port)]) == 2
    assert f"serve port {client.port} of 127.0.0.1" in capsys.readouterr().err


def test_too_many_connections_are_closed_and_the_next_are_answered(sample: SampleLake) -> None:
    def answers() -> bool:
        try:
            return client.ask("/healthz")[0].status == 200
        except ConnectionError:
            return False

    with serving(sample.config) as client:
        client.json("/status.json")
        idle = [HTTPConnection(LOOPBACK, client.port) for _ in range(70)]
        for connection in idle:
            connection.connect()  # and says nothing
        wait_until(lambda: not answers())
        for connection in idle:
            connection.close()
        wait_until(answers)


def sent(port: int, data: bytes) -> bytes:
    """What comes back first if these bytes are sent."""
    with socket.create_connection((LOOPBACK, port), timeout=20) as connection:
        connection.sendall(data)
        return connection.recv(65536)


def test_whatever_is_sent_gets_an_answer(sample: SampleLake) -> None:
    host = b" HTTP/1.1\r\nHost: localhost\r\n"
    with serving(sample.config) as client:
        for request, status in (
            (b"GET http://[" + host + b"\r\n", b"400"),
            (b"GET /" + b"a" * 70_000 + host + b"\r\n", b"414"),
            (b"GET /" + host + b"X: " + b"a" * 70_000 + b"\r\n\r\n", b"431"),
            (b"GET /" + host + b"X: y\r\n" * 200 + b"\r\n", b"431"),
            (b"GET / HTTP/1.1\r\nHost: \xff\xfe\r\n\r\n", b"421"),
            (b"GET /" + host + b"Host: evil.example\r\n\r\n", b"421"),
            (b"GET /table.json?name=%0d%0aX:y" + host + b"\r\n", b"404"),
        ):
            answer = sent(client.port, request)
            assert answer.split()[1] == status, request[:60]
            assert b"\nX:" not in answer


def test_a_request_that_never_ends_does_not_keep_its_connection(
    sample: SampleLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One byte now and then would hold a place for ever, and 64 of them all places."""
    monkeypatch.setattr(http_server, "_REQUEST_SECONDS", 0.5)
    with serving(sample.config) as client:
        connection = socket.create_connection((LOOPBACK, client.port))
        connection.sendall(b"GET / HTTP/1.1\r\nX: ")

        def ended() -> bool:
            with suppress(ConnectionError):
                connection.sendall(b"x")
                return bool(select([connection], [], [], 0.1)[0])
            return True

        wait_until(ended, seconds=15)
        connection.close()


def test_a_lake_in_s3_needs_only_its_own_login(
    sample: SampleLake,
    seaweedfs: SeaweedFS,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    use_test_keys(monkeypatch)
    lake = new_lake("seaweedfs", request, tmp_path)
    copy = lake.open()
    for info in sample.objects.list_objects(""):
        if "/backups/" not in info.key:
            copy.put(info.key, sample.objects.get(info.key).data)
    config = tmp_path / "floodmark.yml"
    config.write_text(sample.config.read_text().replace("lake: ./lake", f"lake: {lake.yaml}"))
    with serving(sample.config) as local, serving(config) as client:
        expected, found = local.json("/status.json"), client.json("/status.json")
        details = client.json(f"/table.json?name={ORDERS}")
    states = [(table["table_name"], table["state"]) for table in expected["tables"]]
    assert [(table["table_name"], table["state"]) for table in found["tables"]] == states
    assert [each["run_id"] for each in found["runs"]] == [e["run_id"] for e in expected["runs"]]
    assert details["changes"]
    gone = lake.yaml.replace(lake.bucket, "no-such-bucket")
    config.write_text(sample.config.read_text().replace("lake: ./lake", f"lake: {gone}"))
    with serving(config) as client:
        assert client.ask("/")[0].status == 503
        response, body = client.ask("/healthz")
    assert response.status == 503
    assert b"no-such-bucket" in body


class Written:
    """The page that `status --html` writes."""

    def __init__(self, sample: SampleLake, path: Path, *arguments: str) -> None:
        self.path = path
        self.code = run(["status", "--config", str(sample.config), "--html", str(path), *arguments])
        self.text = path.read_text() if path.exists() else ""

    @property
    def values(self) -> dict[str, Any]:
        found = re.search(r'<script type="application/json" id="data">(.*?)</script>', self.text)
        assert found
        values: dict[str, Any] = json.loads(found[1])
        return values


def test_a_file_is_complete_private_and_printed_nowhere(
    sample: SampleLake, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = Written(sample, tmp_path / "status.html")
    assert (page.code, capsys.readouterr().out) == (0, "")
    assert len(page.values["tables"]) == len(page.values["table_details"]) == 15
    assert page.values["run_details"].keys() == {run["run_id"] for run in page.values["runs"]}
    assert [each.name for each in tmp_path.iterdir()] == ["status.html"]
    page.path.chmod(0o640)
    again = Written(sample, page.path, "-t", "shop.orders", "--older-than", "1s")
    assert again.code == 6
    assert page.path.stat().st_mode & 0o777 == 0o640
    assert [table["table_name"] for table in again.values["tables"]] == [ORDERS]
    assert len(again.values["runs"]) == len(page.values["runs"]) - 2  # two had other tables only
    assert "shop.payments" not in again.text
    missing = Written(sample, tmp_path / "none" / "status.html")
    assert missing.code == 2
    assert "cannot write" in capsys.readouterr().err
    assert Written(sample, page.path, "--watch").code == 2


def test_a_file_has_the_details_that_its_bounds_allow(
    sample: SampleLake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_file, "MOST_TABLES", 3)
    few = Written(sample, tmp_path / "few.html").values
    assert [*few["table_details"]] == [table["table_name"] for table in few["tables"][:3]]
    monkeypatch.setattr(page_file, "MOST_TABLE_BYTES", 0)
    monkeypatch.setattr(page_file, "MOST_RUN_BYTES", 0)
    none = Written(sample, tmp_path / "none.html").values
    assert (none["table_details"], none["run_details"]) == ({}, {})
    assert len(none["tables"]) == 15


def test_a_file_names_nothing_outside_and_allows_only_itself(
    sample: SampleLake, tmp_path: Path
) -> None:
    text = Written(sample, tmp_path / "status.html").text
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    assert policy
    rules = dict(rule.strip().split(" ", 1) for rule in policy[1].split(";"))
    style = re.search(r"<style>(.*?)</style>", text, re.S)
    script = re.search(r"<script>(.*)</script>", text, re.S)
    assert style
    assert script
    for rule, found in (("style-src", style[1]), ("script-src", script[1])):
        assert rules[rule] == f"'sha256-{b64encode(sha256(found.encode()).digest()).decode()}'"
    assert {rules[rule] for rule in ("default-src", "connect-src", "form-action", "base-uri")} == {
        "'none'"
    }
    assert not re.search(r"(?:src|href)=[\"']?(?:https?:)?//", text)
    assert "innerHTML" not in text
    assert {*re.findall(r"https?://[\w./]+", text)} == {"http://www.w3.org/2000/svg"}
