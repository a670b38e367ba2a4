"""Endpoints of every kind.

The base tree of the onboarding fixtures with changes, its engines in the lock.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from onboarding.deployment import Deployment
from onboarding.resolve import deployments
from onboarding.tree import read_tree
from stacks.endpoint_stack import Template, endpoint_template
from tests.synth.deployments import with_locks
from tests.unit.onboarding.trees import Change, tree_root

MODEL, CLOUD, BESIDE = "models/example.yaml", "environments/cloud.yaml", "models/beside.yaml"
IMAGES = {
    image: (
        f"111122223333.dkr.ecr.us-east-1.amazonaws.com/roundhouse-cloud/{image}:0123456789abcdef0123"
    )
    for image in ("triton", "python-server", "python-server-gpu", "builder-cpu")
}
POOLS = "instance_pools: [{instance_type: ml.g6.xlarge}, {instance_type: ml.g4dn.xlarge}]"
CAPTURE = "data_capture: {percent: 20}"
QUEUE = "asynchronous: {max_concurrent_invocations: 4, notify: true}"


def beside(endpoint: str, name: str = "beside", more: str = "") -> str:
    """A model file like the base tree's own endpoint's."""
    return f"""name: {name}
task: text-embedding
source: {{python_package: beside-model==1.0.0}}
engine: {{precision: fp16, optimization_profiles: [{{batch: [1, 4, 8], sequence: [8, 16, 32]}}]}}
accuracy: {{dataset: models/data/validation.txt}}
{more}endpoint: {endpoint}
"""


def endpoint_settings(*lines: str, **words: str) -> dict[str, str]:
    """A change of the base tree's model: lines of its endpoint, and old words to new ones."""
    added = "".join(f"  {line}\n" for line in lines)
    return {**({"  scaling:": f"{added}  scaling:"} if lines else {}), **words}


def endpoints(changes: dict[str, Change]) -> dict[str, Deployment]:
    """Every endpoint of a changed tree, by name, its engines in the lock."""
    with TemporaryDirectory() as folder:
        tree = read_tree(tree_root(Path(folder), changes))
        assert tree.faults == (), "\n".join(map(str, tree.faults))
        return {item.name: with_locks(item) for item in deployments(tree, "cloud")}


def example(changes: dict[str, Change]) -> Deployment:
    """The endpoint of the base tree's model."""
    return endpoints(changes)["example"]


def template(changes: dict[str, Change]) -> Template:
    """The template of that endpoint."""
    return endpoint_template(example(changes), IMAGES)


def properties(found: Template, logical_id: str) -> Any:
    """Of one resource."""
    return found["Resources"][logical_id]["Properties"]


def config(found: Template) -> Any:
    """Of the endpoint config."""
    return properties(found, "EndpointConfig")


def variants(found: Template) -> dict[str, Any]:
    """Production variants by name."""
    return {variant["VariantName"]: variant for variant in config(found)["ProductionVariants"]}


def of_type(found: Template, resource_type: str) -> dict[str, Any]:
    """Properties of every resource of a type."""
    return {
        key: resource["Properties"]
        for key, resource in found["Resources"].items()
        if resource["Type"] == resource_type
    }


def statements(found: Template) -> dict[str, Any]:
    """Of the endpoint's role and of its version's policy beside it, by id."""
    (policy,) = properties(found, "Role")["Policies"]
    (version,) = of_type(found, "AWS::IAM::Policy").values()
    return {
        entry["Sid"]: entry
        for which in (policy, version)
        for entry in which["PolicyDocument"]["Statement"]
    }
