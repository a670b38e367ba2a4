"""Images that the registry has are described; one that it lacks is refused as ECR refuses it."""

import pytest
from botocore.exceptions import ClientError

from tests.local_cloud.account import ACCOUNT

pytestmark = pytest.mark.local_cloud

REPOSITORY = "registry-test/triton"


@pytest.fixture(scope="module")
def ecr(cloud):
    client = cloud.client("ecr")
    client.create_repository(repositoryName=REPOSITORY)
    client.put_image(repositoryName=REPOSITORY, imageManifest="{}", imageTag="one")
    return client


def test_image_that_is_there_is_described(ecr):
    (by_tag,) = ecr.describe_images(repositoryName=REPOSITORY, imageIds=[{"imageTag": "one"}])[
        "imageDetails"
    ]
    (listed,) = ecr.describe_images(repositoryName=REPOSITORY)["imageDetails"]
    assert by_tag["imageDigest"] == listed["imageDigest"] and listed["imageTags"] == ["one"]


@pytest.mark.parametrize(
    ("repository", "images", "code", "message"),
    [
        (REPOSITORY, ["two"], "ImageNotFoundException",
         "The image with imageId {imageDigest:'null', imageTag:'two'} does not exist within the "
         f"repository with name '{REPOSITORY}' in the registry with id '{ACCOUNT}'"),
        (REPOSITORY, ["one", "two"], "ImageNotFoundException", "imageTag:'two'"),
        ("registry-test/none", ["one"], "RepositoryNotFoundException", "registry-test/none"),
    ],
)  # fmt: skip
def test_refuses_to_describe_an_image_that_is_not_there(ecr, repository, images, code, message):
    with pytest.raises(ClientError) as refused:
        ecr.describe_images(
            repositoryName=repository, imageIds=[{"imageTag": tag} for tag in images]
        )
    error = refused.value.response["Error"]
    assert error["Code"] == code and message in error["Message"]


def test_images_in_a_batch_that_are_not_there_are_its_failures(ecr):
    answer = ecr.batch_get_image(
        repositoryName=REPOSITORY, imageIds=[{"imageTag": "one"}, {"imageTag": "two"}]
    )
    assert [image["imageId"]["imageTag"] for image in answer["images"]] == ["one"]
    assert [(item["imageId"], item["failureCode"]) for item in answer["failures"]] == [
        ({"imageTag": "two"}, "ImageNotFound")
    ]
