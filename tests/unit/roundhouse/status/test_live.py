"""What an account runs, how it differs from the files, and what of that ends a deployment."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from onboarding.environment_spec import ImagesSpec
from onboarding.names import image_uri
from roundhouse.deploy.endpoint_steps import (
    alarms_in_alarm,
    require_live_component,
    require_live_config,
)
from roundhouse.errors import DeployFailedError
from roundhouse.status.live import live_endpoint, live_generator, stacks_without_files
from roundhouse.status.state import State
from roundhouse.status.table import (
    drift_lines,
    live_generator_lines,
    live_generators_table,
    live_table,
)
from stacks.images import image_uris
from tests.synth.generation_cases import SCALED, WITHOUT_COMPONENTS, generator
from tests.unit.roundhouse.engines import copied_tree, local_deployments
from tests.unit.roundhouse.live_account import Account

pytestmark = pytest.mark.unit


@pytest.fixture(scope="module")
def deployment(tmp_path_factory):
    deployments = local_deployments(copied_tree(tmp_path_factory.mktemp("tree")))
    return next(deployment for deployment in deployments if not deployment.multi_model)


@pytest.fixture(scope="module")
def generation():
    return generator(**SCALED)


def uris(deployment):
    return image_uris(deployment.environment, {"python-server": "new", "triton": "new"})


def text_of(table):
    shown = Console(file=io.StringIO(), width=300)
    shown.print(table)
    return shown.file.getvalue()


def test_what_runs_as_its_files_say_has_no_drift(deployment, generation):
    account = Account(deployment)
    live = live_endpoint(account, deployment, uris(deployment))
    assert (live.drift, live.alarms, live.config) == ((), (), "config-1")
    assert live.variants[0].engines == (deployment.targets[0].engine_key,)
    shown = text_of(live_table([live]))
    assert "0 of 1 wanted x ml.c7i.large" in shown and "triton:new │ none" in shown
    require_live_config(account, deployment)

    account = Account(generation)
    account.watch("cloud-chat-first")
    live = live_generator(account, generation)
    (component,) = live.components
    assert (component.copies, component.desired_copies, component.is_zero) == (2, 2, False)
    assert component.serves == generation.entry.checkpoint_key and live.drift == ()
    assert (live.instances, live.desired_instances, live.alarms) == (0, 1, ("cloud-chat-first",))
    assert list(live_generator_lines([live])) == [
        "cloud-chat: InService, changed 2026-11-23 21:05:00 UTC."
    ]
    shown = text_of(live_generators_table([live]))
    assert "0 of 1 wanted x ml.g5.2xlarge" in shown and "cloud-chat-first" in shown
    require_live_component(account, generation)


@pytest.mark.parametrize(
    ("field", "value", "line"),
    [
        ("live", "config-0", "serves endpoint config config-0, its stack deployed config-1"),
        ("key", "f" * 20, f"serves engine {'f' * 20}, the files give"),
        ("image", "registry.example/roundhouse-local/triton:old",
         "runs image roundhouse-local/triton:old, the files give new"),
        ("instances", 99, "wants 99 instances, the files give"),
        ("instance_type", "ml.p5.48xlarge", "runs on ml.p5.48xlarge, the files give"),
        ("variant", "other", "is in the files, and does not run"),
    ],
)  # fmt: skip
def test_what_differs_from_the_files_is_named(deployment, field, value, line):
    account = Account(deployment)
    setattr(account, field, value)
    live = live_endpoint(account, deployment, uris(deployment))
    assert any(line in drift for drift in live.drift)


ADAPTER = {
    "InferenceComponentName": "cloud-chat-a",
    "InferenceComponentStatus": "Failed",
    "Specification": {
        "BaseInferenceComponentName": "cloud-chat",
        "Container": {"ArtifactUrl": "s3://bucket/adapters/a/adapter.tar.gz"},
    },
}
"""Its RuntimeConfig is optional, and an adapter is made without one."""


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (lambda a: setattr(a, "live", "config-0"), "serves endpoint config config-0, its stack"),
        (lambda a: setattr(a, "key", "f" * 20), f"serves checkpoint {'f' * 20}, the files give "),
        (lambda a: setattr(a, "component", None), "has no component cloud-chat, the files give"),
        (lambda a: a.more.append({**a.component, **ADAPTER}),
         "has component cloud-chat-a, and no file gives it"),
        (lambda a: a.component.update(Specification={"ModelName": "model-0"}),
         "cloud-chat runs model model-0, its stack deployed model-1: SageMaker went back"),
    ],
    ids=["config", "checkpoint", "no component", "adapter", "model"],
)  # fmt: skip
def test_what_differs_of_a_text_generator_is_named(generation, change, line):
    account = Account(generation)
    change(account)
    (drift,) = live_generator(account, generation).drift
    assert drift.startswith(line)


def test_components_show_failures_zero_copies_and_adapters_below_their_base(generation):
    account = Account(generation)
    reason = "The update was rolled back: alarms are in ALARM: cloud-chat-first."
    account.component["RuntimeConfig"] = {"CurrentCopyCount": 0, "DesiredCopyCount": 0}
    account.more = [{"LastModifiedTime": account.component["LastModifiedTime"], **ADAPTER,
                     "FailureReason": reason}]  # fmt: skip
    account.reason = "no capacity"
    live = live_generator(account, generation)
    assert [(item.name, item.is_zero) for item in live.components] == [
        ("cloud-chat", True),
        ("cloud-chat-a", False),
    ]
    assert live.components[1].serves == "s3://bucket/adapters/a/adapter.tar.gz"
    shown = text_of(live_generators_table([live]))
    assert "cloud-chat-a (adapter of cloud-chat)" in shown and "scaled to zero" in shown
    endpoint, _, zero, adapter = live_generator_lines([live])
    assert endpoint == "cloud-chat: no capacity"
    assert "no copy runs; the next request fails and asks for one" in zero
    assert adapter == f"cloud-chat-a: Failed, changed 2026-11-23 21:05:00 UTC: {reason}"


def test_an_endpoint_without_components_shows_its_instances():
    deployment = generator(**WITHOUT_COMPONENTS)
    account = Account(deployment)
    account.status = "Updating"
    live = live_generator(account, deployment)
    assert (live.components, live.status, live.drift) == ((), "Updating", ())
    assert live.serves == deployment.entry.checkpoint_key
    assert live.serves in text_of(live_generators_table([live]))


def test_pinned_image_is_what_the_files_give(deployment):
    digest, spec = f"sha256:{'d' * 64}", deployment.environment
    images = {"pinned": {"triton": {"tag": "a" * 20, "digest": digest}}}
    pinned = spec.model_copy(update={"images": ImagesSpec.model_validate(images)})
    account, wanted = Account(deployment), replace(deployment, environment=pinned)
    (line,) = live_endpoint(account, wanted, uris(deployment)).drift
    assert line == f"runs image roundhouse-local/triton:new, the files give {digest}"
    account.image = image_uri(spec, "triton", "a" * 20, digest)
    assert live_endpoint(account, wanted, uris(deployment)).drift == ()


def test_an_endpoint_that_is_not_deployed_is_none(deployment, generation):
    accounts = Account(deployment), Account(generation)
    for account in accounts:
        account.exists = False
    assert live_endpoint(accounts[0], deployment, uris(deployment)) is None
    assert live_generator(accounts[1], generation) is None


def test_stacks_whose_file_is_gone_are_named_with_the_way_out(deployment):
    account = Account(deployment)
    account.stacks += ["roundhouse-local-endpoint-gone", "roundhouse-dev-endpoint-x", "other"]
    gone = stacks_without_files(account, [deployment])
    assert gone == ("roundhouse-local-endpoint-gone",)
    state = State(environment="local", cloud=None, unknown=(), engines=(), endpoints=())
    account.live = "config-0"
    live = live_endpoint(account, deployment, uris(deployment))
    drift, line = drift_lines(replace(state, stacks_without_files=gone, live=(live,)))
    assert drift.startswith("Drift: local-sentence-embedder serves endpoint config config-0")
    assert "delete-stack --stack-name roundhouse-local-endpoint-gone" in line


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
