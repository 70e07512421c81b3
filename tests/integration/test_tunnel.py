"""SSH tunnels through a real sshd to a real server, and their error messages."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

import floodmark
from floodmark.cli.main import run
from floodmark.config.loading import load_config
from floodmark.config.models import MysqlConnection, SparkSettings
from floodmark.config.secret import Secret
from floodmark.embedded.mariadb import PrivateMariaDB
from floodmark.embedded.process import free_ports
from floodmark.errors import ConfigError, FloodmarkError, LeaseLost, StorageError, UsageError
from floodmark.mysql.connection import connect
from floodmark.subprocesses import LOOPBACK
from floodmark.sync.tunnels import open_tunnels
from floodmark.tunnels import ssh, tunnel
from floodmark.tunnels.tunnel import Tunnels, open_tunnel
from servers.sshd import PrivateSshd, make_key

pytestmark = pytest.mark.enough_on("mysql")  # it is about SSH


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateSshd]:
    with PrivateSshd(tmp_path_factory.mktemp("sshd")) as server:
        yield server


@pytest.fixture
def connection(server: PrivateMariaDB, sshd: PrivateSshd) -> MysqlConnection:
    return MysqlConnection(
        host=server.host,
        port=server.port,
        user=server.user,
        password=Secret(server.password),
        tunnel=sshd.settings,
    )


def through(connection: MysqlConnection, **changes: Any) -> MysqlConnection:
    """The same connection with other settings of its tunnel."""
    assert connection.tunnel is not None
    return structs.replace(connection, tunnel=structs.replace(connection.tunnel, **changes))


def ask(connection: MysqlConnection, sql: str = "SELECT 6 * 7") -> object:
    with connect(connection) as session, session.cursor() as cursor:
        cursor.execute(sql)
        row = cursor.fetchone()
        assert row is not None
        return row[0]


def clients(port: int) -> list[int]:
    """The ssh clients that listen on a local port, by their arguments."""
    return [pid for pid, line in command_lines().items() if f"{LOOPBACK}:{port}:[" in line]


def command_lines() -> dict[int, str]:
    found = {}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found[int(path.parent.name)] = path.read_bytes().replace(b"\0", b" ").decode()
        except OSError:  # it ended meanwhile
            continue
    return found


def eventually(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 5
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    return condition()


def refusal(connection: MysqlConnection) -> FloodmarkError:
    """The error of a tunnel that cannot be opened; no client may be left behind."""
    with pytest.raises(FloodmarkError) as caught, open_tunnel(connection):
        pass
    assert connection.tunnel is not None
    key = connection.tunnel.key
    assert not [line for line in command_lines().values() if f'IdentityFile="{key}"' in line]
    return caught.value


# What works


def test_query_through_the_tunnel(connection: MysqlConnection, server: PrivateMariaDB) -> None:
    with open_tunnel(connection) as local:
        assert (local.host, local.tunnel) == (LOOPBACK, None)
        assert local.port != server.port
        assert ask(local) == 42
        [client] = clients(local.port)
    assert not Path(f"/proc/{client}").exists()
    with pytest.raises(ConnectionRefusedError), socket.create_connection((LOOPBACK, local.port)):
        pass


def test_mysql_sees_no_connection_but_ours(
    connection: MysqlConnection, server: PrivateMariaDB
) -> None:
    def count() -> tuple[Any, ...]:
        return server.execute("SHOW GLOBAL STATUS LIKE 'Aborted_connects'")[0]

    before = count()
    with open_tunnel(connection) as local:
        ask(local)
    assert count() == before


def test_connection_without_tunnel_comes_back_unchanged() -> None:
    connection = MysqlConnection(user="u")
    with open_tunnel(connection) as local:
        assert local is connection


def test_one_tunnel_for_all_who_use_a_connection(connection: MysqlConnection) -> None:
    with Tunnels() as tunnels:
        tunnels.open(connection)

        def work(_: int) -> int:
            with tunnels.through(structs.replace(connection)) as local:
                assert ask(local) == 42
                return local.port

        with ThreadPoolExecutor(4) as pool:
            [port] = set(pool.map(work, range(12)))
        assert len(clients(port)) == 1
        with tunnels.through(through(connection, keepalive_seconds=3)) as other:
            assert other.port != port
            assert ask(other) == 42
    assert not clients(port)
    assert not clients(other.port)


def test_paths_begin_at_the_folder_and_may_be_odd(
    connection: MysqlConnection, sshd: PrivateSshd, tmp_path: Path
) -> None:
    odd = tmp_path / 'a "b" %h \\'
    odd.mkdir()
    for name, path in (("key", sshd.key), ("known", sshd.known_hosts)):
        (odd / name).write_bytes(path.read_bytes())
        (odd / name).chmod(0o600)
    odd_one = through(connection, key=f"{odd.name}/key", known_hosts=f"{odd.name}/known")
    with open_tunnel(odd_one, folder=str(tmp_path)) as local:
        assert ask(local) == 42


def test_home_folder_is_expanded(
    connection: MysqlConnection, sshd: PrivateSshd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(sshd.folder))
    with open_tunnel(through(connection, key="~/user_key", known_hosts="~/known_hosts")) as local:
        assert ask(local) == 42


def test_user_configuration_and_agent_change_nothing(
    connection: MysqlConnection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "nobody"))
    monkeypatch.setenv("SHELL", "/bin/false")
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    with open_tunnel(connection) as local:
        [client] = clients(local.port)
        words = Path(f"/proc/{client}/cmdline").read_bytes().split(b"\0")
        assert words[words.index(b"-F") + 1] == b"none"
        environment = Path(f"/proc/{client}/environ").read_bytes().split(b"\0")
        assert {entry.partition(b"=")[0] for entry in environment if entry} == {b"PATH", b"LC_ALL"}


def test_taken_port_is_not_the_end(
    connection: MysqlConnection, server: PrivateMariaDB, monkeypatch: pytest.MonkeyPatch
) -> None:
    ports = iter([server.port, server.port, *free_ports(1)])
    monkeypatch.setattr(tunnel, "_free_port", lambda: next(ports))
    with open_tunnel(connection) as local:
        assert local.port != server.port
        assert ask(local) == 42
        assert not clients(server.port)


# What nobody may see


def test_no_secret_in_process_list_or_output(
    connection: MysqlConnection,
    server: PrivateMariaDB,
    sshd: PrivateSshd,
    capfd: pytest.CaptureFixture[str],
) -> None:
    secrets = [server.password, *sshd.key.read_text().splitlines()[1:-1]]
    with open_tunnel(connection) as local:
        assert ask(local) == 42
        lines = command_lines()
        assert clients(local.port)
    for failing in (
        through(connection, user="nobody-at-all"),
        structs.replace(connection, port=free_ports(1)[0]),
    ):
        with pytest.raises(FloodmarkError) as caught, open_tunnel(failing) as local:
            ask(local)
        lines[-1] = lines.get(-1, "") + f"{caught.value!r} {caught.value.hint} {failing}"
    shown = "".join([*lines.values(), *capfd.readouterr()])
    assert not [secret for secret in secrets if secret in shown]


# What fails, and how


def test_wrong_key(connection: MysqlConnection, tmp_path: Path) -> None:
    error = refusal(through(connection, key=str(make_key(tmp_path / "other"))))
    assert isinstance(error, ConfigError)
    assert "rejected user" in error.message
    assert "Permission denied (publickey)" in error.message
    assert error.hint
    assert "authorized_keys" in error.hint


def test_key_with_a_passphrase_is_refused_without_asking(
    connection: MysqlConnection, tmp_path: Path
) -> None:
    error = refusal(through(connection, key=str(make_key(tmp_path / "k", passphrase="hunter2"))))
    assert error.hint
    assert "no passphrase" in error.hint


def test_keys_that_cannot_be_read(
    connection: MysqlConnection, sshd: PrivateSshd, tmp_path: Path
) -> None:
    missing, junk, public = tmp_path / "missing", tmp_path / "junk", tmp_path / "public"
    error = refusal(through(connection, key=str(missing)))
    assert error.message == f"tunnel.key: cannot read {missing}: No such file or directory"
    junk.write_text("not a key\n")
    junk.chmod(0o600)
    error = refusal(through(connection, key=str(junk)))
    assert "tunnel.key cannot be used: Load key" in error.message
    public.write_bytes(sshd.key.read_bytes())
    public.chmod(0o644)
    error = refusal(through(connection, key=str(public)))
    assert error.hint == f"chmod 600 {public}"


def test_unknown_host_key(connection: MysqlConnection, sshd: PrivateSshd, tmp_path: Path) -> None:
    empty = tmp_path / "known_hosts"
    error = refusal(through(connection, known_hosts=str(empty)))
    assert isinstance(error, ConfigError)
    assert "is not known: No ED25519 host key is known for" in error.message
    assert not empty.exists()
    # The hint is right: what it says makes the server known.
    assert error.hint
    command, _, _ = error.hint.partition(" and compare")
    subprocess.run(command, shell=True, check=True, capture_output=True)
    with open_tunnel(through(connection, known_hosts=str(empty))) as local:
        assert ask(local) == 42


def test_changed_host_key(connection: MysqlConnection, tmp_path: Path) -> None:
    with_other_key = PrivateSshd(tmp_path)
    with_other_key.know(make_key(tmp_path / "former_key"))
    with with_other_key:
        changed = structs.replace(connection, tunnel=with_other_key.settings)
        error = refusal(changed)
        assert "has changed: Offending" in error.message
        assert f"Offending ED25519 key in {with_other_key.known_hosts}:1" in error.message
        assert error.hint
        command = error.hint[error.hint.index("ssh-keygen") :]
        subprocess.run(command, shell=True, check=True, capture_output=True)
        assert "is not known: " in refusal(changed).message


def test_sshd_not_running(connection: MysqlConnection) -> None:
    error = refusal(through(connection, port=free_ports(1)[0]))
    assert "does not answer" in error.message
    assert "Connection refused" in error.message
    assert error.hint == "check 'host' and 'port' of the tunnel, and that the server is running"


def test_host_that_does_not_exist(connection: MysqlConnection) -> None:
    error = refusal(through(connection, host="no-such-host.invalid"))
    assert "Could not resolve hostname no-such-host.invalid" in error.message


def test_host_is_never_an_option(connection: MysqlConnection, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    refusal(through(connection, host=f"-oProxyCommand=touch {trace}"))
    assert not trace.exists()


def test_server_that_never_answers(
    connection: MysqlConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tunnel, "_OPEN_SECONDS", 0.5)
    with socket.create_server((LOOPBACK, 0)) as silent:
        error = refusal(through(connection, port=silent.getsockname()[1]))
    assert "took more than 0.5 seconds" in error.message


def test_client_is_missing(
    connection: MysqlConnection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    error = refusal(connection)
    assert isinstance(error, ConfigError)
    assert error.hint
    assert "openssh-client" in error.hint


def test_target_port_closed(connection: MysqlConnection) -> None:
    port = free_ports(1)[0]
    with (
        pytest.raises(FloodmarkError) as caught,
        open_tunnel(structs.replace(connection, port=port)) as local,
    ):
        ask(local)
    assert f"cannot reach {LOOPBACK}:{port}: connect failed: Conn" in caught.value.message
    assert caught.value.hint
    assert "as seen from the SSH server" in caught.value.hint


def test_forwarding_not_allowed(connection: MysqlConnection, tmp_path: Path) -> None:
    with (
        PrivateSshd(tmp_path, "AllowTcpForwarding no") as sshd,
        pytest.raises(FloodmarkError, match="administratively prohibited") as caught,
        open_tunnel(structs.replace(connection, tunnel=sshd.settings)) as local,
    ):
        ask(local)
    assert caught.value.hint
    assert "AllowTcpForwarding" in caught.value.hint


def test_mysql_errors_stay_what_they_are(connection: MysqlConnection) -> None:
    wrong = structs.replace(connection, password=Secret("wrong"))
    with pytest.raises(ConfigError, match="refuses user"), open_tunnel(wrong) as local:
        ask(local)
    with pytest.raises(UsageError, match="doesn't exist"), open_tunnel(connection) as local:
        ask(local, "SELECT 1 FROM mysql.no_such_table")


# What breaks in the middle


def kill_client(local: MysqlConnection) -> None:
    [client] = clients(local.port)
    os.kill(client, signal.SIGKILL)


def ask_again_after(breaking: Callable[[], None], local: MysqlConnection) -> None:
    """Break something while a connection is open, and then use it."""
    with connect(local) as session, session.cursor() as cursor:
        breaking()
        cursor.execute("SELECT 1")


def test_client_dies_in_the_middle(connection: MysqlConnection) -> None:
    with Tunnels() as tunnels:
        with (
            pytest.raises(FloodmarkError, match="ended by signal 9") as caught,
            tunnels.through(connection) as local,
        ):
            ask_again_after(partial(kill_client, local), local)
        assert caught.value.hint
        assert "ended the connection" in str(caught.value.__cause__)
        # The rest of the run fails in the same way, without asking MySQL.
        with pytest.raises(FloodmarkError, match="SSH tunnel"), tunnels.through(connection):
            pytest.fail("there is no tunnel")
    with Tunnels() as next_run, next_run.through(connection) as local:
        assert ask(local) == 42


def test_server_ends_the_session_in_the_middle(connection: MysqlConnection, tmp_path: Path) -> None:
    with PrivateSshd(tmp_path) as sshd:

        def end_sessions() -> None:
            for path in Path(f"/proc/{sshd.pid}/task").glob("*/children"):
                for child in path.read_text().split():
                    os.kill(int(child), signal.SIGKILL)

        with (
            pytest.raises(FloodmarkError, match=r"SSH tunnel through .* ended with code 255: \S"),
            open_tunnel(structs.replace(connection, tunnel=sshd.settings)) as local,
        ):
            ask_again_after(end_sessions, local)


@pytest.mark.parametrize("error", [LeaseLost("x"), StorageError("x"), ValueError("x")], ids=repr)
def test_errors_that_cannot_be_the_tunnels_fault_are_left_alone(
    connection: MysqlConnection, error: Exception
) -> None:
    def fail(local: MysqlConnection) -> None:
        kill_client(local)
        raise error

    with pytest.raises(type(error)) as caught, open_tunnel(connection) as local:
        fail(local)
    assert caught.value is error


def test_client_dies_with_a_killed_parent(connection: MysqlConnection, sshd: PrivateSshd) -> None:
    program = (
        "import sys, time; from floodmark.config.models import MysqlConnection, TunnelSettings\n"
        "from floodmark.tunnels.tunnel import open_tunnel\n"
        "host, port, user, key, known = sys.argv[1:]\n"
        "settings = TunnelSettings(\n"
        "    host=host, port=int(port), user=user, key=key, known_hosts=known)\n"
        "with open_tunnel(MysqlConnection(user='u', tunnel=settings)) as local:\n"
        "    print(local.port, flush=True); time.sleep(60)"
    )
    tunnel = sshd.settings
    words = [tunnel.host, str(tunnel.port), tunnel.user, tunnel.key, str(tunnel.known_hosts)]
    with subprocess.Popen(
        [sys.executable, "-c", program, *words],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(floodmark.__file__).parents[1])},
    ) as parent:
        assert parent.stdout is not None
        port = int(parent.stdout.readline())
        assert len(clients(port)) == 1
        parent.send_signal(signal.SIGKILL)
    assert eventually(lambda: not clients(port))


# As part of a run


CONFIG = """\
lake: ./lake
connections:
  SHOP:
    type: mysql
    port: {mysql_port}
    user: floodmark
    password: ${{SHOP_PASSWORD}}
    tunnel: {{host: {host}, port: {port}, user: {user}, key: ./key, known_hosts: ./known}}
  warehouse: {{type: duckdb, path: w.duckdb}}
pipelines:
  shop: {{source: SHOP, target: warehouse, tables: {{tunnel_shop.orders: {{}}}}}}
"""


@pytest.fixture
def config(
    server: PrivateMariaDB, sshd: PrivateSshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    (tmp_path / "key").symlink_to(sshd.key)
    (tmp_path / "known").symlink_to(sshd.known_hosts)
    monkeypatch.setenv("SHOP_PASSWORD", server.password)
    tunnel = sshd.settings
    path = tmp_path / "floodmark.yml"
    path.write_text(
        CONFIG.format(mysql_port=server.port, host=tunnel.host, port=tunnel.port, user=tunnel.user)
    )
    server.execute("CREATE DATABASE IF NOT EXISTS tunnel_shop")
    server.execute("CREATE TABLE IF NOT EXISTS tunnel_shop.orders (id INT PRIMARY KEY)")
    server.execute("REPLACE INTO tunnel_shop.orders VALUES (1), (2), (3)")
    return path


def test_settings_come_from_the_configuration(config: Path) -> None:
    loaded = load_config(str(config), os.environ).connection("SHOP")
    assert isinstance(loaded, MysqlConnection)
    assert loaded.tunnel is not None
    assert (loaded.tunnel.key, loaded.tunnel.keepalive_seconds) == ("./key", 15)
    config.write_text(config.read_text().replace("key: ", "keyfile: "))
    with pytest.raises(ConfigError, match=r"connections.SHOP.tunnel: unknown key 'keyfile'"):
        load_config(str(config), os.environ)


def test_dry_run_reads_through_the_tunnel(
    config: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[int] = []
    command = ssh.ssh_command

    def watched(*arguments: Any) -> list[str]:
        opened.append(arguments[-1])
        return command(*arguments)

    monkeypatch.setattr(tunnel, "ssh_command", watched)
    arguments = ["sync", "-p", "shop", "--backup-only", "--dry-run", "--config", str(config)]
    assert run(arguments) == 0
    assert "3 rows in 1 window" in capfd.readouterr().out
    assert len(opened) == 1
    assert not clients(opened[0])


def test_run_that_cannot_open_its_tunnel_only_records_that(
    config: Path, sshd: PrivateSshd, capfd: pytest.CaptureFixture[str]
) -> None:
    config.write_text(config.read_text().replace(f"port: {sshd.port}", f"port: {free_ports(1)[0]}"))
    assert run(["sync", "-p", "shop", "--backup-only", "--config", str(config)]) == 1
    assert "does not answer" in capfd.readouterr().err
    lake = config.parent / "lake"
    written = {path.relative_to(lake).parts[:2] for path in lake.glob("**/*") if path.is_file()}
    assert written == {("watermarks", "leases"), ("watermarks", "runs")}


ELSEWHERE = [
    SparkSettings(master="spark://cluster:7077"),
    SparkSettings(master="yarn"),
    SparkSettings(remote="sc://cluster:15002/;token=hunter2"),
    SparkSettings(options={"spark.master": "k8s://cluster"}),
]


@pytest.mark.parametrize("spark", ELSEWHERE, ids=str)
def test_workers_elsewhere_cannot_use_a_tunnel(
    connection: MysqlConnection, spark: SparkSettings
) -> None:
    direct = structs.replace(connection, tunnel=None)
    with open_tunnels([direct], [], spark, folder="") as tunnels, tunnels.through(direct) as same:
        assert same is direct
    with (
        pytest.raises(ConfigError, match="cannot reach it") as caught,
        open_tunnels([direct, connection], [], spark, folder=""),
    ):
        pytest.fail("this must be refused")
    assert "hunter2" not in caught.value.message


@pytest.mark.parametrize("master", ["local", "local[*,4]", "local-cluster[2,1,1024]"])
def test_workers_here_can_use_a_tunnel(connection: MysqlConnection, master: str) -> None:
    with (
        open_tunnels(
            [connection, connection], [], SparkSettings(master=master), folder=""
        ) as tunnels,
        tunnels.through(connection) as local,
    ):
        assert ask(local) == 42
