"""Requests against SageMaker's own API model.

AWS's sentences, every fault at once, numbers out of text.
"""

import pytest

from local_cloud.protocol.constraints import (
    RUNTIME,
    SAGEMAKER,
    SCALING,
    broken_rules,
    checked_request,
    input_shape,
)
from local_cloud.protocol.errors import AwsError

pytestmark = pytest.mark.unit
FIRST = "productionVariants.1.member"
BROKEN = "failed to satisfy constraint:"
TO = {"DestinationS3Uri": "s3://b/c"}
INPUT = {"CaptureOptions": [{"CaptureMode": "Input"}]}
ROLE = "arn:aws:iam::000000000000:role/endpoint"
VARIANT = {
    "VariantName": "AllTraffic",
    "ModelName": "m",
    "InstanceType": "ml.g5.xlarge",
    "InitialInstanceCount": 1,
}


def config(**changes):
    return {"EndpointConfigName": "c", "ProductionVariants": [VARIANT | changes]}


def refusal(operation, request):
    with pytest.raises(AwsError) as error:
        checked_request(operation, request)
    return error.value


def shapes_of(shape, known):
    """Every shape that a request is composed of."""
    if shape.name not in known:
        known[shape.name] = shape
        parts = [getattr(shape, name, None) for name in ("member", "key", "value")]
        for part in (*parts, *getattr(shape, "members", {}).values()):
            if part is not None:
                shapes_of(part, known)
    return known.values()


@pytest.mark.parametrize(
    ("service", "operations"),
    [
        (
            SAGEMAKER,
            "CreateModel CreateEndpointConfig CreateEndpoint UpdateEndpoint ListEndpoints AddTags "
            "UpdateEndpointWeightsAndCapacities CreateTrainingJob ListTrainingJobs ListTags",
        ),
        (RUNTIME, "InvokeEndpoint InvokeEndpointAsync"),
        (SCALING, "RegisterScalableTarget PutScalingPolicy PutScheduledAction"),
    ],
)
def test_python_reads_every_pattern_of_the_models(service, operations):
    for operation in operations.split():
        for shape in shapes_of(input_shape(operation, service), {}):
            if "pattern" in shape.metadata:
                broken_rules(shape, "x")


@pytest.mark.parametrize(
    ("service", "operation", "field", "allowed", "refused"),
    [
        (SCALING, "PutScalingPolicy", "PolicyName", "p 99 (fast)", "p\u00e4"),
        (
            SCALING,
            "RegisterScalableTarget",
            "ResourceId",
            "endpoint/e/variant/\u00e4\U0001f682",
            "endpoint/\x00",
        ),
        (RUNTIME, "InvokeEndpoint", "InferenceId", "trace 7", " trace"),
        (RUNTIME, "InvokeEndpoint", "CustomAttributes", "a=1\tb", "a=\u00e4"),
        (RUNTIME, "InvokeEndpoint", "TargetModel", "a/model.tar.gz", "a\nmodel"),
    ],
)
def test_patterns_of_the_models_mean_what_they_mean_in_java(
    service, operation, field, allowed, refused
):
    shape = input_shape(operation, service).members[field]
    assert [broken_rules(shape, value) == [] for value in (allowed, refused)] == [True, False]


def test_text_becomes_the_number_or_truth_that_the_model_wants():
    typed = checked_request(
        "CreateEndpointConfig", config(InitialInstanceCount="2", InitialVariantWeight="0.5")
    )
    assert (
        typed["ProductionVariants"][0] | {"InitialInstanceCount": 2, "InitialVariantWeight": 0.5}
        == typed["ProductionVariants"][0]
    )
    request = {"EndpointName": "e", "EndpointConfigName": "c", "RetainAllVariantProperties": "true"}
    assert checked_request("UpdateEndpoint", request)["RetainAllVariantProperties"] is True


@pytest.mark.parametrize("time", [2.0, "1970-01-01T00:00:02Z", "1970-01-01T00:00:02"])
def test_text_becomes_a_time(time):
    assert checked_request("ListEndpoints", {"CreationTimeBefore": time}) == {
        "CreationTimeBefore": 2.0
    }


def test_refuses_text_that_is_no_time():
    error = refusal("ListEndpoints", {"CreationTimeBefore": "soon"})
    assert error.code == "SerializationException"
    assert "'soon' can not be converted to a Timestamp" in error.message


MUST = "Member must "
PATTERN = f"{MUST}satisfy regular expression pattern: [a-zA-Z0-9](-*[a-zA-Z0-9]){{0,62}}"
POOL = {"InstanceType": "ml.g5.xlarge", "Priority": 6}
CAPTURE = "dataCaptureConfig"


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (
            {"InitialInstanceCount": 0},
            f"Value '0' at '{FIRST}.initialInstanceCount' {BROKEN} {MUST}have value greater than "
            "or equal to 1",
        ),
        (
            {"InferenceAmiVersion": "al2023-gpu"},
            f"Value 'al2023-gpu' at '{FIRST}.inferenceAmiVersion' {BROKEN} {MUST}satisfy enum "
            "value set: [al2-ami-sagemaker-",
        ),
        ({"VariantName": None}, f"Value null at '{FIRST}.variantName' {BROKEN} {MUST}not be null"),
        ({"VariantName": "a_b"}, PATTERN),
        ({"VolumeSizeInGB": 600}, f"{MUST}have value less than or equal to 512"),
        ({"InstancePools": [POOL]}, f"Value '6' at '{FIRST}.instancePools.1.member.priority'"),
        (
            {"RoutingConfig": {"RoutingStrategy": "ROUND_ROBIN"}},
            f"{MUST}satisfy enum value set: [LEAST_OUTSTANDING_REQUESTS, RANDOM",
        ),
    ],
)
def test_refuses_a_variant(change, rule):
    error = refusal("CreateEndpointConfig", config(**change))
    assert (error.code, error.status) == ("ValidationException", 400)
    assert error.message.startswith("1 validation error detected: ")
    assert rule in error.message


def test_refuses_every_fault_at_once():
    request = config(InitialInstanceCount=0, InstanceType="ml.g99.large")
    message = refusal("CreateEndpointConfig", request).message
    assert message.startswith("2 validation errors detected: ")
    assert "initialInstanceCount" in message
    assert f"'ml.g99.large' at '{FIRST}.instanceType'" in message


@pytest.mark.parametrize(
    ("field", "value", "rule"),
    [
        (
            "DataCaptureConfig",
            {"InitialSamplingPercentage": 101, **TO, **INPUT},
            f"Value '101' at '{CAPTURE}.initialSamplingPercentage'",
        ),
        (
            "DataCaptureConfig",
            {"InitialSamplingPercentage": 1, "DestinationS3Uri": "b/c", "CaptureOptions": []},
            f"2 validation errors detected: Value 'b/c' at '{CAPTURE}.destinationS3Uri'",
        ),
        (
            "AsyncInferenceConfig",
            {"ClientConfig": {"MaxConcurrentInvocationsPerInstance": 1001}, "OutputConfig": {}},
            f"'asyncInferenceConfig.clientConfig.maxConcurrentInvocationsPerInstance' {BROKEN}",
        ),
        ("AsyncInferenceConfig", {}, "Value null at 'asyncInferenceConfig.outputConfig'"),
    ],
)
def test_refuses_a_config(field, value, rule):
    assert rule in refusal("CreateEndpointConfig", {**config(), field: value}).message


@pytest.mark.parametrize(
    ("environment", "rule"),
    [
        (
            {"1A": "x"},
            f"Map keys must satisfy constraint: [{MUST}have length less than or equal to",
        ),
        ({"A": "x" * 1025}, f"Map value must satisfy constraint: [{MUST}have length less than or"),
        ({f"A{n}": "x" for n in range(101)}, f"{MUST}have length less than or equal to 100"),
    ],
)
def test_refuses_an_environment(environment, rule):
    image = "000000000000.dkr.ecr.us-east-1.amazonaws.com/x:1"
    container = {"Image": image, "Environment": environment}
    request = {"ModelName": "m", "ExecutionRoleArn": ROLE, "PrimaryContainer": container}
    assert rule in refusal("CreateModel", request).message


def test_refuses_deployment_values():
    size = {"Type": "PERCENT", "Value": 0}
    routing = {"Type": "CANARY", "WaitIntervalInSeconds": 3601, "CanarySize": size}
    alarms = {"Alarms": [{"AlarmName": "a"}] * 11}
    deployment = {
        "BlueGreenUpdatePolicy": {
            "TrafficRoutingConfiguration": routing,
            "TerminationWaitInSeconds": 3601,
        },
        "AutoRollbackConfiguration": alarms,
    }
    request = {"EndpointName": "e", "EndpointConfigName": "c", "DeploymentConfig": deployment}
    message = refusal("UpdateEndpoint", request).message
    assert message.startswith("5 validation errors detected: ")
    assert f"{MUST}have length less than or equal to 10" in message
    assert message.count(f"{MUST}have value less than or equal to 3600") == 2


@pytest.mark.parametrize("value", ["many", "1.5", ["1"]])
def test_refuses_a_value_of_another_kind(value):
    error = refusal("CreateEndpointConfig", config(InitialInstanceCount=value))
    assert error.code == "SerializationException"


def test_null_is_no_value():
    assert checked_request("CreateEndpointConfig", config(VolumeSizeInGB=None))
