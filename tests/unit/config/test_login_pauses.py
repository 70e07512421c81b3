"""Refused logins over many runs: how often they are tried, and what is reported."""

from datetime import UTC, datetime, timedelta

import pytest
from msgspec import structs

from floodmark.config.logins import Logins
from floodmark.config.models import IamSettings, MysqlConnection, RedshiftConnection
from floodmark.config.secret import Secret
from floodmark.errors import FloodmarkError

START = datetime(2026, 1, 1, tzinfo=UTC)
SERVER = MysqlConnection(host="db", user="floodmark", password=Secret("wrong"))


class Refused(Exception):
    """What a driver raises."""


class Server:
    """Refuses one password, and counts the tries."""

    def __init__(self) -> None:
        self.now = START
        self.logins = Logins(lambda: self.now)
        self.tried: list[datetime] = []

    def log_in(self, connection: MysqlConnection = SERVER, *, note: bool = True) -> None:
        """Log in as a driver does."""
        assert connection.password is not None
        with self.logins.once(connection, lambda error: isinstance(error, Refused), note=note):
            self.tried.append(self.now)
            if connection.password.reveal() == "wrong":
                raise Refused("wrong password")

    def later(self, pause: timedelta) -> None:
        """Begin the next run."""
        self.now += pause
        self.logins.begin_run()


@pytest.fixture
def server() -> Server:
    return Server()


def test_a_refused_login_waits_longer_and_longer(server: Server) -> None:
    for _ in range(4 * 24 * 60):
        with pytest.raises((Refused, FloodmarkError)):
            server.log_in()
        server.later(timedelta(minutes=1))
    hours = [(moment - START) / timedelta(hours=1) for moment in server.tried]
    assert hours == pytest.approx([0, 1 / 6, 7 / 6, 43 / 6, 43 / 6 + 24, 43 / 6 + 48, 43 / 6 + 72])


def test_later_runs_say_when_it_is_tried_again(server: Server) -> None:
    for _ in range(2):  # the same run: what the server said
        with pytest.raises(Refused):
            server.log_in()
    server.later(timedelta(minutes=1))
    with pytest.raises(FloodmarkError) as caught:
        server.log_in()
    assert caught.value.message == (
        "db:3306 rejected user 'floodmark' at 2026-01-01T00:00:00Z; the next attempt is not"
        " before 2026-01-01T00:10:00Z, to avoid locking the user"
    )


def test_another_password_is_tried_at_once(server: Server) -> None:
    with pytest.raises(Refused):
        server.log_in()
    server.log_in(structs.replace(SERVER, password=Secret("right")))
    assert len(server.tried) == 2


def iam(password: str) -> RedshiftConnection:
    return RedshiftConnection(
        host="db", database="d", user="IAM:x", iam=IamSettings(), password=Secret(password)
    )


def test_an_expired_iam_password_does_not_stop_the_next_one(server: Server) -> None:
    def log_in(password: str, *, refused: bool = False) -> None:
        with server.logins.once(iam(password), lambda error: isinstance(error, Refused)):
            server.tried.append(server.now)
            if refused:
                raise Refused("expired")

    log_in("first")
    for _ in range(2):  # the second time, the server is not asked
        with pytest.raises(Refused):
            log_in("first", refused=True)
    log_in("second")
    assert len(server.tried) == 3


def test_a_new_password_of_a_rejected_iam_user_is_not_tried(server: Server) -> None:
    def is_refusal(error: Exception) -> bool:
        return isinstance(error, Refused)

    with pytest.raises(Refused), server.logins.once(iam("first"), is_refusal):
        raise Refused("no such user")
    with pytest.raises(Refused), server.logins.once(iam("second"), is_refusal):
        raise AssertionError("it is tried again")


def test_a_rejection_that_is_not_noted_does_not_stop_others(server: Server) -> None:
    for _ in range(2):
        with pytest.raises(Refused):
            server.log_in(note=False)
    for note in (True, True, False):
        with pytest.raises(Refused):
            server.log_in(note=note)
    assert len(server.tried) == 3


def test_a_command_that_is_started_again_tries_again(server: Server) -> None:
    for _ in range(2):
        with pytest.raises(Refused):
            server.log_in()
        server.logins.forget()
    assert len(server.tried) == 2


def test_an_accepted_login_that_is_refused_later_is_not_repeated(server: Server) -> None:
    """The password was changed while the run went on."""

    def log_in(*, refused: bool) -> None:
        with server.logins.once(SERVER, lambda error: isinstance(error, Refused)):
            server.tried.append(server.now)
            if refused:
                raise Refused("wrong password")

    log_in(refused=False)
    for _ in range(5):
        with pytest.raises(Refused):
            log_in(refused=True)
    assert len(server.tried) == 2
    server.later(timedelta(hours=1))
    log_in(refused=False)
    log_in(refused=False)
    assert len(server.tried) == 4
