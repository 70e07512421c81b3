"""Every kind of object store and of target, each empty."""

import uuid
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from floodmark.storage.local import LocalObjectStore
from floodmark.storage.memory import MemoryObjectStore
from floodmark.storage.objects import ObjectStore
from floodmark.storage.retrying import Backoff, RetryingObjectStore
from floodmark.storage.s3 import S3ObjectStore
from scenarios import use_test_keys
from servers import S3Server
from servers.ministack import Ministack
from servers.seaweedfs import SeaweedFS
from warehouses import Warehouse, new_warehouse, real_redshift

BUCKET = "contract"


@pytest.fixture(scope="session")
def ministack_with_bucket(ministack: Ministack) -> S3Server:
    ministack.create_bucket(BUCKET)
    return ministack


@pytest.fixture(scope="session")
def seaweedfs_with_bucket(seaweedfs: SeaweedFS) -> S3Server:
    seaweedfs.create_bucket(BUCKET)
    return seaweedfs


@pytest.fixture
def aws_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the AWS chain find the test servers' keys, and nothing of this machine."""
    use_test_keys(monkeypatch)


@pytest.fixture(params=["memory", "local", "retrying", "ministack", "seaweedfs"])
def store(request: pytest.FixtureRequest, tmp_path: Path, aws_keys: None) -> ObjectStore:
    match request.param:
        case "memory":
            return MemoryObjectStore()
        case "local":
            return LocalObjectStore(str(tmp_path / "lake"))
        case "retrying":
            inner = MemoryObjectStore()
            return RetryingObjectStore(inner, Backoff(), sleep=lambda _: None, random=Random(1))
        case kind:
            server: S3Server = request.getfixturevalue(f"{kind}_with_bucket")
            return S3ObjectStore(BUCKET, f"some/{uuid.uuid4().hex}", endpoint=server.endpoint)


WAREHOUSES = ["duckdb", "duckdb-s3", "postgres", "postgres-workers", "redshift"]
REAL_REDSHIFT = pytest.param("real", marks=pytest.mark.real_redshift)


@pytest.fixture(params=[*WAREHOUSES, REAL_REDSHIFT] if real_redshift() else WAREHOUSES)
def warehouse(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Warehouse]:
    if request.param == "real":
        real = real_redshift()
        assert real is not None
        yield real
        real.query("DROP SCHEMA IF EXISTS {schema} CASCADE")
    else:
        request.getfixturevalue("aws_keys")
        yield new_warehouse(request.param, request, tmp_path)
