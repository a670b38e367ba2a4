"""Endpoint configs beyond the API model: capacity, pools, shadows, asynchronous endpoints, keys."""

import pytest

from local_cloud.protocol.errors import AwsError, validation_error
from local_cloud.sagemaker.checks import (
    check_endpoint_config,
    check_model,
    instance_types,
)

pytestmark = pytest.mark.unit
IMAGE = "000000000000.dkr.ecr.us-east-1.amazonaws.com/x:1"
VARIANT = {
    "VariantName": "AllTraffic",
    "ModelName": "single",
    "InstanceType": "ml.g5.xlarge",
    "InitialInstanceCount": 1,
}
BY_LOAD = {"RoutingStrategy": "LEAST_OUTSTANDING_REQUESTS"}
G6 = {"InstanceType": "ml.g6.xlarge", "Priority": 2}
G5 = {"InstanceType": "ml.g5.xlarge", "Priority": 1}
MODELS = {
    "single": {"PrimaryContainer": {"Image": IMAGE}},
    "multi": {"PrimaryContainer": {"Image": IMAGE, "Mode": "MultiModel"}},
}
ROLE = "arn:aws:iam::000000000000:role/endpoint"
HOSTING = VARIANT | {"ModelName": None}
FROM_ZERO = {"Status": "ENABLED", "MinInstanceCount": 0, "MaxInstanceCount": 2}
S3_OUTPUT = {"OutputConfig": {"S3OutputPath": "s3://b/c"}}


def find(name):
    if name not in MODELS:
        raise validation_error(f"Could not find model {name}.")
    return MODELS[name]


def pooled(*pools, **changes):
    variant = {name: value for name, value in VARIANT.items() if name != "InstanceType"}
    return variant | {"InstancePools": pools or (G6, G5), "RoutingConfig": BY_LOAD} | changes


def config(*variants, shadows=None, **fields):
    """An endpoint config; names are variants like VARIANT."""

    def variant_list(items):
        return [VARIANT | {"VariantName": x} if isinstance(x, str) else x for x in items]

    shadow = {} if shadows is None else {"ShadowProductionVariants": variant_list(shadows)}
    return {"ProductionVariants": variant_list(variants), **shadow, **fields}


@pytest.mark.parametrize(
    "sound",
    [
        config("a"),
        config("a", "b"),
        config("a", shadows=["b"]),
        config(VARIANT | {"ModelName": "multi"}),
        config(pooled()),
        config("a", AsyncInferenceConfig=S3_OUTPUT),
        config(HOSTING, ExecutionRoleArn=ROLE),
        config(HOSTING | {"ManagedInstanceScaling": FROM_ZERO}, ExecutionRoleArn=ROLE),
    ],
)
def test_sound_configs_are_accepted(sound):
    check_endpoint_config(sound, find, "us-east-1")


MULTI = VARIANT | {"ModelName": "multi"}
NULL = "Value null at 'productionVariants.1.member."
NOT_ASYNC = "ShadowProductionVariants are not supported for asynchronous endpoints."


@pytest.mark.parametrize(
    ("refused", "message"),
    [
        (config("a", "a"), "Production variant names must be unique within an endpoint config: a"),
        (config(VARIANT | {"ModelName": "gone"}), "Could not find model gone."),
        (config(VARIANT | {"InstanceType": None}), f"{NULL}instanceType'"),
        (config(VARIANT | {"InitialInstanceCount": None}), f"{NULL}initialInstanceCount'"),
        (config(VARIANT | {"InstancePools": [G5]}), "InstancePools: only one of them is allowed"),
        (
            config(VARIANT | {"ManagedInstanceScaling": {}}),
            "ManagedInstanceScaling is only supported for inference component endpoints.",
        ),
        (config(VARIANT | {"ServerlessConfig": {}}), "which the local cloud does not run"),
        (
            config(pooled(RoutingConfig=None)),
            "require RoutingConfig with RoutingStrategy LEAST_OUTSTANDING_REQUESTS, found None",
        ),
        (config(pooled(RoutingConfig={"RoutingStrategy": "RANDOM"})), "found RANDOM"),
        (config(pooled(G6, G6 | {"Priority": 1})), "a InstanceType twice: ml.g6.xlarge, ml.g6"),
        (config(pooled(G6, G5 | {"Priority": 2})), "name a Priority twice: 2, 2"),
        (config(pooled(ModelName="multi")), "are not supported for multi-model endpoints"),
        (config(pooled(G6 | {"ModelNameOverride": "gone"})), "Could not find model gone."),
        (config("a", "b", shadows=["c"]), "found 2 and 1."),
        (config(HOSTING), "ExecutionRoleArn is required in an endpoint config whose variants name"),
        (config("a", HOSTING, ExecutionRoleArn=ROLE), "name a model, or none does"),
        (config(HOSTING, ExecutionRoleArn=ROLE, AsyncInferenceConfig=S3_OUTPUT), "AsyncInference"),
        (
            config(HOSTING | {"ManagedInstanceScaling": FROM_ZERO}, ExecutionRoleArn=ROLE),
            "SageMaker refuses MinInstanceCount 0 in eu-west-3.",
        ),
        (
            config(
                HOSTING | {"InitialInstanceCount": 3, "ManagedInstanceScaling": FROM_ZERO},
                ExecutionRoleArn=ROLE,
            ),
            "InitialInstanceCount 3 of variant AllTraffic must lie between MinInstanceCount 0",
        ),
        (config("a", shadows=["b", "c"]), "found 1 and 2."),
        (config("a", shadows=["a"]), "must be unique"),
        (config(MULTI, shadows=["b"]), "are not supported for multi-model endpoints."),
        (config("a", shadows=["b"], AsyncInferenceConfig={"OutputConfig": {}}), NOT_ASYNC),
        (config("a", AsyncInferenceConfig={"OutputConfig": {}}), "requires S3OutputPath"),
    ],
)
def test_refuses_a_config(refused, message):
    with pytest.raises(AwsError) as error:
        check_endpoint_config(refused, find, "eu-west-3")
    assert error.value.code == "ValidationException"
    assert message in error.value.message


def test_pools_are_tried_by_priority():
    assert instance_types(pooled()) == ("ml.g5.xlarge", "ml.g6.xlarge")
    assert instance_types(VARIANT) == ("ml.g5.xlarge",)


def model(**container):
    return {"ExecutionRoleArn": "r", "PrimaryContainer": {"Image": IMAGE, **container}}


TOO_MUCH = {f"A{number}": "x" * 1000 for number in range(40)}


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (model(Image=None), "Value null at 'primaryContainer.image'"),
        (model(Image="docker.io/x"), 'Using non-ECR image "docker.io/x" without Vpc repository'),
        (model(Mode="MultiModel"), "must be an S3 prefix that ends with '/' when Mode is MultiMod"),
        (model(Mode="MultiModel", ModelDataUrl="s3://b/c"), "must be an S3 prefix that ends with"),
        (
            model(Mode="MultiModel", ModelDataSource={}),
            "ModelDataSource is not supported for multi-model endpoints",
        ),
        (
            model(ModelDataUrl="s3://b/c", ModelDataSource={}),
            "Both ModelDataUrl and ModelDataSource are given",
        ),
        (model(Environment=TOO_MUCH), "keys and values may take 32768 together"),
        (model() | {"ExecutionRoleArn": None}, "'executionRoleArn' failed to satisfy constraint"),
        (
            {"ExecutionRoleArn": "r"},
            "You must provide either the PrimaryContainer or the Container",
        ),
        (model() | {"Containers": [{"Image": IMAGE}]}, "can not provide both"),
    ],
)
def test_refuses_a_model(request_, message):
    with pytest.raises(AwsError) as error:
        check_model({"ModelName": "m", **request_})
    assert message in error.value.message
