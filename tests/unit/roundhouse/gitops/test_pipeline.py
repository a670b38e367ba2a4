"""The environments of the workflows."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from onboarding.tree import read_tree
from roundhouse.cli.app import app
from roundhouse.errors import RoundhouseError
from roundhouse.gitops.set_up import pipeline_environments

pytestmark = pytest.mark.unit


@pytest.fixture
def environments(tmp_path):
    """Return the names of environments, given as name -> promotes_from."""

    def names(sources):
        folder = tmp_path / "environments"
        folder.mkdir()
        for name, source in sources.items():
            text = f'name: {name}\naccount: "111122223333"\nregion: eu-west-1\n'
            more = f"promotes_from: {source}\n" if source else ""
            (folder / f"{name}.yaml").write_text(f"{text}platform: triton-26.05\n{more}")
        return pipeline_environments(read_tree(tmp_path))

    return names


def test_environment_that_receives_comes_after_its_source(environments):
    found = environments({"a-prod": "staging", "staging": "z-dev", "z-dev": None})
    assert [item.name for item in found] == ["z-dev", "staging", "a-prod"]


def test_local_cloud_is_none_of_them(environments):
    assert [item.name for item in environments({"local": None, "dev": None})] == ["dev"]


def test_circle_of_promotions_ends(environments):
    assert {item.name for item in environments({"a": "b", "b": "a"})} <= {"a", "b"}


def test_roles_are_named_by_environment_and_purpose(environments):
    (dev,) = environments({"dev": None})
    assert dev.roles["build"] == "arn:aws:iam::111122223333:role/roundhouse-dev-build"
    assert dev.as_dict()["region"] == "eu-west-1"
    assert dev.has_roles is False
    assert 3600 <= dev.session_seconds <= 21_600


def test_environments_are_listed_for_workflows(environments, tmp_path):
    environments({"dev": None, "prod": "dev"})
    with (tmp_path / "environments" / "prod.yaml").open("a") as file:
        file.write("github: {repository: acme/models, repository_id: 1, owner_id: 2}\n")
    words = ["status", "--environments", "--root", str(tmp_path)]
    assert CliRunner().invoke(app, words).output.split() == ["dev", "prod"]
    found = json.loads(CliRunner().invoke(app, [*words, "--format", "json"]).output)
    assert [(item["name"], item["has_roles"]) for item in found] == [("dev", False), ("prod", True)]
    assert CliRunner().invoke(app, [*words, "--env", "prod"]).output.split() == ["prod"]


def test_refuses_an_environment_that_workflows_do_not_deploy(environments, tmp_path):
    environments({"local": None, "dev": None})
    words = ["status", "--environments", "--root", str(tmp_path), "--env"]
    for name in ("local", "prod"):
        with pytest.raises(RoundhouseError, match=f"No environment '{name}' that workflows deploy"):
            CliRunner().invoke(app, [*words, name], catch_exceptions=False)
