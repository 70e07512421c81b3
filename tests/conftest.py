"""Servers that tests share: each starts when first asked for and ends with the session."""

from collections.abc import Iterator

import pytest

from floodmark.embedded.mariadb import PrivateMariaDB
from servers.ministack import Ministack
from servers.seaweedfs import SeaweedFS


@pytest.fixture(scope="session")
def mariadb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateMariaDB]:
    with PrivateMariaDB(tmp_path_factory.mktemp("mariadb")) as server:
        yield server


@pytest.fixture(scope="session")
def seaweedfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SeaweedFS]:
    with SeaweedFS(tmp_path_factory.mktemp("seaweedfs")) as server:
        yield server


@pytest.fixture(scope="session")
def ministack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ministack]:
    with Ministack(tmp_path_factory.mktemp("ministack")) as server:
        yield server
