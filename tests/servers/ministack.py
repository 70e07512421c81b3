"""Ministack: a fast S3 server for many small tests, and Secrets Manager; it checks no signatures
of headers."""

from pathlib import Path

from floodmark.embedded.process import ServerProcess, free_ports
from floodmark.subprocesses import LOOPBACK
from servers import S3Server, find_program


class Ministack(S3Server):
    """The S3 part of Ministack, with objects on disk, and its Secrets Manager."""

    def __init__(self, folder: Path) -> None:
        self._port = free_ports(1)[0]
        super().__init__(folder, self._port)

    def _make_server(self) -> ServerProcess:
        environment = {
            # It checks the signature of presigned URLs, though of nothing else.
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "BIND_HOST": LOOPBACK,
            # It would stop containers of another Ministack on this machine.
            "DOCKER_HOST": f"unix://{self.folder}/no-docker.sock",
            "GATEWAY_PORT": str(self._port),
            "IOT_MTLS_ENABLED": "0",  # would listen on port 8883
            "LOG_LEVEL": "WARNING",
            "S3_DATA_DIR": str(self.folder / "s3"),
            "S3_PERSIST": "1",
            "SERVICES": "s3,secretsmanager",
            "SFTP_ENABLED": "0",
            "STATE_DIR": str(self.folder / "state"),
            "TMPDIR": str(self.folder),
        }
        return ServerProcess(
            "ministack",
            [find_program("ministack")],
            self.folder,
            self._answers_signed_get,
            environment=environment,
        )
