"""Commands that are forked from a process that has imported everything."""

import fcntl
import json
import os
import pty
import shutil
import signal
import socket
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import floodmark
from background_spark import tree
from floodmark.fork_server.meeting import SECRET_BYTES
from pipelines import Ended, cold_environment, finish, wait_until

pytestmark = pytest.mark.usefixtures("settings_of_the_file")

# What a command can find out about itself. The same program runs in a fork and alone.
PROBE = """
import io, json, os, resource, shutil, signal, sys, time
def probe(*_, **options):
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    if "--backup-only" in sys.argv:
        open("began", "w").close()
        try:
            time.sleep(60)
        finally:
            open("ended", "w").close()
    streams = [sys.stdin, sys.stdout, sys.stderr]
    facts = {
        "argv": sys.argv, "path": sys.path, "package": sys.modules["__main__"].__package__,
        "variables": {k: v for k, v in os.environ.items() if k != "_"},
        "folder": os.getcwd(), "umask": os.umask(0o077),
        "streams": [
            (one.isatty(), one.encoding, one.errors, one.line_buffering, one.write_through,
             type(one.buffer).__name__, one.fileno()) for one in streams
        ],
        "same": [one is other for one, other in
                 zip(streams, [sys.__stdin__, sys.__stdout__, sys.__stderr__])],
        "open": sorted(
            os.readlink(f"/proc/self/fd/{n}").split("/")[1]
            for n in os.listdir("/proc/self/fd") if int(n) > 2
            and os.path.exists(f"/proc/self/fd/{n}")
        ),
        "size": list(shutil.get_terminal_size()),
        "limits": [resource.getrlimit(resource.RLIMIT_NOFILE), os.nice(0)],
        "signals": [str(signal.getsignal(n)) for n in
                    (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE)],
        "blocked": [int(n) for n in signal.pthread_sigmask(signal.SIG_BLOCK, ())],
    }
    print(json.dumps(facts), flush=True)
    print("an error: é", file=sys.stderr)
    sys.stdout.write("unflushed")
    sys.exit(7)
"""
SERVER = f"""{PROBE}
import floodmark.fork_server.command as command
command.main = probe
from floodmark.fork_server.server import main
main()
"""
CLIENT = f"""{PROBE}
signal.pthread_sigmask(signal.SIG_BLOCK, {{signal.SIGINT}})
if os.environ.pop("ALONE", None) is None:
    from floodmark.fork_server.client import run_forked
    why = run_forked()
    print("alone:", why, file=sys.stderr)
probe()
"""
CONFIG = """
lake: ./lake
connections:
  PROD: {type: mysql, host: 127.0.0.1, user: u, password: "p"}
  warehouse: {type: duckdb, path: ./w.duckdb}
spark: {keep_warm: 10m}
"""


class Forks:
    """A cache folder with a fork server of its own, whose commands describe themselves."""

    def __init__(self, folder: Path, **variables: str) -> None:
        self.folder = folder
        self.place = folder / "cache" / "floodmark" / "background-commands"
        self.variables = variables
        (folder / "floodmark.yml").write_text(CONFIG)
        self.server = subprocess.Popen(
            [sys.executable, "-c", SERVER],
            stdin=subprocess.PIPE,
            cwd="/",
            env=self.environment(),
            start_new_session=True,
        )
        wait_until(self.listens)

    def listens(self) -> bool:
        """Whether commands can find the server."""
        return any(self.place.glob("*.sock"))

    def environment(self, **variables: str) -> dict[str, str]:
        """The environment of a command."""
        own = {"XDG_CACHE_HOME": str(self.folder / "cache"), **self.variables}
        plain = {k: v for k, v in cold_environment().items() if k != "PYTHONUNBUFFERED"}
        return {**plain, **own, **variables}

    def command(
        self, *arguments: str, setup: str = "", options: tuple[str, ...] = (), **variables: str
    ) -> "subprocess.Popen[str]":
        """Start a command, which runs `setup` first."""
        return subprocess.Popen(
            [sys.executable, *options, "-c", setup + CLIENT, "sync", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            errors="surrogateescape",
            cwd=self.folder,
            env=self.environment(**variables),
        )

    def run(self, *arguments: str, **options: Any) -> Ended:
        """Run a command."""
        return finish(self.command(*arguments, **options))

    def children(self) -> list[int]:
        """The processes that were forked, and have not ended."""
        return [pid for pid in tree(self.server.pid)[1:] if _state(pid) not in "ZX"]

    def sleeping(self, **options: Any) -> "subprocess.Popen[str]":
        """Start a command that takes a minute, and wait until it is forked and runs."""
        process = self.command("--backup-only", **options)
        wait_until((self.folder / "began").exists)
        assert len(self.children()) == 1
        return process

    def cleaned_up(self) -> bool:
        """Whether a command that was interrupted came to its `finally`."""
        return (self.folder / "ended").exists()


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"


def _facts(ended: Ended) -> dict[str, Any]:
    assert ended.code == 7, ended
    text, rest = ended.out.split("\n", 1)
    assert rest == "unflushed"
    found: dict[str, Any] = json.loads(text)
    return found


@pytest.fixture
def forks(tmp_path: Path) -> Iterator[Forks]:
    made = Forks(tmp_path)
    yield made
    made.server.kill()
    made.server.communicate()


SETUPS = {
    "plain": "",
    "umask and folder": "import os; os.umask(0o027); os.mkdir('n\u00e4'); os.chdir('n\u00e4')\n"
    "import shutil; shutil.copy('../floodmark.yml', '.')\n",
    "ignored": "import signal\nfor n in (1, 2, 15): signal.signal(n, signal.SIG_IGN)\n",
}


@pytest.mark.parametrize("setup", SETUPS.values(), ids=SETUPS)
@pytest.mark.parametrize("variables", [{}, {"PYTHONUNBUFFERED": "1"}, {"LC_ALL": "C.ISO-8859-1"}])
def test_a_fork_cannot_be_distinguished_from_a_command(
    tmp_path: Path, setup: str, variables: dict[str, str]
) -> None:
    """Arguments, variables, folder, umask, streams, descriptors, limits, signals, exit code."""
    forks = Forks(tmp_path, **variables)
    try:
        options = {"setup": setup, "ODD": "a=b\nc\udcfe", "EMPTY": ""}
        forked = forks.run("-t", "\u00e4\udcff", "", **options)
        assert "alone" not in forked.err
        alone = forks.run(
            "-t",
            "\u00e4\udcff",
            "",
            **{**options, "setup": setup.replace("os.mkdir", "str")},
            ALONE="1",
        )
        assert forked.err == alone.err
        assert _facts(forked) == _facts(alone)
        assert _facts(forked)["variables"]["ODD"] == "a=b\nc\udcfe"
        wait_until(lambda: not forks.children())
    finally:
        forks.server.kill()
        forks.server.communicate()


def test_a_fork_has_the_terminal_of_its_command(forks: Forks) -> None:
    facts = []
    for variables in ({"ALONE": "1"}, {}):
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 44, 123, 0, 0))
        environment = forks.environment(**variables)
        for name in ("COLUMNS", "LINES"):
            environment.pop(name, None)
        process = subprocess.Popen(
            [sys.executable, "-c", CLIENT, "sync"],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=forks.folder,
            env=environment,
        )
        assert process.wait(60) == 7
        os.close(theirs)
        shown = os.read(ours, 1 << 16).decode().replace("\r", "")
        os.close(ours)
        assert "alone" not in shown
        facts.append(json.loads(shown.splitlines()[0]))
    assert facts[0] == facts[1]
    assert facts[0]["size"] == [123, 44]
    assert facts[0]["streams"][0][0]


@pytest.mark.parametrize(
    ("number", "cleaned_up"),
    [(signal.SIGINT, True), (signal.SIGTERM, False), (signal.SIGHUP, False)],
)
def test_signals_end_a_fork_as_they_end_a_command(
    forks: Forks, number: signal.Signals, cleaned_up: bool
) -> None:
    before = signal.signal(number, signal.SIG_DFL)  # with nohup, these tests ignore SIGHUP
    try:
        process = forks.sleeping()
    finally:
        signal.signal(number, before)
    process.send_signal(number)
    assert finish(process).code == -number
    wait_until(lambda: not forks.children())
    assert forks.cleaned_up() == cleaned_up


def test_ctrl_z_stops_a_fork_too(forks: Forks) -> None:
    process = forks.sleeping()
    (child,) = forks.children()
    process.send_signal(signal.SIGTSTP)
    wait_until(lambda: _state(process.pid) == _state(child) == "T")
    process.send_signal(signal.SIGCONT)
    wait_until(lambda: _state(child) == "S")
    process.send_signal(signal.SIGTSTP)
    wait_until(lambda: _state(process.pid) == _state(child) == "T")
    process.kill()
    process.communicate()
    wait_until(lambda: not forks.children())


def test_a_command_that_is_killed_takes_its_fork_along(forks: Forks) -> None:
    process = forks.sleeping()
    process.kill()
    process.communicate()
    wait_until(lambda: not forks.children())
    assert not forks.cleaned_up()
    assert _facts(forks.run())


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
def test_a_command_ends_as_its_fork_that_is_killed(forks: Forks, number: signal.Signals) -> None:
    process = forks.sleeping()
    (child,) = forks.children()
    os.kill(child, number)
    assert finish(process).code == -number
    assert _facts(forks.run())


def test_a_server_that_is_killed_takes_its_forks_and_their_commands_along(forks: Forks) -> None:
    process = forks.sleeping()
    (child,) = forks.children()
    forks.server.kill()
    assert finish(process).code == -signal.SIGKILL
    wait_until(lambda: _state(child) in "ZX")
    assert not forks.cleaned_up()
    ended = forks.run()
    assert "refused" in ended.err
    assert _facts(ended)


@pytest.mark.parametrize("way", ["the end of its stdin", "SIGTERM", "removed files"])
def test_a_server_that_has_to_end_lets_its_forks_run(forks: Forks, way: str) -> None:
    process = forks.sleeping()
    if way == "removed files":
        for path in forks.place.iterdir():
            path.unlink()
        assert "alone: none runs" in forks.run().err
        assert "alone: none runs" in forks.run().err
        process.send_signal(signal.SIGINT)  # only now it looks
    elif way == "SIGTERM":
        forks.server.terminate()
    else:
        assert forks.server.stdin is not None
        forks.server.stdin.close()
        forks.server.stdin = None
    wait_until(lambda: not forks.listens())
    ended = forks.run()
    assert "alone: none runs" in ended.err
    assert _facts(ended)
    if way != "removed files":
        assert len(forks.children()) == 1
        process.send_signal(signal.SIGINT)
    assert finish(process).code == -signal.SIGINT
    assert forks.cleaned_up()
    assert forks.server.wait(60) == 0
    assert not list(forks.place.iterdir())


def test_a_server_whose_code_has_changed_ends(tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(
        Path(floodmark.__file__).parent,
        source / "floodmark",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    forks = Forks(tmp_path, PYTHONPATH=str(source))
    try:
        assert "alone" not in forks.run().err
        process = forks.sleeping()
        with (source / "floodmark" / "errors.py").open("a") as file:
            file.write("# another version\n")
        assert "alone: the installed code has changed" in forks.run().err
        assert not forks.listens()
        process.send_signal(signal.SIGINT)
        assert finish(process).code == -signal.SIGINT
        assert forks.server.wait(60) == 0
    finally:
        forks.server.kill()
        forks.server.communicate()


@pytest.mark.parametrize(
    "options",
    [
        {"setup": "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (99, 99))\n"},
        {"setup": "import os; os.nice(1)\n"},
        {"setup": "import os; os.sched_setaffinity(0, list(os.sched_getaffinity(0))[:1])\n"},
        {"setup": "import sys; sys.path.append('/elsewhere')\n"},
        {"options": ("-O",)},
        {"TZ": "America/Toronto"},
        {"LANG": "C"},
    ],
    ids=str,
)
def test_other_limits_or_start_variables_are_not_for_this_server(
    forks: Forks, options: dict[str, Any]
) -> None:
    ended = forks.run(**options)
    assert "alone: none runs" in ended.err
    assert _facts(ended)
    assert "alone" not in forks.run().err


def test_what_the_configuration_does_not_want_runs_alone(forks: Forks) -> None:
    config = forks.folder / "floodmark.yml"
    assert "alone: with --every" in forks.run("--every", "5m").err
    config.write_text(CONFIG.replace("keep_warm: 10m", ""))
    assert "alone: keep_warm is not set" in forks.run().err
    assert "alone" not in forks.run(FLOODMARK_SPARK="{keep_warm: 5m}").err
    config.rename(forks.folder / "other.yml")
    assert "alone: no configuration" in forks.run().err
    assert "alone: keep_warm is not set" in forks.run("--config", "other.yml").err
    wait_until(lambda: not forks.children())


def test_what_cannot_be_handed_over_runs_alone(forks: Forks) -> None:
    assert "too long" in forks.run(LARGE="x" * 120_000, LARGER="x" * 120_000).err
    for number in (0, 1):
        closed = forks.run(setup=f"import os; os.close({number})\n")
        assert "alone: [Errno 9] Bad file descriptor" in closed.err


def test_a_server_that_does_not_answer_in_time_begins_nothing(forks: Forks) -> None:
    os.kill(forks.server.pid, signal.SIGSTOP)
    process = forks.command("--backup-only")
    wait_until((forks.folder / "began").exists)  # alone
    os.kill(forks.server.pid, signal.SIGCONT)
    (forks.folder / "began").unlink()
    process.send_signal(signal.SIGINT)
    ended = finish(process)
    assert ended.code == -signal.SIGINT
    assert "alone: timed out" in ended.err
    wait_until(lambda: not forks.children())
    assert not (forks.folder / "began").exists()
    assert "alone" not in forks.run().err


def test_without_the_secret_nothing_is_forked(forks: Forks) -> None:
    (path,) = forks.place.glob("*.secret")
    secret = path.read_bytes()
    path.write_bytes(b"x" * len(secret))
    assert "alone: " in forks.run().err
    path.chmod(0o644)
    assert "alone: others can read or write" in forks.run().err
    path.write_bytes(secret)
    path.chmod(0o600)
    assert "alone" not in forks.run().err
    for file in forks.place.iterdir():
        assert file.stat().st_mode & 0o077 == 0


def test_a_server_refuses_who_does_not_know_its_secret(forks: Forks) -> None:
    with _connected(forks) as connection:
        assert len(connection.recv(100)) == SECRET_BYTES
        connection.send(b"x" * 2 * SECRET_BYTES)
        assert connection.recv(100) == b""


def test_a_command_tells_nothing_to_who_does_not_know_the_secret(forks: Forks) -> None:
    forks.server.kill()
    forks.server.communicate()
    (path,) = forks.place.glob("*.sock")
    path.unlink()
    descriptor = os.open(forks.place, os.O_PATH)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as impostor:
        impostor.bind(f"/proc/self/fd/{descriptor}/{path.name}")
        os.close(descriptor)
        impostor.listen()
        process = forks.command()
        connection, _ = impostor.accept()
        with connection:
            connection.send(b"y" * SECRET_BYTES)
            assert len(connection.recv(1000)) == 2 * SECRET_BYTES
            connection.send(b"z" * SECRET_BYTES)
            assert connection.recv(1000) == b""
    ended = finish(process)
    assert "alone: it does not know the secret" in ended.err
    assert _facts(ended)


@contextmanager
def _connected(forks: Forks) -> Iterator[socket.socket]:
    (path,) = forks.place.glob("*.sock")
    descriptor = os.open(forks.place, os.O_PATH)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.settimeout(30)
        connection.connect(f"/proc/self/fd/{descriptor}/{path.name}")
        os.close(descriptor)
        yield connection


def test_a_stranger_is_refused(forks: Forks) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, to become another user")
    connect = (
        "import os, socket, sys\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
        "s.connect(sys.argv[1])\n"
        "print(len(s.recv(100)))\n"
    )

    def try_it() -> Ended:
        (path,) = forks.place.glob("*.sock")
        descriptor = os.open(forks.place, os.O_PATH)
        command = [sys.executable, "-c", connect, f"/proc/self/fd/{descriptor}/{path.name}"]
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            pass_fds=[descriptor],
        )
        os.close(descriptor)
        return finish(process)

    assert "PermissionError" in try_it().err
    forks.place.chmod(0o755)
    for path in forks.place.glob("*.sock"):
        path.chmod(0o666)
    assert try_it().out == "0\n"
    assert "alone" not in forks.run().err
    assert forks.place.stat().st_mode & 0o777 == 0o700


def test_a_command_that_is_forked_imports_little() -> None:
    script = "import sys, floodmark.fork_server.client; print(*sys.modules)"
    printed = subprocess.run(
        [sys.executable, "-c", script], check=True, stdout=subprocess.PIPE, text=True
    ).stdout.split()
    assert "floodmark.spark.background.place" in printed
    assert not {"typing", "re", "click", "msgspec", "json"} & set(printed)


@pytest.mark.parametrize("chosen", [None, "mimalloc"])
def test_forked_commands_do_not_use_huge_pages_for_rows(chosen: str | None) -> None:
    script = """
from floodmark.fork_server import server
class Serving:
    def __init__(self, *_): pass
    def stop_listening(self): pass
    def serve(self):
        import pyarrow
        print(pyarrow.default_memory_pool().backend_name)
server.ForkServer = Serving
server._serve(None, "", 0)
"""
    variables = {k: v for k, v in cold_environment().items() if k != "ARROW_DEFAULT_MEMORY_POOL"}
    if chosen:
        variables["ARROW_DEFAULT_MEMORY_POOL"] = chosen
    printed = subprocess.run(
        [sys.executable, "-c", script], check=True, stdout=subprocess.PIPE, text=True, env=variables
    ).stdout
    assert printed == f"{chosen or 'system'}\n"


def test_many_commands_at_once(forks: Forks) -> None:
    commands = [forks.command("-t", str(number)) for number in range(16)]
    for number, process in enumerate(commands):
        ended = finish(process, 120)
        assert _facts(ended)["argv"][-1] == str(number)
    wait_until(lambda: not forks.children())
    descriptors = len(os.listdir(f"/proc/{forks.server.pid}/fd"))
    assert "alone" not in forks.run().err
    wait_until(lambda: len(os.listdir(f"/proc/{forks.server.pid}/fd")) == descriptors)
