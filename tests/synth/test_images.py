"""The image project.

One that owns a Docker daemon, and may do nothing but read sources and push the environment's
images.
"""

from __future__ import annotations

import re
import shlex

import pytest

from onboarding.platform import serving_platforms
from onboarding.text_generation.platforms import generation_platforms
from stacks.images import (
    DOCKERFILES,
    GENERATION_IMAGE,
    build_arguments,
    generation_image,
    needed_images,
    read_image_files,
)
from tests.synth.deployments import ROOT, environment, locked

pytestmark = pytest.mark.synth


@pytest.mark.parametrize("image", DOCKERFILES)
def test_every_argument_of_a_dockerfile_without_a_default_is_given(image):
    """And no argument is given that its Dockerfile does not ask for."""
    lines = [
        line.split()[1]
        for line in (ROOT / DOCKERFILES[image]).read_text().splitlines()
        if line.startswith("ARG ")
    ]
    needed = {line for line in lines if "=" not in line}
    row = generation_platforms()["vllm-0.30.0"]
    key = generation_image(row) if image == GENERATION_IMAGE else image
    given = set(build_arguments(environment("dev"), serving_platforms()["triton-26.05"], key))
    assert needed <= given <= {line.split("=")[0] for line in lines}


def copied(dockerfile: str, tensorrt: str) -> list[str]:
    """What a Dockerfile copies out of its build context."""
    text = re.sub(r"\\\n\s*", "", dockerfile).replace("${TENSORRT}", tensorrt)
    text = text.replace("${TORCH}", "cpu")
    lines = [
        [word for word in shlex.split(line)[1:] if not word.startswith("--")]
        for line in text.splitlines()
        if "COPY" in line[:4] and "--from=" not in line
    ]
    return [source for *sources, _ in lines for source in sources]


@pytest.mark.parametrize("image", DOCKERFILES)
def test_an_image_that_is_built_alone_brings_what_its_dockerfile_copies(image):
    """And nothing else: each file more would change the tag, and every endpoint, for nothing."""
    held, dockerfile = read_image_files(ROOT)[image], DOCKERFILES[image]
    text = held[dockerfile].decode()
    builds = {platform.tensorrt for platform in serving_platforms().values()} - {None}
    sources = {source for tensorrt in builds for source in copied(text, tensorrt)}
    of = {
        source: {path for path in held if f"{path}/".startswith(f"{source}/")} for source in sources
    }
    assert sources and [source for source, paths in of.items() if not paths] == []
    more = set(held).difference({dockerfile}, *of.values())
    assert [path for path in more if not path.startswith("requirements/bindings-")] == []


def test_a_cpu_environment_needs_no_gpu_builder():
    assert needed_images(serving_platforms()["triton-24.10-cpu"], locked("local")) == (
        "builder-cpu",
        "python-server",
        "triton",
    )
