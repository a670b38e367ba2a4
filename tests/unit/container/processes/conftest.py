"""One archive for every test of processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fixtures.tiny_embedder.archive import write_archive


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("archive") / "model"
    write_archive(root)
    return root
