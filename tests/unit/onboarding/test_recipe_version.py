"""The file that every CPU archive carries decides its bytes, and no key sees it: only RECIPE_VERSION does."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from onboarding.keys import RECIPE_VERSION

pytestmark = pytest.mark.unit

CARRIED = Path(__file__).resolve().parents[3] / "container" / "triton" / "cpu_twin" / "model.py"
PINNED = {1: "375b86e1a925bdf9b2ff9f88e0ddf2e14f9e83e88323d47673705f9908b7a888"}
"""The digest of the carried file, by recipe version. When the file changes, raise RECIPE_VERSION and add a row."""


def test_recipe_version_names_the_file_that_archives_carry():
    assert hashlib.sha256(CARRIED.read_bytes()).hexdigest() == PINNED.get(RECIPE_VERSION)
