"""The build machine's golden definition: `python -m tests.synth.golden_build_machine` writes it."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from onboarding.environment_spec import EnvironmentSpec, NetworkSpec
from tests.synth.deployments import environment
from tests.synth.pipeline import PROGRAMS, definition, pipeline_resources

GOLDEN = Path(__file__).parent / "golden" / "build-machine.yaml"
IMAGE = (
    "111122223333.dkr.ecr.us-east-1.amazonaws.com/roundhouse-dev/builder-gpu:0123456789abcdef0123"
)
FLEET = "arn:aws:codebuild:us-east-1:111122223333:fleet/gpu:0b1c2d3e-0000-4000-8000-000000000000"
KEY = "arn:aws:kms:us-east-1:111122223333:key/0b1c2d3e-0000-4000-8000-000000000000"
NETWORK = NetworkSpec(
    vpc_id="vpc-0000000a",
    subnet_ids=("subnet-0000000a", "subnet-0000000b"),
    security_group_ids=("sg-0000000a",),
)


def whole() -> EnvironmentSpec:
    """An environment that names everything the builds can use."""
    return environment("dev").model_copy(
        update={"gpu_fleet_arn": FLEET, "kms_key_arn": KEY, "network": NETWORK}
    )


@cache
def definitions() -> dict[str, dict[str, Any]]:
    """The machines of the shipped `dev`, of one that names everything, and with generators."""
    return {
        "dev": definition(pipeline_resources(environment("dev"))),
        "whole": definition(pipeline_resources(whole())),
        "generators": definition(pipeline_resources(environment("dev"), checkpoints=PROGRAMS)),
    }


def text(definition: dict[str, Any]) -> str:
    """A definition as its file has it."""
    plain = json.loads(json.dumps(definition))
    return yaml.dump(
        plain, width=10**6, sort_keys=False, allow_unicode=True, default_flow_style=None
    )


def golden_text() -> str:
    """The definitions that name everything, and that build checkpoints, golden."""
    found = definitions()
    return "".join(f"# {name}\n{text(found[name])}" for name in ("whole", "generators"))


if __name__ == "__main__":
    GOLDEN.write_text(golden_text(), encoding="utf-8")
