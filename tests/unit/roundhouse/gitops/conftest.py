"""A repository and a forge server for each test."""

from __future__ import annotations

import pytest

from tests.unit.roundhouse.gitops.forge.forge_server import ForgeServer
from tests.unit.roundhouse.gitops.repository import Repository
from tests.unit.roundhouse.gitops.rungs import Rungs


@pytest.fixture
def repository(tmp_path):
    return Repository(tmp_path / "repository")


@pytest.fixture
def rungs(repository):
    return Rungs(repository)


@pytest.fixture
def server():
    with ForgeServer() as found:
        yield found
        found.shutdown()
