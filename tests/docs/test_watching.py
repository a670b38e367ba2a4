"""The generated table of alarms and the dashboards' pictures follow the code."""

from __future__ import annotations

from pathlib import Path

import pytest

from onboarding.resolve import deployments
from onboarding.tree import read_tree
from roundhouse.reports.dashboards.pictures import pictures
from roundhouse.reports.dashboards.png import digest_of
from tests.synth.watching_example import DOCUMENT, document_text, table

pytestmark = pytest.mark.docs

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "watching.md"
COMMAND = (
    "python -m roundhouse.reports.dashboards --env dev --select text-shared "
    "--endpoint sentence-embedder --out docs/images"
)


def test_table_of_alarms_is_made_by_the_code():
    text = DOCUMENT.read_text(encoding="utf-8")
    assert table() in text
    assert document_text(text) == text, "run `python -m tests.synth.watching_example --write`"


def test_pictures_show_the_dashboards_as_they_are():
    assert COMMAND in PAGE.read_text(encoding="utf-8")
    for picture in pictures(
        deployments(read_tree(ROOT), "dev"), "text-shared", ["sentence-embedder"]
    ):
        image = ROOT / "docs" / "images" / f"{picture.name}.png"
        assert digest_of(image.read_bytes()) == picture.digest, (
            f"{image.name} is out of date; run `{COMMAND}`"
        )
        assert f"images/{image.name}" in PAGE.read_text(encoding="utf-8")
