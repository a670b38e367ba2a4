"""How each container image is built.

Its Dockerfile, the image it starts from, and its build arguments.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from onboarding import names
from onboarding.deployment import Deployment, Pool, Target
from onboarding.environment_spec import EnvironmentSpec, ImagePinSpec
from onboarding.platform import ServingPlatform, registry_host, triton_registries
from onboarding.text_generation.checkpoint_key import QUANTIZER_IMAGE
from onboarding.text_generation.generation_deployment import GenerationDeployment
from onboarding.text_generation.platforms import GenerationPlatform, generation_platforms
from onboarding.values import BASELINE_RUNTIMES, Server
from stacks.image_contents import IMAGE_CONTENTS

DOCKERFILES: Mapping[str, str] = {
    image: next(path for path in paths if "Dockerfile" in path)
    for image, paths in IMAGE_CONTENTS.items()
}
"""Of every image; the build context is the repository's root."""


TORCH_INDEX = "https://download.pytorch.org/whl/cpu"
"""PyTorch's own index of CPU builds."""
NVIDIA_IMAGE = "nvcr.io/nvidia/tritonserver"
"""NVIDIA's Triton image, public, with SageMaker's `serve` inside."""
AWS_TRITON_REPOSITORY = "sagemaker-tritonserver"
GENERATION_IMAGE, AWS_VLLM_REPOSITORY = "vllm-server", "vllm"
"""Serves text generators, and the repository of AWS's images that it starts from."""

_HAS_CPU_TORCH = ("python-server-baseline", "builder-cpu", "builder-gpu")
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
    """What the platform's images start from, the same in every region.

    AWS's Triton image, or NVIDIA's where AWS has none yet.
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
    return registry_host(triton_registries()[environment.region], environment.region)


def generation_image(platform: GenerationPlatform) -> str:
    """The key of the image of a generation platform, among tags and URIs of images."""
    return f"{GENERATION_IMAGE}:{platform.name}"


def needed_images(
    platform: ServingPlatform,
    deployments: Iterable[Deployment],
    generators: Iterable[GenerationDeployment] = (),
) -> tuple[str, ...]:
    """The images of the code that serve these deployments and build their engines.

    A project's own image for CPUs is always one; what is pinned is of another version.
    """
    found = {"builder-cpu"}
    for generator in generators:
        found.update((generation_image(generator.platform), QUANTIZER_IMAGE))
    for deployment in deployments:
        found.update(set(serving_images(deployment)) - pinned_images([deployment]).keys())
        if platform.tensorrt is not None and any(
            target.build_capability != "cpu" for target in deployment.built_targets
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
            image=_name(image),
            repository=names.repository(environment, _name(image)),
            tag=tags[image],
            uri=names.image_uri(environment, _name(image), tags[image]),
            dockerfile=DOCKERFILES[_name(image)],
            arguments=build_arguments(environment, platform, image),
        )
        for image in images
    )


def image_uris(environment: EnvironmentSpec, tags: Mapping[str, str]) -> dict[str, str]:
    """Where an environment's registry has each image, by the key of its tag."""
    return {image: names.image_uri(environment, _name(image), tag) for image, tag in tags.items()}


def _name(image: str) -> str:
    """The name of an image, which is that of its repository, by the key of its tag."""
    return image.partition(":")[0]


def endpoint_image_uri(deployment: Deployment, image: str, uris: Mapping[str, str]) -> str:
    """The image that an endpoint runs: the one its environment pins, else that of `uris`."""
    pin = deployment.environment.images.pin(image, deployment.name)
    if pin is None:
        return uris[image]
    return names.image_uri(deployment.environment, image, pin.tag, pin.digest)


def pinned_images(deployments: Iterable[Deployment]) -> dict[str, ImagePinSpec]:
    """The pinned images that these endpoints run, by image; all are of one environment."""
    return {
        image: pin
        for deployment in deployments
        for image in serving_images(deployment)
        if (pin := deployment.environment.images.pin(image, deployment.name)) is not None
    }


def build_arguments(
    environment: EnvironmentSpec, platform: ServingPlatform, image: str
) -> dict[str, str]:
    """Values of the Dockerfile's arguments.

    Raises ValueError for an image of a GPU on a platform without TensorRT.
    """
    if _name(image) == GENERATION_IMAGE:
        base = generation_platforms()[image.partition(":")[2]].image
        return {"VLLM_IMAGE": f"{triton_registry(environment)}/{base}"}
    if image in FROM_PLATFORM:
        arguments = {"TRITON_IMAGE": base_image_uri(environment, platform)}
    else:
        arguments = {"BASE_IMAGE": PYTHON_IMAGE}
    if image in _HAS_BINDINGS:
        if platform.tensorrt is None:
            raise ValueError(f"platform {platform.name} has no TensorRT for the image {image}")
        arguments["TENSORRT"] = platform.tensorrt
    if image in _HAS_CPU_TORCH:
        arguments |= {"TORCH": "cpu", "TORCH_INDEX": TORCH_INDEX}
    return arguments


def serving_image(server: Server, pool: Pool) -> str:
    """The name of the image that runs one instance type's engines."""
    if server == "triton":
        return "triton"
    suffix = "-baseline" if any(map(_needs_baseline_image, pool.targets)) else ""
    kind = "-gpu" if pool.instance_type.is_gpu else ""
    return f"python-server{kind}{suffix}"


def _needs_baseline_image(target: Target) -> bool:
    """ONNX Runtime on a CPU is in every image of the Python server."""
    return target.runtime in BASELINE_RUNTIMES


def serving_images(deployment: Deployment) -> tuple[str, ...]:
    """Every image of an endpoint, once: variants on a CPU and on a GPU may run different ones."""
    return tuple(
        dict.fromkeys(
            serving_image(variant.server, pool)
            for variant in deployment.variants
            for pool in variant.pools
        )
    )


TAG_LENGTH = 20

FROM_PLATFORM = frozenset(
    {"triton", "python-server-gpu", "python-server-gpu-baseline", "builder-gpu"}
)
"""Images that start from the serving platform's base image.

What compiles an engine is what serves it.
"""


PYTHON_IMAGE = "public.ecr.aws/docker/library/python:3.11-slim-bookworm"
"""What the others start from.

Docker Hub has the same, but counts anonymous pulls per address, and CodeBuild's are shared.
"""


def read_image_files(repository: Path) -> dict[str, dict[str, bytes]]:
    """The files of every image, by path relative to the repository."""
    return {
        image: {
            path.relative_to(repository).as_posix(): path.read_bytes()
            for path in _files(repository, patterns)
        }
        for image, patterns in IMAGE_CONTENTS.items()
    }


def image_tag(files: Mapping[str, bytes], base_image: str) -> str:
    """Digest of an image's files, paths included, and its base image.

    The order of the files does not matter.
    """
    digest = hashlib.sha256(repr(base_image).encode())
    for path in sorted(files):
        digest.update(f"\n{path} {hashlib.sha256(files[path]).hexdigest()}".encode())
    return digest.hexdigest()[:TAG_LENGTH]


def image_tags(files: Mapping[str, Mapping[str, bytes]], base_image: str) -> dict[str, str]:
    """The tag of every image on one serving platform, whose images start from `base_image`.

    That of text generators has one for each generation platform.
    """
    tags = {
        image: image_tag(held, base_image if image in FROM_PLATFORM else PYTHON_IMAGE)
        for image, held in files.items()
        if image != GENERATION_IMAGE
    }
    own = files.get(GENERATION_IMAGE, {})
    rows = generation_platforms().values()
    return tags | {generation_image(row): image_tag(own, row.image) for row in rows}


def _files(repository: Path, patterns: tuple[str, ...]) -> Iterator[Path]:
    for pattern in patterns:
        for path in repository.glob(pattern):
            if path.is_file() and "__pycache__" not in path.parts:
                yield path
