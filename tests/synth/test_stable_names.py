"""Logical ids of stateful resources and names of live endpoints, endpoint configs and models.

A changed logical id replaces a resource, and a changed name rolls every live endpoint out anew.
`python -m tests.synth.test_stable_names` writes the golden file, which is reviewed like code.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from onboarding import names
from onboarding.deployment import Deployment, Target
from onboarding.resolve import deployments
from onboarding.text_generation.generation_deployment import GenerationDeployment
from onboarding.tree import read_tree
from tests.synth.assembly import SOURCES, Stacks, synthesized
from tests.synth.deployments import environment, unlocked, with_locks
from tests.synth.endpoint_cases import MODEL, beside
from tests.synth.full_stage import KINDS, SETTINGS
from tests.synth.generation_cases import SCALED, generator_files, lock_checkpoints
from tests.unit.onboarding.trees import tree_root

pytestmark = pytest.mark.synth

GOLDEN = Path(__file__).parent / "golden" / "stable-names.txt"
STATEFUL = {
    "AWS::CloudFormation::WaitConditionHandle",
    "AWS::ECR::Repository",
    "AWS::IAM::Policy",
    "AWS::IAM::Role",
    "AWS::KMS::Alias",
    "AWS::KMS::Key",
    "AWS::Logs::LogGroup",
    "AWS::S3::Bucket",
    "AWS::S3::BucketPolicy",
    "AWS::SNS::Topic",
    "AWS::SageMaker::Endpoint",
    "AWS::SageMaker::EndpointConfig",
    "AWS::SageMaker::InferenceComponent",
    "AWS::SageMaker::Model",
}
NAMES = (
    "EndpointName",
    "InferenceComponentName",
    "EndpointConfigName",
    "ModelName",
    "BucketName",
    "RepositoryName",
)
FIXED_FILES = {image: {"Dockerfile": b"FROM scratch\n"} for image in SOURCES.image_files}
FIXED_SOURCES = dataclasses.replace(SOURCES, image_files=FIXED_FILES)
"""Image tags follow image contents, which change for reasons of their own."""


def fixed_engines(deployment: Deployment) -> Deployment:
    """A deployment whose engine keys and manifests depend on model and instance type alone."""

    def with_key(target: Target) -> Target:
        identity = f"{target.model.name} {target.instance_type.name}"
        key = hashlib.sha256(identity.encode()).hexdigest()[: len(target.engine_key)]
        return dataclasses.replace(target, engine_key=key)

    def with_manifest(target: Target) -> Target:
        entry = target.lock_entry
        assert entry is not None
        digest = hashlib.sha256(target.engine_key.encode()).hexdigest()
        archive = entry.archive.model_copy(update={"manifest_sha256": digest})
        return dataclasses.replace(target, lock_entry=entry.model_copy(update={"archive": archive}))

    return with_locks(deployment.with_targets(with_key)).with_targets(with_manifest)


def fixed_checkpoint(deployment: GenerationDeployment) -> GenerationDeployment:
    """A text generator whose checkpoint has the same key whatever quantizes it."""
    assert deployment.entry is not None
    entry = deployment.entry.model_copy(update={"checkpoint_key": "0123456789abcdef0123"})
    return dataclasses.replace(deployment, entry=entry)


def stable_lines(environment: str, stacks: Stacks) -> Iterator[str]:
    """A line for every stateful resource: environment, stack, logical id, type, names."""
    for name, stack in sorted(stacks.items()):
        for logical_id, resource in sorted(stack.template["Resources"].items()):
            if resource["Type"] in STATEFUL:
                properties = resource.get("Properties", {})
                given = [json.dumps(properties[key]) for key in NAMES if key in properties]
                yield " ".join([f"[{environment}] {name}", logical_id, resource["Type"], *given])


def environments(folder: Path) -> dict[str, Stacks]:
    """Every environment of this repository, and one for each kind of endpoint."""
    stages = {
        name: synthesized(
            folder / name,
            environment(name),
            tuple(map(fixed_engines, unlocked(name))),
            FIXED_SOURCES,
        )
        for name in ("dev", "local")
    }
    stages["dev without locks"] = synthesized(
        folder / "unlocked", environment("dev"), unlocked("dev"), FIXED_SOURCES
    )
    shadow = {"models/shadow.yaml": beside("{joins: example, role: shadow}", "shadow")}
    for kind, endpoint in KINDS.items():
        changes = {
            "environments/cloud.yaml": {"name: cloud\n": SETTINGS},
            MODEL: endpoint,
            **({**shadow, **generator_files(**SCALED)} if kind == "everything" else {}),
        }
        root = tree_root(folder / kind, changes)
        generators = tuple(map(fixed_checkpoint, lock_checkpoints(root)))
        tree = read_tree(root)
        assert tree.faults == (), "\n".join(map(str, tree.faults))
        deployed = tuple(map(fixed_engines, deployments(tree, "cloud")))
        stages[kind] = synthesized(
            folder / kind / "out",
            tree.environments["cloud"],
            deployed,
            FIXED_SOURCES,
            generators=generators,
        )
    return stages


def golden_text(folder: Path) -> str:
    """The golden file of the present tree."""
    stages = environments(folder).items()
    return "".join(f"{line}\n" for name, stacks in stages for line in stable_lines(name, stacks))


def test_logical_ids_and_names_of_what_is_deployed_stay_as_they_are(tmp_path):
    assert golden_text(tmp_path) == GOLDEN.read_text(encoding="utf-8")


def test_endpoint_names_are_those_of_the_environment_and_the_file():
    lines = GOLDEN.read_text(encoding="utf-8")
    endpoints = re.findall(r'^\[dev\] .* AWS::SageMaker::Endpoint "([^"]+)"', lines, re.MULTILINE)
    assert endpoints == [
        names.endpoint_name(environment("dev"), deployment.name) for deployment in unlocked("dev")
    ]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        GOLDEN.write_text(golden_text(Path(folder)), encoding="utf-8")
