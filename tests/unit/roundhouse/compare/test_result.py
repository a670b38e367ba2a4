"""Ranking, the Pareto line, documents, and results that an earlier run kept."""

from __future__ import annotations

import dataclasses
import json

from roundhouse.compare.cells import Candidate
from roundhouse.compare.document import Report, document, markdown, sizing_sentence
from roundhouse.compare.result import (
    CellResult,
    Row,
    State,
    ranked,
    read_result,
    write_result,
)
from roundhouse.compare.run import Control
from roundhouse.load_test.knee import Knee
from roundhouse.reports.compare_report import compare_page

KNEE = Knee(
    rate=100.0, reason="more users bring no more answers", users=8, users_per_second=110.0,
    p50_ms=10.0, p95_ms=15.0, p99_ms=20.0, errors=0, seconds=30.0,
)  # fmt: skip


def cell(name, rate=100.0, p50=10.0, **changes) -> CellResult:
    knee = dataclasses.replace(KNEE, rate=rate, p50_ms=p50)
    fields = {"values": (("precision", name),), "model": "m", "instance_type": "ml.c7i.large"}
    return CellResult(**{**fields, "name": name, "state": State.measured, "knee": knee} | changes)


def row(result, price=1.0) -> Row:
    return Row(cell=result, sizing=result.sizing(300.0, price, 0.5))


def failure(name) -> Row:
    return row(cell(name, knee=None, state=State.not_built, reason="no operator Foo: export it"))


def report(*rows) -> Report:
    return Report(
        model="m", environment="dev", region="us-east-1", slo_ms=50.0, demand=300.0,
        rows=ranked(rows),
        candidate=Candidate(is_gpu=False, has_calibration=False, instance_type="ml.c7i.large"),
        controls=(Control(name="a", first=100.0, second=98.0),), machine="here",
        date="2026-11-23", prices_date=None, command="roundhouse compare m",
    )  # fmt: skip


def test_rows_that_hold_come_first_and_the_cheapest_of_them():
    rows = [
        failure("broken"),
        row(cell("late", rate=None)),
        row(cell("unknown price"), price=None),
        row(cell("dear"), price=3.0),
        row(cell("cheap"), price=1.0),
        row(cell("quick", rate=149.0), price=1.0),
    ]
    names = [item.cell.name for item in ranked(rows)]
    assert names == ["quick", "cheap", "dear", "unknown price", "late", "broken"]


def test_the_headline_begins_with_that_nothing_holds():
    assert report(row(cell("a", rate=None)), failure("b")).headline.startswith("None of 2")


def test_the_sizing_has_count_price_headroom_and_the_scaling_target():
    sentence = sizing_sentence(report(row(cell("a", rate=125.0), price=2.0)))
    assert "4 x ml.c7i.large; with one lost, 3 hold 300 requests/s and 25% more" in sentence
    assert "in us-east-1 is 2.00 USD an hour." in sentence
    assert "3,750 InvocationsPerInstance a minute, at which the demand runs on 5" in sentence
    assert "is not known" in sizing_sentence(report(row(cell("a"), price=None)))
    assert sizing_sentence(report(row(cell("a", rate=None)))) == ""


def test_every_form_has_every_row_and_the_reasons():
    result = report(row(cell("a")), row(cell("b|c"), None), failure("d"))
    page, text = compare_page(result).decode(), markdown(result)
    rows = document(result)["rows"]
    json.dumps(document(result), allow_nan=False)
    assert [item["name"] for item in rows] == ["a", "b|c", "d"]
    assert "no operator Foo" in page and "no operator Foo" in text and "b\\|c" in text
    assert rows[1]["sizing"]["usd_an_hour"] is None and "0.98 of its rate" in text


def test_a_measured_cell_is_read_back_and_a_broken_file_is_none(tmp_path):
    write_result(tmp_path, "x", cell("a"))
    assert read_result(tmp_path, "x") == cell("a")
    assert read_result(tmp_path, "y") is None
    (tmp_path / "x.json").write_text("{")
    assert read_result(tmp_path, "x") is None
