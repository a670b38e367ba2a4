"""The image project: missing images alone are built and pushed; a failure is one sentence."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from engine_build.image.images import ABSENT, MANIFEST, Ended, main

ROOT = Path(__file__).parents[3]
OWN = "111122223333.dkr.ecr.us-east-1.amazonaws.com"
AWS = "763104351884.dkr.ecr.us-east-1.amazonaws.com"
BASE = f"TRITON_IMAGE={AWS}/sagemaker-tritonserver:26.05-py3"


def order(image):
    repository = f"roundhouse-dev/{image}"
    name, _, base = BASE.partition("=")
    return {
        "image": image,
        "repository": repository,
        "tag": "abc",
        "uri": f"{OWN}/{repository}:abc",
        "dockerfile": f"{image}/Dockerfile",
        "arguments": {name: base, "TENSORRT": "10.16.1.11"},
    }


TRITON, SERVER = order("triton"), order("python-server")


@pytest.fixture
def orders(tmp_path):
    path = tmp_path / "images.json"
    document = {"region": "us-east-1", "registries": [OWN, AWS], "images": [TRITON, SERVER]}
    path.write_text(json.dumps(document))
    return path


class Tools:
    """Docker and the `aws` command in memory.

    `pushed` are the tags that ECR holds, `fails` maps first words to an output.
    """

    def __init__(self, *pushed, fails=None, kind=MANIFEST):
        self.pushed, self.fails, self.kind = {image["uri"] for image in pushed}, fails or {}, kind
        self.commands, self.inputs = [], []

    def __call__(self, command, text, quietly):
        self.commands.append(tuple(command))
        self.inputs.append(text)
        for words, output in self.fails.items():
            if " ".join(command).startswith(words):
                return Ended(1, output)
        if command[2] == "describe-images":
            uri = f"{OWN}/{command[command.index('--repository-name') + 1]}:abc"
            absent = Ended(254, f"An error occurred ({ABSENT}): none")
            return Ended(0, f"{self.kind}\n") if uri in self.pushed else absent
        if command[:2] == ("docker", "push"):
            self.pushed.add(command[2])
        return Ended(0, "secret" if "get-login-password" in command else "")

    def runs_of(self, *begin):
        return [command for command in self.commands if command[: len(begin)] == begin]


def run(orders, tools):
    out, err = io.StringIO(), io.StringIO()
    return main([str(orders)], tools, out, err), out.getvalue(), err.getvalue()


def test_missing_images_are_built_and_pushed_with_their_arguments(orders):
    tools = Tools(TRITON)
    assert run(orders, tools) == (0, "1 images built, 1 were there.\n", "")
    (build,) = tools.runs_of("docker", "buildx")
    files = f"--file python-server/Dockerfile --tag {SERVER['uri']}"
    assert " ".join(build[3:10]) == f"{files} --provenance=false --output type=docker"
    assert BASE in build and build[-1] == "."
    assert tools.runs_of("docker", "push") == [("docker", "push", SERVER["uri"])]


def test_both_registries_are_opened_and_the_password_is_no_argument(orders):
    tools = Tools()
    run(orders, tools)
    assert [command[-1] for command in tools.runs_of("docker", "login")] == [OWN, AWS]
    assert not any("secret" in word for command in tools.commands for word in command)
    assert tools.inputs.count("secret") == 2


def test_a_tag_that_another_build_pushed_meanwhile_is_as_good(orders):
    tools = Tools(TRITON, fails={"docker push": "tag invalid: it is immutable"})

    def faster(command, text, quietly):
        if command[:2] == ("docker", "push"):
            tools.pushed.add(command[2])
        return tools(command, text, quietly)

    assert run(orders, faster)[0] == 0


@pytest.mark.parametrize(
    ("words", "output", "sentence"),
    [
        (
            "docker buildx",
            "step 3\nno space left on device\n",
            "triton: docker build ended with 1: no space left on device.",
        ),
        (
            "docker push",
            "denied: no permission.",
            "triton: docker push ended with 1: denied: no permission.",
        ),
        ("docker login", "unauthorized", f"{OWN} lets nobody in: unauthorized."),
        ("aws ecr get-login-password", "expired", "ECR gives no password: expired."),
        ("aws ecr describe-images", "AccessDenied: no", "triton: ECR cannot be asked for"),
    ],
)
def test_refuses_with_one_sentence(orders, words, output, sentence):
    code, out, err = run(orders, Tools(fails={words: output}))
    assert (code, out) == (1, "")
    assert err.startswith(sentence) and err.count("\n") == 1


def test_refuses_an_image_that_sagemaker_would_refuse(orders):
    tools = Tools(TRITON, SERVER, kind="application/vnd.oci.image.manifest.v1+json")
    code, _, err = run(orders, tools)
    assert code == 1 and f"SageMaker takes {MANIFEST} only; delete that tag" in err


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"region": "r", "registries": []}'])
def test_refuses_what_is_no_list_of_images(tmp_path, text):
    path = tmp_path / "images.json"
    path.write_text(text)
    code, _, err = run(path, Tools())
    assert code == 1 and "is no list of images" in err and "Traceback" not in err


def test_the_buildspec_runs_the_program_with_real_processes(orders, tmp_path):
    """The command as CodeBuild runs it, with a `docker` and an `aws` that record their calls."""
    buildspec = yaml.safe_load((ROOT / "engine_build/image/buildspec.yml").read_text())
    (command,) = buildspec["phases"]["build"]["commands"]
    programs = tmp_path / "bin"
    programs.mkdir()
    image = f"test -e {tmp_path}/pushed && echo {MANIFEST} && exit 0; echo {ABSENT}; exit 254"
    aws = f'case "$*" in *describe-images*) {image};; esac\necho hush'
    cases = f"login) cat > {tmp_path}/password;; push) touch {tmp_path}/pushed;;"
    docker = f'echo "docker $*" >> {tmp_path}/calls; case "$1" in {cases} esac'
    for name, text in (("aws", aws), ("docker", docker)):
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o755)
    (programs / "python3").symlink_to(sys.executable)
    (tmp_path / "engine_build").symlink_to(ROOT / "engine_build")

    def codebuild():
        path = {"PATH": f"{programs}:/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"}
        return subprocess.run(
            command, shell=True, cwd=tmp_path, env=path, capture_output=True, text=True, check=False
        )

    ended = codebuild()
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.endswith("2 images built, 0 were there.\n") and "hush" not in ended.stdout
    assert (tmp_path / "password").read_text() == "hush\n"
    assert (tmp_path / "calls").read_text().count("docker push") == 2
    (programs / "docker").unlink()
    (tmp_path / "pushed").unlink()
    failed = codebuild()
    assert failed.returncode == 1
    assert failed.stderr == f"{OWN} lets nobody in: docker is not installed.\n"
