"""Inference components: created, invoked, updated in place, scaled, given adapters, deleted."""

import pytest

from tests.local_cloud.account import (
    BUCKET,
    UPDATED,
    archive,
    refusal,
    until,
)
from tests.local_cloud.hosted_component import (
    MANAGED,
    ROLLING,
    Hosted,
    Streams,
    component_resources,
)

pytestmark = pytest.mark.local_cloud


@pytest.fixture
def hosted(cloud, request):
    made = Hosted(cloud, request.node.name.replace("_", "-").removeprefix("test-")[:40].strip("-"))
    yield made
    cloud.destroy(made.name)


def test_an_update_in_place_cuts_no_stream(hosted):
    """New copies answer before old ones end, and old ones end after their last stream."""
    hosted.deploy(copies=2, instances=2, managed=MANAGED, deployment=ROLLING)
    streams = Streams(hosted, 8, events=8, seconds=0.25)
    changed = {
        "environment": {"GREETING": "hello"},
        "copies": 2, "instances": 2, "managed": MANAGED, "deployment": ROLLING,
    }  # fmt: skip
    hosted.deploy("2", UPDATED, **changed)
    assert hosted.invoke()["greeting"] == "hello"
    streams.join()
    assert not streams.faults
    assert all(text.endswith("data: [DONE]\n\n") for text in streams.texts)
    assert hosted.describe()["LastDeploymentConfig"] == ROLLING
    assert hosted.copies() == 2


def test_a_failed_update_leaves_the_old_copies(hosted):
    hosted.deploy(instances=2, managed=MANAGED, deployment=ROLLING)
    failing = {"SERVER_MODE": "exits"}
    resources = {"environment": failing, "instances": 2, "managed": MANAGED, "deployment": ROLLING}
    status, reason = hosted.cloud.deploy(
        hosted.name, component_resources(hosted.name, "2", **resources)
    )
    assert status == "UPDATE_ROLLBACK_COMPLETE"
    assert "did not pass the ping health check" in reason
    assert hosted.invoke()["greeting"] == "hi"
    assert hosted.settle()["Specification"]["ModelName"] == f"{hosted.name}-1"


def test_an_adapter_is_served_by_the_copies_of_its_base(cloud, hosted):
    hosted.deploy(instances=2, managed=MANAGED)
    cloud.client("s3").put_object(
        Bucket=BUCKET, Key="adapter.tar.gz", Body=archive({"adapter_config.json": "{}"})
    )
    adapter = f"{hosted.name}-legal"
    container = {"ArtifactUrl": f"s3://{BUCKET}/adapter.tar.gz"}
    hosted.client.create_inference_component(
        InferenceComponentName=adapter,
        EndpointName=hosted.name,
        Specification={"BaseInferenceComponentName": hosted.name, "Container": container},
    )
    described = Hosted(cloud, adapter).settle()
    assert described["InferenceComponentStatus"] == "InService"
    answer = hosted.invoke(component=adapter)
    assert (answer["adapter"], answer["files"]) == (adapter, ["adapter_config.json"])
    assert hosted.invoke()["adapter"] is None
    with refusal("it is the base of"):
        hosted.client.delete_inference_component(InferenceComponentName=hosted.name)
    hosted.client.update_inference_component_runtime_config(
        InferenceComponentName=hosted.name, DesiredRuntimeConfig={"CopyCount": 2}
    )
    hosted.comes_to(2)
    assert {hosted.invoke(component=adapter)["adapter"] for _ in range(6)} == {adapter}
    hosted.client.delete_inference_component(InferenceComponentName=adapter)
    until(
        lambda: (
            not hosted.client.list_inference_components(NameContains=adapter)["InferenceComponents"]
        )
    )
