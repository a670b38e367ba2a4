"""What an image URI says of the CUDA that is inside, and of the driver that it needs."""

import re
from dataclasses import dataclass

from onboarding.platform import host_images, serving_platforms, triton_registries
from onboarding.text_generation.platforms import generation_platforms

URI = re.compile(
    r"(?P<account>\d{12})\.dkr\.ecr\.[\w-]+\.amazonaws\.com(\.cn)?/(?P<repository>[^:@]+)(:(?P<tag>[^@]+))?(?P<digest>@.+)?"
)
CUDA_TAG = re.compile(r"cu(?P<major>\d\d)(?P<minor>\d)(?!\d)")
TRITON_CUDA = {
    "24.09": "12.6",
    "25.04": "12.9",
    "25.09": "13.0",
    "25.10": "13.0",
    "25.12": "13.1",
    "26.03": "13.2",
    "26.07": "13.3",
    "26.08": "13.3",
    "26.09": "13.4",
    "26.10": "13.4",
}
"""CUDA of Triton releases that are no serving platform of ours.

Source: Triton docs/introduction/compatibility.md.
"""
DRIVERS = {11: 450, 12: 525, 13: 580}
"""The oldest driver that runs each major release of CUDA.

Source: NVIDIA CUDA compatibility guide.
"""
DEFAULT_DRIVERS = {
    "g4dn": 470,
    "g5": 470,
    "p4d": 470,
    "p4de": 470,
    "g6": 535,
    "p5": 535,
    "p5e": 550,
    "p5en": 550,
}
"""Driver of a hosting type whose variant names no AMI.

Source: SageMaker docs inference-gpu-drivers, which name no others.
"""


@dataclass(frozen=True, kw_only=True)
class ImageName:
    """The parts of an ECR image URI."""

    account: str
    repository: str
    tag: str | None
    digest: str | None

    @property
    def is_aws(self) -> bool:
        """True for AWS's own registry of deep learning images."""
        return self.account in set(triton_registries().values())


def image_name(uri: str) -> ImageName | None:
    """The parts of an ECR image URI; None for another."""
    match = URI.fullmatch(uri)
    if match is None:
        return None
    return ImageName(
        account=match["account"],
        repository=match["repository"],
        tag=match["tag"],
        digest=match["digest"],
    )


def cuda_of(uri: str, platform: str | None) -> str | None:
    """Return the CUDA of an image by its platform, Triton release or tag; None is unknown."""
    known = serving_platforms().get(platform or "") or generation_platforms().get(platform or "")
    if known is not None:
        return known.cuda
    name = image_name(uri)
    tag = "" if name is None or name.tag is None else name.tag
    if name is not None and "tritonserver" in name.repository:
        release = tag.split("-", 1)[0]
        by_release = {
            row.triton: row.cuda for row in serving_platforms().values() if row.cuda is not None
        }
        return {**TRITON_CUDA, **by_release}.get(release)
    match = CUDA_TAG.search(tag)
    return None if match is None else f"{match['major']}.{match['minor']}"


def driver_of(instance_type: str, ami: str | None) -> int | None:
    """The NVIDIA driver of a host; None is unknown."""
    if ami is not None:
        image = host_images().get(ami)
        return None if image is None else image.driver
    return DEFAULT_DRIVERS.get(instance_type.split(".")[1] if instance_type.count(".") > 1 else "")


def driver_needed(cuda: str) -> int | None:
    """The oldest driver that runs a CUDA release; None is unknown."""
    return DRIVERS.get(int(cuda.split(".")[0]))
