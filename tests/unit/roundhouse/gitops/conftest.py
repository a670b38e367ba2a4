"""A repository for each test."""

from __future__ import annotations

import pytest

from tests.unit.roundhouse.gitops.repository import Repository


@pytest.fixture
def repository(tmp_path):
    return Repository(tmp_path / "repository")
