"""Hooks that hang, fork, print without end, or answer something that is not HTTP."""

import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread

import msgspec
import pytest

from floodmark.api import hook_calls
from floodmark.api.hook_calls import call
from floodmark.config.hook_settings import Hook
from floodmark.config.secret import Secret

MESSAGE = {"event": "failure", "text": "x" * 200_000}  # more than a pipe holds
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
REDIRECT = b"HTTP/1.1 302 Found\r\nLocation: /login\r\nContent-Length: 0\r\n\r\n"


@contextmanager
def answering(answer: bytes, *, drip: bool = False) -> Iterator[str]:
    """Answer every request with these bytes, then with one more now and then if it drips."""
    over = Event()

    def serve(listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection, suppress(OSError):
                    received = b""
                    while len(received) < len(MESSAGE["text"]):
                        received += connection.recv(65536)
                    connection.sendall(answer)
                    while drip and not over.wait(0.05):
                        connection.sendall(b"X")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = Thread(target=serve, args=(listener,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/T0KEN"
        finally:
            over.set()
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def test_slack_is_given_no_markup(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error may quote a row: it must not call everybody, nor show a link under another name."""
    posted: list[bytes] = []
    monkeypatch.setattr(hook_calls, "_post_in_time", lambda _hook, data: posted.append(data))
    message = {"event": "failure", "text": "<!channel> <https://evil.example|a & b>"}
    for form in ("slack", "json"):
        hook = Hook(webhook=Secret("http://127.0.0.1/"), format=form)
        assert call(hook, message) is None
    slack, plain = map(msgspec.json.decode, posted)
    assert slack == {"text": "&lt;!channel&gt; &lt;https://evil.example|a &amp; b&gt;"}
    assert plain == message


@pytest.mark.parametrize(
    ("answer", "drip", "problem"),
    [
        (OK, False, None),
        (REDIRECT, False, "HTTP status 302"),
        (b"T0KEN\r\n\r\n", False, "the answer or the address is not valid (BadStatusLine)"),
        (b"HTTP/1.1 200 OK\r\n", True, "it took longer than 0.4 s"),
    ],
)
def test_a_webhook_ends_in_its_time_and_shows_no_secret(
    answer: bytes, drip: bool, problem: str | None
) -> None:
    with answering(answer, drip=drip) as url:
        seconds = 0.4 if drip else 20.0
        assert call(Hook(webhook=Secret(url), timeout_seconds=seconds), MESSAGE) == problem


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ("sleep 25 & exit 0", None),  # what it leaves behind keeps its stderr open
        ("setsid sleep 5 & sleep 60", "it took longer than 0.4 s"),
        ("echo first >&2; echo last >&2; exit 3", "exit code 3: last"),
        ("head -c 3000000 /dev/zero >&2; echo last >&2; exit 1", "exit code 1: last"),
    ],
)
def test_a_command_ends_in_its_time(script: str, problem: str | None) -> None:
    seconds = 0.4 if problem and "longer" in problem else 20.0
    hook = Hook(command=("sh", "-c", script), timeout_seconds=seconds)
    assert call(hook, MESSAGE) == problem


def test_a_command_may_ignore_its_message_and_gets_all_of_it() -> None:
    assert call(Hook(command=("true",)), MESSAGE) is None
    count = "import sys, json; sys.exit(len(json.load(sys.stdin)['text']) != 200_000)"
    assert call(Hook(command=(sys.executable, "-c", count)), MESSAGE) is None


def test_a_file_that_is_no_program_is_reported(tmp_path: Path) -> None:
    program = tmp_path / "hook"
    program.write_bytes(b"\x7fELF and nothing else")
    program.chmod(0o700)
    assert call(Hook(command=(str(program),)), MESSAGE) == "Exec format error"
