"""A forge server for each test."""

from __future__ import annotations

import pytest

from tests.unit.roundhouse.gitops.forge.forge_server import ForgeServer


@pytest.fixture
def server():
    with ForgeServer() as found:
        yield found
        found.shutdown()
