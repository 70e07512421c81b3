"""Which background Spark a command uses, where it is found, and what both sides must prove."""

import os
import socket
from pathlib import Path
from threading import Thread

import pytest
from msgspec import structs

from floodmark.config.models import SparkSettings
from floodmark.spark.background import key as keys
from floodmark.spark.background.key import key_of
from floodmark.spark.background.place import NotListening, Unavailable, open_place, place_path
from floodmark.spark.background.process_facts import job_variables, start_variables
from floodmark.spark.background.wire import Answers, Ask, Channel, Lost, Reply, Request, connect

PLAIN = {"PATH": os.environ["PATH"], "HOME": "/home/me", "LANG": "C"}
SETTINGS = SparkSettings(keep_warm="15m")


def test_the_key_follows_everything_that_a_start_of_spark_depends_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    key = key_of(SETTINGS, PLAIN)
    assert key == key_of(SETTINGS, PLAIN)
    changes: list[dict[str, object]] = [
        {"memory": "2g"},
        {"master": "local[1]"},
        {"options": {"spark.a": "b"}},
        {"fast_start": "off"},
        {"allow_insecure": True},
    ]
    others = [key_of(structs.replace(SETTINGS, **change), PLAIN) for change in changes]
    variables = {"HOME": "/root", "JAVA_TOOL_OPTIONS": "-Da=b", "SPARK_CONF_DIR": "/x", "TZ": "UTC"}
    others += [key_of(SETTINGS, PLAIN | {name: value}) for name, value in variables.items()]
    monkeypatch.setattr(keys, "__version__", "0.0.0")
    others.append(key_of(SETTINGS, PLAIN))
    assert len({key, *others}) == 1 + len(others)


def test_the_key_follows_the_installed_code(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "worker").mkdir()
    job = tmp_path / "worker" / "job.py"
    job.write_text("old")
    monkeypatch.setattr(keys, "_PACKAGE", str(tmp_path))
    key = key_of(SETTINGS, PLAIN)
    job.write_text("newer")
    assert key_of(SETTINGS, PLAIN) != key


def test_logins_are_no_part_of_the_key_and_never_start_a_server() -> None:
    logins = {"AWS_SECRET_ACCESS_KEY": "s", "MYSQL_PASSWORD": "p", "HTTPS_PROXY": "u:p@h"}
    assert key_of(SETTINGS, PLAIN | logins) == key_of(SETTINGS, PLAIN)
    # How long it is kept, and from where it is used, does not matter either.
    longer = structs.replace(SETTINGS, keep_warm="1h")
    assert key_of(longer, PLAIN | {"PWD": "/x", "PATH": PLAIN["PATH"] + ":/nowhere"}) == key_of(
        SETTINGS, PLAIN
    )
    assert start_variables(PLAIN | logins) == {"HOME": "/home/me", "LANG": "C"}
    assert job_variables(PLAIN | logins) == {"PATH": PLAIN["PATH"], **logins}


def test_the_place_is_private(tmp_path: Path) -> None:
    assert place_path({"XDG_CACHE_HOME": "/c"}) == "/c/floodmark/background-spark"
    open_to_all = tmp_path / "open"
    open_to_all.mkdir(mode=0o777)
    with open_place(str(open_to_all)):
        assert open_to_all.stat().st_mode & 0o777 == 0o700
    link = tmp_path / "link"
    link.symlink_to(open_to_all)
    for path in (link, Path("/proc/nothing"), Path("/dev/null")):
        with pytest.raises(Unavailable, match="only this user"), open_place(str(path)):
            pass


def test_there_is_no_place_without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # no entry in passwd either
    with pytest.raises(Unavailable, match="set HOME or XDG_CACHE_HOME"):
        place_path({})


def test_one_process_holds_a_lock_and_leaves_no_file(tmp_path: Path) -> None:
    with open_place(str(tmp_path / "p")) as place:
        lock = place.lock("k")
        assert lock is not None
        assert place.lock("k") is None
        assert place.server_keys() == ["k"]
        place.write_secret("k", b"s" * 32)
        place.withdraw("k", lock)
        assert os.listdir(tmp_path / "p") == []
        # A server that ends slowly keeps its lock, and does not touch the files of the next one.
        second = place.lock("k")
        assert second is not None
        place.write_secret("k", b"t" * 32)
        place.withdraw("k", lock)
        assert place.read_secret("k") == b"t" * 32
        for descriptor in (lock, second):
            os.close(descriptor)
        again = place.lock("k")
        assert again is not None
        os.close(again)


def test_a_secret_that_others_can_read_or_that_is_a_link_is_refused(tmp_path: Path) -> None:
    with open_place(str(tmp_path)) as place:
        with pytest.raises(NotListening):
            place.read_secret("k")
        place.write_secret("k", b"s" * 32)
        path = tmp_path / "k.secret"
        path.chmod(0o640)
        with pytest.raises(Unavailable, match="others can read"):
            place.read_secret("k")
        path.rename(tmp_path / "other")
        path.symlink_to(tmp_path / "other")
        with pytest.raises(Unavailable):
            place.read_secret("k")


def test_a_path_may_be_long_and_a_socket_stale(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 120)
    with open_place(str(folder)) as place:
        with pytest.raises(NotListening):
            connect(place.reach("k.sock"))
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(place.reach("k.new"))
            listener.listen()
            place.publish_socket("k")
            connect(place.reach("k.sock")).close()
        assert (folder / "k.sock").stat().st_mode & 0o777 == 0o600
        with pytest.raises(NotListening, match="refused"):
            connect(place.reach("k.sock"))


def test_both_sides_prove_that_they_know_the_secret() -> None:
    ours, theirs = _talk(b"s" * 32, b"s" * 32)
    assert isinstance(ours, Channel)
    assert isinstance(theirs, Channel)
    ours.send(Ask())
    assert theirs.receive(Request) == Ask()  # type: ignore[arg-type]
    theirs.send(Answers(["é" * 100_000]))
    assert ours.receive(Reply) == Answers(["é" * 100_000])  # type: ignore[arg-type]
    assert ours.is_open()
    theirs.close()
    assert not ours.is_open()
    with pytest.raises(Lost):
        ours.receive(Reply)  # type: ignore[arg-type]
    ours.close()


@pytest.mark.parametrize("secret", [b"t" * 32, b"s" * 31, b""])
def test_another_secret_is_refused(secret: bytes) -> None:
    for pair in ((b"s" * 32, secret), (secret, b"s" * 32)):
        assert all(isinstance(side, Lost) for side in _talk(*pair))


def test_a_message_that_is_damaged_or_too_long_ends_the_connection() -> None:
    for data in (b"\xff" * 8, (3).to_bytes(8) + b"abc", (2).to_bytes(8) + b"a"):
        one, other = socket.socketpair()
        reader = Channel.__new__(Channel)
        reader._socket = other
        one.sendall(data)
        one.close()
        with pytest.raises(Lost):
            reader.receive(Request)  # type: ignore[arg-type]
        other.close()


def _talk(secret_of_server: bytes, secret_of_command: bytes) -> tuple[object, object]:
    """Let both sides prove themselves; return their channels, or how it failed."""
    one, other = socket.socketpair()
    found: dict[str, object] = {}

    def open_channel(connection: socket.socket, secret: bytes, *, serving: bool) -> object:
        try:
            return Channel(connection, secret, serving=serving)
        except Lost as lost:
            connection.close()
            return lost

    def serve() -> None:
        found["server"] = open_channel(other, secret_of_server, serving=True)

    server = Thread(target=serve)
    server.start()
    command = open_channel(one, secret_of_command, serving=False)
    server.join()
    return command, found["server"]
