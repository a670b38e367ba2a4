"""The order of the whole road in AWS: what must be there is there before what needs it, and a
failure leaves the rest alone.
"""

from __future__ import annotations

import pytest

from roundhouse.deployment import deploying
from roundhouse.errors import BuildFailed, DeployFailed
from tests.unit.roundhouse.whole_road import whole_road

MARK = {"Key": "roundhouse", "Value": "unreferenced"}
EARLY, ALL = "deploy */Foundation */Images */Builds", "deploy **"


@pytest.fixture
def road(tmp_path):
    return whole_road(tmp_path)


def test_missing_images_are_built_after_the_foundation_and_before_the_endpoints(road):
    done = deploying.deploy(road, rebuild_gone=False)
    assert road.clients.did == [EARLY, "build roundhouse-dev-build-images", ALL]
    assert done.images == ("builder-cpu", "builder-gpu", "triton") and done.built == ()


def test_a_second_walk_builds_no_image_and_deploys_once(road):
    deploying.deploy(road, rebuild_gone=False)
    road.clients.did.clear()
    assert deploying.deploy(road, rebuild_gone=False).images == ()
    assert road.clients.did == [ALL]


def test_refuses_to_deploy_endpoints_whose_image_was_not_built(road):
    road.clients.fails = "triton: docker build ended with 1: no space left on device."
    with pytest.raises(
        BuildFailed, match=r"triton: docker build ended with 1.*Log: https://logs.example/1"
    ):
        deploying.deploy(road, rebuild_gone=False)
    assert ALL not in road.clients.did


def test_a_mark_on_what_a_lock_names_is_taken_off_before_deploying(road):
    (name, *_) = road.clients.objects
    road.clients.tags[name] = [MARK]
    deploying.deploy(road, rebuild_gone=False)
    assert road.clients.did.index("untagged model.tar.gz") < road.clients.did.index(ALL)
    assert road.clients.tags == {}


def test_refuses_a_lock_whose_archive_is_gone_and_deploys_no_endpoint(road):
    road.clients.objects.pop(next(iter(road.clients.objects)))
    with pytest.raises(
        DeployFailed,
        match=r"names this archive and it is not there; `roundhouse build --env dev --model",
    ):
        deploying.deploy(road, rebuild_gone=False)
    assert ALL not in road.clients.did
