"""A change of the server's code rolls the endpoints whose image is not pinned, and no other."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest

from onboarding import resolve
from onboarding.environment_spec import PLATFORM_IMAGES, ImagesSpec, ServingImage
from onboarding.platform import serving_platforms
from onboarding.tree import read_tree
from stacks.endpoint.template import endpoint_template
from stacks.images import DOCKERFILES, FROM_PLATFORM, image_uris, needed_images, pinned_images
from tests.unit.roundhouse.engines import copied_tree, entry_for, with_entry

pytestmark = pytest.mark.unit

PIN, DIGEST = "0" * 20, f"sha256:{'d' * 64}"
CONFIG, MODEL = "AWS::SageMaker::EndpointConfig", "AWS::SageMaker::Model"


@pytest.fixture(scope="module")
def deployments(tmp_path_factory):
    """Two endpoints or more that run the same image."""
    tree = read_tree(copied_tree(tmp_path_factory.mktemp("tree")))
    return [
        item.with_targets(lambda target: with_entry(target, entry_for(item, target)))  # noqa: B023
        for item in resolve.deployments(tree, "dev")
    ]


def pinned(deployments, *names, **pin):
    """The deployments with every serving image pinned, but those of some endpoints."""
    pins = {image: {"tag": PIN, **pin} for image in get_args(ServingImage)}
    images = ImagesSpec.model_validate({"pinned": pins, "except": names})
    spec = deployments[0].environment.model_copy(update={"images": images})
    return [replace(item, environment=spec) for item in deployments]


def resources(deployments, version, kind):
    """The resources of one type of each endpoint, by name, at a version of the code."""
    uris = image_uris(deployments[0].environment, dict.fromkeys(DOCKERFILES, version))
    return {
        item.name: [
            resource["Properties"]
            for resource in endpoint_template(item, uris)["Resources"].values()
            if resource["Type"] == kind
        ]
        for item in deployments
    }


def rolled(deployments):
    """The endpoints that get another endpoint config by another version of the code."""
    before, after = (resources(deployments, version, CONFIG) for version in ("1", "2"))
    return {name for name in before if before[name] != after[name]}


def test_code_rolls_every_endpoint_that_pins_no_image(deployments):
    names = {item.name for item in deployments}
    assert len(names) > 1 and rolled(deployments) == names
    assert rolled(pinned(deployments)) == set()
    first = deployments[0].name
    assert rolled(pinned(deployments, first)) == {first}


def test_model_names_the_digest_where_the_pin_has_one(deployments):
    for pin, reference in (({}, f":{PIN}"), ({"digest": DIGEST}, f"@{DIGEST}")):
        for models in resources(pinned(deployments, **pin), "1", MODEL).values():
            for model in models:
                assert model["PrimaryContainer"]["Image"].endswith(reference)


def test_pinned_image_is_not_built_from_the_code(deployments):
    platform = serving_platforms()[deployments[0].environment.platform]
    serving = set(needed_images(platform, deployments)) & set(get_args(ServingImage))
    assert serving
    stays = pinned(deployments)
    assert not set(needed_images(platform, stays)) & set(get_args(ServingImage))
    assert set(pinned_images(stays)) == serving and pinned_images(deployments) == {}
    assert set(needed_images(platform, pinned(deployments, deployments[0].name))) >= serving


def test_images_of_the_platform_are_those_that_start_from_its_base_image():
    assert set(PLATFORM_IMAGES) == FROM_PLATFORM & set(get_args(ServingImage))
