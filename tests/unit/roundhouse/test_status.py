"""What an account runs, what of that ends a deployment, and what `status` says without one."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from roundhouse.deploy.endpoint_steps import (
    alarms_in_alarm,
    require_live_component,
    require_live_config,
)
from roundhouse.errors import DeployFailedError
from roundhouse.status import (
    State,
    artifact_states,
    components_table,
    endpoint_notes,
    live_endpoint,
    live_lines,
    live_table,
    state_table,
)
from tests.synth.generation_cases import SCALED, generator
from tests.unit.onboarding.text_generation.test_generation_resolve import _build, _deployment, _root
from tests.unit.roundhouse.engines import copied_tree, local_deployments
from tests.unit.roundhouse.live_account import Account


@pytest.fixture(scope="module")
def deployment(tmp_path_factory):
    deployments = local_deployments(copied_tree(tmp_path_factory.mktemp("tree")))
    return next(deployment for deployment in deployments if not deployment.multi_model)


@pytest.fixture(scope="module")
def generation():
    return generator(**SCALED)


def text_of(table):
    shown = Console(file=io.StringIO(), width=300)
    shown.print(table)
    return shown.file.getvalue()


def test_what_runs_is_shown(deployment, generation):
    account = Account(deployment)
    live = live_endpoint(account, deployment)
    assert (live.alarms, live.config) == ((), "config-1")
    assert live.variants[0].serves == (deployment.targets[0].engine_key,)
    shown = text_of(live_table([live]))
    assert "0 of 1 wanted x ml.c7i.large" in shown and "triton:new │ none" in shown
    require_live_config(account, deployment)

    account = Account(generation)
    account.watch("cloud-chat-first")
    live = live_endpoint(account, generation)
    (component,) = live.components
    assert (component.copies, component.desired_copies, component.is_zero) == (2, 2, False)
    assert component.serves == generation.entry.checkpoint_key
    assert (live.variants[0].serves, live.alarms) == ((), ("cloud-chat-first",))
    assert list(live_lines([live])) == ["cloud-chat: InService, changed 2026-11-23 21:05:00 UTC."]
    shown = text_of(live_table([live]))
    assert "0 of 1 wanted x ml.g5.2xlarge │ components" in shown and "cloud-chat-first" in shown
    require_live_component(account, generation)


ADAPTER = {
    "InferenceComponentName": "cloud-chat-a",
    "InferenceComponentStatus": "Failed",
    "Specification": {
        "BaseInferenceComponentName": "cloud-chat",
        "Container": {"ArtifactUrl": "s3://bucket/adapters/a/adapter.tar.gz"},
    },
}
"""Its RuntimeConfig is optional, and an adapter is made without one."""


def test_components_show_failures_zero_copies_and_adapters_below_their_base(generation):
    account = Account(generation)
    reason = "The update was rolled back: alarms are in ALARM: cloud-chat-first."
    account.component["RuntimeConfig"] = {"CurrentCopyCount": 0, "DesiredCopyCount": 0}
    account.more = [{"LastModifiedTime": account.component["LastModifiedTime"], **ADAPTER,
                     "FailureReason": reason}]  # fmt: skip
    account.reason = "no capacity"
    live = live_endpoint(account, generation)
    assert [(item.name, item.is_zero) for item in live.components] == [
        ("cloud-chat", True),
        ("cloud-chat-a", False),
    ]
    assert live.components[1].serves == "s3://bucket/adapters/a/adapter.tar.gz"
    shown = text_of(components_table([live]))
    assert "cloud-chat-a (adapter of cloud-chat)" in shown and "scaled to zero" in shown
    endpoint, _, zero, adapter = live_lines([live])
    assert endpoint == "cloud-chat: no capacity"
    assert "no copy runs; the next request fails and asks for one" in zero
    assert adapter == f"cloud-chat-a: Failed, changed 2026-11-23 21:05:00 UTC: {reason}"


def test_an_endpoint_that_is_not_deployed_is_none(deployment):
    account = Account(deployment)
    account.exists = False
    assert live_endpoint(account, deployment) is None


def test_alarms_of_an_endpoint_are_those_on_its_metrics_and_metric_math(deployment):
    account = Account(deployment)
    account.watch("own")
    (own,) = account.alarms
    math = {"Metrics": [{"MetricStat": {"Metric": {"Dimensions": own["Dimensions"]}}}]}
    account.alarms += [{"AlarmName": "math", **math}, {"AlarmName": "other", "Dimensions": []}]
    assert alarms_in_alarm(account, account.name) == ("own", "math")


def test_names_of_configs_are_compared_without_case(deployment):
    account = Account(deployment)
    account.live = "Config-1"
    require_live_config(account, deployment)


def test_refuses_an_endpoint_that_went_back_and_names_the_way_out(deployment):
    account = Account(deployment)
    account.deployed["EndpointConfig"] = "config-2"
    with pytest.raises(DeployFailedError, match="a rollback alarm, or a change by hand"):
        require_live_config(account, deployment)
    account.reason = "Alarms rang."
    account.watch("own")
    with pytest.raises(DeployFailedError) as caught:
        require_live_config(account, deployment)
    text = str(caught.value)
    assert "serves endpoint config config-1, not config-2" in text
    assert "FailureReason: Alarms rang; in ALARM: own" in text
    assert "update-endpoint" in text and "--endpoint-config-name config-2" in text


def test_refuses_copies_that_went_back(generation):
    account = Account(generation)
    account.component["Specification"] = {"ModelName": "old"}
    account.watch("first")
    with pytest.raises(DeployFailedError, match=r"runs model old, not model-1.*in ALARM: first"):
        require_live_component(account, generation)


def test_a_text_generator_has_a_row_for_each_checkpoint(tmp_path):
    root = _root(tmp_path)
    (problem,) = endpoint_notes(_deployment(root))
    assert "has no checkpoint to serve" in problem
    _build(root, "bf16")
    _build(root, "awq", accepted=False, reason="KL 0.7 is above 0.1")
    found = _deployment(root)
    states = tuple(artifact_states(found, None, None))
    state = State(environment="cloud", cloud=None, artifacts=states)
    assert [row[2:] for row in state_table(state).rows] == [
        (lock, "unknown", "cloud-chat (ml.g6e.2xlarge): unknown")
        for lock in ("serves: bf16", "not built: fp8", "refused: awq")
    ]
    assert list(endpoint_notes(found)) == ["chat in awq: KL 0.7 is above 0.1"]
