"""An endpoint's template as pure data: models, variants, pools, refusals, outputs. No CDK."""

from __future__ import annotations

import dataclasses
import re

import pytest

from onboarding.manifest import TensorRecord
from stacks.endpoint.template import endpoint_faults, endpoint_template, output_id, target_model_ids
from stacks.endpoint.warnings import endpoint_warnings
from stacks.template import content_name
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


def test_model_that_joins_is_a_variant_with_a_model_a_weight_and_a_count_of_its_own():
    joined = beside(
        "{joins: example, weight: 0.25, instance_type: ml.g5.2xlarge, scaling: {min: 3, max: 3}}"
    )
    found = template({BESIDE: joined})
    own, other = variants(found)["AllTraffic"], variants(found)["beside"]
    assert (own["InitialVariantWeight"], other["InitialVariantWeight"]) == (1, 0.25)
    assert (own["InstanceType"], other["InstanceType"]) == ("ml.g5.xlarge", "ml.g5.2xlarge")
    assert (own["InitialInstanceCount"], other["InitialInstanceCount"]) == (1, 3)
    models = of_type(found, SAGEMAKER_MODEL)
    assert {key: model["ModelName"] for key, model in models.items()} == {
        "Model": own["ModelName"],
        "ModelBeside": other["ModelName"],
    }
    environments = [
        model["PrimaryContainer"]["Environment"]["SAGEMAKER_TRITON_DEFAULT_MODEL_NAME"]
        for model in models.values()
    ]
    assert environments == ["example", "beside"]


def test_shadow_stands_beside_the_production_variants():
    found = template({BESIDE: beside("{joins: example, role: shadow, weight: 0.5}")})
    (shadow,) = config(found)["ShadowProductionVariants"]
    assert list(variants(found)) == ["AllTraffic"]
    assert (shadow["VariantName"], shadow["InitialVariantWeight"]) == ("beside", 0.5)


def test_weight_of_zero_stays_zero():
    found = template({BESIDE: beside("{joins: example, weight: 0}")})
    assert variants(found)["beside"]["InitialVariantWeight"] == 0


def test_variants_on_a_cpu_and_on_a_gpu_have_their_own_images_and_host_images():
    changes = {
        MODEL: {"ml.g5.xlarge": "ml.c7i.large", "server: triton": "server: python"},
        BESIDE: beside("{joins: example, instance_type: ml.g5.xlarge}"),
    }
    found = template(changes)
    images = {
        key: item["PrimaryContainer"]["Image"]
        for key, item in of_type(found, SAGEMAKER_MODEL).items()
    }
    assert images == {"Model": IMAGES["python-server"], "ModelBeside": IMAGES["python-server-gpu"]}
    assert "InferenceAmiVersion" not in variants(found)["AllTraffic"]
    assert (
        variants(found)["beside"]["InferenceAmiVersion"] == "al2023-ami-sagemaker-inference-gpu-4-1"
    )
    pulled = statements(found)["PullImage"]["Resource"]
    assert [image.rsplit("/", 1)[-1] for image in pulled] == ["python-server", "python-server-gpu"]


def test_timeouts_of_a_variant_are_those_of_its_own_slowest_engine():
    deployment = example({MODEL: endpoint_settings(POOLS), BESIDE: beside("{joins: example}")})
    slow = deployment.own.pools[2].targets[0].engine_key

    def slowed(target):
        seconds = 150.0 if target.engine_key == slow else 2.5
        manifest = target.lock_entry.manifest.model_copy(update={"load_seconds": seconds})
        return dataclasses.replace(
            target, lock_entry=target.lock_entry.model_copy(update={"manifest": manifest})
        )

    found = variants(endpoint_template(deployment.with_targets(slowed), IMAGES))
    assert found["AllTraffic"]["ContainerStartupHealthCheckTimeoutInSeconds"] == 660
    assert found["beside"]["ContainerStartupHealthCheckTimeoutInSeconds"] == 480


# --- instance pools


def test_pools_replace_the_instance_type_each_with_the_engine_of_its_gpu():
    deployment = example({MODEL: endpoint_settings(POOLS)})
    found = endpoint_template(deployment, IMAGES)
    variant, models = variants(found)["AllTraffic"], of_type(found, SAGEMAKER_MODEL)
    assert "InstanceType" not in variant
    assert variant["RoutingConfig"] == {"RoutingStrategy": "LEAST_OUTSTANDING_REQUESTS"}
    assert variant["InstancePools"] == [
        {"InstanceType": "ml.g5.xlarge", "Priority": 1},
        {
            "InstanceType": "ml.g6.xlarge",
            "Priority": 2,
            "ModelNameOverride": models["PoolModelG6Xlarge"]["ModelName"],
        },
        {
            "InstanceType": "ml.g4dn.xlarge",
            "Priority": 3,
            "ModelNameOverride": models["PoolModelG4dnXlarge"]["ModelName"],
        },
    ]
    assert variant["ModelName"] == models["Model"]["ModelName"]
    keys = [pool.targets[0].engine_key for pool in deployment.own.pools]
    urls = [entry["PrimaryContainer"]["ModelDataUrl"].split("/")[-2] for entry in models.values()]
    assert urls == keys and len(set(keys)) == 3
    assert found["Resources"]["EndpointConfig"]["DependsOn"] == sorted(models)


def test_pools_of_one_engine_share_its_model():
    found = template({MODEL: endpoint_settings("instance_pools: [{instance_type: ml.g5.2xlarge}]")})
    assert set(of_type(found, SAGEMAKER_MODEL)) == {"Model"}
    assert all(
        "ModelNameOverride" not in pool for pool in variants(found)["AllTraffic"]["InstancePools"]
    )


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


def test_pools_behind_a_queue_are_routed_by_load_too():
    found = template({MODEL: endpoint_settings(QUEUE, POOLS)})
    assert variants(found)["AllTraffic"]["RoutingConfig"] == {
        "RoutingStrategy": "LEAST_OUTSTANDING_REQUESTS"
    }


# --- names


def test_unchanged_deployment_has_the_same_template():
    changes = {MODEL: endpoint_settings(POOLS, CAPTURE), BESIDE: beside("{joins: example}")}
    assert template(changes) == template(changes)


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


def test_content_name_of_a_trimmed_prefix_tells_endpoints_apart():
    one_name, other = (content_name("dev-" + "a" * 50 + end, {"x": 1}) for end in ("b", "c"))
    assert one_name != other and len(one_name) == len(other) == 63


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
    (fault,) = endpoint_faults(deployment.with_targets(with_output))
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
    without = deployment.with_targets(
        lambda target: (
            dataclasses.replace(target, lock_entry=None) if target.engine_key == last else target
        )
    )
    (fault,) = endpoint_faults(without)
    assert last in fault and fault.endswith(f"run: roundhouse build --env cloud --model {missing}")
    assert endpoint_template(without, IMAGES)["Resources"] == {}


# --- isolation, outputs, timeouts


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


def test_output_ids_of_unlike_names_are_those_names_in_pascal_case():
    ids = target_model_ids(["sentence-embedder-fp32", "a1"])
    assert ids == {
        "sentence-embedder-fp32": "TargetModelSentenceEmbedderFp32",
        "a1": "TargetModelA1",
    }
    assert output_id("sentence-embedder-fp32") == "TargetModelSentenceEmbedderFp32"


def test_output_ids_of_names_that_are_one_in_pascal_case_differ():
    ids = target_model_ids(["a-1", "a1", "b"])
    assert len(set(ids.values())) == 3
    assert "TargetModelA1" not in ids.values()
    assert ids["b"] == "TargetModelB"
    assert all(re.fullmatch("[A-Za-z0-9]+", output_id) for output_id in ids.values())
    assert target_model_ids(["a1", "a-1"]) == {key: ids[key] for key in ("a1", "a-1")}


def test_outputs_of_target_models_that_read_alike_all_stand():
    text = """name: {name}
task: tensors
source: {{onnx: models/data/joiner.onnx, sha256: 815e99318b45362b82c06fe2af88438a9ec6067125741a446c210c7a7b870bec}}
engine: {{precision: fp16, optimization_profiles: [{{batch: [1, 1, 1]}}]}}
accuracy: {{dataset: models/data/arrays.npz}}
endpoint: shared
"""
    found = endpoints({f"models/{name}.yaml": text.format(name=name) for name in ("a-1", "a1")})[
        "shared"
    ]
    values = {
        output["Value"]
        for output in endpoint_template(found, IMAGES)["Outputs"].values()
        if isinstance(output["Value"], str)
    }
    assert values == {f"{target.engine_key}/model.tar.gz" for target in found.targets}
    assert len(values) == 3
