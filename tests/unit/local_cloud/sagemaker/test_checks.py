"""Endpoint configs beyond the API model: capacity, pools, shadows, asynchronous endpoints, keys."""

import pytest

from local_cloud.protocol.errors import AwsError, validation_error
from local_cloud.sagemaker.checks import (
    check_endpoint_config,
    check_model,
    instance_types,
    types_beyond_the_key,
)

pytestmark = pytest.mark.unit
IMAGE = "000000000000.dkr.ecr.us-east-1.amazonaws.com/x:1"
VARIANT = {
    "VariantName": "AllTraffic",
    "ModelName": "single",
    "InstanceType": "ml.g5.xlarge",
    "InitialInstanceCount": 1,
}
SHADOW = VARIANT | {"VariantName": "shadow"}
BY_LOAD = {"RoutingStrategy": "LEAST_OUTSTANDING_REQUESTS"}
POOLS = [
    {"InstanceType": "ml.g6.xlarge", "Priority": 2},
    {"InstanceType": "ml.g5.xlarge", "Priority": 1},
]
MODELS = {
    "single": {"PrimaryContainer": {"Image": IMAGE}},
    "multi": {"PrimaryContainer": {"Image": IMAGE, "Mode": "MultiModel"}},
}


def find(name):
    if name not in MODELS:
        raise validation_error(f"Could not find model {name}.")
    return MODELS[name]


def pooled(**changes):
    variant = {name: value for name, value in VARIANT.items() if name != "InstanceType"}
    return variant | {"InstancePools": POOLS, "RoutingConfig": BY_LOAD} | changes


def refused(config):
    with pytest.raises(AwsError) as error:
        check_endpoint_config(config, find)
    assert error.value.code == "ValidationException"
    return error.value.message


@pytest.mark.parametrize(
    "config",
    [
        {"ProductionVariants": [VARIANT]},
        {"ProductionVariants": [VARIANT, VARIANT | {"VariantName": "other"}]},
        {"ProductionVariants": [VARIANT], "ShadowProductionVariants": [SHADOW]},
        {"ProductionVariants": [VARIANT | {"ModelName": "multi"}]},
        {"ProductionVariants": [pooled()]},
        {
            "ProductionVariants": [VARIANT],
            "AsyncInferenceConfig": {"OutputConfig": {"S3OutputPath": "s3://b/c"}},
        },
    ],
)
def test_sound_configs_are_taken(config):
    check_endpoint_config(config, find)


@pytest.mark.parametrize(
    ("variants", "said"),
    [
        (
            [VARIANT, VARIANT],
            "Production variant names must be unique within an endpoint config: AllTraffic, "
            "AllTraffic.",
        ),
        ([VARIANT | {"ModelName": "gone"}], "Could not find model gone."),
        (
            [VARIANT | {"InstanceType": None}],
            "Value null at 'productionVariants.1.member.instanceType'",
        ),
        (
            [VARIANT | {"InitialInstanceCount": None}],
            "Value null at 'productionVariants.1.member.initialInstanceCount'",
        ),
        (
            [VARIANT | {"InstancePools": POOLS}],
            "has InstanceType and InstancePools: only one of them is allowed",
        ),
        (
            [VARIANT | {"ManagedInstanceScaling": {}}],
            "ManagedInstanceScaling is only supported for inference component endpoints.",
        ),
        ([VARIANT | {"ServerlessConfig": {}}], "is serverless, which the local cloud does not run"),
        (
            [pooled(RoutingConfig=None)],
            "require RoutingConfig with RoutingStrategy LEAST_OUTSTANDING_REQUESTS, found None",
        ),
        ([pooled(RoutingConfig={"RoutingStrategy": "RANDOM"})], "found RANDOM"),
        (
            [pooled(InstancePools=[POOLS[0], POOLS[0] | {"Priority": 1}])],
            "name a InstanceType twice: ml.g6.xlarge, ml.g6.xlarge",
        ),
        (
            [pooled(InstancePools=[POOLS[0], POOLS[1] | {"Priority": 2}])],
            "name a Priority twice: 2, 2",
        ),
        ([pooled(ModelName="multi")], "are not supported for multi-model endpoints"),
        (
            [pooled(InstancePools=[POOLS[0] | {"ModelNameOverride": "gone"}])],
            "Could not find model gone.",
        ),
    ],
)
def test_refuses_variants(variants, said):
    assert said in refused({"ProductionVariants": variants})


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (
            {
                "ProductionVariants": [VARIANT, VARIANT | {"VariantName": "b"}],
                "ShadowProductionVariants": [SHADOW],
            },
            "found 2 and 1.",
        ),
        (
            {
                "ProductionVariants": [VARIANT],
                "ShadowProductionVariants": [SHADOW, SHADOW | {"VariantName": "b"}],
            },
            "found 1 and 2.",
        ),
        (
            {"ProductionVariants": [VARIANT], "ShadowProductionVariants": [VARIANT]},
            "must be unique",
        ),
        (
            {
                "ProductionVariants": [VARIANT | {"ModelName": "multi"}],
                "ShadowProductionVariants": [SHADOW],
            },
            "ShadowProductionVariants are not supported for multi-model endpoints.",
        ),
        (
            {
                "ProductionVariants": [VARIANT],
                "ShadowProductionVariants": [SHADOW],
                "AsyncInferenceConfig": {"OutputConfig": {}},
            },
            "ShadowProductionVariants are not supported for asynchronous endpoints.",
        ),
        (
            {"ProductionVariants": [VARIANT], "AsyncInferenceConfig": {"OutputConfig": {}}},
            "requires S3OutputPath",
        ),
    ],
)
def test_refuses_a_config(config, said):
    assert said in refused(config)


def test_pools_are_tried_by_priority():
    assert instance_types(pooled()) == ("ml.g5.xlarge", "ml.g6.xlarge")
    assert instance_types(VARIANT) == ("ml.g5.xlarge",)


def test_key_does_not_reach_disks_of_the_instance():
    variants = [
        VARIANT,
        VARIANT | {"InstanceType": "ml.c7i.large"},
        VARIANT | {"InstanceType": "ml.c5d.large"},
    ]
    actual = types_beyond_the_key({"ProductionVariants": variants, "KmsKeyId": "k"})
    assert actual == ("ml.c5d.large", "ml.g5.xlarge")
    assert types_beyond_the_key({"ProductionVariants": variants}) == ()


@pytest.mark.parametrize(
    ("container", "said"),
    [
        ({}, "Value null at 'primaryContainer.image'"),
        (
            {"Image": "docker.io/x"},
            'Using non-ECR image "docker.io/x" without Vpc repository access mode is not '
            "supported.",
        ),
        (
            {"Image": IMAGE, "Mode": "MultiModel"},
            "must be an S3 prefix that ends with '/' when Mode is MultiModel",
        ),
        (
            {"Image": IMAGE, "Mode": "MultiModel", "ModelDataUrl": "s3://b/c"},
            "must be an S3 prefix that ends with '/'",
        ),
        (
            {"Image": IMAGE, "Mode": "MultiModel", "ModelDataSource": {}},
            "ModelDataSource is not supported for multi-model endpoints",
        ),
        (
            {"Image": IMAGE, "ModelDataUrl": "s3://b/c", "ModelDataSource": {}},
            "Both ModelDataUrl and ModelDataSource are given",
        ),
        (
            {"Image": IMAGE, "Environment": {f"A{at}": "x" * 1000 for at in range(40)}},
            "keys and values may take 32768 together",
        ),
    ],
)
def test_refuses_a_model(container, said):
    with pytest.raises(AwsError) as error:
        check_model({"ModelName": "m", "ExecutionRoleArn": "r", "PrimaryContainer": container})
    assert said in error.value.message


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (
            {"PrimaryContainer": {"Image": IMAGE}},
            "'executionRoleArn' failed to satisfy constraint: Member must not be null",
        ),
        (
            {"ExecutionRoleArn": "r"},
            "You must provide either the PrimaryContainer or the Containers parameter.",
        ),
        (
            {
                "ExecutionRoleArn": "r",
                "PrimaryContainer": {"Image": IMAGE},
                "Containers": [{"Image": IMAGE}],
            },
            "can not provide both",
        ),
    ],
)
def test_refuses_a_model_without_role_or_container(request_, said):
    with pytest.raises(AwsError) as error:
        check_model(request_)
    assert said in error.value.message
