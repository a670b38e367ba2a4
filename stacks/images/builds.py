"""How each container image is built: its Dockerfile, the image it starts from, and its build
arguments.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from onboarding import names
from onboarding.deployment import Deployment
from onboarding.environment_spec import EnvironmentSpec
from onboarding.platform import ServingPlatform, registry_host, triton_registries
from stacks.images.serving import serving_images
from stacks.images.tag import FROM_PLATFORM, PYTHON_IMAGE

DOCKERFILES: Mapping[str, str] = {
    "python-server": "container/Dockerfile.server",
    "python-server-gpu": "container/Dockerfile.server_gpu",
    "triton": "container/triton/Dockerfile",
    "builder-cpu": "engine_build/image/cpu/Dockerfile",
    "builder-gpu": "engine_build/image/gpu/Dockerfile",
}
"""Of every image; the build context is the repository's root."""

TORCH_INDEX = "https://download.pytorch.org/whl/cpu"
"""PyTorch's own index of CPU builds."""
NVIDIA_IMAGE = "nvcr.io/nvidia/tritonserver"
"""NVIDIA's Triton image, public, with SageMaker's `serve` inside."""
AWS_TRITON_REPOSITORY = "sagemaker-tritonserver"

_HAS_TORCH = ("builder-cpu", "builder-gpu")
_HAS_BINDINGS = ("python-server-gpu", "builder-gpu")


@dataclass(frozen=True, kw_only=True)
class ImageOrder:
    """One image to be built and pushed; `arguments` become `--build-arg`."""

    image: str
    repository: str
    tag: str
    uri: str
    dockerfile: str
    arguments: Mapping[str, str]

    def as_dict(self) -> dict[str, Any]:
        """The order as plain JSON."""
        return asdict(self)


def base_image(platform: ServingPlatform) -> str:
    """What the platform's images start from, the same in every region: AWS's Triton image, or
    NVIDIA's where AWS has none yet.
    """
    return (
        f"{NVIDIA_IMAGE}:{platform.triton}-py3"
        if platform.base_image is None
        else platform.base_image
    )


def base_image_uri(environment: EnvironmentSpec, platform: ServingPlatform) -> str:
    """Where that image is pulled from. Raises KeyError in a region whose registry is unknown."""
    if platform.base_image is None:
        return base_image(platform)
    return f"{triton_registry(environment)}/{platform.base_image}"


def triton_registry(environment: EnvironmentSpec) -> str:
    """The registry of AWS's Triton image for the environment's region.

    Raises KeyError where it is unknown.
    """
    return registry(triton_registries()[environment.region], environment.region)


def registry(account: str, region: str) -> str:
    """Host of an account's private registry."""
    return registry_host(account, region)


def needed_images(platform: ServingPlatform, deployments: Iterable[Deployment]) -> tuple[str, ...]:
    """The images that serve these deployments and build their engines; a project's own image for
    CPUs is always one.
    """
    found = {"builder-cpu"}
    for deployment in deployments:
        found.update(serving_images(deployment))
        if platform.tensorrt is not None and any(
            target.instance_type.is_gpu for target in deployment.targets
        ):
            found.add("builder-gpu")
    return tuple(sorted(found))


def image_orders(
    environment: EnvironmentSpec,
    platform: ServingPlatform,
    images: Iterable[str],
    tags: Mapping[str, str],
) -> tuple[ImageOrder, ...]:
    """The order of each image, under its content's tag."""
    return tuple(
        ImageOrder(
            image=image,
            repository=names.repository(environment, image),
            tag=tags[image],
            uri=names.image_uri(environment, image, tags[image]),
            dockerfile=DOCKERFILES[image],
            arguments=build_arguments(environment, platform, image),
        )
        for image in images
    )


def build_arguments(
    environment: EnvironmentSpec, platform: ServingPlatform, image: str
) -> dict[str, str]:
    """Values of the Dockerfile's arguments.

    Raises ValueError for an image of a GPU on a platform without TensorRT.
    """
    if image in FROM_PLATFORM:
        arguments = {"TRITON_IMAGE": base_image_uri(environment, platform)}
    else:
        arguments = {"BASE_IMAGE": PYTHON_IMAGE}
    if image in _HAS_BINDINGS:
        if platform.tensorrt is None:
            raise ValueError(f"platform {platform.name} has no TensorRT for the image {image}")
        arguments["TENSORRT"] = platform.tensorrt
    if image in _HAS_TORCH:
        arguments["TORCH_INDEX"] = TORCH_INDEX
    return arguments
