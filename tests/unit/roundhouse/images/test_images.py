"""Which container images an environment needs, which its registry lacks, and what their build is
given.
"""

from __future__ import annotations

import dataclasses
import io
import json
import zipfile

import pytest
from botocore.exceptions import ClientError
from rich.console import Console

from onboarding.fault import FaultsError
from onboarding.tree import read_tree
from roundhouse.errors import BuildFailed, DeskError
from roundhouse.images import images
from roundhouse.images.table import images_table
from roundhouse.places import Places
from roundhouse.processes import Outcome
from roundhouse.report import Report
from roundhouse.road import Road
from stacks.images.tag import IMAGE_CONTENTS
from tests.unit.roundhouse.engines import REPOSITORY, copied_tree

AWS_TRITON = "763104351884.dkr.ecr.us-east-1.amazonaws.com/sagemaker-tritonserver:26.05-py3"
NVIDIA_TRITON = "nvcr.io/nvidia/tritonserver:26.06-py3"


class Cloud:
    """ECR, S3 and CodeBuild in memory; a build pushes what its orders name, unless `fails` says why
    not.
    """

    def __init__(self):
        self.tags, self.objects, self.bucket_there, self.repositories_there = set(), {}, True, True
        self.started, self.fails, self.forgets = [], None, False

    def __call__(self, service):
        return self

    def describe_images(self, repositoryName, imageIds):
        code = (
            "ImageNotFoundException" if self.repositories_there else "RepositoryNotFoundException"
        )
        if (repositoryName, imageIds[0]["imageTag"]) not in self.tags:
            raise ClientError({"Error": {"Code": code, "Message": "none"}}, "DescribeImages")
        return {}

    def head_bucket(self, Bucket):
        if not self.bucket_there:
            raise ClientError({"Error": {"Code": "404", "Message": "Not Found"}}, "HeadBucket")
        return {}

    def head_object(self, Bucket, Key):
        if Key not in self.objects:
            raise ClientError({"Error": {"Code": "404", "Message": "Not Found"}}, "HeadObject")
        return {}

    def put_object(self, Bucket, Key, Body):
        self.objects[Key] = Body

    def start_build(self, **order):
        self.started.append(order)
        return {"build": {"id": "1"}}

    def batch_get_builds(self, ids):
        if self.fails is not None:
            phases = [{"contexts": [{"message": self.fails}]}]
            return {
                "builds": [
                    {
                        "buildStatus": "FAILED",
                        "phases": phases,
                        "logs": {"deepLink": "https://logs.example/1"},
                    }
                ]
            }
        if not self.forgets:
            self.tags |= {(each["repository"], each["tag"]) for each in self.orders()["images"]}
        return {"builds": [{"buildStatus": "SUCCEEDED"}]}

    def source(self):
        (key,) = self.objects
        return zipfile.ZipFile(io.BytesIO(self.objects[key]))

    def orders(self):
        return json.loads(self.source().read("images.json"))


def road_of(tmp_path, name, **changes):
    tree = copied_tree(tmp_path)
    for old, new in changes.items():
        file = tree / "environments" / f"{name}.yaml"
        file.write_text(file.read_text().replace(f"{old}: ", f"{old}: {new} #", 1))
    environment = read_tree(tree).environments[name]
    return Road(
        places=Places(code=REPOSITORY, tree=tree, build=tree / "build"),
        environment=environment,
        variables={},
        clients=Cloud(),
        run=lambda command, on_line=None: Outcome(code=0, output=""),
        report=Report(console=Console(file=io.StringIO(), width=140)),
    )


@pytest.fixture
def road(tmp_path):
    return road_of(tmp_path, "dev")


def wanted(road):
    return {order.image: order for order in images.missing(road)}


def test_an_environment_needs_what_serves_and_builds_its_engines(road):
    assert set(wanted(road)) == {"builder-cpu", "builder-gpu", "triton"}


def test_images_start_from_aws_own_triton_of_the_region(road):
    found = wanted(road)
    assert found["triton"].arguments == {"TRITON_IMAGE": AWS_TRITON}
    assert found["builder-gpu"].arguments["TRITON_IMAGE"] == AWS_TRITON
    assert found["builder-gpu"].arguments["TENSORRT"] == "10.16.1.11"
    assert found["builder-cpu"].arguments["BASE_IMAGE"].startswith("public.ecr.aws/")
    assert images.orders_document(road, tuple(found.values()))["registries"] == [
        "111122223333.dkr.ecr.us-east-1.amazonaws.com",
        "763104351884.dkr.ecr.us-east-1.amazonaws.com",
    ]


def test_images_start_from_nvidias_triton_where_aws_has_none(road, tmp_path):
    newer = road_of(tmp_path / "newer", "dev", platform="triton-26.06")
    assert wanted(newer)["triton"].arguments == {"TRITON_IMAGE": NVIDIA_TRITON}
    assert wanted(newer)["triton"].tag != wanted(road)["triton"].tag
    assert images.orders_document(newer, tuple(wanted(newer).values()))["registries"] == [
        "111122223333.dkr.ecr.us-east-1.amazonaws.com"
    ]


def test_refuses_a_region_without_a_known_registry(road):
    """The rule of the tree judges endpoints with Triton; the builder of GPU engines starts from
    that image too.
    """
    elsewhere = road.environment.model_copy(update={"region": "eu-isoe-west-1"})
    with pytest.raises(
        FaultsError,
        match="no registry of AWS's Triton image is known in the region, given eu-isoe-west-1",
    ):
        images.missing(dataclasses.replace(road, environment=elsewhere))


def test_the_source_is_what_the_tags_are_digests_of(road):
    orders = images.missing(road)
    images.build_images(road, orders)
    names = set(road.clients.source().namelist())
    held = {
        path.relative_to(REPOSITORY).as_posix()
        for image in wanted_names(orders)
        for path in held_files(image)
    }
    assert names == held | {"engine_build/image/images.py", "images.json"}
    assert images.source(road, orders) == images.source(road, orders)


def wanted_names(orders):
    return [order.image for order in orders]


def held_files(image):
    found = [path for pattern in IMAGE_CONTENTS[image] for path in REPOSITORY.glob(pattern)]
    return [path for path in found if path.is_file() and "__pycache__" not in path.parts]


def test_one_build_pushes_what_is_missing_and_the_next_finds_nothing(road):
    orders = images.missing(road)
    images.build_images(road, orders[:1])
    (started,) = road.clients.started
    assert started["projectName"] == "roundhouse-dev-build-images"
    assert [each["image"] for each in road.clients.orders()["images"]] == [orders[0].image]
    assert images.missing(road) == orders[1:]
    road.clients.objects.clear()
    images.build_images(road, orders[1:])
    assert images.missing(road) == ()
    images.build_images(road, ())
    assert len(road.clients.started) == 2


def test_images_are_missing_before_the_first_deploy_and_building_says_so(road):
    road.clients.repositories_there = road.clients.bucket_there = False
    orders = images.missing(road)
    assert len(orders) == 3
    with pytest.raises(DeskError, match="is not there yet; `roundhouse deploy --env dev` makes it"):
        images.build_images(road, orders)


def test_refuses_a_failed_build_with_its_reason(road):
    road.clients.fails = "triton: docker build ended with 1: no space left on device."
    with pytest.raises(
        BuildFailed,
        match=r"Images: triton: docker build ended with 1: no space left.*Log: https://logs",
    ):
        images.build_images(road, images.missing(road))


def test_refuses_a_build_that_pushed_nothing(road):
    road.clients.forgets = True
    with pytest.raises(
        BuildFailed, match=r"the build ended well, but .*builder-cpu:.* is not there"
    ):
        images.build_images(road, images.missing(road))


def test_an_access_that_is_denied_is_no_missing_image(road):
    def denied(**asked):
        raise ClientError(
            {"Error": {"Code": "AccessDeniedException", "Message": "no"}}, "DescribeImages"
        )

    road.clients.describe_images = denied
    with pytest.raises(DeskError, match=r"Looking for .*: AWS answered AccessDeniedException"):
        images.missing(road)


def test_the_local_cloud_builds_none_and_says_so(tmp_path):
    local = road_of(tmp_path, "local")
    states = images.image_states(local)
    assert images.missing(local) == ()
    assert {state.as_dict(built=False, is_local=True)["state"] for state in states} == {
        "not built here"
    }
    assert "builds no images" in images.NOT_HERE


def test_the_table_tells_what_was_built(road):
    road.clients.tags.add((wanted(road)["triton"].repository, wanted(road)["triton"].tag))
    states = images.image_states(road)
    console = Console(file=io.StringIO(), width=160)
    console.print(images_table(states, {"builder-cpu"}, is_local=False))
    lines = console.file.getvalue().splitlines()
    assert [
        state for state in ("built", "missing", "there") if any(state in line for line in lines)
    ] == [
        "built",
        "missing",
        "there",
    ]
