"""Ranking, documents, what is saved, and results that an earlier run kept."""

from __future__ import annotations

import dataclasses
import json
from types import SimpleNamespace

import pytest
from botocore.exceptions import NoCredentialsError

from roundhouse.measure.compare.cells import Candidate
from roundhouse.measure.compare.cost import break_even, running_usd
from roundhouse.measure.compare.document import Report, document, markdown, sizing_sentence
from roundhouse.measure.compare.result import (
    CellResult,
    Knee,
    Row,
    State,
    pareto,
    ranked,
    read_result,
    write_result,
)
from roundhouse.measure.compare.run import Control
from roundhouse.reports.compare_report import compare_page
from tests.unit.roundhouse.engines import copied_tree, local_deployments
from tests.unit.roundhouse.live_account import Account

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
    text = markdown(result)
    rows = document(result)["rows"]
    json.dumps(document(result), allow_nan=False)
    assert [item["name"] for item in rows] == ["a", "b|c", "d"]
    assert "no operator Foo" in text and "b\\|c" in text
    assert rows[1]["sizing"]["usd_an_hour"] is None and "0.98 of its rate" in text


def test_the_chart_joins_what_no_other_is_cheaper_and_faster_than():
    cheap, dear, quick = (
        row(cell(name, rate=rate, p50=p50), price=price)
        for name, rate, p50, price in (
            ("a", 300.0, 9.0, 0.5), ("b", 300.0, 9.5, 0.9), ("c", 300.0, 4.0, 1.1)
        )
    )  # fmt: skip
    assert [item.cell.name for item in pareto((dear, quick, cheap))] == ["a", "c"]
    page = compare_page(report(cheap, dear, quick)).decode()
    assert page.count("<circle") == 5 and page.count("<polyline") == 1
    assert "<svg" not in compare_page(report(cheap)).decode()


def test_a_measured_cell_is_read_back_and_a_broken_file_is_none(tmp_path):
    write_result(tmp_path, "x", cell("a"))
    assert read_result(tmp_path, "x") == cell("a")
    assert read_result(tmp_path, "y") is None
    (tmp_path / "x.json").write_text("{")
    assert read_result(tmp_path, "x") is None


pytestmark = pytest.mark.unit

MONTH = 0.7364 * 730
"""USD of one instance."""


def sized(name, runtime, rate):
    """A row for 300 requests/s on ml.g4dn.xlarge, at 0.7364 USD an hour."""
    return row(cell(name, rate=rate, runtime=runtime, instance_type="ml.g4dn.xlarge"), price=0.7364)


TENSORRT = sized("fp16", "tensorrt", 300.0)
PYTORCH = sized("pytorch", "pytorch", 30.0)
ONNX = sized("cuda", "onnxruntime-cuda", 100.0)


def compared(*rows, running=10 * MONTH, build=2.0):
    return break_even(ranked(rows), runtime="tensorrt", running=running, build=build)


@pytest.mark.parametrize(
    ("rows", "running", "name", "now"),
    [
        # 4 instances with one to lose against 2.
        ((PYTORCH, TENSORRT, ONNX, failure("broken")), 10 * MONTH, "cuda", 4 * MONTH),
        ((TENSORRT,), 10 * MONTH, "what runs", 10 * MONTH),
    ],
)
def test_baseline_is_the_cheapest_of_the_grid_that_holds_else_what_runs(rows, running, name, now):
    found = compared(*rows, running=running)
    assert found.name == f"fp16 instead of {name}"
    assert (found.now, found.candidate) == (pytest.approx(now), pytest.approx(2 * MONTH))
    assert found.hours == pytest.approx(2.0 / (now - 2 * MONTH) * 730)


@pytest.mark.parametrize("rows", [(), (failure("broken"),), (PYTORCH,)])
def test_no_candidate_or_the_baseline_itself_is_compared_with_nothing(rows):
    assert compared(*rows) is None
    assert compared(TENSORRT, running=None) is None


def test_every_report_has_the_table():
    rows = (TENSORRT, PYTORCH)
    shown = dataclasses.replace(report(*rows), break_even=compared(*rows))
    line = "| fp16 instead of pytorch | 5,913.29 | 1,075.14 | 2.00 | 0.3 |"
    assert line in markdown(shown)
    page = compare_page(shown).decode()
    assert all(part.strip() in page for part in line.strip("| ").split("|"))
    assert document(shown)["break_even"]["now"] == pytest.approx(11 * MONTH)
    assert "break-even" not in markdown(report(*rows)) + compare_page(report(*rows)).decode()


@pytest.fixture
def deployment(tmp_path):
    found = local_deployments(copied_tree(tmp_path / "tree"))
    return next(item for item in found if not item.multi_model)


def running(deployment, clients):
    session = SimpleNamespace(
        environment=deployment.environment, clients=clients, deployments=lambda: (deployment,)
    )
    return running_usd(session, deployment.targets[0].model.name)


def test_running_cost_is_of_the_instances_that_the_endpoint_wants(deployment):
    account = Account(deployment)
    account.instances = 3
    assert running(deployment, account) is None, "no price of the local region is shipped"
    account.instances = 0
    assert running(deployment, account) == 0.0


def test_nothing_deployed_and_no_account_is_not_known(deployment):
    account = Account(deployment)
    account.exists = False
    assert running(deployment, account) is None

    def refuse(EndpointName):
        raise NoCredentialsError

    account.describe_endpoint = refuse
    assert running(deployment, account) is None
