"""The generated table of alarms follows the code."""

from __future__ import annotations

import pytest

from tests.synth.watching_example import DOCUMENT, document_text, table

pytestmark = pytest.mark.docs


def test_table_of_alarms_is_made_by_the_code():
    text = DOCUMENT.read_text(encoding="utf-8")
    assert table() in text
    assert document_text(text) == text, "run `python -m tests.synth.watching_example --write`"
