"""Inference components beyond the API model: models, room, adapters, batches of an update."""

import pytest

from local_cloud.protocol.errors import AwsError, validation_error
from local_cloud.sagemaker.components.checks import (
    check_adapter,
    check_creation,
    check_rolling,
    component_variant,
)
from local_cloud.sagemaker.platform_data import Requirements, type_capacity

pytestmark = pytest.mark.unit
VARIANT = {"VariantName": "AllTraffic", "InstanceType": "ml.g5.12xlarge"}
NEEDED = {"NumberOfAcceleratorDevicesRequired": 1, "MinMemoryRequiredInMb": 1024}
SPECIFICATION = {"ModelName": "chat", "ComputeResourceRequirements": NEEDED}
IMAGE = "000000000000.dkr.ecr.us-east-1.amazonaws.com/x:1"
ADAPTER = {
    "BaseInferenceComponentName": "chat",
    "Container": {"ArtifactUrl": "s3://b/adapter.tar.gz"},
}


def find(name):
    if name != "chat":
        raise validation_error(f"Could not find model {name}.")


def request(copies=1, **changes):
    runtime = {} if copies is None else {"RuntimeConfig": {"CopyCount": copies}}
    return {"Specification": SPECIFICATION | changes, **runtime}


def rolling(kind, value, **more):
    size = {"Type": kind, "Value": value}
    return {"RollingUpdatePolicy": {"MaximumBatchSize": size, "WaitIntervalInSeconds": 0, **more}}


def test_a_component_of_a_known_model_fits_its_instance():
    check_creation(request(), VARIANT, find)
    own = {"ModelName": None, "Container": {"Image": IMAGE, "ArtifactUrl": "s3://b/c.tar.gz"}}
    check_creation(request(**own), VARIANT, find)


@pytest.mark.parametrize(
    ("refused", "message"),
    [
        (request(copies=0), "CopyCount must be greater than or equal to 1 when"),
        (request(copies=None), "RuntimeConfig is required unless the component is an adapter"),
        (request(ModelName="gone"), "Could not find model gone."),
        (
            request(ModelName=None),
            "one of ModelName and Container must be specified, found neither",
        ),
        (request(Container={"Image": IMAGE}), "must be specified, found both"),
        (request(ModelName=None, Container={}), "Container requires Image"),
        (request(ComputeResourceRequirements=None), "ComputeResourceRequirements is required"),
        (
            request(ComputeResourceRequirements=NEEDED | {"NumberOfAcceleratorDevicesRequired": 8}),
            "One copy needs 8 accelerators, 0 CPU cores and 1024 MB, and ml.g5.12xlarge has 4,",
        ),
        (
            request(ComputeResourceRequirements=NEEDED | {"MaxMemoryRequiredInMb": 512}),
            "MaxMemoryRequiredInMb 512 is less than MinMemoryRequiredInMb 1024.",
        ),
        ({"RuntimeConfig": {"CopyCount": 1}}, "Specification and Specifications must be specified"),
        (
            {"RuntimeConfig": {"CopyCount": 1}, "Specifications": [SPECIFICATION]},
            "The local cloud runs no component with several Specifications.",
        ),
    ],
)
def test_refuses_a_component(refused, message):
    with pytest.raises(AwsError, match=message):
        check_creation(refused, VARIANT, find)


def test_an_adapter_has_files_and_takes_the_rest_from_its_base():
    check_adapter({"Specification": ADAPTER})
    for changes, message in (
        ({"ComputeResourceRequirements": NEEDED}, "ComputeResourceRequirements must not be"),
        ({"Container": {"Image": IMAGE}}, "takes ArtifactUrl, which is required, and no Image"),
    ):
        with pytest.raises(AwsError, match=message):
            check_adapter({"Specification": ADAPTER | changes})
    with pytest.raises(AwsError, match="RuntimeConfig must not be specified"):
        check_adapter({"Specification": ADAPTER, "RuntimeConfig": {"CopyCount": 1}})


def test_a_component_names_a_variant_without_a_model():
    assert component_variant({}, [VARIANT], "e") is VARIANT
    assert component_variant({"VariantName": "AllTraffic"}, [VARIANT], "e") is VARIANT
    with pytest.raises(AwsError, match="which has AllTraffic; found other"):
        component_variant({"VariantName": "other"}, [VARIANT], "e")
    with pytest.raises(AwsError, match="does not host inference components"):
        component_variant({}, [VARIANT | {"ModelName": "chat"}], "e")


def test_a_batch_is_at_most_half_of_the_copies_and_at_least_one():
    for sound in (rolling("COPY_COUNT", 1), rolling("CAPACITY_PERCENT", 50)):
        check_rolling(sound, 1)
    check_rolling(rolling("COPY_COUNT", 2), 4)
    check_rolling(None, 1)
    for refused, message in (
        (rolling("COPY_COUNT", 3), "found 3 of 4"),
        (rolling("CAPACITY_PERCENT", 60), "must be 5-50% of the copies, found 60%"),
        (
            rolling(
                "COPY_COUNT", 1, WaitIntervalInSeconds=300, MaximumExecutionTimeoutInSeconds=600
            ),
            "600 is not larger than 1200",
        ),
    ):
        with pytest.raises(AwsError, match=message):
            check_rolling(refused, 4)


def test_what_is_not_known_of_an_instance_type_holds_every_copy():
    capacity = type_capacity("ml.g5.12xlarge")
    assert capacity.accelerators == 4
    two = Requirements(accelerators=2, memory_mb=1024)
    assert (two + two).fits(capacity)
    assert not (two + two + two).fits(capacity)
    assert two.fits(type_capacity("ml.unheard.of"))
