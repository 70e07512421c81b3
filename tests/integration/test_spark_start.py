"""How Spark's Java is started: the first time, later, and when that goes wrong."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pyspark
import pytest

from floodmark.spark.jvm_launcher import is_plain
from pipelines import Pipeline, ask_once, cold_environment, wait_until
from target_tables import held

START = """
import os
import subprocess
from pathlib import Path
from pyspark import SparkContext
from floodmark.spark import jvm_launcher
from floodmark.spark.session import spark_session

jvm_launcher._PATIENCE_SECONDS = float(os.environ.get("patience", "60"))
if "dies" in os.environ:
    reach = jvm_launcher.StartingJava.reach

    def reach_and_kill(self):
        gateway = reach(self)
        print("killed", gateway.proc.pid)
        gateway.proc.kill()
        return gateway

    jvm_launcher.StartingJava.reach = reach_and_kill
log = os.environ.get("LOG", "spark.log")
with spark_session(log_file=log, options=%s, fast_start="slow" not in os.environ) as spark:
    java = SparkContext._gateway.proc.pid
    print("java", Path(f"/proc/{java}/cmdline").read_text().replace("\\0", " "))
    print(spark.run("test", lambda number: str(number * 2), 3, None))
    print("sockets:", SparkContext._active_spark_context.getConf().get(
        "spark.python.unix.domain.socket.dir", "none"))
    print("daemon:", SparkContext._active_spark_context.getConf().get(
        "spark.python.daemon.module", "none"))
    print("tries:", spark.tries)
    try:
        spark.run("test", lambda _: {}["the cause"], 1, None)
    except Exception as error:
        print("failure:", error)
    print("parent of workers:", spark.run("test", lambda _: subprocess.check_output(
        ["ps", "-o", "args=", "-p", str(os.getppid())], text=True).strip(), 1, None))
    print("java processes:", subprocess.check_output(
        ["ps", "-o", "pid=,stat=", "--ppid", str(os.getpid())], text=True).split())
    print("tunables:", spark.run("test", lambda _: os.environ.get("GLIBC_TUNABLES"), 1, None))
"""
starts_java_directly = pytest.mark.skipif(
    pyspark.__version__ < "4", reason="PySpark 3.5 starts Java by its scripts each time"
)
BY_SCRIPT, DIRECTLY = "org.apache.spark.deploy.SparkSubmit", "PythonGatewayServer"


def start(folder: Path, options: str = "{}", **variables: str) -> str:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("SPARK_", "PYSPARK_"))}
    ended = subprocess.run(
        [sys.executable, "-c", START % options],
        env={**environment, "XDG_CACHE_HOME": str(folder), **variables},
        cwd=folder,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=300,
    )
    assert "['0', '2', '4']" in ended.stdout
    return ended.stdout


@starts_java_directly
def test_java_is_started_without_scripts_once_it_is_known_how(tmp_path: Path) -> None:
    first = start(tmp_path)
    assert BY_SCRIPT in first
    assert "ArchiveClassesAtExit" in first
    second = start(tmp_path)
    assert DIRECTLY in second
    assert BY_SCRIPT not in second
    assert "SharedArchiveFile" in second
    assert "failure: KeyError: 'the cause'" in second
    assert "tries: 4" in second
    assert "NOP_FallbackServiceProvider" not in second
    assert "NOP_FallbackServiceProvider" in start(tmp_path, LOG=os.devnull)
    # With options of the user, Spark's own scripts run.
    assert BY_SCRIPT in start(tmp_path, '{"spark.test": "1"}')
    (words,) = (tmp_path / "floodmark").glob("*.json")
    words.write_text(json.dumps(["-cp", "/nowhere"]))
    assert BY_SCRIPT in start(tmp_path)


def test_java_and_workers_talk_through_files_of_their_own(tmp_path: Path) -> None:
    said = start(tmp_path, TMPDIR="/tmp")
    (folder,) = re.findall("sockets: (.*)", said)
    assert folder.startswith("/tmp/floodmark-")
    assert not Path(folder).exists()  # it goes with the session
    assert "tunables: ['glibc.malloc.tcache_count=512:" in said
    # No socket's path may be long, and where a folder's is, they talk as ever.
    deep = tmp_path / ("x" * 60)
    deep.mkdir()
    assert "sockets: none" in start(tmp_path, TMPDIR=str(deep))
    short = "/tmp/Ж"
    os.makedirs(short, exist_ok=True)
    try:
        assert "sockets: none" in start(tmp_path, TMPDIR=short, LC_ALL="C.UTF-8")
    finally:
        os.rmdir(short)
    assert "tunables: ['glibc.malloc.arena_max=1']" in start(
        tmp_path, GLIBC_TUNABLES="glibc.malloc.arena_max=1"
    )


def test_a_killed_run_leaves_no_folder() -> None:
    """Java ends when it is left alone, and takes the folder with it."""
    stay = (
        "import time\nfrom floodmark.spark.session import spark_session\n"
        "with spark_session(log_file='/dev/null'):\n"
        "    print('up', flush=True)\n    time.sleep(60)\n"
    )
    with TemporaryDirectory(dir="/tmp") as folder:  # no socket's path may be long
        command = [sys.executable, "-c", stay]
        environment = {**os.environ, "TMPDIR": folder}
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as process:
            assert process.stdout
            assert process.stdout.readline() == b"up\n"
            assert os.listdir(folder)
            process.kill()
        wait_until(lambda: not os.listdir(folder))


@starts_java_directly
def test_pyspark_starts_spark_if_our_jvm_does_not_answer(tmp_path: Path) -> None:
    start(tmp_path)
    (args,) = (tmp_path / "floodmark").glob("*.json")
    # A JVM that runs for ever without a word, instead of Spark's gateway.
    sleeper = tmp_path / "Sleeper.java"
    sleeper.write_text(
        "class Sleeper { public static void main(String[] a) throws Exception {"
        " Thread.sleep(600000); } }"
    )
    args.write_text(json.dumps(["-Dnever.answers=1", str(sleeper)]))
    said = start(tmp_path, patience="0.5")
    assert BY_SCRIPT in said
    assert "never.answers" not in said


def expect_pyspark_started(said: str) -> None:
    """Spark runs, and nothing of the fast start is in its settings."""
    java = said[said.index("java") :]
    assert BY_SCRIPT in java
    for part in ("SharedArchiveFile", "ArchiveClassesAtExit", "TieredStopAtLevel", "NOP_Fallback"):
        assert part not in java
    assert "sockets: none" in said
    assert "daemon: none" in said


@starts_java_directly
def test_pyspark_starts_spark_if_our_jvm_dies_after_it_answered(tmp_path: Path) -> None:
    start(tmp_path)
    said = start(tmp_path, dies="1", TMPDIR="/tmp")
    (killed,) = re.findall("killed (.*)", said)
    expect_pyspark_started(said)
    (left,) = re.findall("java processes: (.*)", said)
    assert killed not in left
    # The next start does not use what failed, but writes it again.
    assert "ArchiveClassesAtExit" in start(tmp_path)


def test_pyspark_starts_spark_if_java_rejects_an_option_of_ours(tmp_path: Path) -> None:
    parallel = "-XX:+UseParallelGC"  # Java refuses two garbage collectors
    for _ in range(2):
        expect_pyspark_started(start(tmp_path, TMPDIR="/tmp", JAVA_TOOL_OPTIONS=parallel))


def test_an_error_of_both_starts_is_that_of_pyspark(tmp_path: Path) -> None:
    script = (
        "from floodmark.errors import FloodmarkError\n"
        "from floodmark.spark.session import spark_session\n"
        "try:\n"
        "    with spark_session(log_file='/dev/null', memory='1k'): pass\n"
        "except FloodmarkError as error: print('refused:', error)\n"
        "with spark_session(log_file='/dev/null') as spark:\n"  # nothing is left of the first
        "    print(spark.run('test', str, 1, None))\n"
    )
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    command = [sys.executable, "-c", script]
    said = subprocess.check_output(command, env=environment, text=True, timeout=300)
    assert said.splitlines()[0].startswith("refused: Spark does not start: ")
    assert said.splitlines()[-1] == "['0']"


@pytest.mark.parametrize("fast_start", [True, False])
def test_what_java_says_against_a_setting_is_shown(tmp_path: Path, fast_start: bool) -> None:
    script = (
        "from floodmark.errors import FloodmarkError\n"
        "from floodmark.spark.session import spark_session\n"
        "options = {'spark.task.cpus': 'many'}\n"
        "try:\n"
        f"    with spark_session(log_file='/dev/null', options=options, fast_start={fast_start}):\n"
        "        pass\n"
        "except FloodmarkError as error: print('refused:', error)\n"
    )
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    command = [sys.executable, "-c", script]
    said = subprocess.check_output(command, env=environment, text=True, timeout=300)
    assert said.startswith("refused: Spark does not start: "), said
    assert "cpu" in said.lower(), said


def test_workers_start_if_their_daemon_cannot_import_something(tmp_path: Path) -> None:
    """The tasks of `start` need no connectorx."""
    (tmp_path / "connectorx.py").write_text("print('imported')\nraise OSError('broken')")
    said = start(tmp_path, PYTHONPATH=str(tmp_path))
    assert "daemon: floodmark.spark.worker_daemon" in said
    assert "floodmark.spark.worker_daemon" in re.findall("parent of workers: (.*)", said)[0]
    assert "OSError: broken" in (tmp_path / "spark.log").read_text()


def test_fast_start_can_be_turned_off(tmp_path: Path) -> None:
    for _ in range(2):  # also the second time, when fast starts reuse what the first one left
        said = start(tmp_path, slow="1")
        assert BY_SCRIPT in said
        assert "sockets: none" in said
        assert "daemon: none" in said
        assert "SharedArchiveFile" not in said
        assert "ArchiveClassesAtExit" not in said
    assert not (tmp_path / "floodmark").exists()


def test_stderr_works_while_spark_starts(tmp_path: Path) -> None:
    """Its own words go to a log; ours must not, though it is started in a thread."""
    talk = """
import sys, threading, time
from floodmark.spark.session import spark_session

def work():
    with spark_session(log_file="spark.log"):
        pass

spark = threading.Thread(target=work)
spark.start()
while spark.is_alive():
    print("heard", file=sys.stderr, flush=True)
    said = globals().get("said", 0) + 1
    time.sleep(0.05)
print(said)
"""
    ended = subprocess.run(
        [sys.executable, "-c", talk],
        env={**os.environ, "XDG_CACHE_HOME": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    assert ended.stderr == "heard\n" * int(ended.stdout)
    assert "heard" not in (tmp_path / "spark.log").read_text()


def test_environment_settings_of_spark_disable_the_direct_start() -> None:
    assert is_plain({"PATH": "/bin", "PYSPARK_PYTHON": "python3", "SPARK_LOCAL_IP": "127.0.0.1"})
    assert not is_plain({"SPARK_CONF_DIR": "/etc/spark"})
    assert not is_plain({"PYSPARK_SUBMIT_ARGS": "--jars a.jar pyspark-shell"})
    assert not is_plain({"HADOOP_CONF_DIR": "/etc/hadoop"})


LOADS = """
import os, sys, time
from pathlib import Path
from floodmark.__main__ import main
from floodmark.warehouse.duckdb import DuckdbTarget

def java():
    stats = (path.read_text().rpartition(")") for path in Path("/proc").glob("[0-9]*/stat"))
    return any(f"{os.getpid()}" == rest.split()[1] and "(java" in name for name, _, rest in stats)

def watched(self, batch):
    deadline = time.monotonic() + (1 if batch.table.name == "t" else patience)
    while java() and time.monotonic() < deadline:
        time.sleep(0.05)
    print("loads", batch.table.name, "with java:", java(), file=sys.stderr)
    return load(self, batch)

load, DuckdbTarget.load = DuckdbTarget.load, watched
patience = float(sys.argv.pop())
main()
"""


@pytest.mark.parametrize(
    ("options", "patience", "seen"),
    [
        ([], "30", ["t True", "u False"]),
        (["--verify-data"], "1", ["t True", "u True"]),
    ],
    ids=["synced", "verified"],
)
def test_spark_ends_before_the_last_table_is_loaded(
    pipeline: Callable[..., Pipeline], options: list[str], patience: str, seen: list[str]
) -> None:
    """DuckDB loads in our process, and needs the memory."""
    tables = dict.fromkeys("tu", "{cursor: id}")
    it = pipeline(tables, settings="spark: {master: 'local[1]'}")
    for name in it.tables:
        ask_once(it, f"CREATE TABLE {name} (id INT PRIMARY KEY)")
        ask_once(it, f"INSERT INTO {name} VALUES (1), (2)")
    sync = ["sync", "-p", "main", "--config", it.config, "--strategy", "sequential", *options]
    ended = subprocess.run(
        [sys.executable, "-c", LOADS, *sync, patience],
        env=cold_environment(),
        cwd=it.folder,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ended.returncode == 0, ended.stderr
    found = re.findall(r"loads (\w) with java: (\w+)", ended.stderr)
    assert [" ".join(one) for one in found] == seen
    for name in it.tables:
        assert held(it, name) == [1, 2]
