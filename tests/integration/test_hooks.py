"""Commands and webhooks after runs, with a real server that receives them."""

import json
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import duckdb
import pytest

import floodmark
from floodmark.api.hooks import RunHooks
from pipelines import Pipeline, ask_once

pytestmark = pytest.mark.enough_on("mariadb")  # it is about what comes after

New = Callable[..., Pipeline]
HOOKS = """
hooks:
  on_failure: [{{webhook: "{url}/failure"}}, {{webhook: "{url}/slack", format: slack}}]
  on_recovery: [{{webhook: "{url}/recovery"}}]
  on_success: [{{command: {command}}}]
"""


class Receiver(ThreadingHTTPServer):
    """Keeps what is posted to it; `codes` are the next answers."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.got: list[tuple[str, Any]] = []
        self.codes: list[int] = []
        self.url = f"http://127.0.0.1:{self.server_port}/T0KEN"

    def take(self) -> list[tuple[str, Any]]:
        got, self.got = self.got, []
        return got


class Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.got.append((self.path.rpartition("/")[2], json.loads(body)))
        self.send_response(self.server.codes.pop(0) if self.server.codes else 204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RunHooks, "pause", staticmethod(lambda _seconds: None))


def hooked(pipeline: New, receiver: Receiver, *command: str) -> Pipeline:
    it = pipeline({"a": "{cursor: id}", "b": "{cursor: id}"})
    for name in "ab":
        ask_once(it, f"CREATE TABLE {name} (id INT PRIMARY KEY)")
        ask_once(it, f"INSERT INTO {name} VALUES (1), (2)")
    program = json.dumps(command or ["true"])
    return it.write_config(HOOKS.format(url=receiver.url, command=program))


def test_one_message_for_a_failure_and_one_for_its_end(pipeline: New, receiver: Receiver) -> None:
    it = hooked(pipeline, receiver)
    for name in "ab":
        ask_once(it, f"RENAME TABLE {name} TO gone_{name}")
    assert it.call("sync", "-p", "main").code == 2
    (one, message), (two, slack) = receiver.take()
    assert (one, two) == ("failure", "slack")
    assert message["event"] == "failure"
    assert message["tables"] == [str(it.table(name)) for name in "ab"]
    assert [table["status"] for table in message["run"]["tables"]] == ["failed", "failed"]
    assert slack == {"text": message["text"]}
    assert f"2 tables failed\n{it.table('a')}: " in message["text"]
    lines = message["text"].splitlines()
    assert {line.partition(": ")[0] for line in lines[3:-1]} == {"hint"}
    program, *command = lines[-1].split()
    assert (program, command[:2]) == ("floodmark", ["runs", "show"])
    assert str(it.table("b")) in it.call(*command).out
    assert it.call("sync", "-p", "main").code == 2
    assert receiver.take() == []  # it was reported

    ask_once(it, "RENAME TABLE gone_a TO a")
    assert it.call("sync", "-p", "main").code == 3
    ((event, message),) = receiver.take()
    assert (event, message["tables"]) == ("recovery", [str(it.table("a"))])


def test_a_table_that_differs_has_not_recovered_until_it_is_compared(
    pipeline: New, receiver: Receiver
) -> None:
    it = hooked(pipeline, receiver)
    assert it.call("sync", "-p", "main").code == 0
    with duckdb.connect(str(it.folder / "warehouse.duckdb")) as database:
        database.execute("DELETE FROM a WHERE id = 1")
    ended = it.call("sync", "-p", "main", "--verify-data=all")
    assert ended.code in (3, 5), ended
    (_, message), _ = receiver.take()
    assert (message["event"], message["tables"]) == ("failure", [str(it.table("a"))])
    assert "1 table differs\n" in message["text"]
    for arguments in ((), ("--backup-only",)):
        assert it.call("sync", "-p", "main", *arguments).code == 0
        assert receiver.take() == []
    assert it.call("sync", "-p", "main", "--verify-data=all", "--repair").code == 0
    ((event, message),) = receiver.take()
    assert (event, message["tables"]) == ("recovery", [str(it.table("a"))])


def test_a_load_that_fails_has_not_recovered_with_an_extraction(
    pipeline: New, receiver: Receiver
) -> None:
    it = hooked(pipeline, receiver)
    warehouse = it.folder / "warehouse.duckdb"
    warehouse.mkdir()
    events = []
    for option in ("--backup-only", "--redshift-only") * 2:
        it.call("sync", "-p", "main", option)
        events += [event for event, _ in receiver.take()]
    assert events == ["failure", "slack"]
    warehouse.rmdir()
    assert it.call("sync", "-p", "main", "--redshift-only").code == 0
    assert [event for event, _ in receiver.take()] == ["recovery"]


def test_a_round_that_is_reported_again_is_recorded(pipeline: New, receiver: Receiver) -> None:
    """Its message names the record, which a round without news does not leave."""
    it = hooked(pipeline, receiver)
    ask_once(it, "RENAME TABLE a TO gone")
    receiver.codes = [500] * 3
    with floodmark.open_project(it.config) as project:
        for _ in range(2):
            project.sync(every=timedelta(minutes=1))
        texts = [message["text"] for _, message in receiver.take()]
        shown = {text.split()[-1] for text in texts}
        assert len(shown) == 2
        assert {run.run_id for run in project.runs()} == shown


def test_what_is_not_delivered_is_sent_by_the_next_run(pipeline: New, receiver: Receiver) -> None:
    it = hooked(pipeline, receiver)
    ask_once(it, "RENAME TABLE a TO gone")
    receiver.codes = [500, 503, 500]  # all tries of the first webhook
    ended = it.call("sync", "-p", "main")
    assert ended.code == 3, ended
    assert "the webhook for failure failed: HTTP status 500" in ended.err
    assert "T0KEN" not in ended.out + ended.err
    assert [event for event, _ in receiver.take()] == ["failure"] * 3 + ["slack"]
    receiver.codes = [500]
    assert it.call("sync", "-p", "main").code == 3
    assert [event for event, _ in receiver.take()] == ["failure", "failure", "slack"]


def test_a_command_gets_the_run_on_stdin(pipeline: New, receiver: Receiver, tmp_path: Path) -> None:
    out = tmp_path / "message.json"
    keep = "import sys; open(sys.argv[1], 'x').write(sys.stdin.read())"
    it = hooked(pipeline, receiver, sys.executable, "-c", keep, str(out))
    assert it.call("sync", "-p", "main").code == 0
    message = json.loads(out.read_text())
    assert message["event"] == "success"
    assert message["run"]["tables"][0]["loaded_rows"] == 2
    ended = it.call("sync", "-p", "main")  # nothing was loaded
    assert (ended.code, receiver.take()) == (0, [])
    assert "hook" not in ended.err


def test_rows_that_were_only_deleted_are_a_success(
    pipeline: New, receiver: Receiver, tmp_path: Path
) -> None:
    """What is built from the table must be built again."""
    out = tmp_path / "message.json"
    keep = "import sys; open(sys.argv[1], 'w').write(sys.stdin.read())"
    it = hooked(pipeline, receiver, sys.executable, "-c", keep, str(out))
    assert it.call("sync", "-p", "main").code == 0
    ask_once(it, "DELETE FROM a WHERE id = 1")
    out.unlink()
    assert it.call("reconcile", "-p", "main", "--deletes", "hard").code == 0
    message = json.loads(out.read_text())
    assert message["tables"] == [str(it.table("a"))]
    assert message["text"].endswith(": 0 rows loaded, 1 deleted")
    out.unlink()
    assert it.call("reconcile", "-p", "main", "--deletes", "hard").code == 0
    assert not out.exists()


@pytest.mark.parametrize(
    ("program", "problem"),
    [
        ([sys.executable, "-c", "import sys; sys.exit('no dbt here')"], "exit code 1: no dbt here"),
        (["no-such-program"], "the program was not found"),
        (["sleep", "600"], "it took longer than 0.5 s"),
    ],
)
def test_a_command_never_fails_a_run(
    pipeline: New, receiver: Receiver, program: list[str], problem: str
) -> None:
    it = hooked(pipeline, receiver)
    command = f"{json.dumps(program)}, tries: 2, timeout_seconds: 0.5"
    it.write_config(HOOKS.format(url=receiver.url, command=command))
    ended = it.call("sync", "-p", "main")
    assert ended.code == 0, ended
    assert f"the command {program[0]} for success failed: {problem}" in ended.err


def test_a_hook_that_cannot_be_called_is_refused(pipeline: New) -> None:
    it = pipeline({"a": "{}"})
    wrong = ("ftp://host", "https:///T0KEN", "https://host:T0KEN/", "https://host/T0KEN x")
    hooks = [f'{{webhook: "{url}"}}' for url in wrong]
    for hook in ("{}", '{command: ["a"], webhook: "https://b"}', *hooks):
        it.write_config(f"hooks: {{on_failure: [{hook}]}}\n")
        ended = it.call("watermark", "list")
        assert ended.code == 2
        assert "hooks.on_failure" in ended.err
        assert "T0KEN" not in ended.out + ended.err
