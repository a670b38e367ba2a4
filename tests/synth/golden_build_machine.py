"""The build machine's definitions that are golden.

`python -m tests.synth.golden_build_machine` writes their files anew.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from onboarding.environment_spec import EnvironmentSpec, NetworkSpec
from stacks.builds.machine import build_machine
from tests.synth.deployments import environment

FOLDER = Path(__file__).parent / "golden"
IMAGE = (
    "111122223333.dkr.ecr.us-east-1.amazonaws.com/roundhouse-dev/builder-gpu:0123456789abcdef0123"
)
FLEET = "arn:aws:codebuild:us-east-1:111122223333:fleet/gpu:0b1c2d3e-0000-4000-8000-000000000000"
KEY = "arn:aws:kms:us-east-1:111122223333:key/0b1c2d3e-0000-4000-8000-000000000000"
NETWORK = NetworkSpec(
    vpc_id="vpc-0a", subnet_ids=("subnet-0a", "subnet-0b"), security_group_ids=("sg-0a",)
)


def whole() -> EnvironmentSpec:
    """An environment that names everything the builds can use."""
    return environment("dev").model_copy(
        update={"gpu_fleet_arn": FLEET, "kms_key_arn": KEY, "network": NETWORK}
    )


def definitions() -> dict[str, dict[str, Any]]:
    """By file name.

    The machine of the shipped environment `dev`, and of one that names everything.
    """
    return {
        "build-machine.json": build_machine(
            environment("dev"), projects=["cpu", "gpu"], training_image=IMAGE
        ),
        "build-machine-whole.json": build_machine(
            whole(), projects=["cpu", "gpu", "fleet"], training_image=IMAGE
        ),
    }


def text(definition: dict[str, Any]) -> str:
    """A definition as its file has it."""
    return json.dumps(definition, indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, definition in definitions().items():
        (FOLDER / name).write_text(text(definition), encoding="utf-8")
