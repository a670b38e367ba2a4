"""The package as a newcomer meets it: a wheel, an empty folder, an empty home, public registries.

The model is a network of one layer, so that nothing is downloaded but packages, and nothing is
built; `make newcomer` runs the lines of docs/onboarding.md to an endpoint that answers.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from onboarding.resolve import deployments
from onboarding.tree import read_tree
from roundhouse.deploy.builds.source import CODE_FOLDERS, source_zip
from stacks.images import read_image_files
from tests.unit.onboarding.onnx_bytes import onnx_bytes

pytestmark = pytest.mark.package

ROOT = Path(__file__).resolve().parents[2]
UV = ROOT / ".venvs" / "uv" / "bin" / "uv"
BUCKET = '''\
"""Synthesises one stage an environment, and a bucket of our own."""

from aws_cdk import Stack
from aws_cdk.aws_s3 import Bucket

from roundhouse.cdk_app import add_environments, create_app

app = create_app()
Bucket(Stack(add_environments(app)["local"], "Team"), "Data")
app.synth()
'''


@dataclass(frozen=True, kw_only=True)
class Team:
    """A team's folder, with an interpreter that has the wheel; its home is empty."""

    folder: Path
    home: Path

    @property
    def code(self) -> Path:
        """Where the package lies."""
        return next(self.folder.glob(".venv/lib/python3.*/site-packages/roundhouse_source"))

    def run(self, *words, code=0):
        """Run a program in the folder; return its standard output, or what it refuses with."""
        path = f"{self.folder / '.venv' / 'bin'}:{self.folder / 'node_modules' / '.bin'}"
        variables = {"HOME": str(self.home), "PATH": f"{path}:{os.environ['PATH']}"}
        registries = ("npm_config_", "NODE_EXTRA", "HTTP", "http", "NO_PROXY", "no_proxy", "SSL")
        variables |= {k: v for k, v in os.environ.items() if k.startswith(registries)}
        ended = subprocess.run(
            words, cwd=self.folder, env=variables, capture_output=True, text=True, check=False
        )
        output = ended.stdout + ended.stderr
        assert (ended.returncode, "Traceback" in output) == (code, False), output
        return ended.stdout if code != 1 else ended.stderr


@pytest.fixture(scope="module")
def team(tmp_path_factory):
    """A repository that `roundhouse init` made, with a model; its engine is not built."""
    place = tmp_path_factory.mktemp("newcomer")
    made = Team(folder=place / "team", home=place / "home")
    for folder in (made.folder, made.home):
        folder.mkdir()
    wheels, python = place / "wheels", made.folder / ".venv" / "bin" / "python"
    wheel = wheels / "roundhouse-0.1.0-py3-none-any.whl"
    locked = ("-c", ROOT / "requirements" / "roundhouse.txt")
    for command in (
        ("build", "--wheel", "--out-dir", wheels, ROOT),
        ("venv", "--python", sys.executable, made.folder / ".venv"),
        ("pip", "install", "--python", python, *locked, wheel),
    ):
        subprocess.run((UV, "--quiet", *command), check=True)
    made.run("roundhouse", "init")
    made.run("npm", "ci", "--no-audit", "--no-fund")
    git = ("git", "-c", "user.name=A", "-c", "user.email=a@example.com")
    made.run("git", "init", "--quiet", "--initial-branch", "main")
    made.run("git", "add", "--all")
    made.run(*git, "commit", "--quiet", "--message", "Repository")
    data = made.folder / "models" / "data"
    data.mkdir()
    (data / "net.onnx").write_bytes(onnx_bytes({"x": (1, (None, 4))}))
    made.run("roundhouse", "init", "my-net", "--onnx", "models/data/net.onnx")
    return made


def test_nothing_of_the_package_lies_in_the_repository(team):
    assert sorted(path.name for path in team.folder.iterdir() if path.name != ".git") == [
        ".gitignore", ".venv", "README.md", "app.py", "cdk.json", "endpoints", "environments",
        "models", "node_modules", "package-lock.json", "package.json", "requirements.txt",
    ]  # fmt: skip
    assert len((team.folder / "app.py").read_text().splitlines()) <= 10
    assert "roundhouse-0.1.0-py3-none-any.whl" in (team.folder / "requirements.txt").read_text()
    assert [path.name for path in team.home.iterdir()] == [".npm"]


def test_builders_and_images_receive_the_same_bytes_as_from_a_checkout(team):
    assert source_zip(team.code, team.folder) == source_zip(ROOT, team.folder)
    assert read_image_files(team.code) == read_image_files(ROOT)
    assert {path.name for path in team.code.iterdir()} >= set(CODE_FOLDERS)
    assert not (team.code / "tests").exists()


def test_check_and_plan_know_the_model_by_the_key_of_a_checkout(team):
    assert "no fault" in team.run("roundhouse", "check")
    plan = json.loads(team.run("roundhouse", "plan", "--format", "json", code=3))
    (deployment,) = deployments(read_tree(team.folder), "local")
    assert deployment.targets[0].engine_key in json.dumps(plan)


def test_synth_holds_a_bucket_of_the_teams_own(team):
    own = team.folder / "app.py"
    text = own.read_text()
    own.write_text(BUCKET)
    output = team.run("cdk", "synth", "--quiet", "-c", "env=local")
    own.write_text(text)
    (template,) = (team.folder / "cdk.out").rglob("*Team*.template.json")
    resources = json.loads(template.read_text())["Resources"].values()
    assert "AWS::S3::Bucket" in {item["Type"] for item in resources}, output
    assert len(list((team.folder / "cdk.out").rglob("*Builds*.template.json"))) == 1


def test_refuses_a_folder_that_hides_a_package(team):
    hiding = team.folder / "stacks"
    hiding.mkdir()
    (hiding / "__init__.py").touch()
    output = team.run("python", "app.py", code=1)
    shutil.rmtree(hiding)
    assert f"{hiding}: hides Roundhouse's package stacks; give that folder another name." in output
