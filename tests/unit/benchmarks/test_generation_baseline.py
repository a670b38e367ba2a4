"""The baseline of text generation: rows of rounds, in the form that `compare` reads."""

from __future__ import annotations

import json

import pytest

from benchmarks.generation_baseline import measure
from roundhouse.savings.generation import BaselineRow


def test_rows_are_medians_of_rounds_after_one_that_is_not_counted():
    calls = []

    def generate(batch):
        calls.append(batch)
        number = calls.count(batch)
        return 100.0 if number == 1 else {2: 1.0, 3: 2.0, 4: 4.0}[number]

    found = measure(generate, (1, 4), 3, 8)
    rows = [BaselineRow.model_validate_json(json.dumps(row)) for row in found]
    assert [(row.batch, row.output_tokens_per_second) for row in rows] == [(1, 4.0), (4, 16.0)]
    assert [(row.lowest, row.highest, row.rounds) for row in rows] == [(2, 8, 3), (8, 32, 3)]
    assert rows[1].token_ms == pytest.approx(250.0)
    assert len(calls) == 8
