"""Container images: those an environment needs, those its registry lacks, and their build."""

from __future__ import annotations

import dataclasses
import io
import json

import pytest
from rich.console import Console

from onboarding.fault import FaultsError
from onboarding.tree import read_tree
from roundhouse.cli.build import images_table
from roundhouse.deploy import images
from roundhouse.errors import (
    BuildFailedError,
    DeployFailedError,
    NotReadyError,
)
from stacks.images import read_image_files
from tests.unit.roundhouse import build_cloud
from tests.unit.roundhouse.deploy.whole_session import Account, image_digest
from tests.unit.roundhouse.engines import REPOSITORY, copied_tree

AWS_TRITON = "763104351884.dkr.ecr.us-east-1.amazonaws.com/sagemaker-tritonserver:26.05-py3"
OWN_REGISTRY = "111122223333.dkr.ecr.us-east-1.amazonaws.com"
NVIDIA_TRITON = "nvcr.io/nvidia/tritonserver:26.06-py3"


def session_of(tmp_path, name, **changes):
    tree = copied_tree(tmp_path)
    file = tree / "environments" / f"{name}.yaml"
    for key, value in changes.items():
        file.write_text(file.read_text().replace(f"{key}: ", f"{key}: {value} #", 1))
    return build_cloud.session_of(tree, Account(), name, code=REPOSITORY)


@pytest.fixture
def session(tmp_path):
    return session_of(tmp_path, "dev")


def missing(session):
    return {order.image: order for order in images.missing(session)}


def test_an_environment_needs_what_serves_and_builds_its_engines(session):
    assert set(missing(session)) == {"builder-cpu", "builder-gpu", "triton"}


def test_images_start_from_aws_own_triton_of_the_region(session):
    orders = missing(session)
    assert orders["triton"].arguments == {"TRITON_IMAGE": AWS_TRITON}
    assert orders["builder-gpu"].arguments["TRITON_IMAGE"] == AWS_TRITON
    assert orders["builder-gpu"].arguments["TENSORRT"] == "10.16.1.11"
    assert orders["builder-cpu"].arguments["BASE_IMAGE"].startswith("public.ecr.aws/")
    registries = images.orders_document(session, tuple(orders.values()))["registries"]
    assert registries == [OWN_REGISTRY, AWS_TRITON.split("/")[0]]


def test_images_start_from_nvidias_triton_where_aws_has_none(session, tmp_path):
    newer = session_of(tmp_path / "newer", "dev", platform="triton-26.06")
    assert missing(newer)["triton"].arguments == {"TRITON_IMAGE": NVIDIA_TRITON}
    assert missing(newer)["triton"].tag != missing(session)["triton"].tag
    orders = tuple(missing(newer).values())
    assert images.orders_document(newer, orders)["registries"] == [OWN_REGISTRY]


def test_refuses_a_region_without_a_known_registry(session):
    """The builder of GPU engines starts from AWS's Triton image too."""
    elsewhere = session.environment.model_copy(update={"region": "eu-isoe-west-1"})
    message = (
        "no registry of AWS's Triton and vLLM images is known in the region, given eu-isoe-west-1"
    )
    with pytest.raises(FaultsError, match=message):
        images.missing(dataclasses.replace(session, environment=elsewhere))


def test_the_source_is_what_the_tags_are_digests_of(session):
    orders = images.missing(session)
    images.build_images(session, orders)
    held = read_image_files(REPOSITORY)
    files = {path for order in orders for path in held[order.image]}
    names = set(session.clients.source().namelist())
    assert names == files | {"engine_build/image/images.py", "images.json"}
    assert images.source(session, orders) == images.source(session, orders)


def test_one_build_pushes_what_is_missing_and_the_next_finds_nothing(session):
    orders = images.missing(session)
    images.build_images(session, orders[:1])
    (started,) = session.clients.started
    assert started["projectName"] == "roundhouse-dev-build-images"
    assert [item["image"] for item in session.clients.orders()["images"]] == [orders[0].image]
    assert images.missing(session) == orders[1:]
    session.clients.objects.clear()
    images.build_images(session, orders[1:])
    assert images.missing(session) == ()
    images.build_images(session, ())
    assert len(session.clients.started) == 2


def test_images_are_missing_before_the_first_deploy_and_building_says_so(session):
    session.clients.absent = "RepositoryNotFoundException"
    session.clients.bucket_there = False
    orders = images.missing(session)
    assert len(orders) == 3
    message = "is not there yet; `roundhouse deploy --env dev` makes it"
    with pytest.raises(NotReadyError, match=message):
        images.build_images(session, orders)


FULL = "triton: docker build ended with 1: no space left on device."


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("fails", FULL, r"Images: triton: docker build ended with 1: no space.*Log: https://logs"),
        ("forgets", True, r"the build ended well, but .*builder-cpu:.* is not there"),
    ],
)
def test_refuses_a_build_that_failed_or_pushed_nothing(session, field, value, message):
    setattr(session.clients, field, value)
    with pytest.raises(BuildFailedError, match=message):
        images.build_images(session, images.missing(session))


def test_the_local_cloud_builds_none_and_says_so(tmp_path):
    local = session_of(tmp_path, "local")
    assert images.missing(local) == ()
    rows = [state.as_dict(built=False, is_local=True) for state in images.image_states(local)]
    assert {row["state"] for row in rows} == {"not built here"}
    assert "builds no images" in images.NOT_HERE


def test_the_table_has_the_state_of_each_image(session):
    triton = missing(session)["triton"]
    session.clients.images.add((triton.repository, triton.tag))
    rows = [
        state.as_dict(built=state.order.image == "builder-cpu", is_local=False)
        for state in images.image_states(session)
    ]
    states = {row["image"]: row["state"] for row in rows}
    assert states == {"builder-cpu": "built", "builder-gpu": "missing", "triton": "there"}
    console = Console(file=io.StringIO(), width=160)
    console.print(images_table(rows))
    assert all(state in console.file.getvalue() for state in states.values())


def pinned_session(tmp_path, **pin):
    """A session whose environment file pins the image of Triton that the code gives now."""
    session = session_of(tmp_path, "dev")
    triton = missing(session)["triton"]
    spec = {"tag": triton.tag, "platform": session.environment.platform, **pin}
    file = session.paths.tree / "environments" / "dev.yaml"
    with file.open("a") as lines:
        lines.write(f"images: {json.dumps({'pinned': {'triton': spec}})}\n")
    environment = read_tree(session.paths.tree).environments["dev"]
    return dataclasses.replace(session, environment=environment), triton


def test_refuses_a_pinned_image_that_the_registry_has_not_or_with_another_digest(tmp_path):
    session, triton = pinned_session(tmp_path / "tag")
    where = "images.pinned.triton: roundhouse-dev/triton"
    with pytest.raises(DeployFailedError, match=rf"{where} has no tag {triton.tag}; check out"):
        images.require_pinned_images(session)
    session.clients.images.add((triton.repository, triton.tag))
    images.require_pinned_images(session)
    assert "triton" not in missing(session)
    session, triton = pinned_session(tmp_path / "digest", digest=f"sha256:{'d' * 64}")
    session.clients.images.add((triton.repository, triton.tag))
    found = image_digest(f"{triton.repository}:{triton.tag}")
    with pytest.raises(DeployFailedError, match=rf"has digest {found}, the file says sha256:ddd"):
        images.require_pinned_images(session)
