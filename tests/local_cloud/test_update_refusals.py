"""Updates that SageMaker refuses at once, with nothing changed."""

import pytest
from botocore.exceptions import ClientError

from tests.local_cloud.account import IMAGE, ROLE, endpoint_config, refusal, until, wait_until_gone

pytestmark = pytest.mark.local_cloud
TARGET = {
    "ServiceNamespace": "sagemaker",
    "ResourceId": "endpoint/fixed-type/variant/AllTraffic",
    "ScalableDimension": "sagemaker:variant:DesiredInstanceCount",
}


def all_at_once(**policy):
    routing = {"Type": "ALL_AT_ONCE", "WaitIntervalInSeconds": 0}
    return {"BlueGreenUpdatePolicy": {"TrafficRoutingConfiguration": routing, **policy}}


def rolling(kind, value):
    return {
        "RollingUpdatePolicy": {
            "MaximumBatchSize": {"Type": kind, "Value": value},
            "WaitIntervalInSeconds": 0,
        }
    }


def canary(value):
    size = {"Type": "CAPACITY_PERCENT", "Value": value}
    routing = {"Type": "CANARY", "WaitIntervalInSeconds": 0, "CanarySize": size}
    return {"BlueGreenUpdatePolicy": {"TrafficRoutingConfiguration": routing}}


@pytest.fixture(scope="module")
def sagemaker(cloud):
    """An endpoint `fixed-type` of one variant, and endpoint configs that an update may name."""
    sagemaker = cloud.client("sagemaker")
    cloud.serve("fixed-type")
    base = endpoint_config("fixed-type")["ProductionVariants"][0]
    configs = {
        "renamed": [base | {"VariantName": "other"}],
        "retyped": [base | {"InstanceType": "ml.c7i.xlarge"}],
        "remade": [base | {"InitialInstanceCount": 2}],
        "several": [base, base | {"VariantName": "other"}],
    }
    for name, variants in configs.items():
        sagemaker.create_endpoint_config(
            EndpointConfigName=f"fixed-type-{name}", ProductionVariants=variants
        )
    yield sagemaker
    cloud.destroy("fixed-type")
    for name in configs:
        sagemaker.delete_endpoint_config(EndpointConfigName=f"fixed-type-{name}")
    assert wait_until_gone("fixed-type")


@pytest.mark.parametrize(
    ("config", "options", "message"),
    [
        (
            "missing",
            {},
            "Could not find endpoint configuration "
            '"arn:aws:sagemaker:us-east-1:000000000000:endpoint-config/',
        ),
        (
            "renamed",
            {"DeploymentConfig": all_at_once()},
            "must have the same variant names as the old endpoint configuration",
        ),
        (
            "several",
            {"DeploymentConfig": rolling("CAPACITY_PERCENT", 50)},
            "not supported for endpoints with several variants",
        ),
        (
            "remade",
            {"DeploymentConfig": rolling("INSTANCE_COUNT", 2)},
            "INSTANCE_COUNT 2 is 100% of the 2 instances",
        ),
        (
            "remade",
            {"ExcludeRetainedVariantProperties": [{"VariantPropertyType": "DesiredWeight"}]},
            "can only be used when RetainAllVariantProperties is set to true",
        ),
        (
            "remade",
            {
                "RetainAllVariantProperties": True,
                "ExcludeRetainedVariantProperties": [{"VariantPropertyType": "Weight"}],
            },
            "Member must satisfy enum value set: [DesiredInstanceCount, DesiredWeight, "
            "DataCaptureConfig]",
        ),
    ],
)
def test_refuses_an_update(sagemaker, config, options, message):
    with pytest.raises(ClientError) as error:
        sagemaker.update_endpoint(
            EndpointName="fixed-type", EndpointConfigName=f"fixed-type-{config}", **options
        )
    assert error.value.response["Error"]["Code"] == "ValidationException"
    assert message in error.value.response["Error"]["Message"]
    shown = sagemaker.describe_endpoint(EndpointName="fixed-type")
    assert (shown["EndpointStatus"], shown["EndpointConfigName"]) == ("InService", "fixed-type-1")


def test_refuses_another_instance_type_while_the_variant_is_scaled(cloud, sagemaker):
    scaling = cloud.client("application-autoscaling")
    scaling.register_scalable_target(**TARGET, MinCapacity=1, MaxCapacity=2)
    with pytest.raises(
        ClientError,
        match=r"cannot be changed from ml\.c7i\.large to ml\.c7i\.xlarge while it is registered",
    ):
        sagemaker.update_endpoint(
            EndpointName="fixed-type", EndpointConfigName="fixed-type-retyped"
        )
    scaling.deregister_scalable_target(**TARGET)
    sagemaker.update_endpoint(EndpointName="fixed-type", EndpointConfigName="fixed-type-retyped")
    cloud.wait_for("fixed-type")
    sagemaker.update_endpoint(EndpointName="fixed-type", EndpointConfigName="fixed-type-1")
    cloud.wait_for("fixed-type")


def test_deployment_config_of_the_last_update_is_reused_on_request(cloud, sagemaker):
    update = {"EndpointName": "fixed-type", "EndpointConfigName": "fixed-type-1"}
    for options in ({"DeploymentConfig": canary(20)}, {"RetainDeploymentConfig": True}):
        sagemaker.update_endpoint(**update, **options)
        cloud.wait_for("fixed-type")
        shown = sagemaker.describe_endpoint(EndpointName="fixed-type")["LastDeploymentConfig"]
        assert shown["BlueGreenUpdatePolicy"] == canary(20)["BlueGreenUpdatePolicy"]


def test_endpoint_config_in_use_can_be_deleted_and_then_no_update_is_taken(cloud, sagemaker):
    config = endpoint_config("fixed-type") | {"EndpointConfigName": "used-up"}
    sagemaker.create_endpoint_config(**config)
    sagemaker.create_endpoint(EndpointName="uses-it", EndpointConfigName="used-up")
    cloud.wait_for("uses-it")
    sagemaker.delete_endpoint_config(EndpointConfigName="used-up")
    assert (
        "endpoint config used-up is deleted while uses-it uses it"
        in (cloud.state / "cloud.log").read_text()
    )
    assert cloud.invoke("uses-it")["greeting"] == "hi"
    with refusal(r'Could not find endpoint configuration "arn:.*endpoint-config/used-up"'):
        sagemaker.update_endpoint(EndpointName="uses-it", EndpointConfigName="fixed-type-1")
    assert sagemaker.describe_endpoint(EndpointName="uses-it")["EndpointStatus"] == "InService"
    sagemaker.delete_endpoint(EndpointName="uses-it")
    until(lambda: not sagemaker.list_endpoints(NameContains="uses-it")["Endpoints"])


def test_refuses_an_endpoint_whose_name_differs_in_case_only(sagemaker):
    with pytest.raises(ClientError, match="Cannot create already existing endpoint"):
        sagemaker.create_endpoint(EndpointName="Fixed-Type", EndpointConfigName="fixed-type-1")


def test_failed_endpoint_can_only_be_deleted(cloud, sagemaker):
    url = cloud.put_archive("failed/model.tar.gz", "hi")
    container = {"Image": IMAGE, "ModelDataUrl": url, "Environment": {"SERVER_MODE": "exits"}}
    sagemaker.create_model(ModelName="failed-1", ExecutionRoleArn=ROLE, PrimaryContainer=container)
    sagemaker.create_endpoint_config(**endpoint_config("failed"))
    sagemaker.create_endpoint(EndpointName="failed", EndpointConfigName="failed-1")
    cloud.wait_for("failed", "Failed")
    assert (
        "the engine was made for another GPU"
        in sagemaker.describe_endpoint(EndpointName="failed")["FailureReason"]
    )
    with pytest.raises(ClientError, match="it can only be deleted"):
        sagemaker.update_endpoint(EndpointName="failed", EndpointConfigName="failed-1")
    sagemaker.delete_endpoint(EndpointName="failed")
    until(lambda: not sagemaker.list_endpoints(NameContains="failed")["Endpoints"])
    sagemaker.delete_endpoint_config(EndpointConfigName="failed-1")
    sagemaker.delete_model(ModelName="failed-1")
