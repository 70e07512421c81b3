"""Certificates of private authorities, for servers that are not trusted by anybody else."""

import subprocess
from pathlib import Path


def make_certificates(folder: Path) -> Path:
    """Make `ca.pem`, `other ca.pem`, and `server.pem` of the first, for 127.0.0.1 alone."""
    for name in ("ca", "other ca"):
        openssl(
            folder,
            *("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.pem"),
        )
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1")
    openssl(
        folder,
        *("req", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=db"),
        *("-keyout", "server.key", "-out", "server.csr"),
    )
    openssl(
        folder,
        *("x509", "-req", "-in", "server.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-days", "2"),
        *("-CAcreateserial", "-extfile", "names", "-out", "server.pem"),
    )
    return folder


def openssl(folder: Path, *arguments: str) -> None:
    """Run openssl in a folder."""
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)
