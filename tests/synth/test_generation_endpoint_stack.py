"""Stacks of text generators: the constructs' template is the data's, and what is refused."""

from __future__ import annotations

import json

import pytest

from onboarding.platform import serving_platforms
from onboarding.text_generation.platforms import generation_platforms
from stacks.generation.template import generation_template
from stacks.images import base_image, generation_image, image_tags, image_uris
from tests.synth.assembly import SOURCES, synthesized
from tests.synth.generation_cases import (
    FIXED,
    SCALED,
    WITHOUT_COMPONENTS,
    ZERO,
    generator,
)

pytestmark = pytest.mark.synth

NAMES = {"Variables": "1", "ComputeType": "small", "camelCase": "a"}
KINDS = {
    "scaled": {**SCALED, "serving": {"environment": NAMES}},
    "zero": ZERO,
    "fixed": FIXED,
    "model": WITHOUT_COMPONENTS,
}


@pytest.fixture(scope="module", params=KINDS)
def pair(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    deployment = generator(**KINDS[request.param])
    stacks = synthesized(folder, deployment.environment, (), generators=[deployment])
    return deployment, stacks, folder


def test_constructs_are_what_the_data_says(pair):
    deployment, stacks, _ = pair
    platform = serving_platforms()[deployment.environment.platform]
    tags = image_tags(SOURCES.image_files, base_image(platform))
    expected = generation_template(deployment, image_uris(deployment.environment, tags))
    found = stacks["Endpoint-chat"].template
    for key in ("Resources", "Outputs", "Conditions"):
        assert found.get(key, {}) == json.loads(json.dumps(expected.get(key, {})))
    assert found.get("Parameters", {}).keys() - {"BootstrapVersion"} == (
        expected.get("Parameters", {}).keys()
    )
    assert stacks["Endpoint-chat"].is_protected


def test_refuses_a_checkpoint_that_is_not_built_without_emptying_the_stack(tmp_path):
    deployment = generator(build=False)
    stacks = synthesized(tmp_path, deployment.environment, (), generators=[deployment])
    stack = stacks["Endpoint-chat"]
    (error,) = stack.errors
    assert "`roundhouse build --env cloud --model chat`" in error
    rule = stack.template["Rules"]["CheckpointIsBuilt"]
    assert rule["Assertions"][0]["AssertDescription"] == error
    assert [item["Type"] for item in stack.template["Resources"].values()] == [
        "AWS::CloudFormation::WaitConditionHandle"
    ]


def test_each_generation_platform_has_an_image_of_its_own():
    platform = next(iter(serving_platforms().values()))
    tags = image_tags(SOURCES.image_files, base_image(platform))
    rows = generation_platforms()
    own = {tags[generation_image(rows[name])] for name in ("vllm-0.30.0", "vllm-0.27.1")}
    assert len(own) == 2 and generation_image(rows["lmi-28"]) not in tags
