"""Requests against AWS's own API models: its sentences, every fault at once, values out of text."""

import pytest

from local_cloud.protocol.constraints import (
    checked_actions,
    checked_request,
)
from local_cloud.protocol.errors import AwsError

pytestmark = pytest.mark.unit
FIRST = "productionVariants.1.member"
BROKEN = "failed to satisfy constraint: Member must"
VARIANT = {"VariantName": "AllTraffic", "ModelName": "m", "InstanceType": "ml.g5.xlarge"}
SIZE = {"Type": "PERCENT", "Value": 0}
CANARY = {"Type": "CANARY", "WaitIntervalInSeconds": 3601, "CanarySize": SIZE}


def config(**changes):
    return {"EndpointConfigName": "c", "ProductionVariants": [VARIANT | changes]}


def model(**environment):
    image = "000000000000.dkr.ecr.us-east-1.amazonaws.com/x:1"
    return {"ModelName": "m", "PrimaryContainer": {"Image": image, "Environment": environment}}


def refusal(operation, request):
    with pytest.raises(AwsError) as error:
        checked_request(operation, request)
    return error.value


def test_text_of_templates_becomes_the_values_that_the_model_wants():
    typed = checked_request(
        "CreateEndpointConfig", config(InitialInstanceCount="2", InitialVariantWeight="0.5")
    )
    assert typed == config(InitialInstanceCount=2, InitialVariantWeight=0.5)
    request = {"EndpointName": "e", "EndpointConfigName": "c", "RetainAllVariantProperties": "true"}
    assert checked_request("UpdateEndpoint", request)["RetainAllVariantProperties"] is True
    for time in (2.0, "1970-01-01T00:00:02Z", "1970-01-01T00:00:02"):
        found = checked_request("ListEndpoints", {"CreationTimeBefore": time})
        assert found == {"CreationTimeBefore": 2.0}
    assert checked_request("CreateEndpointConfig", config(VolumeSizeInGB=None))
    assert checked_request("CreateModel", model(A="x")) == model(A="x")


@pytest.mark.parametrize(
    ("operation", "request_", "message"),
    [
        ("ListEndpoints", {"CreationTimeBefore": "soon"}, "'soon' .* to a Timestamp"),
        ("CreateEndpointConfig", config(InitialInstanceCount="many"), "to a Number"),
        ("CreateEndpointConfig", config(InitialInstanceCount="1.5"), "to an Integer"),
        ("CreateEndpointConfig", config(InitialInstanceCount=["1"]), "to a Number"),
        ("CreateEndpointConfig", {"EndpointConfigName": "c", "ProductionVariants": 1}, "a List"),
        ("CreateModel", {"ModelName": "m", "PrimaryContainer": "x"}, "to an Object"),
    ],
)
def test_refuses_a_value_of_another_kind(operation, request_, message):
    with pytest.raises(AwsError, match=message) as error:
        checked_request(operation, request_)
    assert error.value.code == "SerializationException"


@pytest.mark.parametrize(
    ("operation", "request_", "faults"),
    [
        (
            "CreateEndpointConfig",
            config(InitialInstanceCount=0, InstanceType="ml.g99.large"),
            (
                f"Value '0' at '{FIRST}.initialInstanceCount' {BROKEN} have value greater than or",
                f"Value 'ml.g99.large' at '{FIRST}.instanceType' {BROKEN} satisfy enum value",
            ),
        ),
        (
            "CreateEndpointConfig",
            config(VariantName=None, VolumeSizeInGB=600),
            (
                f"Value null at '{FIRST}.variantName' {BROKEN} not be null",
                f"'{FIRST}.volumeSizeInGB' {BROKEN} have value less than or equal to 512",
            ),
        ),
        (
            "CreateEndpointConfig",
            config(VariantName="a_b"),
            (f"{BROKEN} satisfy regular expression pattern: [a-zA-Z0-9](-*[a-zA-Z0-9]){{0,62}}",),
        ),
        (
            "CreateEndpointConfig",
            config(InstancePools=[{"InstanceType": "ml.g5.xlarge", "Priority": 6}]),
            (f"Value '6' at '{FIRST}.instancePools.1.member.priority'",),
        ),
        (
            "CreateModel",
            model(**{"1A": "x", "B": "x" * 1025}),
            (
                f"Value '1A' at 'primaryContainer.environment.key' {BROKEN} satisfy regular",
                f"at 'primaryContainer.environment.B' {BROKEN} have length less than or equal",
            ),
        ),
        (
            "CreateModel",
            model(**{f"A{number}": "x" for number in range(101)}),
            (f"{BROKEN} have length less than or equal to 100",),
        ),
        (
            "UpdateEndpoint",
            {
                "EndpointName": "e",
                "EndpointConfigName": "c",
                "DeploymentConfig": {
                    "BlueGreenUpdatePolicy": {
                        "TrafficRoutingConfiguration": CANARY,
                        "TerminationWaitInSeconds": 3601,
                    },
                    "AutoRollbackConfiguration": {"Alarms": [{"AlarmName": "a"}] * 11},
                },
            },
            ("have length less than or equal to 10", "type'", "value'", "less", "equal to 3600"),
        ),
    ],
)
def test_refuses_every_fault_at_once(operation, request_, faults):
    error = refusal(operation, request_)
    noun = "error" if len(faults) == 1 else "errors"
    assert (error.code, error.status) == ("ValidationException", 400)
    assert error.message.startswith(f"{len(faults)} validation {noun} detected: ")
    for fault in faults:
        assert fault in error.message


def test_refuses_a_request_without_what_an_action_needs():
    actions = checked_actions(
        {"CreateModel": lambda request: {"Role": request["ExecutionRoleArn"]}}
    )
    with pytest.raises(AwsError, match="needs 'ExecutionRoleArn', which is missing"):
        actions["CreateModel"](model(A="x"))
