"""The builders' images and what CodeBuild runs of them."""

from __future__ import annotations

import fnmatch
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from engine_build.image.images import ABSENT, MANIFEST, Ended, main
from engine_build.options import options
from onboarding.plan_source import PlanSource
from onboarding.platform import serving_platforms
from onboarding.text_generation.platforms import generation_platforms
from onboarding.values import is_same_build
from stacks.images import read_image_files
from tests.locked_requirements import _pinned

BUILDSPEC = Path(__file__).resolve().parents[3] / "engine_build" / "buildspec.yml"
SHELL = yaml.safe_load(BUILDSPEC.read_text())["env"]["shell"]
PROGRAM = """
import json, os, sys
print(json.dumps(sys.argv[1:]), file=sys.stderr)
print(os.environ["RESULT"], end="")
sys.exit(int(os.environ["CODE"]))
"""


@pytest.fixture
def run_phases(tmp_path):
    """Runs both phases in one shell: exit code, the program's arguments, the exported reason."""
    (tmp_path / "engine_build").mkdir()
    (tmp_path / "engine_build" / "__main__.py").write_text(PROGRAM)
    phases = yaml.safe_load(BUILDSPEC.read_text())["phases"]
    build, after = ("\n".join(phases[name]["commands"]) for name in ("build", "post_build"))
    script = f"({build}); code=$?\n{after}\nprintf '%s\\n' \"$ROUNDHOUSE_REASON\"; exit $code"

    def run(result, code=0, **variables):
        environment = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "RESULT": result,
            "CODE": str(code),
            "ROUNDHOUSE_ENVIRONMENT": "dev",
            "ROUNDHOUSE_MODEL": "tiny",
            "ROUNDHOUSE_BUCKET": "bucket",
            **variables,
        }
        done = subprocess.run(
            (shutil.which(SHELL) or SHELL, "-c", script),
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        arguments, *errors = done.stderr.splitlines()
        assert errors == []
        return done.returncode, json.loads(arguments), done.stdout.removesuffix("\n")

    return run


def test_build_runs_engine_build_for_the_wanted_compute_capability(run_phases):
    given = {"ROUNDHOUSE_COMPUTE_CAPABILITY": "8.9", "ROUNDHOUSE_CANDIDATE": "0a1b-0"}
    code, arguments, reason = run_phases('{"status": "candidate"}', **given)
    assert (code, reason) == (0, "")
    assert arguments == [
        *("--root", ".", "--environment", "dev", "--model", "tiny", "--compute-capability", "8.9"),
        *("--out", "build/engine", "--publish", "s3://bucket", "--candidate", "0a1b-0"),
        *("--format", "json"),
    ]


def test_build_packages_the_plan_of_the_engine_that_it_is_given(run_phases):
    source = PlanSource(engine_key="0a" * 10, sha256="1b" * 32)
    arguments = run_phases("{}", ROUNDHOUSE_PLAN_FROM=str(source))[1]
    assert arguments[-4:] == ["--plan-from", str(source), "--format", "json"]
    required = ("--environment", "e", "--model", "m", "--out", "o")
    assert options((*required, *arguments[-4:-2])).plan_from == source


@pytest.mark.parametrize(
    ("code", "reason"), [(3, 'mean cosine 0.91 of "tiny", $wanted `0.99`'), (137, "")]
)
def test_a_failed_build_exports_its_reason_and_a_killed_one_none(code, reason, run_phases):
    result = json.dumps({"status": "failed", "reason": reason}) if reason else ""
    assert run_phases(result, code)[::2] == (code, reason)


def test_the_shell_reads_what_nvidias_images_set_for_it(run_phases, tmp_path):
    """CodeBuild ignores their entry point; BASH_ENV reaches a shell that nobody types into."""
    (tmp_path / "bashrc").write_text("export ROUNDHOUSE_MODEL=from-the-image\n")
    assert "from-the-image" in run_phases("{}", BASH_ENV=str(tmp_path / "bashrc"))[1]


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
    held = {ROOT / path for path in read_image_files(ROOT)[image]}
    assert {IMAGES[image], *(ROOT / path for path in paths)} <= held


@every_tensorrt
def test_every_tensorrt_that_serves_has_locked_bindings_of_that_build(tensorrt):
    bindings = (ROOT / f"requirements/bindings-{tensorrt}.txt").read_text()
    found = re.search(r"^tensorrt-cu1[23]-bindings==([\d.]+) ", bindings, re.MULTILINE)
    assert found is not None and is_same_build(found[1], tensorrt)
    builder = (ROOT / "requirements/builder.txt").read_text()
    assert _pinned(builder) & _pinned(bindings) == set()


def test_quantizers_image_measures_with_the_vllm_that_serves():
    path = ROOT / "engine_build/image/quantizer/Dockerfile"
    lines = [shlex.split(rest)[:-1] for keyword, rest in instructions(path) if keyword == "COPY"]
    copies = {word for line in lines for word in line if not word.startswith("--")}
    assert "requirements/vllm-gpu.txt" in copies
    assert copies <= read_image_files(ROOT)["builder-quantizer"].keys()
    assert ("ENV", "ROUNDHOUSE_VLLM_PYTHON=/opt/vllm/bin/python") in instructions(path)
    rows = [row for row in generation_platforms().values() if row.name.startswith("vllm-")]
    newest = max(filter(None, (row.engine_version for row in rows)))
    locks = {name: (ROOT / f"requirements/{name}.txt").read_text() for name in ("vllm-gpu", "vllm")}
    assert f"\nvllm=={newest} \\\n" in locks["vllm-gpu"]
    assert f"\nvllm-cpu=={newest} \\\n" in locks["vllm"]


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


def test_both_registries_are_opened_and_the_password_is_no_argument(orders):
    tools = Tools()
    run(orders, tools)
    assert [command[-1] for command in tools.runs_of("docker", "login")] == [OWN, AWS]
    assert not any("secret" in word for command in tools.commands for word in command)
    assert tools.inputs.count("secret") == 2


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
