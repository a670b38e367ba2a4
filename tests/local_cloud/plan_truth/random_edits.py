"""Random edits of onboarding files that leave them valid, each one from its seed."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from onboarding.deployment import Deployment
from onboarding.resolve import deployments
from onboarding.tree import Tree, read_tree
from stacks.endpoint.template import endpoint_faults
from tests.fixtures.many_models import ManyModels
from tests.fixtures.trees import merge, read_yaml, write_yaml

TRIES = 100
SCHEDULE = {"schedule": "cron(0 7 ? * MON-FRI *)", "min": 2}
FLEET = "arn:aws:codebuild:us-east-1:000000000000:fleet/l4:0f8fad5b-d9cb-469f-a165-70867728950e"
ENDPOINT_EDITS: tuple[Callable[[Random], Mapping[str, Any]], ...] = (
    lambda random: {"scaling": {"max": random.randint(2, 9)}},
    lambda random: {"scaling": {"min": random.randint(1, 2), "max": random.randint(2, 6)}},
    lambda random: {"scaling": {"safety_factor": random.choice((0.3, 0.7, 0.9))}},
    lambda random: {"scaling": {"scale_in_cooldown_seconds": random.randint(0, 900)}},
    lambda random: {"scaling": {"min": 1, "max": 4, "schedule": [SCHEDULE]}},
    lambda random: {"scaling": {"min": 1, "max": 1}},
    lambda random: {"latency_slo_ms": random.choice((20, 50, 400, 4000))},
    lambda random: {
        "instance_type": random.choice(("ml.c7i.xlarge", "ml.m7i.large", "ml.c6i.large"))
    },
    lambda random: {
        "rollout": random.choice(("canary", "linear", "rolling", "all-at-once"))
    },
    lambda random: {"data_capture": {"percent": random.randint(1, 100)}},
    lambda random: {"asynchronous": {"notify": random.random() < 0.5}},
    lambda random: {"dashboard": random.random() < 0.5},
    lambda random: {"network_isolation": False},
)  # fmt: skip
MODEL_EDITS: tuple[Callable[[Random], Mapping[str, Any]], ...] = (
    lambda random: {"labels": {"team": random.choice(("search", "ads"))}},
    lambda random: {"accuracy": {"budget": {"worst": random.choice((0.9, 0.93, 0.94))}}},
    lambda random: {"engine": {"precision": random.choice(("fp32", "int8"))}},
    lambda random: {"serving": {"warm_up": random.random() < 0.5}},
    lambda random: {"serving": {"server": random.choice(("python", "triton"))}},
    lambda random: {"serving": {"instances_per_gpu": random.randint(1, 4)}},
)
ENVIRONMENT_EDITS: tuple[Callable[[Random], Mapping[str, Any]], ...] = (
    lambda random: {"alarm_email": "team@example.com"},
    lambda random: {"unreferenced_engine_days": random.randint(1, 365)},
    lambda random: {"permissions_boundary_arn": "arn:aws:iam::000000000000:policy/boundary"},
    lambda random: {"builds": {"at_once": random.randint(5, 40)}},
    lambda random: {"builds": {"timeout_minutes": random.randint(30, 300)}},
    lambda random: {"gates": {"capacity_days": random.randint(1, 90)}},
    lambda random: {"gpu_fleet_arn": FLEET},
    lambda random: {"kms_key_arn": "arn:aws:kms:us-east-1:000000000000:alias/models"},
    lambda random: {"models": {"except": ["model-002"]}},
    lambda random: {"models": {"model-001": {"endpoint": {"scaling": {"max": 9}}}}},
)


@dataclass(frozen=True, kw_only=True)
class RandomEdits:
    """Edits of a tree, each from the files as they were at first."""

    models: ManyModels
    original: Path
    """A copy of the tree's files, beside it."""

    def apply(self, seed: int) -> Tree:
        """Edit the tree anew and lock the engines that it then needs; return it.

        Raises ValueError where no valid edit comes of the seed.
        """
        random = Random(seed)
        for _ in range(TRIES):
            self.restore()
            for _ in range(random.choice((1, 1, 1, 2, 3))):
                self._edit(random)
            tree = read_tree(self.models.root)
            if not tree.faults and not any(map(_has_fault, self._locked(tree))):
                return read_tree(self.models.root)
        raise ValueError(f"seed {seed} gives no valid edit of {TRIES}")

    def restore(self) -> None:
        """Put the files back as they were at first."""
        shutil.rmtree(self.models.root)
        shutil.copytree(self.original, self.models.root)

    def _locked(self, tree: Tree) -> Iterator[Deployment]:
        """Lock engines that are missing; yield every deployment then."""
        missing = [item.name for item in deployments(tree, self.models.environment)
                   if item.missing]  # fmt: skip
        if missing:
            self.models.write_locks(*missing)
            tree = read_tree(self.models.root)
        yield from deployments(tree, self.models.environment)

    def _edit(self, random: Random) -> None:
        root = self.models.root
        files = sorted((root / "models").glob("model-*[0-9].yaml"))
        path, kind = random.choice(files), random.random()
        if kind < 0.5:
            _merge(path, {"endpoint": random.choice(ENDPOINT_EDITS)(random)})
        elif kind < 0.7:
            _merge(path, random.choice(MODEL_EDITS)(random))
        elif kind < 0.9:
            file = root / f"environments/{self.models.environment}.yaml"
            _merge(file, random.choice(ENVIRONMENT_EDITS)(random))
        elif kind < 0.94 and len(files) > 1:
            path.unlink()
        else:
            # A new name is another endpoint: the old one goes, or both are there.
            name = f"model-{random.randint(100, 999)}"
            write_yaml(path.with_stem(name), {**read_yaml(path), "name": name})
            if random.random() < 0.5:
                path.unlink()


def random_edits(models: ManyModels, original: Path) -> RandomEdits:
    """Return the edits of a tree as it is now, kept in a folder that is not there yet."""
    shutil.copytree(models.root, original)
    return RandomEdits(models=models, original=original)


def _merge(path: Path, changes: Mapping[str, Any]) -> None:
    write_yaml(path, merge(read_yaml(path), dict(changes)))


def _has_fault(deployment: Deployment) -> bool:
    return bool(deployment.missing or endpoint_faults(deployment))
