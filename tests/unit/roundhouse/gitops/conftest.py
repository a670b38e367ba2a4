"""A repository for each test."""

from __future__ import annotations

import pytest

from tests.unit.roundhouse.gitops.generators import Chat
from tests.unit.roundhouse.gitops.repository import Repository
from tests.unit.roundhouse.gitops.rungs import Rungs


@pytest.fixture(scope="session")
def first_repository(tmp_path_factory):
    return Repository(tmp_path_factory.mktemp("first") / "repository")


@pytest.fixture(scope="session")
def first_rungs(first_repository, tmp_path_factory):
    return Rungs(first_repository.copy(tmp_path_factory.mktemp("rungs") / "repository"))


@pytest.fixture
def repository(first_repository, tmp_path):
    return first_repository.copy(tmp_path / "repository")


@pytest.fixture
def rungs(first_rungs, tmp_path):
    return first_rungs.copy(tmp_path / "repository")


@pytest.fixture
def chat(rungs):
    return Chat(rungs)
