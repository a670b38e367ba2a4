"""`roundhouse deploy --endpoint NAME`: its engines are verified, its stack is deployed, and nothing
else is looked at.
"""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest

from onboarding.fault import FaultsError
from roundhouse.cli import app as cli
from roundhouse.deploy import cdk, deployment
from roundhouse.deploy.builds import engines
from roundhouse.deploy.deployment import EARLY_STACKS
from tests.unit.roundhouse.deploy.whole_session import whole_session
from tests.unit.roundhouse.engines import copied_tree

pytestmark = pytest.mark.unit


@pytest.fixture
def session(tmp_path):
    """The session of one endpoint; what was run is in `commands`."""
    commands = []
    whole = whole_session(tmp_path)

    def run(command, on_line=None):
        commands.append(command)
        return whole.run(command, on_line)

    run.commands = commands
    return replace(whole, endpoints=("sentence-embedder",), run=run)


def test_session_of_some_endpoints_is_theirs_alone(session):
    assert [each.name for each in session.deployments()] == ["sentence-embedder"]
    assert [each.name for each in replace(session, endpoints=()).deployments()] == [
        "sentence-embedder",
        "text-shared",
    ]
    with pytest.raises(
        FaultsError, match=r"unknown endpoint, given text-share;.*did you mean 'text-shared'"
    ):
        replace(session, endpoints=("text-share",)).deployments()


def test_deploy_of_some_endpoints_synthesises_them_and_deploys_all_that_is_synthesised(session):
    argv = cdk.deploy_command(replace(session, endpoints=("a", "b")), ())
    assert argv[argv.index("endpoint=a,b") - 1] == "-c" and "**" in argv


def test_early_stacks_are_synthesised_whole_for_some_endpoints_too(session):
    argv = cdk.deploy_command(session, EARLY_STACKS)
    assert not any(word.startswith("endpoint=") for word in argv) and "*/Images" in argv


def test_session_of_all_names_no_endpoint(session):
    assert not any(
        word.startswith("endpoint=")
        for word in cdk.deploy_command(replace(session, endpoints=()), ())
    )


def test_engine_of_another_endpoint_is_neither_built_nor_verified(session):
    (gone,) = (
        name
        for name in session.clients.objects
        if name.split("/")[1] == _engine(session, "sentence-embedder-fp32")
    )
    del session.clients.objects[gone]
    assert engines.wanted(session) == ()
    assert [
        order.target.model.name for order in engines.wanted(replace(session, endpoints=()))
    ] == ["sentence-embedder-fp32"]
    done = deployment.deploy(session, rebuild_gone=False)
    assert done.verified == 1 and done.built == ()
    assert "endpoint=sentence-embedder" in session.run.commands[-1].argv


def test_refuses_an_unknown_endpoint_in_one_sentence(tmp_path, monkeypatch, capsys):
    tree = copied_tree(tmp_path)
    monkeypatch.setattr(
        sys,
        "argv",
        [
            "roundhouse",
            "deploy",
            "--env",
            "dev",
            "--root",
            str(tree),
            "--endpoint",
            "sentence-embeddr",
        ],
    )
    assert cli.exit_code() == 1
    said = " ".join(capsys.readouterr().err.split())
    assert said.startswith("models: unknown endpoint, given sentence-embeddr") and said.endswith(
        "'sentence-embedder'?"
    )


def _engine(session, model):
    every = replace(session, endpoints=()).deployments()
    return next(
        target.engine_key for each in every for target in each.targets if target.model.name == model
    )
