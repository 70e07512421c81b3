"""Processes have unique names, and dead ones are detected."""

import os
import subprocess
import sys

from floodmark.state.process_identity import is_dead, this_process

NAME = (
    "from floodmark.state.process_identity import this_process; print(this_process(), flush=True)"
)


def test_we_are_alive() -> None:
    assert str(os.getpid()) in this_process()
    assert not is_dead(this_process())


def test_a_process_is_dead_once_it_ended_even_unreaped() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", NAME + "; import sys; sys.stdin.read()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        name = process.stdout.readline().strip()
        assert not is_dead(name)
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # ended, and not yet reaped
        assert is_dead(name)
    assert is_dead(name)


def test_a_reused_pid_is_another_process() -> None:
    machine, _, rest = this_process().rpartition("/")
    pid, _, started = rest.partition(":")
    assert is_dead(f"{machine}/{pid}:{int(started) - 1}")


def test_processes_of_other_machines_never_count_as_dead() -> None:
    assert not is_dead("")
    assert not is_dead("some-other-boot/pid:[1]/1:1")
