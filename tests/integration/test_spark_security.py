"""What other users of the machine can read from Spark, or make it execute."""

import json
import os
import re
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

from floodmark.config.loading import load_config
from floodmark.config.models import SparkSettings
from floodmark.embedded.process import free_ports
from floodmark.errors import FloodmarkError
from floodmark.spark.class_archive import ClassArchive, find_archive
from floodmark.spark.jvm_launcher import find_java
from floodmark.spark.security import check_cluster, check_server
from floodmark.spark.session import spark_session

RUNNING = """
import json, sys
from pyspark import SparkContext
from floodmark.spark.session import spark_session

with spark_session(log_file="/dev/null", options=json.loads(sys.argv[1])):
    kept = SparkContext._active_spark_context.broadcast("the password of MySQL")
    print("up", flush=True)
    input()
"""

# What an executor of Spark does, without the secret.
FETCHING = """
import sys
from pyspark.java_gateway import launch_gateway

gateway = launch_gateway()
network = gateway.jvm.org.apache.spark.network
conf = network.util.TransportConf("shuffle", network.util.MapConfigProvider.EMPTY)
context = network.TransportContext(conf, network.server.NoOpRpcHandler())
client = context.createClientFactory().createClient("127.0.0.1", int(sys.argv[1]))
blocks = gateway.new_array(gateway.jvm.String, 1)
blocks[0] = "broadcast_0_piece0"
request = network.shuffle.protocol.OpenBlocks("app", "driver", blocks)
answer = client.sendRpcSync(request.toByteBuffer(), 10000)
print("opened", answer.remaining(), "bytes")
"""


def fetch(**options: str) -> "subprocess.CompletedProcess[str]":
    """Ask a Spark that runs with these options for what it broadcasts, as a stranger."""
    port = str(free_ports(1)[0])
    wanted = json.dumps({"spark.driver.blockManager.port": port, **options})
    with subprocess.Popen(
        [sys.executable, "-c", RUNNING, wanted],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stdin
        assert running.stdout
        assert running.stdout.readline() == "up\n"
        fetched = subprocess.run(
            [sys.executable, "-c", FETCHING, port],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        running.communicate("\n")
    return fetched


def test_a_stranger_cannot_fetch_a_job() -> None:
    refused = fetch()
    assert refused.returncode != 0
    assert "opened" not in refused.stdout
    # The same request works where authentication is off, so it is that which refuses.
    answered = fetch(**{"spark.authenticate": "false"})
    assert "opened" in answered.stdout, answered


def test_a_cluster_where_others_can_listen_is_refused(tmp_path: Path) -> None:
    """In a process of its own: this one may have a Spark that other tests share."""
    start = (
        "from floodmark.spark.session import spark_session\n"
        "with spark_session(master='local-cluster[1,1,1024]', log_file='/dev/null'):\n    pass\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", start],
        cwd=tmp_path,  # where the worker keeps its folder
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert ended.returncode == 1
    assert "FloodmarkError: this cluster runs without spark.authenticate" in ended.stderr


@pytest.mark.follows_hint("the cluster's spark.authenticate.secret in 'spark: {options: …}'")
def test_the_options_that_a_hint_names_are_enough(tmp_path: Path) -> None:
    with pytest.raises(FloodmarkError) as why:
        check_cluster(lambda _: None)
    named = re.findall(r"spark\.[\w.]+: 'true'", str(why.value.hint))
    options = settings(tmp_path, f"{{options: {{{', '.join(named)}}}}}").options
    assert len(options) == 2
    check_cluster(options.get)


@pytest.mark.follows_hint("'spark: {allow_insecure: true}' turns this check off")
def test_a_hint_names_the_setting_that_allows_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What comes behind the refusal is the connection itself."""
    remote = "sc://spark.example.com"
    reached: list[str] = []

    @contextmanager
    def connected(place: str, *_: object) -> Iterator[None]:
        reached.append(place)
        yield

    monkeypatch.setattr("floodmark.spark.connect_runner.connected_spark", connected)
    with pytest.raises(FloodmarkError) as why, spark_session(remote=remote):
        pass
    (named,) = re.findall(r"'spark: ([^']*)' turns this check off", str(why.value.hint))
    allowed = settings(tmp_path, named).allow_insecure
    with spark_session(remote=remote, allow_insecure=allowed):
        assert reached == [remote]


def settings(folder: Path, spark: str) -> SparkSettings:
    """What a configuration says of Spark."""
    (folder / "floodmark.yml").write_text(f"lake: ./lake\nspark: {spark}\n")
    return load_config(str(folder / "floodmark.yml"), {}).settings.spark


@pytest.mark.parametrize(
    ("remote", "refused"),
    [
        ("sc://10.0.0.9:15002", True),
        ("sc://spark.example.com", True),
        ("sc://spark.example.com/;user_id=me", True),
        ("sc://spark.example.com:443/;use_ssl=true", False),
        ("sc://spark.example.com/;user_id=me;use_ssl=TRUE", False),
        ("sc://spark.example.com/;token=abc", False),
        ("sc://127.0.0.1:15002", False),
        ("sc://[::1]:15002", False),
        ("sc://localhost", False),
        ("local", False),
    ],
)
def test_a_spark_connect_server_elsewhere_wants_tls(remote: str, refused: bool) -> None:
    with pytest.raises(FloodmarkError, match="without TLS") if refused else nullcontext():
        check_server(remote)


def archive_in(cache: str | Path) -> ClassArchive | None:
    java = find_java(dict(os.environ))
    assert java
    return find_archive(java, {"XDG_CACHE_HOME": str(cache)})


def test_class_archive_is_in_a_private_folder(tmp_path: Path) -> None:
    before = os.umask(0o002)
    try:
        archive = archive_in(tmp_path)
        assert archive
        Path(archive.unfinished).write_bytes(b"classes")
        archive.keep()
        archive.note(["-cp", "here"])
    finally:
        os.umask(before)
    folder = tmp_path / "floodmark"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()} == {0o600}
    assert archive.exists
    assert archive.jvm_args == ["-cp", "here"]


@pytest.mark.parametrize("planted", ["another owner", "others may write", "a link"])
def test_files_of_other_users_are_not_executed(tmp_path: Path, planted: str) -> None:
    archive = archive_in(tmp_path)
    assert archive
    words = Path(archive.path.removesuffix(".jsa") + ".json")
    for file in (Path(archive.path), words):
        file.write_text('["-agentpath:/tmp/theirs.so"]')
        if planted == "another owner":
            if os.geteuid() != 0:
                pytest.skip("only root can give files away")
            os.chown(file, 65534, 65534)
        elif planted == "others may write":
            file.chmod(0o664)
        else:
            file.rename(tmp_path / file.name)
            file.symlink_to(tmp_path / file.name)
    assert not archive.exists
    assert archive.jvm_args is None


def test_folder_of_another_user_is_not_used(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "floodmark").symlink_to(theirs)
    assert archive_in(tmp_path / "linked") is None
    assert archive_in("relative") is None
    if os.geteuid() == 0:
        (tmp_path / "floodmark").mkdir()
        os.chown(tmp_path / "floodmark", 65534, 65534)
        assert archive_in(tmp_path) is None
