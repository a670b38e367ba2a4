"""The order of a deployment in AWS: what must be there is there before what needs it, and a
failure leaves the rest alone.
"""

from __future__ import annotations

import pytest

from roundhouse.deploy import deployment
from roundhouse.errors import BuildFailedError, DeployFailedError
from tests.unit.roundhouse.deploy.whole_session import whole_session

MARK = {"Key": "roundhouse", "Value": "unreferenced"}
EARLY, ALL = "deploy */Foundation */Images */Builds", "deploy **"


@pytest.fixture
def session(tmp_path):
    return whole_session(tmp_path)


def test_missing_images_are_built_after_the_foundation_and_before_the_endpoints(session):
    done = deployment.deploy(session, rebuild_gone=False)
    assert session.clients.did == [EARLY, "build roundhouse-dev-build-images", ALL]
    assert done.images == ("builder-cpu", "builder-gpu", "triton") and done.built == ()


def test_a_second_walk_builds_no_image_and_deploys_once(session):
    deployment.deploy(session, rebuild_gone=False)
    session.clients.did.clear()
    assert deployment.deploy(session, rebuild_gone=False).images == ()
    assert session.clients.did == [ALL]


def test_refuses_to_deploy_endpoints_whose_image_was_not_built(session):
    session.clients.fails = "triton: docker build ended with 1: no space left on device."
    with pytest.raises(
        BuildFailedError, match=r"triton: docker build ended with 1.*Log: https://logs.example/1"
    ):
        deployment.deploy(session, rebuild_gone=False)
    assert ALL not in session.clients.did


def test_a_mark_on_what_a_lock_names_is_taken_off_before_deploying(session):
    (name, *_) = session.clients.objects
    session.clients.tags[name] = [MARK]
    deployment.deploy(session, rebuild_gone=False)
    assert session.clients.did.index("untagged model.tar.gz") < session.clients.did.index(ALL)
    assert session.clients.tags == {}


def test_refuses_a_lock_whose_archive_is_gone_and_deploys_no_endpoint(session):
    session.clients.objects.pop(next(iter(session.clients.objects)))
    with pytest.raises(
        DeployFailedError,
        match=r"names this archive and it is not there; `roundhouse build --env dev --model",
    ):
        deployment.deploy(session, rebuild_gone=False)
    assert ALL not in session.clients.did
