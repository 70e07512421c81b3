"""Run tasks in processes of this command, as Spark's workers would, but without Java.

A process is a fresh interpreter: this one has threads, and may not be forked. Its tasks come
through its stdin, since they contain passwords, and each is answered through its stdout. A thread
of this process starts it, feeds it and waits for it. Linux kills it when that thread ends for any
reason, and elsewhere it ends after its task, as its stdin is closed.

| what happens                        | what follows                                               |
| ----------------------------------- | ---------------------------------------------------------- |
| a task raises                       | it is tried again, as often as a local Spark would         |
| a process dies: killed, no memory   | the same, in another process                               |
| a job is cancelled, or a task of it | the processes of its tasks are killed; others go on        |
| failed for the last time            |                                                            |
| no task for a minute, or it is an   | the process ends                                           |
| hour old                            |                                                            |
| this process is killed              | all processes are killed; their files are in no manifest   |

Every try has its own number, so it never writes to the files of another one.
"""

import os
import pickle
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from threading import Condition, Thread
from traceback import format_exception_only

from floodmark.errors import FloodmarkError
from floodmark.spark.runner import Attempt, Progress
from floodmark.spark.worker_memory import ALLOCATION
from floodmark.subprocesses import guarded

IDLE_SECONDS = 60.0
OLDEST_SECONDS = 3600.0
_ENDING_SECONDS = 5.0
_CANCELLED = "the tasks were cancelled"
_HINT = "run the command again, with --debug to see why"
# It imports the same code as this process.
_CODE = """
import sys
sys.path[:] = {path!r}
from floodmark.spark.process_worker import main
main()
"""


class Processes:
    """Runs tasks in up to `slots` processes, which are started when needed, and reused.

    `check` raises once there are to be no more of them.
    """

    def __init__(
        self, slots: int, tries: int, check: Callable[[], None], *, verbose: bool = False
    ) -> None:
        self._slots = slots
        self._check = check
        self._verbose = verbose
        self._changed = Condition()
        self._jobs: set[_Job] = set()
        self._waiting: deque[_Task] = deque()
        self._processes: set[_Process] = set()
        self._attempts = count()
        self.tries = tries

    def prepare(self) -> None:
        """Start a process, unless there is one: a task will come soon."""
        with self._changed:
            self._check()
            if not self._processes:
                self._start()

    def run(
        self, title: str, task: Callable[..., str], tasks: int, progress: Progress | None
    ) -> list[str]:
        """Run tasks, and return their answers in order; FloodmarkError if one fails for good."""
        job = _Job(title, pickle.dumps(task, pickle.HIGHEST_PROTOCOL), tasks)
        try:
            with self._changed:
                self._check()
                self._jobs.add(job)
                self._waiting.extend(_Task(job, number) for number in range(tasks))
                self._start_missing()
                self._changed.notify_all()
            return self._answers(job, progress)
        finally:
            self._end(job)

    def cancel_titled(self, title: str) -> None:
        """Cancel the tasks of one title."""
        with self._changed:
            for job in self._jobs:
                if job.title == title:
                    job.error = job.error or FloodmarkError(f"{title}: {_CANCELLED}")
            self._changed.notify_all()

    def executors(self) -> None:
        """Return None: there are none."""

    def slots(self) -> int:
        """Return how many tasks run at once."""
        return self._slots

    def is_alive(self) -> bool:
        """Whether tasks can be run: always, as processes are started when needed."""
        return True

    def close(self) -> None:
        """Cancel all tasks, and end all processes."""
        with self._changed:
            ending = list(self._processes)
            self._waiting.clear()  # otherwise a process that ends is replaced
            for job in self._jobs:
                job.error = job.error or FloodmarkError(f"{job.title}: {_CANCELLED}")
            for process in ending:
                process.kill()
            self._changed.notify_all()
        for process in ending:
            process.thread.join(_ENDING_SECONDS)

    def _answers(self, job: "_Job", progress: Progress | None) -> list[str]:
        done = 0
        while done < job.tasks:
            with self._changed:
                self._changed.wait_for(lambda: job.error or len(job.answers) > done)  # noqa: B023
                if job.error:
                    raise job.error
                done = len(job.answers)
            if progress:
                progress(done)
        return [job.answers[number] for number in range(job.tasks)]

    def _end(self, job: "_Job") -> None:
        """Forget a job, and kill the processes that still run its tasks."""
        with self._changed:
            self._jobs.discard(job)
            self._waiting = deque(task for task in self._waiting if task.job is not job)
            for process in self._processes:
                if process.task and process.task.job is job:
                    process.kill()

    def _start_missing(self) -> None:
        idle = sum(process.task is None for process in self._processes)
        for _ in range(min(len(self._waiting) - idle, self._slots - len(self._processes))):
            self._start()

    def _start(self) -> None:
        process = _Process(self._feed, verbose=self._verbose)
        try:
            process.thread.start()
        except RuntimeError as error:  # there are too many threads
            for job in self._jobs:
                job.error = job.error or FloodmarkError(f"{job.title}: {error}")
        else:
            self._processes.add(process)

    def _feed(self, process: "_Process") -> None:
        """Start a process, and give it one task after another; runs in its thread."""
        try:
            process.start()
            while (task := self._next(process)) is not None:
                self._take(process, task, *process.run(task))
        finally:
            process.end()

    def _next(self, process: "_Process") -> "_Task | None":
        """Wait for the next task of a process; None if it is to end."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or process.ended, IDLE_SECONDS)
            if process.ended or process.is_old or not self._waiting:
                self._processes.remove(process)
                self._start_missing()
                return None
            process.task = self._waiting.popleft()
            process.task.attempt = Attempt(next(self._attempts), process.task.failures)
            return process.task

    def _take(self, process: "_Process", task: "_Task", succeeded: bool, text: str) -> None:
        """Take the answer of a task, or try it again."""
        job = task.job
        with self._changed:
            process.task = None
            if succeeded:
                job.answers[task.number] = text
            elif job in self._jobs and not job.error:
                task.failures += 1
                if task.failures < self.tries:
                    self._waiting.appendleft(task)
                else:
                    job.error = FloodmarkError(f"{job.title}: {text}", hint=_HINT)
            self._changed.notify_all()


class _Job:
    """Tasks that one caller waits for."""

    def __init__(self, title: str, task: bytes, tasks: int) -> None:
        self.title = title
        self.task = task
        self.tasks = tasks
        self.answers: dict[int, str] = {}
        self.error: FloodmarkError | None = None


class _Task:
    """One task of a job, and its tries."""

    def __init__(self, job: _Job, number: int) -> None:
        self.job = job
        self.number = number
        self.failures = 0
        self.attempt = Attempt(0, 0)


class _Process:
    """A process, which runs one task after another; what uses it runs in its thread."""

    def __init__(self, feed: Callable[["_Process"], None], *, verbose: bool) -> None:
        self._log = None if verbose else subprocess.DEVNULL
        self._popen: subprocess.Popen[bytes] | None = None
        self._problem = ""
        self.thread = Thread(target=feed, args=[self], name="feed a process", daemon=True)
        self._began = time.monotonic()
        self.task: _Task | None = None
        self.ended = False

    @property
    def is_old(self) -> bool:
        """Whether it is to be replaced: libraries may leak memory, or keep an old login."""
        return time.monotonic() > self._began + OLDEST_SECONDS

    def start(self) -> None:
        """Start it; if that fails, its first task does."""
        try:
            self._popen = subprocess.Popen(  # noqa: S603 - our own code
                guarded([sys.executable, "-c", _CODE.format(path=list(map(str, sys.path)))]),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                env=ALLOCATION | os.environ,
                process_group=0,  # Ctrl-C does not reach it
            )
        except Exception as error:  # noqa: BLE001 - its task would wait for ever
            reason = getattr(error, "strerror", None) or format_exception_only(error)[-1].strip()
            self._problem = f"cannot start a process: {reason}"

    def run(self, task: "_Task") -> tuple[bool, str]:
        """Run a task; return whether it succeeded, and its answer or why it failed."""
        if self._popen is None:
            self.ended = True
            return False, self._problem
        reading, writing = self._popen.stdout, self._popen.stdin
        assert reading is not None
        assert writing is not None
        try:
            pickle.dump((task.job.task, task.number, task.attempt), writing)
            writing.flush()
            succeeded, text = pickle.load(reading)  # noqa: S301 - from our own process
        except Exception:  # noqa: BLE001 - however its answer ends, it died
            with suppress(subprocess.TimeoutExpired):
                self._popen.wait(_ENDING_SECONDS)
            return False, self.end()
        return succeeded, text

    def kill(self) -> None:
        """Kill it; it gets no other task. Any thread may call this."""
        self.ended = True
        if self._popen is not None:
            self._popen.kill()

    def end(self) -> str:
        """Wait for its end, and return how it ended."""
        self.kill()
        if self._popen is None:
            return self._problem
        with suppress(OSError), self._popen:  # closes its pipes, and waits
            pass
        return f"a process that read rows {_ending(self._popen.returncode)}"


def _ending(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    return f"was killed by {signal.Signals(-code).name}"
