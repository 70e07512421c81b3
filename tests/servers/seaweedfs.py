"""SeaweedFS: an S3 server that checks signatures and keeps data over a SIGKILL."""

import json
from http import HTTPStatus
from pathlib import Path

from floodmark.embedded.process import ServerProcess, free_ports
from floodmark.subprocesses import LOOPBACK
from servers import S3Server, find_program, http_status

_PORTS = (
    "s3.port",
    "s3.port.grpc",
    "filer.port",
    "filer.port.grpc",
    "master.port",
    "master.port.grpc",
    "volume.port",
    "volume.port.grpc",
)


class SeaweedFS(S3Server):
    """A whole SeaweedFS in one process. Starts in about three seconds, now and then in seven.

    A bucket's first object takes 0.2 s, as its first volume is made: prefer few buckets. So does
    each further one, when a volume has `volume_mb`.
    """

    def __init__(self, folder: Path, *, volume_mb: int = 64) -> None:
        self._volume_mb = volume_mb
        self._ports = dict(zip(_PORTS, free_ports(len(_PORTS)), strict=True))
        super().__init__(folder, self._ports["s3.port"])

    def kill(self) -> None:
        """End the server at once, and remove the sockets that it leaves in /tmp."""
        super().kill()
        for part in ("s3", "filer", "master", "volume"):
            port = self._ports[f"{part}.port.grpc"]
            Path(f"/tmp/seaweedfs-{part}-grpc-{port}.sock").unlink(missing_ok=True)

    def _make_server(self) -> ServerProcess:
        identity = {
            "name": "floodmark",
            "credentials": [{"accessKey": self.access_key, "secretKey": self.secret_key}],
            "actions": ["Admin", "Read", "Write", "List", "Tagging"],
        }
        (self.folder / "s3.json").write_text(json.dumps({"identities": [identity]}))
        command = [
            find_program("weed"),
            "server",
            "-dir=.",
            f"-ip={LOOPBACK}",
            f"-ip.bind={LOOPBACK}",
            "-filer",
            "-filer.localSocket=filer.sock",
            "-master.electionTimeout=1s",
            "-master.telemetry=false",
            f"-master.volumeSizeLimitMB={self._volume_mb}",
            "-s3",
            "-s3.autoCreateBucket=false",  # a missing bucket is an error, as with AWS
            "-s3.config=s3.json",
            "-s3.localSocket=s3.sock",
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
            "-volume.max=1000",  # every bucket needs at least one
            *(f"-{name}={port}" for name, port in self._ports.items()),
        ]
        return ServerProcess(
            "seaweedfs",
            command,
            self.folder,
            self._is_ready,
            environment={"WEED_MASTER_VOLUME_GROWTH_COPY_1": "1"},  # instead of 7 for a bucket
        )

    def _is_ready(self) -> bool:
        # S3 may answer seconds before the master knows the volume server, and then writes hang.
        master = f"http://{LOOPBACK}:{self._ports['master.port']}"
        return (
            self._answers_signed_get()
            and http_status("GET", f"{master}/dir/assign") == HTTPStatus.OK
        )
