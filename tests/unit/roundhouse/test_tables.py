"""Tables for people, and amounts in USD."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from onboarding.fault import Fault
from roundhouse.cli.check import fault_lines
from roundhouse.report import Report
from roundhouse.table import table
from roundhouse.text import usd
from tests.unit.roundhouse.measure.phases import measurement, searched, second


def table_text(table):
    text = io.StringIO()
    Console(file=text, width=200).print(table)
    return text.getvalue()


def test_a_fault_is_printed_in_lines_that_can_be_copied():
    digest = "0123456789abcdef" * 4
    fault = Fault(
        file="models/x.yaml", line=3, what="'batch' is wrong", value="[bold]", way_out=digest
    )
    assert list(fault_lines(fault)) == [
        "models/x.yaml:3: 'batch' is wrong",
        "    given: [bold]",
        f"    way out: {digest}",
    ]


@pytest.mark.parametrize(("width", "cut"), [(120, False), (40, True)])
def test_a_table_on_a_narrow_terminal_becomes_lines_of_whole_words(width, cut):
    key = "0123456789abcdef0123456789abcdef"
    report = Report(console=Console(file=io.StringIO(), width=width))
    report.print_table(table(("Model", "Key"), [("a[b]", key)], title="Engines"))
    text = report.console.file.getvalue()
    assert key in text and "a[b]" in text and "Engines" in text
    assert (f"Key: {key}" in text) == cut


def test_a_table_is_the_same_on_a_terminal_and_in_markdown():
    rows = [("a|b", "1", "–"), ("[c]", "2", "–")]
    shown = table(("name", "n", "unused"), rows, right=("n",), chief=(1,)).without_empty_columns()
    assert shown.markdown() == "| name | n |\n| --- | ---: |\n| a\\|b | 1 |\n| [c] | 2 |"
    assert shown.markdown(str.upper).endswith("| A|B | 1 |\n| [C] | 2 |")
    assert "│ [c]  │ 2 │" in table_text(shown)
    assert [row.style for row in shown.__rich__().rows] == [None, "bold"]


def test_load_table_shows_every_phase():
    text = table_text(
        searched(
            measurement(second()), measurement(second(40.0), rate=2000.0, name="step 2")
        ).table()
    )
    assert "step 1" in text and "5.00 ms" in text and "held" in text and "missed" in text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "unknown"), (0, "0.00"), (1234.5, "1,234.50"), (-2, "-2.00"), (0.6, "0.60"),
        (0.01234, "0.0123"),
    ],
)  # fmt: skip
def test_amounts_have_one_format(value, text):
    assert usd(value) == text
