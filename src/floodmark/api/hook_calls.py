"""Call one hook once, within its time, whatever the command or the server does.

What went wrong is returned as text. It never contains the URL of a webhook, which is a secret:
messages of libraries may quote it, so only those of the operating system are shown.
"""

import os
import shutil
import signal
import subprocess
from queue import Empty, SimpleQueue
from tempfile import TemporaryFile
from threading import Thread
from typing import IO, Any

import msgspec

from floodmark.config.hook_settings import Hook

_MOST_ERRORS = 4096
_MOST_SHOWN = 200
_REST_SECONDS = 1.0
"""How long to wait for the rest of what a program that has ended wrote."""


def call(hook: Hook, message: dict[str, Any]) -> str | None:
    """Try once; return what went wrong."""
    if hook.command:
        return _run(hook.command, msgspec.json.encode(message), hook.timeout_seconds)
    body = {"text": _for_slack(message["text"])} if hook.format == "slack" else message
    return _post_in_time(hook, msgspec.json.encode(body))


def _for_slack(text: str) -> str:
    """Escape what Slack takes for markup: an error that quotes `<!channel>` must call nobody."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _run(command: tuple[str, ...], data: bytes, seconds: float) -> str | None:
    if shutil.which(command[0]) is None:
        return "the program was not found"
    with TemporaryFile() as message:  # a program that does not read it blocks nobody
        message.write(data)
        message.seek(0)
        try:
            process = subprocess.Popen(  # noqa: S603 - the operator's own command
                command,
                stdin=message,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            return error.strerror or type(error).__name__
    assert process.stderr is not None
    errors = _Tail(process.stderr)
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return f"it took longer than {seconds:g} s"
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)  # and what it has started
            process.wait()
    if process.returncode == 0:
        return None
    last = errors.last_line()
    return f"exit code {process.returncode}" + (f": {last}" if last else "")


class _Tail:
    """The end of a stream. A process that outlives its parent may keep the stream open."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._end = b""
        self._thread = Thread(target=self._read, name="hook", daemon=True)
        self._thread.start()

    def _read(self) -> None:
        with self._stream as stream:
            while data := os.read(stream.fileno(), 65536):
                self._end = (self._end + data)[-_MOST_ERRORS:]

    def last_line(self) -> str:
        """Return the last line with any text, as far as it can be printed."""
        self._thread.join(_REST_SECONDS)
        lines = self._end.decode(errors="replace").split("\n")
        shown = ["".join(filter(str.isprintable, line)).strip() for line in lines]
        return next((line for line in reversed(shown) if line), "")[:_MOST_SHOWN]


def _post_in_time(hook: Hook, data: bytes) -> str | None:
    """Post in a thread: a timeout of a socket starts again with every byte that arrives."""
    outcome: SimpleQueue[str | None] = SimpleQueue()
    Thread(target=lambda: outcome.put(_post(hook, data)), name="hook", daemon=True).start()
    try:
        return outcome.get(timeout=hook.timeout_seconds)
    except Empty:
        return f"it took longer than {hook.timeout_seconds:g} s"


def _post(hook: Hook, data: bytes) -> str | None:
    import urllib.error  # rarely needed, and takes a while
    import urllib.request

    class NoRedirect(urllib.request.HTTPRedirectHandler):
        """Report a redirect: following it would turn the message into a GET without a body."""

        def redirect_request(self, *_: Any) -> None:
            return None

    assert hook.webhook is not None
    try:
        request = urllib.request.Request(  # noqa: S310 - the scheme was checked
            hook.webhook.reveal(), data=data, headers={"Content-Type": "application/json"}
        )
        opener = urllib.request.build_opener(NoRedirect)
        with opener.open(request, timeout=hook.timeout_seconds):
            return None
    except urllib.error.HTTPError as error:
        return f"HTTP status {error.code}"
    except urllib.error.URLError as error:
        return _reason(error.reason)
    except Exception as error:  # noqa: BLE001 - whatever a server answers
        return _reason(error)


def _reason(error: object) -> str:
    if isinstance(error, TimeoutError):
        return "it timed out"
    text = error.strerror if isinstance(error, OSError) else None
    return text or f"the answer or the address is not valid ({type(error).__name__})"
