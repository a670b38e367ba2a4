"""Shadow variants get copies of requests; whatever they do, the caller does not notice."""

import time

import pytest

from tests.local_cloud.account import (
    DEADLINE_SECONDS,
    IMAGE,
    MARK,
    ROLE,
    endpoint_config,
    until,
    wait_until_gone,
)

pytestmark = pytest.mark.local_cloud


@pytest.fixture
def shadowed(cloud):
    """Makes an endpoint with a shadow variant whose server is in some mode."""
    sagemaker, made = cloud.client("sagemaker"), []

    def make(name, mode, weight=1.0, **variables):
        url = cloud.put_archive(f"{name}.tar.gz", "hi")
        for role, environment in (("1", {}), ("shadow", {"SERVER_MODE": mode, **variables})):
            container = {
                "Image": IMAGE,
                "ModelDataUrl": url,
                "Environment": {MARK: name, **environment},
            }
            sagemaker.create_model(
                ModelName=f"{name}-{role}", ExecutionRoleArn=ROLE, PrimaryContainer=container
            )
        config = endpoint_config(name)
        shadow = config["ProductionVariants"][0] | {
            "VariantName": "shadow",
            "ModelName": f"{name}-shadow",
        }
        config["ShadowProductionVariants"] = [shadow | {"InitialVariantWeight": weight}]
        sagemaker.create_endpoint_config(**config)
        sagemaker.create_endpoint(EndpointName=name, EndpointConfigName=f"{name}-1")
        made.append(name)
        cloud.wait_for(name)
        return name

    yield make
    for name in made:
        sagemaker.delete_endpoint(EndpointName=name)
        assert wait_until_gone(name)


def copies(cloud, name):
    """How many requests the shadow variant was asked."""
    (log,) = cloud.state.glob(f"endpoints/*-{name}-*/shadow-1/server.log")
    return log.read_text().count("asked")


def settled_copies(cloud, name):
    """How many it was asked once no more come."""
    seen = []

    def still():
        seen.append(copies(cloud, name))
        return seen[-1] if len(seen) > 5 and len(set(seen[-5:])) == 1 else None

    return until(still)


def test_shadow_gets_a_copy_of_every_request_and_production_answers(cloud, shadowed):
    name = shadowed("copied", "healthy")
    assert {cloud.invoke(name)["instance"] for _ in range(20)} == {"AllTraffic-1"}
    until(lambda: copies(cloud, name) == 20)
    shown = cloud.client("sagemaker").describe_endpoint(EndpointName=name)[
        "ShadowProductionVariants"
    ]
    assert [(variant["VariantName"], variant["CurrentInstanceCount"]) for variant in shown] == [
        ("shadow", 1)
    ]


def test_held_shadow_delays_no_request_and_gets_a_bounded_number(cloud, shadowed, tmp_path):
    released = tmp_path / "released"
    name = shadowed("held", "held", HELD_UNTIL=str(released))
    begun = time.monotonic()
    try:
        for _ in range(150):
            assert cloud.invoke(name)["greeting"] == "hi"
            assert time.monotonic() - begun < DEADLINE_SECONDS
    finally:
        released.touch()
    assert 0 < settled_copies(cloud, name) < 100
