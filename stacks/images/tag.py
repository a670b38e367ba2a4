"""Image tags that derive from what an image holds: its sources, its locked requirements, its base
image.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path

TAG_LENGTH = 20

_ENGINE_PASSPORT = ("onboarding/__init__.py", "onboarding/manifest.py", "onboarding/values.py")

# Of our code a builder image holds a training job's entry alone: a build brings its own source, so
# that changing engine_build
# needs no new image.
_TRAINING_ENTRY = ("engine_build/training_job.py", "engine_build/image/train")

_SERVER = (
    "container/__init__.py",
    "container/archive.py",
    "container/server/**/*",
    "container/tensorrt/**/*",
    *_ENGINE_PASSPORT,
    "requirements/server.txt",
)

IMAGE_CONTENTS: Mapping[str, tuple[str, ...]] = {
    "python-server": ("container/Dockerfile.server", *_SERVER),
    "python-server-gpu": (
        "container/Dockerfile.server_gpu",
        *_SERVER,
        "requirements/bindings-*.txt",
    ),
    "triton": ("container/triton/Dockerfile", "requirements/server.txt"),
    "builder-cpu": ("engine_build/image/cpu/**/*", "requirements/builder.txt", *_TRAINING_ENTRY),
    "builder-gpu": (
        "engine_build/image/gpu/**/*",
        "requirements/builder.txt",
        "requirements/bindings-*.txt",
        *_TRAINING_ENTRY,
    ),
}
"""Every image, and the patterns of its Dockerfile and of the repository's files that this copies: a
build of the image brings no
other file, and its tag is their digest."""

FROM_PLATFORM = frozenset({"triton", "python-server-gpu", "builder-gpu"})
"""Images that start from the serving platform's base image: what compiles an engine is what serves
it.
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
    """Digest of an image's files, paths included, and its base image; the order of the files does
    not matter.
    """
    digest = hashlib.sha256(repr(base_image).encode())
    for path in sorted(files):
        digest.update(f"\n{path} {hashlib.sha256(files[path]).hexdigest()}".encode())
    return digest.hexdigest()[:TAG_LENGTH]


def image_tags(files: Mapping[str, Mapping[str, bytes]], base_image: str) -> dict[str, str]:
    """The tag of every image on one serving platform, whose images start from `base_image`."""
    return {
        image: image_tag(held, base_image if image in FROM_PLATFORM else PYTHON_IMAGE)
        for image, held in files.items()
    }


def _files(repository: Path, patterns: tuple[str, ...]) -> Iterator[Path]:
    for pattern in patterns:
        for path in repository.glob(pattern):
            if path.is_file() and "__pycache__" not in path.parts:
                yield path
