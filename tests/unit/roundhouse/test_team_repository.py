"""`roundhouse init` in a folder: what it writes, keeps and refuses; what is made beside it."""

from __future__ import annotations

import json
import re
import tomllib
from importlib.metadata import PackageNotFoundError

import pytest
from typer.testing import CliRunner

from onboarding.tree import read_tree
from roundhouse import team_repository
from roundhouse.cli.app import app
from roundhouse.errors import RoundhouseError, UsageError
from roundhouse.paths import CODE, find_paths
from roundhouse.team_repository import requirement, team_files
from tests.unit.roundhouse.engines import REPOSITORY


@pytest.fixture
def init(tmp_path, monkeypatch):
    """Run `roundhouse init` in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return lambda *words: CliRunner().invoke(app, ["init", *words])


def test_files_are_a_sound_repository_of_the_local_environment(init, tmp_path):
    assert init().exit_code == 0
    paths = find_paths(tmp_path / "models")
    assert (paths.code, paths.repository, paths.tree) == (CODE, tmp_path, tmp_path)
    tree = read_tree(tmp_path)
    assert (tree.faults, list(tree.environments)) == ((), ["local"])


def test_what_a_new_repository_has_already_is_kept(init, tmp_path):
    (tmp_path / "README.md").write_text("Ours")
    assert init("--workflows", "gitlab", "--owners", "@acme/a").exit_code == 0
    assert (tmp_path / "README.md").read_text() == "Ours"
    assert (tmp_path / ".gitlab-ci.yml").is_file()


def test_refuses_an_application_of_another_kind_and_writes_nothing(init, tmp_path):
    (tmp_path / "app.py").write_text("app = None\n")
    refused = init()
    assert isinstance(refused.exception, RoundhouseError)
    assert re.search(r"app\.py: changed, or not of this command", str(refused.exception))
    assert [path.name for path in tmp_path.iterdir()] == ["app.py"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--onnx", "a.onnx"), "Name the model"),
        (("--owners", "@a"), "are of --workflows"),
        (("Model", "--onnx", "a.onnx"), "is no model name"),
    ],
)
def test_refuses_wrong_usage_before_anything_is_written(init, tmp_path, words, message):
    refused = init(*words)
    assert isinstance(refused.exception, UsageError) and message in str(refused.exception)
    assert list(tmp_path.iterdir()) == []


def test_refuses_a_repository_without_anything_to_write(init):
    init()
    assert "is a repository already" in str(init().exception)


class Package:
    """An installed distribution."""

    version = "1.2.3"

    def __init__(self, origin):
        self.origin = origin

    def read_text(self, name):
        return self.origin


@pytest.mark.parametrize(
    ("origin", "line"),
    [
        (None, "roundhouse==1.2.3"),
        (
            {"url": "https://a/r.whl", "archive_info": {"hashes": {"sha256": "ab"}}},
            "roundhouse @ https://a/r.whl#sha256=ab",
        ),
        ({"url": "file:///r", "dir_info": {}}, "roundhouse @ file:///r"),
    ],
)
def test_requirement_is_what_was_installed(monkeypatch, tmp_path, origin, line):
    text = None if origin is None else json.dumps(origin)
    monkeypatch.setattr(team_repository, "distribution", lambda name: Package(text))
    assert requirement(tmp_path) == line


def test_requirement_of_a_checkout_is_its_folder(monkeypatch, tmp_path):
    def distribution(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(team_repository, "distribution", distribution)
    assert requirement(tmp_path) == f"roundhouse @ file://{tmp_path}"


def test_the_cdk_command_line_is_ours_alone():
    files = team_files(REPOSITORY)
    own, lock = (json.loads(files[name]) for name in ("package.json", "package-lock.json"))
    ours = json.loads((REPOSITORY / "package.json").read_text())
    assert own["devDependencies"] == {"aws-cdk": ours["devDependencies"]["aws-cdk"]}
    assert list(lock["packages"]) == ["", "node_modules/aws-cdk"]


def test_dependencies_and_extras_are_those_of_the_locks():
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    groups = {
        "roundhouse": project["dependencies"],
        "platform": extras["sagemaker"],
        "bindings-10.16.1.11": extras["tensorrt"],
    }
    for name, packages in groups.items():
        lines = (REPOSITORY / "requirements" / f"{name}.in").read_text().splitlines()
        named = [line for line in lines if line and not line.startswith("#")]
        assert sorted(packages) == sorted(named)
