"""Real servers for tests, and what all S3 servers among them have in common."""

import shutil
import sys
import urllib.error
import urllib.request
from abc import ABC, abstractmethod
from datetime import timedelta
from http import HTTPStatus
from pathlib import Path
from typing import Literal, Self

import obstore
from obstore.store import S3Store

from floodmark.embedded.process import ServerProcess
from floodmark.subprocesses import LOOPBACK

REGION = "us-east-1"


class S3Server(ABC):
    """An S3 server on a loopback port that keeps its data in `folder` over restarts."""

    access_key = "floodmark"
    secret_key = "floodmark-secret"

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder.absolute()
        self.folder.mkdir(parents=True, exist_ok=True)
        self.endpoint = f"http://{LOOPBACK}:{port}"
        self._server = self._make_server()

    @abstractmethod
    def _make_server(self) -> ServerProcess: ...

    @property
    def pid(self) -> int | None:
        """The process id, or None while the server is not running."""
        return self._server.pid

    def start(self) -> None:
        """Start the server and wait until it answers."""
        self._server.start()

    def kill(self) -> None:
        """End the server at once; there is no gentler way here, as tests need none."""
        self._server.kill()

    def restart(self) -> None:
        """Kill and start again, on the same port with the same data."""
        self.kill()
        self.start()

    def create_bucket(self, name: str) -> None:
        """Create a bucket unless it exists; its name has at least three characters."""
        status = self._send("PUT", name, "")
        if status not in (HTTPStatus.OK, HTTPStatus.CONFLICT):
            raise RuntimeError(f"creating bucket {name} was answered with {status}")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def _answers_signed_get(self) -> bool:
        # There is no such bucket; only a server that works, and knows our key, can say so.
        return self._send("GET", "no-such-bucket", "probe") == HTTPStatus.NOT_FOUND

    def _send(self, method: Literal["GET", "PUT"], bucket: str, key: str) -> int | None:
        """Send a signed request; returns the status, or None if nobody answers."""
        store = S3Store(
            bucket,
            endpoint=self.endpoint,
            region=REGION,
            access_key_id=self.access_key,
            secret_access_key=self.secret_key,
            virtual_hosted_style_request=False,
            client_options={"allow_http": True},
        )
        url = obstore.sign(store, method, key, timedelta(minutes=1))
        return http_status(method, url)


def http_status(method: str, url: str) -> int | None:
    """Send a request without a body; returns the status, or None if nobody answers."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, method=method)) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code
    except OSError:
        return None


def find_program(name: str) -> str:
    """Find a program that came with a Python package: beside this Python, or in PATH."""
    path = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    if path is None:
        raise RuntimeError(f"{name} is missing: pip install -e '.[dev]'")
    return path
