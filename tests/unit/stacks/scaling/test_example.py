"""docs/endpoints.md shows what the code derives."""

from __future__ import annotations

import json

import pytest

from tests.synth.scaling_example import BLOCK, DOCUMENT, document_text, examples

pytestmark = pytest.mark.unit


def test_document_shows_what_the_code_derives():
    text = DOCUMENT.read_text(encoding="utf-8")
    assert document_text(text) == text, "run: python -m tests.synth.scaling_example --write"
    assert {block["name"] for block in BLOCK.finditer(text)} == set(examples())


def test_document_recomputes_the_examples_number_by_hand():
    assert json.loads(examples()["policy"])["Target"] == 400 * 60 * 0.5
    assert "8 rows in 20 ms: 8 / 0.020 = 400 rows a second" in DOCUMENT.read_text(encoding="utf-8")


def test_changed_example_is_noticed():
    text = DOCUMENT.read_text(encoding="utf-8")
    assert (
        document_text(text.replace("12000 invocations a minute", "12001 invocations a minute"))
        == text
    )
