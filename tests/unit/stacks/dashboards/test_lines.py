"""What instances cost, on dashboards as in `roundhouse status`."""

from __future__ import annotations

import pytest

from roundhouse.status.endpoints import endpoint_state
from stacks.dashboards.endpoint import endpoint_dashboard_body
from stacks.dashboards.environment import dashboard_body
from stacks.dashboards.lines import Prices, cpu_lines, instance_prices
from stacks.dashboards.overview import promises
from tests.synth.dashboards import OWN, QUEUED, SHARED, lines, titled, with_name
from tests.synth.deployments import one, with_scaling
from tests.synth.scaled import with_own_pools

pytestmark = pytest.mark.unit

POOLED = with_own_pools(OWN, "ml.g5.12xlarge", "ml.g5.xlarge")
"""7.09 and 1.4084 USD an hour."""
UNPRICED = with_own_pools(OWN, "ml.g5.xlarge", "ml.g5.16xlarge")


def expressions(graph):
    return [row[-1]["expression"] for row in graph["metrics"] if "expression" in row[-1]]


def test_several_instance_types_cost_from_the_cheapest_to_the_dearest():
    assert instance_prices(POOLED, POOLED.own) == Prices(
        least=1.4084, most=7.09, region="us-east-1"
    )
    body = endpoint_dashboard_body(POOLED)
    assert lines(body, "Estimated cost") == {"4 instances of sentence-embedder": 28.36}
    assert expressions(titled(body, "Estimated cost")) == [
        "FILL(FLOOR(requests / each + 0.5), REPEAT) * 7.09"
    ]
    assert "| 1.41 to 7.09 | 1 to 4 | 1.41 to 28.36 |" in promises([POOLED], counts=True)


def test_type_without_a_price_leaves_the_cost_unknown():
    assert instance_prices(UNPRICED, UNPRICED.own) is None
    assert "Estimated cost" not in str(endpoint_dashboard_body(UNPRICED))
    assert promises([UNPRICED], counts=True).endswith("| not known | 1 to 4 | not known |")


@pytest.mark.parametrize("deployment", [OWN, SHARED, POOLED, UNPRICED])
def test_cost_is_the_one_that_status_tells(deployment):
    prices, (explanation,) = (
        instance_prices(deployment, deployment.own),
        (variant.usd_per_hour for variant in endpoint_state(deployment).variants),
    )
    most = deployment.own.scaling.max
    expected = (
        (None, None) if prices is None else (round(prices.least, 4), round(most * prices.most, 4))
    )
    assert (explanation.least, explanation.most) == expected


def test_cost_of_all_endpoints_has_queues_too():
    graph = titled(
        dashboard_body([OWN, with_name(QUEUED, "waiting")]), "Estimated cost of all endpoints"
    )
    assert expressions(graph) == [
        "FILL(FLOOR(requests0 / each0 + 0.5), REPEAT) * 1.4084",
        "reported3 * 1.4084",
    ]
    assert graph["metrics"][3][:2] == ["/aws/sagemaker/Endpoints", "MemoryUtilization"]
    assert graph["metrics"][4][-1]["label"] == "dev-waiting"


def test_cpu_target_is_a_line_of_one_core():
    local = with_scaling(one("local", "sentence-embedder"), max=3, cpu_utilization_percent=70)
    (line,) = cpu_lines(local, local.own)
    assert (line.meaning, line.value) == ("scaling target", 70.0)
    assert cpu_lines(OWN, OWN.own) == []
