"""The environment, models and endpoints of an acceptance run, in a tree of their own.

The environment is called `acceptance` and stands beside the one it is made from, in the same
account: its stacks, bucket, repositories and endpoints share nothing with another's.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from onboarding.environment_spec import EnvironmentSpec
from onboarding.names import endpoint_name
from onboarding.platform import (
    BuildRoute,
    InstanceType,
    ServingPlatform,
    build_route,
    instance_types,
    serving_platforms,
)
from onboarding.values import Precision, QuantizationMode, Server
from roundhouse.errors import NotReadyError
from roundhouse.paths import Paths

ENVIRONMENT = "acceptance"
KEPT = (
    "account", "region", "platform", "kms_key_arn", "network", "permissions_boundary_arn",
    "inference_ami_version", "gpu_fleet_arn",
)  # fmt: skip
"""Facts of the account that hold for every environment in it."""
GPU_TYPES = ("ml.g5.xlarge", "ml.g6.xlarge", "ml.g4dn.xlarge")
"""The cheapest types with a GPU: the one of on-demand CodeBuild, then those of other routes."""
CPU_TYPE = "ml.c7i.large"
FEWEST, MOST = 2, 3
"""Instances of the endpoint that is updated and scaled: a canary needs two."""
BUILD_MINUTES = 30
TEXTS, CALIBRATION, NETWORK = "sentences.txt", "calibration.txt", "models/tiny/model.onnx"
PROFILES = {
    "python": [{"batch": [1, 4, 8], "sequence": [4, 16, 32]}],
    "triton": [
        {"batch": [1, 4, 8], "sequence": [4, 8, 16]},
        {"batch": [1, 2, 8], "sequence": [4, 32, 64]},
    ],
}


@dataclass(frozen=True, kw_only=True)
class TinyModel:
    """One engine that a run builds; with a `server` it is deployed, behind its own endpoint."""

    name: str
    instance_type: InstanceType
    route: BuildRoute
    precision: Precision
    server: Server | None = None
    quantization: QuantizationMode | None = None
    version_compatible: bool = False

    @property
    def is_deployed(self) -> bool:
        """Return whether an endpoint serves it."""
        return self.server is not None


@dataclass(frozen=True, kw_only=True)
class Setup:
    """One run: `origin` is the environment it is made from, `environment` the run's own."""

    origin: str
    environment: EnvironmentSpec
    models: tuple[TinyModel, ...]
    in_local_cloud: bool

    @property
    def platform(self) -> ServingPlatform:
        """Return the serving platform."""
        return serving_platforms()[self.environment.platform]

    @property
    def has_gpu(self) -> bool:
        """Return whether engines are TensorRT plans."""
        return self.platform.tensorrt is not None

    @property
    def deployed(self) -> tuple[TinyModel, ...]:
        """Return the models that endpoints serve."""
        return tuple(model for model in self.models if model.is_deployed)

    def endpoint(self, model: TinyModel) -> str:
        """Return the SageMaker name of a model's endpoint."""
        return endpoint_name(self.environment, model.name)


def new_setup(origin: EnvironmentSpec, *, in_local_cloud: bool) -> Setup:
    """Return what a run on an environment's account builds and deploys."""
    facts = origin.model_dump(mode="json", by_alias=True, include=set(KEPT), exclude_none=True)
    if "network" in facts:
        # Those of the account's VPC are there, or belong to the environment that made them.
        facts["network"] = {**facts["network"], "vpc_endpoints": False}
    builds = {**origin.builds.model_dump(mode="json"), "timeout_minutes": BUILD_MINUTES}
    if in_local_cloud:
        builds |= {"at_once": 2, "poll_seconds": 1}
    # Lists are tuples only where JSON is read.
    document = json.dumps({**facts, "name": ENVIRONMENT, "builds": builds})
    environment = EnvironmentSpec.model_validate_json(document)
    return Setup(
        origin=origin.name,
        environment=environment,
        models=_models(environment),
        in_local_cloud=in_local_cloud,
    )


def _models(environment: EnvironmentSpec) -> tuple[TinyModel, ...]:
    """Return a deployed model a server, on as many build routes as the environment has."""
    platform = serving_platforms()[environment.platform]
    if platform.tensorrt is None:
        cpu = instance_types()[CPU_TYPE]
        python = TinyModel(
            name="python", instance_type=cpu, route="cpu", precision="int8", server="python"
        )
        return python, replace(python, name="triton", precision="fp32", server="triton")
    types = _gpu_types(environment)
    if not types:
        return ()
    first, second = types[0], types[-1]
    python = TinyModel(
        name="python",
        instance_type=first,
        route=_route(environment, first),
        precision="int8",
        server="python",
    )
    triton = TinyModel(
        name="triton",
        instance_type=second,
        route=_route(environment, second),
        precision="fp16",
        server="triton",
    )
    portable = replace(
        python, name="portable", precision="fp16", server=None, version_compatible=True
    )
    cached = replace(python, name="cached", server=None, quantization="calibration-cache")
    return python, triton, portable, *([cached] if platform.trtexec_dialect == 10 else [])


def _gpu_types(environment: EnvironmentSpec) -> list[InstanceType]:
    """Return the first type of each build route that the region has."""
    types = [instance_types()[name] for name in GPU_TYPES]
    by_route: dict[BuildRoute, InstanceType] = {}
    for instance in types:
        if not instance.is_missing_in(environment.region):
            by_route.setdefault(_route(environment, instance), instance)
    return list(by_route.values())


def _route(environment: EnvironmentSpec, instance: InstanceType) -> BuildRoute:
    return build_route(
        instance.compute_capability,
        codebuild_gpu=environment.has_codebuild_gpu,
        fleet=environment.gpu_fleet_arn is not None,
    )


def write_tree(folder: Path, setup: Setup, network_sha256: str, texts: Sequence[str]) -> None:
    """Write the onboarding tree of a run; its network lies at NETWORK already."""
    documents: dict[str, Any] = {
        f"environments/{ENVIRONMENT}.yaml": setup.environment.model_dump(
            mode="json", by_alias=True, exclude_defaults=True
        ),
        **{
            f"models/{model.name}.yaml": model_document(setup, model, network_sha256)
            for model in setup.models
        },
    }
    third = len(texts) // 3
    files = {
        **{name: yaml.safe_dump(value, sort_keys=False) for name, value in documents.items()},
        f"models/data/{CALIBRATION}": "\n".join(texts[:third]) + "\n",
        f"models/data/{TEXTS}": "\n".join(texts[third:]) + "\n",
    }
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def model_document(setup: Setup, model: TinyModel, network_sha256: str) -> dict[str, Any]:
    """Return a model file."""
    engine: dict[str, Any] = {
        "precision": model.precision,
        "optimization_profiles": PROFILES.get(model.name, PROFILES["python"]),
    }
    if model.precision == "int8":
        method = "entropy" if model.quantization == "calibration-cache" else "max"
        dataset = f"models/data/{CALIBRATION}"
        engine["calibration"] = {"dataset": dataset, "samples": 32, "method": method}
    if model.quantization is not None:
        engine["quantization"] = model.quantization
    if model.version_compatible:
        engine["version_compatible"] = True
    is_scaled = model.name == "python"
    scaling = {"min": FEWEST, "max": MOST} if is_scaled else {"min": 1, "max": 1}
    return {
        "name": model.name,
        "task": "text-embedding",
        "source": {"onnx": NETWORK, "sha256": network_sha256},
        "engine": engine,
        "accuracy": {"dataset": f"models/data/{TEXTS}", "budget": {"mean": 0.9}},
        "serving": {"server": model.server or "python"},
        "endpoint": {
            "instance_type": model.instance_type.name,
            "latency_slo_ms": 20_000,
            "scaling": scaling,
        },
    }


def run_folder(paths: Paths, origin: str) -> Path:
    """Return where the runs of an environment keep their tree, record and evidence."""
    return paths.build / "acceptance" / origin


def new_paths(paths: Paths, origin: str) -> Paths:
    """Return the paths of a run: the code as it is, and a fresh tree below build/acceptance.

    Raises NotReadyError.
    """
    tree = run_folder(paths, origin) / "tree"
    try:
        shutil.rmtree(tree, ignore_errors=True)
        for name in ("models/tiny", "models/data", "endpoints", "environments"):
            (tree / name).mkdir(parents=True)
    except OSError as error:
        raise NotReadyError(
            f"{tree}: cannot be written ({error.strerror}); free the folder, then try again."
        ) from error
    return replace(paths, tree=tree)
