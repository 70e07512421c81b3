"""Who may see the page, and when the lake is read for it."""

import base64
from http import HTTPStatus
from pathlib import Path
from threading import Event, Thread

import pytest
from msgspec import structs

from floodmark.cli.http_access import VARIABLE, Access, find_address, find_token
from floodmark.cli.http_server import Request
from floodmark.cli.page.document import Overview
from floodmark.cli.page.snapshots import Snapshots
from floodmark.errors import StorageUnavailable, UsageError

TOKEN = "a-token-of-25-characters!"
OVERVIEW = Overview(values={}, statuses={}, records={})


def request(**headers: str) -> Request:
    return Request(path="/", query={}, headers=headers)


def basic(text: str) -> str:
    return f"Basic {base64.b64encode(text.encode()).decode()}"


@pytest.mark.parametrize(
    ("host", "answered"),
    [
        ("localhost", True),
        ("localhost:8642", True),
        ("127.0.0.1:8642", True),
        ("127.8.8.8", True),
        ("[::1]:8642", True),
        ("LOCALHOST:1", True),
        ("evil.example", False),
        ("localhost.evil.example:8642", False),
        ("127.0.0.1.evil.example", False),
        ("user@evil.example", False),
        ("10.0.0.7", False),
        ("[::1", False),
        ("", False),
    ],
)
def test_without_a_token_only_loopback_names_are_answered(host: str, answered: bool) -> None:
    refused = Access(None).refuse(request(host=host))
    assert (refused is None) == answered
    if refused is not None:
        assert refused.status == HTTPStatus.MISDIRECTED_REQUEST


@pytest.mark.parametrize(
    ("header", "answered"),
    [
        (f"Bearer {TOKEN}", True),
        (f"bearer  {TOKEN}", True),
        (basic(f"anyone:{TOKEN}"), True),
        (basic(f":{TOKEN}"), True),
        (basic(TOKEN), False),
        (basic(f"{TOKEN}:"), False),
        (f"Bearer {TOKEN}x", False),
        (f"Bearer {TOKEN[:-1]}", False),
        (f"Bearer {TOKEN}é", False),
        ("Bearer", False),
        ("Basic §§§", False),
        (TOKEN, False),
        ("", False),
    ],
)
def test_a_token_is_required_whatever_the_host(header: str, answered: bool) -> None:
    refused = Access(TOKEN).refuse(request(host="localhost", authorization=header))
    assert (refused is None) == answered
    if refused is not None:
        assert refused.status == HTTPStatus.UNAUTHORIZED
        assert refused.headers["WWW-Authenticate"].startswith("Basic ")
        assert TOKEN.encode() not in refused.body


def test_a_loopback_address_needs_no_token_and_others_do(tmp_path: Path) -> None:
    for host in ("localhost", "127.0.0.1", "127.3.3.3", "::1"):
        assert find_token(find_address(host), None, {}) is None
    path = tmp_path / "token"
    path.write_text(f"{TOKEN}\n")
    for host in ("0.0.0.0", "::", "192.0.2.7"):
        with pytest.raises(UsageError, match="a token is required"):
            find_token(find_address(host), None, {VARIABLE: " "})
        assert find_token(find_address(host), str(path), {}) == TOKEN
        assert find_token(find_address(host), None, {VARIABLE: TOKEN}) == TOKEN
    with pytest.raises(UsageError, match="not an address"):
        find_address("no-such-host.invalid")


@pytest.mark.parametrize(
    "text", ["", "short", "x" * 15, "sixteen chars ü…", "two lines of\ntext here"]
)
def test_a_bad_token_is_refused_and_not_shown(tmp_path: Path, text: str) -> None:
    path = tmp_path / "token"
    path.write_text(text)
    with pytest.raises(UsageError, match="at least 16 printable") as error:
        find_token("127.0.0.1", str(path), {})
    assert not text or text not in str(error.value)
    with pytest.raises(UsageError, match="No such file"):
        find_token("127.0.0.1", str(tmp_path / "none"), {})


class Readings:
    """A lake that takes some seconds to read, and may be away."""

    def __init__(self) -> None:
        self.now, self.takes, self.count, self.away = 100.0, 0.0, 0, False
        self.free, self.begun = Event(), Event()
        self.free.set()
        self.snapshots = Snapshots(self.read, clock=lambda: self.now)

    def read(self) -> Overview:
        self.begun.set()
        self.free.wait()
        self.count += 1
        self.now += self.takes
        if self.away:
            raise StorageUnavailable("no route to the lake")
        return structs.replace(OVERVIEW, values={"count": self.count})


def test_the_lake_is_read_when_asked_and_old() -> None:
    it = Readings()
    assert it.count == 0
    first = it.snapshots.get()
    assert it.snapshots.get() is first
    it.now += 4.9
    assert it.snapshots.get() is first
    it.now += 0.1
    assert it.snapshots.get().overview != first.overview
    assert it.count == 2


def test_a_slow_reading_is_repeated_less_often() -> None:
    it = Readings()
    it.takes = 20
    it.snapshots.get()
    it.now += 179
    it.snapshots.get()
    assert it.count == 1
    it.now += 1
    it.snapshots.get()
    assert it.count == 2


def test_unreachable_lake_keeps_the_last_reading_and_is_reported() -> None:
    it = Readings()
    it.away = True
    assert it.snapshots.problem(wait=9) == "no route to the lake"
    assert it.snapshots.get().overview is None
    it.away = False
    it.now += 5
    assert it.snapshots.problem(wait=9) is None
    it.away = True
    it.now += 5
    known = it.snapshots.get()
    assert (known.overview, known.problem) == (
        structs.replace(OVERVIEW, values={"count": 2}),
        "no route to the lake",
    )


def test_a_probe_does_not_wait_for_a_lake_that_does_not_answer() -> None:
    it = Readings()
    it.free.clear()
    assert it.snapshots.problem(wait=0) == "the first reading is not done yet"
    it.free.set()
    assert it.snapshots.get().overview is not None  # waits for the first one
    it.now += 5
    it.free.clear()
    it.begun.clear()
    assert it.snapshots.problem(wait=0) is None
    it.begun.wait()
    it.now += 61
    assert it.snapshots.get().overview is not None
    assert it.snapshots.problem(wait=0) == "it has not answered for 61 seconds"
    it.free.set()


def test_a_scrape_of_a_slow_lake_gets_the_last_reading_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    it = Readings()
    first = it.snapshots.get()
    it.now += 5
    it.free.clear()
    waited: list[float | None] = []
    join = Thread.join

    def joined(thread: Thread, timeout: float | None = None) -> None:
        waited.append(timeout)
        join(thread, 0)

    monkeypatch.setattr(Thread, "join", joined)
    assert it.snapshots.get() is first
    monkeypatch.undo()
    it.free.set()
    assert [seconds is not None and seconds <= 5 for seconds in waited] == [True]


def test_an_unexpected_error_is_a_problem_too() -> None:
    def fail() -> Overview:
        raise ValueError("a bug")

    assert Snapshots(fail).get().problem == "unexpected ValueError: a bug"
