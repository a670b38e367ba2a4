"""Two archives of one network for two compute capabilities."""

from __future__ import annotations

import pytest

from tests.unit.engine_build.packaging.archives import published


@pytest.fixture
def two(tmp_path):
    return published(tmp_path, "8.9", precision="int8"), published(tmp_path, "8.6")
