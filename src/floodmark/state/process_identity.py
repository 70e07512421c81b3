"""Which process holds a lease, so that the lease of a dead one need not be waited for."""

import os


def this_process() -> str:
    """Name this process so that no other one, ever or anywhere, has the same name.

    Empty where the system does not tell: then nobody will take us for dead.
    """
    return _name(os.getpid())


def is_dead(process: str) -> bool:
    """Whether a process ran under this very kernel and process table, and has ended."""
    here = this_process()
    machine, _, rest = process.rpartition("/")
    if not here or not machine or machine != here.rpartition("/")[0]:
        return False
    pid = rest.partition(":")[0]
    return pid.isdecimal() and _name(int(pid)) != process and not _is_hidden(int(pid))


def _is_hidden(pid: int) -> bool:
    """Whether there is a process that we are not shown, as others' are not under `hidepid`."""
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
            # The name of the program may hold anything, so count from its closing bracket.
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return ""
    state, started = fields[0], fields[19]
    return "" if state in "ZX" else f"{boot}/{namespace}/{pid}:{started}"
