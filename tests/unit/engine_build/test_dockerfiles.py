"""The builder images, as far as they can be judged without Docker: what they copy, pin and run."""

from __future__ import annotations

import fnmatch
import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from onboarding.platform import serving_platforms
from stacks.images import IMAGE_CONTENTS
from tests.locked_requirements import _pinned

ROOT = Path(__file__).parents[3]
IMAGES = {
    "builder-cpu": ROOT / "engine_build/image/cpu/Dockerfile",
    "builder-gpu": ROOT / "engine_build/image/gpu/Dockerfile",
}
TENSORRT = sorted(
    {
        platform.tensorrt
        for platform in serving_platforms().values()
        if platform.tensorrt is not None
    }
)
every_image = pytest.mark.parametrize("image", IMAGES)


def instructions(path: Path) -> list[tuple[str, str]]:
    """(keyword, rest) of every instruction, its lines joined."""
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [
        (keyword, rest)
        for keyword, _, rest in (line.partition(" ") for line in joined.splitlines() if line)
    ]


def rests(image: str, keyword: str) -> list[str]:
    """What follows one keyword, wherever it stands."""
    return [rest for found, rest in instructions(IMAGES[image]) if found == keyword]


def copied(image: str, tensorrt: str = TENSORRT[0]) -> list[str]:
    """Files of the repository that an image takes."""
    words = [shlex.split(rest.replace("${TENSORRT}", tensorrt)) for rest in rests(image, "COPY")]
    return [word for line in words for word in line[:-1] if not word.startswith("--")]


def installed(image: str) -> list[str]:
    """The words of the one instruction that installs locked requirements."""
    found: list[list[str]] = [
        json.loads(rest)
        for rest in rests(image, "RUN")
        if rest.startswith("[") and '"install"' in rest
    ]
    assert len(found) == 1
    return found[0]


def is_sent(path: str) -> bool:
    """Whether .dockerignore lets a path into the build context."""
    lines = [
        line
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line and not line.startswith("#")
    ]
    sent = True
    for line in lines:
        pattern = line.removeprefix("!").removeprefix("**/")
        if any(fnmatch.fnmatch(part, pattern) for part in (path, *Path(path).parts)):
            sent = line.startswith("!")
    return sent


@every_image
@pytest.mark.parametrize("tensorrt", TENSORRT)
def test_what_an_image_copies_is_there_and_is_sent(image, tensorrt):
    found = copied(image, tensorrt)
    assert len(found) >= 3
    assert [path for path in found if not (ROOT / path).is_file()] == []
    assert [path for path in found if not is_sent(path)] == []


@every_image
def test_whatever_changes_an_image_changes_its_tag(image):
    held = {path for pattern in IMAGE_CONTENTS[image] for path in ROOT.glob(pattern)}
    assert {IMAGES[image], *(ROOT / path for path in copied(image))} <= held


def test_context_leaves_out_what_no_image_needs():
    assert not any(
        map(
            is_sent,
            (
                ".git/config",
                ".venv/bin/python",
                "build/x",
                "engine_build/__pycache__/x.pyc",
                "tests/tiers.py",
            ),
        )
    )


@every_image
def test_requirements_are_hashed_wheels(image):
    words = installed(image)
    assert {"--require-hashes", "--only-binary=:all:"} <= set(words)
    named = [Path(words[place + 1]).name for place, word in enumerate(words) if word == "-r"]
    assert named == ["builder.txt", "bindings.txt"][: len(named)]


def test_torch_is_the_one_that_builds_are_tested_with():
    recipes = (ROOT / "roundhouse/dev/recipes.py").read_text()
    version = re.search(r'TORCH = "torch==([^"]+)"', recipes)
    assert version is not None
    assert [
        rest for image in IMAGES for rest in rests(image, "ARG") if rest.startswith("TORCH=")
    ] == [f"TORCH={version[1]}"] * 2


def test_gpu_builder_starts_from_the_serving_image():
    serving = instructions(ROOT / "container/triton/Dockerfile")
    assert (
        instructions(IMAGES["builder-gpu"])[:2]
        == serving[:2]
        == [("ARG", "TRITON_IMAGE"), ("FROM", "${TRITON_IMAGE}")]
    )


@pytest.mark.parametrize("tensorrt", TENSORRT)
def test_every_tensorrt_that_serves_has_locked_bindings_of_that_build(tensorrt):
    text = (ROOT / f"requirements/bindings-{tensorrt}.txt").read_text()
    assert re.search(
        rf"^tensorrt-cu13-bindings=={re.escape(tensorrt)}(\.\d+)* ", text, re.MULTILINE
    )


@pytest.mark.parametrize("tensorrt", TENSORRT)
def test_locks_of_one_image_name_no_package_twice(tensorrt):
    locks = [
        (ROOT / "requirements" / name).read_text()
        for name in ("builder.txt", f"bindings-{tensorrt}.txt")
    ]
    assert _pinned(locks[0]) & _pinned(locks[1]) == set()


@every_image
def test_one_image_serves_builds_and_training_jobs(image):
    keywords = {keyword for keyword, _ in instructions(IMAGES[image])}
    # CodeBuild ignores an entry point; SageMaker runs the program `train` of an image that has
    # none; both want root.
    assert keywords.isdisjoint({"ENTRYPOINT", "CMD", "USER"})
    targets = {shlex.split(rest)[-2]: shlex.split(rest)[-1] for rest in rests(image, "COPY")}
    assert targets["engine_build/image/train"] == "/usr/local/bin/"
    assert targets["engine_build/training_job.py"] == "/opt/roundhouse/"


def test_train_becomes_the_training_jobs_entry(tmp_path):
    (tmp_path / "python3").write_text('#!/bin/sh\necho "$$ $@"\n')
    (tmp_path / "python3").chmod(0o755)
    command = ("/bin/sh", str(ROOT / "engine_build/image/train"), "train")
    process = subprocess.Popen(
        command, env={"PATH": str(tmp_path)}, stdout=subprocess.PIPE, text=True
    )
    said, _ = process.communicate(timeout=60)
    # The same process: what SageMaker signals is Python, not a shell.
    assert said == f"{process.pid} /opt/roundhouse/training_job.py\n"


@pytest.mark.parametrize("path", ["tests/tiers.py", "roundhouse/cli/app.py"])
def test_refuses_files_outside_the_context(path):
    assert (ROOT / path).is_file() and not is_sent(path)


def test_gpu_builder_looks_for_trtexec_where_nvidias_images_have_it():
    (environment,) = rests("builder-gpu", "ENV")
    (path,) = [
        word.removeprefix("PATH=") for word in shlex.split(environment) if word.startswith("PATH=")
    ]
    assert path.split(":") == ["/usr/src/tensorrt/bin", "/opt/tensorrt/bin", "${PATH}"]
