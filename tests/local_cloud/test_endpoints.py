"""Endpoints by CloudFormation.

Healthy before they are done, rolled back with a reason, never a process left.
"""

import pytest
from botocore.exceptions import ClientError

from tests.local_cloud.account import (
    ACCOUNT,
    ROLE,
    endpoint_config,
    endpoint_resources,
    refusal,
    wait_until_gone,
)

pytestmark = pytest.mark.local_cloud


def test_endpoint_is_in_service_with_its_stack_and_gone_with_it(cloud):
    url = cloud.put_archive("life/model.tar.gz", "hello from S3")
    status, _ = cloud.deploy("life", endpoint_resources("life", url))
    assert status == "CREATE_COMPLETE"
    described = cloud.client("sagemaker").describe_endpoint(EndpointName="life")
    assert (described["EndpointStatus"], described["EndpointConfigName"]) == ("InService", "life-1")
    answer = cloud.invoke("life", ContentType="text/plain", CustomAttributes="trace=7")
    assert answer["greeting"] == "hello from S3"
    actual = (answer["body"], answer["content_type"], answer["attributes"])
    assert actual == ("hello", "text/plain", "trace=7")
    cloud.destroy("life")
    assert wait_until_gone("life")
    with pytest.raises(
        ClientError,
        match='Could not find endpoint "arn:aws:sagemaker:us-east-1:000000000000:endpoint/life"',
    ):
        cloud.client("sagemaker").describe_endpoint(EndpointName="life")


def test_refuses_an_endpoint_whose_archive_went_away(cloud):
    sagemaker = cloud.client("sagemaker")
    url = cloud.put_archive("went/model.tar.gz", "hi")
    resources = endpoint_resources("went", url)
    actual = cloud.deploy("went", {"Model": resources["Model"], "Config": resources["Config"]})[0]
    assert actual == "CREATE_COMPLETE"
    cloud.client("s3").delete_object(Bucket="engines", Key="went/model.tar.gz")
    status, reason = cloud.deploy("went", resources)
    assert status == "UPDATE_ROLLBACK_COMPLETE"
    assert f'Failed to download model data for container "container_1" from URL: "{url}"' in reason
    assert sagemaker.list_endpoints(NameContains="went")["Endpoints"] == []
    cloud.destroy("went")


def test_refuses_a_replacement_under_a_fixed_name(cloud):
    cloud.serve("fixed", "first")
    status, reason = cloud.deploy(
        "fixed", endpoint_resources("fixed", cloud.put_archive("fixed/2.tar.gz", "second"))
    )
    assert status == "UPDATE_ROLLBACK_COMPLETE"
    assert "cannot update a stack when a custom-named resource requires replacing" in reason
    assert cloud.invoke("fixed")["greeting"] == "first"
    cloud.destroy("fixed")


def variant_of(model):
    return {"VariantName": "v", "ModelName": model, "InstanceType": "ml.c7i.large",
            "InitialInstanceCount": 1}  # fmt: skip


UNHEARD = f"{ACCOUNT}.dkr.ecr.us-east-1.amazonaws.com/somewhere/unheard-of:1"
SLACK = {"SlackWorkspaceId": "T0123ABCDEF", "SlackChannelId": "C0123ABCDEF"}
TARGET = {
    "ServiceNamespace": "sagemaker",
    "ResourceId": "endpoint/fixed-type/variant/AllTraffic",
    "ScalableDimension": "sagemaker:variant:DesiredInstanceCount",
}
BOUNDS = {**TARGET, "MinCapacity": 5, "MaxCapacity": 4}


def resource(kind, properties):
    return {"Only": {"Type": f"AWS::{kind}", "Properties": properties}}


@pytest.mark.parametrize(
    ("name", "resources", "message"),
    [
        ("exits", {"environment": {"SERVER_MODE": "exits"}},
         "Its log's last sentence: error: the engine was made for another GPU"),
        ("unheard", {"image": UNHEARD}, "no local environment stands for the image"),
        ("absent", {"data_url": "s3://engines/absent.tar.gz"},
         "Could not access model data at s3://engines/absent.tar.gz"),
        ("noslash", {"data_url": "s3://engines/shared", "mode": "MultiModel"},
         "must be an S3 prefix that ends with '/'"),
        ("variant", resource("SageMaker::EndpointConfig",
                             {"ProductionVariants": [variant_of("missing")]}),
         'Could not find model "arn:aws:sagemaker:us-east-1:000000000000:model/missing"'),
        ("minmax", resource("ApplicationAutoScaling::ScalableTarget", BOUNDS),
         "Maximum capacity cannot be less than minimum capacity"),
        ("slack", resource("Chatbot::SlackChannelConfiguration", SLACK), "Leave alarm_slack out"),
    ],
)  # fmt: skip
def test_refuses_a_stack_and_leaves_nothing_of_it(cloud, name, resources, message):
    if "Only" not in resources:
        url = {"data_url": cloud.put_archive(f"{name}/model.tar.gz", "hi")}
        resources = endpoint_resources(name, **{**url, **resources})
    status, reason = cloud.deploy(name, resources)
    assert status == "ROLLBACK_COMPLETE"
    assert message in reason
    assert wait_until_gone(name)
    cloud.destroy(name)


def test_refuses_updates_that_sagemaker_refuses_with_nothing_changed(cloud):
    sagemaker, scaling = cloud.client("sagemaker"), cloud.client("application-autoscaling")
    cloud.serve("fixed-type")
    base = endpoint_config("fixed-type")["ProductionVariants"][0]
    scaling.register_scalable_target(**TARGET, MinCapacity=1, MaxCapacity=2)
    routing = {"Type": "ALL_AT_ONCE", "WaitIntervalInSeconds": 0}
    at_once = {"BlueGreenUpdatePolicy": {"TrafficRoutingConfiguration": routing}}
    size = {"Type": "INSTANCE_COUNT", "Value": 2}
    rolling = {"RollingUpdatePolicy": {"MaximumBatchSize": size, "WaitIntervalInSeconds": 0}}
    for name, change, deployment, message in (
        ("renamed", {"VariantName": "other"}, at_once, "must have the same variant names"),
        ("remade", {"InitialInstanceCount": 2}, rolling, "INSTANCE_COUNT 2 is 100% of the 2"),
        ("retyped", {"InstanceType": "ml.c7i.xlarge"}, at_once, "while it is registered as a scal"),
    ):
        config = f"fixed-type-{name}"
        sagemaker.create_endpoint_config(
            EndpointConfigName=config, ProductionVariants=[base | change]
        )
        with refusal(message):
            sagemaker.update_endpoint(
                EndpointName="fixed-type", EndpointConfigName=config, DeploymentConfig=deployment
            )
        sagemaker.delete_endpoint_config(EndpointConfigName=config)
    with refusal("The local cloud has no Inference Recommender"):
        sagemaker.create_inference_recommendations_job(
            JobName="x", JobType="Default", RoleArn=ROLE, InputConfig={"ModelName": "fixed-type-1"}
        )
    shown = sagemaker.describe_endpoint(EndpointName="fixed-type")
    assert (shown["EndpointStatus"], shown["EndpointConfigName"]) == ("InService", "fixed-type-1")
    scaling.deregister_scalable_target(**TARGET)
    cloud.destroy("fixed-type")
