"""What the best candidate of a comparison saves, and its line in the report."""

from __future__ import annotations

import dataclasses

import pytest

from roundhouse.compare.document import document, investment_sentence, markdown
from roundhouse.compare.result import ranked
from roundhouse.reports.compare_report import compare_page
from roundhouse.savings.comparison import comparison_investment
from roundhouse.savings.investment import Fleet, Instances
from tests.unit.roundhouse.compare.test_result import cell, failure, report, row

REGION = "us-east-1"
RUNS = Fleet(
    groups=(Instances(instance_type="ml.g4dn.xlarge", count=10, usd_an_hour=0.7364),),
    origin="the instances that the endpoint wants now",
)


def sized(name, runtime, rate):
    """A row for 300 requests/s on ml.g4dn.xlarge, at 0.7364 USD an hour."""
    return row(cell(name, rate=rate, runtime=runtime, instance_type="ml.g4dn.xlarge"), price=0.7364)


TENSORRT = sized("fp16", "tensorrt", 300.0)
PYTORCH = sized("pytorch", "pytorch", 30.0)
ONNX = sized("cuda", "onnxruntime-cuda", 100.0)


def invest(*rows, present=RUNS, build_usd=2.0, **changes):
    fields = {"runtime": "tensorrt", "present": present, "build_usd": build_usd}
    return comparison_investment("m", ranked(rows), REGION, **{**fields, **changes})


def test_baseline_is_the_cheapest_of_the_grid_that_holds():
    found = invest(PYTORCH, TENSORRT, ONNX, failure("broken"))
    # 4 instances with one to lose against 2, 0.7364 USD an hour each.
    assert found.present.origin == "cuda" and str(found.proposed) == "2 x ml.g4dn.xlarge"
    assert found.saving_a_month == pytest.approx(2 * 0.7364 * 730)
    assert found.break_even_days == pytest.approx(2.0 / (2 * 0.7364 * 24))


def test_without_a_baseline_it_is_what_runs():
    found = invest(TENSORRT)
    assert found.present is RUNS
    assert found.saving_a_month == pytest.approx(8 * 0.7364 * 730)


def test_nothing_that_runs_saves_nothing():
    found = invest(TENSORRT, present=None)
    assert found.saving_a_month is None and "nothing runs" in found.outcome
    assert "it is away" in invest(TENSORRT, present=None, note="it is away").as_dict()["note"]


@pytest.mark.parametrize("rows", [(), (failure("broken"),), (PYTORCH,)])
def test_no_candidate_or_the_baseline_itself_has_no_investment(rows):
    assert invest(*rows) is None


def test_report_says_what_is_saved_everywhere():
    rows = (TENSORRT, PYTORCH)
    shown = dataclasses.replace(report(*rows), investment=invest(*rows).as_dict())
    line = investment_sentence(shown)
    assert line == (
        "Return on investment against pytorch: 5,913.29 USD a month today, 1,075.14 as fp16; saves "
        "4,838.15 USD a month: 2.00 USD of builds are paid back in 0.0 days."
    )
    assert line in markdown(shown) and line in compare_page(shown).decode()
    assert document(shown)["investment"]["saving_usd_a_month"] == pytest.approx(4838.148)


def test_report_without_one_has_no_line():
    assert investment_sentence(report(TENSORRT)) == ""
