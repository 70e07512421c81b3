"""Processes that run tasks without Spark: failures, deaths, cancelled jobs, ends."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from floodmark.errors import FloodmarkError
from floodmark.spark import processes as module
from floodmark.spark.processes import Processes
from floodmark.spark.runner import Attempt, run_tasks
from pipelines import wait_until


@pytest.fixture
def processes() -> Iterator[Processes]:
    made = Processes(2, 3, lambda: None)
    yield made
    made.close()
    assert children() == []


def children() -> list[int]:
    """The processes that we started to run tasks."""
    found: list[int] = []
    for path in Path("/proc/self/task").glob("*/children"):
        for pid in map(int, path.read_text().split()):
            with suppress(OSError):
                command = Path(f"/proc/{pid}/cmdline").read_text()
                found += [pid] if "process_worker" in command else []
    return found


def run(
    processes: Processes,
    task: Callable[[int, Attempt], bytes],
    tasks: int = 1,
    progress: Callable[[int], None] | None = None,
) -> list[str]:
    return run_tasks(processes, "job", task, tasks, progress=progress)


def describe(number: int, attempt: Attempt) -> bytes:
    return json.dumps([number, attempt.id, attempt.failures, os.getpid()]).encode()


def note(folder: str, number: int, attempt: Attempt) -> None:
    Path(folder, f"{number} {attempt.failures} {attempt.id} {os.getpid()}").touch()


def noted(folder: Path) -> list[list[int]]:
    return sorted([int(part) for part in path.name.split()] for path in folder.iterdir())


def fail(folder: str, failures: int, number: int, attempt: Attempt) -> bytes:
    note(folder, number, attempt)
    if attempt.failures < failures:
        raise KeyError("the cause")
    return describe(number, attempt)


def die(folder: str, failures: int, number: int, attempt: Attempt) -> bytes:
    note(folder, number, attempt)
    if attempt.failures < failures:
        os.kill(os.getpid(), signal.SIGKILL)
    return describe(number, attempt)


def leave(number: int, attempt: Attempt) -> bytes:
    os._exit(7)


def sleep(folder: str, number: int, attempt: Attempt) -> bytes:
    note(folder, number, attempt)
    time.sleep(60)
    return b""


def nap(number: int, attempt: Attempt) -> bytes:
    time.sleep(0.05)
    return str(os.getpid()).encode()


def speak(number: int, attempt: Attempt) -> bytes:
    print("to stdout", flush=True)
    os.write(1, b"by another way")
    return b"spoken"


def test_answers_come_in_order_from_no_more_processes_than_slots(processes: Processes) -> None:
    told: list[int] = []
    answers = [json.loads(answer) for answer in run(processes, describe, 9, told.append)]
    assert [answer[0] for answer in answers] == list(range(9))
    assert sorted(answer[1] for answer in answers) == list(range(9))
    assert told == sorted(set(told))
    assert told[-1] == 9
    assert len(children()) <= 2


def test_processes_are_reused(processes: Processes) -> None:
    processes.prepare()
    processes.prepare()
    (pid,) = wait_until(children)
    assert run(processes, nap) == run(processes, nap) == [str(pid)]
    assert len(set(run(processes, nap, 6))) == 2


def test_what_a_library_prints_is_no_answer(processes: Processes) -> None:
    assert run(processes, speak, 2) == ["spoken"] * 2


def test_a_task_that_fails_is_tried_again(processes: Processes, tmp_path: Path) -> None:
    (answer,) = run(processes, partial(fail, str(tmp_path), 2))
    assert json.loads(answer)[2] == 2
    tries = noted(tmp_path)
    assert [one[:2] for one in tries] == [[0, 0], [0, 1], [0, 2]]
    assert len({one[2] for one in tries}) == 3, "each try has its own number"
    assert len({one[3] for one in tries}) == 1


def test_a_task_that_fails_for_good_is_an_error(
    processes: Processes, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(FloodmarkError, match=r"^job: KeyError: 'the cause'$") as caught:
        run(processes, partial(fail, str(tmp_path), 9))
    assert len(noted(tmp_path)) == 3
    assert "--debug" in (caught.value.hint or "")
    assert "Traceback" not in capfd.readouterr().err
    verbose = Processes(1, 1, lambda: None, verbose=True)
    with pytest.raises(FloodmarkError):
        run(verbose, partial(fail, str(tmp_path), 9))
    verbose.close()
    assert "in fail" in capfd.readouterr().err


def test_the_task_of_a_process_that_dies_is_tried_in_another(
    processes: Processes, tmp_path: Path
) -> None:
    answers = [json.loads(one) for one in run(processes, partial(die, str(tmp_path), 1), 3)]
    assert [answer[0] for answer in answers] == [0, 1, 2]
    tries = noted(tmp_path)
    assert [one[:2] for one in tries] == [[n, failures] for n in range(3) for failures in (0, 1)]
    assert len({one[2] for one in tries}) == 6
    assert len({one[3] for one in tries if one[1] == 0}) == 3
    for first, second in zip(tries[::2], tries[1::2], strict=True):
        assert first[3] != second[3], "a task is not tried again in a process that died"


def test_a_task_that_always_kills_its_process_is_an_error(
    processes: Processes, tmp_path: Path
) -> None:
    with pytest.raises(FloodmarkError, match="a process that read rows was killed by SIGKILL"):
        run(processes, partial(die, str(tmp_path), 9))
    assert len(noted(tmp_path)) == 3
    with pytest.raises(FloodmarkError, match="ended with exit code 7"):
        run(processes, leave)


def test_the_other_tasks_of_a_job_that_fails_end(processes: Processes, tmp_path: Path) -> None:
    def slow_and_broken() -> None:
        with pytest.raises(FloodmarkError):
            run(processes, partial(one_fails, str(tmp_path)), 2)

    slow_and_broken()
    wait_until(lambda: len(children()) <= 1)
    assert run(processes, nap) != []


def one_fails(folder: str, number: int, attempt: Attempt) -> bytes:
    return leave(number, attempt) if number else sleep(folder, number, attempt)


def test_a_cancelled_job_ends_and_others_go_on(processes: Processes, tmp_path: Path) -> None:
    errors: list[str] = []

    def wait() -> None:
        try:
            run_tasks(processes, "slow", partial(sleep, str(tmp_path)), 3)
        except FloodmarkError as error:
            errors.append(error.message)

    waiting = Thread(target=wait)
    waiting.start()
    wait_until(lambda: len(noted(tmp_path)) == 2)
    sleeping = children()
    other = Thread(target=lambda: errors.extend(run(processes, nap)))
    other.start()
    processes.cancel_titled("another")
    assert waiting.is_alive()
    processes.cancel_titled("slow")
    waiting.join(30)
    other.join(30)
    assert errors[0] == "slow: the tasks were cancelled"
    assert int(errors[1]) not in sleeping
    assert len(noted(tmp_path)) == 2, "the third was not begun"


def test_closing_starts_no_process_for_tasks_that_waited(
    processes: Processes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed, end = Event(), Processes._end

    def end_late(self: Processes, job: Any) -> None:
        assert closed.wait(30)
        end(self, job)

    monkeypatch.setattr(Processes, "_end", end_late)
    with ThreadPoolExecutor(1) as pool:
        job = pool.submit(run, processes, partial(sleep, str(tmp_path)), 3)
        wait_until(lambda: len(noted(tmp_path)) == 2)
        processes.close()
        assert children() == []
        closed.set()
        with pytest.raises(FloodmarkError, match="the tasks were cancelled"):
            job.result(timeout=30)


def test_closing_ends_jobs_and_processes(processes: Processes, tmp_path: Path) -> None:
    errors: list[str] = []

    def wait() -> None:
        try:
            run(processes, partial(sleep, str(tmp_path)), 3)
        except FloodmarkError as error:
            errors.append(error.message)

    waiting = Thread(target=wait)
    waiting.start()
    wait_until(lambda: len(noted(tmp_path)) == 2)
    processes.close()
    waiting.join(30)
    assert errors == ["job: the tasks were cancelled"]
    assert children() == []
    assert run(processes, nap) != []


def test_there_are_none_after_the_end() -> None:
    def check() -> None:
        raise FloodmarkError("over")

    ended = Processes(2, 3, check)
    with pytest.raises(FloodmarkError, match="over"):
        run(ended, nap)
    with pytest.raises(FloodmarkError, match="over"):
        ended.prepare()
    assert children() == []


def test_an_idle_process_ends(processes: Processes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "IDLE_SECONDS", 0.2)
    first = run(processes, nap)
    wait_until(lambda: children() == [])
    assert run(processes, nap) != first


def test_an_old_process_is_replaced(processes: Processes) -> None:
    first = run(processes, nap)
    (process,) = processes._processes
    process._began -= module.OLDEST_SECONDS
    second = run(processes, nap)
    assert second != first
    assert run(processes, nap) == second


def test_too_many_threads_are_an_error(
    processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_thread: Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(Thread, "start", refuse)
    with pytest.raises(FloodmarkError, match="job: can't start new thread"):
        run(processes, nap)
    monkeypatch.undo()
    assert run(processes, nap) != []


def test_a_process_that_died_idle_costs_a_try(processes: Processes) -> None:
    (pid,) = run(processes, nap)
    os.kill(int(pid), signal.SIGKILL)
    (answer,) = run(processes, describe)
    assert json.loads(answer)[2:] != [0, int(pid)]


def test_an_interpreter_that_cannot_start_is_an_error(
    processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "guarded", lambda _command: ["/nonexistent/python"])
    with pytest.raises(FloodmarkError, match="cannot start a process: No such file"):
        run(processes, nap)
    monkeypatch.undo()
    assert run(processes, nap) != []


def test_no_memory_for_another_process_is_an_error(
    processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(subprocess, "Popen", refuse)
    with pytest.raises(FloodmarkError, match="job: cannot start a process: MemoryError"):
        run(processes, describe, 3)
    monkeypatch.undo()
    assert len(run(processes, describe)) == 1


@pytest.mark.parametrize("strike", [signal.SIGKILL, signal.SIGTERM])
def test_processes_die_with_the_command(tmp_path: Path, strike: signal.Signals) -> None:
    script = (
        f"import sys; sys.path[:] = {sys.path!r}\n"
        "from functools import partial\n"
        "from floodmark.spark.processes import Processes\n"
        f"from {__name__} import run, sleep\n"
        f"run(Processes(2, 3, lambda: None), partial(sleep, {str(tmp_path)!r}), 2)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script]) as command:
        wait_until(lambda: len(noted(tmp_path)) == 2)
        pids = [one[3] for one in noted(tmp_path)]
        command.send_signal(strike)
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))
