"""An endpoint's template: names, pools, policies, rollouts, refusals."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from typing import Any

import pytest
from aws_cdk import App, Environment, Stack
from aws_cdk.assertions import Template

from onboarding.environment_spec import NetworkSpec
from onboarding.hosting_spec import AsynchronousSpec
from onboarding.manifest import RuntimeIdentity, TensorRecord
from onboarding.model_spec import PluginSpec
from roundhouse_cdk.realtime_endpoint import (
    MOST_NAMED_ENGINES,
    MOST_NAMED_OF_A_VERSION,
    RealtimeEndpoint,
    RealtimeEndpointProps,
)
from stacks.endpoint.findings import endpoint_faults, endpoint_notes, endpoint_warnings
from stacks.endpoint.props import endpoint_props
from stacks.endpoint_stack import CONTEXT, endpoint_template
from stacks.rollout import download_timeout_seconds, start_up_timeout_seconds
from tests.fixtures.many_models import lock_entry
from tests.synth.deployments import (
    of_targets,
    one,
    with_endpoint,
    with_engine_key,
    with_locks,
    with_scaling,
    with_targets,
)
from tests.synth.endpoint_cases import (
    BESIDE,
    CAPTURE,
    IMAGES,
    MODEL,
    POOLS,
    QUEUE,
    beside,
    config,
    endpoint_settings,
    endpoints,
    example,
    of_type,
    properties,
    statements,
    template,
    variants,
)

pytestmark = pytest.mark.unit

SAGEMAKER_MODEL = "AWS::SageMaker::Model"


# --- variants


def test_timeouts_of_a_variant_are_those_of_its_own_slowest_engine():
    deployment = example({MODEL: endpoint_settings(POOLS), BESIDE: beside("{joins: example}")})
    slow = deployment.own.pools[2].targets[0].engine_key

    def slowed(target):
        seconds = 150.0 if target.engine_key == slow else 2.5
        manifest = target.lock_entry.manifest.model_copy(update={"load_seconds": seconds})
        return dataclasses.replace(
            target, lock_entry=target.lock_entry.model_copy(update={"manifest": manifest})
        )

    found = variants(endpoint_template(with_targets(deployment, slowed), IMAGES))
    assert found["AllTraffic"]["ContainerStartupHealthCheckTimeoutInSeconds"] == 660
    assert found["beside"]["ContainerStartupHealthCheckTimeoutInSeconds"] == 480


# --- instance pools


def test_pools_that_change_places_give_no_model_the_name_of_one_that_is_still_there():
    first = template({MODEL: endpoint_settings("instance_pools: [{instance_type: ml.g6.xlarge}]")})
    second = template(
        {
            MODEL: {
                "ml.g5.xlarge": "ml.g6.xlarge",
                **endpoint_settings("instance_pools: [{instance_type: ml.g5.xlarge}]"),
            }
        }
    )
    before, after = (of_type(element, SAGEMAKER_MODEL) for element in (first, second))
    engines = [
        {model["PrimaryContainer"]["ModelDataUrl"] for model in found.values()}
        for found in (before, after)
    ]
    assert engines[0] == engines[1]
    assert not {model["ModelName"] for model in before.values()} & {
        model["ModelName"] for model in after.values()
    }


# --- names


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, endpoint_settings(CAPTURE)),
        (endpoint_settings(CAPTURE), endpoint_settings("data_capture: {percent: 30}")),
        ({}, endpoint_settings(QUEUE)),
        ({}, endpoint_settings(POOLS)),
        (
            endpoint_settings(POOLS),
            endpoint_settings(
                "instance_pools: [{instance_type: ml.g4dn.xlarge}, {instance_type: ml.g6.xlarge}]"
            ),
        ),
        (endpoint_settings("weight: 2"), endpoint_settings("weight: 3")),
        ({}, {"min: 1": "min: 2"}),
    ],
)
def test_changed_config_has_another_name_and_is_taken_up(before, after):
    first = template({MODEL: before})
    second = template({MODEL: after})
    assert config(first)["EndpointConfigName"] != config(second)["EndpointConfigName"]
    assert (
        properties(second, "Endpoint")["EndpointConfigName"] == config(second)["EndpointConfigName"]
    )


def test_network_isolation_is_on_unless_it_is_switched_off_and_then_noted():
    on = example({})
    off = example({MODEL: endpoint_settings("network_isolation: false")})
    isolated = [
        properties(endpoint_template(deployment, IMAGES), "Model")["EnableNetworkIsolation"]
        for deployment in (on, off)
    ]
    assert isolated == [True, False]
    assert not any("network_isolation" in warning for warning in endpoint_warnings(on))
    assert any(
        "reach the internet, since network_isolation is false" in warning
        for warning in endpoint_warnings(off)
    )


# --- refusals


def test_refuses_variants_that_answer_otherwise():
    deployment = example({BESIDE: beside("{joins: example}")})

    def with_output(target):
        size = 384 if target.model.name == "example" else 768
        tensors = {
            "inputs": (_tensor("TEXT", "BYTES", -1, 1),),
            "outputs": (_tensor("EMBEDDING", "FP32", -1, size),),
        }
        manifest = target.lock_entry.manifest.model_copy(update=tensors)
        return dataclasses.replace(
            target, lock_entry=target.lock_entry.model_copy(update={"manifest": manifest})
        )

    assert endpoint_faults(deployment) == ()
    (fault,) = endpoint_faults(with_targets(deployment, with_output))
    assert (
        "'beside' answers beside 'example', and its outputs are EMBEDDING FP32 [-1, 768], not"
        " EMBEDDING FP32 [-1, 384]" in fault
    )
    assert fault.endswith("describe an endpoint of its own.")


def _tensor(name: str, datatype: str, *shape: int) -> TensorRecord:
    return TensorRecord(name=name, datatype=datatype, shape=shape)


@pytest.mark.parametrize("missing", ["beside", "example"])
def test_refuses_an_engine_that_any_variant_or_pool_lacks(missing):
    deployment = example({MODEL: endpoint_settings(POOLS), BESIDE: beside("{joins: example}")})
    last = [target.engine_key for target in deployment.targets if target.model.name == missing][-1]
    without = with_targets(
        deployment,
        lambda target: (
            dataclasses.replace(target, lock_entry=None) if target.engine_key == last else target
        ),
    )
    (fault,) = endpoint_faults(without)
    assert last in fault and fault.endswith(f"run: roundhouse build --env cloud --model {missing}")
    assert endpoint_template(without, IMAGES)["Resources"] == {}


def test_models_of_two_pull_requests_touch_nobody_elses_stack():
    alone = endpoints({})
    one_more = endpoints({"models/a-1.yaml": beside("{instance_type: ml.g5.xlarge}", name="a-1")})
    other_more = endpoints({"models/a1.yaml": beside("{instance_type: ml.g5.xlarge}", name="a1")})
    names = {"models/a-1.yaml": "a-1", "models/a1.yaml": "a1"}
    both = endpoints(
        {file: beside("{instance_type: ml.g5.xlarge}", name=name) for file, name in names.items()}
    )
    for name, separate in (
        ("example", alone),
        ("shared", alone),
        ("a-1", one_more),
        ("a1", other_more),
    ):
        assert endpoint_template(both[name], IMAGES) == endpoint_template(separate[name], IMAGES)
    made = [
        model["ModelName"]
        for name in both
        for model in of_type(endpoint_template(both[name], IMAGES), SAGEMAKER_MODEL).values()
    ]
    assert len(made) == len(set(made))


def test_model_that_joins_touches_only_the_endpoint_that_it_joins():
    alone = endpoints({})
    joined = endpoints({BESIDE: beside("{joins: example}")})
    touched = {
        name
        for name in joined
        if endpoint_template(joined[name], IMAGES) != endpoint_template(alone[name], IMAGES)
    }
    assert touched == {"example"} and joined.keys() == alone.keys()
    before, after = (
        of_type(endpoint_template(deployments_by_name["example"], IMAGES), SAGEMAKER_MODEL)
        for deployments_by_name in (alone, joined)
    )
    assert before["Model"] == after["Model"]


FIXED = {"max: 2": "max: 1"}


# --- rollouts


@pytest.mark.parametrize("rollout", ["canary", "linear", "rolling", "all-at-once"])
@pytest.mark.parametrize("load_seconds", [0.5, 200.0, 5000.0])
def test_rollout_has_time_for_every_wait_and_every_start(rollout, load_seconds):
    deployment = with_endpoint(
        with_locks(one("dev", "sentence-embedder"), load_seconds=load_seconds), rollout=rollout
    )
    found = endpoint_template(deployment, IMAGES)
    rolled = properties(found, "Endpoint")["DeploymentConfig"]
    policy = rolled.get("RollingUpdatePolicy") or rolled["BlueGreenUpdatePolicy"]
    routing = policy.get("TrafficRoutingConfiguration", policy)
    percent = next(
        (routing[key]["Value"] for key in ("LinearStepSize", "MaximumBatchSize") if key in routing),
        100,
    )
    steps, variant = -(-100 // percent), variants(found)["AllTraffic"]
    start = (
        variant["ContainerStartupHealthCheckTimeoutInSeconds"]
        + variant["ModelDataDownloadTimeoutInSeconds"]
    )
    least = (
        steps * routing["WaitIntervalInSeconds"] + policy.get("TerminationWaitInSeconds", 0) + start
    )
    assert least < policy["MaximumExecutionTimeoutInSeconds"] <= 28800


def test_rollout_is_taken_back_by_the_first_ten_alarms_and_the_others_are_noted():
    several = {
        f"models/m{number}.yaml": beside(
            "{joins: example, scaling: {min: 2, max: 2}}", f"m{number}"
        )
        for number in range(6)
    }
    found = properties(template(several), "Endpoint")["DeploymentConfig"]
    watched = [alarm["AlarmName"] for alarm in found["AutoRollbackConfiguration"]["Alarms"]]
    assert len(watched) == 10 and all("server-errors" in name for name in watched[:7])
    warned = [item for item in endpoint_warnings(example(several)) if "only notify" in item]
    assert len(warned) == 1 and "has 14 alarms" in warned[0]
    assert warned[0].endswith(
        "these only notify: NoAnswersM2, NoAnswersM3, NoAnswersM4, NoAnswersM5."
    )
    assert not any("only notify" in item for item in endpoint_warnings(example({})))


# --- what an update keeps


def test_shadow_beside_a_moving_count_says_that_its_own_stays():
    deployment = example({BESIDE: beside("{joins: example, role: shadow}")})
    assert any(
        "shadow beside begins with 1 instance and keeps that count" in warning
        for warning in endpoint_warnings(deployment)
    )
    fixed = example({MODEL: FIXED, BESIDE: beside("{joins: example, role: shadow}")})
    assert not any("shadow" in warning for warning in endpoint_warnings(fixed))


def test_role_reads_every_engine_of_every_variant_and_pool_and_no_other():
    deployment = example({MODEL: endpoint_settings(POOLS), BESIDE: beside("{joins: example}")})
    read = resource_list(statements(endpoint_template(deployment, IMAGES))["ReadEngines"])
    assert {entry.split("/")[-2] for entry in read} == {
        target.engine_key for target in deployment.targets
    }
    assert len(read) == 4 and not any("*" in resource for resource in read)


def test_statement_ids_stand_once():
    changes = {
        MODEL: {
            "ml.g5.xlarge": "ml.c7i.large",
            "server: triton": "server: python",
            **endpoint_settings(CAPTURE),
        },
        BESIDE: beside("{joins: example, instance_type: ml.g5.xlarge}"),
    }
    found = template(changes)
    policies = [
        *properties(found, "Role")["Policies"],
        *of_type(found, "AWS::IAM::Policy").values(),
    ]
    ids = [item["Sid"] for policy in policies for item in policy["PolicyDocument"]["Statement"]]
    assert len(ids) == len(set(ids)) and all(
        re.fullmatch("[A-Za-z0-9]+", element) for element in ids
    )


def test_start_up_timeout_grows_with_the_measured_load_and_stays_in_bounds():
    loads = (0.0, 30.0, 120.0, 5000.0)
    assert [start_up_timeout_seconds([load]) for load in loads] == [480, 480, 540, 3600]


def test_download_timeout_grows_with_the_archive_and_stays_in_bounds():
    sizes = [mib * 2**20 for mib in (0, 2000, 10_000, 1_000_000)]
    assert [download_timeout_seconds([size]) for size in sizes] == [300, 300, 560, 3600]


def test_timeouts_of_a_multi_model_endpoint_do_not_depend_on_its_models():
    shared = endpoints({})["shared"]
    large = with_targets(
        shared,
        lambda target: dataclasses.replace(
            target,
            lock_entry=lock_entry(shared, target, archive_bytes=20_000 * 2**20, load_seconds=600.0),
        ),
    )
    names = [
        config(endpoint_template(item, IMAGES))["EndpointConfigName"] for item in (shared, large)
    ]
    assert names[0] == names[1]


# --- rollout


def test_key_encrypts_the_volume_and_the_local_disk_is_noted():
    deployment = example({})
    assert config(endpoint_template(deployment, IMAGES))["KmsKeyId"] == "alias/roundhouse-cloud"
    assert any(
        "not the local NVMe disk of ml.g5.xlarge" in note for note in endpoint_notes(deployment)
    )


INLINE_CHARACTERS = 10_240
"""IAM's limit on a role's own policies together, those beside it too; white space does not count.
"""
OWN, SHARED = one("dev", "sentence-embedder"), one("dev", "text-shared")
POLICY = "AWS::IAM::Policy"
Statements = dict[str, dict[str, Any]]


def policies(props: RealtimeEndpointProps, engines: int | None) -> tuple[Statements, Statements]:
    """Statements by id of the role and of its version's policy, of one model or of many engines."""
    environment = props.environment
    env = Environment(account=environment.account, region=environment.region)
    stack = Stack(App(context=CONTEXT, analytics_reporting=False), "Stack", env=env)
    if engines is not None:
        props = dataclasses.replace(props, engines=archives(engines))
    RealtimeEndpoint(stack, "Default", props=props)
    resources = Template.from_stack(stack).to_json()["Resources"]
    (role,), (version,) = (
        [item["Properties"] for item in resources.values() if item["Type"] == kind]
        for kind in ("AWS::IAM::Role", POLICY)
    )
    documents = role["Policies"][0]["PolicyDocument"], version["PolicyDocument"]
    own, beside = ({item["Sid"]: item for item in found["Statement"]} for found in documents)
    return own, beside


def archives(count: int) -> list[str]:
    return [f"engines/{number:020x}/model.tar.gz" for number in range(count)]


def of_archives(count: int, props: RealtimeEndpointProps) -> RealtimeEndpointProps:
    """With an instance pool for each of so many engines."""
    (pool,) = props.variants[0].pools
    pools = [
        dataclasses.replace(pool, container=container, model_id=None)
        for container in (
            dataclasses.replace(pool.container, path=path) for path in archives(count)
        )
    ]
    first = dataclasses.replace(props.variants[0], pools=pools)
    return dataclasses.replace(props, variants=[first, *props.variants[1:]])


def largest(props: RealtimeEndpointProps, *, is_shared: bool) -> RealtimeEndpointProps:
    """With the largest network, the longest names, a queue, captures, and every alarm that
    SageMaker watches.
    """
    network = NetworkSpec(
        vpc_id="vpc-" + "0" * 17,
        subnet_ids=tuple(f"subnet-{number:017x}" for number in range(16)),
        security_group_ids=tuple(f"sg-{number:017x}" for number in range(5)),
    )
    fields = {"name": "e" * 16, "region": "us-gov-west-1", "network": network}
    variant = "" if is_shared else f"--{'v' * 46}"
    alarm_names = [
        f"{'e' * 16}-{'m' * 46}-server-error{number}{variant}"
        for number in range(3 if is_shared else 10)
    ]
    return dataclasses.replace(
        props,
        name="m" * 46,
        environment=props.environment.model_copy(update=fields),
        capture_percent=5,
        asynchronous=None if is_shared else AsynchronousSpec(notify=True),
        rollout=dataclasses.replace(props.rollout, alarm_names=alarm_names),
    )


def paths_read(statement: Mapping[str, Any]) -> list[str]:
    return [resource.partition(":::")[2].partition("/")[2] for resource in resource_list(statement)]


def resource_list(statement: Mapping[str, Any]) -> list[str]:
    """Resources of a statement; IAM takes one as text too."""
    found = statement["Resource"]
    return [found] if isinstance(found, str) else list(found)


def characters(found: Statements) -> int:
    document = {"Version": "2012-10-17", "Statement": list(found.values())}
    return len(json.dumps(document, separators=(",", ":")))


def test_role_reads_exactly_its_engines_and_all_engines_where_they_are_too_many_to_name():
    shared, one_model = endpoint_props(SHARED, IMAGES), endpoint_props(OWN, IMAGES)
    for count in (3, MOST_NAMED_ENGINES):
        own, _ = policies(shared, count)
        assert paths_read(own["ReadObjects"]) == archives(count)
    own, _ = policies(shared, MOST_NAMED_ENGINES + 1)
    assert paths_read(own["ReadObjects"]) == ["engines/*"]
    most = MOST_NAMED_OF_A_VERSION
    for count, read in ((most, archives(most)), (most + 1, ["engines/*"])):
        _, version = policies(of_archives(count, one_model), None)
        assert paths_read(version["ReadEngines"]) == read


@pytest.mark.parametrize("count", [1, MOST_NAMED_ENGINES, MOST_NAMED_ENGINES + 1, 500])
@pytest.mark.parametrize("deployment", [SHARED, OWN], ids=["multi-model", "one model"])
def test_policies_of_a_role_and_of_two_versions_fit(deployment, count):
    is_shared = deployment is SHARED
    props = largest(endpoint_props(deployment, IMAGES), is_shared=is_shared)
    several = props if is_shared else of_archives(min(count, MOST_NAMED_ENGINES + 1), props)
    own, version = policies(several, count if is_shared else None)
    assert characters(own) + 2 * characters(version) <= INLINE_CHARACTERS


# --- versions


def test_old_version_keeps_its_archives_until_the_new_one_has_taken_over():
    """CloudFormation deletes what has another logical id after the endpoint's update, and changes
    what has the same before it.
    """
    before, after = (
        endpoint_template(with_engine_key(OWN, key), IMAGES) for key in ("a" * 20, "b" * 20)
    )
    old, new = (of_type(entry, POLICY) for entry in (before, after))
    assert not old.keys() & new.keys()
    assert ["a" * 20 in str(old), "a" * 20 in str(new), "b" * 20 in str(new)] == [True, False, True]
    assert properties(before, "Role") == properties(after, "Role")
    names = [
        properties(element, next(iter(of_type(element, POLICY))))["PolicyName"]
        for element in (before, after)
    ]
    assert names[0] != names[1]


def test_same_version_has_the_same_policy_whatever_else_changes():
    other = with_scaling(with_endpoint(OWN, rollout="linear", latency_slo_ms=20.0), max=9)
    found = [of_type(endpoint_template(item, IMAGES), POLICY) for item in (OWN, other)]
    assert found[0] == found[1]
    shared = endpoint_props(SHARED, IMAGES)
    # Several models: no rollout, and no version.
    assert policies(shared, 2)[1] == policies(shared, 3)[1]


# --- what SageMaker does in the role's name


def test_role_sees_exactly_the_alarms_that_take_a_version_back():
    found = template({MODEL: {}, BESIDE: beside("{joins: example}")})
    watched = properties(found, "Endpoint")["DeploymentConfig"]["AutoRollbackConfiguration"][
        "Alarms"
    ]
    looks = statements(found)["LookAtAlarms"]
    assert looks["Action"] == "cloudwatch:DescribeAlarms" and len(watched) >= 4
    assert sorted(arn.rpartition(":alarm:")[2] for arn in resource_list(looks)) == sorted(
        alarm["AlarmName"] for alarm in watched
    )


# --- engines


def with_engine(**fields):
    """The embedder whose engine has other fields, under the same key."""
    (target,) = OWN.targets
    engine = target.model.engine.model_copy(update=fields)
    model = target.model.model_copy(update={"engine": engine})
    return of_targets(OWN, (dataclasses.replace(target, model=model),))


@pytest.mark.parametrize(
    ("fields", "flag"),
    [
        ({"version_compatible": True}, "--backend-config=tensorrt,version-compatible=true"),
        (
            {"plugins": (PluginSpec(file="models/a.so", sha256="0" * 64, operators=("Scale",)),)},
            "--backend-config=tensorrt,plugins=/opt/ml/model/a.so",
        ),
    ],
)
def test_triton_loads_plans_as_the_model_says(fields, flag):
    plain, changed = (
        properties(endpoint_template(item, IMAGES), "Model")["PrimaryContainer"]["Environment"]
        for item in (OWN, with_engine(**fields))
    )
    arguments = "SAGEMAKER_TRITON_ADDITIONAL_ARGS"
    assert changed[arguments].split() == [*plain[arguments].split(), flag]


def test_another_engine_gives_model_and_config_other_names_and_another_slo_does_not():
    def content_names(deployment):
        found = endpoint_template(deployment, IMAGES)
        return properties(found, "Model")["ModelName"], config(found)["EndpointConfigName"]

    own, other = content_names(OWN), content_names(with_engine_key(OWN, "b" * 20))
    assert not set(own) & set(other)
    assert content_names(with_endpoint(OWN, latency_slo_ms=60)) == own


def test_missed_slo_is_a_warning_with_the_measurement():
    (warning,) = endpoint_warnings(with_endpoint(OWN, latency_slo_ms=1))
    assert "OVER the SLO of 1 ms" in warning


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("compute_capability", "8.9", "compute capability 8.9, and endpoint 'sentence-embedder'"),
        ("runtime", RuntimeIdentity(name="tensorrt", version="10.0.0.1"), "tensorrt 10.0.0.1"),
        ("engine_key", "c" * 20, f"key {'c' * 20}"),
    ],
)
def test_refuses_a_foreign_engine(field, value, message):
    (fault,) = endpoint_faults(with_locks(OWN, **{field: value}))
    assert message in fault
    assert fault.endswith("run: roundhouse build --env dev --model sentence-embedder")
