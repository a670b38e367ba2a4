"""What the image project runs.

Missing images alone are built and pushed, and a failure is one sentence.
"""

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
OWN, AWS = (
    "111122223333.dkr.ecr.us-east-1.amazonaws.com",
    "763104351884.dkr.ecr.us-east-1.amazonaws.com",
)


def order(image):
    repository = f"roundhouse-dev/{image}"
    return {
        "image": image,
        "repository": repository,
        "tag": "abc",
        "uri": f"{OWN}/{repository}:abc",
        "dockerfile": f"{image}/Dockerfile",
        "arguments": {
            "TRITON_IMAGE": f"{AWS}/sagemaker-tritonserver:26.05-py3",
            "TENSORRT": "10.16.1.11",
        },
    }


@pytest.fixture
def orders(tmp_path):
    path = tmp_path / "images.json"
    document = {
        "region": "us-east-1",
        "registries": [OWN, AWS],
        "images": [order("triton"), order("python-server")],
    }
    path.write_text(json.dumps(document))
    return path


class Desk:
    """Docker and the `aws` command in memory.

    `pushed` are the tags that ECR holds, `fails` maps first words to an output.
    """

    def __init__(self, pushed=(), fails=None, kind=MANIFEST):
        self.pushed, self.fails, self.kind, self.commands, self.given = (
            set(pushed),
            fails or {},
            kind,
            [],
            [],
        )

    def __call__(self, command, given, quietly):
        self.commands.append(tuple(command))
        self.given.append(given)
        text = " ".join(command)
        for words, output in self.fails.items():
            if text.startswith(words):
                return Ended(1, output)
        if command[2] == "describe-images":
            name = f"{OWN}/{command[command.index('--repository-name') + 1]}:abc"
            return (
                Ended(0, f"{self.kind}\n")
                if name in self.pushed
                else Ended(254, f"An error occurred ({ABSENT}): none")
            )
        if command[:2] == ("docker", "push"):
            self.pushed.add(command[2])
        return Ended(0, "secret" if "get-login-password" in command else "")

    def words(self, *begin):
        return [command for command in self.commands if command[: len(begin)] == begin]


def run(orders, desk):
    out, err = io.StringIO(), io.StringIO()
    return main([str(orders)], desk, out, err), out.getvalue(), err.getvalue()


def test_missing_images_are_built_and_pushed_with_their_arguments(orders):
    desk = Desk(pushed=[order("triton")["uri"]])
    assert run(orders, desk) == (0, "1 images built, 1 were there.\n", "")
    (build,) = desk.words("docker", "buildx")
    assert build[3:7] == (
        "--file",
        "python-server/Dockerfile",
        "--tag",
        order("python-server")["uri"],
    )
    assert build[7:10] == ("--provenance=false", "--output", "type=docker")
    assert f"TRITON_IMAGE={AWS}/sagemaker-tritonserver:26.05-py3" in build and build[-1] == "."
    assert desk.words("docker", "push") == [("docker", "push", order("python-server")["uri"])]


def test_both_registries_are_opened_and_the_password_is_no_argument(orders):
    desk = Desk()
    run(orders, desk)
    assert [command[-1] for command in desk.words("docker", "login")] == [OWN, AWS]
    assert not any("secret" in word for command in desk.commands for word in command)
    assert desk.given.count("secret") == 2


def test_nothing_is_done_when_every_tag_is_there(orders):
    desk = Desk(pushed=[order("triton")["uri"], order("python-server")["uri"]])
    assert run(orders, desk)[:2] == (0, "0 images built, 2 were there.\n")
    assert {command[0] for command in desk.commands} == {"aws"}


def test_a_tag_that_another_build_pushed_meanwhile_is_as_good(orders):
    desk = Desk(
        pushed=[order("triton")["uri"]], fails={"docker push": "tag invalid: it is immutable"}
    )
    build = desk.__call__

    def faster(command, given, quietly):
        if command[:2] == ("docker", "push"):
            desk.pushed.add(command[2])
        return build(command, given, quietly)

    assert run(orders, faster)[0] == 0


@pytest.mark.parametrize(
    ("fails", "said"),
    [
        (
            {"docker buildx": "step 3\nno space left on device\n"},
            "triton: docker build ended with 1: no space left on device.",
        ),
        (
            {"docker push": "denied: no permission."},
            "triton: docker push ended with 1: denied: no permission.",
        ),
        ({"docker login": "unauthorized"}, f"{OWN} lets nobody in: unauthorized."),
        ({"aws ecr get-login-password": "expired"}, "ECR gives no password: expired."),
        ({"aws ecr describe-images": "AccessDenied: no"}, "triton: ECR cannot be asked for"),
    ],
)
def test_refuses_with_one_sentence(orders, fails, said):
    code, out, err = run(orders, Desk(fails=fails))
    assert (code, out) == (1, "")
    assert err.startswith(said) and err.count("\n") == 1


def test_refuses_an_image_that_sagemaker_would_refuse(orders):
    code, _, err = run(orders, Desk(kind="application/vnd.oci.image.manifest.v1+json"))
    assert code == 1
    assert (
        "SageMaker takes application/vnd.docker.distribution.manifest.v2+json only; delete that tag"
        in err
    )


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"region": "r", "registries": []}'])
def test_refuses_what_is_no_list_of_images(tmp_path, text):
    path = tmp_path / "images.json"
    path.write_text(text)
    code, _, err = run(path, Desk())
    assert code == 1 and "is no list of images" in err and "Traceback" not in err


def test_the_buildspec_runs_the_program_with_real_processes(orders, tmp_path):
    """The command as CodeBuild runs it, with a `docker` and an `aws` that write down how they were
    called.
    """
    (command,) = yaml.safe_load((ROOT / "engine_build/image/buildspec.yml").read_text())["phases"][
        "build"
    ]["commands"]
    programs = tmp_path / "bin"
    programs.mkdir()
    asked = f"test -e {tmp_path}/pushed && echo {MANIFEST} && exit 0; echo {ABSENT}; exit 254"
    aws = f'case "$*" in *describe-images*) {asked};; esac'
    does = f"login) cat > {tmp_path}/password;; push) touch {tmp_path}/pushed;;"
    docker = f'echo "docker $*" >> {tmp_path}/called; case "$1" in {does} esac'
    for name, text in (("aws", f"{aws}\necho hush"), ("docker", docker)):
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o755)
    (programs / "python3").symlink_to(sys.executable)
    (tmp_path / "engine_build").symlink_to(ROOT / "engine_build")
    environment = {"PATH": f"{programs}:/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"}
    ended = subprocess.run(
        command,
        shell=True,
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.endswith("2 images built, 0 were there.\n") and "hush" not in ended.stdout
    assert (tmp_path / "password").read_text() == "hush\n"
    assert (
        sum(
            line.startswith("docker push")
            for line in (tmp_path / "called").read_text().splitlines()
        )
        == 2
    )
    (programs / "docker").unlink()
    (tmp_path / "pushed").unlink()
    failed = subprocess.run(
        command,
        shell=True,
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert failed.returncode == 1
    assert failed.stderr == f"{OWN} lets nobody in: docker is not installed.\n"
