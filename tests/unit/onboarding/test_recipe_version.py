"""The files that archives carry decide their bytes, and no key sees them: only RECIPE_VERSION does."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from onboarding.keys import RECIPE_VERSION

pytestmark = pytest.mark.unit

FOLDER = Path(__file__).resolve().parents[3] / "container" / "triton"
CARRIED = ("cpu_twin.py", "passport.py", "tokenizer.py")
UNTRUNCATED = ("cpu_twin.py", "over_long.py", "tokenizer.py")
PINNED = {
    1: "375b86e1a925bdf9b2ff9f88e0ddf2e14f9e83e88323d47673705f9908b7a888",
    2: "30f08a2f195416cc065d650cb2f5ccdbd5f37655038576e4a4dc1bcdf86393af",
    3: "9521e858329ea087c44f8682943a5ed359167cef202741b3fd40676bdcf7485e",
    4: "9521e858329ea087c44f8682943a5ed359167cef202741b3fd40676bdcf7485e",
}
"""The digest of the carried files, one after the other, by recipe version; version 1 carried one.

When a file changes, raise RECIPE_VERSION and add a row.
"""
PINNED_UNTRUNCATED = {
    2: "dd36e11694ca961557afff7368ec57a5e8d550c0993e5039ca1986bd50a9bc18",
    3: "274a3247b719ef9645213e606170adda19600ff2d61a6deb6c3049505b3abade",
    4: "274a3247b719ef9645213e606170adda19600ff2d61a6deb6c3049505b3abade",
}
"""Of what archives carry beside them whose long texts are refused.

Changed, it has no key but RECIPE_VERSION either.
"""


def digest(folder: Path, names: tuple[str, ...]) -> str:
    return hashlib.sha256(b"".join((folder / name).read_bytes() for name in names)).hexdigest()


def test_recipe_version_names_the_files_that_archives_carry():
    assert digest(FOLDER, CARRIED) == PINNED.get(RECIPE_VERSION)
    assert digest(FOLDER / "untruncated", UNTRUNCATED) == PINNED_UNTRUNCATED.get(RECIPE_VERSION)


def test_every_file_for_an_archive_is_pinned():
    for folder, names in ((FOLDER, CARRIED), (FOLDER / "untruncated", UNTRUNCATED)):
        assert tuple(sorted(path.name for path in folder.glob("*.py"))) == names
