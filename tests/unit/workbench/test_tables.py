from __future__ import annotations

import io

import pytest
from rich.console import Console

from onboarding.fault import Fault
from workbench.tables import faults_table, likeness_table

pytestmark = pytest.mark.unit


def printed(table):
    text = io.StringIO()
    Console(file=text, width=200).print(table)
    return text.getvalue()


def test_faults_table_prints_brackets_as_they_are():
    fault = Fault(file="models/x.yaml", line=3, what="'batch' is wrong", value="[bold]", way_out="write [min, opt, max]")
    text = printed(faults_table([fault]))
    assert "models/x.yaml:3" in text and "[bold]" in text and "write [min, opt, max]" in text


def test_likeness_table_prints_texts_as_they_are():
    text = printed(likeness_table(["[red]a cat"], [(1.0, 0.0)]))
    assert "1 [red]a cat" in text and "1.000" in text
