"""One tiny model in an environment of its own: its tree, what it rents, the commands that run.

The environment is called `trial` and stands beside the one whose account it uses; nothing of its
name is shared with another. In the local cloud it is `local`, the one name that means it.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import yaml

from onboarding.environment_spec import EnvironmentSpec
from onboarding.names import endpoint_name
from onboarding.platform import (
    BuildRoute,
    InstanceType,
    build_route,
    instance_types,
    serving_platforms,
)
from onboarding.prices import SHOWN_PATH, price
from roundhouse.gitops.build_estimates import minute_usd
from roundhouse.paths import Paths
from roundhouse.session import LOCAL, valid_tree

ROOT = Path(__file__).resolve().parents[2]
NETWORK = ROOT / "tests" / "fixtures" / "tiny_embedder"
NAME, MODEL = "trial", "tiny"
KEPT = (
    "account", "region", "platform", "kms_key_arn", "network", "permissions_boundary_arn",
    "inference_ami_version", "gpu_fleet_arn",
)  # fmt: skip
"""Facts of the account that hold for every environment in it."""
CPU_TYPE = "ml.c7i.large"
GPU_TYPES = ("ml.g5.xlarge", "ml.g6.xlarge", "ml.g4dn.xlarge")
"""The cheapest types with a GPU: the first whose prices are known, else the first."""
INSTANCES = 2
"""Of the endpoint: a canary needs two. Both versions stand while one is rolled out."""
IMAGES, IMAGES_HOST = 3, "linux.large"
BUILD_MINUTES = 30
LIMITS = {"deploy": 180, "build": 10, "invoke": 5, "refused deploy": 60, "destroy": 60}
"""Minutes after which a command of a step is ended, and the account is cleaned up."""
WORDS = ("bird", "cat", "dog", "engine", "house", "mat", "red", "signal", "slow", "track", "train")


class Refused(Exception):
    """The story is not begun; the message says why, and what to do."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """The environment, its tree, and the instance type that its endpoint has."""

    tree: Path
    environment: EnvironmentSpec
    instance_type: InstanceType
    route: BuildRoute

    @property
    def is_local(self) -> bool:
        """Return whether the account is the local cloud."""
        return self.environment.name == LOCAL

    @property
    def endpoint(self) -> str:
        """Return the SageMaker name of the endpoint."""
        return endpoint_name(self.environment, MODEL)

    @property
    def paths(self) -> Paths:
        """Return the paths of `--root`: this repository's code, and the tree."""
        return Paths(code=ROOT, tree=self.tree, build=ROOT / "build")

    def run(self, step: str, *words: str) -> subprocess.CompletedProcess[str]:
        """Run the command as a user does. Raises TimeoutExpired after the step's limit."""
        target = ("--env", self.environment.name, "--root", str(self.tree))
        return run_roundhouse(*words, *target, minutes=LIMITS[step])

    def bound_usd(self) -> float:
        """Return what the story costs at most. Raises Refused where a price is not known.

        Not in it, since they come to cents: S3, KMS, CloudWatch, Lambda, Step Functions.
        """
        if self.is_local:
            return 0.0
        region, kind = self.environment.region, self.instance_type.name
        # It answers twice; after a failure what is left is deleted as `destroy` does it. Both
        # versions stand while one is refused.
        standing = sum(LIMITS.values()) + 3 * LIMITS["invoke"] + LIMITS["destroy"]
        rented = {
            "images": (IMAGES * LIMITS["deploy"], price(region, "codebuild", IMAGES_HOST)),
            f"a build by route {self.route}": (
                LIMITS["deploy"],
                minute_usd(region, self.route, kind),
            ),
            f"an instance {kind}": (
                INSTANCES * (standing + LIMITS["refused deploy"]),
                endpoint_price(region, kind),
            ),
        }
        unknown = [what for what, (_, usd_a_minute) in rented.items() if usd_a_minute is None]
        if unknown:
            raise Refused(
                f"{SHOWN_PATH} has no price of {', '.join(unknown)} in this region, so the cost "
                "has no bound; `make prices` reads AWS's price list."
            )
        return sum(minutes * (usd_a_minute or 0.0) for minutes, usd_a_minute in rented.values())


def run_roundhouse(*words: str, minutes: float) -> subprocess.CompletedProcess[str]:
    """Run `roundhouse` with these words. Raises TimeoutExpired."""
    print(f"roundhouse {' '.join(words)}", flush=True)
    result = subprocess.run(
        (sys.executable, "-m", "roundhouse", *words),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60 * minutes,
        check=False,
    )
    print(f"{result.stdout}{result.stderr}-> {result.returncode}", flush=True)
    return result


def require_within(bound: float, max_usd: str | None) -> None:
    """Raise Refused for a story that may cost more than is allowed."""
    try:
        most = float(max_usd or "0")
    except ValueError:
        raise Refused(f"ROUNDHOUSE_AWS_MAX_USD is {max_usd!r}; it must be a number.") from None
    if most < bound:
        raise Refused(
            f"ROUNDHOUSE_AWS_MAX_USD is {most:g}, and the story may cost up to {bound:.2f} USD; "
            f"allow it with ROUNDHOUSE_AWS_MAX_USD={int(bound) + 1}."
        )


def endpoint_price(region: str, instance_type: str) -> float | None:
    """Return what a minute of an endpoint's instance costs."""
    hour = price(region, "hosting", instance_type)
    return None if hour is None else hour / 60


def new_trial(origin: str, tree: Path) -> Trial:
    """Write the tree of a story in the account of an environment. Raises Refused."""
    environments = valid_tree(Paths(code=ROOT, tree=ROOT, build=ROOT / "build")).environments
    if origin not in environments:
        known = ", ".join(environments)
        raise Refused(f"ROUNDHOUSE_AWS_ENVIRONMENT is {origin}; allowed: {known}.")
    if NAME in environments:
        raise Refused(f"environments/{NAME}.yaml has the name of the story's own; rename that one.")
    facts = environments[origin].model_dump(
        mode="json", by_alias=True, include=set(KEPT), exclude_none=True
    )
    if "network" in facts:
        # Those of the account's VPC are there, or belong to the environment that made them.
        facts["network"] = {**facts["network"], "vpc_endpoints": False}
    builds = {"at_once": 1, "poll_seconds": 1} if origin == LOCAL else {}
    name, builds = LOCAL if origin == LOCAL else NAME, {**builds, "timeout_minutes": BUILD_MINUTES}
    document = {"name": name, **facts, "builds": builds}
    if origin == LOCAL:
        document["locks"] = "build/local/locks"
    # Lists are tuples only where JSON is read.
    environment = EnvironmentSpec.model_validate_json(json.dumps(document))
    instance_type, route = choose_instance_type(environment)
    trial = Trial(tree=tree, environment=environment, instance_type=instance_type, route=route)
    write_tree(trial, document)
    return trial


def choose_instance_type(environment: EnvironmentSpec) -> tuple[InstanceType, BuildRoute]:
    """Return the first type that the platform and the region have, with the build's route."""
    has_gpu = serving_platforms()[environment.platform].tensorrt is not None
    region, available = environment.region, []
    for name in GPU_TYPES if has_gpu else (CPU_TYPE,):
        instance = instance_types()[name]
        route = build_route(
            instance.compute_capability,
            codebuild_gpu=environment.has_codebuild_gpu,
            fleet=environment.gpu_fleet_arn is not None,
        )
        if not instance.is_missing_in(region):
            prices = (endpoint_price(region, name), minute_usd(region, route, name))
            available.append((None in prices, instance, route))
    if available:
        _, instance, route = min(available, key=lambda item: item[0])
        return instance, route
    raise Refused(f"region {region} has none of {', '.join(GPU_TYPES)}.")


def write_tree(trial: Trial, environment: dict[str, object]) -> None:
    """Write the environment and the model, with its network and the texts that judge it."""
    shutil.rmtree(trial.tree, ignore_errors=True)
    for folder in (f"models/{MODEL}", "models/data", "endpoints", "environments"):
        (trial.tree / folder).mkdir(parents=True)
    for file in ("model.onnx", "tokenizer.json"):
        shutil.copyfile(NETWORK / file, trial.tree / "models" / MODEL / file)
    texts = [f"a {one} sat on the {other}" for one, other in product(WORDS, WORDS)]
    network = (NETWORK / "model.onnx").read_bytes()
    model = {
        "name": MODEL,
        "task": "text-embedding",
        "source": {
            "onnx": f"models/{MODEL}/model.onnx",
            "sha256": hashlib.sha256(network).hexdigest(),
        },
        "engine": {
            "precision": "fp32",
            "optimization_profiles": [{"batch": [1, 2, 4], "sequence": [2, 8, 16]}],
        },
        "accuracy": {"dataset": "models/data/texts.txt", "budget": {"mean": 0.99}},
        "serving": {"server": "python"},
        "endpoint": {
            "instance_type": trial.instance_type.name,
            "latency_slo_ms": 20_000,
            "scaling": {"min": INSTANCES, "max": INSTANCES},
        },
    }
    files = {
        f"environments/{trial.environment.name}.yaml": yaml.safe_dump(environment),
        f"models/{MODEL}.yaml": yaml.safe_dump(model, sort_keys=False),
        "models/data/texts.txt": "\n".join(texts) + "\n",
    }
    for path, text in files.items():
        (trial.tree / path).write_text(text, encoding="utf-8")
