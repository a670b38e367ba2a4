"""A baseline beside the present engine: its image, its server's variables, its time to start."""

from __future__ import annotations

from dataclasses import replace

import pytest

from onboarding.platform import instance_types, serving_platforms
from onboarding.resolve import deployments
from stacks.capacity.engine import engine_capacity
from stacks.images import (
    DOCKERFILES,
    build_arguments,
    needed_images,
    serving_image,
    serving_images,
)
from stacks.rollout import COMPILING_SECONDS, variant_timeouts
from tests.synth.deployments import environment, with_locks
from tests.unit.onboarding.test_deployments import beside

CPU = instance_types()["ml.c7i.large"]


@pytest.fixture
def deployment(tmp_path):
    (one,) = deployments(beside(tmp_path, "pytorch-compile"), "cloud", only=["example"])
    return one


def test_variants_run_the_images_of_their_runtimes(deployment):
    assert serving_images(deployment) == ("triton", "python-server-gpu-baseline")
    rival = deployment.variants[1]
    on_cpu = replace(
        rival.pools[0],
        instance_type=CPU,
        targets=tuple(replace(item, instance_type=CPU) for item in rival.targets),
    )
    assert serving_image("python", on_cpu) == "python-server-baseline"


def test_plans_alone_need_the_gpu_builders_image(deployment):
    platform = serving_platforms()["triton-26.05"]
    alone = replace(deployment, variants=deployment.variants[1:])
    assert "builder-gpu" in needed_images(platform, [deployment])
    assert needed_images(platform, [alone]) == ("builder-cpu", "python-server-gpu-baseline")


@pytest.mark.parametrize(
    ("image", "argument"),
    [("python-server-baseline", "TORCH_INDEX"), ("python-server-gpu-baseline", "TRITON_IMAGE")],
)
def test_images_with_torch_start_from_python_and_from_the_platform(image, argument):
    arguments = build_arguments(environment("dev"), serving_platforms()["triton-26.05"], image)
    assert argument in arguments
    assert image in DOCKERFILES


def test_server_that_compiles_has_half_an_hour_to_start(deployment):
    own, rival = deployment.variants
    assert variant_timeouts(deployment, rival)[1] == COMPILING_SECONDS
    assert variant_timeouts(deployment, own)[1] < COMPILING_SECONDS


def test_benchmark_of_the_builders_cpu_gives_no_capacity_of_a_gpu(deployment):
    locked = with_locks(deployment)
    rival = locked.variants[1].targets[0]
    reason = engine_capacity(locked, rival)
    assert isinstance(reason, str)
    assert "was not timed by pytorch-compile; measure it on ml.g5.xlarge" in reason
