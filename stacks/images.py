"""How each container image is built: its files, the image it starts from, its build arguments."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from onboarding import names
from onboarding.deployment import Deployment, Pool
from onboarding.environment_spec import PLATFORM_IMAGES, EnvironmentSpec, ImagePinSpec
from onboarding.platform import ServingPlatform, registry_host, triton_registries
from onboarding.text_generation.checkpoint_key import QUANTIZER_IMAGE
from onboarding.text_generation.generation_deployment import GenerationDeployment
from onboarding.text_generation.platforms import GenerationPlatform, generation_platforms
from onboarding.values import BASELINE_RUNTIMES, Server

DOCKERFILES: Mapping[str, str] = {
    "python-server": "container/Dockerfile.server",
    "python-server-gpu": "container/Dockerfile.server_gpu",
    "python-server-baseline": "container/Dockerfile.server_baseline",
    "python-server-gpu-baseline": "container/Dockerfile.server_gpu_baseline",
    "triton": "container/triton/Dockerfile",
    "vllm-server": "container/Dockerfile.vllm",
    # Of our code a builder image holds a training job's entry alone: a build brings its own source,
    # so that changing engine_build needs no new image.
    "builder-cpu": "engine_build/image/cpu/Dockerfile",
    "builder-gpu": "engine_build/image/gpu/Dockerfile",
    QUANTIZER_IMAGE: "engine_build/image/quantizer/Dockerfile",
}
"""Of every image; the build context is the repository's root."""
IMAGE_FOLDERS = ("container", "engine_build", "onboarding", "requirements")
"""Of the repository: they hold what images copy."""
GENERATION_IMAGE = "vllm-server"
"""Serves text generators."""
TAG_LENGTH = 20
FROM_PLATFORM: frozenset[str] = frozenset({*PLATFORM_IMAGES, "builder-gpu"})
"""Images that start from the serving platform's base image.

What compiles an engine is what serves it.
"""
PYTHON_IMAGE = "public.ecr.aws/docker/library/python:3.11-slim-bookworm"
"""What the others start from.

Docker Hub has the same, but counts anonymous pulls per address, and CodeBuild's are shared.
"""


@dataclass(frozen=True, kw_only=True)
class ImageOrder:
    """One image to be built and pushed; `arguments` become `--build-arg`."""

    image: str
    repository: str
    tag: str
    uri: str
    dockerfile: str
    arguments: Mapping[str, str]


def base_image(platform: ServingPlatform) -> str:
    """What the platform's images start from, the same in every region.

    AWS's Triton image, or where AWS has none yet NVIDIA's, public, with SageMaker's `serve` inside.
    """
    public = f"nvcr.io/nvidia/tritonserver:{platform.triton}-py3"
    return public if platform.base_image is None else platform.base_image


def base_repositories(platform: ServingPlatform) -> tuple[str, ...]:
    """Return the repositories of AWS's registry that the platform's images start from."""
    bases = (platform.base_image, *(row.image for row in generation_platforms().values()))
    return tuple(dict.fromkeys(base.partition(":")[0] for base in bases if base is not None))


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

    Raises ValueError for an image of a GPU on a platform without TensorRT, and KeyError where it
    starts from AWS's images and the region's registry of these is unknown.
    """

    def of_aws(base: str) -> str:
        region = environment.region
        return f"{registry_host(triton_registries()[region], region)}/{base}"

    if _name(image) == GENERATION_IMAGE:
        return {"VLLM_IMAGE": of_aws(generation_platforms()[image.partition(":")[2]].image)}
    arguments = {"BASE_IMAGE": PYTHON_IMAGE}
    if image in FROM_PLATFORM:
        base = base_image(platform)
        arguments = {"TRITON_IMAGE": base if platform.base_image is None else of_aws(base)}
    if image in ("python-server-gpu", "builder-gpu"):
        if platform.tensorrt is None:
            raise ValueError(f"platform {platform.name} has no TensorRT for the image {image}")
        arguments["TENSORRT"] = platform.tensorrt
    if image in ("python-server-baseline", "builder-cpu", "builder-gpu"):
        # PyTorch's own index of CPU builds.
        arguments |= {"TORCH": "cpu", "TORCH_INDEX": "https://download.pytorch.org/whl/cpu"}
    return arguments


def serving_image(server: Server, pool: Pool) -> str:
    """The name of the image that runs one instance type's engines."""
    if server == "triton":
        return "triton"
    is_baseline = any(target.runtime in BASELINE_RUNTIMES for target in pool.targets)
    kind = "-gpu" if pool.instance_type.is_gpu else ""
    return f"python-server{kind}{'-baseline' if is_baseline else ''}"


def serving_images(deployment: Deployment) -> tuple[str, ...]:
    """Every image of an endpoint, once: variants on a CPU and on a GPU may run different ones."""
    return tuple(
        dict.fromkeys(
            serving_image(variant.server, pool)
            for variant in deployment.variants
            for pool in variant.pools
        )
    )


def read_image_files(repository: Path) -> dict[str, dict[str, bytes]]:
    """The files of every image, by path relative to the repository.

    They are its Dockerfile and what that copies, with the bindings of every TensorRT: a build of
    the image brings no other file, and its tag is their digest.
    """
    return {
        image: {
            path.relative_to(repository).as_posix(): path.read_bytes()
            for pattern in (dockerfile, *_copied(repository / dockerfile))
            for given in repository.glob(pattern)
            for path in (given, *given.rglob("*"))
            if path.is_file() and "__pycache__" not in path.parts
        }
        for image, dockerfile in DOCKERFILES.items()
    }


def _copied(dockerfile: Path) -> Iterator[str]:
    """Yield the patterns of what a Dockerfile copies out of its build context; none without it."""
    text = dockerfile.read_text(encoding="utf-8") if dockerfile.is_file() else ""
    for line in text.replace("\\\n", "").splitlines():
        command, *words = line.split() or [""]
        if command == "COPY" and not words[0].startswith("--from="):
            for word in words[:-1]:
                if not word.startswith("--"):
                    yield word.replace("${TENSORRT}", "*").replace("${TORCH}", "cpu")


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
