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
from roundhouse.cli.images import images_table
from roundhouse.deploy import images
from roundhouse.errors import BuildFailedError, NotReadyError
from roundhouse.paths import Paths
from roundhouse.processes import Outcome
from roundhouse.report import Report
from roundhouse.session import Session
from stacks.images import IMAGE_CONTENTS
from tests.unit.roundhouse.engines import REPOSITORY, copied_tree

AWS_TRITON = "763104351884.dkr.ecr.us-east-1.amazonaws.com/sagemaker-tritonserver:26.05-py3"
NVIDIA_TRITON = "nvcr.io/nvidia/tritonserver:26.06-py3"


class Cloud:
    """ECR, S3 and CodeBuild in memory.

    A build pushes what its orders name, unless `fails` says why not.
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
            self.tags |= {(image["repository"], image["tag"]) for image in self.orders()["images"]}
        return {"builds": [{"buildStatus": "SUCCEEDED"}]}

    def source(self):
        (key,) = self.objects
        return zipfile.ZipFile(io.BytesIO(self.objects[key]))

    def orders(self):
        return json.loads(self.source().read("images.json"))


def session_of(tmp_path, name, **changes):
    tree = copied_tree(tmp_path)
    for old, new in changes.items():
        file = tree / "environments" / f"{name}.yaml"
        file.write_text(file.read_text().replace(f"{old}: ", f"{old}: {new} #", 1))
    environment = read_tree(tree).environments[name]
    return Session(
        paths=Paths(code=REPOSITORY, tree=tree, build=tree / "build"),
        environment=environment,
        variables={},
        clients=Cloud(),
        run=lambda command, on_line=None: Outcome(code=0, output=""),
        report=Report(console=Console(file=io.StringIO(), width=140)),
    )


@pytest.fixture
def session(tmp_path):
    return session_of(tmp_path, "dev")


def wanted(session):
    return {order.image: order for order in images.missing(session)}


def test_an_environment_needs_what_serves_and_builds_its_engines(session):
    assert set(wanted(session)) == {"builder-cpu", "builder-gpu", "triton"}


def test_images_start_from_aws_own_triton_of_the_region(session):
    found = wanted(session)
    assert found["triton"].arguments == {"TRITON_IMAGE": AWS_TRITON}
    assert found["builder-gpu"].arguments["TRITON_IMAGE"] == AWS_TRITON
    assert found["builder-gpu"].arguments["TENSORRT"] == "10.16.1.11"
    assert found["builder-cpu"].arguments["BASE_IMAGE"].startswith("public.ecr.aws/")
    assert images.orders_document(session, tuple(found.values()))["registries"] == [
        "111122223333.dkr.ecr.us-east-1.amazonaws.com",
        "763104351884.dkr.ecr.us-east-1.amazonaws.com",
    ]


def test_images_start_from_nvidias_triton_where_aws_has_none(session, tmp_path):
    newer = session_of(tmp_path / "newer", "dev", platform="triton-26.06")
    assert wanted(newer)["triton"].arguments == {"TRITON_IMAGE": NVIDIA_TRITON}
    assert wanted(newer)["triton"].tag != wanted(session)["triton"].tag
    assert images.orders_document(newer, tuple(wanted(newer).values()))["registries"] == [
        "111122223333.dkr.ecr.us-east-1.amazonaws.com"
    ]


def test_refuses_a_region_without_a_known_registry(session):
    """The rule of the tree judges endpoints with Triton.

    The builder of GPU engines starts from that image too.
    """
    elsewhere = session.environment.model_copy(update={"region": "eu-isoe-west-1"})
    with pytest.raises(
        FaultsError,
        match="no registry of AWS's Triton image is known in the region, given eu-isoe-west-1",
    ):
        images.missing(dataclasses.replace(session, environment=elsewhere))


def test_the_source_is_what_the_tags_are_digests_of(session):
    orders = images.missing(session)
    images.build_images(session, orders)
    names = set(session.clients.source().namelist())
    held = {
        path.relative_to(REPOSITORY).as_posix()
        for image in wanted_names(orders)
        for path in held_files(image)
    }
    assert names == held | {"engine_build/image/images.py", "images.json"}
    assert images.source(session, orders) == images.source(session, orders)


def wanted_names(orders):
    return [order.image for order in orders]


def held_files(image):
    found = [path for pattern in IMAGE_CONTENTS[image] for path in REPOSITORY.glob(pattern)]
    return [path for path in found if path.is_file() and "__pycache__" not in path.parts]


def test_one_build_pushes_what_is_missing_and_the_next_finds_nothing(session):
    orders = images.missing(session)
    images.build_images(session, orders[:1])
    (started,) = session.clients.started
    assert started["projectName"] == "roundhouse-dev-build-images"
    assert [image["image"] for image in session.clients.orders()["images"]] == [orders[0].image]
    assert images.missing(session) == orders[1:]
    session.clients.objects.clear()
    images.build_images(session, orders[1:])
    assert images.missing(session) == ()
    images.build_images(session, ())
    assert len(session.clients.started) == 2


def test_images_are_missing_before_the_first_deploy_and_building_says_so(session):
    session.clients.repositories_there = session.clients.bucket_there = False
    orders = images.missing(session)
    assert len(orders) == 3
    with pytest.raises(
        NotReadyError, match="is not there yet; `roundhouse deploy --env dev` makes it"
    ):
        images.build_images(session, orders)


def test_refuses_a_failed_build_with_its_reason(session):
    session.clients.fails = "triton: docker build ended with 1: no space left on device."
    with pytest.raises(
        BuildFailedError,
        match=r"Images: triton: docker build ended with 1: no space left.*Log: https://logs",
    ):
        images.build_images(session, images.missing(session))


def test_refuses_a_build_that_pushed_nothing(session):
    session.clients.forgets = True
    with pytest.raises(
        BuildFailedError, match=r"the build ended well, but .*builder-cpu:.* is not there"
    ):
        images.build_images(session, images.missing(session))


def test_an_access_that_is_denied_is_no_missing_image(session):
    def denied(**arguments):
        raise ClientError(
            {"Error": {"Code": "AccessDeniedException", "Message": "no"}}, "DescribeImages"
        )

    session.clients.describe_images = denied
    with pytest.raises(NotReadyError, match=r"Looking for .*: AWS answered AccessDeniedException"):
        images.missing(session)


def test_the_local_cloud_builds_none_and_says_so(tmp_path):
    local = session_of(tmp_path, "local")
    states = images.image_states(local)
    assert images.missing(local) == ()
    assert {state.as_dict(built=False, is_local=True)["state"] for state in states} == {
        "not built here"
    }
    assert "builds no images" in images.NOT_HERE


def test_the_table_tells_what_was_built(session):
    session.clients.tags.add((wanted(session)["triton"].repository, wanted(session)["triton"].tag))
    states = images.image_states(session)
    console = Console(file=io.StringIO(), width=160)
    console.print(
        images_table(
            [
                state.as_dict(built=state.order.image == "builder-cpu", is_local=False)
                for state in states
            ]
        )
    )
    lines = console.file.getvalue().splitlines()
    assert [
        state for state in ("built", "missing", "there") if any(state in line for line in lines)
    ] == ["built", "missing", "there"]
