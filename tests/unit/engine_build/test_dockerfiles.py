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
from onboarding.text_generation.platforms import generation_platforms
from onboarding.values import is_same_build
from stacks.image_contents import IMAGE_CONTENTS
from tests.locked_requirements import _pinned

ROOT = Path(__file__).parents[3]
IMAGES = {
    "builder-cpu": ROOT / "engine_build/image/cpu/Dockerfile",
    "builder-gpu": ROOT / "engine_build/image/gpu/Dockerfile",
}
VERSIONS = {platform.tensorrt for platform in serving_platforms().values()} - {None}
every_image = pytest.mark.parametrize("image", IMAGES)
every_tensorrt = pytest.mark.parametrize("tensorrt", sorted(VERSIONS))


def instructions(path: Path) -> list[tuple[str, str]]:
    """(keyword, rest) of every instruction, its lines joined."""
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    parts = [line.partition(" ") for line in joined.splitlines() if line]
    return [(keyword, rest) for keyword, _, rest in parts]


def rests(image: str, keyword: str) -> list[str]:
    """What follows one keyword, wherever it stands."""
    return [rest for name, rest in instructions(IMAGES[image]) if name == keyword]


def copied(image: str, tensorrt: str) -> list[str]:
    """Files of the repository that an image takes."""
    known = {"${TENSORRT}": tensorrt, "${TORCH}": "cpu"}
    text = "\n".join(rests(image, "COPY"))
    for argument, value in known.items():
        text = text.replace(argument, value)
    words = [shlex.split(line) for line in text.splitlines()]
    return [word for line in words for word in line[:-1] if not word.startswith("--")]


def is_sent(path: str) -> bool:
    """Whether .dockerignore lets a path into the build context."""
    sent = True
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        pattern = line.removeprefix("!").removeprefix("**/")
        if line.startswith("#") or not line:
            continue
        if any(fnmatch.fnmatch(part, pattern) for part in (path, *Path(path).parts)):
            sent = line.startswith("!")
    return sent


@every_image
@every_tensorrt
def test_what_an_image_copies_is_there_and_is_sent_and_changes_its_tag(image, tensorrt):
    paths = copied(image, tensorrt)
    assert len(paths) >= 3
    assert [path for path in paths if not (ROOT / path).is_file() or not is_sent(path)] == []
    held = {path for pattern in IMAGE_CONTENTS[image] for path in ROOT.glob(pattern)}
    assert {IMAGES[image], *(ROOT / path for path in paths)} <= held


@pytest.mark.parametrize(
    "path",
    [
        ".git/config",
        ".venv/bin/python",
        "build/x",
        "engine_build/__pycache__/x.pyc",
        "tests/tiers.py",
        "roundhouse/cli/app.py",
    ],
)
def test_context_leaves_out_what_no_image_needs(path):
    assert not is_sent(path)


@every_image
def test_requirements_are_hashed_wheels(image):
    runs = [rest for rest in rests(image, "RUN") if rest.startswith("[") and '"install"' in rest]
    (words,) = (json.loads(rest) for rest in runs)
    assert {"--require-hashes", "--only-binary=:all:"} <= set(words)
    names = [Path(words[index + 1]).name for index, word in enumerate(words) if word == "-r"]
    assert names == ["builder.txt", "bindings.txt"][: len(names)]


def test_gpu_builder_starts_from_the_serving_image():
    serving = instructions(ROOT / "container/triton/Dockerfile")
    final = [rest for keyword, rest in serving if keyword == "FROM"][-1]
    expected = [("ARG", "TRITON_IMAGE"), ("FROM", "${TRITON_IMAGE}")]
    assert instructions(IMAGES["builder-gpu"])[:2] == [serving[0], ("FROM", final)] == expected


@every_tensorrt
def test_every_tensorrt_that_serves_has_locked_bindings_of_that_build(tensorrt):
    bindings = (ROOT / f"requirements/bindings-{tensorrt}.txt").read_text()
    found = re.search(r"^tensorrt-cu1[23]-bindings==([\d.]+) ", bindings, re.MULTILINE)
    assert found is not None and is_same_build(found[1], tensorrt)
    builder = (ROOT / "requirements/builder.txt").read_text()
    assert _pinned(builder) & _pinned(bindings) == set()


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
    path = {"PATH": str(tmp_path)}
    process = subprocess.Popen(command, env=path, stdout=subprocess.PIPE, text=True)
    output, _ = process.communicate(timeout=60)
    # The same process: what SageMaker signals is Python, not a shell.
    assert output == f"{process.pid} /opt/roundhouse/training_job.py\n"


def test_gpu_builder_looks_for_trtexec_where_nvidias_images_have_it():
    (environment,) = rests("builder-gpu", "ENV")
    variables = dict(word.split("=", 1) for word in shlex.split(environment))
    assert variables["PATH"] == "/usr/src/tensorrt/bin:/opt/tensorrt/bin:${PATH}"


def test_quantizers_image_measures_with_the_vllm_that_serves():
    path = ROOT / "engine_build/image/quantizer/Dockerfile"
    lines = [shlex.split(rest)[:-1] for keyword, rest in instructions(path) if keyword == "COPY"]
    copies = {word for line in lines for word in line if not word.startswith("--")}
    assert "requirements/vllm-gpu.txt" in copies
    assert copies <= set(IMAGE_CONTENTS["builder-quantizer"])
    assert ("ENV", "ROUNDHOUSE_VLLM_PYTHON=/opt/vllm/bin/python") in instructions(path)
    rows = [row for row in generation_platforms().values() if row.name.startswith("vllm-")]
    newest = max(filter(None, (row.engine_version for row in rows)))
    locks = {name: (ROOT / f"requirements/{name}.txt").read_text() for name in ("vllm-gpu", "vllm")}
    assert f"\nvllm=={newest} \\\n" in locks["vllm-gpu"]
    assert f"\nvllm-cpu=={newest} \\\n" in locks["vllm"]
