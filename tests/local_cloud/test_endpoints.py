"""Endpoints by CloudFormation.

Healthy before they are done, rolled back with a reason, never a process left.
"""

import threading
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from tests.local_cloud.account import (
    ACCOUNT,
    IMAGE,
    endpoint_resources,
    marked_processes,
    until,
    wait_until_gone,
)

pytestmark = pytest.mark.local_cloud
SLOW_IMAGE = IMAGE.replace("test-server", "slow-server")


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


def test_server_has_a_network_of_its_own(cloud):
    cloud.serve("net")
    networks = {Path(f"/proc/{pid}/ns/net").readlink() for pid in marked_processes("net")}
    assert networks - {Path("/proc/self/ns/net").readlink()}
    cloud.destroy("net")


@pytest.mark.parametrize(
    ("name", "image", "mode", "message"),
    [
        (
            "never",
            SLOW_IMAGE,
            "never_healthy",
            "was not healthy within 8 s. Its log's last sentence: error: still thinking",
        ),
        (
            "exits",
            IMAGE,
            "exits",
            "Its log's last sentence: error: the engine was made for another GPU",
        ),
    ],
)
def test_refuses_an_endpoint_that_never_becomes_healthy(cloud, name, image, mode, message):
    url = cloud.put_archive(f"{name}/model.tar.gz", "hi")
    status, reason = cloud.deploy(
        name, endpoint_resources(name, url, environment={"SERVER_MODE": mode}, image=image)
    )
    assert status == "ROLLBACK_COMPLETE"
    assert message in reason
    assert wait_until_gone(name)
    assert cloud.client("sagemaker").list_models(NameContains=f"{name}-1")["Models"] == []
    cloud.destroy(name)


def test_update_puts_the_new_archive_behind_the_same_endpoint(cloud):
    cloud.serve("swap", "first")
    failures, answers, done = [], [], threading.Event()

    def ask():
        while not done.is_set():
            try:
                answers.append(cloud.invoke("swap")["greeting"])
            except ClientError as error:
                failures.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    status, _ = cloud.deploy(
        "swap",
        endpoint_resources("swap", cloud.put_archive("swap/2.tar.gz", "second"), version="2"),
    )
    done.set()
    thread.join()
    assert status == "UPDATE_COMPLETE"
    assert failures == []
    assert answers[0] == "first"
    assert cloud.invoke("swap")["greeting"] == "second"
    assert [
        model["ModelName"]
        for model in cloud.client("sagemaker").list_models(NameContains="swap")["Models"]
    ] == ["swap-2"]
    cloud.destroy("swap")
    assert wait_until_gone("swap")


def test_old_server_answers_after_an_update_that_fails(cloud):
    url = cloud.put_archive("keep/model.tar.gz", "still here")
    cloud.deploy("keep", endpoint_resources("keep", url))
    before = set(marked_processes("keep"))
    status, reason = cloud.deploy(
        "keep", endpoint_resources("keep", url, version="2", environment={"SERVER_MODE": "exits"})
    )
    assert status == "UPDATE_ROLLBACK_COMPLETE"
    assert "the engine was made for another GPU" in reason
    assert cloud.invoke("keep")["greeting"] == "still here"
    assert until(lambda: set(marked_processes("keep")) == before)
    actual = cloud.client("sagemaker").describe_endpoint(EndpointName="keep")["EndpointConfigName"]
    assert actual == "keep-1"
    cloud.destroy("keep")


def test_refuses_a_model_whose_archive_is_not_in_s3(cloud):
    status, reason = cloud.deploy(
        "absent", endpoint_resources("absent", "s3://engines/absent/model.tar.gz")
    )
    assert status == "ROLLBACK_COMPLETE"
    assert "Could not access model data at s3://engines/absent/model.tar.gz" in reason
    cloud.destroy("absent")


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


def test_refuses_an_image_that_no_environment_stands_for(cloud):
    url = cloud.put_archive("image/model.tar.gz", "hi")
    image = f"{ACCOUNT}.dkr.ecr.us-east-1.amazonaws.com/somewhere/unheard-of:1"
    status, reason = cloud.deploy("image", endpoint_resources("image", url, image=image))
    assert status == "ROLLBACK_COMPLETE"
    assert "no local environment stands for the image" in reason
    assert "python-server" in reason
    cloud.destroy("image")
