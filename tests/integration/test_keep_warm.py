"""A Spark in the background that commands attach to: `spark: {keep_warm: …}`."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import yaml

from background_spark import ATTACHED, BEATS, PROGRAM, Warm, end, runs, tree
from pipelines import Ended, Pipeline, ask_once, finish, numbers, wait_until
from servers.postgres import PrivatePostgres

pytestmark = pytest.mark.usefixtures("settings_of_the_file")

MakePipeline = Callable[..., Pipeline]


@pytest.fixture(scope="module")
def module_warm(server_folder: Callable[[str], Path]) -> Iterator[Warm]:
    warm = Warm(server_folder("warm"))
    yield warm
    end(warm)


@pytest.fixture
def warm(module_warm: Warm) -> Iterator[Warm]:
    """Background Sparks of this module, so that not every test starts one."""
    yield module_warm
    for path in module_warm.folder.glob("beat"):
        path.unlink()


@pytest.fixture
def own_warm(tmp_path: Path) -> Iterator[Warm]:
    """Background Sparks of one test."""
    warm = Warm(tmp_path)
    yield warm
    end(warm)


def _grows(path: Path) -> bool:
    before = path.stat().st_size
    time.sleep(1)
    return path.stat().st_size > before


@pytest.fixture
def synced(pipeline: MakePipeline, warm: Warm) -> Pipeline:
    """A table of 1,000 rows, whose syncs attach; its password comes from the environment."""
    made = pipeline({"t": "{cursor: id}"}, settings="spark: {keep_warm: 10m, master: 'local[2]'}")
    ask_once(made, "CREATE TABLE t (id INT PRIMARY KEY, note VARCHAR(40))")
    _insert(made, 1, 1000)
    path = Path(made.config)
    password = json.dumps(made.source["password"])
    path.write_text(path.read_text().replace(password, '"${SOURCE_PASSWORD}"'))
    return made


def _insert(made: Pipeline, first: int, last: int) -> None:
    ask_once(made, f"INSERT INTO t SELECT seq, CONCAT('row ', seq) FROM {numbers(first, last)}")


def _sync(warm: Warm, made: Pipeline, *options: str, **variables: str) -> "subprocess.Popen[str]":
    command = [*PROGRAM, "sync", "-p", "main", "--config", made.config, *options]
    return warm.start(command, SOURCE_PASSWORD=made.source["password"], **variables)


@pytest.mark.enough_on("mariadb")
def test_commands_attach_to_one_spark_which_keeps_no_secret(warm: Warm, synced: Pipeline) -> None:
    first = finish(_sync(warm, synced, SECRET_OF_MINE="only-for-the-job"), 300)
    assert first.code == 0, first
    server = warm.server()
    _insert(synced, 1001, 1100)
    second = finish(_sync(warm, synced, "--json"), 300)
    assert second.code == 0, second
    assert second.table["rows"] == 100
    assert "starting Spark" not in second.err
    again = warm.server()
    assert again["pid"] == server["pid"]
    assert again["jobs_done"] > server["jobs_done"]
    assert again["commands"] == again["jobs"] == 0
    assert synced.ids() == dict.fromkeys(range(1, 1101), 1)
    synced.check_tracking()
    for secret in (synced.source["password"], "only-for-the-job"):
        for pid in tree(server["pid"]):
            for facts in ("cmdline", "environ"):
                with suppress(ProcessLookupError, FileNotFoundError):  # a worker that ended since
                    assert secret.encode() not in Path(f"/proc/{pid}/{facts}").read_bytes()
        for folder in (warm.cache, *_temporary_folders(server["pid"])):
            for path in folder.rglob("*"):
                if path.is_file():
                    assert secret.encode() not in path.read_bytes(), path
    for path in warm.place.iterdir():
        assert path.stat().st_mode & 0o077 == 0, path
    assert warm.place.stat().st_mode & 0o777 == 0o700


def _temporary_folders(pid: int) -> set[Path]:
    """The temporary folders in which a server's processes have open files."""
    found = set()
    for process in tree(pid):
        for link in Path(f"/proc/{process}/fd").iterdir():
            with suppress(OSError):
                target = Path(os.readlink(link))
                if target.is_file() and target.is_relative_to("/tmp"):
                    found.add(target.parent)
    return found - {Path("/tmp")}


@pytest.mark.enough_on("mariadb")
def test_ctrl_c_cancels_the_job_and_spark_stays(warm: Warm, synced: Pipeline) -> None:
    path = Path(synced.config)
    path.write_text(
        path.read_text().replace('"type": "mysql"', '"type": "mysql", "max_rows_per_second": 5')
    )
    _insert(synced, 1001, 1100)
    process = _sync(warm, synced)
    wait_until(lambda: any(server["jobs"] for server in warm.servers()), 120)
    pid = warm.server()["pid"]
    process.send_signal(signal.SIGINT)
    assert finish(process).code == 130
    wait_until(lambda: not warm.server()["jobs"], 60)
    assert synced.chunks() == []
    path.write_text(path.read_text().replace(', "max_rows_per_second": 5', ""))
    ended = finish(_sync(warm, synced), 300)
    assert ended.code == 0, ended
    assert warm.server()["pid"] == pid
    assert synced.ids() == dict.fromkeys(range(1, 1101), 1)


@pytest.fixture
def forked(warm: Warm, synced: Pipeline) -> Pipeline:
    """A synced table, whose next syncs are forked."""
    assert finish(_sync(warm, synced), 300).code == 0
    wait_until(lambda: any(warm.place.with_name("background-commands").glob("*.sock")))
    return synced


def _is_forked(ended: Ended) -> bool:
    assert ended.code == 0, ended
    return "debug: the fork server does not run this" not in ended.err


@pytest.mark.enough_on("mariadb")
def test_a_forked_sync_prints_what_it_prints_alone(warm: Warm, forked: Pipeline) -> None:
    """Byte for byte, as a module and as a program; -O keeps it from being forked."""
    program = str(Path(sys.executable).with_name("floodmark"))
    config = ["--config", forked.config]
    for start in (["-m", "floodmark"], [program]):
        forks, alone = ([sys.executable, *options, *start, "sync"] for options in ([], ["-O"]))
        for arguments in (
            ["-p", "main"],
            ["-p", "main", "--dry-run", "--json"],
            ["-p", "main", "--backup-only", "--load-only"],
            ["-p", "main", "--log-format", "json", "--limit", "none"],
            ["-p", "main", "--debug"],
            ["-t", "nothing.here", "--debug"],
            ["--nonsense"],
            ["--help"],
        ):
            found = [
                finish(
                    warm.start(
                        [*command, *arguments, *config], SOURCE_PASSWORD=forked.source["password"]
                    )
                )
                for command in (forks, alone)
            ]
            assert _without_times(found[0]) == _without_times(found[1])
            if found[0].code == 0 and "--debug" in arguments:
                assert [_is_forked(one) for one in found] == [True, False]
    unset = finish(warm.start([*PROGRAM, "sync", "-p", "main", *config]))
    assert "environment variable SOURCE_PASSWORD is not set" in unset.err


def _without_times(ended: Ended) -> Ended:
    times = r"20\d{6}_\d{6}_\w+|\d{4}-\d\d-\d\dT[\d:.]+Z|line \d+, in|debug: the fork server.*\n"
    return Ended(ended.code, ended.out, re.sub(times, "", ended.err))


@pytest.mark.enough_on("mariadb")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_forked_sync_that_is_stopped_while_it_loads_leaves_what_it_does_alone(
    warm: Warm, forked: Pipeline, postgres: PrivatePostgres, number: signal.Signals
) -> None:
    """The rows are in the lake, not in the table, and the lease is free: the next sync loads."""
    schema = f"w_{forked.schema}"
    warehouse = {
        "type": "postgres",
        "port": postgres.port,
        "user": postgres.user,
        "password": postgres.password,
        "database": postgres.database,
        "schema": schema,
    }
    path = Path(forked.config)
    settings = yaml.safe_load(path.read_text())
    settings["connections"]["warehouse"] = warehouse
    settings["lake"] = str(path.parent / "other")
    path.write_text(json.dumps(settings))
    assert finish(_sync(warm, forked), 300).code == 0
    _insert(forked, 1001, 1100)
    with postgres.connect() as locker, locker.transaction(force_rollback=True):
        locker.execute(f'LOCK TABLE "{schema}".t IN ACCESS EXCLUSIVE MODE')
        process = _sync(warm, forked)
        wait_until(lambda: _waits_for_a_lock(postgres), 60)
        process.send_signal(number)
        time.sleep(2)  # nothing shows that the signal has arrived: a statement is not interrupted
    ended = finish(process)
    expected = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGKILL: -signal.SIGKILL}
    assert ended.code == expected[number], ended
    wait_until(lambda: not _waits_for_a_lock(postgres), 60)
    count = f'SELECT count(*) FROM "{schema}".t'
    assert postgres.execute(count)[0][0] == 1000
    again = finish(_sync(warm, forked, "--json"), 300)
    assert again.code == 0, again
    assert postgres.execute(count)[0][0] == 1100


def _waits_for_a_lock(postgres: PrivatePostgres) -> bool:
    found = postgres.execute("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'")
    return bool(found[0][0])


def test_a_command_that_is_killed_leaves_no_task(warm: Warm) -> None:
    process = warm.attached(BEATS)
    beat = warm.folder / "beat"
    wait_until(beat.exists, 60)
    assert warm.server()["commands"] == 1
    process.kill()
    process.communicate()
    wait_until(lambda: not _grows(beat), 60)
    state = warm.server()
    assert (state["commands"], state["jobs"]) == (0, 0)
    assert "['0']" in warm.attach('print(spark.run("t", str, 1, None))')


def test_the_environment_comes_with_each_job_and_goes_with_it(warm: Warm) -> None:
    ask = (
        'print(spark.run("t", lambda n: repr((os.environ.get("AWS_PROFILE"), os.getcwd(),'
        " os.umask(0o077))), 4, None))"
    )
    first = warm.attach(f"os.umask(0o027); {ask}", AWS_PROFILE="mine")
    assert first.count(str(("mine", str(warm.folder), 0o027))) == 4, first
    second = warm.attach(f"os.chdir('/'); os.umask(0o022); {ask}")
    assert second.count(str((None, "/", 0o022))) == 4, second


def test_commands_run_at_the_same_time(warm: Warm) -> None:
    """A second command gets slots although the tasks of the first one wait for them."""
    process = warm.attached(BEATS.replace(", 1, None", ", 9, None").replace("1200", "20"))
    wait_until((warm.folder / "beat").exists, 60)
    assert "['0', '1']" in warm.attach('print(spark.run("short", str, 2, None))')
    state = warm.server()
    assert (state["commands"], state["jobs"]) == (1, 1)
    process.kill()
    process.communicate()
    wait_until(lambda: not warm.server()["jobs"], 60)


def test_an_error_in_a_task_is_reported_like_that_of_any_spark(warm: Warm) -> None:
    said = warm.attach(
        "from floodmark.spark.runner import SparkFailure\n"
        "        try: spark.run('t', lambda n: {}['the cause'], 1, None)\n"
        "        except SparkFailure as error: print('failed:', error, spark.tries, spark.slots())"
    )
    assert "failed: KeyError: 'the cause' 1 2" in said


def test_other_settings_use_another_spark_and_doctor_shows_ours(
    warm: Warm, pipeline: MakePipeline
) -> None:
    warm.attach("pass")
    for master, expected in (("local[2]", "runs, "), ("local[1]", "the next sync starts it")):
        made = pipeline({}, settings=f"spark: {{keep_warm: 10m, master: '{master}'}}")
        ended = warm.floodmark("doctor", "--json", "--config", made.config)
        (check,) = (c for c in ended.value if c["subject"] == "background Spark")
        assert expected in check["finding"]


def test_a_stranger_is_refused(warm: Warm) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, to become another user")
    warm.attach("pass")
    (path,) = warm.place.glob("*.sock")
    connect = (
        "import os, socket, sys\n"
        "os.chdir(os.path.dirname(sys.argv[1]))\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "s = socket.socket(socket.AF_UNIX)\n"
        "s.connect(os.path.basename(sys.argv[1]))\n"
        "print(len(s.recv(100)))\n"
    )

    def try_it() -> Ended:
        return finish(warm.start([sys.executable, "-c", connect, str(path)]))

    assert "PermissionError" in try_it().err
    # Even if others could open the folder and the socket; the next command closes the folder.
    with _mode(warm.place, 0o755), _mode(path, 0o666):
        assert try_it().out == "0\n"
        assert "belongs to user 65534" in warm.log()
        assert warm.attach("pass") == "attached\n"
        assert warm.place.stat().st_mode & 0o777 == 0o700


@contextmanager
def _mode(path: Path, mode: int) -> Iterator[None]:
    before = path.stat().st_mode
    path.chmod(mode)
    try:
        yield
    finally:
        path.chmod(before & 0o7777)


@pytest.mark.enough_on("mariadb")
def test_without_the_secret_a_command_uses_a_spark_of_its_own(warm: Warm, synced: Pipeline) -> None:
    warm.attach("pass")
    (path,) = warm.place.glob("*.secret")
    secret, jobs = path.read_bytes(), warm.server()["jobs_done"]
    path.write_bytes(b"x" * len(secret))
    try:
        ended = finish(_sync(warm, synced), 300)
        assert ended.code == 0, ended
        assert "warning: Spark is not kept in the background" in ended.err
        assert "does not know the secret" in warm.log()
        status = warm.floodmark("spark", "status")
        assert "does not answer" in status.out
        path.chmod(0o644)
        assert "others can read or write" in warm.attach("pass")
        stopped = warm.floodmark("spark", "stop")
        assert stopped.code == 1
        assert "hint: end it with 'kill " in stopped.err
    finally:
        path.write_bytes(secret)
        path.chmod(0o600)
    assert warm.server()["jobs_done"] == jobs


def test_a_server_that_dies_fails_its_commands_and_the_next_one_starts_another(
    own_warm: Warm,
) -> None:
    """Killed in a job, told to end after it, told to end at once, and idle."""
    warm, beat = own_warm, own_warm.folder / "beat"
    process = warm.attached(BEATS)
    wait_until(beat.exists, 60)
    pid = warm.server()["pid"]
    processes = tree(pid)
    os.kill(pid, signal.SIGKILL)
    failed = finish(process, 60)
    assert failed.code == 1
    assert "the Spark in the background has ended; see" in failed.err
    wait_until(lambda: not any(map(runs, processes)), 60)  # Java and the workers end with it
    assert ".sock" in warm.files()

    # The next one replaces what it left.
    beat.unlink()
    process = warm.attached(BEATS.replace("1200", "100") + "; print('done')")
    wait_until(beat.exists, 60)
    second = warm.server()["pid"]
    assert second != pid
    stopped = warm.floodmark("spark", "stop")
    assert f"process {second} ends after 1 command" in stopped.out
    assert warm.files() == set()
    assert finish(process, 120).out.endswith("done\n")
    wait_until(lambda: not runs(second), 120)
    assert warm.floodmark("spark", "status").out == "no Spark runs in the background\n"

    process = warm.attached(BEATS)
    third = warm.server()["pid"]
    assert third != second
    os.kill(third, signal.SIGTERM)
    assert finish(process, 60).code == 1
    wait_until(lambda: not runs(third), 120)
    assert warm.files() == set()

    warm.attach("pass", KEEP="1s")
    wait_until(lambda: not warm.files(), 60)
    assert "ending: nobody used it for" in warm.log()


def test_two_first_commands_start_one_spark(own_warm: Warm) -> None:
    script = 'print(spark.run("t", lambda n: str(os.getppid()), 1, None)); time.sleep(1)'
    both = [own_warm.start([sys.executable, "-c", ATTACHED % script]) for _ in range(2)]
    ended = [finish(process, 300) for process in both]
    assert [one.code for one in ended] == [0, 0], ended
    daemons = {one.out.splitlines()[-1] for one in ended}
    assert len(daemons) == 1, ended
    assert sum("starting Spark" in one.out for one in ended) == 1
    assert own_warm.log().count("started in") == 1
