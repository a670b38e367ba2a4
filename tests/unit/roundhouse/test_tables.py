from __future__ import annotations

import io

import numpy as np
import pytest
from rich.console import Console

from onboarding.fault import Fault
from roundhouse.cli.check import faults_table
from roundhouse.cli.invoke import arrays_table, cosine_table
from roundhouse.load_test.bench import load_table
from tests.unit.roundhouse.load_test.phases import measurement, searched, second

pytestmark = pytest.mark.unit


def printed(table):
    text = io.StringIO()
    Console(file=text, width=200).print(table)
    return text.getvalue()


def test_faults_table_prints_brackets_as_they_are():
    fault = Fault(
        file="models/x.yaml",
        line=3,
        what="'batch' is wrong",
        value="[bold]",
        way_out="write [min, opt, max]",
    )
    text = printed(faults_table([fault]))
    assert "models/x.yaml:3" in text and "[bold]" in text and "write [min, opt, max]" in text


def test_cosine_table_prints_texts_as_they_are():
    text = printed(cosine_table(["[red]a cat"], [(1.0, 0.0)]))
    assert "1 [red]a cat" in text and "1.000" in text


def test_arrays_table_shows_shape_type_and_first_values():
    text = printed(
        arrays_table({"[v]": np.arange(8, dtype=np.float32).reshape(2, 4), "ok": np.array([True])})
    )
    assert (
        "[v]" in text
        and "2 × 4" in text
        and "float32" in text
        and "0, 1, 2, 3, 4, 5, …" in text
        and "True" in text
    )


def test_load_table_shows_every_phase():
    text = printed(
        load_table(
            searched(measurement(second()), measurement(second(40.0), rate=2000.0, name="step 2"))
        )
    )
    assert "step 1" in text and "5.00 ms" in text and "held" in text and "missed" in text
