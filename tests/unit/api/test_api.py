"""The public API, without servers."""

import subprocess
import sys
import warnings

import pytest

import floodmark
from floodmark.api.callbacks import Listener, log_notice
from floodmark.config.models import SparkSettings
from floodmark.errors import ExitCode
from floodmark.spark.attached_session import attached_settings
from floodmark.spark.security import check_attached_server


def result(*codes: int) -> floodmark.SyncResult:
    tables = tuple(
        floodmark.TableResult(
            table_name=f"P:s.t{number}",
            error=f"P:s.t{number}: broken" if code else None,
            hint="try again" if code else None,
            exit_code=code,
        )
        for number, code in enumerate(codes)
    )
    return floodmark.SyncResult(session_id="s", tables=tables)


@pytest.mark.parametrize(
    ("codes", "error"),
    [
        ((ExitCode.FAILED,), floodmark.FloodmarkError),
        ((ExitCode.USAGE,), floodmark.UsageError),
        ((ExitCode.BUSY, ExitCode.BUSY), floodmark.BusyError),
        ((ExitCode.DIFFERENCE, 0), floodmark.DifferenceFound),
        ((ExitCode.FAILED, 0), floodmark.PartialFailure),
        ((ExitCode.FAILED, ExitCode.BUSY), floodmark.FloodmarkError),
    ],
)
def test_failures_are_raised_by_their_kind(
    codes: tuple[int, ...], error: type[floodmark.FloodmarkError]
) -> None:
    failed = result(*codes)
    with pytest.raises(floodmark.FloodmarkError, match=r"P:s.t0: broken") as raised:
        failed.raise_for_failures()
    assert type(raised.value) is error
    assert raised.value.hint == "try again"
    assert raised.value.exit_code == failed.exit_code


def test_without_failures_the_result_comes_back() -> None:
    done = result(0, 0)
    assert done.raise_for_failures() is done


def test_the_import_is_cheap_and_complete() -> None:
    script = (
        "import sys, floodmark\n"
        "ours = sorted(name for name in sys.modules if name.startswith('floodmark'))\n"
        "assert ours == ['floodmark', 'floodmark.errors'], ours\n"
        "assert 'logging' not in sys.modules\n"
        "names = [getattr(floodmark, name) for name in floodmark.__all__]\n"
        "assert set(floodmark.__all__) <= set(dir(floodmark))\n"
        "assert not {'pyspark', 'pandas', 'boto3'} & sys.modules.keys()\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
    with pytest.raises(AttributeError, match="nosuch"):
        floodmark.nosuch  # noqa: B018


def test_notices_are_logged_by_default(caplog: pytest.LogCaptureFixture) -> None:
    log_notice(floodmark.Notice("warning", "careful", hint="look"))
    log_notice(floodmark.Notice("debug", "not shown"))
    assert [(r.name, r.levelname, r.message) for r in caplog.records] == [
        ("floodmark", "WARNING", "careful; hint: look")
    ]


def test_exception_in_on_notice_outside_of_a_sync_is_a_warning() -> None:
    def broken(_: floodmark.Notice) -> None:
        raise ValueError("broken")

    with pytest.warns(RuntimeWarning, match="on_notice raised ValueError: broken"):
        Listener(broken)(floodmark.Notice("info", "hello"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Listener(broken)(floodmark.Notice("info", "hello"))


def test_only_a_spark_session_is_taken_for_one() -> None:
    with pytest.raises(floodmark.UsageError, match="takes a SparkSession, not int"):
        attached_settings(7, SparkSettings())


def test_a_connect_session_must_be_local_or_encrypted() -> None:
    check_attached_server("127.0.0.1", encrypted=False)
    check_attached_server("spark.example.com", encrypted=True)
    with pytest.raises(floodmark.FloodmarkError, match="not known to use TLS"):
        check_attached_server("spark.example.com", encrypted=False)
