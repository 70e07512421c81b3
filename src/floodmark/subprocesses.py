"""Start child processes that never outlive this one."""

import os
import sys
from collections.abc import Sequence

LOOPBACK = "127.0.0.1"

# Runs between fork and exec of the child: Linux then kills it when the thread that forked it ends
# for any reason. A separate program, not a `preexec_fn`: Python code in the child of a process with
# threads may deadlock (and warns since 3.12). It checks the parent again, which may have died
# before prctl. Python ignores SIGPIPE and SIGXFSZ, and the child would inherit that.
_DIE_WITH_PARENT = """
import ctypes, os, signal, sys
PR_SET_PDEATHSIG = 1
if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0):
    sys.exit("prctl: " + os.strerror(ctypes.get_errno()))
if os.getppid() != int(sys.argv[1]):
    sys.exit("the parent is gone")
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
os.execv(sys.argv[2], sys.argv[2:])
"""


def guarded(command: Sequence[str]) -> list[str]:
    """Wrap a command so that on Linux it dies with the thread that starts it.

    The command must start with the absolute path of a program.
    """
    if sys.platform != "linux":
        return list(command)
    return [sys.executable, "-I", "-S", "-c", _DIE_WITH_PARENT, str(os.getpid()), *command]
