"""Text generators of every kind: the base file of the fixtures with changes, and its lock."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from onboarding.generation_resolve import checkpoint_keys, generation_deployments
from onboarding.lock import write_lock_entry
from onboarding.text_generation.checkpoint_lock import GenerationKnee
from onboarding.text_generation.generation_deployment import GenerationDeployment
from onboarding.text_generation.platforms import generation_platforms
from onboarding.tree import read_tree
from stacks.endpoint_stack import Template, endpoint_template
from stacks.images import generation_image
from tests.unit.onboarding.text_generation.entries import checkpoint_entry
from tests.unit.onboarding.text_generation.shapes import FIXTURES, LLAMA_8B, adapter_files
from tests.unit.onboarding.trees import Change, tree_root

BASE = yaml.safe_load((FIXTURES / "text_generation" / "base.yaml").read_text(encoding="utf-8"))
SCALED = {"endpoint": {"copies": {"min": 1, "max": 4}}}
ZERO = {"endpoint": {"copies": {"min": 0, "max": 4}}}
FIXED = {"endpoint": {"copies": {"min": 2, "max": 2}}}
LEGAL = {"serving": {"adapters": [{"name": "legal", "source": "adapters/faq"}]}}
IMAGE = "111122223333.dkr.ecr.us-east-1.amazonaws.com/roundhouse-cloud/vllm-server:0123456789abcdef"
IMAGES = {generation_image(row): IMAGE for row in generation_platforms().values()}


def knee(concurrency: float = 10, instance_type: str = "ml.g5.2xlarge") -> GenerationKnee:
    """A load test's highest load within the SLO."""
    return GenerationKnee(
        concurrency=concurrency,
        goodput_requests_per_second=0.5,
        ttft_p95_ms=1800,
        itl_p95_ms=70,
        output_tokens_per_second=150,
        instance_type=instance_type,
        endpoint="cloud-chat",
        date="2026-11-23",
        tool="roundhouse bench",
    )


def generator_files(**changes: Any) -> dict[str, Change]:
    """The files that a text generator with changed sections adds to the base tree."""
    data = {name: dict(value) if isinstance(value, dict) else value for name, value in BASE.items()}
    for section, values in changes.items():
        data[section] = {**data[section], **values}
    return {
        "models/chat.yaml": yaml.safe_dump(data),
        "models/data/8b.json": LLAMA_8B.document(),
        **adapter_files("adapters/faq"),
    }


def lock_checkpoints(root: Path, **entry: Any) -> tuple[GenerationDeployment, ...]:
    """The text generators of a tree, every checkpoint of theirs in its lock."""
    tree = read_tree(root)
    assert tree.faults == (), "\n".join(map(str, tree.faults))
    for deployment in generation_deployments(tree, "cloud"):
        for key, scheme in checkpoint_keys(deployment.spec, root).items():
            locked = checkpoint_entry(key, scheme, **entry)
            write_lock_entry(root / deployment.environment.locks, deployment.name, locked)
    return generation_deployments(read_tree(root), "cloud")


def generator(
    *, build: bool = True, entry: dict[str, Any] | None = None, **changes: Any
) -> GenerationDeployment:
    """The text generator of such a tree."""
    with TemporaryDirectory() as folder:
        root = tree_root(Path(folder), {**generator_files(**changes)})
        tree = read_tree(root)
        assert tree.faults == (), "\n".join(map(str, tree.faults))
        found = (
            lock_checkpoints(root, **(entry or {}))
            if build
            else (generation_deployments(tree, "cloud"))
        )
        return found[0]


def template(deployment: GenerationDeployment) -> Template:
    """What its stack deploys."""
    return endpoint_template(deployment, IMAGES)


def resource(deployment: GenerationDeployment, logical_id: str) -> dict[str, Any]:
    """The properties of one resource of its stack."""
    properties: dict[str, Any] = template(deployment)["Resources"][logical_id]["Properties"]
    return properties
