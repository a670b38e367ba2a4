"""Engine keys, names of what is deployed, and every resource of the templates, as golden files.

A changed key builds an engine anew, a changed logical id replaces a resource, and a changed name
rolls every live endpoint out anew. `python -m tests.synth.test_stable_names` writes the golden
files, which are reviewed like code.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from onboarding.generation_resolve import checkpoint_keys
from onboarding.tree import read_tree
from tests.synth.assembly import SOURCES, Stacks, synthesized
from tests.synth.deployments import (
    ROOT,
    environment,
    fixed_checkpoint,
    fixed_engines,
    unlocked,
)
from tests.synth.full_stage import KINDS, SETTINGS, deployed

pytestmark = pytest.mark.synth

FOLDER = Path(__file__).parent / "golden"
GOLDEN = FOLDER / "stable-names.txt"
RESOURCES = FOLDER / "resources.txt"
KEYS = FOLDER / "keys.txt"
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
    for kind, endpoint in KINDS.items():
        whole = kind == "everything"
        spec, found, generators = deployed(
            folder / kind, SETTINGS, endpoint, has_shadow=whole, has_chat=whole
        )
        stages[kind] = synthesized(
            folder / kind / "out",
            spec,
            tuple(map(fixed_engines, found)),
            FIXED_SOURCES,
            generators=tuple(map(fixed_checkpoint, generators)),
        )
    return stages


def resource_lines(environment: str, stacks: Stacks) -> Iterator[str]:
    """A line for every resource: environment, stack, logical id, type, digest of all it says."""
    for name, stack in sorted(stacks.items()):
        for logical_id, resource in sorted(stack.template["Resources"].items()):
            whole = {key: value for key, value in resource.items() if key != "Metadata"}
            digest = hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()[:16]
            yield f"[{environment}] {name} {logical_id} {resource['Type']} {digest}"


def key_lines() -> Iterator[str]:
    """A line for every engine and checkpoint of the shipped trees, with its key."""
    for name in ("dev", "local"):
        for deployment in unlocked(name):
            for variant in deployment.variants:
                for target in variant.targets:
                    model, instance = target.model.name, target.instance_type.name
                    yield f"[{name}] {deployment.name} {model} {instance} {target.engine_key}"
    chat = ROOT / "examples" / "chat"
    for name, spec in sorted(read_tree(chat).generators.items()):
        for key, scheme in checkpoint_keys(spec, chat).items():
            yield f"[chat] {name} {scheme} {key}"


def golden_texts(folder: Path) -> dict[Path, str]:
    """The golden files of the present tree, by path."""
    stages = environments(folder).items()
    lines = {
        GOLDEN: [line for name, stacks in stages for line in stable_lines(name, stacks)],
        RESOURCES: [line for name, stacks in stages for line in resource_lines(name, stacks)],
        KEYS: list(key_lines()),
    }
    return {path: "".join(f"{line}\n" for line in found) for path, found in lines.items()}


def test_keys_names_and_resources_of_what_is_deployed_stay_as_they_are(tmp_path):
    for path, text in golden_texts(tmp_path).items():
        assert text.splitlines() == path.read_text(encoding="utf-8").splitlines(), path.name


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        for path, text in golden_texts(Path(folder)).items():
            path.write_text(text, encoding="utf-8")
