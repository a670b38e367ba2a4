"""An environment with every setting, with endpoints of every kind, synthesised."""

from __future__ import annotations

from pathlib import Path

from aws_cdk import App

from onboarding.deployment import Deployment
from onboarding.environment_spec import EnvironmentSpec
from onboarding.resolve import deployments
from onboarding.text_generation.generation_deployment import GenerationDeployment
from onboarding.tree import read_tree
from stacks.environment_stage import EnvironmentStage
from tests.synth.assembly import SOURCES, Stacks, synthesized
from tests.synth.deployments import with_locks
from tests.synth.endpoint_cases import CAPTURE, MODEL, POOLS, QUEUE, beside, endpoint_settings
from tests.synth.generation_cases import SCALED, generator_files, lock_checkpoints
from tests.unit.onboarding.trees import tree_root

SETTINGS = """name: cloud
network:
  vpc_id: vpc-0123456789abcdef0
  subnet_ids: [subnet-0123456789abcdef0, subnet-0123456789abcdef1]
  security_group_ids: [sg-0123456789abcdef0]
  route_table_ids: [rtb-0123456789abcdef0]
  vpc_endpoints: true
permissions_boundary_arn: arn:aws:iam::111122223333:policy/boundary
alarm_email: team@example.com
alarm_https: [https://events.example.com/b, https://events.example.com/a]
unreferenced_engine_days: 7
alarm_slack: {workspace: T0123ABCDEF, channel: C0123ABCDEF}
github: {repository: acme/models, repository_id: 456789, owner_id: 123456}
gpu_fleet_arn: arn:aws:codebuild:us-east-1:111122223333:fleet/l4:0f8fad5b-d9cb-469f-a165-70867728950e
source_buckets:
  - bucket: company-models
    prefix: nlp/
    kms_key_arn: arn:aws:kms:us-east-1:444455556666:key/0f8fad5b-d9cb-469f-a165-70867728950e
    account: "444455556666"
source_secrets:
  huggingface:
    secret_arn: arn:aws:secretsmanager:us-east-1:444455556666:secret:huggingface-AbCdEf
    kms_key_arn: arn:aws:kms:us-east-1:444455556666:key/0f8fad5b-d9cb-469f-a165-70867728950e
"""
SHADOW = "models/shadow.yaml"
OWN_KEY = (
    "kms_key_arn: arn:aws:kms:us-east-1:111122223333:key/0f8fad5b-d9cb-469f-a165-70867728950e\n"
)
KINDS = {
    "everything": endpoint_settings(CAPTURE),
    "queue": endpoint_settings(QUEUE),
    "pools": endpoint_settings(POOLS),
    "volume": {"ml.g5.xlarge": "ml.c7i.xlarge"},
}
"""Endpoints that cannot be all of these at once."""


Deployed = tuple[EnvironmentSpec, tuple[Deployment, ...], tuple[GenerationDeployment, ...]]


def deployed(
    folder: Path, settings: str, endpoint: dict[str, str], *, has_shadow: bool, has_chat: bool
) -> Deployed:
    """The base tree in an environment of these settings, its engines not in the lock.

    With a shadow beside its model, and with a text generator, whose checkpoints are in the lock.
    """
    changes = {
        "environments/cloud.yaml": {"name: cloud\n": settings},
        MODEL: endpoint,
        **({SHADOW: beside("{joins: example, role: shadow}", "shadow")} if has_shadow else {}),
        **(generator_files(**SCALED) if has_chat else {}),
    }
    root = tree_root(folder, changes)
    generators = lock_checkpoints(root)
    tree = read_tree(root)
    assert tree.faults == (), "\n".join(map(str, tree.faults))
    return tree.environments["cloud"], deployments(tree, "cloud"), generators


def everything(
    folder: Path, settings: str, endpoint: dict[str, str], *, is_validated: bool = False
) -> tuple[EnvironmentSpec, Stacks]:
    """The stacks of such an environment; the kind `everything` has a shadow and a text generator."""
    whole = endpoint is KINDS["everything"]
    environment, found, generators = deployed(
        folder, settings, endpoint, has_shadow=whole, has_chat=whole
    )
    others = {} if environment.github is None else neighbours(environment)
    if others:
        environment = environment.model_copy(update={"promotes_from": "staging"})
    stacks = synthesized(
        folder / "out",
        environment,
        tuple(map(with_locks, found)),
        environments=others,
        generators=generators,
        is_validated=is_validated,
    )
    return environment, stacks


def neighbours(environment: EnvironmentSpec) -> dict[str, EnvironmentSpec]:
    """The environment that one promotes from, and one that promotes from it, of other accounts."""
    return {
        name: environment.model_copy(update={"name": name, "account": account, **changes})
        for name, account, changes in (
            ("staging", "444455556666", {"kms_key_arn": None}),
            ("prod", "000000000000", {"promotes_from": environment.name}),
        )
    }


def full_stage(app: App, folder: Path) -> EnvironmentStage:
    """The constructs of such an environment, to add Aspects to."""
    environment, found, generators = deployed(
        folder, SETTINGS, KINDS["everything"], has_shadow=False, has_chat=True
    )
    return EnvironmentStage(
        app,
        environment=environment.model_copy(update={"promotes_from": "staging"}),
        deployments=tuple(map(with_locks, found)),
        generators=generators,
        sources=SOURCES,
        environments=neighbours(environment),
    )
