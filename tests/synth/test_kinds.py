"""A deployment -> a template, of every kind of endpoint: as golden files, and as constructs."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from aws_cdk import App, Stage

from onboarding.platform import serving_platforms
from onboarding.text_generation.platforms import generation_platforms
from stacks.endpoint.findings import endpoint_faults
from stacks.endpoint_stack import EndpointStack
from stacks.images import base_image, generation_image, image_tags
from tests.synth import generation_cases
from tests.synth.assembly import SOURCES, lint, read_stacks
from tests.synth.deployments import with_targets
from tests.synth.endpoint_cases import IMAGES, endpoints
from tests.synth.generation_cases import FIXED, SCALED, ZERO, generator
from tests.synth.kinds import SYNTHESIZED, golden_texts

pytestmark = pytest.mark.synth

NAMES = {"Variables": "1", "ComputeType": "small", "camelCase": "a"}
"""Keys that are the user's, whatever properties of CloudFormation are called."""
CHATS = {
    "Scaled": {**SCALED, "serving": {"environment": NAMES}},
    "Zero": ZERO,
    "FixedChat": FIXED,
}


def test_templates_of_every_kind_stay_as_they_are():
    for path, text in golden_texts().items():
        assert text.splitlines() == path.read_text(encoding="utf-8").splitlines(), (
            "if that is meant: python -m tests.synth.kinds"
        )


@pytest.fixture(scope="module")
def synthesized(tmp_path_factory) -> list[tuple[str, Path]]:
    """By kind: the file that one pass through the CDK wrote of its template."""
    folder = tmp_path_factory.mktemp("synthesized")
    context = {"@aws-cdk/core:enablePartitionLiterals": True}
    app = App(outdir=str(folder), analytics_reporting=False, context=context)
    for kind, changes in SYNTHESIZED.items():
        stage = Stage(app, kind.title().replace(" ", ""))
        for name, deployment in endpoints(changes).items():
            EndpointStack(stage, f"Endpoint-{name}", deployment=deployment, image_uris=IMAGES)
    for kind, changes in CHATS.items():
        chat = generator(**changes)
        uris = generation_cases.IMAGES
        EndpointStack(Stage(app, kind), "Endpoint-chat", deployment=chat, image_uris=uris)
    app.synth()
    stacks = list(read_stacks(folder))
    assert all(stack.is_protected for stack in stacks)
    return [(f"{stack.path.parent.name[9:]}/{stack.name}", stack.path) for stack in stacks]


def test_every_kind_of_endpoint_passes_cfn_lint(synthesized):
    paths = {path.read_text(encoding="utf-8"): kind for kind, path in synthesized}
    assert [f"{kind}: {match}" for text, kind in paths.items() for match in lint(text)] == []


@pytest.mark.parametrize("built", ["EngineIsBuilt", "CheckpointIsBuilt"])
def test_refuses_what_is_not_built_without_emptying_the_stack(tmp_path, built):
    app = App(outdir=str(tmp_path), analytics_reporting=False)
    if built == "EngineIsBuilt":
        example = endpoints({})["example"]
        unbuilt = with_targets(example, lambda item: dataclasses.replace(item, lock_entry=None))
        EndpointStack(app, "Endpoint", deployment=unbuilt, image_uris=IMAGES)
        reason = endpoint_faults(unbuilt)[0]
    else:
        chat, uris = generator(build=False), generation_cases.IMAGES
        EndpointStack(app, "Endpoint", deployment=chat, image_uris=uris)
        reason = chat.problem
    app.synth()
    written = json.loads((tmp_path / "Endpoint.template.json").read_text(encoding="utf-8"))
    assert [resource["Type"] for resource in written["Resources"].values()] == [
        "AWS::CloudFormation::WaitConditionHandle"
    ]
    (assertion,) = written["Rules"][built]["Assertions"]
    assert assertion["Assert"] == {"Fn::Equals": [{"Ref": "AWS::Region"}, "engine not built"]}
    assert assertion["AssertDescription"] == reason
    assert (
        f"roundhouse build --env cloud --model {'chat' if built[0] == 'C' else 'example'}" in reason
    )


def test_each_generation_platform_has_an_image_of_its_own():
    platform = next(iter(serving_platforms().values()))
    tags = image_tags(SOURCES.image_files, base_image(platform))
    rows = generation_platforms()
    own = {tags[generation_image(rows[name])] for name in ("vllm-0.30.0", "vllm-0.27.1")}
    assert len(own) == 2
