"""Two archives of one network for two compute capabilities."""

from __future__ import annotations

import pytest

from tests.unit.engine_build.packaging.archives import publish_test_archive


@pytest.fixture
def two(tmp_path):
    return publish_test_archive(tmp_path, "8.9", precision="int8"), publish_test_archive(
        tmp_path, "8.6"
    )
