"""Multi-model endpoints: target models are loaded when asked for, and make room for one another."""

import pytest
from botocore.exceptions import ClientError

from tests.local_cloud.account import endpoint_resources, gone

pytestmark = pytest.mark.local_cloud


@pytest.fixture(scope="module")
def shared(cloud):
    for name in ("a", "b", "c"):
        cloud.put_archive(f"shared/{name}/model.tar.gz", f"I am {name}")
    resources = endpoint_resources("shared", "s3://engines/shared/", mode="MultiModel", environment={"MODELS_HELD": "2"})
    assert cloud.deploy("shared", resources) == ("CREATE_COMPLETE", "")
    yield cloud
    cloud.destroy("shared")
    assert gone("shared")


def test_target_models_answer_each_for_itself(shared):
    for name in ("a", "b"):
        answer = shared.invoke("shared", TargetModel=f"{name}/model.tar.gz")
        assert (answer["greeting"], answer["target_model"]) == (f"I am {name}", f"{name}/model.tar.gz")


def test_least_recently_used_target_model_makes_room(shared):
    for name in ("a", "b", "a", "c", "a", "b"):
        answer = shared.invoke("shared", TargetModel=f"{name}/model.tar.gz")
        assert answer["greeting"] == f"I am {name}"
        assert answer["loaded"] <= 2


def test_refuses_a_target_model_that_is_not_in_s3(shared):
    with pytest.raises(
        ClientError, match=r"Failed to download model data\(bucket: engines, key: shared/d/model.tar.gz\)"
    ) as error:
        shared.invoke("shared", TargetModel="d/model.tar.gz")
    assert error.value.response["Error"]["Code"] == "ValidationError"


def test_refuses_an_invocation_without_target_model(shared):
    with pytest.raises(ClientError, match="TargetModel is required"):
        shared.invoke("shared")


def test_refuses_a_prefix_without_slash(cloud):
    status, reason = cloud.deploy("noslash", endpoint_resources("noslash", "s3://engines/shared", mode="MultiModel"))
    assert status == "ROLLBACK_COMPLETE"
    assert "must be an S3 prefix that ends with '/'" in reason
    cloud.destroy("noslash")


def test_loads_are_published_as_metrics(shared):
    shared.invoke("shared", TargetModel="a/model.tar.gz")
    names = {each["MetricName"] for each in shared.client("cloudwatch").list_metrics(Namespace="AWS/SageMaker")["Metrics"]}
    assert {"Invocations", "ModelLatency", "OverheadLatency", "ModelCacheHit", "ModelLoadingTime"} <= names
