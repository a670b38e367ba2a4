"""The best candidate against a baseline of the grid or what runs, and its table in each report."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import pytest
from botocore.exceptions import NoCredentialsError

from roundhouse.compare.break_even import break_even, running_usd
from roundhouse.compare.document import document, markdown
from roundhouse.compare.result import ranked
from roundhouse.reports.compare_report import compare_page
from tests.unit.roundhouse.compare.test_result import cell, failure, report, row
from tests.unit.roundhouse.engines import copied_tree, local_deployments
from tests.unit.roundhouse.live_account import Account

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
    assert all(part.strip() in compare_page(shown).decode() for part in line.strip("| ").split("|"))
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
