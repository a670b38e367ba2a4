"""Build routes: the kinds of machine that CodeBuild has builds run on."""

from __future__ import annotations

from dataclasses import dataclass, replace

from aws_cdk import aws_codebuild as codebuild

from onboarding.environment_spec import EnvironmentSpec
from onboarding.platform import ServingPlatform
from onboarding.text_generation.quantizer_route import QUANTIZER, QUANTIZER_IMAGE


@dataclass(frozen=True, kw_only=True)
class BuildRoute:
    """One kind of machine that CodeBuild has builds run on; a fleet brings its own."""

    name: str
    construct_id: str
    image: str
    compute_type: codebuild.ComputeType
    is_gpu: bool = False
    fleet_arn: str | None = None


# 16 GiB: exporting and quantizing BERT-large takes 6.7 at its peak (docs/verification.md), and the
# next size down has 8 in all.
CPU = BuildRoute(
    name="cpu",
    construct_id="Cpu",
    image="builder-cpu",
    compute_type=codebuild.ComputeType.LARGE,
)
# The one on-demand GPU of use: an A10G, compute capability 8.6.
GPU = BuildRoute(
    name="gpu",
    construct_id="Gpu",
    image="builder-gpu",
    compute_type=codebuild.ComputeType.SMALL,
    is_gpu=True,
)


# Calibration and gate hold a model of 2 billion parameters twice, in 16 and in 32 bits: 12 GB and
# their activations of 70 (CodeBuild user guide, "Build environment compute modes and types").
QUANTIZER_ROUTE = BuildRoute(
    name=QUANTIZER,
    construct_id="Quantizer",
    image=QUANTIZER_IMAGE,
    compute_type=codebuild.ComputeType.X_LARGE,
)


def build_routes(environment: EnvironmentSpec, platform: ServingPlatform) -> tuple[BuildRoute, ...]:
    """The routes that have a project.

    Those of GPUs need TensorRT, and CodeBuild's GPUs or a fleet.
    """
    if platform.tensorrt is None:
        return (CPU,)
    on_demand = (CPU, GPU) if environment.has_codebuild_gpu else (CPU,)
    if environment.gpu_fleet_arn is None:
        return on_demand
    # Machine and type are the fleet's; CodeBuild asks for both, and takes neither.
    fleet = replace(GPU, name="fleet", construct_id="Fleet", fleet_arn=environment.gpu_fleet_arn)
    return (*on_demand, fleet)


def training_image(platform: ServingPlatform) -> str:
    """The image of training jobs: what compiles for a GPU, wherever there is TensorRT."""
    return CPU.image if platform.tensorrt is None else GPU.image
