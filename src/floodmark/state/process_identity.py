"""Identify the process that holds a lease, so that a dead one's lease is free at once."""

import os


def this_process() -> str:
    """Return a globally unique name of this process.

    Empty if the system does not provide one: then the process never counts as dead.
    """
    return _name(os.getpid())


def is_dead(process: str) -> bool:
    """Return whether a process ran in this boot and PID namespace, and has ended."""
    here = this_process()
    machine, _, rest = process.rpartition("/")
    if not here or not machine or machine != here.rpartition("/")[0]:
        return False
    pid = rest.partition(":")[0]
    return pid.isdecimal() and _name(int(pid)) != process and not _is_hidden(int(pid))


def _is_hidden(pid: int) -> bool:
    """Return whether a process exists but is hidden from us, as with `hidepid`."""
    if os.access(f"/proc/{pid}/stat", os.R_OK):
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _name(pid: int) -> str:
    """`BOOT/NAMESPACE/PID:STARTED`; empty if there is no such process."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot = file.read().strip()
        namespace = os.readlink("/proc/self/ns/pid")
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            # The program name may contain anything, so count from its closing parenthesis.
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return ""
    state, started = fields[0], fields[19]
    return "" if state in "ZX" else f"{boot}/{namespace}/{pid}:{started}"
